//! Who got which worker when, by which rule, and what was known then: the last of it, replayable.

mod text;

use std::collections::VecDeque;
use std::fmt;

use super::job::ScheduledJob;
use super::rules::SchedulerState;
use super::{Claimant, Decision, End, JobId, Supply, Take};

pub use text::ParseRecordError;

/// Something that was told to an [`Allocator`](super::Allocator), or that it decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A job came.
    Submitted {
        /// What it is known by.
        job: JobId,
        /// Where its subtasks come from.
        supply: Supply,
        /// What its claim is scaled by.
        weight: u32,
    },
    /// A worker was given to somebody.
    Decided(Decision),
    /// A worker came back.
    Ended(Claimant, End),
    /// A worker ran more than it was given for.
    RanMore {
        /// The job.
        job: JobId,
        /// Where it took them.
        take: Take,
        /// How many ended well.
        done: u64,
        /// How many ended otherwise.
        failed: u64,
    },
    /// The splitter has made so many more than it was asked for.
    SplitMore(JobId, u64),
    /// The splitter is known to have no more.
    Exhausted(JobId),
    /// So many of a job's subtasks stopped waiting, and could start.
    Ready(JobId, u64),
    /// So many of a job's subtasks could have started, and wait again.
    Unready(JobId, u64),
    /// More of a job's subtasks have come.
    Came {
        /// The job.
        job: JobId,
        /// How many could start.
        ready: u64,
        /// How many wait.
        waiting: u64,
    },
    /// A subtask that waited ended without a worker; true if it failed.
    Settled(JobId, bool),
    /// A job's splitter is not to be asked, or may be asked again.
    Held(JobId, bool),
    /// A job was paused, or goes on.
    Paused(JobId, bool),
    /// A job was cancelled.
    Cancelled(JobId),
    /// A job has another weight.
    Weighed(JobId, u32),
    /// Whether there is work outside jobs.
    LooseReady(bool),
    /// There are so many workers.
    Resized(usize),
    /// Rule 2's bound is another.
    Bounded(Option<usize>),
}

/// An event and when it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// When, in the caller's unit.
    pub at: u64,
    /// What.
    pub event: Event,
}

/// The last events of an [`Allocator`](super::Allocator), and how it stood before them.
///
/// The state before the oldest entry is kept by applying each entry to it that is dropped, so that
/// what is left can always be replayed.
///
/// # As text
///
/// [`Display`](fmt::Display) writes a line for each event, after some for the state before them, and
/// [`FromStr`](std::str::FromStr) reads it back; `keylane simulate` does. The first line has the version
/// of the format, 1, and what can be read today will be.
///
/// ```
/// use keylane::allocate::{Allocator, Claimant, End, Record, Supply};
///
/// let mut allocator = Allocator::new(1);
/// allocator.record(100);
/// let job = allocator.submit(Supply::Ready(1), 1, 0);
/// allocator.next(0);
/// allocator.ended(Claimant::Job(job), End::Done, 60);
/// let text = allocator.recorded().unwrap().to_string();
/// assert!(text.ends_with("event at=60 ended who=0/0 end=done\n"));
///
/// let record: Record = text.parse()?;
/// assert_eq!(record.entries().count(), 3);
/// record.replay().unwrap();
/// assert_eq!("keylane record 9".parse::<Record>().unwrap_err().line(), 1);
/// # Ok::<(), keylane::allocate::ParseRecordError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Record {
    capacity: usize,
    entries: VecDeque<Entry>,
    /// How the rules stood before the first of `entries`.
    base: SchedulerState,
    /// Entries that were dropped.
    dropped: u64,
}

/// A replay came to another decision than the record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Divergence {
    /// Which entry, the oldest one of the record being 0.
    pub entry: usize,
    /// What the record says.
    pub recorded: Entry,
    /// What the rules say now: nothing if nobody gets a worker, or if the entry is no decision and cannot
    /// have happened.
    pub replayed: Option<Decision>,
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Divergence { entry, recorded, replayed } = self;
        match (recorded.event, replayed) {
            (Event::Decided(_), Some(replayed)) => {
                write!(f, "entry {entry} was {recorded:?}, and is now {replayed:?}")
            }
            _ => write!(f, "entry {entry} cannot have happened: {recorded:?}"),
        }
    }
}

impl std::error::Error for Divergence {}

impl Record {
    pub(super) fn new(capacity: usize, base: SchedulerState) -> Self {
        Record { capacity, entries: VecDeque::with_capacity(capacity), base, dropped: 0 }
    }

    pub(super) fn note(&mut self, entry: Entry) {
        if self.entries.len() == self.capacity {
            let Some(oldest) = self.entries.pop_front() else { return };
            oldest.event.apply(&mut self.base, oldest.at);
            self.dropped += 1;
        }
        self.entries.push_back(entry);
    }

    /// The entries, oldest first.
    pub fn entries(&self) -> impl DoubleEndedIterator<Item = &Entry> {
        self.entries.iter()
    }

    /// How many workers there were before the oldest entry.
    pub fn workers(&self) -> usize {
        self.base.workers()
    }

    /// How many entries there were before the oldest that is left.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Runs the entries through the rules again: the same events must give the same decisions.
    ///
    /// # Errors
    ///
    /// The first entry where they do not, or that cannot have happened, as with a record that was tampered
    /// with, or rules that depend on something that they are not told.
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
    /// Whether the rules can be told so as they stand. Whoever records them tells them nothing else.
    fn can_happen(&self, rules: &SchedulerState) -> bool {
        let has_worker = |job| rules.is_so(job, |job| job.running > 0);
        match *self {
            Event::Submitted { job, .. } => rules.serials == job.serial(),
            Event::Ended(Claimant::Loose, _) => rules.loose.running > 0,
            Event::Ended(Claimant::Job(job), _) | Event::SplitMore(job, _) => has_worker(job),
            Event::RanMore { job, take: Take::Split, .. } => has_worker(job),
            Event::RanMore { job, take: Take::Ready, done, failed } => {
                let enough = |job: &ScheduledJob| job.cancelled || job.ready >= done + failed;
                has_worker(job) && rules.is_so(job, enough)
            }
            // Told too late, it is forgotten.
            Event::Ready(job, count) => {
                rules.is_so(job, |job| job.cancelled || job.waiting >= count)
                    || !rules.is_so(job, |_| true)
            }
            Event::Unready(job, count) => {
                rules.is_so(job, |job| job.cancelled || job.ready >= count)
                    || !rules.is_so(job, |_| true)
            }
            Event::Settled(job, _) => {
                rules.is_so(job, |job| job.cancelled || job.waiting > 0)
                    || !rules.is_so(job, |_| true)
            }
            _ => true,
        }
    }

    /// Tells the rules again what they were told, or has them decide again.
    fn apply(self, rules: &mut SchedulerState, at: u64) -> Option<Decision> {
        rules.at(at);
        match self {
            Event::Decided(_) => return rules.decide(),
            Event::Submitted { supply, weight, .. } => drop(rules.submit(supply, weight)),
            Event::Ended(who, end) => drop(rules.ended(who, end)),
            Event::RanMore { job, take, done, failed } => rules.ran_more(job, take, done, failed),
            Event::SplitMore(job, count) => rules.split_more(job, count),
            Event::Exhausted(job) => drop(rules.exhausted(job)),
            Event::Ready(job, count) => drop(rules.ready(job, count)),
            Event::Unready(job, count) => drop(rules.unready(job, count)),
            Event::Came { job, ready, waiting } => drop(rules.came(job, ready, waiting)),
            Event::Settled(job, failed) => drop(rules.settled(job, failed)),
            Event::Held(job, held) => drop(rules.hold(job, held)),
            Event::Paused(job, paused) => drop(rules.pause(job, paused)),
            Event::Cancelled(job) => drop(rules.cancel(job)),
            Event::Weighed(job, weight) => drop(rules.reweigh(job, weight)),
            Event::LooseReady(ready) => rules.loose_ready(ready),
            Event::Resized(workers) => rules.resize(workers),
            Event::Bounded(most) => rules.bound(most),
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocate::{Allocator, Rule};

    #[test]
    fn a_record_that_says_something_else_than_the_rules_is_found_out() {
        let mut allocator = Allocator::new(2);
        allocator.record(10);
        allocator.submit(Supply::Ready(2), 1, 0);
        while allocator.next(0).is_some() {}
        let mut record = allocator.recorded().unwrap().clone();
        let Event::Decided(decision) = &mut record.entries[2].event else { panic!("a decision") };
        decision.rule = Rule::Keep;
        let divergence = record.replay().unwrap_err();
        assert_eq!((divergence.entry, divergence.recorded), (2, record.entries[2]));
        assert_eq!(divergence.replayed.unwrap().rule, Rule::Least);
    }
}
