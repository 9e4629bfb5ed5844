//! Periodic work: publishes changed jobs, and retries a batch that was refused because the disk was
//! full.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;
use tokio_util::sync::CancellationToken;

use super::clock::Clock;
use super::engine_state::SharedState;
use super::events::EventHub;
use super::persistence::Persistence;
use super::timer::sleep;
use crate::kind_registry::KindRegistry;
use crate::wire::{Event, EventKind};

/// Interval between events about changed jobs: short enough for a display.
const CHANGES: Duration = Duration::from_millis(250);

/// Maximum number of changed jobs per tick; further jobs follow at the next.
const MAX_CHANGES: usize = 500;

/// Periodic work of the engine.
#[derive(Debug)]
pub(super) struct Ticker {
    pub(super) state: Arc<SharedState>,
    pub(super) clock: Arc<Clock>,
    pub(super) kinds: Arc<KindRegistry>,
    pub(super) events: Arc<EventHub>,
    pub(super) persistence: Arc<Persistence>,
    /// Cancelled when the service has stopped.
    pub(super) stopped: CancellationToken,
}

impl Ticker {
    /// Ticks until the service stops.
    pub(super) async fn run(self) {
        while !self.stopped.is_cancelled() {
            self.publish_changes();
            self.persistence.retry_refused();
            tokio::select! {
                biased;
                () = self.stopped.cancelled() => {}
                () = sleep(CHANGES) => {}
            }
        }
    }

    fn publish_changes(&self) {
        let mut engine = self.state.lock();
        let now = self.clock.now();
        let mut changed: Vec<_> = engine.changed.iter().take(MAX_CHANGES).copied().collect();
        changed.sort_unstable();
        for job in changed {
            // Finding the reasons of a job takes a while, so other threads may get the lock between
            // two jobs.
            MutexGuard::bump(&mut engine);
            engine.changed.remove(&job);
            // Without followers the brief view is enough for the ring: a follower that returns
            // reads the job again.
            let view = match self.events.is_followed(job) {
                true => super::query::live_view(&self.kinds, &engine, job, &self.clock),
                false => super::query::brief_view(&engine, job),
            };
            let Some(view) = view else { continue };
            self.events.publish(|id| Event {
                job: Some(Box::new(view)),
                ..super::events::event(id, EventKind::JobChanged, now)
            });
        }
    }
}
