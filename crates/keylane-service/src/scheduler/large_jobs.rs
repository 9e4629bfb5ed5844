//! Entry and exit of large jobs: subtasks enter and leave the order in slices.
//!
//! One call does a bounded amount of work, whatever the size of a job: the rest is in the *entry
//! queue* or in a *sweep*, and [`work_off`](Scheduler::work_off) does one slice of it. The caller
//! releases its lock between two slices.
//!
//! # Protocol
//!
//! 1. **Subtasks enter through the entry queue.** The subtasks of one call
//!    ([`accept`](Scheduler::accept), [`begin`](Scheduler::begin),
//!    [`add_subtasks`](Scheduler::add_subtasks), [`reopen`](Scheduler::reopen)) are one *entry*. An
//!    entry gets the next sequence number, and is in the queue until its last subtask has entered. Its
//!    subtasks enter in their order. An entry that finds the queue empty does its first slice at once,
//!    so that a small job is never in the queue.
//! 2. **A slice passes entries that share no key with it.** The entry with the lowest number enters
//!    whatever its keys are. The next slice of another entry enters if none of its keys is a key of an
//!    earlier entry. The queue remembers the keys of an entry (`entry_queue_keys.rs`): all keys that it came
//!    with, entered or not. So while a large job enters, only jobs that share a key with it wait. A
//!    job's second entry does not pass its first one. Subtasks without keys pass all entries: they are
//!    in no lane, so they have no order to keep. Those of a job with barriers are in the lane of the job,
//!    and wait for its earlier entries.
//! 3. **A job lives while it has an entry.** It counts the subtasks in its entries as `entering`,
//!    the allocator counts them as waiting, and so neither ends the job. Entered subtasks may start
//!    while the rest enters.
//! 4. **A fed entry** gets its subtasks from the caller in parts ([`feed`](Scheduler::feed)), and
//!    may be empty for a while. It keeps its position: later entries that share keys with it wait
//!    until [`end_feed`](Scheduler::end_feed) and its last slice. The keys of all parts are known from
//!    the start.
//! 5. **A job that is cancelled or fails** counts every subtask that does not run as cancelled at
//!    once, removes its entries from the queue, and gets no more slots. Its tasks stay in their lanes
//!    until its sweep removes them, slice by slice. Until then they are *dropped*: they never become
//!    ready, their timers and the commands on keys skip them, and the job is not finished. A job has
//!    at most one sweep, which is made when its course becomes `Failing` or `Cancelled`.
//!
//! # Proof of order
//!
//! *Claim: of two subtasks with a common key, the one whose entry has the lower number is first in
//! the lane, and within an entry the one that was pushed first.* A lane is first in, first out, so
//! the claim is about the order of the calls of `Lanes::enter`. Within an entry it is the order of
//! the pushes (1). Of two entries, let the key be one of the earlier one's. While the earlier entry
//! is in the queue, its keys are remembered, so no slice of the later one with that key enters (2);
//! numbers rise with the calls, so the later one is not the first. Once the earlier entry has left
//! the queue, all of it has entered and no more of it comes (1, 4). A slice that may pass keeps
//! that right until it enters: the set of entries before it only shrinks, and their keys do not
//! change.
//!
//! *With the disk:* the engine makes these calls in the callbacks of the commits, in their order.
//! So the numbers follow the order on the disk, and after a crash in the middle of an entry
//! recovery makes the same lanes of the unfinished subtasks: those that had entered and ended are
//! on the disk as ended, and the rest enters again at the same position.
//!
//! *No starvation:* the first entry waits only for the next slice, or, if it is fed, for the
//! caller, which ends the feed in every case. A sweep waits for nothing. Each slice shortens one of
//! them, and sweeps, the first entry and passing entries take slices in turns.
//!
//! *A dropped task never starts:* a start takes from a job's lists `ready` and `fresh`, which are
//! empty from the moment of the drop; `wake` is the only way into `ready`, and its callers skip
//! dropped tasks (5).

use std::any::Any;

use super::entry_queue_keys::KeySet;
use super::incremental_work::{IncrementalWork, PendingEntry, TaskSweep};
use super::job::{JobPhase, ScheduledJob, StepState};
use super::packed_subtasks::{PackedRecord, PackedSubtasks, PoppedSlice};
use super::state::Scheduler;
use super::task::{ScheduledTask, TaskPhase};
use super::timers::TimerEvent;
use super::{AcceptResult, EndedCounts, JobOutcome, NewJob, NewSubtask, Step, SupersededSubtask};
use crate::{JobNumber, KeyClaim, SubtaskNumber};

/// Result of a slice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SliceResult {
    /// Job of the slice.
    pub job: JobNumber,
    /// Effects on the job.
    pub accepted: AcceptResult,
}

/// Released memory. It may be large, so it must be dropped outside of all locks.
#[derive(Debug, Default)]
#[must_use = "it is dropped where nothing is locked"]
pub struct ReleasedMemory(
    #[expect(dead_code, reason = "it is there to be dropped")] Vec<Box<dyn Any + Send>>,
);

/// Number of tasks that a sweep takes before it counts units again.
const SWEPT_AT_ONCE: usize = 64;

/// Result of entering the tasks of a slice.
#[derive(Default)]
struct EnteredSlice {
    ready: u64,
    /// Tasks without an attempt left. They wait.
    exhausted: Vec<u32>,
    /// Subtasks that those of the slice have replaced.
    superseded: Vec<SupersededSubtask>,
}

impl Scheduler {
    /// Does one slice of entries or exits. `None` if none is due.
    pub fn work_off(&mut self, now: u64) -> Option<SliceResult> {
        let now = self.at(now);
        let work = self.last_work.next().into_iter().find(|work| self.has(*work))?;
        self.last_work = work;
        let number = match work {
            IncrementalWork::Sweep => {
                let slot = self.sweeps.front().expect("there is a sweep").job;
                let job = self.jobs[slot].number;
                self.sweep_some(now);
                let over = self.conclude(slot, now);
                return Some(SliceResult {
                    job,
                    accepted: AcceptResult { over, ..AcceptResult::default() },
                });
            }
            IncrementalWork::Advance => {
                let first = self.lanes.advance_some(&mut self.tasks, &mut self.opened);
                let first = first.expect("a lane has shared places to advance");
                let job = self.jobs[self.tasks[first].job].number;
                self.wake_opened(now);
                return Some(SliceResult { job, accepted: AcceptResult::default() });
            }
            IncrementalWork::First => *self.line.first_key_value().expect("there is an entry").0,
            IncrementalWork::Passing => *self.passing.first().expect("an entry passes"),
        };
        let slot = self.line[&number].job;
        let job = self.jobs[slot].number;
        let mut accepted = AcceptResult::default();
        self.enter_some(slot, number, &mut accepted, now);
        Some(SliceResult { job, accepted })
    }

    fn has(&self, work: IncrementalWork) -> bool {
        match work {
            IncrementalWork::Sweep => !self.sweeps.is_empty(),
            IncrementalWork::First => {
                let first = self.line.first_key_value();
                first.is_some_and(|(_, entry)| !entry.packed.is_empty())
            }
            IncrementalWork::Passing => !self.passing.is_empty(),
            IncrementalWork::Advance => self.lanes.is_advancing(),
        }
    }

    /// Whether [`work_off`](Self::work_off) has a slice to do.
    #[must_use]
    pub fn has_work(&self) -> bool {
        self.last_work.next().into_iter().any(|work| self.has(work))
    }

    /// Takes the released memory, which must be dropped outside of all locks.
    pub fn take_trash(&mut self) -> ReleasedMemory {
        let pages = self.tasks.take_gone();
        self.trash.extend(pages.map(|pages| Box::new(pages) as Box<dyn Any + Send>));
        self.trash.extend(self.lanes.take_gone());
        ReleasedMemory(std::mem::take(&mut self.trash))
    }

    /// Accepts a job with packed subtasks, as [`accept`](Self::accept) does.
    ///
    /// # Panics
    ///
    /// Panics as [`accept`](Self::accept) does.
    pub fn accept_packed(&mut self, new: NewJob<PackedSubtasks>, now: u64) -> AcceptResult {
        let now = self.at(now);
        let slot = self.insert(&new);
        let Some(at) = new.start_at else { return self.let_share(slot, new.subtasks, None, now) };
        self.park(slot, at, new.subtasks);
        AcceptResult::default()
    }

    /// Accepts a job with `expected` unfinished subtasks; those not in `new` follow with
    /// [`feed`](Self::feed). `keys` are the keys of all of them. The caller must finally call
    /// [`end_feed`](Self::end_feed).
    ///
    /// # Panics
    ///
    /// Panics as [`accept`](Self::accept) does.
    pub fn accept_fed(
        &mut self,
        mut new: NewJob<PackedSubtasks>,
        expected: u64,
        keys: KeySet,
        now: u64,
    ) -> AcceptResult {
        let now = self.at(now);
        let slot = self.insert(&new);
        new.subtasks.set_key_set(keys);
        self.let_share(slot, new.subtasks, Some(expected), now)
    }

    /// Adds subtasks to a fed job. They are dropped if the job is cancelled or fails.
    pub fn feed(&mut self, job: JobNumber, more: PackedSubtasks, now: u64) -> Option<AcceptResult> {
        let now = self.at(now);
        let slot = self.find(job).filter(|slot| self.jobs[*slot].is_fed)?;
        let mut accepted = AcceptResult::default();
        if self.jobs[slot].course != JobPhase::Open {
            self.trash.push(Box::new(more));
            return Some(accepted);
        }
        let share = self.share(slot);
        self.allocator.came(share, 0, more.count(), now);
        let number = self.jobs[slot].entries[0];
        let entry = self.line.get_mut(&number).expect("a job that is fed has its entry");
        entry.packed.append(more);
        self.enter_if_free(slot, number, &mut accepted, now);
        Some(accepted)
    }

    /// Ends the feed of a job. `rest` counts the expected subtasks that were not fed: they have
    /// ended. Returns the job's outcome if that finishes it.
    pub fn end_feed(&mut self, job: JobNumber, rest: EndedCounts, now: u64) -> Option<JobOutcome> {
        let now = self.at(now);
        let slot = self.find(job).filter(|slot| self.jobs[*slot].is_fed)?;
        let job = &mut self.jobs[slot];
        job.is_fed = false;
        let EndedCounts { succeeded, failed, cancelled, superseded } = rest;
        let ended = succeeded + failed + cancelled + superseded;
        let counts = &mut job.counts;
        // Unfed subtasks count as entering, or as cancelled if the job was cancelled since.
        match job.course {
            JobPhase::Open => counts.entering -= ended,
            JobPhase::Failing | JobPhase::Cancelled | JobPhase::Finishing => {
                counts.cancelled -= ended;
            }
        }
        counts.succeeded += succeeded;
        counts.failed += failed;
        counts.cancelled += cancelled;
        counts.superseded += superseded;
        if job.course == JobPhase::Open {
            let number = job.entries[0];
            let entry = self.line.get_mut(&number).expect("a job that is fed has its entry");
            entry.is_open = false;
            if entry.packed.is_empty() {
                self.leave_line(slot, number);
            }
            // The allocator counted the unfed subtasks as waiting, which kept the job unfinished.
            self.settle(slot, false, now);
        }
        self.conclude(slot, now)
    }

    /// Queues subtasks of a job, and does the first slice if no other entry is before them. The
    /// caller has counted them as entering, also in the allocator.
    pub(super) fn enter(
        &mut self,
        slot: u32,
        packed: PackedSubtasks,
        is_open: bool,
        accepted: &mut AcceptResult,
        now: u64,
    ) {
        if packed.is_empty() && !is_open {
            accepted.over = self.conclude(slot, now);
            return;
        }
        let job = &mut self.jobs[slot];
        job.has_barriers |= packed.has_barriers();
        // An earlier entry of the job may have a barrier that has not entered.
        let passes = !packed.has_keys() && (!job.has_barriers || job.entries.is_empty());
        let number = self.next_entry;
        self.next_entry += 1;
        self.line.insert(number, PendingEntry { job: slot, packed, is_open });
        self.jobs[slot].entries.push(number);
        if passes && self.line[&number].packed.count() > 0 {
            self.enter_some(slot, number, accepted, now);
        } else {
            self.enter_if_free(slot, number, accepted, now);
        }
    }

    /// Enters the next slice of an entry if it need not wait for another entry.
    fn enter_if_free(&mut self, slot: u32, number: u64, accepted: &mut AcceptResult, now: u64) {
        let is_first = self.line.first_key_value().is_some_and(|(first, _)| *first == number);
        let is_empty = self.line[&number].packed.is_empty();
        if !is_empty && (is_first || self.is_free(number)) {
            self.enter_some(slot, number, accepted, now);
        } else {
            self.list(number);
            accepted.over = self.conclude(slot, now);
        }
    }

    /// Whether the next slice of an entry may pass the entries before it.
    fn is_free(&self, number: u64) -> bool {
        let entry = &self.line[&number];
        let is_first_of_job = self.jobs[entry.job].entries.first() == Some(&number);
        is_first_of_job && self.line_keys.are_free(number, entry.packed.first_keys())
    }

    /// Records the keys of an entry that stays in the queue, and whether its next slice may pass.
    fn list(&mut self, number: u64) {
        let Some(entry) = self.line.get_mut(&number) else { return };
        if !self.line_keys.is_listed(number) {
            self.line_keys.list(number, entry.packed.take_key_set());
        }
        let is_empty = entry.packed.is_empty();
        let is_first = self.line.first_key_value().is_some_and(|(first, _)| *first == number);
        if !is_empty && !is_first && self.is_free(number) {
            self.passing.insert(number);
        } else {
            self.passing.remove(&number);
        }
    }

    /// Removes an entry from the queue and returns it.
    fn leave_line(&mut self, slot: u32, number: u64) -> PendingEntry {
        self.jobs[slot].entries.retain(|other| *other != number);
        self.passing.remove(&number);
        if let Some(keys) = self.line_keys.unlist(number) {
            self.trash.push(Box::new(keys));
        }
        let entry = self.line.remove(&number).expect("the entry is there");
        // The next entry is first now, so it no longer passes.
        if let Some((first, _)) = self.line.first_key_value() {
            self.passing.remove(first);
        }
        entry
    }

    /// Enters one slice of an entry.
    fn enter_some(&mut self, slot: u32, number: u64, accepted: &mut AcceptResult, now: u64) {
        let entry = self.line.get_mut(&number).expect("the entry is there");
        let before = entry.packed.count();
        let popped = entry.packed.pop().expect("an entry with subtasks has slices");
        accepted.entered = before - entry.packed.count();
        if entry.packed.is_empty() && !entry.is_open {
            self.leave_line(slot, number);
        } else {
            self.list(number);
        }
        let entered = self.enter_slice(slot, &popped, now);
        accepted.superseded = entered.superseded;
        let share = self.share(slot);
        self.allocator.ready(share, entered.ready, now);
        self.fail_exhausted(slot, entered.exhausted, accepted, now);
    }

    fn enter_slice(&mut self, slot: u32, popped: &PoppedSlice, now: u64) -> EnteredSlice {
        let mut entered = EnteredSlice::default();
        let ScheduledJob { attempts_allowed: allowed, has_barriers, .. } = self.jobs[slot];
        for record in popped.records() {
            match record {
                PackedRecord::Run { first, len, attempts_made }
                    if attempts_made < allowed && !has_barriers =>
                {
                    let job = &mut self.jobs[slot];
                    job.fresh.push(first, len, attempts_made);
                    job.fresh_since = now;
                    job.counts.entering -= u64::from(len);
                    job.counts.ready += u64::from(len);
                    entered.ready += u64::from(len);
                }
                PackedRecord::Run { first, len, attempts_made } => {
                    for number in first..first + len {
                        let none = std::iter::empty();
                        let subtask = NewSubtask { number, keys: none, attempts_made };
                        let is_exhausted = attempts_made >= allowed;
                        self.enter_one(slot, subtask, is_exhausted, &mut entered, now);
                    }
                }
                PackedRecord::Keyed(subtask) => {
                    let is_exhausted = subtask.attempts_made >= allowed;
                    self.enter_one(slot, subtask, is_exhausted, &mut entered, now);
                }
            }
        }
        entered
    }

    fn enter_one<'k>(
        &mut self,
        slot: u32,
        subtask: NewSubtask<impl Iterator<Item = KeyClaim<'k>>>,
        is_exhausted: bool,
        entered: &mut EnteredSlice,
        now: u64,
    ) {
        let NewSubtask { number, keys, attempts_made } = subtask;
        assert!(number <= Step::LAST_SUBTASK, "a subtask's number is at most 2^32 - 3");
        let task = self.tasks.insert(ScheduledTask::new(slot, number, attempts_made, now));
        let is_latest = match self.jobs[slot].has_barriers {
            true => self.enter_beside_barriers(slot, task, keys, now),
            false => self.lanes.enter(&mut self.tasks, task, keys, self.jobs[slot].limit, now),
        };
        let job = &mut self.jobs[slot];
        job.roll.enter(number, task);
        job.counts.entering -= 1;
        if is_exhausted {
            entered.exhausted.push(task);
        }
        let is_blocked = is_exhausted || self.tasks[task].blocked > 0;
        if is_blocked || self.lacks_key_token(slot, task, now) {
            self.enter_phase(slot, task, TaskPhase::Waiting);
        } else {
            entered.ready += 1;
            self.enter_phase(slot, task, TaskPhase::Ready);
        }
        // One that has started before a restart is not replaced, and has replaced before.
        if is_latest && attempts_made == 0 {
            // The replaced one may be of this slice, whose ready tasks the allocator does not know yet.
            let share = self.share(slot);
            self.allocator.ready(share, std::mem::take(&mut entered.ready), now);
            entered.superseded.extend(self.replace_latest(task, now));
        }
    }

    /// Enters a task of a job with barriers. All subtasks of the job have a lane in common: a barrier
    /// is exclusive there, and each other one is shared.
    fn enter_beside_barriers<'k>(
        &mut self,
        slot: u32,
        task: u32,
        keys: impl Iterator<Item = KeyClaim<'k>>,
        now: u64,
    ) -> bool {
        let mut lane = [KeyClaim::JOB; 9];
        lane[1..].copy_from_slice(&self.jobs[slot].number.0.to_be_bytes());
        let keys = keys.map(|claim| match claim.is_barrier() {
            true => KeyClaim::exclusive(&lane),
            false => claim,
        });
        // A key that is exclusive and shared is exclusive.
        let keys = keys.chain([KeyClaim::shared(&lane)]);
        self.lanes.enter(&mut self.tasks, task, keys, self.jobs[slot].limit, now)
    }

    /// Drops all tasks of a job that do not run; they leave their lanes in slices. Returns the
    /// number of subtasks.
    pub(super) fn drop_rest(&mut self, slot: u32, now: u64) -> u64 {
        if let Some(share) = self.jobs[slot].share {
            self.allocator.cancel(share, now);
        }
        if self.jobs[slot].was_dropped {
            return 0;
        }
        self.take_from_line(slot);
        let job = &mut self.jobs[slot];
        (job.was_dropped, job.is_swept) = (true, true);
        (job.ready, job.backing_off, job.stopped) = Default::default();
        for step in [&mut job.split, &mut job.fan_in] {
            if let StepState::Pending(_) = step {
                *step = StepState::Over;
            }
        }
        let counts = &mut job.counts;
        let dropped = counts.unfinished() - counts.running;
        counts.cancelled += dropped;
        (counts.entering, counts.scheduled) = (0, 0);
        (counts.waiting, counts.ready) = (0, 0);
        (counts.backing_off, counts.stopped) = (0, 0);
        let roll = std::mem::take(&mut job.roll);
        for run in self.runs.values() {
            let ScheduledTask { job, number, .. } = self.tasks[run.task];
            if job == slot {
                self.jobs[slot].roll.begin(number, run.task);
            }
        }
        if roll.is_empty() {
            self.jobs[slot].is_swept = false;
            return dropped;
        }
        self.sweeps.push_back(TaskSweep { job: slot, roll });
        // One slice suffices for a small job.
        if self.sweeps.len() == 1 {
            self.sweep_some(now);
        }
        dropped
    }

    /// Drops the subtasks of a job that are in no lane, at once.
    fn take_from_line(&mut self, slot: u32) {
        let job = &mut self.jobs[slot];
        let fresh = std::mem::take(&mut job.fresh);
        self.trash.push(Box::new(fresh));
        for number in std::mem::take(&mut job.entries) {
            let entry = self.leave_line(slot, number);
            self.trash.push(Box::new(entry));
        }
        if let Some(scheduled) = self.jobs[slot].scheduled.take() {
            if !scheduled.is_due {
                self.begins.call_off(scheduled.at, TimerEvent::Begin(slot));
            }
            self.trash.push(Box::new(scheduled));
        }
    }

    /// Does one slice of the first sweep.
    fn sweep_some(&mut self, now: u64) {
        let Some(mut sweep) = self.sweeps.pop_front() else { return };
        let (mut units, mut is_left) = (0, true);
        let mut taken = Vec::with_capacity(SWEPT_AT_ONCE);
        while is_left && units < self.slice {
            let most = SWEPT_AT_ONCE.min(self.slice as usize);
            is_left = sweep.roll.take_some(&self.tasks, sweep.job, most, &mut taken);
            units += most as u32;
            for (number, task) in taken.drain(..) {
                units += self.sweep_one(sweep.job, number, task, now);
            }
        }
        if is_left {
            self.sweeps.push_front(sweep);
        } else {
            self.jobs[sweep.job].is_swept = false;
        }
        self.wake_opened(now);
    }

    /// Removes a dropped task from its lanes. Returns the number of lanes.
    fn sweep_one(&mut self, slot: u32, number: SubtaskNumber, task: u32, now: u64) -> u32 {
        // A task that failed and was reopened in its old slot is listed twice, and is gone the
        // second time.
        let Some(&ScheduledTask { phase, at, .. }) =
            self.tasks.get(task).filter(|task| task.job == slot)
        else {
            return 0;
        };
        match phase {
            TaskPhase::Running => return 0,
            TaskPhase::BackingOff => self.timers.call_off(at, TimerEvent::Attempt(task)),
            TaskPhase::Waiting | TaskPhase::Ready | TaskPhase::Stopped => {}
        }
        self.key_rates.leave(task);
        let left = self.lanes.leave(&mut self.tasks, task, now, &mut self.opened);
        self.tasks.remove(task);
        match Step::of(number) {
            Step::Subtask(_) => {}
            Step::Split => self.jobs[slot].split = StepState::Over,
            Step::FanIn => self.jobs[slot].fan_in = StepState::Over,
        }
        left
    }

    /// Whether a task only waits for its job's sweep.
    pub(super) fn is_dropped(&self, task: u32) -> bool {
        let task = &self.tasks[task];
        task.phase != TaskPhase::Running && self.jobs[task.job].was_dropped
    }

    /// Number of entering subtasks before those of the job.
    pub(super) fn entering_behind(&self, slot: u32) -> u64 {
        let Some(number) = self.jobs[slot].entries.first() else { return 0 };
        if self.passing.contains(number) {
            return 0;
        }
        // Most entries belong to different jobs, and few are large.
        let before = self.line.range(..number).take(ENTRIES_COUNTED);
        before.map(|(_, entry)| entry.packed.count()).sum()
    }

    /// Whether a job waits for its sweep.
    #[cfg(test)]
    pub(super) fn is_swept(&self, job: JobNumber) -> bool {
        self.find(job).is_some_and(|slot| self.jobs[slot].is_swept)
    }

    /// Whether a step of a job is a task, dropped or not.
    #[cfg(test)]
    pub(super) fn has_task(&self, job: JobNumber, step: Step) -> bool {
        let Some(slot) = self.find(job) else { return false };
        let mut tasks = self.tasks.iter();
        tasks.any(|(_, task)| task.job == slot && task.number == step.number())
    }

    /// Number of a job's subtasks in the queue.
    #[cfg(test)]
    pub(super) fn in_line(&self, slot: u32) -> u64 {
        let entries = self.jobs[slot].entries.iter();
        entries.map(|entry| self.line[entry].packed.count()).sum()
    }

    /// Whether a subtask of a job has not entered.
    pub(super) fn is_entering(&self, slot: u32, number: SubtaskNumber) -> bool {
        let entries = self.jobs[slot].entries.iter();
        entries.filter_map(|entry| self.line.get(entry)).any(|entry| entry.packed.has(number))
    }
}

/// Maximum number of entries that are counted before a job.
const ENTRIES_COUNTED: usize = 100;
