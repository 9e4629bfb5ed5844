//! What people ask to be done, as whole requests: looked up, done, and answered when it is on the disk.

use std::collections::VecDeque;
use std::sync::Arc;

use super::audit::Act;
use super::begin::{ended_counts, new_job};
use super::books::{Books, Live, first_version, last_version};
use super::failures::Failures;
use super::plan::Plan;
use super::{Core, Refused};
use crate::head::Head;
use crate::schedule::{self, EndedCounts, KeySet, NewSubtask, Packed, Step};
use crate::store::{
    Changes, Counts, JobState as Stored, JobStatus, Outcome, OutcomeKind, StoredJob, WriteError,
};
use crate::wire::{CancelRequest, Job, JobPatch, KeyView, RetryOnly, Timestamp};
use crate::{JobId, JobNumber, Key, SubtaskNumber};

impl Core {
    /// Whether a job is live; if not, it is over or unknown.
    fn is_live(&self, id: JobId) -> Result<bool, Refused> {
        let is_live = self.books().live.get(&id.number()).is_some_and(|live| live.id == id);
        if !is_live {
            self.stored(id)?;
        }
        Ok(is_live)
    }

    /// The same of a job whose acceptance is on the disk, where others see it, and whose callback is yet to come: that
    /// is waited for, for until then it is in no books. Each further round takes another commit of the job in between:
    /// it was over, and has been taken up again.
    async fn is_in_books(&self, id: JobId) -> Result<bool, Refused> {
        // It never gets into the books, and perhaps cannot be read.
        if let Some(refused) = self.damaged(id) {
            return Err(refused);
        }
        while !self.is_live(id)? {
            if self.stored(id)?.status.state.is_final() {
                return Ok(false);
            }
            // Callbacks come in the order of the commits, so this answer comes after that one.
            let behind = self.store.submit(Changes::new()).await;
            behind.map_err(|error| self.write_refused(error))?;
        }
        Ok(true)
    }

    /// Cancels a job. One that is over is left as it is.
    pub(crate) async fn cancel_job(
        self: &Arc<Self>,
        id: JobId,
        request: &CancelRequest,
        act: &Act,
    ) -> Result<Job, Refused> {
        if self.is_in_books(id).await? {
            {
                let mut books = self.books_to_change()?;
                let now = self.clock.now();
                match self.cancel(&mut books, id.number(), request.mode, now) {
                    Ok(()) => self.log_in(&mut books, act),
                    // It has ended just now, which is as well.
                    Err(Refused::Conflict(_)) => {}
                    Err(refused) => return Err(refused),
                }
                self.write_next(&mut books);
            }
            self.bell.ring();
            self.all_written().await?;
        }
        self.job(id)
    }

    /// Pauses or resumes a job.
    pub(crate) async fn pause_job(
        self: &Arc<Self>,
        id: JobId,
        paused: bool,
        act: &Act,
    ) -> Result<Job, Refused> {
        self.is_in_books(id).await?;
        {
            let mut books = self.books_to_change()?;
            let now = self.clock.now();
            self.set_paused(&mut books, id.number(), paused, now)?;
            self.log_in(&mut books, act);
            self.write_next(&mut books);
        }
        self.bell.ring();
        self.all_written().await?;
        self.job(id)
    }

    /// Changes what a job is called, its labels, its weight.
    pub(crate) async fn patch_job(
        self: &Arc<Self>,
        id: JobId,
        patch: JobPatch,
        version: Option<u64>,
        act: &Act,
    ) -> Result<Job, Refused> {
        self.is_in_books(id).await?;
        {
            let mut books = self.books_to_change()?;
            let now = self.clock.now();
            self.patch(&mut books, id.number(), patch, version, now)?;
            self.log_in(&mut books, act);
            self.write_next(&mut books);
        }
        self.bell.ring();
        self.all_written().await?;
        self.job(id)
    }

    /// Removes a job that is over, and all about it.
    pub(crate) async fn purge_job(
        self: &Arc<Self>,
        id: JobId,
        act: &Arc<Act>,
    ) -> Result<(), Refused> {
        let is_damaged =
            self.damaged(id).is_some() || matches!(self.stored(id), Err(Refused::Damaged(_)));
        if is_damaged {
            return self.remove_damaged(id, act).await;
        }
        if self.is_in_books(id).await? {
            return Err(Refused::Conflict("the job is not over; cancel it first".into()));
        }
        let last = self.job(id)?;
        let mut changes = Changes::new();
        changes.purge(id.number());
        self.log(act, &mut changes);
        let (tell, told) = tokio::sync::oneshot::channel();
        let (core, act) = (Arc::clone(self), Arc::clone(act));
        self.store.submit_with(changes, move |written| {
            // Also if the client has gone away.
            let answer =
                written.map(|_| core.purged(last, &act)).map_err(|error| core.write_refused(error));
            let _ = tell.send(answer);
        });
        told.await.map_err(|_| Refused::StoreFailed("the writer has ended".into()))?
    }

    /// A job is no longer on the disk. Called on the writer's thread, so that followers learn of it in the order of the
    /// commits.
    fn purged(&self, last: Job, act: &Act) {
        self.was_done(act);
        self.found_room();
        let now = self.clock.now();
        self.events.publish(|event| crate::wire::Event {
            job: Some(Box::new(last)),
            ..super::events::event(event, crate::wire::EventKind::JobPurged, now)
        });
    }

    /// Does what failed of a job that is over once more: it goes on, behind all that was accepted meanwhile.
    pub(crate) async fn retry_job(
        self: &Arc<Self>,
        id: JobId,
        only: RetryOnly,
        act: &Act,
    ) -> Result<Job, Refused> {
        if self.is_live(id)? {
            let why = "the job is not over; what fails in it is tried again by itself, or when it is over";
            return Err(Refused::Conflict(why.into()));
        }
        // What is to be done again is looked for before it is written, so nobody else may do that meanwhile.
        let claim = self.claim_retry(id)?;
        let core = Arc::clone(self);
        let again = tokio::task::spawn_blocking(move || core.again(id, only)).await;
        let again = again.map_err(|panic| Refused::StoreFailed(panic.to_string()))??;
        let mut again = again;
        self.settle_cancelled(id, &mut again).await?;
        let now = self.clock.now();
        let mut changes = Changes::new();
        let status = JobStatus { started_ms: again.started, ..JobStatus::of(Stored::Waiting) };
        let first = again.parts.pop_front().unwrap_or_default();
        changes.reopen(id.number(), first.reopened, now.0, status);
        self.log(act, &mut changes);
        let (tell, told) = tokio::sync::oneshot::channel();
        let core = Arc::clone(self);
        self.store.submit_with(changes, move |written| {
            let answer = written
                .map(|_| core.take_up_again(id, again, first.subtasks))
                .map_err(|error| core.write_refused(error));
            // Also if the client has gone away.
            drop(claim);
            let _ = tell.send(answer);
        });
        let rest =
            told.await.map_err(|_| Refused::StoreFailed("the writer has ended".into()))??;
        self.was_done(act);
        if let Some(rest) = rest {
            rest.await.map_err(|_| Refused::StoreFailed("the service has ended".into()))?;
        }
        self.job(id)
    }

    /// Those that were cancelled with a job, and stay so, get outcomes that say it, in transactions of some thousands.
    /// The job is over meanwhile, and of one that is over these outcomes say nothing new: a crash in between is harmless.
    async fn settle_cancelled(
        self: &Arc<Self>,
        id: JobId,
        again: &mut Again,
    ) -> Result<(), Refused> {
        let dropped = std::mem::take(&mut again.dropped);
        for some in dropped.chunks(PART) {
            let mut changes = Changes::new();
            changes.settle(id.number(), again.cancelled(some));
            let written = self.store.submit(changes).await;
            written.map_err(|error| self.write_refused(error))?;
        }
        Ok(())
    }

    fn claim_retry(self: &Arc<Self>, id: JobId) -> Result<RetryClaim, Refused> {
        let mut books = self.books();
        if books.live.contains_key(&id.number()) || !books.retried.insert(id.number()) {
            return Err(Refused::Conflict("the job is being done again already".into()));
        }
        Ok(RetryClaim { core: Arc::clone(self), job: id.number() })
    }

    /// What is to be done again of a job that is over.
    fn again(&self, id: JobId, only: RetryOnly) -> Result<Again, Refused> {
        let stored = self.stored(id)?;
        let head: Head = serde_json::from_slice(&stored.head)
            .map_err(|error| Refused::StoreFailed(format!("the job's head: {error}")))?;
        let kind = self.kinds.number(&head.kind);
        let kind = kind.ok_or_else(|| {
            Refused::Conflict(format!("there is no kind `{}` any more", head.kind))
        })?;
        let mut again = Again::new(&stored, head, kind);
        self.find_again(&stored, only, &mut again)?;
        if again.is_empty() {
            return Err(Refused::Conflict("nothing of the job is to be done again".into()));
        }
        Ok(again)
    }

    fn find_again(
        &self,
        stored: &StoredJob,
        only: RetryOnly,
        again: &mut Again,
    ) -> Result<(), Refused> {
        let refused = |error| self.read_refused(error);
        for chunk in self.store.chunks(stored.number, 0..stored.total) {
            let chunk = chunk.map_err(refused)?;
            let outcomes = self.store.outcomes_of(stored.number, chunk.numbers());
            let outcomes = outcomes.map_err(refused)?;
            for (subtask, outcome) in chunk.subtasks().zip(outcomes) {
                let kind = outcome.map(|outcome| outcome.kind);
                let kind = kind.filter(|kind| *kind != OutcomeKind::Reopened);
                again.look_at(&subtask, kind, only);
            }
        }
        Ok(())
    }

    /// A job that was over is on the disk as one that goes on, with the first part of what is to be done again. Called on
    /// the writer's thread. Of a large job the other parts follow, by what is returned.
    ///
    /// # Protocol of a retry in parts
    ///
    /// 1. The transaction of the first part gives the job its place in the order. Its callback puts a *fed* entry into
    ///    the line, so that everything that is accepted later enters behind all parts (`schedule/entries.rs`).
    /// 2. Each further part is a transaction that takes the outcomes of its subtasks back, and enters when that is on the
    ///    disk: so no subtask runs whose old outcome still counts.
    /// 3. The task that brings the parts is started in the callback and ends the feed in every case but that of a store
    ///    that has failed, in which nothing begins any more. A full disk is waited for. A job that is cancelled meanwhile
    ///    gets its parts all the same, and is over after the last.
    ///
    /// After a crash in between the job goes on at its place, with the parts that are on the disk. The others have the
    /// outcomes that they had, and can be retried when it is over. The client was not told that it was done.
    fn take_up_again(
        self: &Arc<Self>,
        id: JobId,
        again: Again,
        first: Packed,
    ) -> Option<tokio::task::JoinHandle<()>> {
        let mut guard = self.books();
        let now = self.clock.now();
        let books = &mut *guard;
        let number = id.number();
        let Again { head, kind, created, started, last_version, plan, split, parts, ended, .. } =
            again;
        let new = schedule::NewJob {
            split: split.then_some(0),
            start_at: None,
            ended: ended_counts(&ended),
            ..new_job(number, kind, &head, first)
        };
        let live = Live {
            id,
            begins_at: None,
            is_entering: false,
            plan,
            created,
            started: started.map(Timestamp),
            pace: None,
            key_bytes: again.key_bytes,
            ended,
            recorded: ended,
            error: None,
            failures: Failures::default(),
            result: None,
            paused: false,
            cancelling: false,
            is_closing: false,
            version: first_version(now).max(last_version + 1),
            notify: None,
            head: Arc::new(head),
        };
        books.live.insert(number, live);
        books.unfinished += again.count;
        books.key_bytes += again.key_bytes;
        books.order.entered(number);
        let accepted = match parts.is_empty() {
            true => books.scheduler.accept_packed(new, now.0),
            false => books.scheduler.accept_fed(new, again.count, again.keys, now.0),
        };
        Self::hold_if_behind(books, number, again.key_bytes > 0, now);
        self.note_accepted(books, number, &accepted, now);
        books.changed.insert(number);
        self.write_next(books);
        drop(guard);
        self.bell.ring();
        let is_fed = !parts.is_empty();
        is_fed.then(|| self.runtime.spawn(Arc::clone(self).bring_parts(number, parts)))
    }

    /// Brings the further parts of what is to be done again.
    async fn bring_parts(self: Arc<Self>, job: JobNumber, parts: VecDeque<Part>) {
        for Part { reopened, subtasks } in parts {
            let mut subtasks = Some(subtasks);
            loop {
                let mut changes = Changes::new();
                changes.reopen_more(job, reopened.iter().copied(), self.clock.now().0);
                match self.store.submit(changes).await {
                    Ok(_) => break,
                    // As with a batch that was refused: it is written when there is room.
                    Err(WriteError::Full | WriteError::Busy) => {
                        tokio::select! {
                            () = tokio::time::sleep(ROOM_LOOKED_FOR) => {}
                            () = self.stopped.cancelled() => return,
                        }
                    }
                    Err(error) => {
                        self.write_refused(error);
                        return;
                    }
                }
            }
            let now = self.clock.now();
            let mut books = self.books();
            let subtasks = subtasks.take().expect("it is written once");
            if let Some(accepted) = books.scheduler.feed(job, subtasks, now.0) {
                self.note_accepted(&mut books, job, &accepted, now);
            }
            drop(books);
            self.bell.ring();
        }
        let now = self.clock.now();
        let mut books = self.books();
        if let Some(outcome) = books.scheduler.end_feed(job, EndedCounts::default(), now.0) {
            self.note_over(&mut books, job, outcome, now);
            self.write_next(&mut books);
        }
        drop(books);
        self.bell.ring();
    }

    /// Puts the entry of what was done just now beside its changes: they go to the disk together.
    fn log_in(&self, books: &mut Books, act: &Act) {
        self.log(act, &mut books.unwritten.changes);
        self.was_done(act);
    }

    /// What somebody asks to be done with a key.
    pub(crate) async fn steer_key(
        self: &Arc<Self>,
        key: &str,
        what: KeyCommand,
        act: &Act,
    ) -> Result<Option<KeyView>, Refused> {
        let key = Key::new(key);
        {
            let mut books = self.books_to_change()?;
            let now = self.clock.now();
            match what {
                KeyCommand::Pause => self.set_key_paused(&mut books, &key, true, now),
                KeyCommand::Resume => self.set_key_paused(&mut books, &key, false, now),
                KeyCommand::RetryHead => self.retry_head(&mut books, &key, now)?,
                KeyCommand::SkipHead => self.skip_head(&mut books, &key, now)?,
            }
            self.log_in(&mut books, act);
            self.write_next(&mut books);
        }
        self.bell.ring();
        self.all_written().await?;
        Ok(self.key(&key.0))
    }
}

/// What can be done with a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyCommand {
    Pause,
    Resume,
    RetryHead,
    SkipHead,
}

/// What is to be done again of a job that is over.
#[derive(Debug)]
struct Again {
    head: Head,
    kind: u32,
    created: Timestamp,
    started: Option<u64>,
    /// The version that it had when it was over.
    last_version: u64,
    plan: Plan,
    /// Whether its split is to be done again.
    split: bool,
    /// What is to be done again, in parts, of which each is one transaction.
    parts: VecDeque<Part>,
    /// Subtasks in all parts.
    count: u64,
    /// Bytes of their keys.
    key_bytes: u64,
    /// Their keys.
    keys: KeySet,
    /// How the others have ended.
    ended: Counts,
    /// Those of the others that were cancelled with the job, which was enough as long as it was over: of a job that
    /// goes on, what has no outcome waits.
    dropped: Vec<SubtaskNumber>,
    /// When the job was over, milliseconds since 1970.
    ended_ms: u64,
}

/// A part of what is to be done again.
#[derive(Debug, Default)]
struct Part {
    /// Those whose outcomes no longer count, by their numbers in the store.
    reopened: Vec<SubtaskNumber>,
    /// The subtasks, those without an outcome included.
    subtasks: Packed,
}

/// Subtasks of a part: their outcomes are written in some milliseconds.
const PART: usize = if cfg!(test) { 16 } else { 8192 };

/// How often it is looked whether a full disk has room for the next part.
const ROOM_LOOKED_FOR: std::time::Duration = std::time::Duration::from_millis(250);

impl Again {
    fn new(stored: &StoredJob, head: Head, kind: u32) -> Self {
        Again {
            plan: Plan::new(&head, stored.total),
            head,
            kind,
            created: Timestamp(stored.created_ms),
            started: stored.status.started_ms,
            last_version: stored.status.ended_ms.map_or(0, |ended| last_version(Timestamp(ended))),
            split: false,
            parts: VecDeque::new(),
            count: 0,
            key_bytes: 0,
            keys: KeySet::default(),
            ended: Counts::default(),
            dropped: Vec::new(),
            ended_ms: stored.status.ended_ms.unwrap_or_default(),
        }
    }

    /// Notes whether something is to be done again.
    fn look_at(
        &mut self,
        subtask: &crate::store::Subtask<'_>,
        kind: Option<OutcomeKind>,
        only: RetryOnly,
    ) {
        let stored = subtask.number();
        match self.plan.step(stored) {
            Step::Subtask(number) if super::steer::is_retried(only, kind) => {
                // What has no outcome, for it was cancelled with the job, needs none taken back.
                self.count += 1;
                self.key_bytes += subtask.keys().map(|key| key.len() as u64).sum::<u64>();
                subtask.keys().for_each(|key| self.keys.add(key));
                let part = self.part();
                part.reopened.extend(kind.map(|_| stored));
                let (keys, attempts_made) = (subtask.keys(), 0);
                part.subtasks.push(NewSubtask { number, keys, attempts_made });
            }
            Step::Subtask(_) => {
                if kind.is_none() {
                    self.dropped.push(stored);
                }
                self.count(kind);
            }
            Step::Split | Step::FanIn if kind == Some(OutcomeKind::Succeeded) => {}
            step => {
                self.split |= step == Step::Split && self.plan.is_unsplit();
                self.part().reopened.extend(kind.map(|_| stored));
            }
        }
    }

    /// The part that takes more.
    fn part(&mut self) -> &mut Part {
        let is_full = |part: &Part| part.subtasks.count() >= PART as u64;
        if self.parts.back().is_none_or(is_full) {
            self.parts.push_back(Part::default());
        }
        self.parts.back_mut().expect("there is one now")
    }

    /// What is to be said on the disk of those that were cancelled with the job, and stay so.
    fn cancelled(&self, dropped: &[SubtaskNumber]) -> impl Iterator<Item = Outcome> {
        dropped.iter().map(|number| Outcome {
            number: *number,
            attempt: 0,
            kind: OutcomeKind::Cancelled,
            started_ms: self.ended_ms,
            ended_ms: self.ended_ms,
            result: Vec::new(),
        })
    }

    fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| part.reopened.is_empty() && part.subtasks.is_empty())
    }

    fn count(&mut self, kind: Option<OutcomeKind>) {
        match kind {
            Some(OutcomeKind::Succeeded) => self.ended.succeeded += 1,
            Some(OutcomeKind::Failed) => self.ended.failed += 1,
            Some(OutcomeKind::Skipped) => self.ended.skipped += 1,
            _ => self.ended.cancelled += 1,
        }
    }
}

/// A job that somebody is about to take up again.
#[derive(Debug)]
struct RetryClaim {
    core: Arc<Core>,
    job: JobNumber,
}

impl Drop for RetryClaim {
    fn drop(&mut self) {
        self.core.books().retried.remove(&self.job);
    }
}

#[cfg(test)]
#[path = "command_tests.rs"]
mod tests;
