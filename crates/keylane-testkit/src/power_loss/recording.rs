//! Recording of the file operations of this process below a folder.

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::TempDir;

use super::disk::{Change, FileId, NameChange, Names};
use super::trace::{Crashed, Event, Trace, recorded_folder, write};
use crate::random::Random;

/// Device and inode of a file.
pub(super) type Identity = (u64, u64);

/// Running recordings.
static LOGS: Mutex<Vec<Log>> = Mutex::new(Vec::new());

/// Number of running recordings, read before the lock is taken.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// Recording of the operations on the files of one folder.
#[derive(Debug)]
pub struct Recording {
    folder: TempDir,
}

#[derive(Debug)]
pub(super) struct Log {
    folder: PathBuf,
    folder_identity: Identity,
    events: Vec<Event>,
    names: Names,
    files: HashMap<Identity, FileId>,
    next: FileId,
    /// Number of syncs before the one that fails.
    syncs_before_failure: Option<usize>,
}

/// Object of a call.
#[derive(Clone, Copy, Debug)]
pub(super) enum Target {
    File(FileId),
    Folder,
}

/// No code that holds this lock unwinds or calls an intercepted function.
pub(super) fn logs() -> MutexGuard<'static, Vec<Log>> {
    LOGS.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(super) fn is_running() -> bool {
    RUNNING.load(Relaxed) > 0
}

impl Recording {
    /// Starts with a new and empty folder.
    #[must_use]
    pub fn start() -> Self {
        Self::resume(recorded_folder(), Vec::new(), &Names::new())
    }

    /// Continues a recording after a `kill -9` that follows its first `at` operations.
    #[must_use]
    pub fn after_kill(trace: &Trace, at: usize) -> Self {
        let disk = trace.disk(at, &mut Random::new(0));
        let names = disk.seen.clone();
        Self::resume(write(&disk.content()), trace.events[..at].to_vec(), &names)
    }

    /// Starts with the files that a power failure has left, all of them durable.
    #[must_use]
    pub fn after_power_loss(crashed: &Crashed) -> Self {
        let (mut events, mut names, mut content) = (Vec::new(), Names::new(), BTreeMap::new());
        for entry in fs::read_dir(crashed.folder()).expect("the folder after a power failure") {
            let path = entry.expect("a file after a power failure").path();
            let name = path.file_name().and_then(|name| name.to_str()).expect("a name in UTF-8");
            content.insert(name.to_owned(), fs::read(&path).expect("a file after a power failure"));
        }
        for ((name, bytes), file) in content.iter().zip(0..) {
            names.insert(name.clone(), file);
            events.push(Event::Name(NameChange::Add { name: name.clone(), file }));
            let change = Change::Write { at: 0, bytes: bytes.clone() };
            events.push(Event::Change { file, change });
            events.push(Event::SyncFile { file, fails: false });
        }
        events.push(Event::SyncFolder { fails: false });
        Self::resume(write(&content), events, &names)
    }

    fn resume(folder: TempDir, events: Vec<Event>, names: &Names) -> Self {
        let path = folder.path().canonicalize().expect("a temporary folder");
        let identity = |path: &Path| {
            let found = fs::metadata(path).expect("a file in a temporary folder");
            (found.dev(), found.ino())
        };
        let files = names.iter().map(|(name, file)| (identity(&path.join(name)), *file));
        // Files that were removed have numbers, too.
        let created = events.iter().filter_map(|event| match event {
            Event::Name(NameChange::Add { file, .. }) => Some(*file + 1),
            _ => None,
        });
        let log = Log {
            folder_identity: identity(&path),
            files: files.collect(),
            names: names.clone(),
            next: created.max().unwrap_or(0),
            folder: path,
            events,
            syncs_before_failure: None,
        };
        logs().push(log);
        RUNNING.fetch_add(1, SeqCst);
        Recording { folder }
    }

    /// Returns the recorded folder.
    #[must_use]
    pub fn folder(&self) -> PathBuf {
        self.with(|log| log.folder.clone())
    }

    /// Records that the product has acknowledged something.
    pub fn note(&self, note: u64) {
        self.with(|log| log.events.push(Event::Note(note)));
    }

    /// Lets the sync after `count` further ones fail.
    pub fn fail_sync(&self, count: usize) {
        self.with(|log| log.syncs_before_failure = Some(count));
    }

    /// Returns the operations so far.
    #[must_use]
    pub fn so_far(&self) -> Trace {
        self.with(|log| Trace { events: log.events.clone() })
    }

    /// Returns the number of operations so far.
    #[must_use]
    pub fn count(&self) -> usize {
        self.with(|log| log.events.len())
    }

    /// Ends the recording. All files must be closed.
    ///
    /// # Panics
    /// If the operations do not give the files in the folder: a function was not intercepted, or
    /// the program lacks [`intercept_file_calls`](crate::intercept_file_calls).
    #[must_use]
    pub fn finish(self) -> Trace {
        let events = self.with(|log| std::mem::take(&mut log.events));
        let trace = Trace { events };
        let recorded = trace.disk(trace.len(), &mut Random::new(0)).content();
        let mut found = BTreeMap::new();
        for entry in fs::read_dir(self.folder.path()).expect("the recorded folder") {
            let entry = entry.expect("the recorded folder");
            let name = entry.file_name().into_string().expect("a name in UTF-8");
            if is_recorded(&name) && entry.path().is_file() {
                found.insert(name, fs::read(entry.path()).expect("a recorded file"));
            }
        }
        let has_failed_sync = trace.events.iter().any(|event| {
            matches!(event, Event::SyncFile { fails: true, .. } | Event::SyncFolder { fails: true })
        });
        // After a failed sync the disk has less than the processes see.
        if !has_failed_sync {
            let names = |files: &BTreeMap<String, Vec<u8>>| -> Vec<(String, usize)> {
                files.iter().map(|(name, bytes)| (name.clone(), bytes.len())).collect()
            };
            assert_eq!(names(&recorded), names(&found), "recorded files and real ones");
            assert!(recorded == found, "content of the recorded files and of the real ones");
        }
        trace
    }

    fn with<T>(&self, work: impl FnOnce(&mut Log) -> T) -> T {
        let folder = self.folder.path();
        let identity = fs::metadata(folder).map(|found| (found.dev(), found.ino()));
        let identity = identity.expect("the recorded folder");
        let mut logs = logs();
        let log = logs.iter_mut().find(|log| log.folder_identity == identity);
        work(log.expect("a running recording"))
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        let folder = self.folder.path().canonicalize();
        let mut logs = logs();
        let before = logs.len();
        logs.retain(|log| folder.as_ref().map_or(true, |folder| log.folder != *folder));
        RUNNING.fetch_sub(before - logs.len(), SeqCst);
    }
}

/// Returns whether a file of this name is recorded.
fn is_recorded(name: &str) -> bool {
    !name.ends_with("-shm")
}

/// Finds the recording with this file or folder.
pub(super) fn find(logs: &mut [Log], identity: Identity) -> Option<(&mut Log, Target)> {
    logs.iter_mut().find_map(|log| {
        if log.folder_identity == identity {
            return Some((log, Target::Folder));
        }
        let file = *log.files.get(&identity)?;
        Some((log, Target::File(file)))
    })
}

/// Finds the recording with the folder of this path, and the name in it.
pub(super) fn find_name<'a, 'b>(
    logs: &'a mut [Log],
    path: &'b Path,
) -> Option<(&'a mut Log, &'b str)> {
    let (folder, name) = (path.parent()?, path.file_name()?.to_str()?);
    let log = logs.iter_mut().find(|log| log.folder == folder)?;
    is_recorded(name).then_some((log, name))
}

impl Log {
    pub(super) fn created(&mut self, name: &str, identity: Identity) {
        let file = self.next;
        self.next += 1;
        self.files.insert(identity, file);
        self.named(name, file);
    }

    fn named(&mut self, name: &str, file: FileId) {
        self.names.insert(name.to_owned(), file);
        self.events.push(Event::Name(NameChange::Add { name: name.to_owned(), file }));
    }

    pub(super) fn file(&self, name: &str) -> Option<FileId> {
        self.names.get(name).copied()
    }

    pub(super) fn linked(&mut self, from: &str, to: &str) {
        if let Some(file) = self.file(from) {
            self.named(to, file);
        }
    }

    pub(super) fn removed(&mut self, name: &str) {
        if self.names.remove(name).is_some() {
            self.events.push(Event::Name(NameChange::Remove { name: name.to_owned() }));
        }
    }

    pub(super) fn renamed(&mut self, from: &str, to: &str) {
        if let Some(file) = self.names.remove(from) {
            self.names.insert(to.to_owned(), file);
            let (from, to) = (from.to_owned(), to.to_owned());
            self.events.push(Event::Name(NameChange::Rename { from, to, file }));
        }
    }

    pub(super) fn changed(&mut self, file: FileId, change: Change) {
        self.events.push(Event::Change { file, change });
    }

    /// Records a sync. Returns whether it fails.
    pub(super) fn synced(&mut self, target: Target) -> bool {
        let fails = self.syncs_before_failure == Some(0);
        self.syncs_before_failure =
            self.syncs_before_failure.and_then(|before| before.checked_sub(1));
        self.events.push(match target {
            Target::File(file) => Event::SyncFile { file, fails },
            Target::Folder => Event::SyncFolder { fails },
        });
        fails
    }
}
