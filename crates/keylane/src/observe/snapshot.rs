//! What can be seen of a pool from outside.

use std::time::Duration;

use super::{Histogram, Violations};

/// A pool at a moment, or rather: each part of it at a moment of its own.
///
/// Taking one stops nothing but, for as long as it takes to count them, the tasks of one shard after
/// the other; submitters and workers of the other shards go on.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Snapshot<K> {
    /// The bound on accepted and unfinished tasks.
    pub capacity: usize,
    /// Tasks that were accepted and have not ended. Above `capacity` only by what tasks have
    /// submitted from inside, or after the capacity was lowered.
    pub unfinished: usize,
    /// The bound on what unfinished tasks weigh together, if there is one.
    pub capacity_bytes: Option<usize>,
    /// What they weigh, if there is such a bound.
    pub bytes: usize,
    /// Submitters that wait for their key to have room, and hold nobody else up meanwhile.
    pub submitters_held: usize,
    /// Keys of whose [rate](crate::Builder::rate_per_key) something has been used, and those with a rate of their own.
    pub metered_keys: usize,
    /// Submitters that wait for room, for their task or its bytes.
    pub submitters_waiting: usize,
    /// Tasks that were ever accepted; a rollup counts once for each of its keys, a barrier once for
    /// each shard.
    pub accepted: u64,
    /// Tasks that were not accepted: no room, not in time, too large, or the pool was closed.
    pub refused: u64,
    /// Tasks whose bodies were run by workers, those that panicked or failed among them; a future, or a
    /// message whose turn is kept, counts when it has begun.
    pub finished: u64,
    /// Tasks that panicked.
    pub panicked: u64,
    /// Tasks that returned an error to their handle or job.
    pub failed: u64,
    /// Tasks that were cancelled before they began, and whose place in the line was reached; and futures
    /// that were cancelled while they ran.
    pub cancelled: u64,
    /// Tasks that never ran, because a [later one](crate::Pool::submit_latest) of their key took their
    /// place. They are not among those that are finished.
    pub superseded: u64,
    /// Tasks that no worker has looked at yet, so that nobody knows whether they could start. A rollup
    /// counts once for each of its keys, a barrier once for each shard, here and in what follows.
    pub queued: usize,
    /// Tasks that wait behind another one of their key.
    pub blocked: usize,
    /// Tasks that hold their keys and wait for nothing but a worker.
    pub ready: usize,
    /// Tasks that run: workers that have one, and turns that go on without a worker.
    pub running: usize,
    /// How long tasks waited, from submission, once they were admitted, to the start of the body.
    pub wait_time: Histogram,
    /// How long their bodies ran; where the turn outlived the body, as for a future, how long that lasted.
    /// Subtasks of jobs count here too.
    pub run_time: Histogram,
    /// How often the pool has broken its own promises, which must be never; if it
    /// [checks](crate::Builder::self_check) that.
    pub violations: Option<Violations>,
    /// The pool is [poisoned](crate::SubmitErrorKind::Poisoned).
    pub poisoned: bool,
    /// The number of workers that was asked for.
    pub workers_wanted: usize,
    /// Workers that sleep for want of a ready task.
    pub workers_asleep: usize,
    /// Each worker.
    pub workers: Vec<WorkerSnapshot>,
    /// The keys with the most unfinished tasks, longest lane first.
    pub hottest: Vec<KeySnapshot<K>>,
    /// The keys whose first unfinished task was submitted longest ago, oldest first.
    pub oldest: Vec<KeySnapshot<K>>,
}

/// A worker at a moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct WorkerSnapshot {
    /// Its number, as in the name of its thread.
    pub id: usize,
    /// Tasks that it has run.
    pub finished: u64,
    /// It has a task; else it looks for one, or sleeps.
    pub busy: bool,
    /// How long it has been idle, or on its task. A worker with tiny tasks looks at the clock once
    /// in a while: up to 64 of them count as one.
    pub since: Duration,
    /// How long it has had tasks, in all.
    pub busy_time: Duration,
    /// How long it has slept for want of a task, up to when it last woke.
    pub asleep_time: Duration,
}

/// A key's unfinished tasks at a moment.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct KeySnapshot<K> {
    /// The key.
    pub key: K,
    /// How many tasks, running and waiting. A rollup counts in each of its lanes.
    pub len: usize,
    /// How long ago the first of them was submitted, to within about 10 ms.
    pub head_age: Duration,
    /// The first of them runs, or holds the lane and is about to; else it waits for a worker.
    pub running: bool,
}
