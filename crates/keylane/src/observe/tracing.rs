//! What is told to `tracing`, with the feature of that name; without it, nothing is.
//!
//! | what | is |
//! |---|---|
//! | a task that runs | a span `task` at the level TRACE, with its pool, worker and place in the order |
//! | a panic, an error, a cancelled task | an event inside that, WARN, DEBUG and DEBUG |
//! | a stalled task, if one is watched for | WARN |
//! | no thread for the place of a worker that waits inside a task | WARN |
//! | the pool is poisoned | ERROR |
//! | the pool is closed, stopped, or has another size | INFO |
//!
//! A pool is called what its threads are, before their number.

/// Tells of what happens.
pub(crate) struct TraceEvents;

#[cfg(feature = "tracing")]
mod told {
    use std::time::Duration;

    use tracing::{debug, error, info, trace_span, warn};

    use super::super::TraceOutcome;
    use super::TraceEvents;

    /// A task runs for as long as this lives.
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

        pub(crate) fn mishap(pool: &str, how: TraceOutcome) {
            let outcome = how.name();
            match how {
                TraceOutcome::Panicked => {
                    warn!(target: "keylane", pool, outcome, "a task has panicked")
                }
                _ => debug!(target: "keylane", pool, outcome, "a task has not ended well"),
            }
        }

        pub(crate) fn stalled(pool: &str, thread: Option<&str>, at_least: Duration) {
            let seconds = at_least.as_secs_f64();
            warn!(target: "keylane", pool, seconds, thread, "a task holds its keys for long");
        }

        pub(crate) fn closed(pool: &str) {
            info!(target: "keylane", pool, "closed");
        }

        pub(crate) fn poisoned(pool: &str) {
            error!(target: "keylane", pool, "poisoned: a panic has left the pool half changed");
        }

        pub(crate) fn thread_refused(pool: &str) {
            warn!(
                target: "keylane",
                pool,
                "no thread for the place of a worker that waits inside a task"
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
mod told {
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
        pub(crate) fn mishap(_: &str, _: TraceOutcome) {}

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
