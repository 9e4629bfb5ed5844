//! Tests of leases between their start in the engine state and their delivery to a worker.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::engine::{Core, LeaseReport, ServiceSettings, WorkRequest, WorkerToken};
use crate::store::Changes;
use crate::{Kind, Service};

const MINUTE: Duration = Duration::from_secs(60);
fn token() -> WorkerToken {
    WorkerToken::named("anyone")
}

/// Starts a service whose only kind is for remote workers and has one attempt.
async fn start(folder: &std::path::Path) -> Service {
    let once = Kind { attempts: 1, ..Kind::leased(MINUTE) };
    Service::builder(ServiceSettings::new(folder.join("store")))
        .kind("once", once)
        .start()
        .await
        .unwrap()
}

/// Returns the request of a worker for one subtask.
fn one() -> WorkRequest {
    WorkRequest {
        kinds: vec!["once".to_owned()],
        most: 1,
        wait: MINUTE,
        worker: None,
        token: token(),
    }
}

/// Waits until `is_so` holds for the engine state.
async fn until(core: &Core, is_so: impl Fn(&EngineState) -> bool) {
    while !is_so(&core.state.lock()) {
        tokio::task::yield_now().await;
    }
}

/// Blocks the writer until something is sent.
async fn block_writer(core: &Core) -> mpsc::Sender<()> {
    let (blocked, is_blocked) = tokio::sync::oneshot::channel();
    let (go_on, gone_on) = mpsc::channel::<()>();
    core.store.submit_with(Changes::new(), move |_| {
        let _ = blocked.send(());
        let _ = gone_on.recv();
    });
    is_blocked.await.unwrap();
    go_on
}

/// A crash undoes everything that is not on the disk, so a worker's lease must be there: its start
/// mark, and the end of its predecessor.
#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_granted_when_its_start_is_on_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let service = start(folder.path()).await;
    let core = Arc::clone(&service.core);
    let two = r#"{"kind":"once","subtasks":[{"key":"k","payload":1},{"key":"k","payload":2}]}"#;
    let id = service.submit(two).await.unwrap();
    let closing = CancellationToken::new();
    let first = core.remote_workers.claim(one(), &closing).await.unwrap().remove(0);
    let go_on = block_writer(&core).await;
    let ends = tokio::spawn({
        let (core, id) = (Arc::clone(&core), first.id.clone());
        async move { core.remote_workers.report_one(LeaseReport::success(&id), &token()).await }
    });
    let mut second = Box::pin(core.remote_workers.claim(one(), &closing));
    assert!(second.as_mut().now_or_never().is_none());
    // The second subtask has its key and its slot, but its worker has no lease yet.
    until(&core, |engine| engine.running.values().any(|running| running.number == 1)).await;
    assert!(second.as_mut().now_or_never().is_none());
    let is_promised = |running: &RunningAttempt| {
        running.lease.as_ref().is_some_and(|held| held.promised_to.is_some())
    };
    assert!(core.state.lock().running.values().all(is_promised));
    go_on.send(()).unwrap();
    let second = second.await.unwrap().remove(0);
    assert_eq!((second.number, second.attempt), (1, 1));
    ends.await.unwrap().unwrap();
    core.remote_workers.report_one(LeaseReport::success(&second.id), &token()).await.unwrap();
    assert_eq!(service.wait(id).await.unwrap().counts.succeeded, 2);
    drop(core);
    service.stop(Duration::ZERO).await;
}

/// Those of another worker, and those with higher fences, are of processes that run.
#[tokio::test(flavor = "multi_thread")]
async fn leases_of_a_former_process_end_and_no_others() {
    let folder = tempfile::tempdir().unwrap();
    let twice = Kind { attempts: 2, ..Kind::leased(MINUTE) };
    let builder = Service::builder(ServiceSettings::new(folder.path().join("store")));
    let service = builder.kind("once", twice).start().await.unwrap();
    let core = Arc::clone(&service.core);
    let three = r#"{"kind":"once","subtasks":[{"payload":1},{"payload":2},{"payload":3}]}"#;
    let id = service.submit(three).await.unwrap();
    let closing = CancellationToken::new();
    let claim = |worker: &str| {
        let request = WorkRequest { worker: Some(worker.to_owned()), ..one() };
        core.remote_workers.claim(request, &closing)
    };
    let former = claim("here").await.unwrap().remove(0);
    let other = claim("there").await.unwrap().remove(0);
    let below = core.remote_workers.next_fence();
    let mine = claim("here").await.unwrap().remove(0);
    let end = |worker: &'static str, token: &'static str| {
        let core = Arc::clone(&core);
        async move {
            let token = WorkerToken::named(token);
            core.remote_workers.end_former_leases(worker, &token, below).await.unwrap()
        }
    };
    assert_eq!(end("elsewhere", "anyone").await, 0);
    assert_eq!(end("here", "other token").await, 0);
    assert_eq!(end("here", "anyone").await, 1);
    // As a request that comes twice.
    let again = claim("here").await.unwrap().remove(0);
    assert_eq!((again.number, again.attempt), (former.number, 2));
    assert_eq!(end("here", "anyone").await, 0);
    let report = |id: &str| {
        let (core, report) = (Arc::clone(&core), LeaseReport::success(id));
        async move { core.remote_workers.report_one(report, &token()).await }
    };
    assert!(report(&former.id).await.is_err());
    for lease in [other, mine, again] {
        report(&lease.id).await.unwrap();
    }
    assert_eq!(service.wait(id).await.unwrap().counts.succeeded, 3);
    drop(core);
    service.stop(Duration::ZERO).await;
}

/// A withdrawn attempt does not count, because no worker has seen it: each subtask here has only
/// one attempt.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_client_that_has_gone_was_given_is_as_if_it_had_not_begun() {
    let folder = tempfile::tempdir().unwrap();
    let service = start(folder.path()).await;
    let core = Arc::clone(&service.core);
    let closing = CancellationToken::new();
    let mut gone = Box::pin(core.remote_workers.claim(one(), &closing));
    assert!(gone.as_mut().now_or_never().is_none());
    let id = service.submit(r#"{"kind":"once","key":"k","payload":1}"#).await.unwrap();
    let is_given = |running: &RunningAttempt| {
        running.lease.as_ref().is_some_and(|held| held.promised_to.is_none())
    };
    until(&core, |engine| engine.running.values().any(is_given)).await;
    drop(gone);
    assert!(core.state.lock().running.is_empty());
    let lease = core.remote_workers.claim(one(), &closing).await.unwrap().remove(0);
    assert_eq!(lease.attempt, 1);
    core.remote_workers.report_one(LeaseReport::success(&lease.id), &token()).await.unwrap();
    assert_eq!(service.wait(id).await.unwrap().counts.succeeded, 1);
    drop(core);
    service.stop(Duration::ZERO).await;
}

/// A worker that reports and claims in one request costs one transaction: the ends, and the starts that
/// they make possible.
#[tokio::test(flavor = "multi_thread")]
async fn ends_and_the_starts_behind_them_are_one_transaction() {
    let folder = tempfile::tempdir().unwrap();
    let service = start(folder.path()).await;
    let core = Arc::clone(&service.core);
    let subtasks = r#"{"key":"a"},{"key":"b"},{"key":"a"},{"key":"b"}"#;
    let job = format!(r#"{{"kind":"once","subtasks":[{subtasks}]}}"#);
    let id = service.submit(&job).await.unwrap();
    let closing = CancellationToken::new();
    let two = || WorkRequest { most: 2, ..one() };
    let mut leases = Vec::new();
    while leases.len() < 2 {
        leases.extend(core.remote_workers.claim(two(), &closing).await.unwrap());
    }
    until(&core, |engine| !engine.is_writing && engine.unwritten.is_empty()).await;
    let go_on = block_writer(&core).await;
    let reports = leases.iter().map(|lease| LeaseReport::success(&lease.id)).collect();
    let next = tokio::spawn({
        let (core, closing) = (Arc::clone(&core), closing.clone());
        async move { core.remote_workers.report_and_claim(reports, two(), &closing).await }
    });
    let numbers = |engine: &EngineState| {
        let mut numbers: Vec<_> = engine.running.values().map(|running| running.number).collect();
        numbers.sort_unstable();
        numbers
    };
    until(&core, |engine| numbers(engine) == [2, 3]).await;
    {
        let engine = core.state.lock();
        assert!(engine.is_writing && engine.unwritten.is_empty());
    }
    go_on.send(()).unwrap();
    let (results, leases) = next.await.unwrap().unwrap();
    assert_eq!(results, [Ok(()), Ok(())]);
    let reports = leases.unwrap().iter().map(|lease| LeaseReport::success(&lease.id)).collect();
    assert_eq!(core.remote_workers.report(reports, &token()).await.unwrap(), [Ok(()), Ok(())]);
    assert_eq!(service.wait(id).await.unwrap().counts.succeeded, 4);
    drop(core);
    service.stop(Duration::ZERO).await;
}

/// A worker that disconnects while it waits for its next subtasks has reported all the same, and a
/// subtask that was on its way to it is another worker's.
#[tokio::test(flavor = "multi_thread")]
async fn a_report_counts_without_its_answer() {
    let folder = tempfile::tempdir().unwrap();
    let service = start(folder.path()).await;
    let core = Arc::clone(&service.core);
    let job = r#"{"kind":"once","subtasks":[{"key":"k"},{"key":"k"}]}"#;
    let id = service.submit(job).await.unwrap();
    let closing = CancellationToken::new();
    let lease = core.remote_workers.claim(one(), &closing).await.unwrap().remove(0);
    let reports = vec![LeaseReport::success(&lease.id)];
    let go_on = block_writer(&core).await;
    let mut gone = Box::pin(core.remote_workers.report_and_claim(reports, one(), &closing));
    assert!(gone.as_mut().now_or_never().is_none());
    until(&core, |engine| engine.running.values().any(|running| running.number == 1)).await;
    drop(gone);
    go_on.send(()).unwrap();
    assert_eq!(
        core.remote_workers.report(vec![LeaseReport::success(&lease.id)], &token()).await.unwrap(),
        [Err(crate::RequestError::LeaseLost)]
    );
    let lease = core.remote_workers.claim(one(), &closing).await.unwrap().remove(0);
    assert_eq!((lease.number, lease.attempt), (1, 1));
    core.remote_workers.report_one(LeaseReport::success(&lease.id), &token()).await.unwrap();
    assert_eq!(service.wait(id).await.unwrap().counts.succeeded, 2);
    drop(core);
    service.stop(Duration::ZERO).await;
}
