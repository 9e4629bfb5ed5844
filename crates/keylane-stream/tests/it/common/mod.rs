//! Shared fixtures of the journal's tests.

use std::fs;
use std::path::{Path, PathBuf};

use keylane_stream::Record;
use keylane_stream::journal::Journal;
use tempfile::TempDir;

/// Returns a directory that is removed when the test ends, and the path of a journal in it.
pub(crate) fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.journal");
    (folder, path)
}

/// Returns the record of this number, with a payload that no other record has.
#[allow(dead_code, reason = "not every test that shares this module uses it")]
pub(crate) fn record(number: u64) -> Record {
    let mut record = Record::new(format!("key {}", number % 7), format!("<payload {number:09}>"));
    record.headers.push(("number".to_owned(), Some(number.to_le_bytes().to_vec())));
    record
}

/// Returns all records of the journal.
#[allow(dead_code, reason = "not every test that shares this module uses it")]
pub(crate) fn everything(journal: &Journal) -> Vec<keylane_stream::DeliveredRecord> {
    let mut all: Vec<keylane_stream::DeliveredRecord> = Vec::new();
    loop {
        let from = all.last().map_or(journal.begin().unwrap(), |last| last.position.next());
        let more = journal.read(from, 1000).unwrap();
        if more.is_empty() {
            return all;
        }
        all.extend(more);
    }
}

/// Copies the files of an open journal, as a killed process would leave them.
#[allow(dead_code, reason = "not every test that shares this module uses it")]
pub(crate) fn copy_as_is(path: &Path) -> (TempDir, PathBuf) {
    let (folder, copy) = place();
    for suffix in ["", "-wal", "-mark"] {
        let with = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        if with(path).exists() {
            fs::copy(with(path), with(&copy)).unwrap();
        }
    }
    (folder, copy)
}
