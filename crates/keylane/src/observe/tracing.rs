//! Events and spans for the `tracing` crate, with the feature of that name; without it, no code.
//!
//! | event | form |
//! |---|---|
//! | a task runs | span `task` at level TRACE, with its pool, worker and position in the order |
//! | a task panics, fails, or is cancelled | event inside that span, at level WARN, DEBUG and DEBUG |
//! | a watched task stalls | WARN |
//! | no thread for the substitute of a waiting worker | WARN |
//! | the pool is poisoned | ERROR |
//! | the pool is closed, stopped or resized | INFO |
//!
//! The name of a pool is that of its threads, without their number.

/// Emitter of the events.
pub(crate) struct TraceEvents;

#[cfg(feature = "tracing")]
mod events {
    use std::time::Duration;

    use tracing::{debug, error, info, trace_span, warn};

    use super::super::TraceOutcome;
    use super::TraceEvents;

    /// Span of a running task, which ends with this value.
    pub(crate) struct TaskSpan {
        _entered: tracing::span::EnteredSpan,
    }

    impl TraceEvents {
        #[inline]
        pub(crate) fn task(pool: &str, worker: usize, place: u32) -> TaskSpan {
            TaskSpan {
                _entered: trace_span!(target: "keylane", "task", pool, worker, place).entered(),
            }
        }

        pub(crate) fn abnormal_end(pool: &str, how: TraceOutcome) {
            let outcome = how.name();
            match how {
                TraceOutcome::Panicked => {
                    warn!(target: "keylane", pool, outcome, "a task has panicked")
                }
                _ => debug!(target: "keylane", pool, outcome, "a task has failed or was cancelled"),
            }
        }

        pub(crate) fn stalled(pool: &str, thread: Option<&str>, at_least: Duration) {
            let seconds = at_least.as_secs_f64();
            warn!(target: "keylane", pool, seconds, thread, "a task has held its keys for a long time");
        }

        pub(crate) fn closed(pool: &str) {
            info!(target: "keylane", pool, "closed");
        }

        pub(crate) fn poisoned(pool: &str) {
            error!(target: "keylane", pool, "poisoned: a panic has left the pool inconsistent");
        }

        pub(crate) fn thread_refused(pool: &str) {
            warn!(
                target: "keylane",
                pool,
                "no thread for the substitute of a worker that waits inside a task"
            );
        }

        pub(crate) fn stopped(pool: &str, unrun: usize) {
            info!(target: "keylane", pool, unrun, "stopped");
        }

        pub(crate) fn workers(pool: &str, workers: usize) {
            info!(target: "keylane", pool, workers, "the number of workers was changed");
        }

        pub(crate) fn capacity(pool: &str, capacity: usize) {
            info!(target: "keylane", pool, capacity, "the capacity was changed");
        }
    }
}

#[cfg(not(feature = "tracing"))]
mod events {
    use std::time::Duration;

    use super::super::TraceOutcome;
    use super::TraceEvents;

    pub(crate) struct TaskSpan;

    impl TraceEvents {
        #[inline(always)]
        pub(crate) fn task(_: &str, _: usize, _: u32) -> TaskSpan {
            TaskSpan
        }

        #[inline(always)]
        pub(crate) fn abnormal_end(_: &str, _: TraceOutcome) {}

        #[inline(always)]
        pub(crate) fn stalled(_: &str, _: Option<&str>, _: Duration) {}

        #[inline(always)]
        pub(crate) fn closed(_: &str) {}

        #[inline(always)]
        pub(crate) fn poisoned(_: &str) {}

        #[inline(always)]
        pub(crate) fn thread_refused(_: &str) {}

        #[inline(always)]
        pub(crate) fn stopped(_: &str, _: usize) {}

        #[inline(always)]
        pub(crate) fn workers(_: &str, _: usize) {}

        #[inline(always)]
        pub(crate) fn capacity(_: &str, _: usize) {}
    }
}
