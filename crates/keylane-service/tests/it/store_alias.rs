//! What clients call jobs is written with them, stays as long as they do, and is in every copy.

use crate::store_support::{
    NOW, back_up, change_rows, new_job, new_store, open, outcome, place, upload,
};
use keylane_service::JobId;
use keylane_service::store::{
    Changes, JobAlias, JobState, JobStatus, OutcomeCounts, OutcomeKind, Store, StoreDamage,
    WriteError,
};

/// A job that is called that; or why there is none.
fn named(store: &Store, name: &str, total: u32) -> Result<JobId, WriteError> {
    let upload = upload(store, total);
    let (job, id) = (upload.job(), upload.id());
    let mut also = Changes::new();
    also.alias(JobAlias { name: name.into(), job: id, body_hash: [7; 32] });
    let (tell, told) = std::sync::mpsc::channel();
    let then = move |answer: Result<_, _>| tell.send(answer.map(drop)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(store.accept_with_async(vec![(upload, new_job(job))], also, then));
    told.recv().unwrap().map(|()| id)
}

fn found(store: &Store, name: &str) -> Option<JobId> {
    store.alias(name).unwrap().map(|alias| {
        assert_eq!((alias.name.as_str(), alias.body_hash), (name, [7; 32]));
        alias.job
    })
}

#[test]
fn a_name_is_one_jobs_as_long_as_that_is_there() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let first = named(&store, "a", 1).unwrap();
    let taken = named(&store, "a", 5000).unwrap_err();
    assert_eq!(taken, WriteError::Duplicate { job: first, body_hash: [7; 32] });
    let second = named(&store, "b", 3).unwrap();
    drop(store);
    let (store, _) = open(&path);
    assert_eq!((found(&store, "a"), found(&store, "b")), (Some(first), Some(second)));
    assert_eq!(found(&store, "c"), None);
    let job = first.number();
    let mut changes = Changes::new();
    changes.ended(job, outcome(0, OutcomeKind::Succeeded));
    let counts = OutcomeCounts { succeeded: 1, ..OutcomeCounts::default() };
    let over = JobStatus::of(JobState::Succeeded);
    changes.status(job, JobStatus { ended_ms: Some(NOW + 9), counts, ..over });
    store.submit(changes).wait().unwrap();
    assert_eq!(found(&store, "a"), Some(first));
    let mut changes = Changes::new();
    changes.purge(job);
    store.submit(changes).wait().unwrap();
    assert_eq!(found(&store, "a"), None);
    let again = named(&store, "a", 2).unwrap();
    assert_ne!(again, first);
    assert_eq!(store.check().unwrap().damage, []);
}

#[test]
fn copies_have_names_and_damage_is_named() {
    let (_folder, path) = place();
    let store = new_store(&path);
    let [a, b] = ["a", "b"].map(|name| named(&store, name, 3).unwrap());
    let (_folder, copy) = place();
    back_up(&store, &path, &copy);
    let mut export = Vec::new();
    store.export(&mut export).unwrap();
    let (_folder, other) = place();
    let imported = new_store(&other);
    imported.import(&mut &export[..]).unwrap();
    for store in [&imported, &open(&copy).0] {
        assert_eq!((found(store, "a"), found(store, "b")), (Some(a), Some(b)));
        assert_eq!(store.check().unwrap().damage, []);
    }
    drop(store);
    change_rows(&path, "UPDATE alias SET name = 'c' WHERE name = 'b'");
    let (store, _) = open(&path);
    assert!(store.alias("c").is_err());
    assert_eq!(store.check().unwrap().damage, [StoreDamage::Alias { name: "c".into() }]);
}
