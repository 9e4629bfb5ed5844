//! What the tests of the store share.

#![allow(dead_code, reason = "not every test that shares this module uses all of it")]

#[cfg(feature = "postgres")]
mod postgres;

use std::fs;
use std::path::{Path, PathBuf};

use keylane_service::store::{
    JobStatus, JobUpload, NewJob, OutcomeKind, RecoveredJobs, Store, StoreDamage, StoreOpenError,
    StoreSettings, SubtaskOutcome,
};
use keylane_service::{JobNumber, KeyClaim, SubtaskNumber};
use rusqlite::Connection;
use tempfile::TempDir;

/// When everything happens that does not say otherwise.
pub(crate) const NOW: u64 = 1_763_000_000_000;

/// A folder that goes when the test ends, and a store's path in it.
pub(crate) fn place() -> (TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a.store");
    #[cfg(feature = "postgres")]
    if postgres::is_wanted() {
        postgres::create(&path, None);
    }
    (folder, path)
}

pub(crate) fn open(path: &Path) -> (Store, RecoveredJobs) {
    open_with(path, StoreSettings::default()).unwrap()
}

/// Opens the store at a place.
pub(crate) fn open_with(
    path: &Path,
    settings: StoreSettings,
) -> Result<(Store, RecoveredJobs), StoreOpenError> {
    #[cfg(feature = "postgres")]
    let settings = StoreSettings { postgres: postgres::of(path), ..settings };
    Store::open(path, &settings)
}

/// Whether the stores of this run are in files, which have layouts of earlier versions, copies, and a log.
pub(crate) fn is_in_file() -> bool {
    #[cfg(feature = "postgres")]
    if postgres::is_wanted() {
        return false;
    }
    true
}

/// Changes rows of a store that is not open, behind its back.
pub(crate) fn change_rows(path: &Path, sql: &str) {
    #[cfg(feature = "postgres")]
    if postgres::is_wanted() {
        return drop(postgres::query(path, sql));
    }
    let connection = Connection::open(path).unwrap();
    connection.execute_batch(sql).unwrap();
    assert_ne!(connection.changes(), 0, "{sql}");
}

/// Counts the rows of a table.
pub(crate) fn count_rows(path: &Path, table: &str) -> i64 {
    let sql = format!("SELECT count(*) FROM {table}");
    #[cfg(feature = "postgres")]
    if postgres::is_wanted() {
        return postgres::query(path, &sql).parse().unwrap();
    }
    Connection::open(path).unwrap().query_row(&sql, [], |row| row.get(0)).unwrap()
}

/// Copies the open store at a path to another path, by the means of its database.
pub(crate) fn back_up(store: &Store, path: &Path, copy: &Path) {
    #[cfg(feature = "postgres")]
    if postgres::is_wanted() {
        return postgres::create(copy, Some(path));
    }
    let _ = path;
    store.backup(copy).unwrap();
}

/// Checks a store that is not open.
pub(crate) fn damage_of(path: &Path) -> Vec<StoreDamage> {
    match is_in_file() {
        true => Store::inspect(path).unwrap().damage,
        false => open(path).0.check().unwrap().damage,
    }
}

/// A store to which there is nothing to go on with.
pub(crate) fn new_store(path: &Path) -> Store {
    let (store, mut recovered) = open(path);
    assert!(recovered.next_job().unwrap().is_none());
    store
}

/// A job that says which it is.
pub(crate) fn new_job(number: JobNumber) -> NewJob {
    NewJob {
        kind: format!("kind {}", number.0 % 3),
        created_ms: NOW + number.0,
        head: format!("<head {}>", number.0).into_bytes(),
        status: JobStatus::WAITING,
        idempotency: None,
    }
}

/// The keys of a subtask: none, one or two.
pub(crate) fn keys(job: JobNumber, number: SubtaskNumber) -> Vec<Vec<u8>> {
    let key = |salt: u32| format!("key {}", (number + salt) % 5).into_bytes();
    (0..(job.0 as u32 + number) % 3).map(key).collect()
}

/// Uses of the keys of a subtask: it shares the second one.
pub(crate) fn claims(keys: &[Vec<u8>]) -> Vec<KeyClaim<'_>> {
    let claim = |(at, key)| KeyClaim { key, is_shared: at == 1 };
    keys.iter().map(Vec::as_slice).enumerate().map(claim).collect()
}

/// Nothing else looks like it.
pub(crate) fn payload(job: JobNumber, number: SubtaskNumber) -> Vec<u8> {
    format!("<payload {} {number}>", job.0).into_bytes()
}

/// An upload with `count` subtasks, each of which names its number.
pub(crate) fn upload(store: &Store, total: u32) -> JobUpload {
    let mut upload = store.upload(NOW).unwrap();
    let job = upload.job();
    for number in 0..total {
        assert_eq!(
            upload.push_claims(&claims(&keys(job, number)), &payload(job, number)),
            Ok(number)
        );
        if upload.is_full() {
            upload.flush().unwrap();
        }
    }
    upload
}

/// A job with `count` subtasks that is on the disk.
pub(crate) fn accepted(store: &Store, total: u32) -> JobNumber {
    let upload = upload(store, total);
    let job = upload.job();
    upload.finish(new_job(job)).wait().unwrap();
    job
}

/// How a subtask has ended, which says which it is.
pub(crate) fn outcome(number: SubtaskNumber, kind: OutcomeKind) -> SubtaskOutcome {
    SubtaskOutcome {
        number,
        attempt: number % 3 + 1,
        kind,
        started_ms: NOW + 10,
        ended_ms: NOW + 20 + u64::from(number),
        result: format!("<result {number}>").into_bytes(),
    }
}

/// The subtasks of a job that are to be done, and how often each was begun. Looks at their keys and
/// payloads too.
pub(crate) fn waiting(
    recovered: &keylane_service::store::RecoveredJob,
) -> Vec<(SubtaskNumber, u32)> {
    let mut waiting = Vec::new();
    let job = recovered.job.number;
    recovered
        .for_each_waiting(|one| {
            let number = one.subtask.number();
            assert!(
                one.subtask.keys().eq(claims(&keys(job, number))),
                "the keys of {job:?} {number}"
            );
            assert_eq!(one.subtask.payload(), payload(job, number));
            waiting.push((number, one.attempts));
        })
        .unwrap();
    waiting
}

/// The store as a killed process would leave it: its files as they are, while it is open and no change
/// waits. The writer may still remove rows and empty its log, and a kill would stop it between two
/// writes; so the files are read until they are the same twice.
pub(crate) fn copy_as_is(path: &Path) -> (TempDir, PathBuf) {
    #[cfg(feature = "postgres")]
    if postgres::is_wanted() {
        let folder = tempfile::tempdir().unwrap();
        let copy = folder.path().join("a.store");
        postgres::create(&copy, Some(path));
        return (folder, copy);
    }
    let with = |path: &Path, suffix: &str| PathBuf::from(format!("{}{suffix}", path.display()));
    let read = || ["-mark", "", "-wal"].map(|suffix| fs::read(with(path, suffix)).ok());
    let mut files = read();
    loop {
        let again = read();
        if again == files {
            break;
        }
        files = again;
    }
    let (folder, copy) = place();
    for (suffix, bytes) in ["-mark", "", "-wal"].into_iter().zip(files) {
        if let Some(bytes) = bytes {
            fs::write(with(&copy, suffix), bytes).unwrap();
        }
    }
    (folder, copy)
}
