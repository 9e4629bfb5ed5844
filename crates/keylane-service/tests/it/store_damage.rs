//! What is not exactly what was written is named and refused, job by job; and the others go on if the
//! operator says so.

use std::fs;
use std::path::{Path, PathBuf};

use crate::store_support::{
    NOW, accepted, copy_as_is, keys, new_store, open, outcome, place, waiting,
};
use keylane_service::JobNumber;
use keylane_service::store::{
    Changes, JobFilter, JobState, JobStatus, KeyBlockReason, KeyRecord, OutcomeKind, ReadError,
    Store, StoreDamage, StoreOpenError, StoreSettings,
};
use keylane_service::{Key, SubtaskId};
use rusqlite::Connection;

/// A closed store with a job in chunks of its own, small ones before and behind it, and some of all else.
fn store_with_all() -> (tempfile::TempDir, PathBuf, [JobNumber; 3]) {
    let (folder, path) = place();
    let store = new_store(&path);
    let jobs = [3, 3000, 3].map(|total| accepted(&store, total));
    for number in 0..3 {
        let mut changes = Changes::new();
        jobs.iter().for_each(|job| changes.ended(*job, outcome(number, OutcomeKind::Succeeded)));
        changes.started(SubtaskId { job: jobs[1], number: 7 }, 2);
        let since_ms = NOW;
        let record = KeyRecord { state: KeyBlockReason::Paused, since_ms, reason: "why".into() };
        changes.key(Key::new("a key"), Some(record));
        store.submit(changes).wait().unwrap();
    }
    assert_eq!(store.check().unwrap().damage, []);
    (folder, path, jobs)
}

fn change(path: &Path, sql: &str) {
    let connection = Connection::open(path).unwrap();
    let changed = connection.execute(sql, []).unwrap();
    assert!(changed > 0, "{sql}");
}

/// What recovery gives out, and where it stops.
fn recover(path: &Path, settings: &StoreSettings) -> Vec<Result<JobNumber, ReadError>> {
    let (_store, mut recovered) = Store::open(path, settings).unwrap();
    let mut found = Vec::new();
    loop {
        match recovered.next_job() {
            Ok(None) => return found,
            Ok(Some(job)) => {
                waiting(&job);
                found.push(Ok(job.job.number));
            }
            Err(error) => found.push(Err(error)),
        }
    }
}

/// One changed byte of a blob, at its begin, middle or end.
fn flipped(column: &str, at: &str) -> String {
    let byte = format!("substr({column}, {at}, 1)");
    let other = format!("CASE hex({byte}) WHEN '00' THEN x'01' ELSE x'00' END");
    format!("CAST(substr({column}, 1, {at} - 1) || {other} || substr({column}, {at} + 1) AS BLOB)")
}

#[test]
fn every_blob_of_a_job_is_looked_at() {
    let cases = [
        ("job", "head", "number"),
        ("job", "status", "number"),
        ("job", "chunk", "number"),
        ("chunk", "body", "place >> 24"),
        ("outcome", "numbers", "place >> 24"),
    ];
    for (table, column, job) in cases {
        for at in ["1", &format!("(length({column}) / 2)"), &format!("length({column})")] {
            let (_folder, path, jobs) = store_with_all();
            let damaged = if table == "chunk" { jobs[1] } else { jobs[0] };
            let sql = format!(
                "UPDATE {table} SET {column} = {} WHERE {job} = {} AND {column} IS NOT NULL",
                flipped(column, at),
                damaged.0
            );
            change(&path, &sql);
            let report = Store::inspect(&path).unwrap();
            assert!(!report.damage.is_empty(), "{sql}");
            assert!(report.damage.iter().all(|one| one.job() == Some(damaged)), "{report:?}");
            // Of 3,000 subtasks there are three.
            let chunks =
                report.damage.iter().filter(|one| matches!(one, StoreDamage::Chunk { .. }));
            assert!(table != "chunk" || chunks.count() == 3, "{report:?}");
            let found = recover(&path, &StoreSettings::default());
            for (job, found) in jobs.into_iter().zip(found) {
                match found {
                    Ok(number) => assert!(number == job && job != damaged, "{sql}"),
                    Err(ReadError::Damaged(damage)) => assert_eq!(damage.job(), Some(damaged)),
                    Err(other) => panic!("{other}"),
                }
            }
            // The others go on, and the next time there is nothing to be set aside any more.
            let aside = StoreSettings { set_damaged_aside: true, ..StoreSettings::default() };
            let others: Vec<_> = jobs.into_iter().filter(|job| *job != damaged).map(Ok).collect();
            assert_eq!(recover(&path, &aside), others, "{sql}");
            assert_eq!(recover(&path, &StoreSettings::default()), others, "{sql}");
            assert_eq!(Store::inspect(&path).unwrap().damage, [], "{sql}");
            others_are_listed_and_it_can_go(&path, damaged, &jobs);
        }
    }
}

fn others_are_listed_and_it_can_go(path: &Path, damaged: JobNumber, jobs: &[JobNumber]) {
    let (store, _recovered) = open(path);
    let page = store.jobs(&JobFilter::default(), None, 9).unwrap();
    let mut listed: Vec<_> = page.jobs.iter().map(|job| job.number).collect();
    listed.extend(&page.damaged);
    listed.sort_unstable();
    assert_eq!(listed, jobs);
    assert!(page.damaged.iter().all(|job| *job == damaged));
    assert!(store.ends(0..u64::MAX / 2).is_ok());
    let mut changes = Changes::new();
    changes.purge(damaged);
    store.submit(changes).wait().unwrap();
    assert_eq!(store.jobs(&JobFilter::default(), None, 9).unwrap().damaged, []);
    store.export(&mut Vec::new()).unwrap();
}

#[test]
fn what_a_result_was_is_looked_at_when_it_is_read() {
    let (_folder, path, jobs) = store_with_all();
    let sql = format!(
        "UPDATE outcome SET body = {} WHERE place >> 24 = {}",
        flipped("body", "12"),
        jobs[0].0
    );
    change(&path, &sql);
    // It is not needed to go on.
    assert!(recover(&path, &StoreSettings::default()).iter().all(Result::is_ok));
    let (store, _recovered) = open(&path);
    let error = store.outcomes(jobs[0], None, 9).unwrap_err();
    let ReadError::Damaged(damage) = error else { panic!("{error}") };
    assert_eq!(damage.job(), Some(jobs[0]));
    assert!(store.outcomes_of(jobs[0], 0..1).is_err());
    assert_eq!(store.outcomes(jobs[2], None, 9).unwrap().len(), 3);
    assert_eq!(store.check().unwrap().damage.len(), 3);
}

#[test]
fn what_is_missing_is_noticed() {
    let (_folder, path, jobs) = store_with_all();
    change(&path, &format!("DELETE FROM chunk WHERE place = {} << 24 | 1024", jobs[1].0));
    let missing = StoreDamage::MissingSubtasks { job: jobs[1], from: 1024, until: 2048 };
    assert_eq!(Store::inspect(&path).unwrap().damage, std::slice::from_ref(&missing));
    let found = recover(&path, &StoreSettings::default());
    assert_eq!(found, [Ok(jobs[0]), Err(ReadError::Damaged(missing)), Ok(jobs[2])]);

    let (_folder, path, jobs) = store_with_all();
    change(&path, &format!("DELETE FROM outcome WHERE place = {} << 24 | 1", jobs[1].0));
    let found = recover(&path, &StoreSettings::default());
    assert!(
        matches!(&found[1], Err(ReadError::Damaged(StoreDamage::Outcomes { .. }))),
        "{found:?}"
    );
    assert!(!Store::inspect(&path).unwrap().damage.is_empty());

    let (_folder, path, jobs) = store_with_all();
    change(&path, &format!("DELETE FROM job WHERE number = {}", jobs[1].0));
    let missing = StoreDamage::MissingJobs { count: 1 };
    let damage = Store::inspect(&path).unwrap().damage;
    assert_eq!(damage, [missing.clone(), StoreDamage::Orphans { job: jobs[1] }]);
    let error = Store::open(&path, &StoreSettings::default()).unwrap_err();
    assert!(matches!(&error, StoreOpenError::Damaged(found) if *found == missing), "{error}");
    assert!(error.to_string().contains("keylane store salvage"), "{error}");
}

/// One bit makes of a waiting job a cancelled one: nothing would run it, and nothing would say so.
#[test]
fn a_flipped_state_is_noticed() {
    for state in [3, 18, 19, 16] {
        let (_folder, path, jobs) = store_with_all();
        change(&path, &format!("UPDATE job SET state = {state} WHERE number = {}", jobs[0].0));
        let named = StoreDamage::Job { job: jobs[0] };
        assert_eq!(Store::inspect(&path).unwrap().damage, std::slice::from_ref(&named), "{state}");
        let damaged = Err(ReadError::Damaged(named));
        for _ in 0..2 {
            let found = recover(&path, &StoreSettings::default());
            assert_eq!(found, [damaged.clone(), Ok(jobs[1]), Ok(jobs[2])], "{state}");
        }
        let (store, _recovered) = open(&path);
        let mut changes = Changes::new();
        changes.remove_damaged(jobs[0], NOW);
        store.submit(changes).wait().unwrap();
        assert_eq!(store.check().unwrap().damage, []);
        drop((store, _recovered));
        assert_eq!(recover(&path, &StoreSettings::default()), [Ok(jobs[1]), Ok(jobs[2])]);
    }
}

/// The index of unfinished jobs has no entry for one that is there.
fn lose_index_entry(path: &Path, job: JobNumber) {
    let connection = Connection::open(path).unwrap();
    connection.pragma_update(None, "writable_schema", true).unwrap();
    connection.execute(&format!("UPDATE job SET state = 16 WHERE number = {}", job.0), []).unwrap();
    // Without the index the row gets its state back.
    let hide = "CREATE TABLE kept AS SELECT * FROM sqlite_schema WHERE name = 'job_by_state';
                DELETE FROM sqlite_schema WHERE name = 'job_by_state'";
    connection.execute_batch(hide).unwrap();
    drop(connection);
    change(path, &format!("UPDATE job SET state = 2 WHERE number = {}", job.0));
    let connection = Connection::open(path).unwrap();
    connection.pragma_update(None, "writable_schema", true).unwrap();
    let show = "INSERT INTO sqlite_schema SELECT * FROM kept; DROP TABLE kept";
    connection.execute_batch(show).unwrap();
}

#[test]
fn a_missing_index_entry_is_noticed_and_put_right() {
    let (_folder, path, jobs) = store_with_all();
    lose_index_entry(&path, jobs[0]);
    let damage = Store::inspect(&path).unwrap().damage;
    assert_eq!(damage[0], StoreDamage::Index { job: jobs[0] }, "{damage:?}");
    assert!(damage.iter().any(|one| matches!(one, StoreDamage::File { .. })), "{damage:?}");
    assert_eq!(recover(&path, &StoreSettings::default()), jobs.map(Ok));
    assert_eq!(Store::inspect(&path).unwrap().damage, []);
    let (store, _recovered) = open(&path);
    let mut changes = Changes::new();
    changes.status(jobs[0], JobStatus::of(JobState::Cancelled));
    store.submit(changes).wait().unwrap();
}

/// What is known of a damaged job decides what stops with it.
#[test]
fn the_keys_of_a_damaged_job_are_known_unless_a_chunk_with_unfinished_subtasks_is_missing() {
    let damaged = |sql: &str| {
        let (_folder, path, jobs) = store_with_all();
        change(&path, &sql.replace("JOB", &jobs[1].0.to_string()));
        let (_store, mut recovered) = open(&path);
        let mut damaged = None;
        while !recovered.is_empty() {
            if let Err(ReadError::Damaged(damage)) = recovered.next_job() {
                damaged = damage.job();
            }
        }
        assert_eq!(damaged, Some(jobs[1]), "{sql}");
        let damaged = recovered.look_at_damaged(jobs[1]).unwrap();
        assert_eq!(damaged.number, jobs[1]);
        let all: std::collections::BTreeSet<_> =
            (0..3000).flat_map(|number| keys(jobs[1], number)).map(Key::new).collect();
        (damaged.entered.is_some(), damaged.keys.map(|keys| keys == all))
    };
    let outcome =
        format!("UPDATE outcome SET numbers = {} WHERE place >> 24 = JOB", flipped("numbers", "1"));
    assert_eq!(damaged(&outcome), (true, Some(true)));
    let status = format!("UPDATE job SET status = {} WHERE number = JOB", flipped("status", "9"));
    assert_eq!(damaged(&status), (true, Some(true)));
    let last = flipped("body", "length(body)");
    let chunk = format!("UPDATE chunk SET body = {last} WHERE place = JOB << 24");
    assert_eq!(damaged(&chunk), (true, Some(true)));
    let keys = format!("UPDATE chunk SET body = {} WHERE place = JOB << 24", flipped("body", "9"));
    assert_eq!(damaged(&keys), (true, None));
    let gap = "UPDATE chunk SET place = place + (1 << 30) WHERE place = (JOB << 24) + 1024";
    assert_eq!(damaged(gap), (true, None));
    let head = format!("UPDATE job SET head = {} WHERE number = JOB", flipped("head", "2"));
    assert_eq!(damaged(&head), (false, Some(true)));
    for total in ["2048", "3001", "1", "-1", "1 << 40"] {
        let total = format!("UPDATE job SET total = {total} WHERE number = JOB");
        assert_eq!(damaged(&total), (false, Some(true)), "{total}");
    }
    for column in ["entered", "created_ms"] {
        let other = format!("UPDATE job SET {column} = {column} + 64 WHERE number = JOB");
        assert_eq!(damaged(&other), (false, Some(true)), "{column}");
    }
    // What says how many subtasks there were, and the row that would confirm it.
    let both =
        format!("UPDATE job SET total = 3001, head = {} WHERE number = JOB", flipped("head", "2"));
    assert_eq!(damaged(&both), (false, None));
}

/// Numbers of all bytes at the ends of a column, and of some between them.
fn bytes_of(path: &Path, table: &str, column: &str, row: &str) -> Vec<usize> {
    let sql = format!("SELECT length({column}) FROM {table} WHERE {row}");
    let length: i64 =
        Connection::open(path).unwrap().query_row(&sql, [], |row| row.get(0)).unwrap();
    let length = length as usize;
    let is_wanted = |at: &usize| *at < 12 || at + 16 > length || at.is_multiple_of(length / 16 + 1);
    (1..=length).filter(is_wanted).collect()
}

/// Length of the part of a chunk with the keys.
fn length_of_keys(path: &Path, table: &str, column: &str, row: &str) -> usize {
    let sql = format!("SELECT {column} FROM {table} WHERE {row}");
    let body: Vec<u8> =
        Connection::open(path).unwrap().query_row(&sql, [], |row| row.get(0)).unwrap();
    let length = body[body.len() - 12..][..4].try_into().unwrap();
    u32::from_le_bytes(length) as usize
}

/// A damaged byte costs its job. Which keys stop for it is known, unless the byte is a key's.
#[test]
fn no_damaged_byte_but_one_of_the_keys_hides_the_keys() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let [small, large] = [8, 3000].map(|total| accepted(&store, total));
    let mut changes = Changes::new();
    changes.ended(large, outcome(3, OutcomeKind::Succeeded));
    store.submit(changes).wait().unwrap();
    drop(store);
    let [small, large] = [small.0, large.0];
    let cases = [
        ("job", "head", format!("number = {small}")),
        ("job", "status", format!("number = {small}")),
        ("job", "kind", format!("number = {small}")),
        ("job", "id", format!("number = {small}")),
        ("job", "chunk", format!("number = {small}")),
        ("job", "head", format!("number = {large}")),
        ("chunk", "body", format!("place = ({large} << 24) + 1024")),
        ("outcome", "numbers", format!("place = {large} << 24")),
    ];
    let (mut hidden, mut known) = (0, 0);
    for (table, column, row) in cases {
        let of_keys = match column {
            "chunk" | "body" => length_of_keys(&path, table, column, &row),
            _ => 0,
        };
        for at in bytes_of(&path, table, column, &row) {
            let (_copied, copy) = copy_as_is(&path);
            let other = flipped(column, &at.to_string());
            let other = if column == "kind" { format!("CAST({other} AS TEXT)") } else { other };
            change(&copy, &format!("UPDATE {table} SET {column} = {other} WHERE {row}"));
            let (_store, mut recovered) = open(&copy);
            let mut damaged = Vec::new();
            while !recovered.is_empty() {
                if let Err(ReadError::Damaged(damage)) = recovered.next_job() {
                    damaged.extend(damage.job());
                }
            }
            let [damaged] = damaged[..] else { panic!("{table} {column} {at}: {damaged:?}") };
            let keys = recovered.look_at_damaged(damaged).unwrap().keys;
            assert_eq!(keys.is_none(), at <= of_keys, "{table} {column} {at}");
            *(if keys.is_none() { &mut hidden } else { &mut known }) += 1;
        }
    }
    assert!(hidden > 10 && known > 100, "{hidden} {known}");
}

#[test]
fn a_store_that_is_not_opened_is_not_called_whole() {
    let (_folder, path) = place();
    let store = new_store(&path);
    for _ in 0..20 {
        accepted(&store, 3);
    }
    let (_copied, copy) = copy_as_is(&path);
    let log = PathBuf::from(format!("{}-wal", copy.display()));
    let bytes = fs::read(&log).unwrap();
    fs::write(&log, &bytes[..bytes.len() / 2]).unwrap();
    let damage = Store::inspect(&copy).unwrap().damage;
    let [StoreDamage::Lost { has, acknowledged }] = &damage[..] else { panic!("{damage:?}") };
    assert!(has < acknowledged);
    let error = Store::open(&copy, &StoreSettings::default()).unwrap_err();
    assert!(matches!(error, StoreOpenError::Lost { .. }), "{error}");
    // A mark that is another store's.
    let mark = PathBuf::from(format!("{}-mark", copy.display()));
    let mut bytes = fs::read(&mark).unwrap();
    bytes[9] ^= 1;
    fs::write(&mark, bytes).unwrap();
    assert_eq!(Store::inspect(&copy).unwrap().damage, [StoreDamage::Mark { path: mark }]);
    let error = Store::open(&copy, &StoreSettings::default()).unwrap_err();
    assert!(matches!(error, StoreOpenError::Damaged(StoreDamage::Mark { .. })), "{error}");
}

#[test]
fn what_belongs_to_no_job_is_looked_at_when_it_is_opened() {
    let cases = [
        ("UPDATE meta SET boot = boot + 1", StoreDamage::Meta),
        ("UPDATE meta SET commits = commits + 1", StoreDamage::Meta),
        ("UPDATE key SET reason = 'other'", StoreDamage::Key { key: "a key".into() }),
    ];
    for (sql, damage) in cases {
        let (_folder, path, _) = store_with_all();
        change(&path, sql);
        let error = Store::open(&path, &StoreSettings::default()).unwrap_err();
        let StoreOpenError::Damaged(found) = error else { panic!("{error}") };
        assert_eq!(found, damage);
        assert!(Store::inspect(&path).unwrap().damage.contains(&damage));
    }
    let (_folder, path, _) = store_with_all();
    change(&path, &format!("UPDATE started SET body = {}", flipped("body", "2")));
    let error = Store::open(&path, &StoreSettings::default()).unwrap_err();
    let StoreOpenError::Damaged(found) = error else { panic!("{error}") };
    assert!(matches!(found, StoreDamage::Marks { .. }), "{found}");
    assert_eq!(Store::inspect(&path).unwrap().damage, [found]);
}

#[test]
fn an_outcome_too_many_and_wrong_counts_are_found() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let job = accepted(&store, 2);
    for _ in 0..2 {
        let mut changes = Changes::new();
        changes.ended(job, outcome(1, OutcomeKind::Succeeded));
        store.submit(changes).wait().unwrap();
    }
    let mut changes = Changes::new();
    changes.status(job, JobStatus::of(JobState::Cancelled));
    store.submit(changes).wait().unwrap();
    let damage = store.check().unwrap().damage;
    assert_eq!(damage, [StoreDamage::Twice { job, number: 1 }, StoreDamage::Counts { job }]);
}

#[test]
fn a_damaged_log_is_noticed_by_what_was_acknowledged() {
    let (_folder, path) = place();
    let store = new_store(&path);
    for _ in 0..20 {
        accepted(&store, 3);
    }
    let (_copied, copy) = copy_as_is(&path);
    let log = PathBuf::from(format!("{}-wal", copy.display()));
    let mut bytes = fs::read(&log).unwrap();
    let middle = bytes.len() / 2;
    bytes[middle] ^= 0x10;
    fs::write(&log, bytes).unwrap();
    let error = Store::open(&copy, &StoreSettings::default()).unwrap_err();
    let text = error.to_string();
    let StoreOpenError::Lost { has, acknowledged, mark } = error else { panic!("{error}") };
    assert!(has < acknowledged, "{has} {acknowledged}");
    let remedies = ["restore a backup", "keylane store salvage", mark.to_str().unwrap()];
    assert!(remedies.iter().all(|remedy| text.contains(remedy)), "{text}");
    let salvaged = copy.with_file_name("salvaged");
    Store::salvage(&copy, &salvaged, NOW).unwrap();
    let (store, _) = open(&salvaged);
    assert_eq!(store.check().unwrap().damage, []);
    drop(store);
    // The operator goes on without them.
    fs::remove_file(mark).unwrap();
    let (store, _) = open(&copy);
    assert_eq!(store.check().unwrap().damage, []);
}

#[test]
fn what_is_no_store_or_a_later_one_is_refused() {
    let (_folder, path) = place();
    fs::write(&path, "this is no database, but it is long enough to look like one").unwrap();
    let error = Store::open(&path, &StoreSettings::default()).unwrap_err();
    assert!(matches!(error, StoreOpenError::NotAStore { .. }), "{error}");

    let (_folder, path, _) = store_with_all();
    let (_, other) = place();
    fs::create_dir_all(other.parent().unwrap()).unwrap();
    fs::copy(&path, &other).unwrap();
    change_header(&other, "PRAGMA user_version = 1000");
    let error = Store::open(&other, &StoreSettings::default()).unwrap_err();
    assert!(matches!(error, StoreOpenError::Later { version: 1000, .. }), "{error}");
    change_header(&other, "PRAGMA application_id = 5");
    let error = Store::open(&other, &StoreSettings::default()).unwrap_err();
    assert!(matches!(error, StoreOpenError::NotAStore { .. }), "{error}");
    fs::remove_dir_all(other.parent().unwrap()).unwrap();

    let (_store, _) = open(&path);
    let error = Store::open(&path, &StoreSettings::default()).unwrap_err();
    let by = Some(std::process::id());
    assert!(matches!(error, StoreOpenError::InUse { by: found, .. } if found == by), "{error}");
}

fn change_header(path: &Path, sql: &str) {
    Connection::open(path).unwrap().execute_batch(sql).unwrap();
}
