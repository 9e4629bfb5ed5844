//! The lock of a database: it has one holder, in one process.
//!
//! # Protocol
//!
//! 1. The database file itself carries the lock: an open-file-description lock on one byte far behind the bytes that
//!    SQLite locks. It belongs to the inode, so a renamed database, another hard link to it, a symbolic link, or a
//!    removed lock file lead to the same lock.
//! 2. The file `-lock` beside it is locked, too, by `flock`: earlier versions know only that lock. It also names the
//!    process, for the message.
//! 3. Inside a process, `LOCKED` lists the inodes that are locked. It is asked before a file is opened: the system drops
//!    all of SQLite's own locks of a process on a file as soon as the process closes any descriptor of that file.
//!    For the same reason a [`Lock`] has to live longer than all connections to its database.
//! 4. A child that a process has forked, and that has not become another program yet, shares the locks of 1 and 2. So
//!    after a kill they can outlive the process for a moment, which [`Lock::take`] waits for.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// The device and the inode of a file.
type Identity = (u64, u64);

/// Databases that this process has locked.
static LOCKED: Mutex<BTreeSet<Identity>> = Mutex::new(BTreeSet::new());

/// How long a lock is waited for whose holder runs, as far as is known: it may be about to end.
const LIVE_HOLDER_TIMEOUT: Duration = Duration::from_millis(500);

/// How long a lock is waited for whose holder has ended: a child of it has the lock for a moment.
const DEAD_HOLDER_TIMEOUT: Duration = Duration::from_secs(5);

/// How often a lock that is waited for is tried.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// The mode of all files that are made here: payloads are for their owner.
const OWNER_ONLY_MODE: u32 = 0o600;

/// Keeps other processes, and other parts of this one, from opening a database. The system releases it when the
/// process ends in any way.
#[derive(Debug)]
pub struct Lock {
    /// Carries the lock of the database. Closed after all connections to it.
    database: Option<File>,
    /// Carries the lock of the file beside it.
    beside: Option<File>,
    identity: Identity,
}

/// Why a database was not locked.
#[derive(Debug)]
pub enum LockError {
    /// It is open already, here or in another process, whose number is given if it is known.
    InUse(Option<u32>),
    /// A file could not be opened or written.
    Io {
        /// What was tried.
        doing: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> LockError {
    move |source| LockError::Io { doing, source }
}

impl Lock {
    /// Locks the database at `path`, and makes an empty file if there is none.
    ///
    /// # Errors
    /// If it is locked, or cannot be opened.
    pub fn take(path: &Path) -> Result<Lock, LockError> {
        let begun = Instant::now();
        loop {
            let by = match Self::attempt(path)? {
                Ok(lock) => return Ok(lock),
                Err(by) => by,
            };
            let timeout = match by {
                // This process: it does not go away.
                Some(by) if by == std::process::id() => Duration::ZERO,
                Some(by) if has_ended(by) => DEAD_HOLDER_TIMEOUT,
                _ => LIVE_HOLDER_TIMEOUT,
            };
            if begun.elapsed() >= timeout {
                return Err(LockError::InUse(by));
            }
            thread::sleep(RETRY_INTERVAL);
        }
    }

    /// Tries once. The number of the process that has the lock, if it is locked and that is known.
    fn attempt(path: &Path) -> Result<Result<Lock, Option<u32>>, LockError> {
        // Held to the end, so that two threads do not open the same file.
        let mut all = locked();
        let here = Some(std::process::id());
        if let Ok(found) = fs::metadata(path)
            && all.contains(&identity_of(&found))
        {
            return Ok(Err(here));
        }
        let database = open(path).map_err(failed("open the database"))?;
        let identity = identity_of(&database.metadata().map_err(failed("look at the database"))?);
        if all.contains(&identity) {
            // It was renamed since. Closed, it would take SQLite's locks with it.
            std::mem::forget(database);
            return Ok(Err(here));
        }
        let beside_path = beside(path, "-lock");
        if !lock_byte(&database).map_err(failed("lock the database"))? {
            return Ok(Err(holder(&beside_path)));
        }
        let mut beside = open(&beside_path).map_err(failed("open the lock file"))?;
        match beside.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Ok(Err(holder(&beside_path))),
            Err(TryLockError::Error(error)) => return Err(failed("take the lock")(error)),
        }
        // Only for the message of another process; a full disk has no room for it, and the lock holds without it.
        let _ = name_holder(&mut beside);
        all.insert(identity);
        Ok(Ok(Lock { database: Some(database), beside: Some(beside), identity }))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The descriptors go before the entry: another thread that finds no entry may open the file.
        let mut all = locked();
        drop(self.database.take());
        drop(self.beside.take());
        all.remove(&self.identity);
    }
}

/// Nothing unwinds while it is locked.
fn locked() -> MutexGuard<'static, BTreeSet<Identity>> {
    LOCKED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn identity_of(file: &fs::Metadata) -> Identity {
    (file.dev(), file.ino())
}

/// Writes this process's number, as long as any other, so that a full disk has room for it.
fn name_holder(beside: &mut File) -> io::Result<()> {
    let number = format!("{:<10}\n", std::process::id());
    beside.seek(SeekFrom::Start(0))?;
    beside.write_all(number.as_bytes())?;
    beside.set_len(number.len() as u64)
}

/// The process that has named itself in a lock file.
fn holder(beside: &Path) -> Option<u32> {
    let mut text = String::new();
    File::open(beside).ok()?.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Whether there is no process with this number, or only what is left of one that its parent has not asked about.
fn has_ended(process: u32) -> bool {
    let Some(process) = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw) else {
        return true;
    };
    if rustix::process::test_kill_process(process) == Err(rustix::io::Errno::SRCH) {
        return true;
    }
    let status = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    // The state follows the name, which is in parentheses and may have some itself.
    status.is_ok_and(|status| {
        status.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
    })
}

/// Locks a byte of the file for this open file. Whether that was possible.
#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn lock_byte(file: &File) -> io::Result<bool> {
    use std::os::fd::AsRawFd;
    /// SQLite locks bytes from 2³⁰ on, 512 of them.
    const BYTE: i64 = 1 << 62;
    // SAFETY: `flock` is a plain structure of numbers, for which zero is a value.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = libc::F_WRLCK as _;
    lock.l_whence = libc::SEEK_SET as _;
    lock.l_start = BYTE;
    lock.l_len = 1;
    // SAFETY: the descriptor is open as long as `file` lives, and `lock` is the structure that this command reads.
    let done = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_OFD_SETLK, &raw const lock) };
    if done == 0 {
        return Ok(true);
    }
    let error = io::Error::last_os_error();
    match error.raw_os_error() {
        Some(libc::EAGAIN | libc::EACCES) => Ok(false),
        _ => Err(error),
    }
}

/// Other systems have no locks of an open file on a part of it, and a lock on all of it would be in SQLite's way: there
/// the file beside the database has the only lock.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn lock_byte(_file: &File) -> io::Result<bool> {
    Ok(true)
}

/// The path of a file beside another.
#[must_use]
pub fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

/// Opens a file to read and write it, and makes it, for its owner alone, if it is not there.
///
/// # Errors
/// If it cannot be opened or made.
pub fn open(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create(true).truncate(false).mode(OWNER_ONLY_MODE).open(path)
}

/// Makes a file to write it, for its owner alone.
///
/// # Errors
/// If it is there already, or cannot be made.
pub fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create_new(true).mode(OWNER_ONLY_MODE).open(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_inode_has_one_lock_whatever_leads_to_it() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let lock = Lock::take(&path).unwrap();
        let in_use = |path: &Path| {
            let taken = Lock::take(path);
            matches!(taken, Err(LockError::InUse(Some(by))) if by == std::process::id())
        };
        assert!(in_use(&path));
        fs::remove_file(beside(&path, "-lock")).unwrap();
        assert!(in_use(&path));
        let other = folder.path().join("other");
        fs::hard_link(&path, &other).unwrap();
        assert!(in_use(&other));
        let moved = folder.path().join("moved");
        fs::rename(&path, &moved).unwrap();
        assert!(in_use(&moved));
        drop(lock);
        drop(Lock::take(&other).unwrap());
        Lock::take(&moved).unwrap();
    }

    #[test]
    fn files_are_for_their_owner() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let _lock = Lock::take(&path).unwrap();
        for path in [&path, &beside(&path, "-lock")] {
            assert_eq!(fs::metadata(path).unwrap().mode() & 0o777, 0o600, "{}", path.display());
        }
    }

    /// The entry of this process's list would hide a lock that is not there.
    #[test]
    fn the_file_is_locked_for_other_open_files() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let lock = Lock::take(&path).unwrap();
        let other = open(&path).unwrap();
        assert!(!lock_byte(&other).unwrap());
        drop(lock);
        assert!(lock_byte(&other).unwrap());
    }
}
