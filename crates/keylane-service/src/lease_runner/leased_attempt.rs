//! One attempt under a lease: runs the handler until it ends, the server cancels it, or the time of the lease is over.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use keylane_process::Registry;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::leased_kind::LeasedKind;
use crate::handle::{
    Attempt, AttemptFailure, AttemptOutput, AttemptProgress, AttemptResult, Step, panicked,
};
use crate::wire::{Lease, LeaseEnd};
use crate::{JobId, Key, TraceContext};

/// Maximum size of a result, in bytes: with it a report is within the server's limit.
const MAX_RESULT_BYTES: usize = 15 * 1024 * 1024;

/// Maximum time before the end of a lease at which its attempt is cancelled, so that its processes can end in order.
const MARGIN: Duration = Duration::from_secs(1);

/// Time that a cancelled handler has to end before it is dropped.
const GRACE: Duration = Duration::from_secs(10);

/// What the group keeps of a running attempt, or of one that is about to begin.
pub(super) struct RunningLease {
    /// Cancelled when the attempt is to end.
    pub(super) cancel: CancellationToken,
    pub(super) progress: AttemptProgress,
    /// Moment at which the lease ends.
    pub(super) ends: watch::Sender<Instant>,
    /// Moment of the next heartbeat.
    pub(super) next_beat: Instant,
    /// Moment from which on the attempt begins only after a heartbeat.
    begins_until: Instant,
    /// The attempt, until it begins.
    pub(super) waiting: Option<LeasedAttempt>,
}

/// An attempt that is about to begin.
pub(super) struct LeasedAttempt {
    id: String,
    attempt: Attempt,
    kind: LeasedKind,
    /// Maximum duration, if only the handler has one.
    patience: Option<Duration>,
    ends: watch::Receiver<Instant>,
}

impl RunningLease {
    /// Prepares the attempt of a lease that was asked for at `asked`.
    ///
    /// # Errors
    /// If the lease cannot be used, with the reason.
    pub(super) fn new(
        lease: Lease,
        kind: LeasedKind,
        asked: Instant,
        children: Registry,
    ) -> Result<RunningLease, String> {
        let job = JobId::parse(&lease.job).ok_or_else(|| format!("{} is no job", lease.job))?;
        if lease.expires_in_ms == 0 {
            return Err(
                "it has no time left, or its server has an earlier version than 0.2.0".into()
            );
        }
        let (cancel, progress) = (CancellationToken::new(), AttemptProgress::default());
        let (sender, ends) = watch::channel(asked);
        let mut running = RunningLease {
            cancel: cancel.clone(),
            progress: progress.clone(),
            ends: sender,
            next_beat: asked,
            begins_until: asked,
            waiting: None,
        };
        let left = Duration::from_millis(lease.expires_in_ms);
        running.extend(asked, left);
        // Later it could end before the first heartbeat is answered.
        running.begins_until = asked + left / 2;
        let keeps_log = kind.handler.keeps_log();
        let keys = |texts: Vec<String>| texts.iter().map(Key::new).collect();
        let state = lease.tracestate.unwrap_or_default();
        // The time of a lease is within the timeout of the job.
        let patience = kind.handler.patience().filter(|_| lease.timeout_ms.is_none());
        let attempt = Attempt {
            job,
            kind: lease.kind.into(),
            step: Step::Subtask(lease.number),
            keys: keys(lease.keys),
            shared_keys: keys(lease.shared_keys),
            number: lease.attempt,
            fence: lease.fence,
            payload: Bytes::copy_from_slice(lease.payload.get().as_bytes()),
            trace: lease.traceparent.and_then(|parent| TraceContext::parse(&parent, &state)),
            log: if keeps_log {
                AttemptOutput::keeping(kind.log_bytes)
            } else {
                AttemptOutput::default()
            },
            progress,
            cancelled: cancel,
            children,
        };
        running.waiting = Some(LeasedAttempt { id: lease.id, attempt, kind, patience, ends });
        Ok(running)
    }

    /// Extends the lease, of which the server said at `asked` or later that `left` remains.
    pub(super) fn extend(&mut self, asked: Instant, left: Duration) {
        self.ends.send_replace(asked + left);
        // Two heartbeats can be lost.
        self.next_beat = asked + left / 3;
        self.begins_until = asked + left;
    }

    /// Returns the attempt if it is to begin now: it has not begun, and the lease is held for sure.
    pub(super) fn take_attempt(&mut self) -> Option<LeasedAttempt> {
        self.waiting.take_if(|_| Instant::now() < self.begins_until)
    }
}

impl LeasedAttempt {
    /// Runs the handler. Returns the end to report.
    pub(super) async fn run(self) -> LeaseEnd {
        let LeasedAttempt { id, attempt, kind, patience, mut ends } = self;
        let (log, cancelled) = (attempt.log.clone(), attempt.cancelled.clone());
        let handler = Arc::clone(&kind.handler);
        // A user's function may panic before it returns a future.
        let work = AssertUnwindSafe(async move { handler.handle(attempt).await }).catch_unwind();
        tokio::pin!(work);
        let begun = Instant::now();
        let answer = loop {
            let end = *ends.borrow_and_update();
            let margin = MARGIN.min(end.saturating_duration_since(begun) / 10);
            let late = patience.map(|time| begun + time);
            let cancel_at = late.unwrap_or(end - margin).min(end - margin);
            tokio::select! {
                biased;
                answer = &mut work => break unwrap_panic(answer),
                () = cancelled.cancelled() => {}
                // The sender lives as long as the attempt is in its group.
                Ok(()) = ends.changed() => continue,
                () = sleep_until(cancel_at) => cancelled.cancel(),
            }
            let why = match late {
                Some(late) if late <= Instant::now() => {
                    format!("it took longer than {:?}", patience.unwrap_or_default())
                }
                _ => "attempt cancelled, or its lease was not extended".to_owned(),
            };
            // A handler that goes on would run beside the next attempt.
            let dropped_at = end.min(Instant::now() + GRACE);
            break match tokio::time::timeout_at(dropped_at, &mut work).await {
                Ok(Ok(Ok(result))) => Ok(result),
                _ => Err(AttemptFailure::passing(why)),
            };
        };
        end_of(id, answer, &log)
    }
}

fn unwrap_panic(answer: Result<AttemptResult, Box<dyn std::any::Any + Send>>) -> AttemptResult {
    answer.unwrap_or_else(|panic| Err(AttemptFailure::passing(panicked(&*panic))))
}

/// Returns the report of an end.
fn end_of(id: String, answer: AttemptResult, log: &AttemptOutput) -> LeaseEnd {
    let answer = match answer {
        Ok(Some(result)) if result.get().len() > MAX_RESULT_BYTES => {
            let size = result.get().len();
            let why = format!("its result has {size} bytes; the maximum is {MAX_RESULT_BYTES}");
            Err(AttemptFailure::lasting(why))
        }
        answer => answer,
    };
    let said = log.take().map(|tail| String::from_utf8_lossy(&tail.text).into_owned());
    let end = LeaseEnd { id, log: said.filter(|text| !text.is_empty()), ..LeaseEnd::default() };
    match answer {
        Ok(result) => LeaseEnd { result, ..end },
        Err(AttemptFailure { error, retry, after }) => LeaseEnd {
            error: Some(error),
            retry: Some(retry),
            after_ms: after.map(|after| u64::try_from(after.as_millis()).unwrap_or(u64::MAX)),
            ..end
        },
    }
}

#[cfg(test)]
mod tests {
    use serde_json::value::RawValue;

    use super::*;
    use crate::handle::{FunctionHandler, Handler};
    use crate::wire::Timestamp;

    /// Returns an attempt under a lease of this duration, which begins now.
    fn begun(handler: impl Handler, lasts: Duration) -> (RunningLease, LeasedAttempt) {
        let kind = LeasedKind { handler: Arc::new(handler), log_bytes: 100 };
        let lease = RunningLease::new(lease(lasts), kind, Instant::now(), Registry::default());
        let mut lease = lease.unwrap();
        let attempt = lease.take_attempt().unwrap();
        (lease, attempt)
    }

    fn lease(lasts: Duration) -> Lease {
        Lease {
            id: "lease_1_2_job_01f8xv0v3w000".into(),
            job: JobId::new(crate::JobNumber(1), 0, 0).to_string(),
            kind: "a".into(),
            number: 2,
            keys: vec!["k".into()],
            shared_keys: Vec::new(),
            attempt: 1,
            fence: 1,
            payload: RawValue::from_string("7".into()).unwrap(),
            traceparent: None,
            tracestate: None,
            expires_at: Timestamp(0),
            expires_in_ms: u64::try_from(lasts.as_millis()).unwrap(),
            timeout_ms: None,
        }
    }

    /// Handler that ends when it is cancelled.
    fn until_cancelled() -> impl Handler {
        FunctionHandler::new(|attempt: Attempt| async move {
            attempt.cancelled.cancelled().await;
            Err(AttemptFailure::passing("given up"))
        })
    }

    const LASTS: Duration = Duration::from_secs(5);

    /// Simulated time passes in milliseconds.
    #[track_caller]
    fn assert_took(begin: Instant, expected: Duration) {
        let took = begin.elapsed();
        assert!((expected..expected + Duration::from_millis(3)).contains(&took), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_handler_is_cancelled_before_its_lease_ends() {
        let (running, attempt) = begun(until_cancelled(), LASTS);
        let begin = Instant::now();
        let end = attempt.run().await;
        assert_took(begin, LASTS * 9 / 10);
        assert_eq!((end.retry, running.cancel.is_cancelled()), (Some(true), true));
    }

    /// Otherwise it would run beside the next attempt.
    #[tokio::test(start_paused = true)]
    async fn a_handler_that_goes_on_is_dropped_when_its_lease_ends() {
        let endless = FunctionHandler::new(|_| std::future::pending());
        let (running, attempt) = begun(endless, LASTS);
        let begin = Instant::now();
        let end = attempt.run().await;
        assert_took(begin, LASTS);
        assert!(end.error.is_some_and(|why| why.contains("lease")));
        drop(running);
    }

    #[tokio::test(start_paused = true)]
    async fn a_heartbeat_lets_the_handler_go_on() {
        let (mut running, attempt) = begun(until_cancelled(), LASTS);
        let begin = Instant::now();
        let ended = tokio::spawn(attempt.run());
        assert_eq!(running.next_beat, begin + LASTS / 3);
        sleep_until(running.next_beat).await;
        running.extend(Instant::now(), LASTS);
        ended.await.unwrap();
        let extended = LASTS / 3 + LASTS;
        assert_took(begin, extended - extended / 10);
    }

    #[tokio::test(start_paused = true)]
    async fn a_result_is_reported_unless_it_is_too_large() {
        for (length, fits) in [(1, true), (MAX_RESULT_BYTES, false)] {
            let answers = FunctionHandler::new(move |_| async move {
                let text = format!("\"{}\"", "a".repeat(length));
                Ok(RawValue::from_string(text).ok())
            });
            let (_running, attempt) = begun(answers, LASTS);
            let end = attempt.run().await;
            assert_eq!((end.result.is_some(), end.retry), (fits, (!fits).then_some(false)));
        }
    }

    /// The server has an earlier version, which does not say how long a lease lasts.
    #[tokio::test(start_paused = true)]
    async fn a_lease_without_a_duration_does_not_begin() {
        let lease = Lease { expires_in_ms: 0, ..lease(LASTS) };
        let kind = LeasedKind { handler: Arc::new(until_cancelled()), log_bytes: 100 };
        let refused = RunningLease::new(lease, kind, Instant::now(), Registry::default());
        assert!(refused.is_err_and(|why| why.contains("earlier version")));
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_a_failure() {
        let panics = FunctionHandler::new(|_| async { panic!("not well") });
        let (_running, attempt) = begun(panics, LASTS);
        assert!(attempt.run().await.error.is_some_and(|why| why.contains("not well")));
    }
}
