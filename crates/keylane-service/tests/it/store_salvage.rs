//! All that can be read of a damaged store comes into a new one, and what cannot is named.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::store_support::{NOW, accepted, new_store, open, outcome, payload, place, waiting};
use keylane_service::store::{
    AttemptStage, Changes, JobState, JobStatus, KeyBlockReason, KeyRecord, LatestAttempt,
    OutcomeKind, Store, StoreDamage, StoreOpenError, StoreSettings,
};
use keylane_service::{JobNumber, Key, SubtaskId};
use rusqlite::Connection;

/// A closed store: jobs that wait, one that is over, an attempt that has begun, and a key that is paused.
fn store_with_all(path: &Path) -> [JobNumber; 4] {
    let store = new_store(path);
    let jobs = [3, 3000, 3, 3].map(|total| accepted(&store, total));
    let mut changes = Changes::new();
    for number in 0..3 {
        changes.ended(jobs[3], outcome(number, OutcomeKind::Succeeded));
    }
    let mut status = JobStatus::of(JobState::Succeeded);
    status.counts.succeeded = 3;
    changes.status(jobs[3], status);
    changes.ended(jobs[1], outcome(1, OutcomeKind::Failed));
    changes.started(SubtaskId { job: jobs[1], number: 7 }, 2);
    let record = KeyRecord { state: KeyBlockReason::Paused, since_ms: NOW, reason: "why".into() };
    changes.key(Key::new("a key"), Some(record));
    store.submit(changes).wait().unwrap();
    jobs
}

fn change(path: &Path, sql: &str) {
    let connection = Connection::open(path).unwrap();
    assert!(connection.execute(sql, []).unwrap() > 0, "{sql}");
}

fn beside(path: &Path) -> PathBuf {
    path.with_file_name("new.store")
}

/// The numbers of the jobs that go on, and of their subtasks that wait.
fn recovered(path: &Path) -> Vec<(JobNumber, usize)> {
    let (_store, mut recovered) = open(path);
    let mut all = Vec::new();
    while let Some(job) = recovered.next_job().unwrap() {
        all.push((job.job.number, waiting(&job).len()));
    }
    all
}

#[test]
fn all_of_a_store_that_is_whole_is_copied() {
    let (_folder, path) = place();
    let jobs = store_with_all(&path);
    let to = beside(&path);
    let salvaged = Store::salvage(&path, &to, NOW).unwrap();
    assert_eq!((salvaged.jobs, salvaged.damaged_jobs), (4, 0));
    assert_eq!(salvaged.losses, []);
    assert_eq!(fs::metadata(&to).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(Store::inspect(&to).unwrap(), Store::inspect(&path).unwrap());
    assert_eq!(recovered(&to), recovered(&path));
    let (old, _) = open(&path);
    let (new, rest) = open(&to);
    assert!(new.boot() >= old.boot());
    assert_eq!(rest.keys(), old.keys().unwrap());
    assert_eq!(new.outcomes(jobs[3], None, 9), old.outcomes(jobs[3], None, 9));
    let next = accepted(&new, 1);
    assert!(jobs.iter().all(|job| *job < next));
    drop(old);
    let error = Store::salvage(&path, &to, NOW).unwrap_err();
    assert!(error.to_string().contains("exists; name a new file"), "{error}");
}

/// What keeps a store from being opened is what this is for.
#[test]
fn what_belongs_to_no_job_does_not_keep_jobs_from_being_copied() {
    let cases = [
        ("UPDATE meta SET boot = boot + 1", StoreDamage::Meta),
        ("UPDATE key SET reason = 'other'", StoreDamage::Key { key: "a key".into() }),
        ("UPDATE started SET body = x'00'", StoreDamage::Marks { row: 0 }),
    ];
    for (sql, damage) in cases {
        let (_folder, path) = place();
        let jobs = store_with_all(&path);
        change(&path, sql);
        let error = Store::open(&path, &StoreSettings::default()).unwrap_err();
        assert!(matches!(&error, StoreOpenError::Damaged(_)), "{error}");
        let to = beside(&path);
        let salvaged = Store::salvage(&path, &to, NOW).unwrap();
        assert_eq!(salvaged.losses, [damage]);
        assert_eq!((salvaged.jobs, salvaged.damaged_jobs), (4, 0));
        assert_eq!(recovered(&to), [(jobs[0], 3), (jobs[1], 2999), (jobs[2], 3)]);
        assert_eq!(Store::inspect(&to).unwrap().damage, []);
    }
}

#[test]
fn a_job_that_lacks_something_is_copied_as_damaged_and_the_others_go_on() {
    let cases = [
        "UPDATE chunk SET body = x'00' WHERE place = JOB << 24 | 1024",
        "DELETE FROM chunk WHERE place = JOB << 24 | 1024",
        "UPDATE outcome SET numbers = x'00' WHERE place >> 24 = JOB",
        "UPDATE job SET state = 18 WHERE number = JOB",
    ];
    for sql in cases {
        let (_folder, path) = place();
        let jobs = store_with_all(&path);
        change(&path, &sql.replace("JOB", &jobs[1].0.to_string()));
        let to = beside(&path);
        let salvaged = Store::salvage(&path, &to, NOW).unwrap();
        assert_eq!((salvaged.jobs, salvaged.damaged_jobs), (4, 1), "{sql}");
        assert!(!salvaged.losses.is_empty(), "{sql}");
        assert!(salvaged.losses.iter().all(|loss| loss.job() == Some(jobs[1])), "{salvaged:?}");
        assert_eq!(recovered(&to), [(jobs[0], 3), (jobs[2], 3)], "{sql}");
        assert_eq!(Store::inspect(&to).unwrap().damage, [], "{sql}");
        let (store, _) = open(&to);
        assert_eq!(store.job(jobs[1]).unwrap().unwrap().status.state, JobState::Damaged);
        let last = store.chunk(jobs[1], 2999).unwrap();
        assert_eq!(last.subtask(2999).unwrap().payload(), payload(jobs[1], 2999));
    }
}

#[test]
fn a_job_whose_row_is_lost_is_named() {
    let (_folder, path) = place();
    let jobs = store_with_all(&path);
    change(&path, &format!("UPDATE job SET head = x'00' WHERE number = {}", jobs[1].0));
    let to = beside(&path);
    let salvaged = Store::salvage(&path, &to, NOW).unwrap();
    let job = jobs[1];
    assert_eq!(salvaged.losses, [StoreDamage::Job { job }, StoreDamage::Orphans { job }]);
    assert_eq!(salvaged.jobs, 3);
    assert_eq!(recovered(&to), [(jobs[0], 3), (jobs[2], 3)]);
    assert_eq!(Store::inspect(&to).unwrap().damage, []);
}

/// Pages in the middle of a table: what lies on both sides of them is copied.
#[test]
fn pages_that_cannot_be_read_cost_their_rows() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let jobs: Vec<_> = (0..2000).map(|_| accepted(&store, 3)).collect();
    drop(store);
    let connection = Connection::open(&path).unwrap();
    let sql = "SELECT pageno FROM dbstat WHERE name = 'job' AND pagetype = 'leaf' ORDER BY path";
    let mut all = connection.prepare(sql).unwrap();
    let pages = all.query_map([], |row| row.get::<_, i64>(0)).unwrap();
    let pages: Vec<usize> = pages.map(|page| page.unwrap() as usize).collect();
    drop(all);
    drop(connection);
    let mut bytes = fs::read(&path).unwrap();
    let broken: Vec<usize> =
        pages.iter().copied().skip(pages.len() / 2).step_by(20).take(2).collect();
    for page in &broken {
        bytes[(page - 1) * 4096..page * 4096].fill(0x55);
    }
    fs::write(&path, bytes).unwrap();
    assert!(!Store::inspect(&path).is_ok_and(|report| report.damage.is_empty()));
    let to = beside(&path);
    let salvaged = Store::salvage(&path, &to, NOW).unwrap();
    let is_row =
        |loss: &StoreDamage| matches!(loss, StoreDamage::Rows { table, .. } if table == "job");
    assert_eq!(
        salvaged.losses.iter().filter(|loss| is_row(loss)).count(),
        broken.len(),
        "{salvaged:?}"
    );
    let found = recovered(&to);
    let lost = jobs.len() - found.len();
    assert!((1..200).contains(&lost), "{lost}");
    assert!(found.iter().all(|(job, waiting)| jobs.contains(job) && *waiting == 3));
    assert_eq!(Store::inspect(&to).unwrap().damage, []);
}

/// Neither a row that is lost nor the clock makes fences go back or leave what a JSON number has.
#[test]
fn fences_of_a_salvaged_store_rise_and_stay_below_2_to_the_53() {
    for (loses_meta, ahead) in [(false, 0), (false, 5_000_000), (true, 0), (true, 5_000_000)] {
        let (_folder, path) = place();
        let jobs = store_with_all(&path);
        let (store, _) = open(&path);
        let mut changes = Changes::new();
        changes.raise_boot(store.boot() + ahead);
        store.submit(changes).wait().unwrap();
        drop(store);
        let (store, _) = open(&path);
        let last = store.boot();
        let lease = AttemptStage::Leased { fence: (last << 21) + 9, since_ms: NOW, worker: None };
        let mut changes = Changes::new();
        changes.mark(
            SubtaskId { job: jobs[0], number: 0 },
            LatestAttempt { attempt: 1, stage: lease },
        );
        store.submit(changes).wait().unwrap();
        drop(store);
        if loses_meta {
            change(&path, "UPDATE meta SET commits = commits + 1");
        }
        let to = beside(&path);
        Store::salvage(&path, &to, NOW).unwrap();
        let (store, _) = open(&to);
        assert!(store.boot() > last, "{} after {last}", store.boot());
        assert!((store.boot() + 1) << 21 < 1 << 53, "{}", store.boot());
    }
}
