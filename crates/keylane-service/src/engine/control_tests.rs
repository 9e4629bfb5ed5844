//! Commands that arrive while the writer processes a commit: they are applied in commit order, or
//! refused before anything is written.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::mpsc;

use futures_util::FutureExt;
use serde_json::value::RawValue;
use tokio::sync::watch;

use super::*;
use crate::engine::ExtraWrites;
use crate::engine::audit::OperatorAction;
use crate::engine::events::FollowedItem;
use crate::engine::retry_plan::MAX_PART_SUBTASKS;
use crate::engine::{Core, ManualClock, RetrySelection, ServiceSettings, SubmitTicket};
use crate::handle::{Attempt, FunctionHandler};
use crate::wire::{CancelMode, EventKind, JobState, KeyState, RetryOnly};
use crate::{Kind, Service};

/// Blocks the writer in a callback until it is dropped. Changes committed together with it are on
/// the disk, and later callbacks have not run.
struct BlockedWriter {
    entered: mpsc::Receiver<()>,
    _leave: mpsc::Sender<()>,
}

impl BlockedWriter {
    fn new(core: &Core) -> Self {
        let (enter, entered) = mpsc::channel();
        let (leave, left) = mpsc::channel::<()>();
        core.store.submit_with(Changes::new(), move |_| {
            enter.send(()).unwrap();
            // The error is the signal to continue.
            let _ = left.recv();
        });
        BlockedWriter { entered, _leave: leave }
    }

    fn wait(&self) {
        self.entered.recv().unwrap();
    }
}

/// Starts a service whose jobs of the kind `gated` end when the gate is open.
async fn start(folder: &std::path::Path) -> (Service, watch::Sender<bool>) {
    let (gate, at_gate) = watch::channel(false);
    let gated = FunctionHandler::new(move |_: Attempt| {
        let mut at_gate = at_gate.clone();
        async move {
            let _ = at_gate.wait_for(|is_open| *is_open).await;
            Ok(None)
        }
    });
    let settings = ServiceSettings::new(folder.join("store"));
    let service = Service::builder(settings).kind("gated", Kind::new(gated)).start();
    (service.await.unwrap(), gate)
}

const CANCEL: CancelRequest = CancelRequest { mode: CancelMode::Graceful, reason: None };

fn named(name: &str) -> JobPatch {
    JobPatch { name: Some(name.into()), ..JobPatch::default() }
}

/// Submits a job that is on the disk while its callback has not run. The callback runs when the
/// returned guard is dropped.
async fn just_committed(core: &Arc<Core>) -> (JobId, BlockedWriter, SubmitTicket) {
    let first = BlockedWriter::new(core);
    first.wait();
    // Later submissions are committed together, with callbacks in this order.
    let second = BlockedWriter::new(core);
    let job = r#"{"kind":"gated","payload":1,"delay_ms":3600000}"#;
    let intake = core.submission.begin_intake(serde_json::from_str(job).unwrap(), false).unwrap();
    let id = intake.id();
    let coming = intake.submit(None, ExtraWrites::default()).await.unwrap();
    drop(first);
    second.wait();
    assert!(!core.query.stored(id).unwrap().status.state.is_final());
    (id, second, coming)
}

/// Regression: while a job was on the disk, visible to clients, and its callback had not run, a
/// cancellation was answered with the unchanged job, which then ran; a pause or a change was
/// refused because the job was "over".
#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_was_just_committed_takes_commands() {
    let folder = tempfile::tempdir().unwrap();
    let (service, _gate) = start(folder.path()).await;
    let core = &service.core;
    let act = &AuditedRequest::in_process(OperatorAction::CancelJob);

    let (id, held, coming) = just_committed(core).await;
    let mut cancelling = std::pin::pin!(core.control.cancel_job(id, &CANCEL, act));
    let early = cancelling.as_mut().now_or_never();
    assert!(early.is_none(), "it was not cancelled: {early:?}");
    drop(held);
    assert_eq!(cancelling.await.unwrap().state, JobState::Cancelled);
    coming.outcome().await.unwrap();

    let (id, held, coming) = just_committed(core).await;
    let mut pausing = std::pin::pin!(core.control.pause_job(id, true, act));
    let early = pausing.as_mut().now_or_never();
    assert!(early.is_none(), "it was not paused: {early:?}");
    drop(held);
    assert_eq!(pausing.await.unwrap().state, JobState::Paused);
    coming.outcome().await.unwrap();

    let (id, held, coming) = just_committed(core).await;
    let mut patching = std::pin::pin!(core.control.patch_job(id, named("a"), None, act));
    let early = patching.as_mut().now_or_never();
    assert!(early.is_none(), "it was not changed: {early:?}");
    drop(held);
    assert_eq!(patching.await.unwrap().name.as_deref(), Some("a"));
    coming.outcome().await.unwrap();
}

/// Regression: the change of the head was accepted and written after the end of the job. If the job
/// had been deleted in between, the store would have refused the change and with it the outcomes of
/// other jobs in its batch.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_whose_end_is_on_its_way_to_the_disk_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let (service, gate) = start(folder.path()).await;
    let core = &service.core;
    let id = service.submit(r#"{"kind":"gated","payload":1}"#).await.unwrap();
    let held = BlockedWriter::new(core);
    held.wait();
    gate.send(true).unwrap();
    while !core.state.lock().live[&id.number()].is_closing {
        tokio::task::yield_now().await;
    }
    let act = AuditedRequest::in_process(OperatorAction::PatchJob);
    let patched = core.control.patch_job(id, named("late"), None, &act).now_or_never();
    assert!(matches!(patched, Some(Err(RequestError::Conflict(_)))), "{patched:?}");
    drop(held);
    let job = service.wait(id).await.unwrap();
    assert_eq!((job.state, job.name), (JobState::Succeeded, None));
}

/// Regression: the change was answered as not done, and was written when the disk had free space.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_done_when_the_disk_becomes_full_is_answered_so() {
    let folder = tempfile::tempdir().unwrap();
    let (gate, at_gate) = watch::channel(false);
    let large = FunctionHandler::new(move |_: Attempt| {
        let mut at_gate = at_gate.clone();
        async move {
            let _ = at_gate.wait_for(|is_open| *is_open).await;
            Ok(RawValue::from_string(format!("\"{}\"", "x".repeat(2_000_000))).ok())
        }
    });
    let store = crate::store::StoreSettings { max_bytes: Some(1_000_000), ..Default::default() };
    let settings = ServiceSettings { store, ..ServiceSettings::new(folder.path().join("store")) };
    let service = Service::builder(settings).kind("large", Kind::new(large)).start();
    let service = service.await.unwrap();
    let core = &service.core;
    let id = service.submit(r#"{"kind":"large","payload":1}"#).await.unwrap();
    let held = BlockedWriter::new(core);
    held.wait();
    gate.send(true).unwrap();
    while !core.state.lock().live[&id.number()].is_closing {
        tokio::task::yield_now().await;
    }
    let act = AuditedRequest::in_process(OperatorAction::PauseKey);
    let mut pausing = std::pin::pin!(core.control.steer_key("k", KeyCommand::Pause, &act));
    assert!(pausing.as_mut().now_or_never().is_none(), "it is not on the disk");
    drop(held);
    assert_eq!(pausing.await.unwrap_err(), RequestError::NotYetWritten);
    let again = core.control.steer_key("k", KeyCommand::Resume, &act).await;
    assert_eq!(again.unwrap_err(), RequestError::StoreFull);
    assert!(
        core.query.key(b"k").is_some_and(|key| key.state == KeyState::Paused),
        "it was done, and stays so"
    );
}

/// Regression: the request published the deletion after its commit, so followers missed it if the
/// client had disconnected by then.
#[tokio::test(flavor = "multi_thread")]
async fn followers_learn_of_a_removal_though_the_client_has_gone_away() {
    let folder = tempfile::tempdir().unwrap();
    let (service, gate) = start(folder.path()).await;
    gate.send(true).unwrap();
    let core = &service.core;
    let id = service.submit(r#"{"kind":"gated","payload":1}"#).await.unwrap();
    service.wait(id).await.unwrap();

    let held = BlockedWriter::new(core);
    held.wait();
    let act = Arc::new(AuditedRequest::in_process(OperatorAction::PurgeJob));
    let purging = core.control.purge_job(id, &act).now_or_never();
    assert!(purging.is_none(), "it is not on the disk yet: {purging:?}");
    let (mut follower, _) = core.events.follow(None);
    drop(held);
    // Its reply comes after the deletion.
    core.store.submit(Changes::new()).await.unwrap();
    assert!(matches!(core.query.stored(id), Err(RequestError::Gone { .. })));
    let Some(FollowedItem::Event(event)) = follower.try_next() else {
        panic!("no event was published")
    };
    let job = event.job.as_ref().map(|job| job.id.clone());
    assert_eq!((event.event, job), (EventKind::JobPurged, Some(id.to_string())));
}

/// State of the service that a handler needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Broken,
    /// Attempts wait until it is repaired.
    InRepair,
    Repaired,
}

/// Regression: a retry was one transaction and one step of the order, for any number of subtasks.
#[tokio::test(flavor = "multi_thread")]
async fn a_large_retry_is_brought_in_parts_and_what_comes_meanwhile_stays_behind_it() {
    const SUBTASKS: usize = MAX_PART_SUBTASKS * 5 + 3;
    let folder = tempfile::tempdir().unwrap();
    let (repaired, state) = watch::channel(State::Broken);
    let (did, mut done) = tokio::sync::mpsc::unbounded_channel();
    let flaky = FunctionHandler::new(move |attempt: Attempt| {
        let (mut state, did) = (state.clone(), did.clone());
        async move {
            if *state.borrow() == State::Broken {
                return Err(crate::handle::AttemptFailure::lasting("not yet repaired"));
            }
            let _ = state.wait_for(|state| *state == State::Repaired).await;
            let _ = did.send(String::from_utf8_lossy(&attempt.payload).into_owned());
            Ok(None)
        }
    });
    let settings = ServiceSettings::new(folder.path().join("store"));
    let service =
        Service::builder(settings).kind("flaky", Kind { attempts: 1, ..Kind::new(flaky) });
    let service = service.start().await.unwrap();
    let subtasks: Vec<_> =
        (0..SUBTASKS).map(|n| serde_json::json!({"key": "k", "payload": n})).collect();
    let job = serde_json::json!({"kind": "flaky", "subtasks": subtasks}).to_string();
    let id = service.submit(&job).await.unwrap();
    assert_eq!(service.wait(id).await.unwrap().counts.failed, SUBTASKS as u64);

    repaired.send(State::InRepair).unwrap();
    let act = AuditedRequest::in_process(OperatorAction::RetryJob);
    let before = service.core.store.stats().commits;
    let retried = service
        .core
        .retries
        .retry(id, RetrySelection::Only(RetryOnly::Failed), &act)
        .await
        .unwrap();
    assert_eq!(retried.counts.total, SUBTASKS as u64);
    let parts = SUBTASKS.div_ceil(MAX_PART_SUBTASKS) as u64;
    // No subtask ends meanwhile, so hardly anything else is committed.
    assert!(service.core.store.stats().commits >= before + parts, "a transaction for each part");
    repaired.send(State::Repaired).unwrap();
    let behind = service.submit(r#"{"kind":"flaky","key":"k","payload":"behind"}"#).await.unwrap();
    let ended = service.wait(id).await.unwrap();
    assert_eq!((ended.state, ended.counts.succeeded), (JobState::Succeeded, SUBTASKS as u64));
    assert_eq!(service.wait(behind).await.unwrap().counts.succeeded, 1);
    for wanted in 0..SUBTASKS {
        assert_eq!(done.recv().await.unwrap(), wanted.to_string());
    }
    assert_eq!(done.recv().await.unwrap(), "\"behind\"");
    service.stop(std::time::Duration::from_secs(5)).await;
    let (store, recovered) =
        crate::store::Store::open(folder.path().join("store"), &Default::default()).unwrap();
    let report = store.check().unwrap();
    assert!(report.damage.is_empty(), "the parts are complete: {report:?}");
    drop((store, recovered));
}

/// Regression: attempts began without a start mark on the disk when a minute had passed since the
/// crash, so a subtask that had waited for longer could crash the server without end.
#[tokio::test(flavor = "multi_thread")]
async fn a_subtask_of_a_crashed_server_begins_after_its_mark_however_long_it_has_waited() {
    let folder = tempfile::tempdir().unwrap();
    let (service, _gate) = start(folder.path()).await;
    let act = AuditedRequest::in_process(OperatorAction::PauseKey);
    service.core.control.steer_key("k", KeyCommand::Pause, &act).await.unwrap();
    let id = service.submit(r#"{"kind":"gated","key":"k","payload":1}"#).await.unwrap();
    let crashed = tempfile::tempdir().unwrap();
    // The mark first: it may be behind the log, and never ahead of it.
    for suffix in ["-mark", "", "-wal"] {
        let name = format!("store{suffix}");
        std::fs::copy(folder.path().join(&name), crashed.path().join(&name)).unwrap();
    }
    service.stop(std::time::Duration::ZERO).await;

    let may_be_written = Arc::new(AtomicBool::new(false));
    let (begins, mut begun) = tokio::sync::mpsc::unbounded_channel();
    let seen = Arc::clone(&may_be_written);
    let gated = FunctionHandler::new(move |attempt: Attempt| {
        let _ = begins.send((attempt.payload.to_vec(), seen.load(SeqCst)));
        async { Ok(None) }
    });
    let clock = ManualClock::at(1_000_000_000_000);
    let settings = ServiceSettings {
        clock: Some(clock.clone()),
        ..ServiceSettings::new(crashed.path().join("store"))
    };
    let service = Service::builder(settings).kind("gated", Kind::new(gated)).start();
    let service = service.await.unwrap();
    let core = &service.core;
    // Two hours of other work.
    clock.set(1_000_000_000_000 + 2 * 3_600_000);
    core.state.lock().follow_clock(&core.clock);
    core.control.steer_key("new", KeyCommand::Pause, &act).await.unwrap();
    service.submit(r#"{"kind":"gated","key":"new","payload":2}"#).await.unwrap();
    let held = BlockedWriter::new(core);
    held.wait();
    let resume = |key| {
        core.control.set_key_paused(
            &mut core.state.lock(),
            &Key::new(key),
            false,
            core.clock.now(),
        );
        core.signals.wake.notify();
    };
    resume("k");
    while core.state.lock().scheduler.slots().busy == 0 && begun.is_empty() {
        tokio::task::yield_now().await;
    }
    // An attempt of a new job does not wait for its mark. When it has begun, so would one before it.
    resume("new");
    assert_eq!(begun.recv().await, Some((b"2".to_vec(), false)));
    may_be_written.store(true, SeqCst);
    drop(held);
    let first = begun.recv().await;
    assert_eq!(first, Some((b"1".to_vec(), true)), "it began before its mark was on the disk");
    assert_eq!(service.wait(id).await.unwrap().state, JobState::Succeeded);
    service.stop(std::time::Duration::ZERO).await;
}
