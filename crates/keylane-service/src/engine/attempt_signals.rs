//! Signals between the engine and the handler or worker of a running attempt: its cancellation and its progress.

use tokio_util::sync::CancellationToken;

use crate::handle::{AttemptProgress, ProgressSteps};

/// Signals of a running attempt.
#[derive(Debug)]
pub(super) enum AttemptSignals {
    /// A handler of this process has clones of both.
    Local { cancel: CancellationToken, progress: AttemptProgress },
    /// A worker with a lease shares nothing with the engine, so that no lease needs an allocation for it. It is not told of a
    /// cancellation: the engine ends the lease.
    Leased { progress: ProgressSteps },
}

impl AttemptSignals {
    pub(super) fn local() -> Self {
        let (cancel, progress) = (CancellationToken::new(), AttemptProgress::default());
        AttemptSignals::Local { cancel, progress }
    }

    pub(super) fn leased() -> Self {
        AttemptSignals::Leased { progress: ProgressSteps::default() }
    }

    /// Asks the handler to stop.
    pub(super) fn cancel(&self) {
        if let AttemptSignals::Local { cancel, .. } = self {
            cancel.cancel();
        }
    }

    /// Records the progress that a worker reports.
    pub(super) fn report(&mut self, fraction: f64) {
        match self {
            AttemptSignals::Local { progress, .. } => progress.report(fraction),
            AttemptSignals::Leased { progress } => progress.set(fraction),
        }
    }

    /// Returns the last reported progress.
    pub(super) fn fraction(&self) -> Option<f64> {
        match self {
            AttemptSignals::Local { progress, .. } => progress.fraction(),
            AttemptSignals::Leased { progress } => progress.fraction(),
        }
    }
}
