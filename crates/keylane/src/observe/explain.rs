//! Explanations of waiting tasks, keys, jobs, submitters and pools.

use std::fmt;
use std::time::Duration;

use super::PauseReason;
use crate::sync::ThreadId;

/// State of a task, with the reason if it waits: see
/// [`Pool::explain_task`](crate::control::Inspector::explain).
///
/// `Display` writes it as a sentence.
#[derive(Debug)]
#[non_exhaustive]
pub struct TaskExplanation<K> {
    /// State of the task.
    pub state: TaskState<K>,
    /// Age of a waiting task since its submission, to within about 10 ms.
    pub age: Option<Duration>,
}

/// State of a task, with the reason if it waits.
#[derive(Debug)]
#[non_exhaustive]
pub enum TaskState<K> {
    /// The task has ended, or will never run.
    Over,
    /// The task is in no lane: a worker has just taken it and is about to run it; or it belongs to
    /// another pool, or was returned when this one was stopped.
    Taken,
    /// The task runs.
    Running(RunInfo),
    /// The task holds all its keys, and waits for a worker.
    Ready {
        /// Number of ready tasks before it in its shard.
        ahead: usize,
    },
    /// The [delay](crate::Task::after) of the task is not over: it has no position in the order.
    Delayed {
        /// Time until its delay is over.
        left: Duration,
    },
    /// No worker has processed the task yet. No conflicting task is before it.
    Queued {
        /// Number of tasks before it in its shard.
        ahead: usize,
    },
    /// The task waits behind others, of these keys.
    Behind(Vec<KeyQueuePosition<K>>),
    /// The keys of the task are free, and it waits for tasks that its descriptor is
    /// [incompatible](crate::Compatibility) with.
    BehindIncompatible,
    /// The task waits for a barrier to end.
    BehindBarrier {
        /// Whether the barrier runs; otherwise it waits too.
        running: bool,
    },
    /// The task is a barrier, and waits for all earlier tasks.
    IsBarrier,
    /// The task waits for the [rate](crate::Builder::rate) of the pool, and then for a worker.
    RateLimited {
        /// Time until the rate permits a start.
        left: Duration,
    },
}

/// Position of a task in the lane of one of its keys.
#[derive(Debug)]
#[non_exhaustive]
pub struct KeyQueuePosition<K> {
    /// The key.
    pub key: K,
    /// Number of tasks of the key that must end first: the position in the lane, the first being 1.
    /// 0 if the key is paused and this task is the next to start.
    pub tasks: usize,
    /// Holder of the key.
    pub holder: KeyHolder<K>,
}

/// What holds a key, or why no task of the key starts.
#[derive(Debug)]
#[non_exhaustive]
pub enum KeyHolder<K> {
    /// Nothing: the key has no unfinished task.
    Idle,
    /// A running task.
    Running(RunInfo),
    /// A task that waits for a worker only.
    Ready,
    /// A task with several keys that waits for these.
    Rollup(Vec<K>),
    /// No task: the key is paused.
    Paused(PauseReason),
    /// No task: no worker has processed the first task of the key yet.
    Unprocessed {
        /// Number of tasks before it in its shard, if known.
        ahead: Option<usize>,
    },
    /// No task: the first task of the key waits for a barrier to end.
    BehindBarrier {
        /// Whether the barrier runs; otherwise it waits too.
        running: bool,
    },
}

/// Worker and duration of a running task.
#[derive(Debug)]
#[non_exhaustive]
pub struct RunInfo {
    /// Number of its worker; `None` for a future or a kept turn.
    pub worker: Option<usize>,
    /// Lower bound of its run time.
    pub at_least: Duration,
    /// Upper bound of its run time. Equal to the lower bound, except for futures and for tasks in a
    /// series of short ones, where a worker reads the clock only once in up to 64 tasks.
    pub at_most: Duration,
    /// Remaining time for which it is marked as idle: see
    /// [`Turn::back_off`](crate::Turn::back_off).
    pub backs_off: Option<Duration>,
    /// Whether it waits inside for another task to end: on its worker's thread and without a
    /// timeout, see [`Handle::wait`](crate::Handle::wait); or its future awaits a handle.
    pub waits: bool,
    /// Whether it waits for itself through others, as far as futures are involved that await
    /// handles. Such a cycle ends only if one of its futures goes on for another reason. It is no
    /// error, because a future can have such a reason; a cycle without futures is.
    ///
    /// Not known of tasks without keys.
    pub in_cycle: bool,
}

/// State of a key, with the reason if its tasks wait: see
/// [`Pool::explain_key`](crate::control::Inspector::explain_key).
///
/// `Display` writes it as a sentence.
#[derive(Debug)]
#[non_exhaustive]
pub struct KeyExplanation<K> {
    /// The key.
    pub key: K,
    /// Number of unfinished tasks.
    pub tasks: usize,
    /// Age of the first of them since its submission, to within about 10 ms.
    pub age: Option<Duration>,
    /// Holder of the key.
    pub holder: KeyHolder<K>,
    /// Reason why no further task starts, if the key is paused.
    pub hold: Option<PauseReason>,
}

/// State of a job, with the reason if it waits: see
/// [`Pool::explain_job`](crate::control::Inspector::explain_job).
#[derive(Debug)]
#[non_exhaustive]
pub enum JobState {
    /// The job has ended, or belongs to another pool.
    Over,
    /// The job is paused.
    Paused,
    /// The maximum of active jobs is reached, and the job waits for one of them to end.
    NotAdmitted {
        /// Number of jobs queued before it.
        ahead: usize,
    },
    /// Some of its subtasks have a worker.
    Running {
        /// Number of workers of the job.
        workers: u64,
        /// Number of further ready subtasks. With one worker and ready subtasks, the other workers
        /// are with jobs that have less to do.
        ready: u64,
    },
    /// Subtasks are ready or can be split, and no worker is free.
    NoWorker,
    /// All subtasks wait for keys, or are futures.
    Waiting {
        /// Number of waiting subtasks.
        subtasks: u64,
    },
}

/// Reasons why a pool does not run more tasks: see
/// [`Pool::explain`](crate::control::Inspector::explain_pool).
///
/// `Display` lists them.
#[derive(Debug)]
#[non_exhaustive]
pub struct PoolExplanation {
    /// All current reasons; empty if every task that could run runs, or is about to.
    pub reasons: Vec<PoolReason>,
}

/// Reason why a pool does not run more tasks.
#[derive(Debug)]
#[non_exhaustive]
pub enum PoolReason {
    /// There is no task to run.
    NothingToDo,
    /// The pool is closed, and accepts no task.
    Closed,
    /// Submitters wait for capacity.
    NoRoom {
        /// Number of waiting submitters.
        waiting: usize,
        /// Number of unfinished tasks.
        unfinished: usize,
        /// Capacity of the pool, in tasks.
        capacity: usize,
    },
    /// Submitters wait for the capacity of their keys.
    KeysFull {
        /// Number of waiting submitters.
        waiting: usize,
    },
    /// Every worker has a task.
    AllWorkersBusy {
        /// Number of workers.
        workers: usize,
        /// Number of tasks that could start, or are not processed yet.
        startable: usize,
    },
    /// Tasks wait behind others of their keys.
    Behind {
        /// Number of waiting tasks.
        tasks: usize,
    },
    /// Keys are [paused or stopped](crate::control::Keys::list_paused).
    KeysPaused {
        /// Number of keys.
        keys: usize,
    },
    /// A barrier runs, or waits for earlier tasks: all later tasks wait.
    Barrier {
        /// Whether the barrier runs.
        running: bool,
    },
    /// Jobs wait to be admitted.
    JobsNotAdmitted {
        /// Number of queued jobs.
        jobs: usize,
    },
    /// The [rate](crate::Builder::rate) of the pool is used up for now.
    RateLimited {
        /// Time until the next task may start.
        left: Duration,
    },
    /// Tasks wait for the [rates](crate::Builder::rate_per_key) of their keys.
    KeysRateLimited {
        /// Number of keys.
        keys: usize,
    },
}

impl RunInfo {
    /// Running task of unknown worker and duration.
    pub(crate) fn unknown() -> Self {
        RunInfo {
            worker: None,
            at_least: Duration::ZERO,
            at_most: Duration::MAX,
            backs_off: None,
            waits: false,
            in_cycle: false,
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
            TaskState::Delayed { left } => write!(f, "delayed for another {left:.1?}"),
            TaskState::Ready { ahead: 0 } => f.write_str("ready, waits for a worker"),
            TaskState::Ready { ahead } => write!(f, "ready, waits for a worker behind {ahead}"),
            TaskState::Queued { ahead } => {
                write!(f, "not processed by a worker yet, {ahead} before it")
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
        if let KeyHolder::Paused(reason) = holder {
            return write!(f, "behind {tasks} of {key:?}, which {reason}");
        }
        write!(f, "behind {tasks} of {key:?}, of which the first {holder}")
    }
}

impl<K: fmt::Debug> fmt::Display for KeyHolder<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            KeyHolder::Idle => f.write_str("has no unfinished tasks"),
            KeyHolder::Running(running) => running.fmt(f),
            KeyHolder::Ready => f.write_str("waits for a worker"),
            KeyHolder::Rollup(keys) => write!(f, "waits for its other keys {keys:?}"),
            KeyHolder::Paused(reason) => reason.fmt(f),
            KeyHolder::Unprocessed { ahead: None } => f.write_str(UNPROCESSED),
            KeyHolder::Unprocessed { ahead: Some(ahead) } => {
                write!(f, "{UNPROCESSED}, {ahead} before it")
            }
            KeyHolder::BehindBarrier { running: true } => f.write_str("waits for a barrier to end"),
            KeyHolder::BehindBarrier { running: false } => {
                f.write_str("waits behind a barrier that waits itself")
            }
        }
    }
}

const UNPROCESSED: &str = "is not processed by a worker yet";

impl fmt::Display for RunInfo {
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
        f.write_str(waits_inside(self.waits, self.in_cycle))
    }
}

/// Returns the end of a sentence about a running task.
fn waits_inside(waits: bool, in_cycle: bool) -> &'static str {
    match (waits, in_cycle) {
        (_, true) => ", and waits for itself through other tasks and futures",
        (true, false) => ", and waits for another task",
        (false, false) => "",
    }
}

impl<K: fmt::Debug> fmt::Display for KeyExplanation<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let KeyExplanation { key, tasks, holder, .. } = self;
        if let KeyHolder::Idle = holder {
            write!(f, "{key:?} {holder}")?;
            return self.hold.map_or(Ok(()), |reason| write!(f, ", and {reason}"));
        }
        let s = if *tasks == 1 { "" } else { "s" };
        write!(f, "{key:?} has {tasks} unfinished task{s}; the first ")?;
        match holder {
            KeyHolder::Paused(reason) => write!(f, "waits, for the key {reason}"),
            holder => holder.fmt(f),
        }?;
        if let Some(age) = self.age {
            write!(f, "; submitted {age:?} ago")?;
        }
        match (holder, self.hold) {
            (KeyHolder::Paused(_), _) | (_, None) => Ok(()),
            (_, Some(reason)) => write!(f, "; the key {reason}"),
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
            return f.write_str("every task that could run runs");
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
            PoolReason::NothingToDo => f.write_str("no task to run"),
            PoolReason::Closed => f.write_str("closed"),
            PoolReason::NoRoom { waiting, unfinished, capacity } => {
                write!(
                    f,
                    "{waiting} submitters wait for capacity: {unfinished} of {capacity} tasks unfinished"
                )
            }
            PoolReason::KeysFull { waiting } => {
                write!(f, "{waiting} submitters wait for the capacity of their keys")
            }
            PoolReason::AllWorkersBusy { workers, startable } => {
                write!(f, "all {workers} workers are busy, {startable} tasks wait for one")
            }
            PoolReason::Behind { tasks } => {
                write!(f, "{tasks} tasks wait behind others of their keys")
            }
            PoolReason::KeysPaused { keys } => write!(f, "{keys} keys are on hold"),
            PoolReason::Barrier { running: true } => f.write_str("a barrier runs"),
            PoolReason::Barrier { running: false } => f.write_str("a barrier waits"),
            PoolReason::JobsNotAdmitted { jobs } => write!(f, "{jobs} jobs wait to be admitted"),
            PoolReason::RateLimited { left } => {
                write!(f, "no task starts for another {left:?}, by the rate of the pool")
            }
            PoolReason::KeysRateLimited { keys } => write!(f, "{keys} keys wait for their rate"),
        }
    }
}

/// Submitter that waits for capacity: see
/// [`Pool::submitters`](crate::control::Inspector::submitters).
///
/// `Display` writes it as a sentence.
#[derive(Debug)]
#[non_exhaustive]
pub struct BlockedSubmitter {
    /// Position in the wait queue; the first is 1.
    pub position: usize,
    /// Number of bytes, if it waits for [these](crate::Builder::capacity_bytes); `None` if it waits
    /// for the [capacity](crate::Builder::capacity) for a task. Each has its own wait queue.
    pub bytes: Option<usize>,
    /// Waiting thread; `None` for a future.
    pub thread: Option<ThreadId>,
    /// Name of the thread, if it has one.
    pub name: Option<String>,
}

impl fmt::Display for BlockedSubmitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.name, self.thread) {
            (Some(name), _) => write!(f, "the thread {name}")?,
            (None, Some(_)) => f.write_str("a thread")?,
            (None, None) => f.write_str("a future")?,
        }
        let position = self.position;
        match self.bytes {
            None => write!(f, " waits for capacity, at position {position}"),
            Some(bytes) => {
                write!(f, " waits for capacity for {bytes} bytes, at position {position}")
            }
        }
    }
}

/// Task that has held its keys for a long time: see
/// [`Pool::stalled`](crate::control::Inspector::stalled).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stalled<K> {
    /// Keys of the task. Empty for a barrier, and for a task or subtask without keys.
    pub keys: Vec<K>,
    /// Whether the task is a barrier, and blocks all others.
    pub is_barrier: bool,
    /// Number of the worker; `None` for a future or a kept turn.
    pub worker: Option<usize>,
    /// Name of the worker's thread.
    pub thread: Option<String>,
    /// Lower bound of the run time.
    pub at_least: Duration,
    /// Whether it waits inside for another task to end: on its worker's thread and without a
    /// timeout, see [`Handle::wait`](crate::Handle::wait); or its future awaits a handle.
    pub waits: bool,
    /// Whether it waits for itself through others, as far as futures are involved that await
    /// handles. Such a cycle ends only if one of its futures goes on for another reason. It is no
    /// error, because a future can have such a reason; a cycle without futures is.
    ///
    /// Not known of tasks without keys.
    pub in_cycle: bool,
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
        f.write_str(waits_inside(self.waits, self.in_cycle))
    }
}
