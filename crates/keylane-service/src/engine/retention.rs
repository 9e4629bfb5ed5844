//! What is too old goes: jobs that are over, idempotency keys, and entries of the audit log.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use futures_util::future::join_all;

use super::Core;
use super::dispatch::millis;
use crate::JobNumber;
use crate::store::{Changes, JobFilter, ReadError, WriteError};

/// How long nothing is looked for at least, when all was looked at.
const REST: Duration = Duration::from_secs(30);

/// How much longer the rest is than the look: all jobs are looked at, and there may be millions.
const REST_SHARE: u32 = 20;

/// How many milliseconds a clock is ahead of the newest job that may be wrong.
const FAR_AHEAD: u64 = 24 * 3_600_000;

/// How many jobs are removed at a time.
const AT_ONCE: usize = 500;

/// Why not all that is too old was removed.
#[derive(Debug, thiserror::Error)]
enum Kept {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

impl Core {
    /// Removes what is too old, from the start until the service stops.
    pub(super) async fn retain(self: Arc<Self>) {
        self.doubt_clock().await;
        loop {
            let began = Instant::now();
            if let Err(error) = self.remove_old().await {
                tracing::warn!(%error, "what is too old was not removed");
            }
            let rest = REST.max(began.elapsed() * REST_SHARE);
            tokio::select! {
                () = self.stopped.cancelled() => return,
                () = tokio::time::sleep(rest) => {}
            }
        }
    }

    /// A clock that is far ahead of the newest job may be in a wrong future, as of a machine that has started without
    /// knowing the time. So what is too old by it stays until it has shown the same for an hour.
    async fn doubt_clock(self: &Arc<Self>) {
        let newest = self.read(|core| core.store.jobs(&JobFilter::default(), None, 1)).await;
        let newest = newest.ok().and_then(|page| page.jobs.first().map(|job| job.created_ms));
        if newest.is_some_and(|newest| newest.saturating_add(FAR_AHEAD) < self.clock.now().0) {
            self.clock.doubt();
        }
    }

    async fn remove_old(self: &Arc<Self>) -> Result<(), Kept> {
        if let Some(left) = self.clock.doubted_for() {
            tracing::debug!(?left, "the clock was set forward; nothing is removed for its age");
            return Ok(());
        }
        let now = self.clock.now().0;
        // A server that nobody sends to because it found no room would have nothing else to write.
        let mut is_wanted = self.found_no_room.load(Relaxed);
        loop {
            is_wanted |= self.read(move |core| core.store.has_expired(now)).await?;
            if !is_wanted || self.stopped.is_cancelled() {
                break;
            }
            let mut changes = Changes::new();
            changes.forget_idempotency(now);
            self.store.submit(changes).await?;
            self.found_room();
            is_wanted = false;
        }
        let kept = self.kept_audit();
        while !self.stopped.is_cancelled()
            && self.read(move |core| core.store.has_old_audit(kept)).await?
        {
            let mut changes = Changes::new();
            changes.forget_audit(kept);
            self.store.submit(changes).await?;
            self.found_room();
        }
        let Some(keep) = self.settings.keep else { return Ok(()) };
        let before = now.saturating_sub(millis(keep));
        let mut after = None;
        while !self.stopped.is_cancelled() {
            let look = move |core: &Core| core.store.ended_before(before, after, AT_ONCE);
            let (old, next) = self.read(look).await?;
            // Each by itself, for somebody may have removed one of them, or taken it up again.
            let removed = old.iter().map(|job| self.store.submit(removal(job.number)));
            for removed in join_all(removed).await {
                match removed {
                    Ok(_) => self.found_room(),
                    Err(WriteError::NoSuchJob { .. } | WriteError::NotEnded { .. }) => {}
                    Err(error) => return Err(error.into()),
                }
            }
            after = next;
            if after.is_none() {
                break;
            }
        }
        Ok(())
    }

    /// Reads where it may block.
    async fn read<T: Send + 'static>(
        self: &Arc<Self>,
        look: impl FnOnce(&Core) -> Result<T, ReadError> + Send + 'static,
    ) -> Result<T, ReadError> {
        let core = Arc::clone(self);
        let read = tokio::task::spawn_blocking(move || look(&core)).await;
        read.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }
}

fn removal(job: JobNumber) -> Changes {
    let mut changes = Changes::new();
    changes.purge(job);
    changes
}
