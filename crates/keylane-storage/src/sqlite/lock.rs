//! Exclusive lock of a database: it has one holder, in one process.
//!
//! # Protocol
//!
//! 1. The database file itself carries the lock: an open-file-description lock on one byte far
//!    behind the bytes that SQLite locks. It belongs to the inode, so renames, hard links, symbolic
//!    links and removed lock files lead to the same lock.
//! 2. The file `-lock` beside it is locked by `flock` as well, because earlier versions know only
//!    that lock. It also names the process, for error messages.
//! 3. Within a process, `LOCKED` has the locked inodes. It is checked before a file is opened: the
//!    system drops all POSIX locks of a process on a file, SQLite's included, as soon as the
//!    process closes any descriptor of that file. For the same reason a [`Lock`] must outlive all
//!    connections to its database.
//! 4. A forked child shares the locks of 1 and 2 until it executes another program. So after a kill
//!    they can outlive the process for a moment, which [`Lock::take`] waits for.

use std::collections::BTreeSet;
use std::fs::{self, File, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::files::{beside, open};

/// Device and inode of a file.
type Identity = (u64, u64);

/// Databases that this process has locked.
static LOCKED: Mutex<BTreeSet<Identity>> = Mutex::new(BTreeSet::new());

/// Time to wait for a lock whose holder seems to run: it may be about to end.
const LIVE_HOLDER_TIMEOUT: Duration = Duration::from_millis(500);

/// Time to wait for a lock whose holder has ended: a forked child has it for a moment.
const DEAD_HOLDER_TIMEOUT: Duration = Duration::from_secs(5);

/// Interval between attempts.
const RETRY_INTERVAL: Duration = Duration::from_millis(10);

/// Exclusive lock of a database. The system releases it when the process ends in any way.
#[derive(Debug)]
pub struct Lock {
    /// Carries the lock of the database. Closed after all connections to it.
    database: Option<File>,
    /// Carries the lock of the file `-lock`.
    beside: Option<File>,
    identity: Identity,
}

/// Error of taking a lock.
#[derive(Debug)]
pub enum LockError {
    /// The database is open already, here or in the process with this number, if known.
    InUse(Option<u32>),
    /// A file could not be opened or written.
    Io {
        /// Failed action.
        doing: &'static str,
        /// Cause.
        source: io::Error,
    },
}

fn failed(doing: &'static str) -> impl Fn(io::Error) -> LockError {
    move |source| LockError::Io { doing, source }
}

impl Lock {
    /// Locks the database at `path`; creates an empty file if there is none.
    ///
    /// # Errors
    /// If the database is locked, or cannot be opened.
    pub fn take(path: &Path) -> Result<Lock, LockError> {
        Self::take_with(path, thread::sleep)
    }

    /// Locks the database, and calls `pause` with the interval between two attempts.
    fn take_with(path: &Path, mut pause: impl FnMut(Duration)) -> Result<Lock, LockError> {
        let begun = Instant::now();
        loop {
            let by = match Self::attempt(path)? {
                Ok(lock) => return Ok(lock),
                Err(by) => by,
            };
            if begun.elapsed() >= timeout_for(by) {
                return Err(LockError::InUse(by));
            }
            pause(RETRY_INTERVAL);
        }
    }

    /// Tries once. Returns the number of the holder's process, if known, when the database is
    /// locked.
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
            // The file was renamed meanwhile. Closing the descriptor would drop SQLite's locks.
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
        // Only for messages of other processes. The lock holds without it, for example on a full
        // disk.
        let _ = name_holder(&mut beside);
        all.insert(identity);
        Ok(Ok(Lock { database: Some(database), beside: Some(beside), identity }))
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // Close the descriptors first: a thread that finds no entry may open the file.
        let mut all = locked();
        // Unlock before the close: a child that another thread has just forked has copies of both
        // until it executes its program, and a lock lasts as long as any copy is open. If the
        // unlock fails, the lock lasts that short time longer.
        if let Some(database) = self.database.take() {
            let _ = set_lock(&database, libc::F_UNLCK);
        }
        if let Some(beside) = self.beside.take() {
            let _ = beside.unlock();
        }
        all.remove(&self.identity);
    }
}

/// No code that holds this lock unwinds.
fn locked() -> MutexGuard<'static, BTreeSet<Identity>> {
    LOCKED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn identity_of(file: &fs::Metadata) -> Identity {
    (file.dev(), file.ino())
}

/// Writes the number of this process, padded to a fixed length, so that a full disk has room for
/// it.
fn name_holder(beside: &mut File) -> io::Result<()> {
    let number = format!("{:<10}\n", std::process::id());
    beside.seek(SeekFrom::Start(0))?;
    beside.write_all(number.as_bytes())?;
    beside.set_len(number.len() as u64)
}

/// Returns how long a lock of this process is waited for.
fn timeout_for(holder: Option<u32>) -> Duration {
    match holder {
        // This process itself holds it, so waiting would not help.
        Some(by) if by == std::process::id() => Duration::ZERO,
        Some(by) if has_ended(by) => DEAD_HOLDER_TIMEOUT,
        _ => LIVE_HOLDER_TIMEOUT,
    }
}

/// Returns the process that has written its number into a lock file.
fn holder(beside: &Path) -> Option<u32> {
    let mut text = String::new();
    File::open(beside).ok()?.take(32).read_to_string(&mut text).ok()?;
    text.trim().parse().ok()
}

/// Returns whether the process has ended. A zombie counts as ended.
fn has_ended(process: u32) -> bool {
    let Some(process) = i32::try_from(process).ok().and_then(rustix::process::Pid::from_raw) else {
        return true;
    };
    if rustix::process::test_kill_process(process) == Err(rustix::io::Errno::SRCH) {
        return true;
    }
    let status = fs::read_to_string(format!("/proc/{}/stat", process.as_raw_nonzero()));
    // The state follows the name, which is in parentheses and may contain some.
    status.is_ok_and(|status| {
        status.rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with(['Z', 'X']))
    })
}

/// Locks a byte of the file for this open file description. Returns whether it succeeded.
fn lock_byte(file: &File) -> io::Result<bool> {
    set_lock(file, libc::F_WRLCK)
}

/// Locks or unlocks that byte.
#[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple"))]
fn set_lock(file: &File, kind: libc::c_int) -> io::Result<bool> {
    use std::os::fd::AsRawFd;
    /// SQLite locks 512 bytes from 2³⁰ on.
    const BYTE: i64 = 1 << 62;
    // SAFETY: `flock` is a plain structure of integers, for which zero is valid.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as _;
    lock.l_whence = libc::SEEK_SET as _;
    lock.l_start = BYTE;
    lock.l_len = 1;
    // SAFETY: the descriptor is open while `file` lives, and `lock` is the structure that this
    // command reads.
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

/// Other systems cannot lock a range for an open file description, and a lock on the whole file
/// would block SQLite. The file `-lock` has the only lock there.
#[cfg(not(any(target_os = "linux", target_os = "android", target_vendor = "apple")))]
fn set_lock(_file: &File, _kind: libc::c_int) -> io::Result<bool> {
    Ok(true)
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

    /// A process that is killed while it forks leaves its locks to the child, until the child
    /// executes a program.
    #[test]
    fn a_lock_that_a_killed_process_has_left_to_its_fork_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let mut dead = std::process::Command::new("true").spawn().unwrap();
        dead.wait().unwrap();
        fs::write(beside(&path, "-lock"), format!("{}\n", dead.id())).unwrap();
        // This description has the lock, as the fork's copy has it.
        let mut fork = Some(open(&path).unwrap());
        assert!(lock_byte(fork.as_ref().unwrap()).unwrap());
        let mut pauses = 0;
        let lock = Lock::take_with(&path, |_| {
            pauses += 1;
            fork.take();
        });
        assert!(lock.is_ok(), "{lock:?}");
        assert_eq!(pauses, 1);
        let (mine, dead) = (Some(std::process::id()), Some(dead.id()));
        assert!(timeout_for(dead) > timeout_for(Some(1)));
        assert!(timeout_for(Some(1)) > timeout_for(mine));
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

    /// The process's own list would hide a missing file lock, so the test asks the system.
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
