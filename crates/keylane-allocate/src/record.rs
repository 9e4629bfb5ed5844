//! Log of the scheduler's last events and decisions, which can be replayed.

mod text;

use std::collections::VecDeque;
use std::fmt;

use super::job::ScheduledJob;
use super::rules::SchedulerState;
use super::{Claimant, Decision, End, JobId, Supply, Take};

pub use text::ParseRecordError;

/// Event of an [`JobScheduler`](super::JobScheduler): a call or a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A job was submitted.
    Submitted {
        /// Id of the job.
        job: JobId,
        /// Source of its subtasks.
        supply: Supply,
        /// Weight of its claim.
        weight: u32,
    },
    /// A worker was assigned.
    Decided(Decision),
    /// A worker took a ready subtask of this job that it has come upon by itself.
    Taken(JobId),
    /// A worker was released.
    Ended(Claimant, End),
    /// A worker ran further subtasks beyond the one it was assigned for.
    RanMore {
        /// Id of the job.
        job: JobId,
        /// Source of the subtasks.
        take: Take,
        /// Number of further subtasks that succeeded.
        done: u64,
        /// Number of further subtasks that failed.
        failed: u64,
    },
    /// The splitter produced this number of further subtasks.
    SplitMore(JobId, u64),
    /// The splitter is exhausted.
    Exhausted(JobId),
    /// This number of a job's waiting subtasks became ready.
    Ready(JobId, u64),
    /// This number of a job's ready subtasks wait again.
    Unready(JobId, u64),
    /// Subtasks were added to a job.
    Came {
        /// Id of the job.
        job: JobId,
        /// Number of ready subtasks.
        ready: u64,
        /// Number of waiting subtasks.
        waiting: u64,
    },
    /// A waiting subtask ended without a worker; true if it failed.
    Settled(JobId, bool),
    /// A job's splitter was paused (true) or resumed.
    Held(JobId, bool),
    /// A job was paused (true) or resumed.
    Paused(JobId, bool),
    /// A job was cancelled.
    Cancelled(JobId),
    /// The weight of a job changed.
    Weighed(JobId, u32),
    /// Whether work outside jobs is ready.
    LooseReady(bool),
    /// The number of workers changed.
    Resized(usize),
    /// The bound of rule 2 changed.
    Bounded(Option<usize>),
}

/// An event with its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedEvent {
    /// Time, in the caller's unit.
    pub at: u64,
    /// Event at that time.
    pub event: Event,
}

/// Last events of an [`JobScheduler`](super::JobScheduler), and its state before them.
///
/// An entry that is dropped from the log is applied to the base state, so the rest can always be
/// replayed.
///
/// # As text
///
/// [`Display`](fmt::Display) writes a line for each event, after the lines of the base state, and
/// [`FromStr`](std::str::FromStr) reads it back; `keylane simulate` uses it. The first line has the
/// version of the format, 1. Later versions will read this format.
///
/// ```
/// use keylane_allocate::{JobScheduler, Claimant, End, Record, Supply};
///
/// let mut scheduler = JobScheduler::new(1);
/// scheduler.record(100);
/// let job = scheduler.submit(Supply::Ready(1), 1, 0);
/// scheduler.next(0);
/// scheduler.ended(Claimant::Job(job), End::Done, 60);
/// let text = scheduler.recorded().unwrap().to_string();
/// assert!(text.ends_with("event at=60 ended who=0/0 end=done\n"));
///
/// let record: Record = text.parse()?;
/// assert_eq!(record.entries().count(), 3);
/// record.replay().unwrap();
/// assert_eq!("keylane record 9".parse::<Record>().unwrap_err().line(), 1);
/// # Ok::<(), keylane_allocate::ParseRecordError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Record {
    capacity: usize,
    entries: VecDeque<RecordedEvent>,
    /// State before the first of `entries`.
    base: SchedulerState,
    /// Number of dropped entries.
    dropped: u64,
}

/// Error of a replay whose decision differs from the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// Index of the entry; the oldest one is 0.
    pub entry: usize,
    /// Recorded entry.
    pub recorded: RecordedEvent,
    /// Decision of the replay: `None` if it assigns no worker, or if the entry is not a decision
    /// and is impossible.
    pub replayed: Option<Decision>,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Divergence { entry, recorded, replayed } = self;
        match (recorded.event, replayed) {
            (Event::Decided(_), Some(replayed)) => {
                write!(f, "entry {entry} was {recorded:?}, and the replay decides {replayed:?}")
            }
            _ => write!(f, "entry {entry} is impossible in its state: {recorded:?}"),
        }
    }
}

impl std::error::Error for Divergence {}

impl Record {
    pub(super) fn new(capacity: usize, base: SchedulerState) -> Self {
        Record { capacity, entries: VecDeque::with_capacity(capacity), base, dropped: 0 }
    }

    pub(super) fn push(&mut self, entry: RecordedEvent) {
        if self.entries.len() == self.capacity {
            let Some(oldest) = self.entries.pop_front() else { return };
            oldest.event.apply(&mut self.base, oldest.at);
            self.dropped += 1;
        }
        self.entries.push_back(entry);
    }

    /// Iterates over the entries, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &RecordedEvent> {
        self.entries.iter()
    }

    /// Number of workers before the oldest entry.
    pub fn workers(&self) -> usize {
        self.base.workers()
    }

    /// Number of entries that were dropped before the oldest one.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Replays the entries: the same events must give the same decisions.
    ///
    /// # Errors
    ///
    /// The first entry whose decision differs, or that is impossible. The record was then modified,
    /// or the rules depend on a value that is not in it.
    pub fn replay(&self) -> Result<(), Divergence> {
        let mut rules = self.base.clone();
        for (entry, recorded) in self.entries.iter().enumerate() {
            if !recorded.event.can_happen(&rules) {
                return Err(Divergence { entry, recorded: *recorded, replayed: None });
            }
            let replayed = recorded.event.apply(&mut rules, recorded.at);
            let agrees = match recorded.event {
                Event::Decided(decision) => replayed == Some(decision),
                _ => true,
            };
            if !agrees {
                return Err(Divergence { entry, recorded: *recorded, replayed });
            }
        }
        Ok(())
    }
}

impl Event {
    /// Returns whether the event is possible in this state. A recorded event always is.
    fn can_happen(&self, rules: &SchedulerState) -> bool {
        let has_worker = |job| rules.job_matches(job, |job| job.running > 0);
        match *self {
            Event::Submitted { job, .. } => rules.serials == job.serial(),
            Event::Taken(job) => rules.may_take_ready(job),
            Event::Ended(Claimant::Loose, _) => rules.loose.running > 0,
            Event::Ended(Claimant::Job(job), _) | Event::SplitMore(job, _) => has_worker(job),
            Event::RanMore { job, take: Take::Split, .. } => has_worker(job),
            Event::RanMore { job, take: Take::Ready, done, failed } => {
                let enough = |job: &ScheduledJob| job.cancelled || job.ready >= done + failed;
                has_worker(job) && rules.job_matches(job, enough)
            }
            // An event of a job that has ended is ignored.
            Event::Ready(job, count) => {
                rules.job_matches(job, |job| job.cancelled || job.waiting >= count)
                    || !rules.job_matches(job, |_| true)
            }
            Event::Unready(job, count) => {
                rules.job_matches(job, |job| job.cancelled || job.ready >= count)
                    || !rules.job_matches(job, |_| true)
            }
            Event::Settled(job, _) => {
                rules.job_matches(job, |job| job.cancelled || job.waiting > 0)
                    || !rules.job_matches(job, |_| true)
            }
            _ => true,
        }
    }

    /// Applies the event to the state; for a decision, decides again.
    fn apply(self, rules: &mut SchedulerState, at: u64) -> Option<Decision> {
        rules.at(at);
        match self {
            Event::Decided(_) => return rules.decide(),
            Event::Submitted { supply, weight, .. } => drop(rules.submit(supply, weight)),
            Event::Taken(job) => drop(rules.take_ready(job)),
            Event::Ended(who, end) => drop(rules.ended(who, end)),
            Event::RanMore { job, take, done, failed } => rules.ran_more(job, take, done, failed),
            Event::SplitMore(job, count) => rules.split_more(job, count),
            Event::Exhausted(job) => drop(rules.exhausted(job)),
            Event::Ready(job, count) => drop(rules.ready(job, count)),
            Event::Unready(job, count) => drop(rules.unready(job, count)),
            Event::Came { job, ready, waiting } => drop(rules.came(job, ready, waiting)),
            Event::Settled(job, failed) => drop(rules.settled(job, failed)),
            Event::Held(job, held) => drop(rules.set_splitter_paused(job, held)),
            Event::Paused(job, paused) => drop(rules.pause(job, paused)),
            Event::Cancelled(job) => drop(rules.cancel(job)),
            Event::Weighed(job, weight) => drop(rules.set_weight(job, weight)),
            Event::LooseReady(ready) => rules.loose_ready(ready),
            Event::Resized(workers) => rules.resize(workers),
            Event::Bounded(most) => rules.set_max_active(most),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{JobScheduler, Rule};

    #[test]
    fn a_record_that_contradicts_the_rules_is_detected() {
        let mut scheduler = JobScheduler::new(2);
        scheduler.record(10);
        scheduler.submit(Supply::Ready(2), 1, 0);
        while scheduler.next(0).is_some() {}
        let mut record = scheduler.recorded().unwrap().clone();
        let Event::Decided(decision) = &mut record.entries[2].event else { panic!("a decision") };
        decision.rule = Rule::Keep;
        let divergence = record.replay().unwrap_err();
        assert_eq!((divergence.entry, divergence.recorded), (2, record.entries[2]));
        assert_eq!(divergence.replayed.unwrap().rule, Rule::Least);
    }
}
