//! What the service knows in memory, under one lock: the scheduler, the jobs that are not over, what runs,
//! and what is on its way to the disk.
//!
//! # Protocol
//!
//! 1. **One lock.** Everything here is read and changed under `Core::books`. Nobody does I/O, runs a handler
//!    or waits while holding it; handing changes to the store's writer is allowed, for what is handed over
//!    here never waits for room.
//! 2. **Entered in the order of the disk.** Subtasks enter the scheduler's lanes in the callback of the commit that
//!    gives their job its place in the order, on the writer's thread: when it is accepted, when one that was put off
//!    begins, when its split has made them, when they are done once more. So their order in memory is that of the
//!    commits, and recovery finds the same. The callback does one slice of a large job; the dispatcher does the rest, a
//!    slice each time that it has the lock, and nothing passes what waits to enter (`schedule/entries.rs`).
//! 3. **Ends are taken once.** Whoever ends a run takes it out of `running` by its fence; a second end finds
//!    nothing.
//! 4. **Slots and keys are free when a run has ended; the world learns of it when that is on the disk.** The
//!    outcome goes into `unwritten` in the same critical section as the scheduler learns of the end, so
//!    outcomes reach the writer in the order of the ends, and a job's last status after all its outcomes.
//! 5. **One batch is with the writer at a time.** What comes meanwhile is gathered, and goes when the batch is
//!    written. Under load a batch is hundreds of outcomes, one row for each job; without load it is one,
//!    and goes at once.
//! 6. **A failed write ends the starts.** If a batch was not written the disk is full or has failed. The batch
//!    stays at the front, nothing new begins, and it is tried again (full) or never (failed). Meanwhile
//!    nothing that was not written is shown as done.
//!
//! Why order holds over a crash: what a key's subtasks have left on the disk is a prefix of their ends in the
//! order of the lane, since they end in that order, enter `unwritten` in that order (4), and batches are
//! written in order (5) and whole. After a restart the lane goes on after that prefix: some are done
//! again, in their order, and none is passed over.

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;

use keylane::allocate::Rule;
use serde_json::value::RawValue;
use tokio::sync::{Notify, oneshot};
use tokio_util::sync::CancellationToken;
use tokio_util::task::task_tracker::TaskTrackerToken;

use super::failures::Failures;
use super::fences::Fences;
use super::lease::Claimers;
use super::order_check::OrderCheck;
use super::plan::Plan;
use super::timeline::Slots;
use crate::handle::Log;
use crate::head::Head;
use crate::refused::Refused;
use crate::schedule::{Scheduler, Step};
use crate::store::{Changes, Counts, JobState as Stored, JobStatus};
use crate::wire::{JobState, Timestamp};
use crate::{JobId, JobNumber, Key, SubtaskNumber};

/// All of it.
#[derive(Debug)]
pub(super) struct Books {
    /// Which subtask is next.
    pub(super) scheduler: Scheduler,
    /// The jobs of which something is yet to be done or to be written.
    pub(super) live: BTreeMap<JobNumber, Live>,
    /// What runs, by fence.
    pub(super) running: HashMap<u64, Running>,
    /// Rows of the picture.
    pub(super) slots: Slots,
    /// Outcomes and whatever else is to go to the disk next.
    pub(super) unwritten: Batch,
    /// Whether a batch is with the writer.
    pub(super) is_writing: bool,
    /// A batch that was not written, because the disk is full.
    pub(super) refused: Option<Batch>,
    /// Workers elsewhere who wait for work.
    pub(super) claimers: Claimers,
    /// When the first lease may end; no later than that.
    pub(super) next_expiry: Option<Timestamp>,
    /// Jobs that were put off and whose time has come, and which are to get a place in the order.
    pub(super) due: VecDeque<JobNumber>,
    /// Jobs that have changed since their followers were told.
    pub(super) changed: HashSet<JobNumber>,
    /// What was counted since the start.
    pub(super) totals: Totals,
    /// A check of the order of keys that knows nothing of the scheduler.
    pub(super) order: OrderCheck,
    /// Keys that somebody has paused, since when, and why.
    pub(super) paused_keys: HashMap<Key, Timestamp>,
    /// What an operator has to decide about before it goes on.
    pub(super) holds: super::holds::Holds,
    /// Jobs that a process had under way which ended without closing the store: their attempts begin when their marks are
    /// on the disk, for one of them may have caused that, and must not be able to do so for ever. A job leaves when it is
    /// over.
    pub(super) careful: HashSet<JobNumber>,
    /// Fences that may be given out.
    pub(super) fences: Fences,
    /// The fences of starts whose marks are on the disk now.
    pub(super) held_back: VecDeque<u64>,
    /// Whether the service is about to stop, and takes and begins nothing.
    pub(super) is_draining: bool,
    /// How many subtasks have not ended.
    pub(super) unfinished: u64,
    /// Bytes of the keys of all jobs in `live`: the sum of their `key_bytes`.
    pub(super) key_bytes: u64,
    /// Jobs that are over, and that somebody is about to take up again.
    pub(super) retried: HashSet<JobNumber>,
}

impl Books {
    /// A lease ends at this time, unless there is a heartbeat.
    pub(super) fn expect_expiry(&mut self, ends: Timestamp) {
        self.next_expiry = Some(self.next_expiry.map_or(ends, |next| next.min(ends)));
    }
}

/// What goes to the disk together.
#[derive(Debug, Default)]
pub(super) struct Batch {
    pub(super) changes: Changes,
    /// What is to be shown when it is there.
    pub(super) effects: Vec<Effect>,
    /// How many jobs get a place in the order with it that were put off.
    pub(super) entering: usize,
}

impl Batch {
    pub(super) fn is_empty(&self) -> bool {
        self.changes.is_empty() && self.effects.is_empty()
    }
}

/// What the world learns when a batch is on the disk.
#[derive(Debug)]
pub(super) enum Effect {
    /// A subtask has ended like this.
    Ended {
        job: JobNumber,
        step: Step,
        end: Recorded,
        error: Option<String>,
        result: Option<Box<RawValue>>,
    },
    /// A job is over.
    Over { job: JobNumber, state: JobState, ended: Timestamp },
    /// The job, which was put off, has its place in the order, and begins.
    Entered { job: JobNumber },
    /// An attempt may begin: its mark is written.
    Marked { fence: u64 },
    /// A lease may be handed over: its mark is written, and the end of all before it.
    Granted { fence: u64 },
    /// The fences of this number are reserved.
    Reserved { boot: u64 },
    /// Somebody wants to know when all that happened before is written, or that it was refused.
    Tell(oneshot::Sender<Result<(), Refused>>),
}

/// How an ended subtask is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Recorded {
    Succeeded,
    Failed,
    Cancelled,
    Skipped,
}

impl Recorded {
    pub(super) fn count(self, counts: &mut Counts) {
        match self {
            Recorded::Succeeded => counts.succeeded += 1,
            Recorded::Failed => counts.failed += 1,
            Recorded::Cancelled => counts.cancelled += 1,
            Recorded::Skipped => counts.skipped += 1,
        }
    }
}

/// A job that is not over, or whose end is on its way to the disk.
#[derive(Debug)]
pub(super) struct Live {
    pub(super) id: JobId,
    pub(super) head: Arc<Head>,
    /// How its steps are numbered in the store.
    pub(super) plan: Plan,
    pub(super) created: Timestamp,
    pub(super) started: Option<Timestamp>,
    /// Whence its pace is measured.
    pub(super) pace: Option<Pace>,
    /// Until when it is put off. None if it is in the order.
    pub(super) begins_at: Option<Timestamp>,
    /// Whether that time has come, and its place in the order is on its way to the disk.
    pub(super) is_entering: bool,
    /// Bytes of its subtasks' keys. They count until the job is over.
    pub(super) key_bytes: u64,
    /// What has ended.
    pub(super) ended: Counts,
    /// What of that is on the disk, and so is shown.
    pub(super) recorded: Counts,
    /// The first failure.
    pub(super) error: Option<String>,
    /// Failures of attempts that others follow.
    pub(super) failures: Failures,
    /// What the fan-in has made.
    pub(super) result: Option<Box<RawValue>>,
    pub(super) paused: bool,
    pub(super) cancelling: bool,
    /// It is over, and that is on its way to the disk.
    pub(super) is_closing: bool,
    /// See [`first_version`].
    pub(super) version: u64,
    /// Those who wait for a change.
    pub(super) notify: Option<Arc<Notify>>,
}

/// How far a job was when its pace began to be measured: at its first start here, and anew when it is resumed. The time
/// for which it was paused, or the server away, says nothing of the time that is left.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Steady time, in milliseconds.
    pub(super) since: u64,
    /// How many subtasks had ended.
    pub(super) ended: u64,
}

impl Live {
    /// It begins, or goes on after a pause.
    pub(super) fn measure_pace(&mut self, steady_ms: u64) {
        self.pace = Some(Pace { since: steady_ms, ended: self.recorded.ended().into() });
    }

    /// It has changed.
    pub(super) fn touch(&mut self, now: Timestamp) {
        if !self.is_closing {
            self.version = first_version(now).max(self.version + 1);
        }
        if let Some(notify) = &self.notify {
            notify.notify_waiters();
        }
    }

    /// Tells those who wait for a change.
    pub(super) fn notify(&mut self) -> Arc<Notify> {
        Arc::clone(self.notify.get_or_insert_default())
    }

    /// Its counts when it is over: all that have not ended otherwise were cancelled with it.
    pub(super) fn final_counts(&self) -> Counts {
        let others = self.ended.succeeded + self.ended.failed + self.ended.skipped;
        Counts { cancelled: self.plan.total().saturating_sub(others), ..self.ended }
    }

    /// As it is to be written while it is not over.
    pub(super) fn status(&self) -> JobStatus {
        let state = match (self.cancelling, self.paused) {
            (true, _) => Stored::Cancelling,
            (false, true) => Stored::Paused,
            (false, false) => Stored::Waiting,
        };
        JobStatus {
            // What is written from here on comes behind the place.
            start_at_ms: self.begins_at.filter(|_| !self.is_entering).map(|at| at.0),
            started_ms: self.started.map(|at| at.0),
            ..JobStatus::of(state)
        }
    }
}

/// The version of a job that begins to be live: the time in microseconds. Each change makes it one more at
/// least, so that it follows the clock as long as there are fewer than a million changes a second.
pub(super) fn first_version(now: Timestamp) -> u64 {
    now.0 * 1000
}

/// The version of a job that ended then: a second later, so higher than all that it had before, which nothing
/// but its end is remembered of. When it is taken up again its versions begin behind that.
pub(super) fn last_version(ended: Timestamp) -> u64 {
    (ended.0 + 1000) * 1000
}

/// A subtask, or another step, that has a slot.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) job: JobNumber,
    pub(super) step: Step,
    /// Its number in the store.
    pub(super) number: SubtaskNumber,
    pub(super) attempt: u32,
    pub(super) kind: u32,
    pub(super) rule: Rule,
    pub(super) slot: u32,
    pub(super) since: Timestamp,
    pub(super) keys: Vec<Key>,
    /// Tells its handler to give up.
    pub(super) cancel: CancellationToken,
    /// What it says.
    pub(super) log: Log,
    /// If a worker elsewhere has it.
    pub(super) lease: Option<super::lease::Held>,
    /// This is among what a stop waits for, of what runs here or of leases: from its start in the books, which is before
    /// its handler or worker has it, to its end in them.
    pub(super) awaited: Option<TaskTrackerToken>,
}

/// What was counted since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Totals {
    pub(super) succeeded: u64,
    pub(super) failed: u64,
    pub(super) cancelled: u64,
    pub(super) retried: u64,
    pub(super) jobs_accepted: u64,
    pub(super) jobs_succeeded: u64,
    pub(super) jobs_failed: u64,
    pub(super) jobs_cancelled: u64,
    pub(super) leases_lost: u64,
    pub(super) starts: u64,
    /// Subtasks that began before their turn with a key, as the check of the order found. It must stay 0.
    pub(super) order_violations: u64,
}
