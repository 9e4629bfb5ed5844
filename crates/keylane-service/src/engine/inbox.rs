//! Acceptance of the jobs that applications have submitted by SQL.
//!
//! The rows of the inbox are read in the order in which they were submitted, and accepted in that order. All jobs of a read are accepted in one
//! transaction, which removes their rows: each job is accepted once, and of two jobs, of which the second was submitted after the
//! commit of the first, the first is accepted first. A read begins when the one before has been answered, so no row is read twice.
//!
//! A job that is wrong is refused for good, and its row is kept with the reason. One that cannot be accepted now, because a limit of waiting
//! work is reached or the database is away, waits, and so do all behind it.

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio_util::sync::CancellationToken;

use super::clock::Clock;
use super::engine_state::SharedState;
use super::executor::Executor;
use super::job_submission::JobSubmission;
use super::submission::Submission;
use super::timer::sleep;
use crate::request_error::RequestError;
use crate::store::{Changes, InboxRow, Store};
use crate::wire::SubmitJob;

/// Interval between two looks at an empty inbox. Each costs the database a query.
const LOOK: Duration = Duration::from_millis(300);

/// Time after which jobs that cannot be accepted now are tried again.
const RETRY: Duration = Duration::from_secs(1);

/// Maximum number of jobs that are accepted together.
const MAX_ROWS: u64 = 128;

/// Accepts the jobs of the inbox.
#[derive(Debug)]
pub(super) struct InboxReader {
    pub(super) store: Store,
    pub(super) submission: Arc<Submission>,
    pub(super) state: Arc<SharedState>,
    pub(super) clock: Arc<Clock>,
    pub(super) executor: Executor,
    /// Cancelled when the service has stopped.
    pub(super) stopped: CancellationToken,
}

/// Next step after a read.
enum Next {
    /// There may be more.
    Read,
    /// The inbox is empty.
    Look,
    /// Nothing can be accepted now.
    Retry,
}

impl InboxReader {
    /// Accepts jobs until the service stops.
    pub(super) async fn run(self) {
        if !self.store.has_inbox() {
            return;
        }
        let mut most = MAX_ROWS;
        while !self.stopped.is_cancelled() {
            let pause = match self.accept_some(&mut most).await {
                Next::Read => continue,
                Next::Look => LOOK,
                Next::Retry => RETRY,
            };
            tokio::select! {
                biased;
                () = self.stopped.cancelled() => {}
                () = sleep(pause) => {}
            }
        }
    }

    /// Accepts the first jobs, at most `most`. If they cannot be accepted together, the next call tries the first one alone: it may be the
    /// only one that fits, or the one that is wrong.
    async fn accept_some(&self, most: &mut u64) -> Next {
        let (store, count) = (self.store.clone(), *most);
        let Ok(Ok(rows)) = self.executor.blocking(move || store.inbox(count)).await else {
            // The database is away, which the writer and the heartbeats report.
            return Next::Retry;
        };
        if rows.is_empty() {
            *most = MAX_ROWS;
            return Next::Look;
        }
        let batch = self.prepare(&rows).await;
        if batch.is_empty() {
            return Next::Retry;
        }
        match self.write(batch).await {
            Ok(()) => {
                *most = (*most * 2).min(MAX_ROWS);
                Next::Read
            }
            Err(_) if *most > 1 => {
                *most = 1;
                Next::Read
            }
            Err(error) if is_passing(&error) => Next::Retry,
            Err(error) => self.refuse(&rows[0], &error).await,
        }
    }

    /// Checks jobs, up to the first that cannot be accepted now.
    async fn prepare(&self, rows: &[InboxRow]) -> InboxBatch {
        let mut batch = InboxBatch::default();
        for row in rows {
            match self.begin(row).await {
                Ok(intake) => {
                    batch.intakes.push(intake);
                    batch.changes.end_inbox(row.id, None);
                }
                Err(error) if is_passing(&error) => break,
                Err(error) => {
                    batch.refused += 1;
                    batch.changes.end_inbox(row.id, Some(self.refusal(row, &error)));
                }
            }
        }
        batch
    }

    async fn begin(&self, row: &InboxRow) -> Result<JobSubmission, RequestError> {
        let job: SubmitJob = serde_json::from_slice(&row.request)
            .map_err(|error| RequestError::Invalid(vec![(String::new(), error.to_string())]))?;
        let mut intake = self.submission.begin_intake(job, false)?;
        intake.hash(&row.request);
        intake.call(row.name.clone());
        intake.flush().await?;
        Ok(intake)
    }

    async fn write(&self, batch: InboxBatch) -> Result<(), RequestError> {
        let InboxBatch { intakes, changes, refused } = batch;
        if intakes.is_empty() {
            let written = self.store.submit(changes).await;
            written.map_err(|error| self.submission.status.write_refused(error))?;
        } else {
            let hash = Sha256::digest(b"").into();
            self.submission.accept_together(intakes, None, hash, changes).await?;
        }
        self.state.lock().totals.inbox_refused += refused;
        Ok(())
    }

    /// Refuses a job that was wrong only when it was accepted.
    async fn refuse(&self, row: &InboxRow, error: &RequestError) -> Next {
        let mut batch = InboxBatch { refused: 1, ..InboxBatch::default() };
        batch.changes.end_inbox(row.id, Some(self.refusal(row, error)));
        match self.write(batch).await {
            Ok(()) => Next::Read,
            Err(_) => Next::Retry,
        }
    }

    /// Returns the reason and the time, and logs them.
    fn refusal(&self, row: &InboxRow, error: &RequestError) -> (String, u64) {
        let why = match error {
            RequestError::Invalid(fields) => {
                let shown = fields.iter().map(|(at, why)| format!("{at}: {why}"));
                shown.collect::<Vec<_>>().join("; ").trim_start_matches(": ").to_owned()
            }
            other => other.to_string(),
        };
        tracing::error!(name = row.name, %why, "a job that was submitted by SQL is refused; the table keylane.inbox_refused has it");
        (why, self.clock.now().0)
    }
}

/// Jobs that are accepted together, and the ends of their rows and of refused ones.
#[derive(Default)]
struct InboxBatch {
    intakes: Vec<JobSubmission>,
    changes: Changes,
    refused: u64,
}

impl InboxBatch {
    fn is_empty(&self) -> bool {
        self.changes.is_empty()
    }
}

/// Returns whether the job may be accepted later, as it is.
fn is_passing(error: &RequestError) -> bool {
    matches!(
        error,
        RequestError::Backlog { .. }
            | RequestError::Busy(_)
            | RequestError::Draining
            | RequestError::StoreFull
            | RequestError::StoreUnavailable(_)
            | RequestError::NotYetWritten
            | RequestError::StoreFailed(_)
    )
}
