//! Snapshots of a pool, its workers and its keys.

use std::time::Duration;

use super::{Histogram, Violations};

/// State of a pool. Each part of it is read at a moment of its own.
///
/// A snapshot locks one shard after the other, for as long as it takes to count its tasks;
/// submitters and workers of the other shards continue.
#[derive(Debug)]
#[non_exhaustive]
pub struct Snapshot<K> {
    /// Maximum of accepted and unfinished tasks.
    pub capacity: usize,
    /// Number of accepted and unfinished tasks. Above `capacity` only by tasks submitted from
    /// inside a task, or after the capacity was reduced.
    pub unfinished: usize,
    /// Maximum of the total cost of unfinished tasks, if set.
    pub capacity_bytes: Option<usize>,
    /// Total cost of unfinished tasks, if there is a maximum.
    pub bytes: usize,
    /// Number of submitters that wait for the capacity of a key; they delay no submitters of other
    /// keys.
    pub submitters_held: usize,
    /// Number of keys with a recently used [rate](crate::Builder::rate_per_key), or with a rate of
    /// their own.
    pub metered_keys: usize,
    /// Number of submitters that wait for the capacity of the pool, in tasks or bytes.
    pub submitters_waiting: usize,
    /// Number of tasks ever accepted. A rollup counts once for each of its keys, a barrier once for
    /// each shard.
    pub accepted: u64,
    /// Number of refused tasks: pool full, timed out, too large, or pool closed.
    pub refused: u64,
    /// Number of tasks whose bodies were run by workers, including failed and panicked ones. A
    /// future, or a message whose turn is kept, counts from its start.
    pub finished: u64,
    /// Number of tasks that panicked.
    pub panicked: u64,
    /// Number of tasks that returned an error to their handle or job.
    pub failed: u64,
    /// Number of tasks cancelled before they started, counted when their turn comes; and of futures
    /// cancelled while they ran.
    pub cancelled: u64,
    /// Number of [further attempts](crate::Task::retry) that were scheduled.
    pub retried: u64,
    /// Number of tasks that never ran, because a [later one](crate::Task::latest) of their
    /// key replaced them. Not included in `finished`.
    pub superseded: u64,
    /// Number of tasks whose [delay](crate::Task::after) is not over.
    pub delayed: usize,
    /// Number of tasks that no worker has processed yet, so that it is unknown whether they could
    /// start. A rollup counts once for each of its keys, a barrier once for each shard, here and in
    /// the following fields.
    pub queued: usize,
    /// Number of tasks that wait behind another one of their key.
    pub blocked: usize,
    /// Number of tasks that hold their keys and wait only for a worker.
    pub ready: usize,
    /// Number of running tasks: on workers, and in turns kept without a worker.
    pub running: usize,
    /// Wait times of tasks, from admission to the start of the body.
    pub wait_time: Histogram,
    /// Run times of bodies; where the turn outlived the body, as for a future, the duration of the
    /// turn. Includes subtasks of jobs.
    pub run_time: Histogram,
    /// Broken guarantees of the pool, which must be none; `None` unless the
    /// [self-check](crate::Builder::self_check) is on.
    pub violations: Option<Violations>,
    /// Whether the pool is [poisoned](crate::SubmitErrorKind::Poisoned).
    pub poisoned: bool,
    /// Configured number of workers.
    pub workers_wanted: usize,
    /// Number of workers that sleep because no task is ready.
    pub workers_asleep: usize,
    /// State of each worker.
    pub workers: Vec<WorkerSnapshot>,
    /// Keys with the most unfinished tasks, longest lane first.
    pub hottest: Vec<KeySnapshot<K>>,
    /// Keys whose first unfinished task was submitted longest ago, oldest first.
    pub oldest: Vec<KeySnapshot<K>>,
}

/// State of a worker.
#[derive(Debug)]
#[non_exhaustive]
pub struct WorkerSnapshot {
    /// Number of the worker, as in the name of its thread.
    pub id: usize,
    /// Number of tasks that it has run.
    pub finished: u64,
    /// Whether it runs a task; otherwise it searches for one, or sleeps.
    pub busy: bool,
    /// Time since it became idle, or since it started its task. A worker with short tasks reads the
    /// clock at intervals, so up to 64 of them count as one.
    pub since: Duration,
    /// Total time with tasks.
    pub busy_time: Duration,
    /// Total time asleep, up to the last wake-up.
    pub asleep_time: Duration,
}

/// Unfinished tasks of a key.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KeySnapshot<K> {
    /// Key of the lane.
    pub key: K,
    /// Number of tasks, running and waiting. A rollup counts in each of its lanes.
    pub len: usize,
    /// Age of the first task since its submission, to within about 10 ms.
    pub head_age: Duration,
    /// Whether the first task runs, or holds the lane and is about to; otherwise it waits for a
    /// worker.
    pub running: bool,
}
