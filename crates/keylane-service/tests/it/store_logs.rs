//! What attempts said is in the store exactly as it was said, as long as the job is there and no longer, and
//! never in the way of anything else.

use crate::store_support::{
    NOW, accepted, back_up, change_rows, copy_as_is, count_rows, damage_of, is_in_file, new_store,
    open, open_with, outcome, place,
};
use keylane_service::JobNumber;
use keylane_service::store::{
    AttemptLog, Changes, JobState, JobStatus, OutcomeCounts, OutcomeKind, Store, StoreDamage,
    StoreOpenError, StoreSettings,
};
use rusqlite::Connection;

/// What the attempt with this fence said, which says which it is.
fn log(number: u32, fence: u64) -> AttemptLog {
    AttemptLog {
        number,
        fence,
        attempt: fence as u32 % 7 + 1,
        kind: OutcomeKind::ALL[fence as usize % 3],
        started_ms: NOW + fence,
        ended_ms: NOW + fence + 5,
        left_out: fence * 1000,
        text: format!("<subtask {number} said at {fence}>\n\0\u{7f}").into(),
    }
}

fn say(store: &Store, job: JobNumber, logs: impl IntoIterator<Item = AttemptLog>) {
    let mut changes = Changes::new();
    logs.into_iter().for_each(|log| changes.said(job, log));
    store.submit(changes).wait().unwrap();
}

fn end(store: &Store, job: JobNumber, total: u32) {
    let mut changes = Changes::new();
    (0..total).for_each(|number| changes.ended(job, outcome(number, OutcomeKind::Succeeded)));
    let counts = OutcomeCounts { succeeded: total, ..OutcomeCounts::default() };
    let over = JobStatus {
        ended_ms: Some(NOW),
        started_ms: Some(NOW),
        counts,
        ..JobStatus::of(JobState::Succeeded)
    };
    changes.status(job, over);
    store.submit(changes).wait().unwrap();
}

fn purge(store: &Store, job: JobNumber) {
    let mut changes = Changes::new();
    changes.purge(job);
    store.submit(changes).wait().unwrap();
}

fn rows(path: &std::path::Path) -> i64 {
    count_rows(path, "log")
}

#[test]
fn what_was_said_is_there_in_its_order_also_after_a_kill_and_in_a_backup() {
    let (folder, path) = place();
    let store = new_store(&path);
    let job = accepted(&store, 3);
    let other = accepted(&store, 1);
    say(&store, job, [log(1, 8), log(0, 9)]);
    say(&store, other, [log(0, 10)]);
    say(&store, job, [log(1, 11)]);
    // After an import, fences begin anew.
    say(&store, job, [log(1, 2)]);
    let look = |store: &Store| {
        assert_eq!(store.logs(job, 0).unwrap(), [log(0, 9)]);
        assert_eq!(store.logs(job, 1).unwrap(), [log(1, 8), log(1, 11), log(1, 2)]);
        assert_eq!(store.logs(job, 2).unwrap(), []);
        assert_eq!(store.logs(other, 0).unwrap(), [log(0, 10)]);
        assert_eq!(store.check().unwrap().damage, []);
    };
    look(&store);
    let (_killed_folder, killed) = copy_as_is(&path);
    look(&open(&killed).0);
    let backup = folder.path().join("backup");
    back_up(&store, &path, &backup);
    look(&open(&backup).0);
    drop(store);
    look(&open(&path).0);
}

#[test]
fn of_a_subtask_that_is_tried_for_ever_the_last_logs_are_kept() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let job = accepted(&store, 2);
    say(&store, job, [log(1, 7)]);
    for fence in 0..100 {
        say(&store, job, [log(0, fence)]);
    }
    let kept: Vec<_> = (68..100).map(|fence| log(0, fence)).collect();
    assert_eq!(store.logs(job, 0).unwrap(), kept);
    assert_eq!(store.logs(job, 1).unwrap(), [log(1, 7)]);
    assert_eq!(store.check().unwrap().damage, []);
}

#[test]
fn they_go_with_their_job_however_many_there_are() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let jobs = [3, 2000, 3].map(|total| accepted(&store, total));
    for (job, total) in jobs.into_iter().zip([3, 2000, 3]) {
        say(&store, job, (0..total).map(|number| log(number, 1)));
        end(&store, job, total);
    }
    assert_eq!(rows(&path), 2006);
    purge(&store, jobs[0]);
    assert_eq!(store.logs(jobs[0], 0).unwrap(), []);
    purge(&store, jobs[1]);
    assert_eq!(store.check().unwrap().damage, []);
    // Each transaction removes some of what is left, and nothing of another job.
    for _ in 0..20 {
        store.submit(Changes::new()).wait().unwrap();
    }
    assert_eq!(rows(&path), 3);
    assert_eq!(store.logs(jobs[2], 2).unwrap(), [log(2, 1)]);
    assert_eq!(store.check().unwrap().damage, []);
}

#[test]
fn what_is_said_of_nothing_keeps_nothing_else_from_being_written() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let (job, gone) = (accepted(&store, 2), accepted(&store, 1));
    end(&store, gone, 1);
    purge(&store, gone);
    let mut changes = Changes::new();
    changes.said(gone, log(0, 1));
    changes.said(JobNumber(1 << 38), log(0, 1));
    changes.said(job, log(2, 1));
    changes.ended(job, outcome(0, OutcomeKind::Succeeded));
    store.submit(changes).wait().unwrap();
    assert_eq!(store.outcomes(job, None, 9).unwrap().len(), 1);
    assert_eq!((rows(&path), store.check().unwrap().damage), (0, vec![]));
    // Of a job that is over it is kept as long as that is there.
    let over = accepted(&store, 2);
    end(&store, over, 2);
    say(&store, over, [log(1, 3)]);
    assert_eq!(store.logs(over, 1).unwrap(), [log(1, 3)]);
}

#[test]
fn what_was_exported_is_imported_and_older_exports_have_none() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let jobs = [3, 1500].map(|total| accepted(&store, total));
    say(&store, jobs[0], [log(2, 5), log(0, 9), log(2, 6), log(2, 1)]);
    say(&store, jobs[1], (0..1500).map(|number| log(number, 7)));
    end(&store, jobs[0], 3);
    let mut export = Vec::new();
    store.export(&mut export).unwrap();
    let (_other_folder, other) = place();
    let copy = new_store(&other);
    copy.import(&mut &export[..]).unwrap();
    for (job, number) in [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1499)] {
        let job = jobs[job];
        assert_eq!(copy.logs(job, number).unwrap(), store.logs(job, number).unwrap());
    }
    assert_eq!((rows(&other), copy.check().unwrap().damage), (1504, vec![]));
    let text = String::from_utf8(export).unwrap();
    let old: Vec<_> = text.lines().filter(|line| !line.starts_with("{\"log\"")).collect();
    let old = old.join("\n").replacen("\"version\":5", "\"version\":4", 1) + "\n";
    let (_old_folder, path) = place();
    let imported = new_store(&path);
    assert_eq!(imported.import(&mut old.as_bytes()).unwrap(), 2);
    assert_eq!(rows(&path), 0);
}

#[test]
fn one_that_is_not_what_was_written_is_named_and_nothing_else_is_lost() {
    let changes = [
        match is_in_file() {
            true => {
                "UPDATE log SET body = CAST(substr(body, 1, 9) || x'00' || substr(body, 11) AS BLOB)"
            }
            false => "UPDATE log SET body = set_byte(body, 9, 0)",
        },
        "UPDATE log SET nth = nth + 1",
        "UPDATE log SET body = substr(body, 1, 0)",
    ];
    for change in changes {
        let (_folder, path) = place();
        let store = new_store(&path);
        let job = accepted(&store, 2);
        say(&store, job, [log(0, 1), log(1, 2)]);
        drop(store);
        let sql = format!("{change} WHERE place = {}", job.0 << 24 | 1);
        change_rows(&path, &sql);
        let damage = StoreDamage::Log { job, number: 1 };
        assert_eq!(damage.job(), Some(job));
        assert_eq!(damage_of(&path), [damage], "{sql}");
        // The job goes on all the same: nothing depends on what was said.
        let (store, mut recovered) = open(&path);
        assert_eq!(recovered.next_job().unwrap().unwrap().waiting(), 2);
        assert!(store.logs(job, 1).is_err());
        assert_eq!(store.logs(job, 0).unwrap(), [log(0, 1)]);
        assert!(store.export(&mut Vec::new()).is_err());
    }
    let (_folder, path) = place();
    let store = new_store(&path);
    let job = accepted(&store, 1);
    say(&store, job, [log(0, 1)]);
    drop(store);
    change_rows(&path, "DELETE FROM job");
    let missing = StoreDamage::MissingJobs { count: 1 };
    match is_in_file() {
        true => assert_eq!(damage_of(&path), [missing, StoreDamage::Orphans { job }]),
        false => {
            let refused = open_with(&path, StoreSettings::default()).err();
            assert!(matches!(refused, Some(StoreOpenError::Damaged(damage)) if damage == missing));
        }
    }
}

/// A file of the fourth layout, which kept nothing of what attempts said, is brought forward with all it has.
#[test]
fn a_store_of_the_fourth_layout_is_brought_forward() {
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
            "DROP TABLE log; DROP TABLE setting; \
             ALTER TABLE job RENAME COLUMN entered TO accepted; \
             ALTER TABLE meta RENAME COLUMN entered TO accepted; \
             ALTER TABLE meta DROP COLUMN unfinished; \
             PRAGMA user_version = 4",
        )
        .unwrap();
    drop(connection);
    assert_eq!(Store::inspect(&path).unwrap().damage, []);
    let (store, _) = open(&path);
    assert_eq!(store.job(job).unwrap().unwrap().total, 3);
    say(&store, job, [log(1, 4)]);
    drop(store);
    let (store, _) = open(&path);
    assert_eq!(store.logs(job, 1).unwrap(), [log(1, 4)]);
    assert_eq!(store.check().unwrap().damage, []);
}

#[test]
fn the_oldest_logs_of_a_subtask_make_room_for_later_ones() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let job = accepted(&store, 1);
    say(&store, job, (0..32).map(|fence| log(0, fence)));
    assert_eq!(store.logs(job, 0).unwrap(), (0..32).map(|fence| log(0, fence)).collect::<Vec<_>>());
    say(&store, job, [log(0, 32)]);
    assert_eq!(store.logs(job, 0).unwrap(), (1..33).map(|fence| log(0, fence)).collect::<Vec<_>>());
}
