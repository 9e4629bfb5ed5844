//! Writes changes to the disk in batches, and publishes them when they are there.

use std::sync::Arc;

use parking_lot::MutexGuard;

use tokio::sync::oneshot;

use super::Core;
use super::books::{Batch, Books, Effect, Recorded};
use super::ends::Block;
use super::isolate::is_logical;
use crate::JobNumber;
use crate::refused::Refused;
use crate::schedule::Step;
use crate::store::{Committed, WriteError};
use crate::wire::{EventKind, JobState, Timestamp};

/// Health of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum StoreHealth {
    Well,
    /// Nothing is written until the disk has room.
    Full,
    /// Nothing is written any more.
    Failed(String),
}

impl StoreHealth {
    /// Returns the error for requests while nothing is written.
    fn refusal(&self) -> Option<Refused> {
        match self {
            StoreHealth::Well => None,
            StoreHealth::Full => Some(Refused::StoreFull),
            StoreHealth::Failed(why) => Some(Refused::StoreFailed(why.clone())),
        }
    }
}

/// Converts a refusal for requests that wait for a change that was already applied in memory.
fn of_what_is_done(refusal: Refused) -> Refused {
    match refusal {
        Refused::StoreFull => Refused::NotYetWritten,
        other => other,
    }
}

/// Reports the refusal to all requests that wait for these effects.
fn tell_refused(effects: &mut Vec<Effect>, refusal: &Refused) {
    for effect in effects.extract_if(.., |effect| matches!(effect, Effect::Tell(_))) {
        if let Effect::Tell(tell) = effect {
            // The client may have disconnected.
            let _ = tell.send(Err(refusal.clone()));
        }
    }
}

impl Core {
    /// Submits the next batch to the writer, if there is one, the writer has none, and none was
    /// refused.
    pub(super) fn write_next(self: &Arc<Self>, books: &mut Books) {
        if books.is_writing || books.refused.is_some() || books.unwritten.is_empty() {
            return;
        }
        let batch = std::mem::take(&mut books.unwritten);
        self.write(books, batch);
    }

    fn write(self: &Arc<Self>, books: &mut Books, batch: Batch) {
        books.is_writing = true;
        let Batch { changes, effects, .. } = batch;
        let copy = changes.clone();
        let core = Arc::clone(self);
        self.store.submit_with(changes, move |written| core.written(written, copy, effects));
    }

    /// Handles the result of a batch. Called on the writer's thread. New attempts begin when the
    /// commit has ended.
    pub(super) fn written(
        self: &Arc<Self>,
        written: Result<Committed, WriteError>,
        changes: crate::store::Changes,
        effects: Vec<Effect>,
    ) {
        if let Err(error) = &written
            && is_logical(error)
        {
            tracing::error!(%error, "a batch was refused for one of its changes");
            return self.write_one_by_one(changes.singles(), effects);
        }
        let mut books = self.books();
        let now = self.clock.now();
        books.is_writing = false;
        match written {
            Ok(_) => {
                if self.set_health(StoreHealth::Well) {
                    Core::renew_leases(&mut books, now);
                }
                self.found_room();
                for effect in effects {
                    self.show(&mut books, effect, now);
                }
                self.write_next(&mut books);
            }
            Err(error) => {
                let batch = Batch { changes, effects, ..Batch::default() };
                self.refuse(&mut books, &error, batch);
            }
        }
    }

    /// Keeps a batch for which the disk has no room, or that a failed store did not write. It stays
    /// at the front. The ticker retries it, because an immediate retry would fail again.
    pub(super) fn refuse(&self, books: &mut Books, error: &WriteError, mut batch: Batch) {
        books.is_writing = false;
        let failed = !matches!(error, WriteError::Full | WriteError::Busy);
        self.set_health(match failed {
            true => StoreHealth::Failed(error.to_string()),
            false => StoreHealth::Full,
        });
        let refusal = self.health().refusal().expect("it was set just now");
        let refusal = of_what_is_done(refusal);
        tell_refused(&mut batch.effects, &refusal);
        tell_refused(&mut books.unwritten.effects, &refusal);
        books.refused = Some(batch);
    }

    /// Locks the engine state for a change that is answered when it is on the disk.
    ///
    /// Returns an error if nothing is written now: then nothing may be changed.
    pub(super) fn books_to_change(&self) -> Result<MutexGuard<'_, Books>, Refused> {
        let books = self.books();
        match self.health().refusal() {
            Some(refusal) => Err(refusal),
            None => Ok(books),
        }
    }

    /// Waits until all changes so far are on the disk.
    ///
    /// Returns an error if the store has failed or has become full: then they are written later, or
    /// never.
    pub(super) async fn all_written(self: &Arc<Self>) -> Result<(), Refused> {
        let (tell, told) = oneshot::channel();
        {
            let mut books = self.books();
            // A request after a refusal would wait for the refused batch.
            if let Some(refused) = self.health().refusal() {
                return Err(of_what_is_done(refused));
            }
            books.unwritten.effects.push(Effect::Tell(tell));
            self.write_next(&mut books);
        }
        told.await.unwrap_or_else(|_| Err(Refused::StoreFailed("it has ended".into())))
    }

    /// Retries the refused batch.
    pub(super) fn retry_refused(self: &Arc<Self>) {
        let mut books = self.books();
        if *self.health() == StoreHealth::Full
            && let Some(refused) = books.refused.take()
        {
            self.write(&mut books, refused);
        }
    }

    fn show(self: &Arc<Self>, books: &mut Books, effect: Effect, now: Timestamp) {
        match effect {
            Effect::Ended { job, step, end, error, result } => {
                self.show_end(books, job, step, end, error, result, now);
            }
            Effect::Over { job, state, ended } => self.show_over(books, job, state, ended),
            Effect::Entered { job } => self.begin(books, job, now),
            Effect::Marked { fence } => books.held_back.push_back(fence),
            Effect::Granted { fence } => self.hand(books, fence, now),
            Effect::Reserved { boot } => books.fences.note_reserved(boot),
            // The client may have disconnected.
            Effect::Tell(tell) => _ = tell.send(Ok(())),
        }
    }

    #[expect(clippy::too_many_arguments, reason = "they are the fields of one effect")]
    fn show_end(
        &self,
        books: &mut Books,
        job: JobNumber,
        step: Step,
        end: Recorded,
        error: Option<String>,
        result: Option<Box<serde_json::value::RawValue>>,
        now: Timestamp,
    ) {
        let totals = &mut books.totals;
        let Some(live) = books.live.get_mut(&job) else { return };
        if matches!(step, Step::Subtask(_)) {
            end.count(&mut live.recorded);
            match end {
                Recorded::Succeeded => totals.succeeded += 1,
                Recorded::Failed => totals.failed += 1,
                Recorded::Cancelled | Recorded::Skipped => totals.cancelled += 1,
            }
        }
        if step == Step::FanIn {
            live.result = result;
        }
        if end == Recorded::Failed {
            if live.error.is_none() {
                live.error.clone_from(&error);
            }
            live.touch(now);
            let view = super::ask::brief_view(books, job);
            self.events.publish(|event| crate::wire::Event {
                job: view.map(Box::new),
                number: match step {
                    Step::Subtask(number) => Some(number),
                    Step::Split | Step::FanIn => None,
                },
                error,
                ..super::events::event(event, EventKind::SubtaskFailed, now)
            });
            return;
        }
        live.touch(now);
        books.changed.insert(job);
    }

    fn show_over(&self, books: &mut Books, job: JobNumber, state: JobState, now: Timestamp) {
        let Some(mut live) = books.live.remove(&job) else { return };
        books.order.left(job);
        self.ends.note(Block::of(job), now.0);
        books.key_bytes -= live.key_bytes;
        books.changed.remove(&job);
        books.holds.forget(job);
        books.careful.remove(&job);
        live.recorded = live.final_counts();
        let totals = &mut books.totals;
        match state {
            JobState::Succeeded => totals.jobs_succeeded += 1,
            JobState::Cancelled => totals.jobs_cancelled += 1,
            _ => totals.jobs_failed += 1,
        }
        let view = super::ask::final_view(&live, state, now);
        self.events.publish(|id| crate::wire::Event {
            job: Some(Box::new(view)),
            ..super::events::event(id, EventKind::JobEnded, now)
        });
        live.touch(now);
    }
}
