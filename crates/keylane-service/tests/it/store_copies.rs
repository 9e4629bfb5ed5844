//! Copies of a store, made while it works: a backup that can be opened, and an export that can be read in.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use crate::store_support::{
    NOW, accepted, new_job, new_store, open, outcome, place, upload, waiting,
};
use keylane_service::JobNumber;
use keylane_service::store::{
    BackupError, Changes, IdempotencyEntry, ImportError, JobState, JobStatus, KeyBlockReason,
    KeyRecord, OutcomeCounts, OutcomeKind, Store,
};
use keylane_service::{JobId, Key};

/// A store with jobs in every state.
fn fill(store: &Store) -> Vec<JobNumber> {
    let late = upload(store, 2);
    let mut jobs: Vec<_> = [0, 3, 5000, 1, 2, 4].map(|total| accepted(store, total)).into();
    jobs.push(late.job());
    let last = late.job();
    late.finish(new_job(last)).wait().unwrap();
    let mut changes = Changes::new();
    let kinds = [OutcomeKind::Succeeded, OutcomeKind::Failed, OutcomeKind::Superseded];
    (0..3).for_each(|number| changes.ended(jobs[1], outcome(number, kinds[number as usize])));
    let counts =
        OutcomeCounts { succeeded: 1, failed: 1, superseded: 1, ..OutcomeCounts::default() };
    let over = JobStatus {
        ended_ms: Some(NOW),
        started_ms: Some(NOW),
        counts,
        ..JobStatus::of(JobState::Failed)
    };
    changes.status(jobs[1], over);
    (0..4000).for_each(|number| changes.ended(jobs[2], outcome(number, OutcomeKind::Succeeded)));
    changes.status(
        jobs[3],
        JobStatus { start_at_ms: Some(NOW + 5), ..JobStatus::of(JobState::Paused) },
    );
    changes.ended(jobs[4], outcome(0, OutcomeKind::Failed));
    changes.ended(jobs[4], outcome(1, OutcomeKind::Failed));
    let counts = OutcomeCounts { failed: 2, ..OutcomeCounts::default() };
    changes.status(jobs[4], JobStatus { counts, ..over });
    let record =
        KeyRecord { state: KeyBlockReason::Stopped, since_ms: NOW, reason: "\"why\"\n".into() };
    changes.key(Key::new([0, 255, 7]), Some(record));
    store.submit(changes).wait().unwrap();
    let mut changes = Changes::new();
    changes.reopen(jobs[4], [1], NOW, JobStatus::WAITING);
    store.submit(changes).wait().unwrap();
    let upload = upload(store, 1);
    let mut new = new_job(upload.job());
    let (scope, key) = ("scope".into(), "key".into());
    new.idempotency =
        Some(IdempotencyEntry { scope, key, body_hash: [3; 32], expires_ms: NOW + 1000 });
    jobs.push(upload.job());
    upload.finish(new).wait().unwrap();
    jobs
}

/// All that there is to be seen of a store.
fn seen(store: &Store, jobs: &[JobNumber]) -> Vec<String> {
    let mut seen = vec![format!("{:?} {:?}", store.keys(), store.idempotent("scope", "key"))];
    let mut order = Vec::new();
    for job in jobs {
        let stored = store.job(*job).unwrap().unwrap();
        let outcomes = store.outcomes(*job, None, usize::MAX).unwrap();
        let outcomes: Vec<_> = outcomes.into_iter().map(|one| one.outcome).collect();
        let subtasks: Vec<_> = store
            .chunks(*job, 0..stored.total)
            .flat_map(|chunk| {
                let subtask = |one: keylane_service::store::StoredSubtask<'_>| {
                    let keys: Vec<_> =
                        one.keys().map(|it| (it.key.to_vec(), it.is_shared)).collect();
                    (keys, one.payload().to_vec())
                };
                chunk.unwrap().subtasks().map(subtask).collect::<Vec<_>>()
            })
            .collect();
        order.push((stored.entered, stored.number));
        seen.push(format!(
            "{:?} {:?} {} {:?} {outcomes:?} {subtasks:?}",
            (stored.number, stored.id, stored.created_ms, stored.total),
            stored.kind,
            stored.head.escape_ascii(),
            stored.status
        ));
    }
    order.sort_unstable();
    seen.push(format!("{:?}", order.into_iter().map(|(_, job)| job).collect::<Vec<_>>()));
    seen
}

#[test]
fn a_backup_is_a_store_as_it_was_while_others_went_on() {
    let (folder, path) = place();
    let store = new_store(&path);
    let jobs = fill(&store);
    let before = seen(&store, &jobs);
    let copy = folder.path().join("copy");
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                accepted(&store, 300);
            }
        });
        for round in 0..5 {
            let copy = folder.path().join(format!("copy {round}"));
            store.backup(&copy).unwrap();
            let (backup, recovered) = open(&copy);
            assert_eq!(seen(&backup, &jobs), before);
            assert_eq!(backup.check().unwrap().damage, []);
            assert!(!recovered.was_clean());
        }
        over.store(true, Ordering::Relaxed);
    });
    store.backup(&copy).unwrap();
    let again = store.backup(&copy).unwrap_err();
    assert!(matches!(again, BackupError::Exists { .. }), "{again}");
    let missing = store.backup(folder.path().join("no such folder/copy")).unwrap_err();
    assert!(matches!(missing, BackupError::Io { .. }), "{missing}");
    // Nothing else is left of any of them.
    let names = std::fs::read_dir(folder.path()).unwrap();
    let names: Vec<_> =
        names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(!names.iter().any(|name| name.contains("-part")), "{names:?}");
}

/// What follows the first line.
fn behind_the_first(export: &[u8]) -> &[u8] {
    let end = export.iter().position(|byte| *byte == b'\n').unwrap();
    &export[end..]
}

#[test]
fn what_was_exported_is_imported() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let jobs = fill(&store);
    let mut export = Vec::new();
    assert_eq!(store.export(&mut export).unwrap(), jobs.len() as u64);

    let (_other_folder, other) = place();
    let copy = new_store(&other);
    assert_eq!(copy.import(&mut &export[..]).unwrap(), jobs.len() as u64);
    assert_eq!(seen(&copy, &jobs), seen(&store, &jobs));
    assert_eq!(copy.check().unwrap().damage, []);
    let mut again = Vec::new();
    copy.export(&mut again).unwrap();
    // But for the number of the opening.
    assert_eq!(behind_the_first(&again), behind_the_first(&export));
    let error = copy.import(&mut &export[..]).unwrap_err();
    assert!(matches!(error, ImportError::NotEmpty), "{error}");
    // It can be gone on with, and numbers go on.
    drop(copy);
    let (copy, mut recovered) = open(&other);
    let two = recovered.next_job().unwrap().unwrap();
    assert_eq!((two.job.number, two.waiting()), (jobs[0], 0));
    let large = recovered.next_job().unwrap().unwrap();
    assert_eq!((large.job.number, waiting(&large).len()), (jobs[2], 1000));
    assert!(copy.upload(NOW).unwrap().job() > *jobs.iter().max().unwrap());
}

#[test]
fn an_export_that_is_not_whole_is_refused() {
    let (_folder, path) = place();
    let store = new_store(&path);
    fill(&store);
    let mut export = Vec::new();
    store.export(&mut export).unwrap();
    let text = String::from_utf8(export).unwrap();
    let lines: Vec<_> = text.lines().collect();
    let import = |text: &str| {
        let (_folder, path) = place();
        let (store, _) = open(&path);
        let imported = store.import(&mut text.as_bytes());
        assert_eq!(store.check().unwrap().damage, []);
        imported.unwrap_err()
    };
    let without = |skip: usize| {
        let kept: Vec<_> = (0..lines.len()).filter(|i| *i != skip).map(|i| lines[i]).collect();
        kept.join("\n") + "\n"
    };
    for cut in [0, 1, text.len() / 2, text.len() - 1] {
        let error = import(&text[..cut]);
        assert!(matches!(error, ImportError::Truncated { .. }), "{cut}: {error}");
    }
    let whole = lines.len() as u64 - 1;
    let error = import(&text[..text.len() - 1]);
    assert!(matches!(error, ImportError::Truncated { line } if line == whole), "{error}");
    assert!(matches!(import(&without(lines.len() - 1)), ImportError::Truncated { .. }));
    let subtask = lines.iter().position(|line| line.starts_with("{\"subtask\"")).unwrap();
    for skip in [0, subtask] {
        let error = import(&without(skip));
        assert!(matches!(error, ImportError::Line { .. }), "{skip}: {error}");
    }
    let later = text.replacen("\"version\":9", "\"version\":10", 1);
    assert!(matches!(import(&later), ImportError::Line { line: 1, .. }));
    let unknown = text.replacen("\"total\"", "\"size\"", 1);
    assert!(matches!(import(&unknown), ImportError::Line { .. }));
    let end = lines[lines.len() - 1];
    let jobs: u64 = end.chars().filter(char::is_ascii_digit).collect::<String>().parse().unwrap();
    let more = end.replace(&jobs.to_string(), &(jobs + 1).to_string());
    let error = import(&text.replace(end, &more));
    assert!(matches!(error, ImportError::Line { line, .. } if line == whole + 1), "{error}");
    let beyond = text.clone() + lines[0] + "\n";
    assert!(matches!(import(&beyond), ImportError::Line { .. }));
    assert!(JobId::parse("job_1").is_none());
}

/// Raises the number of the opening as if the system's clock had been ahead until now.
fn open_in_the_future(path: &std::path::Path) -> Store {
    let (store, _) = open(path);
    let mut changes = Changes::new();
    changes.raise_boot(store.boot() + 5_000_000);
    store.submit(changes).wait().unwrap();
    drop(store);
    open(path).0
}

/// The clock is behind: nothing but the file beside the store, or a large step, tells of later openings.
#[test]
fn fences_rise_over_a_restored_backup_while_the_clock_is_behind() {
    let (folder, path) = place();
    let store = open_in_the_future(&path);
    let copy = folder.path().join("copy");
    store.backup(&copy).unwrap();
    drop(store);
    let openings = (0..3).map(|_| open(&path).0.boot()).max().unwrap();
    // In the place of the lost store, whose `-boot` stays.
    for suffix in ["", "-mark"] {
        std::fs::remove_file(format!("{}{suffix}", path.display())).unwrap();
    }
    std::fs::copy(&copy, &path).unwrap();
    let restored = open(&path).0.boot();
    assert_eq!(restored, openings + 1);
    // And elsewhere, twice.
    let elsewhere = [folder.path().join("one"), folder.path().join("two")];
    let numbers = elsewhere.map(|path| {
        std::fs::copy(&copy, &path).unwrap();
        open(&path).0.boot()
    });
    assert!(numbers.iter().all(|number| *number > restored), "{numbers:?} {restored}");
    assert_ne!(numbers[0], numbers[1]);
}

#[test]
fn fences_rise_over_an_import_while_the_clock_is_behind() {
    let (folder, path) = place();
    let store = open_in_the_future(&path);
    let mut export = Vec::new();
    store.export(&mut export).unwrap();
    drop(store);
    let openings = (0..3).map(|_| open(&path).0.boot()).max().unwrap();
    let new = folder.path().join("new");
    let (store, _) = open(&new);
    store.import(&mut &export[..]).unwrap();
    drop(store);
    assert!(open(&new).0.boot() > openings);
}
