//! Events of a run, to which the coordinator reacts.

/// Event for the coordinator, sent by the thread that noticed it.
#[derive(Debug)]
pub(crate) enum CoordinatorEvent {
    /// The reader has given the last record to the pool, or cannot go on.
    InputEnded(anyhow::Result<()>),
    /// No new record should start.
    Stop(StopCause),
    /// Every record that was accepted has ended.
    Drained,
}

/// Why a run stops before its input ends.
#[derive(Debug)]
pub(crate) enum StopCause {
    Signal(i32),
    /// The reader of standard output has closed it.
    OutputClosed,
    /// A record has failed, with `--on-fail stop`.
    RecordFailed,
    /// The run cannot continue.
    Error(anyhow::Error),
}
