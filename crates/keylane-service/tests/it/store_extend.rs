//! More subtasks of a job that is there: nothing of an extension that broke off is among those of the next one.

use crate::store_support::{NOW, accepted, count_rows, open, open_with, place};
use keylane_service::KeyClaim;
use keylane_service::store::{
    Changes, JobExtension, JobState, JobStatus, Store, StoreSettings, WriteError,
};

/// So large that a chunk is full with some hundred of them.
fn payload(try_of: u8, number: u32, bytes: usize) -> Vec<u8> {
    let mut payload = format!("<payload {try_of} {number}>").into_bytes();
    payload.resize(bytes, try_of);
    payload
}

async fn push(extension: &mut JobExtension, try_of: u8, until: u32, bytes: usize) {
    while extension.total() < until {
        let number = extension.total();
        let pushed = extension.push(&[format!("key {try_of}")], &payload(try_of, number, bytes));
        assert_eq!(pushed, Ok(number));
        extension.flush_async().await.unwrap();
    }
}

#[tokio::test]
async fn what_an_extension_left_that_broke_off_is_not_in_the_next_one() {
    // With nothing in memory, with one chunk, with all.
    for max_cache_bytes in [0, 200 * 1024, 1 << 30] {
        let (_folder, path) = place();
        let settings = StoreSettings { max_cache_bytes, ..StoreSettings::default() };
        let (store, _) = open_with(&path, settings.clone()).unwrap();
        let job = accepted(&store, 1);
        // Chunks that begin at other places than those of the second.
        let mut first = store.extend(job, 1);
        push(&mut first, 1, 1600, 260).await;
        drop(first);
        let mut second = store.extend(job, 1);
        push(&mut second, 2, 1200, 180).await;
        let (tell, told) = tokio::sync::oneshot::channel();
        second.finish_with(|written| drop(tell.send(written))).await.unwrap();
        told.await.unwrap().unwrap();

        let look = |store: &Store| {
            for number in 1..1200 {
                let chunk = store.chunk(job, number).unwrap();
                let subtask = chunk.subtask(number).unwrap();
                assert!(
                    subtask.keys().eq([KeyClaim::exclusive(b"key 2")]),
                    "{number} with {max_cache_bytes}"
                );
                assert_eq!(subtask.payload(), payload(2, number, 180));
            }
            let report = store.check().unwrap();
            assert_eq!((report.damage, report.subtasks), (vec![], 1200));
        };
        look(&store);
        drop(store);
        let (store, mut recovered) = open_with(&path, settings.clone()).unwrap();
        assert_eq!(recovered.next_job().unwrap().unwrap().waiting(), 1200);
        look(&store);
    }
}

/// Regression: the first chunk of an extension deleted all chunks of a broken one in its transaction, on which all other
/// writes wait.
#[tokio::test]
async fn a_broken_extension_is_replaced_in_parts() {
    let (_folder, path) = place();
    let (store, _) = open(&path);
    let job = accepted(&store, 1);
    let mut broken = store.extend(job, 1);
    push(&mut broken, 1, 20_000, 260).await;
    drop(broken);
    store.submit(Changes::new()).await.unwrap();
    let chunks = || count_rows(&path, "chunk");
    let before = loop {
        // The chunks are uploads, which may be written after a request.
        let seen = chunks();
        if seen > 15 {
            break seen;
        }
        store.submit(Changes::new()).await.unwrap();
    };
    let mut next = store.extend(job, 1);
    push(&mut next, 2, 2000, 260).await;
    let (tell, told) = tokio::sync::oneshot::channel();
    next.finish_with(|written| drop(tell.send(written))).await.unwrap();
    told.await.unwrap().unwrap();
    let after = chunks();
    assert!(after > before / 2, "{after} of {before} chunks are left");
    for number in 1..2000 {
        let chunk = store.chunk(job, number).unwrap();
        assert_eq!(chunk.subtask(number).unwrap().payload(), payload(2, number, 260));
    }
    let report = store.check().unwrap();
    assert_eq!((report.damage, report.subtasks), (vec![], 2000));
}

#[tokio::test]
async fn an_extension_of_a_job_that_is_removed_meanwhile_leaves_nothing() {
    let (_folder, path) = place();
    let (store, _) = open(&path);
    let job = accepted(&store, 1);
    let mut extension = store.extend(job, 1);
    push(&mut extension, 1, 1000, 260).await;
    let mut end = Changes::new();
    end.status(job, JobStatus { ended_ms: Some(NOW), ..JobStatus::of(JobState::Cancelled) });
    store.submit(end).await.unwrap();
    let mut removal = Changes::new();
    removal.purge(job);
    store.submit(removal).await.unwrap();
    push(&mut extension, 1, 3000, 260).await;
    let (tell, told) = tokio::sync::oneshot::channel();
    extension.finish_with(|written| drop(tell.send(written))).await.unwrap();
    assert_eq!(told.await.unwrap(), Err(WriteError::NoSuchJob { job }));
    assert_eq!(store.check().unwrap().damage, []);
    drop(store);
    assert_eq!(count_rows(&path, "chunk"), 0);
}
