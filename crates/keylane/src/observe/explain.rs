//! Why something waits, and what it waits for: the answers.

use std::fmt;
use std::time::Duration;

use super::PauseReason;
use crate::sync::ThreadId;

/// What a task does, or why it waits: see [`Pool::explain_task`](crate::control::Inspector::explain).
///
/// Its `Display` says so in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskExplanation<K> {
    /// What it does, or why it waits.
    pub state: TaskState<K>,
    /// How long ago it was submitted, to within about 10 ms, while it waits.
    pub age: Option<Duration>,
}

/// What a task does, or why it waits.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TaskState<K> {
    /// It has ended, or will never run.
    Over,
    /// It is in no line: a worker has just taken it, and is about to run it; or it is a task of another
    /// pool, or one that was returned when this one was stopped.
    Taken,
    /// It runs.
    Running(Running),
    /// It holds all its keys, and waits for a worker.
    Ready {
        /// So many that are ready stand before it, in its part of the keys.
        ahead: usize,
    },
    /// No worker has looked at it yet. Nothing that it conflicts with stands before it.
    Queued {
        /// So many tasks stand before it, in its part of the keys.
        ahead: usize,
    },
    /// It waits behind others of its keys: those keys where somebody is before it.
    Behind(Vec<KeyQueuePosition<K>>),
    /// Its keys are free, and it waits for tasks that its descriptor is
    /// [incompatible](crate::Compatibility) with.
    BehindIncompatible,
    /// It waits for a barrier to end.
    BehindBarrier {
        /// The barrier runs; else that one waits, too.
        running: bool,
    },
    /// It is a barrier, and waits for what was submitted before it.
    IsBarrier,
    /// It waits until tasks of the pool [may begin](crate::Builder::rate) again, and then for a worker.
    RateLimited {
        /// The time until then.
        left: Duration,
    },
}

/// Who stands before a task in the lane of one of its keys.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyQueuePosition<K> {
    /// The key.
    pub key: K,
    /// How many tasks of the key must end before it: its position in the line, the first being 1. None if
    /// the key is on hold and it is the first to go on.
    pub tasks: usize,
    /// Who has the key.
    pub holder: Holder<K>,
}

/// Who has a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Holder<K> {
    /// A task that runs.
    Running(Running),
    /// A task that waits for a worker only.
    Ready,
    /// A task with several keys that waits for others of them: these.
    Rollup(Vec<K>),
    /// No task: the key is on hold.
    OnHold(PauseReason),
    /// Nobody: no worker has looked at the first task of the key yet.
    Nobody,
}

/// Where and for how long something runs.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Running {
    /// The number of its worker; none if it is a future, or its turn was kept.
    pub worker: Option<usize>,
    /// It has run for no less than this,
    pub at_least: Duration,
    /// and for no more than this. The two are equal, but for tasks that come in a row of tiny ones, where
    /// a worker looks at the clock only once in up to 64 tasks, and for futures.
    pub at_most: Duration,
    /// Nothing is done in it for so long: see [`Turn::back_off`](crate::Turn::back_off).
    pub backs_off: Option<Duration>,
    /// It waits inside, on its worker's thread and without a timeout, for another task to end: see
    /// [`Handle::wait`](crate::Handle::wait).
    pub waits: bool,
}

/// What the tasks of a key do, or why they wait: see [`Pool::explain_key`](crate::control::Inspector::explain_key).
///
/// Its `Display` says so in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct KeyExplanation<K> {
    /// The key.
    pub key: K,
    /// How many unfinished tasks it has.
    pub tasks: usize,
    /// How long ago the first of them was submitted, to within about 10 ms.
    pub age: Option<Duration>,
    /// What is with the first of them.
    pub state: KeyState<K>,
    /// Why nothing more of it begins, if that is so.
    pub hold: Option<PauseReason>,
}

/// What is with the first task of a key.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyState<K> {
    /// There is none.
    Idle,
    /// Somebody has the key.
    Held(Holder<K>),
    /// No worker has looked at it yet.
    Queued {
        /// So many tasks stand before it, in its part of the keys.
        ahead: usize,
    },
    /// It waits for a barrier to end.
    BehindBarrier {
        /// The barrier runs; else that one waits, too.
        running: bool,
    },
}

/// Why a job is where it is: see [`Pool::explain_job`](crate::control::Inspector::explain_job).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum JobState {
    /// It is over, or not of this pool.
    Over,
    /// It is paused.
    Paused,
    /// As many jobs as may be active are, and it waits for one of them to end.
    NotAdmitted {
        /// So many wait that came before it.
        ahead: usize,
    },
    /// So many of its subtasks have a worker.
    Running {
        /// How many.
        workers: u64,
        /// How many more could start now. With one worker and some that could, the others are with jobs
        /// that have less to do.
        ready: u64,
    },
    /// Subtasks could start now, or be split, and no worker is free.
    NoWorker,
    /// All its subtasks wait: for their keys, or as futures.
    Waiting {
        /// How many.
        subtasks: u64,
    },
}

/// Why a pool does not do more than it does: see [`Pool::explain`](crate::control::Inspector::explain_pool).
///
/// Its `Display` lists the reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PoolExplanation {
    /// All that holds; nothing, if whatever could run runs, or is about to.
    pub reasons: Vec<PoolReason>,
}

/// One of the things that keep a pool from doing more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PoolReason {
    /// There is nothing to do.
    NothingToDo,
    /// It is closed, and accepts nothing more.
    Closed,
    /// Submitters wait for room.
    NoRoom {
        /// So many submitters,
        waiting: usize,
        /// for there are so many unfinished tasks,
        unfinished: usize,
        /// and room for so many.
        capacity: usize,
    },
    /// Submitters wait for their keys to have room.
    KeysFull {
        /// So many.
        waiting: usize,
    },
    /// Every worker has a task.
    AllWorkersBusy {
        /// So many are there.
        workers: usize,
        /// So many tasks could start, or have not been looked at.
        startable: usize,
    },
    /// Tasks wait behind others of their keys.
    Behind {
        /// So many.
        tasks: usize,
    },
    /// Keys are [on hold](crate::control::Keys::list_paused), paused or stopped.
    OnHold {
        /// So many.
        keys: usize,
    },
    /// A barrier runs, or waits for what is before it: everything after it waits.
    Barrier {
        /// It runs.
        running: bool,
    },
    /// Jobs wait to be admitted.
    JobsNotAdmitted {
        /// So many.
        jobs: usize,
    },
    /// As many tasks have begun as its [rate](crate::Builder::rate) allows for now.
    RateLimited {
        /// The time until the next may begin.
        left: Duration,
    },
    /// Tasks wait for the [rates](crate::Builder::rate_per_key) of their keys.
    KeysRateLimited {
        /// So many keys.
        keys: usize,
    },
}

impl Running {
    /// Nobody knows where, nor since when.
    pub(crate) fn unknown() -> Self {
        Running {
            worker: None,
            at_least: Duration::ZERO,
            at_most: Duration::MAX,
            backs_off: None,
            waits: false,
        }
    }
}

impl<K: fmt::Debug> fmt::Display for TaskExplanation<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state.fmt(f)?;
        match self.age {
            Some(age) => write!(f, "; submitted {age:?} ago"),
            None => Ok(()),
        }
    }
}

impl<K: fmt::Debug> fmt::Display for TaskState<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TaskState::Over => f.write_str("over"),
            TaskState::Taken => f.write_str("taken by a worker"),
            TaskState::Running(running) => running.fmt(f),
            TaskState::Ready { ahead: 0 } => f.write_str("ready, waits for a worker"),
            TaskState::Ready { ahead } => write!(f, "ready, waits for a worker behind {ahead}"),
            TaskState::Queued { ahead } => {
                write!(f, "waits for a worker to look at it, {ahead} before it")
            }
            TaskState::Behind(lines) => {
                for (number, line) in lines.iter().enumerate() {
                    f.write_str(if number == 0 { "" } else { "; and " })?;
                    line.fmt(f)?;
                }
                Ok(())
            }
            TaskState::BehindIncompatible => {
                f.write_str("waits for tasks that it is incompatible with")
            }
            TaskState::BehindBarrier { running: true } => f.write_str("waits for a barrier to end"),
            TaskState::BehindBarrier { running: false } => {
                f.write_str("waits behind a barrier that waits itself")
            }
            TaskState::IsBarrier => f.write_str("a barrier that waits for all before it"),
            TaskState::RateLimited { left } => {
                write!(f, "waits for a worker, and for the pool's rate for another {left:?}")
            }
        }
    }
}

impl<K: fmt::Debug> fmt::Display for KeyQueuePosition<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KeyQueuePosition { key, tasks, holder } = self;
        if *tasks == 0 {
            return write!(f, "the next of {key:?}, which {holder}");
        }
        if let Holder::OnHold(hold) = holder {
            return write!(f, "behind {tasks} of {key:?}, which {hold}");
        }
        write!(f, "behind {tasks} of {key:?}, of which the first {holder}")
    }
}

impl<K: fmt::Debug> fmt::Display for Holder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Holder::Running(running) => running.fmt(f),
            Holder::Ready => f.write_str("waits for a worker"),
            Holder::Rollup(keys) => write!(f, "waits for its other keys {keys:?}"),
            Holder::OnHold(hold) => hold.fmt(f),
            Holder::Nobody => f.write_str("waits for a worker to look at it"),
        }
    }
}

impl fmt::Display for Running {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.worker, self.backs_off) {
            (Some(worker), _) => write!(f, "runs on worker {worker}")?,
            (None, Some(left)) => {
                return write!(
                    f,
                    "backs off for another {left:?}, has its keys for {:?}",
                    self.at_most
                );
            }
            (None, None) => f.write_str("runs without a worker")?,
        }
        match self.at_least == self.at_most {
            true => write!(f, " for {:?}", self.at_most)?,
            false if self.at_most == Duration::MAX => {}
            false => write!(f, " for {:?} at the most", self.at_most)?,
        }
        f.write_str(if self.waits { ", and waits for another task" } else { "" })
    }
}

impl<K: fmt::Debug> fmt::Display for KeyExplanation<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KeyExplanation { key, tasks, .. } = self;
        if let KeyState::Idle = self.state {
            write!(f, "{key:?} has no unfinished tasks")?;
            return self.hold.map_or(Ok(()), |hold| write!(f, ", and {hold}"));
        }
        let s = if *tasks == 1 { "" } else { "s" };
        write!(f, "{key:?} has {tasks} unfinished task{s}; the first ")?;
        match &self.state {
            KeyState::Idle => Ok(()),
            KeyState::Held(Holder::OnHold(hold)) => write!(f, "waits, for the key {hold}"),
            KeyState::Held(holder) => holder.fmt(f),
            KeyState::Queued { ahead } => {
                write!(f, "waits for a worker to look at it, {ahead} before it")
            }
            KeyState::BehindBarrier { running: true } => f.write_str("waits for a barrier to end"),
            KeyState::BehindBarrier { running: false } => {
                f.write_str("waits behind a barrier that waits itself")
            }
        }?;
        if let Some(age) = self.age {
            write!(f, "; submitted {age:?} ago")?;
        }
        match (&self.state, self.hold) {
            (KeyState::Held(Holder::OnHold(_)), _) | (_, None) => Ok(()),
            (_, Some(hold)) => write!(f, "; the key {hold}"),
        }
    }
}

impl fmt::Display for JobState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JobState::Over => f.write_str("over"),
            JobState::Paused => f.write_str("paused"),
            JobState::NotAdmitted { ahead } => write!(f, "waits to be admitted, {ahead} before it"),
            JobState::Running { workers: 1, ready } if *ready > 0 => {
                write!(f, "has one worker; {ready} more subtasks could start")
            }
            JobState::Running { workers, .. } => write!(f, "has {workers} of the workers"),
            JobState::NoWorker => f.write_str("waits for a worker"),
            JobState::Waiting { subtasks } => {
                write!(f, "its {subtasks} subtasks wait for keys, or are futures")
            }
        }
    }
}

impl fmt::Display for PoolExplanation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.reasons.is_empty() {
            return f.write_str("nothing keeps it from doing more");
        }
        for (number, reason) in self.reasons.iter().enumerate() {
            f.write_str(if number == 0 { "" } else { "; " })?;
            reason.fmt(f)?;
        }
        Ok(())
    }
}

impl fmt::Display for PoolReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PoolReason::NothingToDo => f.write_str("there is nothing to do"),
            PoolReason::Closed => f.write_str("closed"),
            PoolReason::NoRoom { waiting, unfinished, capacity } => {
                write!(f, "{waiting} wait for room: {unfinished} of {capacity} unfinished")
            }
            PoolReason::KeysFull { waiting } => write!(f, "{waiting} wait for room at their keys"),
            PoolReason::AllWorkersBusy { workers, startable } => {
                write!(f, "all {workers} workers are busy, {startable} tasks wait for one")
            }
            PoolReason::Behind { tasks } => {
                write!(f, "{tasks} tasks wait behind others of their keys")
            }
            PoolReason::OnHold { keys } => write!(f, "{keys} keys are on hold"),
            PoolReason::Barrier { running: true } => f.write_str("a barrier runs"),
            PoolReason::Barrier { running: false } => f.write_str("a barrier waits"),
            PoolReason::JobsNotAdmitted { jobs } => write!(f, "{jobs} jobs wait to be admitted"),
            PoolReason::RateLimited { left } => {
                write!(f, "nothing begins for another {left:?}, for its rate")
            }
            PoolReason::KeysRateLimited { keys } => write!(f, "{keys} keys wait for their rate"),
        }
    }
}

/// Somebody who waits to submit a task: see [`Pool::submitters`](crate::control::Inspector::submitters).
///
/// Its `Display` says so in a sentence.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockedSubmitter {
    /// Its place in the line, the first being 1.
    pub position: usize,
    /// What it waits for, which is what the line is for.
    pub waits_for: CapacityKind,
    /// The thread that waits; none if it is a future.
    pub thread: Option<ThreadId>,
    /// What the thread is called, if it is called anything.
    pub name: Option<String>,
}

/// What a submitter waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CapacityKind {
    /// Room for one more task: see [`Builder::capacity`](crate::Builder::capacity).
    Task,
    /// Room for so many bytes: see [`Builder::capacity_bytes`](crate::Builder::capacity_bytes).
    Bytes(usize),
}

impl fmt::Display for BlockedSubmitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, self.thread) {
            (Some(name), _) => write!(f, "the thread {name}")?,
            (None, Some(_)) => f.write_str("a thread")?,
            (None, None) => f.write_str("a future")?,
        }
        let position = self.position;
        match self.waits_for {
            CapacityKind::Task => write!(f, " waits for room, at position {position}"),
            CapacityKind::Bytes(bytes) => {
                write!(f, " waits for room for {bytes} bytes, at position {position}")
            }
        }
    }
}

/// A task that has held its keys for long: see [`Pool::stalled`](crate::control::Inspector::stalled).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stalled<K> {
    /// Its keys. A task without keys has none, nor has a barrier or a subtask that needs none.
    pub keys: Vec<K>,
    /// It is a barrier, and holds everything up.
    pub is_barrier: bool,
    /// The worker's number; none if it is a future, or its turn was kept.
    pub worker: Option<usize>,
    /// The name of the worker's thread.
    pub thread: Option<String>,
    /// It has run for this long, or longer.
    pub at_least: Duration,
    /// It waits inside, on its worker's thread and without a timeout, for another task to end: see
    /// [`Handle::wait`](crate::Handle::wait).
    pub waits: bool,
}

impl<K: fmt::Debug> fmt::Display for Stalled<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.is_barrier, self.keys.len()) {
            (true, _) => f.write_str("a barrier")?,
            (_, 0) => f.write_str("a task without keys")?,
            (_, 1) => write!(f, "a task of {:?}", self.keys[0])?,
            _ => write!(f, "a task of {:?}", self.keys)?,
        }
        write!(f, " has run for {:?}", self.at_least)?;
        match &self.thread {
            Some(thread) => write!(f, " on the thread {thread}")?,
            None => f.write_str(" without a worker")?,
        }
        f.write_str(if self.waits { ", and waits for another task" } else { "" })
    }
}
