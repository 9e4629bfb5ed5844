//! Content of a simulated disk: the durable part, and the changes that a power failure may undo.

use std::collections::BTreeMap;
use std::mem;

use crate::random::Random;

/// Size of a write that is on the disk as a whole or not at all, in bytes.
const SECTOR: usize = 512;

/// Number of a file; it stays when the file is renamed.
pub(super) type FileId = u32;

/// Files by their names in the folder.
pub(super) type Names = BTreeMap<String, FileId>;

#[derive(Clone, Debug)]
pub(super) enum Change {
    Write { at: usize, bytes: Vec<u8> },
    Truncate { length: usize },
}

#[derive(Clone, Debug)]
pub(super) enum NameChange {
    Add { name: String, file: FileId },
    Remove { name: String },
    Rename { from: String, to: String, file: FileId },
}

#[derive(Debug, Default)]
struct FileState {
    durable: Vec<u8>,
    /// Changes since the last sync, in their order.
    pending: Vec<Change>,
}

/// State of a disk with one folder.
#[derive(Debug, Default)]
pub(super) struct Disk {
    files: BTreeMap<FileId, FileState>,
    /// Names after a sync of the folder.
    durable: Names,
    /// Changes of names since the last sync of the folder, in their order.
    pending: Vec<NameChange>,
    /// Names that running processes see.
    pub(super) seen: Names,
}

impl Disk {
    pub(super) fn change(&mut self, file: FileId, change: Change) {
        self.files.entry(file).or_default().pending.push(change);
    }

    pub(super) fn rename(&mut self, change: NameChange) {
        if let NameChange::Add { file, .. } = &change {
            self.files.entry(*file).or_default();
        }
        change.apply(&mut self.seen);
        self.pending.push(change);
    }

    pub(super) fn sync_file(&mut self, file: FileId) {
        let state = self.files.entry(file).or_default();
        for change in mem::take(&mut state.pending) {
            change.apply(&mut state.durable);
        }
    }

    pub(super) fn sync_folder(&mut self) {
        for change in mem::take(&mut self.pending) {
            change.apply(&mut self.durable);
        }
    }

    /// Decides now which changes of a file are durable: after a failed sync the kernel considers
    /// its pages clean.
    pub(super) fn fail_file(&mut self, file: FileId, random: &mut Random) {
        let state = self.files.entry(file).or_default();
        settle(state, random);
    }

    /// Returns the files that running processes see.
    pub(super) fn content(mut self) -> BTreeMap<String, Vec<u8>> {
        let all: Vec<_> = self.files.keys().copied().collect();
        all.into_iter().for_each(|file| self.sync_file(file));
        let seen = mem::take(&mut self.seen);
        self.named(seen)
    }

    /// Returns the files after a power failure.
    pub(super) fn crash(mut self, random: &mut Random) -> BTreeMap<String, Vec<u8>> {
        self.files.values_mut().for_each(|state| settle(state, random));
        let mut names = mem::take(&mut self.durable);
        let pending = mem::take(&mut self.pending);
        let kept = match random.below(4) {
            0 => 0,
            1 => pending.len(),
            _ => random.below(pending.len() + 1),
        };
        let is_scattered = random.once_in(3);
        for (at, change) in pending.into_iter().enumerate() {
            let is_kept = if is_scattered { random.once_in(2) } else { at < kept };
            if is_kept {
                change.apply(&mut names);
            }
        }
        self.named(names)
    }

    fn named(mut self, names: Names) -> BTreeMap<String, Vec<u8>> {
        let mut content = |file| match self.files.get_mut(&file) {
            Some(state) => state.durable.clone(),
            None => Vec::new(),
        };
        names.into_iter().map(|(name, file)| (name, content(file))).collect()
    }
}

/// Decides which pending changes of a file are durable.
fn settle(state: &mut FileState, random: &mut Random) {
    let pending = mem::take(&mut state.pending);
    let mut whole = state.durable.clone();
    pending.iter().for_each(|change| change.clone().apply(&mut whole));
    let prefix = random.below(pending.len() + 1);
    let kind = random.below(4);
    for (at, change) in pending.into_iter().enumerate() {
        match kind {
            0 => {}
            1 => change.apply(&mut state.durable),
            2 if at < prefix => change.apply(&mut state.durable),
            2 if at > prefix => {}
            _ => change.apply_some(&mut state.durable, random),
        }
    }
    // The length of a file can be durable before its content, which reads as zeros then.
    if whole.len() > state.durable.len() && random.once_in(4) {
        state.durable.resize(whole.len(), 0);
    }
}

impl Change {
    fn apply(self, content: &mut Vec<u8>) {
        match self {
            Change::Truncate { length } => content.resize(length, 0),
            Change::Write { at, bytes } => put(content, at, &bytes),
        }
    }

    /// Applies any part of the change, in sectors.
    fn apply_some(self, content: &mut Vec<u8>, random: &mut Random) {
        match self {
            Change::Truncate { .. } if random.once_in(2) => self.apply(content),
            Change::Truncate { .. } => {}
            Change::Write { mut at, bytes } => {
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    let length = rest.len().min(SECTOR - at % SECTOR);
                    if random.once_in(2) {
                        put(content, at, &rest[..length]);
                    }
                    at += length;
                    rest = &rest[length..];
                }
            }
        }
    }
}

fn put(content: &mut Vec<u8>, at: usize, bytes: &[u8]) {
    let end = at + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[at..end].copy_from_slice(bytes);
}

impl NameChange {
    fn apply(&self, names: &mut Names) {
        match self {
            NameChange::Add { name, file } => {
                names.insert(name.clone(), *file);
            }
            NameChange::Remove { name } => {
                names.remove(name);
            }
            NameChange::Rename { from, to, file } => {
                names.remove(from);
                names.insert(to.clone(), *file);
            }
        }
    }
}
