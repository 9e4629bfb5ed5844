//! What can happen to a run; the supervisor decides what follows.

/// Told to the supervisor by the thread that noticed it.
#[derive(Debug)]
pub(crate) enum Event {
    /// The reader has given the last record to the pool, or cannot go on.
    InputEnded(anyhow::Result<()>),
    /// Nothing new should start.
    Stop(Cause),
    /// Every record that was accepted has ended.
    Drained,
}

/// Why a run stops before its input ends.
#[derive(Debug)]
pub(crate) enum Cause {
    Signal(i32),
    /// Nobody reads standard output any more.
    OutputClosed,
    /// Nothing would come of going on.
    Error(anyhow::Error),
}
