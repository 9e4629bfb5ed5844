//! Recorded operations, and the files that a power failure among them could leave.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::disk::{Change, Disk, FileId, NameChange};
use crate::memory_directory::memory_directory;
use crate::random::Random;

/// One recorded operation.
#[derive(Clone, Debug)]
pub(super) enum Event {
    Change {
        file: FileId,
        change: Change,
    },
    Name(NameChange),
    SyncFile {
        file: FileId,
        fails: bool,
    },
    SyncFolder {
        fails: bool,
    },
    /// Acknowledgement of the product, numbered by the test.
    Note(u64),
}

/// A sync in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncPoint<'a> {
    /// Of the file with this name.
    File(&'a str),
    /// Of the folder.
    Folder,
}

/// Operations on the files of one folder, in their order.
#[derive(Clone, Debug, Default)]
pub struct Trace {
    pub(super) events: Vec<Event>,
}

/// Files after a power failure.
#[derive(Debug)]
pub struct Crashed {
    folder: TempDir,
    notes: Vec<u64>,
    /// Number of operations before the power failure, and seed of the lost ones.
    pub moment: (usize, u64),
}

impl Crashed {
    /// Returns the folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the notes before the power failure, in their order.
    #[must_use]
    pub fn notes(&self) -> &[u64] {
        &self.notes
    }
}

impl Trace {
    /// Returns the number of operations.
    #[must_use]
    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Returns whether there are no operations.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Builds the files after a power failure that follows the first `at` operations.
    ///
    /// # Panics
    /// If the files cannot be written.
    #[must_use]
    pub fn crash(&self, at: usize, seed: u64) -> Crashed {
        let mut random = Random::new(seed ^ (at as u64) << 32);
        let content = self.disk(at, &mut random).crash(&mut random);
        let folder = write(&content);
        Crashed { folder, notes: self.notes(at), moment: (at, seed) }
    }

    /// Builds the files after a power failure at a moment that the seed decides.
    #[must_use]
    pub fn crash_anywhere(&self, seed: u64) -> Crashed {
        self.crash(Random::new(seed).below(self.len() + 1), seed)
    }

    /// Returns the trace without these syncs.
    #[must_use]
    pub fn ignore(&self, is_ignored: impl Fn(SyncPoint<'_>) -> bool) -> Trace {
        let mut names: BTreeMap<FileId, String> = BTreeMap::new();
        let is_kept = |event: &Event| match event {
            Event::Name(
                NameChange::Add { name, file } | NameChange::Rename { to: name, file, .. },
            ) => {
                names.insert(*file, name.clone());
                true
            }
            Event::SyncFile { file, .. } => !is_ignored(SyncPoint::File(&names[file])),
            Event::SyncFolder { .. } => !is_ignored(SyncPoint::Folder),
            _ => true,
        };
        let mut events = self.events.clone();
        events.retain(is_kept);
        Trace { events }
    }

    /// Returns the number of these syncs.
    #[must_use]
    pub fn syncs(&self, is_counted: impl Fn(SyncPoint<'_>) -> bool) -> usize {
        self.len() - self.ignore(is_counted).len()
    }

    /// Describes the first `at` operations, one on each line, for the message of a failed check.
    #[must_use]
    pub fn operations(&self, at: usize) -> String {
        let describe = |(number, event): (usize, &Event)| match event {
            Event::Change { file, change: Change::Write { at, bytes } } => {
                format!("{number} write file {file} at {at}, {} bytes\n", bytes.len())
            }
            Event::Name(change) => format!("{number} {change:?}\n"),
            event => format!("{number} {event:?}\n"),
        };
        self.events[..at].iter().enumerate().map(describe).collect()
    }

    /// Returns the disk after the first `at` operations.
    pub(super) fn disk(&self, at: usize, random: &mut Random) -> Disk {
        let mut disk = Disk::default();
        for event in &self.events[..at] {
            match event {
                Event::Change { file, change } => disk.change(*file, change.clone()),
                Event::Name(change) => disk.rename(change.clone()),
                Event::SyncFile { file, fails: false } => disk.sync_file(*file),
                Event::SyncFile { file, fails: true } => disk.fail_file(*file, random),
                Event::SyncFolder { fails: false } => disk.sync_folder(),
                Event::SyncFolder { fails: true } | Event::Note(_) => {}
            }
        }
        disk
    }

    fn notes(&self, at: usize) -> Vec<u64> {
        let note = |event: &Event| match event {
            Event::Note(note) => Some(*note),
            _ => None,
        };
        self.events[..at].iter().filter_map(note).collect()
    }
}

pub(super) fn write(content: &BTreeMap<String, Vec<u8>>) -> TempDir {
    let folder = recorded_folder();
    for (name, bytes) in content {
        fs::write(folder.path().join(name), bytes).expect("a file after a power failure");
    }
    folder
}

/// Creates the folder of a recording, or of what a power failure has left.
pub(super) fn recorded_folder() -> TempDir {
    memory_directory("keylane-recorded-")
}
