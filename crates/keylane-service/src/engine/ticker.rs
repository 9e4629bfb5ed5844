//! What is done from time to time: followers are told what has changed, and what was refused for want of room
//! is tried again.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{MissedTickBehavior, interval};

use super::Core;
use crate::JobNumber;
use crate::wire::{Event, EventKind};

/// How often followers are told of jobs that have changed: often enough for eyes.
const CHANGES: Duration = Duration::from_millis(250);

/// How many changed jobs followers are told of at a time; of the others at the next.
const MOST_TOLD: usize = 500;

/// For how long attempts begin only when that is written, after a crash: longer than what has caused it
/// once takes to do it again.
const CAREFUL: Duration = Duration::from_secs(60);

impl Core {
    /// Ticks until the service stops.
    pub(super) async fn tick(self: Arc<Self>) {
        let mut changes = interval(CHANGES);
        let mut careful = Some(Box::pin(tokio::time::sleep(CAREFUL)));
        changes.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = self.stopped.cancelled() => return,
                _ = changes.tick() => {
                    self.tell_changes();
                    self.retry_refused();
                }
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
            let Some(view) = super::ask::live_view(&self.kinds, &books, job, now) else { continue };
            self.events.publish(|id| Event {
                job: Some(Box::new(view)),
                ..super::events::event(id, EventKind::JobChanged, now)
            });
        }
    }
}
