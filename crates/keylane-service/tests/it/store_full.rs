//! A full store says so, has nothing half-written, and works on when there is room. A disk that fails ends
//! it until it is opened again.

use std::env;
use std::path::Path;
use std::process::Command;

use crate::store_support::{
    NOW, accepted, claims, keys, new_job, new_store, open, outcome, payload, place, upload,
};
use keylane_service::JobNumber;
use keylane_service::store::{
    Changes, JobState, JobStatus, OutcomeCounts, OutcomeKind, Store, StoreSettings, WriteError,
};
use rusqlite::Connection;

const PATH: &str = "KEYLANE_STORE_ON_A_FAILING_DISK";

fn cancelled() -> JobStatus {
    let counts = OutcomeCounts::default();
    JobStatus { ended_ms: Some(NOW), counts, ..JobStatus::of(JobState::Cancelled) }
}

/// A job that may be refused, at its end or already at one of its chunks.
fn bring(store: &Store, total: u32) -> Result<JobNumber, WriteError> {
    let mut upload = store.upload(NOW).unwrap();
    let job = upload.job();
    for number in 0..total {
        upload.push_claims(&claims(&keys(job, number)), &payload(job, number))?;
        upload.flush()?;
    }
    upload.finish(new_job(job)).wait().map(|_| job)
}

#[test]
fn a_full_store_says_so_has_nothing_in_part_and_works_on() {
    let (_folder, path) = place();
    let settings = StoreSettings { max_bytes: Some(3_000_000), ..StoreSettings::default() };
    let (store, _) = Store::open(&path, &settings).unwrap();
    let mut jobs = Vec::new();
    let full = loop {
        match bring(&store, 5000) {
            Ok(job) => jobs.push(job),
            Err(error) => break error,
        }
    };
    assert_eq!(full, WriteError::Full);
    assert!(jobs.len() > 5, "{}", jobs.len());
    // What little there is room for is taken, such as how a job has ended.
    let report = store.check().unwrap();
    assert_eq!((report.damage, report.jobs), (vec![], jobs.len() as u64));
    let mut changes = Changes::new();
    changes.ended(jobs[1], outcome(9, OutcomeKind::Succeeded));
    changes.status(jobs[0], cancelled());
    store.submit(changes).wait().unwrap();

    let mut changes = Changes::new();
    changes.purge(jobs[0]);
    store.submit(changes).wait().unwrap();
    let next = accepted(&store, 5000);
    assert_eq!(store.check().unwrap().damage, []);
    drop(store);
    let (store, mut recovered) = Store::open(&path, &settings).unwrap();
    let mut found = Vec::new();
    while let Some(job) = recovered.next_job().unwrap() {
        found.push(job.job.number);
    }
    jobs.remove(0);
    jobs.push(next);
    assert_eq!(found, jobs);
    assert_eq!(store.check().unwrap().damage, []);
}

/// One that does not fit takes those down with it that came at the same time, were they written together
/// and not tried again; and what the writer remembers of what was taken back would be wrong.
#[test]
fn what_does_not_fit_does_not_keep_others_out() {
    let (_folder, path) = place();
    let settings = StoreSettings { max_bytes: Some(1_000_000), ..StoreSettings::default() };
    let (store, _) = Store::open(&path, &settings).unwrap();
    let job = accepted(&store, 200);
    let large = vec![7; 2_000_000];
    let pending: Vec<_> = (0..200)
        .map(|number| {
            let mut one = outcome(number, OutcomeKind::Succeeded);
            if number % 3 == 1 {
                one.result.clone_from(&large);
            }
            let mut changes = Changes::new();
            changes.ended(job, one);
            store.submit(changes)
        })
        .collect();
    for (number, pending) in (0..200).zip(pending) {
        let expected = if number % 3 == 1 { Err(WriteError::Full) } else { Ok(()) };
        assert_eq!(pending.wait().map(drop), expected);
    }
    let recorded = store.outcomes(job, None, 999).unwrap();
    let fits = (0..200).filter(|number| number % 3 != 1);
    assert!(recorded.into_iter().map(|one| one.outcome.number).eq(fits));
    assert_eq!(store.check().unwrap().damage, []);
}

/// Another program kept the file locked, or the disk was full, when an upload was dropped: its chunks stayed until a
/// restart.
#[test]
fn an_upload_that_could_not_be_dropped_at_once_goes_later() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let other = Connection::open(&path).unwrap();
    let count = |table: &str| -> u32 {
        let sql = format!("SELECT count(*) FROM {table}");
        other.query_row(&sql, [], |row| row.get(0)).unwrap()
    };
    let mut upload = store.upload(NOW).unwrap();
    for _ in 0..5 {
        upload.push(&["key"], &[7; 100_000]).unwrap();
        upload.flush().unwrap();
    }
    store.submit(Changes::new()).wait().unwrap();
    assert!(count("chunk") > 0);

    other.execute_batch("BEGIN IMMEDIATE").unwrap();
    drop(upload);
    // Behind that, and refused like it.
    assert_eq!(store.submit(Changes::new()).wait(), Err(WriteError::Busy));
    other.execute_batch("ROLLBACK").unwrap();
    // The first one says that there is room again, and with the second at the latest the chunks go.
    for _ in 0..2 {
        store.submit(Changes::new()).wait().unwrap();
    }
    assert_eq!((count("chunk"), count("loose")), (0, 0));
}

/// A limit on the size of its files makes the system refuse the child's writes in the middle of a
/// transaction: not as a full disk does, but as a broken one.
#[test]
fn a_failed_write_ends_it_until_it_is_opened_again() {
    let (_folder, path) = place();
    let shell = "trap '' XFSZ; ulimit -f 500; exec \"$0\" --exact store_full::writes_until_the_disk_fails --nocapture";
    let child = Command::new("bash")
        .args(["-c", shell])
        .arg(env::current_exe().unwrap())
        .env(PATH, &path)
        .output()
        .unwrap();
    let said = String::from_utf8(child.stdout).unwrap();
    assert!(child.status.success(), "{said}{}", String::from_utf8_lossy(&child.stderr));
    let line = said.lines().find_map(|line| line.strip_prefix("acknowledged "));
    let acknowledged: u64 = line.unwrap_or_else(|| panic!("{said}")).parse().unwrap();
    assert!(acknowledged > 5, "{acknowledged}");

    let (store, mut recovered) = open(&path);
    assert!(!recovered.was_clean());
    let mut found = 0;
    while let Some(job) = recovered.next_job().unwrap() {
        assert_eq!(crate::store_support::waiting(&job).len(), 300);
        found += 1;
    }
    // The one that failed may be there; the ones that were refused afterwards may not.
    assert!([acknowledged, acknowledged + 1].contains(&found), "{found}");
    accepted(&store, 3);
    assert_eq!(store.check().unwrap().damage, []);
}

/// Not a test of its own: what the child does, in this same program.
#[test]
fn writes_until_the_disk_fails() {
    let Some(path) = env::var_os(PATH) else { return };
    let store = new_store(Path::new(&path));
    let mut acknowledged = 0;
    let failure = loop {
        let upload = upload(&store, 300);
        let job = upload.job();
        match upload.finish(new_job(job)).wait() {
            Ok(_) => acknowledged += 1,
            Err(error) => break error,
        }
    };
    let WriteError::Failed { cause } = &failure else { panic!("{failure:?}") };
    assert!(cause.contains("I/O"), "{cause}");
    // Everything fails from now on, small or large, and says why; what is there can still be read.
    let mut changes = Changes::new();
    changes.forget_idempotency(0);
    assert_eq!(store.submit(changes).wait(), Err(failure.clone()));
    assert_eq!(store.failure(), Some(failure));
    assert!(store.stats().has_failed);
    let page = store.jobs(&Default::default(), None, 9999).unwrap();
    assert_eq!(page.jobs.len() as u64, acknowledged);
    println!("acknowledged {acknowledged}");
}
