//! What the rules know of one job: counts, and from them what it offers and what it still needs.

use std::cmp::Ordering;

use super::{End, Take};

/// Where a job's subtasks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Supply {
    /// There are so many, each of which could start now.
    Ready(u64),
    /// They exist, and not all could start now: some stand behind others in the lines of their keys, and
    /// come with [`Allocator::ready`](super::Allocator::ready).
    Lined {
        /// How many could start now.
        ready: u64,
        /// How many wait.
        waiting: u64,
    },
    /// A splitter makes them one by one, when a worker is free for the job. How many it will make
    /// may be known before; if it makes more or fewer, then that holds.
    Split {
        /// How many it is expected to make. A job of which nobody knows how much it needs gets spare
        /// workers after those of which it is known; of several such, the one that has had least.
        expected: Option<u64>,
    },
}

/// How far a job is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Subtasks that ended well.
    pub done: u64,
    /// Subtasks that ended otherwise.
    pub failed: u64,
    /// Subtasks that have a worker, and workers that ask the splitter for one.
    pub running: u64,
    /// Subtasks that could start now.
    pub ready: u64,
    /// Subtasks that exist, and can neither start now nor run: they wait for keys, for their next
    /// attempt, or for a future.
    pub waiting: u64,
    /// Subtasks that the splitter is expected to make, if that is known.
    pub to_come: Option<u64>,
    /// Whether the job has been admitted: until then it has no worker, and is not split.
    pub admitted: bool,
    /// Whether it is paused.
    pub paused: bool,
}

impl Progress {
    /// That of a job without subtasks.
    pub(crate) fn none() -> Self {
        Progress {
            done: 0,
            failed: 0,
            running: 0,
            ready: 0,
            waiting: 0,
            to_come: Some(0),
            admitted: false,
            paused: false,
        }
    }

    /// How many subtasks there are in all, if that is known.
    pub fn total(&self) -> Option<u64> {
        Some(self.requirement()? + self.done + self.failed)
    }

    /// How many subtasks must end until the job is over, if that is known: the article's
    /// `threadRequirement`. Those that run count.
    pub fn requirement(&self) -> Option<u64> {
        Some(self.to_come? + self.running + self.ready + self.waiting)
    }
}

/// What a splitter can still make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Splitter {
    /// Nothing.
    Closed,
    /// So many, if that is known. Zero still means that it must be asked once more.
    Open(Option<u64>),
}

/// A time, and a number that tells what was at the same time apart.
pub(super) type Since = (u64, u64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScheduledJob {
    /// Its place in the order of submission, which is its age.
    pub(super) serial: u64,
    pub(super) weight: u32,
    pub(super) splitter: Splitter,
    /// The caller has as many waiting subtasks of this job as it wants: it is not split meanwhile.
    pub(super) held: bool,
    pub(super) ready: u64,
    pub(super) running: u64,
    pub(super) waiting: u64,
    pub(super) done: u64,
    pub(super) failed: u64,
    pub(super) admitted: bool,
    pub(super) paused: bool,
    pub(super) cancelled: bool,
    /// When it was submitted.
    pub(super) arrival: u64,
    /// While it is admitted, offers something and has no worker: since when, and its place among
    /// those of whom that is true.
    pub(super) needs_since: Option<Since>,
    /// While it is admitted, offers something and has at most one worker: since when.
    pub(super) held_down_since: Option<u64>,
}

impl ScheduledJob {
    pub(super) fn new(serial: u64, supply: Supply, weight: u32, arrival: u64) -> Self {
        let (ready, waiting, splitter) = match supply {
            Supply::Ready(count) => (count, 0, Splitter::Closed),
            Supply::Lined { ready, waiting } => (ready, waiting, Splitter::Closed),
            Supply::Split { expected } => (0, 0, Splitter::Open(expected)),
        };
        ScheduledJob {
            serial,
            weight,
            splitter,
            held: false,
            ready,
            running: 0,
            waiting,
            done: 0,
            failed: 0,
            admitted: false,
            paused: false,
            cancelled: false,
            arrival,
            needs_since: None,
            held_down_since: None,
        }
    }

    /// Whether a free worker would find something to do here.
    pub(super) fn offers(&self) -> bool {
        !self.paused && (self.ready > 0 || self.splitter != Splitter::Closed && !self.held)
    }

    /// Whether it stands between another job and rule 2's bound. One that is paused, or whose
    /// subtasks all wait, uses no worker and has no use for one, and so keeps nobody out.
    pub(super) fn counts_as_active(&self) -> bool {
        self.admitted && (self.running > 0 || self.offers())
    }

    pub(super) fn is_over(&self) -> bool {
        self.splitter == Splitter::Closed && self.ready + self.running + self.waiting == 0
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            done: self.done,
            failed: self.failed,
            running: self.running,
            ready: self.ready,
            waiting: self.waiting,
            to_come: match self.splitter {
                Splitter::Closed => Some(0),
                Splitter::Open(expected) => expected,
            },
            admitted: self.admitted,
            paused: self.paused,
        }
    }

    pub(super) fn rank(&self) -> Rank {
        let requirement = self.progress().requirement();
        let had = self.done + self.failed + self.running;
        Rank { requirement, had, weight: self.weight, serial: self.serial }
    }

    /// A worker begins here. What is ready goes first: it was split before what is still to come,
    /// and somebody may wait for its keys.
    pub(super) fn start(&mut self) -> Take {
        self.admitted = true;
        self.running += 1;
        if self.ready > 0 {
            self.ready -= 1;
            return Take::Ready;
        }
        self.split(1);
        Take::Split
    }

    /// So many have come from the splitter.
    fn split(&mut self, count: u64) {
        if let Splitter::Open(Some(expected)) = &mut self.splitter {
            *expected = expected.saturating_sub(count);
        }
    }

    /// The worker that splits has made so many more.
    pub(super) fn split_more(&mut self, count: u64) {
        assert!(self.running > 0, "job {} has no worker that could split", self.serial);
        if !self.cancelled {
            self.split(count);
            self.ready += count;
        }
    }

    /// A worker ends here.
    pub(super) fn end(&mut self, end: End) {
        assert!(self.running > 0, "job {} has no worker that could end", self.serial);
        self.running -= 1;
        match end {
            End::Done => self.done += 1,
            End::Failed => self.failed += 1,
            // What waits in a cancelled job is not waited for.
            End::Waits => self.waiting += u64::from(!self.cancelled),
            End::Nothing => self.splitter = Splitter::Closed,
        }
    }

    /// A worker that is here has run more than the one subtask that it was given for.
    pub(super) fn ran_more(&mut self, take: Take, done: u64, failed: u64) {
        assert!(self.running > 0, "job {} has no worker that could have run more", self.serial);
        match take {
            // A cancelled job has nothing ready any more, and what a worker took before it knew.
            Take::Ready if self.cancelled => {}
            Take::Ready => {
                assert!(self.ready >= done + failed, "job {} had too few ready", self.serial);
                self.ready -= done + failed;
            }
            Take::Split => self.split(done + failed),
        }
        self.done += done;
        self.failed += failed;
    }

    /// So many more have come, from the splitter if it is open.
    pub(super) fn come(&mut self, ready: u64, waiting: u64) {
        self.split(ready + waiting);
        self.ready += ready;
        self.waiting += waiting;
    }

    pub(super) fn become_ready(&mut self, count: u64) {
        self.leave_waiting(count);
        self.ready += count;
    }

    pub(super) fn wait_again(&mut self, count: u64) {
        assert!(self.ready >= count, "job {} has too few that are ready", self.serial);
        self.ready -= count;
        self.waiting += count;
    }

    pub(super) fn settle(&mut self, failed: bool) {
        self.leave_waiting(1);
        if failed {
            self.failed += 1;
        } else {
            self.done += 1;
        }
    }

    fn leave_waiting(&mut self, count: u64) {
        assert!(self.waiting >= count, "job {} has too few that wait", self.serial);
        self.waiting -= count;
    }

    /// Nothing begins any more; the job is over when what runs has ended.
    pub(super) fn cancel(&mut self) {
        self.cancelled = true;
        self.ready = 0;
        self.waiting = 0;
        self.splitter = Splitter::Closed;
    }
}

/// Who gets spare workers first: the least requirement for its weight; of those of whom nobody knows it,
/// who has had the least for its weight, which is as good a guess as there is where most jobs are small and
/// a few huge, and lets two endless ones share (least attained service: Nuyens and Wierman, "The
/// foreground-background queue: a survey", 2008). Then the older.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rank {
    requirement: Option<u64>,
    /// Subtasks that have begun, and do not wait.
    had: u64,
    weight: u32,
    serial: u64,
}

impl Ord for Rank {
    fn cmp(&self, other: &Self) -> Ordering {
        // mine / weight against others / weight, without rounding.
        let compare = |mine: u64, others: u64| {
            let mine = u128::from(mine) * u128::from(other.weight);
            mine.cmp(&(u128::from(others) * u128::from(self.weight)))
        };
        let by_need = match (self.requirement, other.requirement) {
            (Some(mine), Some(others)) => compare(mine, others),
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (None, None) => compare(self.had, other.had),
        };
        by_need.then(self.serial.cmp(&other.serial))
    }
}

impl PartialOrd for Rank {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}
