//! What is done from time to time: followers are told what has changed, what was refused for want of room is
//! tried again, and what is too old goes.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::Core;
use crate::JobNumber;
use crate::store::Changes;
use crate::wire::{Event, EventKind};

/// How often followers are told of jobs that have changed: often enough for eyes.
const CHANGES: Duration = Duration::from_millis(250);

/// How often old jobs are looked for.
const RETENTION: Duration = Duration::from_secs(30);

/// How many jobs are removed at a time.
const MOST_PURGED: usize = 500;

/// How many changed jobs followers are told of at a time; of the others at the next.
const MOST_TOLD: usize = 500;

/// For how long attempts begin only when that is written, after a crash: longer than what has caused it
/// once takes to do it again.
const CAREFUL: Duration = Duration::from_secs(60);

impl Core {
    /// Ticks until the service stops.
    pub(super) async fn tick(self: Arc<Self>) {
        let mut changes = interval(CHANGES);
        let mut retention = interval(RETENTION);
        let mut careful = Some(Box::pin(tokio::time::sleep(CAREFUL)));
        for interval in [&mut changes, &mut retention] {
            interval.set_missed_tick_behavior(MissedTickBehavior::Delay);
        }
        loop {
            tokio::select! {
                () = self.stopped.cancelled() => return,
                _ = changes.tick() => {
                    self.tell_changes();
                    self.retry_refused();
                }
                _ = retention.tick() => self.purge_old().await,
                () = async { careful.as_mut().expect("it is asked for only then").await }, if careful.is_some() => {
                    careful = None;
                    self.books().is_careful = false;
                }
            }
        }
    }

    fn tell_changes(&self) {
        let now = self.clock.now();
        let mut books = self.books();
        let changed: Vec<JobNumber> = books.changed.iter().take(MOST_TOLD).copied().collect();
        for job in changed {
            books.changed.remove(&job);
            let Some(view) = super::ask::live_view(&books, job, now) else { continue };
            self.events.publish(|id| Event {
                job: Some(Box::new(view)),
                ..super::events::event(id, EventKind::JobChanged, now)
            });
        }
    }

    /// Removes jobs that ended too long ago, and idempotency keys that have expired.
    async fn purge_old(self: &Arc<Self>) {
        let now = self.clock.now();
        let mut changes = Changes::new();
        changes.forget_idempotency(now.0);
        if let Some(keep) = self.settings.keep {
            let before = now.0.saturating_sub(super::dispatch::millis(keep));
            let core = Arc::clone(self);
            let old = tokio::task::spawn_blocking(move || core.ended_before(before)).await;
            for job in old.into_iter().flatten() {
                changes.purge(job);
            }
        }
        match self.store.submit(changes).await {
            // A server that nobody sends to because it is not ready would have nothing else to write.
            Ok(_) => self.found_room(),
            Err(error) => tracing::warn!(%error, "what is too old was not removed"),
        }
    }

    fn ended_before(&self, time_ms: u64) -> Vec<JobNumber> {
        let (mut all, mut after) = (Vec::new(), None);
        loop {
            match self.store.ended_before(time_ms, after, MOST_PURGED) {
                Ok((jobs, next)) => {
                    all.extend(jobs.iter().map(|job| job.number));
                    after = next;
                }
                Err(error) => {
                    tracing::error!(%error, "the store cannot be read");
                    return all;
                }
            }
            if after.is_none() || all.len() >= MOST_PURGED {
                return all;
            }
        }
    }
}
