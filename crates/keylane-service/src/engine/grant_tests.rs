//! Tests of leases between their start in the engine state and their delivery to a worker.

use std::sync::{Arc, mpsc};
use std::time::Duration;

use futures_util::FutureExt;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::engine::{Core, ServiceSettings};
use crate::store::Changes;
use crate::{Kind, Service};

const MINUTE: Duration = Duration::from_secs(60);

/// Starts a service whose only kind is for remote workers and has one attempt.
async fn start(folder: &std::path::Path) -> Service {
    let once = Kind { attempts: 1, ..Kind::leased(MINUTE) };
    Service::builder(ServiceSettings::new(folder.join("store")))
        .kind("once", once)
        .start()
        .await
        .unwrap()
}

/// Waits until `is_so` holds for the engine state.
async fn until(core: &Core, is_so: impl Fn(&EngineState) -> bool) {
    while !is_so(&core.state.lock()) {
        tokio::task::yield_now().await;
    }
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
    let (kinds, closing) = (["once".to_owned()], CancellationToken::new());
    let first =
        core.remote_workers.claim(&kinds, 1, MINUTE, None, &closing).await.unwrap().remove(0);
    // From here on the writer is blocked.
    let (blocked, is_blocked) = tokio::sync::oneshot::channel();
    let (go_on, gone_on) = mpsc::channel::<()>();
    core.store.submit_with(Changes::new(), move |_| {
        let _ = blocked.send(());
        let _ = gone_on.recv();
    });
    is_blocked.await.unwrap();
    let ends = tokio::spawn({
        let (core, id) = (Arc::clone(&core), first.id.clone());
        async move { core.remote_workers.complete(&id, None, None).await }
    });
    let mut second = Box::pin(core.remote_workers.claim(&kinds, 1, MINUTE, None, &closing));
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
    core.remote_workers.complete(&second.id, None, None).await.unwrap();
    assert_eq!(service.wait(id).await.unwrap().counts.succeeded, 2);
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
    let (kinds, closing) = (["once".to_owned()], CancellationToken::new());
    let mut gone = Box::pin(core.remote_workers.claim(&kinds, 1, MINUTE, None, &closing));
    assert!(gone.as_mut().now_or_never().is_none());
    let id = service.submit(r#"{"kind":"once","key":"k","payload":1}"#).await.unwrap();
    let is_given = |running: &RunningAttempt| {
        running.lease.as_ref().is_some_and(|held| held.promised_to.is_none())
    };
    until(&core, |engine| engine.running.values().any(is_given)).await;
    drop(gone);
    assert!(core.state.lock().running.is_empty());
    let lease =
        core.remote_workers.claim(&kinds, 1, MINUTE, None, &closing).await.unwrap().remove(0);
    assert_eq!(lease.attempt, 1);
    core.remote_workers.complete(&lease.id, None, None).await.unwrap();
    assert_eq!(service.wait(id).await.unwrap().counts.succeeded, 1);
    drop(core);
    service.stop(Duration::ZERO).await;
}
