//! What is known of attempts that have not ended, and the number of an opening, survive restarts, copies and exports.

use std::fs;

use crate::store_support::{accepted, back_up, copy_as_is, is_in_file, new_store, open, place};
use keylane_service::store::{AttemptStage, LatestAttempt, Store};
use keylane_service::{JobNumber, SubtaskId};

fn stages() -> [AttemptStage; 5] {
    [
        AttemptStage::Started,
        AttemptStage::Leased { fence: 77, since_ms: 5, worker: Some("w1".into()) },
        AttemptStage::BackingOff { since_ms: 6, wait_ms: 60_000, reason: "".into() },
        AttemptStage::BackingOff { since_ms: 6, wait_ms: 60_000, reason: "no answer".into() },
        AttemptStage::Stopped { since_ms: 7, reason: "it has no room".into() },
    ]
}

/// A store with a job of which each subtask is at another stage.
fn store_with_stages(path: &std::path::Path) -> (Store, JobNumber) {
    let store = new_store(path);
    let job = accepted(&store, 5);
    let mut changes = keylane_service::store::Changes::new();
    for (number, stage) in (0..).zip(stages()) {
        changes.mark(SubtaskId { job, number }, LatestAttempt { attempt: number + 1, stage });
    }
    store.submit(changes).wait().unwrap();
    (store, job)
}

/// The attempts and stages of the only job.
fn found(recovered: &mut keylane_service::store::RecoveredJobs) -> Vec<(u32, AttemptStage)> {
    let job = recovered.next_job().unwrap().unwrap();
    let mut all = Vec::new();
    job.for_each_waiting(|one| all.push((one.attempts, one.stage.clone()))).unwrap();
    assert!(recovered.next_job().unwrap().is_none());
    all
}

#[test]
fn stages_survive_a_restart_and_a_crash() {
    let (_folder, path) = place();
    let (store, _) = store_with_stages(&path);
    let wanted: Vec<_> = (1..).zip(stages()).collect();
    let (_copied, copy) = copy_as_is(&path);
    drop(store);
    for path in [copy, path] {
        let (_store, mut recovered) = open(&path);
        assert_eq!(found(&mut recovered), wanted);
    }
}

#[test]
fn a_mark_of_a_later_stage_takes_the_place_of_the_one_before() {
    let (_folder, path) = place();
    let (store, job) = store_with_stages(&path);
    let mut changes = keylane_service::store::Changes::new();
    changes.started(SubtaskId { job, number: 4 }, 5);
    store.submit(changes).wait().unwrap();
    drop(store);
    let (_store, mut recovered) = open(&path);
    assert_eq!(found(&mut recovered)[4], (5, AttemptStage::Started));
}

#[test]
fn an_export_has_all_but_leases_and_raises_the_number_of_openings() {
    let (_folder, path) = place();
    let (store, _) = store_with_stages(&path);
    // As if its clock had been in a wrong future once.
    let mut changes = keylane_service::store::Changes::new();
    changes.raise_boot(store.boot() + 1_000_000);
    store.submit(changes).wait().unwrap();
    drop(store);
    let (exported, _) = open(&path);
    let mut lines = Vec::new();
    exported.export(&mut lines).unwrap();
    let (_other, path) = place();
    let imported = new_store(&path);
    imported.import(&mut &lines[..]).unwrap();
    drop(imported);
    let (imported, mut recovered) = open(&path);
    assert!(imported.boot() > exported.boot());
    let mut wanted: Vec<_> = (1..).zip(stages()).collect();
    wanted[1].1 = AttemptStage::Started;
    assert_eq!(found(&mut recovered), wanted);
}

/// A backup knows nothing of the openings since: the clock does.
#[test]
fn a_restored_backup_has_a_higher_number_than_the_file_that_is_lost() {
    let (folder, path) = place();
    let store = new_store(&path);
    let backup = folder.path().join("backup");
    back_up(&store, &path, &backup);
    let lost = store.boot();
    drop(store);
    let (restored, _) = open(&backup);
    assert!(restored.boot() > lost);
    // Above all fences of versions that counted openings from one: `boot * 2^40`.
    assert!(restored.boot() > (1000 << 19) && restored.boot() < 1 << 32);
}

#[test]
fn a_tool_that_opens_a_crashed_store_does_not_hide_the_crash() {
    let (_folder, path) = place();
    let (store, _) = store_with_stages(&path);
    let (folder, crashed) = copy_as_is(&path);
    drop(store);
    for tool in 0..4 {
        let (store, mut recovered) = open(&crashed);
        assert!(!recovered.was_clean());
        match tool {
            0 if is_in_file() => store.backup(folder.path().join("backup")).unwrap(),
            1 => drop(store.export(&mut Vec::new()).unwrap()),
            // `keylane store remove` of a job that is not damaged reads all jobs.
            2 => assert_eq!(found(&mut recovered).len(), 5),
            _ => {}
        }
    }
    // The service takes up what is unfinished, and closes it in order.
    let (store, mut recovered) = open(&crashed);
    assert_eq!(found(&mut recovered).len(), 5);
    recovered.taken_over();
    drop((store, recovered));
    let (_store, recovered) = open(&crashed);
    assert!(recovered.was_clean());
    fs::remove_dir_all(folder.path()).unwrap();
}
