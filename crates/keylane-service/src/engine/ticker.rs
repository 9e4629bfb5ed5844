//! What is done from time to time: followers are told what has changed, and what was refused for want of room
//! is tried again.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::MutexGuard;
use tokio::time::{MissedTickBehavior, interval};

use super::Core;
use crate::JobNumber;
use crate::wire::{Event, EventKind};

/// How often followers are told of jobs that have changed: often enough for eyes.
const CHANGES: Duration = Duration::from_millis(250);

/// How many changed jobs followers are told of at a time; of the others at the next.
const MOST_TOLD: usize = 500;

impl Core {
    /// Ticks until the service stops.
    pub(super) async fn tick(self: Arc<Self>) {
        let mut changes = interval(CHANGES);
        changes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.stopped.cancelled() => return,
                _ = changes.tick() => {
                    self.tell_changes();
                    self.retry_refused();
                }
            }
        }
    }

    fn tell_changes(&self) {
        let mut books = self.books();
        let now = self.clock.now();
        let changed: Vec<JobNumber> = books.changed.iter().take(MOST_TOLD).copied().collect();
        for job in changed {
            // To find why something waits takes a while, so others get at the books between two jobs.
            MutexGuard::bump(&mut books);
            books.changed.remove(&job);
            // What nothing follows is kept for those who come back, and they ask for it anew.
            let view = match self.events.is_followed(job) {
                true => super::ask::live_view(&self.kinds, &books, job, &self.clock),
                false => super::ask::brief_view(&books, job),
            };
            let Some(view) = view else { continue };
            self.events.publish(|id| Event {
                job: Some(Box::new(view)),
                ..super::events::event(id, EventKind::JobChanged, now)
            });
        }
    }
}
