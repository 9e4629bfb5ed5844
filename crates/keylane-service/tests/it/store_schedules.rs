//! Stored schedules are those that were written, change only for a caller with the current version, and stand or
//! fall with the job that is made of it.

use crate::store_support::{
    NOW, accepted, back_up, change_rows, is_in_file, new_job, new_store, open, place, upload,
};
use keylane_service::store::{AuditFilter, AuditRecord, Changes, Store, StoreDamage, WriteError};
use rusqlite::Connection;

fn set(store: &Store, name: &str, was: Option<u64>, then: Option<u64>) -> Result<(), WriteError> {
    let mut changes = Changes::new();
    let body = |version: u64| (version, format!("<{name} {version}>").into_bytes());
    changes.schedule(name, was, then.map(body));
    store.submit(changes).wait().map(drop)
}

/// Names and versions, and each body says which it is.
fn listed(store: &Store) -> Vec<(String, u64)> {
    let all = store.schedules().unwrap().into_iter().map(|record| {
        let wanted = format!("<{} {}>", record.name, record.version);
        assert_eq!(record.body, wanted.into_bytes());
        (record.name, record.version)
    });
    let mut all: Vec<_> = all.collect();
    all.sort();
    all
}

fn other(name: &str) -> Result<(), WriteError> {
    Err(WriteError::OtherVersion { schedule: name.into() })
}

#[test]
fn a_schedule_changes_only_for_who_knows_its_version() {
    let (_folder, path) = place();
    let store = new_store(&path);
    set(&store, "a", None, Some(5)).unwrap();
    set(&store, "b", None, Some(9)).unwrap();
    assert_eq!(set(&store, "a", None, Some(6)), other("a"));
    assert_eq!(set(&store, "a", Some(4), Some(6)), other("a"));
    assert_eq!(set(&store, "c", Some(1), None), other("c"));
    set(&store, "a", Some(5), Some(7)).unwrap();
    set(&store, "b", Some(9), None).unwrap();
    assert_eq!(listed(&store), [("a".into(), 7)]);
    drop(store);
    assert_eq!(listed(&new_store(&path)), [("a".into(), 7)]);
}

/// What a crash must not part: the job of a time, and the word that the time was decided.
#[test]
fn a_job_is_accepted_with_its_schedules_change_or_not_at_all() {
    let (_folder, path) = place();
    let store = new_store(&path);
    set(&store, "a", None, Some(1)).unwrap();
    let accept = |total: u32, was: u64, version: u64| {
        let upload = upload(&store, total);
        let job = upload.job();
        let mut also = Changes::new();
        also.schedule("a", Some(was), Some((version, format!("<a {version}>").into_bytes())));
        let (tell, told) = std::sync::mpsc::channel();
        let then = move |answer: Result<_, _>| tell.send(answer.map(drop)).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let handed = store.accept_with_async(vec![(upload, new_job(job))], also, then);
        runtime.block_on(handed);
        (job, told.recv().unwrap())
    };
    let (first, answer) = accept(3, 1, 2);
    assert_eq!(answer, Ok(()));
    // Small and large: one whose chunks were written before.
    for total in [3, 5000] {
        let (refused, answer) = accept(total, 1, 3);
        assert_eq!(answer, other("a"));
        assert!(store.job(refused).unwrap().is_none());
    }
    let (last, answer) = accept(5000, 2, 3);
    assert_eq!(answer, Ok(()));
    assert_eq!(store.job(last).unwrap().unwrap().total, 5000);
    assert!(store.job(first).unwrap().is_some());
    assert_eq!(listed(&store), [("a".into(), 3)]);
    // What the refused one had written goes, bit by bit.
    drop(store);
    let (store, _) = open(&path);
    assert_eq!(store.check().unwrap().damage, []);
}

#[test]
fn several_jobs_are_accepted_together_or_not_at_all() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for (version, is_right) in [(1, false), (0, true)] {
        let jobs: Vec<_> = [2, 5000, 0, 1]
            .into_iter()
            .map(|total| {
                let upload = upload(&store, total);
                let new = new_job(upload.job());
                (upload, new)
            })
            .collect();
        let numbers: Vec<_> = jobs.iter().map(|(upload, _)| upload.job()).collect();
        let mut also = Changes::new();
        also.schedule("a", (version > 0).then_some(version), Some((4, b"<a 4>".to_vec())));
        let (tell, told) = std::sync::mpsc::channel();
        let then = move |answer: Result<_, _>| tell.send(answer).unwrap();
        runtime.block_on(store.accept_with_async(jobs, also, then));
        assert_eq!(told.recv().unwrap().is_ok(), is_right);
        let places: Vec<_> =
            numbers.iter().map(|job| store.job(*job).unwrap().map(|job| job.entered)).collect();
        assert_eq!(places.iter().all(Option::is_some), is_right, "{places:?}");
        assert!(places.is_sorted());
        assert_eq!(places.iter().any(Option::is_some), is_right, "{places:?}");
    }
}

#[test]
fn copies_have_them() {
    let (_folder, path) = place();
    let store = new_store(&path);
    accepted(&store, 3);
    set(&store, "a", None, Some(5)).unwrap();
    set(&store, "Ä b", None, Some(6)).unwrap();
    let wanted = [("a".to_owned(), 5), ("Ä b".to_owned(), 6)];
    let (_folder, copy) = place();
    std::fs::create_dir_all(copy.parent().unwrap()).unwrap();
    back_up(&store, &path, &copy);
    assert_eq!(listed(&open(&copy).0), wanted);

    let mut export = Vec::new();
    store.export(&mut export).unwrap();
    let (_folder, path) = place();
    let imported = new_store(&path);
    imported.import(&mut &export[..]).unwrap();
    assert_eq!(listed(&imported), wanted);
    let mut again = Vec::new();
    imported.export(&mut again).unwrap();
    // The first line has the number of an opening, which rises.
    let lines = |export: &[u8]| {
        let text = String::from_utf8(export.to_vec()).unwrap();
        text.split_once('\n').unwrap().1.to_owned()
    };
    assert_eq!(lines(&again), lines(&export));

    // An export of a time before there were schedules.
    let text = String::from_utf8(export).unwrap();
    let old: Vec<_> = text.lines().filter(|line| !line.starts_with("{\"schedule\"")).collect();
    let old = old.join("\n").replacen("\"version\":5", "\"version\":1", 1) + "\n";
    let (_folder, path) = place();
    let imported = new_store(&path);
    assert_eq!(imported.import(&mut old.as_bytes()).unwrap(), 1);
    assert_eq!(listed(&imported), []);
}

#[test]
fn one_that_is_not_what_was_written_is_named() {
    let (_folder, path) = place();
    let store = new_store(&path);
    for name in ["a", "b"] {
        set(&store, name, None, Some(5)).unwrap();
    }
    drop(store);
    change_rows(&path, "UPDATE schedule SET version = 6 WHERE name = 'b'");
    let (store, _) = open(&path);
    let damage = StoreDamage::Schedule { name: "b".into() };
    assert_eq!(store.check().unwrap().damage, [damage]);
    assert!(store.schedules().is_err());
}

/// A file of the first layout, which knew no schedules, is brought forward with all it has.
#[test]
fn a_store_of_the_first_layout_is_brought_forward() {
    if !is_in_file() {
        return;
    }
    let (_folder, path) = place();
    let store = new_store(&path);
    let job = accepted(&store, 3);
    drop(store);
    let connection = Connection::open(&path).unwrap();
    connection
        .execute_batch(
            "DROP TABLE schedule; DROP TABLE alias; DROP TABLE audit; DROP TABLE log; DROP TABLE setting; \
             ALTER TABLE job RENAME COLUMN entered TO accepted; \
             ALTER TABLE meta RENAME COLUMN entered TO accepted; \
             ALTER TABLE meta DROP COLUMN unfinished; \
             PRAGMA user_version = 1",
        )
        .unwrap();
    drop(connection);
    // Reading changes nothing.
    assert_eq!(Store::inspect(&path).unwrap().damage, []);
    let (store, _) = open(&path);
    assert_eq!(store.job(job).unwrap().unwrap().total, 3);
    set(&store, "a", None, Some(1)).unwrap();
    let (who, what, body) = ("ann".to_owned(), "pause".to_owned(), b"{}".to_vec());
    let done = AuditRecord { at_ms: NOW, who, what, job: None, body };
    let mut changes = Changes::new();
    changes.audit(done.clone());
    store.submit(changes).wait().unwrap();
    assert_eq!(store.check().unwrap().damage, []);
    drop(store);
    let (store, _) = open(&path);
    assert_eq!(listed(&store), [("a".into(), 1)]);
    let page = store.audit(&AuditFilter::default(), None, 9).unwrap();
    let rows: Vec<_> = page.rows.into_iter().map(|row| (row.number, row.record)).collect();
    assert_eq!(rows, [(1, done)]);
    drop(store);
    assert_eq!(Store::inspect(&path).unwrap().damage, []);
}
