//! Registry: the parent's list of running process groups, in a table that outlives it.

use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group, test_kill_process_group};

use crate::guard::{GuardHandle, GuardMechanism};
use crate::leftovers::{MessageSink, RegistryOpenError, end_leftovers, lock};
use crate::table::{self, GroupSlot, TableHeader};
use crate::{GRACE, TAG, say, scan, table_folder};

/// How a registry is opened.
#[derive(Clone)]
pub struct RegistryOptions {
    guard: GuardMechanism,
    grace: Duration,
    tell: MessageSink,
}

impl Default for RegistryOptions {
    /// Without a guard; messages go to standard error.
    fn default() -> Self {
        RegistryOptions { guard: GuardMechanism::None, grace: GRACE, tell: Arc::new(say) }
    }
}

impl RegistryOptions {
    /// Sets the mechanism that ends the children if this process is killed.
    #[must_use]
    pub fn guard(mut self, guard: GuardMechanism) -> Self {
        self.guard = guard;
        self
    }

    /// Sets the time between SIGTERM and SIGKILL of a guard. Default: [`GRACE`](crate::GRACE).
    #[must_use]
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets where messages for people go.
    #[must_use]
    pub fn tell(mut self, tell: impl Fn(&str) + Send + Sync + 'static) -> Self {
        self.tell = Arc::new(tell);
        self
    }
}

impl fmt::Debug for RegistryOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RegistryOptions").field("guard", &self.guard).finish_non_exhaustive()
    }
}

/// Registry of the running process groups. Clones share one registry.
///
/// The default registry has no table: its children outlive a killed process.
#[derive(Clone, Default)]
pub struct Registry {
    inner: Option<Arc<RegistryInner>>,
}

struct RegistryInner {
    /// The table. The lock on it is held as long as this process or its guard has it open.
    file: File,
    /// Path of a table that no later process is to find, once it is empty.
    own_path: Option<PathBuf>,
    header: TableHeader,
    slots: Mutex<FreeSlots>,
    guarding: Option<GuardHandle>,
}

/// Which slots are free.
#[derive(Debug, Default)]
struct FreeSlots {
    /// Numbers of slots in the table that are in use by no place; the last is used next.
    free: Vec<usize>,
    /// Number of slots in the table.
    count: usize,
    /// True once the header is written. A full disk may delay that until the first place is reserved.
    begun: bool,
    /// True once [`Registry::dismiss`] has found no place in use.
    dismissed: bool,
}

impl Registry {
    /// Opens a registry whose table is in memory: only a guard can end the processes in it.
    ///
    /// # Errors
    ///
    /// Returns an error if there is no space, or the guard cannot be started.
    pub fn in_memory(options: &RegistryOptions) -> Result<Self, RegistryOpenError> {
        let io = |doing| move |source| RegistryOpenError::Io { doing, path: None, source };
        let file = tempfile_in_memory().map_err(io("keep a list of child processes"))?;
        Self::with_table(file, None, options).map_err(io("start the guard of child processes"))
    }

    /// Opens a registry whose table is a new file in this folder, which is made if it does not
    /// exist.
    ///
    /// For processes that have no file of their own beside which a table could be: a user's
    /// processes with the same folder end the children that any of them has left. Waits until the
    /// guards of killed processes have ended their children; where a guard was killed too, ends
    /// them here: SIGTERM, [`GRACE`](crate::GRACE), SIGKILL. The children of running processes are not affected.
    ///
    /// Where no file can be made in the folder, the table is in memory.
    ///
    /// # Errors
    ///
    /// Returns an error if a table there cannot be opened or is invalid, or the guard cannot be
    /// started.
    pub fn in_folder(path: &Path, options: &RegistryOptions) -> Result<Self, RegistryOpenError> {
        match table_folder::prepare(path) {
            Ok(true) => table_folder::end_abandoned(path, &options.tell)?,
            Ok(false) => {
                (options.tell)(&format!(
                    "{} is not a folder that this user alone can use; remove it, so that the \
                     next start finds the child processes of this one if it is killed together \
                     with their guard",
                    path.display()
                ));
                return Self::in_memory(options);
            }
            Err(_) => return Self::in_memory(options),
        }
        let Ok((file, own)) = table_folder::new_table(path) else {
            return Self::in_memory(options);
        };
        let io = |source| RegistryOpenError::Io {
            doing: "start the guard of child processes with",
            path: Some(own.clone()),
            source,
        };
        Self::with_table(file, Some(own.clone()), options).map_err(io)
    }

    /// Opens a registry whose table is this file, and makes it if it does not exist.
    ///
    /// Waits until the guard of an earlier process has ended that process's children. Processes
    /// left in the table, because the guard was killed too, are ended here: SIGTERM, [`GRACE`](crate::GRACE),
    /// SIGKILL. On return no process that the table listed runs.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be opened or is invalid, or the guard cannot be started.
    pub fn open(path: &Path, options: &RegistryOptions) -> Result<Self, RegistryOpenError> {
        let io = |doing| {
            move |source| RegistryOpenError::Io { doing, path: Some(path.to_owned()), source }
        };
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o600)
            .open(path)
            .map_err(io("open"))?;
        lock(&file, &options.tell).map_err(io("lock"))?;
        end_leftovers(&file, &options.tell).map_err(|error| error.of(path))?;
        Self::with_table(file, None, options).map_err(io("start the guard of child processes with"))
    }

    /// The table is locked by this process, and empty or out of date.
    fn with_table(
        file: File,
        own_path: Option<PathBuf>,
        options: &RegistryOptions,
    ) -> io::Result<Self> {
        let header = TableHeader {
            machine: scan::here()?,
            file: table::identity(&file)?,
            session: scan::own_session(),
            process: std::process::id(),
            tag: tag()?,
        };
        let mut slots = FreeSlots::default();
        match slots.begin(&file, &header) {
            // A full disk prevents the start of children only.
            Err(error) if error.kind() == io::ErrorKind::StorageFull => {}
            begun => begun?,
        }
        let guarding = match options.guard {
            GuardMechanism::None => None,
            GuardMechanism::ThisProgram => {
                let tell = Arc::clone(&options.tell);
                Some(GuardHandle::start(file.try_clone()?, options.grace, tell)?)
            }
        };
        let inner = RegistryInner { file, own_path, header, slots: Mutex::new(slots), guarding };
        Ok(Registry { inner: Some(Arc::new(inner)) })
    }

    /// Reserves an entry for a child that is about to be started.
    ///
    /// # Errors
    ///
    /// Returns an error if the table is full and cannot grow: the child must then not be started.
    pub fn reserve(&self) -> io::Result<RegistryEntry> {
        let Some(inner) = &self.inner else { return Ok(RegistryEntry::default()) };
        let mut slots = inner.slots();
        slots.begin(&inner.file, &inner.header)?;
        if slots.free.is_empty() {
            let count = slots.count;
            slots.count = table::grow(&inner.file, count)?;
            let added = (count..slots.count).rev();
            slots.free.extend(added);
        }
        let index = slots.free.pop();
        drop(slots);
        let index = index.expect("the table has just got free slots");
        let taken = OccupiedSlot { inner: Arc::clone(inner), index, before: scan::now() };
        Ok(RegistryEntry { taken: Some(taken), leader: None })
    }

    /// Declares that this process ends with no child left. With a child left this has no effect:
    /// the guard ends the child.
    pub fn dismiss(&self) {
        if let Some(inner) = &self.inner {
            inner.dismiss();
        }
    }
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_guarded = self.inner.as_ref().map(|inner| inner.guarding.is_some());
        f.debug_struct("Registry").field("is_guarded", &is_guarded).finish()
    }
}

impl RegistryInner {
    fn slots(&self) -> MutexGuard<'_, FreeSlots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn dismiss(&self) {
        {
            let mut slots = self.slots();
            if slots.dismissed || slots.free.len() < slots.count {
                return;
            }
            slots.dismissed = true;
            // A table that stays is looked through in vain at the next start.
            let _ = table::clear(&self.file);
            if let Some(path) = &self.own_path {
                // One that stays is removed by the next start.
                let _ = fs::remove_file(path);
            }
            *slots = FreeSlots { dismissed: true, ..FreeSlots::default() };
            // A child process that another thread starts may have the file for a moment longer.
            let _ = self.file.unlock();
        }
        if let Some(guarding) = &self.guarding {
            guarding.dismiss();
        }
    }
}

impl Drop for RegistryInner {
    fn drop(&mut self) {
        self.dismiss();
    }
}

impl FreeSlots {
    fn begin(&mut self, file: &File, header: &TableHeader) -> io::Result<()> {
        if self.dismissed {
            let why = "the process is about to end, and starts nothing more";
            return Err(io::Error::new(io::ErrorKind::NotConnected, why));
        }
        if !self.begun {
            self.count = table::begin(file, header)?;
            self.free = (0..self.count).rev().collect();
            self.begun = true;
        }
        Ok(())
    }
}

/// Entry in the table for one child and its descendants. Dropping it frees the entry, which is
/// allowed only once the group is gone.
#[derive(Debug, Default)]
#[must_use = "a child is looked after as long as its place is there"]
pub struct RegistryEntry {
    taken: Option<OccupiedSlot>,
    leader: Option<Pid>,
}

struct OccupiedSlot {
    inner: Arc<RegistryInner>,
    index: usize,
    /// Milliseconds since the machine's start when the place was reserved.
    before: u64,
}

impl RegistryEntry {
    /// Name and value of the environment variable that the child must be started with.
    #[must_use]
    pub fn tag(&self) -> Option<(&'static str, &str)> {
        self.taken.as_ref().map(|taken| (TAG, taken.inner.header.tag.as_str()))
    }

    /// Registers a child that leads a process group of its own.
    ///
    /// # Errors
    /// If it cannot be written. The group has been sent SIGKILL then, and is to be reaped.
    pub fn register(&mut self, leader: Pid) -> io::Result<()> {
        self.leader = Some(leader);
        let Some(OccupiedSlot { inner, index, before }) = &self.taken else { return Ok(()) };
        let slot = GroupSlot { leader, before: *before, after: scan::now() };
        table::write(&inner.file, *index, Some(slot)).inspect_err(|_| {
            let _ = kill_process_group(leader, Signal::KILL);
        })
    }

    /// Whether no process of the group runs. Valid once its leader is reaped.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        self.leader.is_none_or(|leader| test_kill_process_group(leader).is_err())
    }

    /// Whether no process of the group runs, without counting zombies that are never reaped. Scans
    /// all processes.
    #[must_use]
    pub fn is_gone_but_for_zombies(&self) -> bool {
        self.leader.is_none_or(scan::is_gone)
    }
}

impl fmt::Debug for OccupiedSlot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OccupiedSlot").field("index", &self.index).finish_non_exhaustive()
    }
}

impl Drop for OccupiedSlot {
    fn drop(&mut self) {
        let mut slots = self.inner.slots();
        // Overwriting needs no space; a slot that cannot be freed is not used again, and names a
        // group that is gone.
        if table::write(&self.inner.file, self.index, None).is_ok() {
            slots.free.push(self.index);
        }
    }
}

/// A value that no other registry has.
fn tag() -> io::Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes)
        .map_err(|_| io::Error::other("the system has no random numbers"))?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(target_os = "linux")]
fn tempfile_in_memory() -> io::Result<File> {
    use rustix::fs::{MemfdFlags, memfd_create};
    match memfd_create("keylane-children", MemfdFlags::CLOEXEC) {
        Ok(file) => Ok(file.into()),
        Err(_) => tempfile::tempfile(),
    }
}

#[cfg(not(target_os = "linux"))]
fn tempfile_in_memory() -> io::Result<File> {
    tempfile::tempfile()
}
