//! What the scheduler answers when it is asked how things stand.

use keylane::allocate::Rule;

use super::{KindId, Start, Step};
use crate::{JobNumber, Key};

/// How many of a job's subtasks are in each state. The split and the fan-in are not among them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Wait for the job's time to begin.
    pub scheduled: u64,
    /// Were accepted, and have yet to enter the order: they do in slices.
    pub entering: u64,
    /// Wait for keys.
    pub waiting: u64,
    /// Could start, and wait for a slot.
    pub ready: u64,
    /// Have a slot.
    pub running: u64,
    /// Wait for their next attempt.
    pub backing_off: u64,
    /// Have failed for the last time, and stop their keys.
    pub stopped: u64,
    /// Over, well.
    pub succeeded: u64,
    /// Over, not well.
    pub failed: u64,
    /// Dropped.
    pub cancelled: u64,
}

impl Counts {
    /// Those that are not over.
    #[must_use]
    pub fn unfinished(&self) -> u64 {
        let Counts { scheduled, entering, waiting, ready, running, backing_off, stopped, .. } =
            *self;
        scheduled + entering + waiting + ready + running + backing_off + stopped
    }

    /// All that are known; a split may still make some.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.unfinished() + self.succeeded + self.failed + self.cancelled
    }
}

/// A subtask, or a step, of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepOf {
    /// The job.
    pub job: JobNumber,
    /// What of it.
    pub step: Step,
}

/// How a subtask stands that is not over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Its job has not begun.
    Scheduled {
        /// When that does.
        at: u64,
    },
    /// It waits for keys; or, a fan-in, for the others.
    Waiting,
    /// It could start.
    Ready,
    /// It has a slot.
    Running {
        /// What its end must be reported with.
        fence: u64,
        /// Since when.
        since: u64,
    },
    /// It waits for its next attempt.
    BackingOff {
        /// When that is.
        until: u64,
    },
    /// It has failed for the last time, and stops its keys until it is retried or skipped.
    Stopped,
}

/// Why something waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// Its turn with a key has not come.
    KeyOrder {
        /// The key.
        key: Key,
        /// How many stand before it, counted up to [`Reason::COUNTED`].
        ahead: u32,
        /// Who stands directly before it.
        behind: StepOf,
        /// Who is first.
        head: Head,
    },
    /// Keys: said of a job of which so few wait for keys that none of them was looked at.
    Keys,
    /// A key of it is paused, whether it heads the key or not.
    KeyPaused {
        /// The key.
        key: Key,
    },
    /// A key of it is stopped by one that failed.
    KeyStopped {
        /// The key.
        key: Key,
        /// Who failed.
        head: Head,
    },
    /// All slots are taken, or others come first.
    NoSlot {
        /// Slots that the job has.
        running: u64,
        /// Slots that there are.
        slots: usize,
        /// Jobs that need less and so come first, if not too many had to be looked at.
        ahead: Option<usize>,
    },
    /// The job has not been let in: as many as may are active.
    NotAdmitted {
        /// Jobs that are.
        active: usize,
        /// Jobs that stand before it in the line, if not too many had to be looked at.
        ahead: Option<usize>,
    },
    /// A slot and a place of its kind are free: the next look for something to start finds it.
    Starting,
    /// As many of its kind run as may.
    KindBound {
        /// The kind.
        kind: KindId,
        /// Number of its subtasks that run.
        running: u32,
    },
    /// As many of its kind have begun as may.
    KindRate {
        /// When the next may; `None`: never.
        until: Option<u64>,
    },
    /// It failed, and is tried again then.
    BackingOff {
        /// When that is; of several, the earliest that was seen.
        until: u64,
    },
    /// It failed for the last time, and waits to be retried or skipped.
    Stopped,
    /// Somebody paused the job.
    JobPaused,
    /// The job begins then.
    Scheduled {
        /// When that is.
        until: u64,
    },
    /// It was accepted, and has yet to enter the order, which large jobs do in slices.
    Entering {
        /// Subtasks of other jobs that enter before.
        ahead: u64,
    },
    /// A fan-in waits for the split to end.
    Split,
    /// A fan-in waits for the subtasks.
    Others {
        /// So many.
        left: u64,
    },
    /// Nothing starts any more.
    Draining,
}

impl Reason {
    /// Up to here it is counted how many stand before a subtask.
    pub const COUNTED: u32 = 1000;
}

/// The first of a lane.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What it is.
    pub of: StepOf,
    /// How it stands.
    pub state: State,
    /// Since when it has been first.
    pub since: u64,
    /// How often it was begun.
    pub attempts: u32,
}

/// How a subtask stands, and why it does not run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// How it stands.
    pub state: State,
    /// How often it was begun.
    pub attempts: u32,
    /// All reasons, for keys at most [`Explanation::KEYS`] of them; none if it runs.
    pub reasons: Vec<Reason>,
}

impl Explanation {
    /// So many keys are explained.
    pub const KEYS: usize = 16;
}

/// A reason why some of a job wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Because {
    /// An example of it.
    pub reason: Reason,
    /// How many subtasks wait for that; 0 if it is a step. Of those that wait for keys up to
    /// [`Because::SAMPLE`] are looked at, and stand for the others.
    pub subtasks: u64,
    /// One of them, if one was looked at.
    pub example: Option<Step>,
}

impl Because {
    /// So many subtasks are asked what they wait for.
    pub const SAMPLE: usize = 64;
}

/// Which keys are shown first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeySort {
    /// Those whose first subtask has been that longest.
    HeadAge,
    /// Those with most subtasks. Where very many are nearly as long, one can be missing that is less than
    /// twice as long as those that are shown.
    Length,
}

/// How a key stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyView {
    /// The key.
    pub key: Key,
    /// Its unfinished subtasks.
    pub length: u32,
    /// Somebody paused it.
    pub paused: bool,
    /// Its first subtask; it has stopped the key if its state says so.
    pub head: Option<Head>,
}

/// Something that has a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Running {
    /// As it was started.
    pub start: Start,
    /// When.
    pub since: u64,
}

/// Who got a slot, by which rule, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionView {
    /// When.
    pub at: u64,
    /// What was started, with the rule.
    pub start: Start,
}

impl DecisionView {
    /// By which rule.
    #[must_use]
    pub fn rule(&self) -> Rule {
        self.start.rule
    }
}

/// The slots, and who competes for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slots {
    /// How many there are.
    pub total: usize,
    /// How many are in use.
    pub busy: usize,
    /// Jobs that are admitted, and run or could.
    pub active_jobs: usize,
    /// Jobs that are not over, with the scheduled ones.
    pub unfinished_jobs: usize,
    /// Keys with unfinished subtasks, or paused.
    pub keys: usize,
    /// Jobs that wait for their kind to have a place.
    pub held_jobs: usize,
    /// Nothing starts any more.
    pub draining: bool,
}
