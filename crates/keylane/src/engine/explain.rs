//! Explains on request why a task, a key, a job or the pool waits.
//!
//! No state is kept for this: the functions read the shards, one after the other, each under its
//! locks. A result was true when it was read, and may be outdated when it is used. Innermost locks
//! are the list of the workers, and the turns of a shard.

use std::any::Any;

use keylane_allocate::{JobId, JobProgress};

use super::*;
use crate::observe::{
    BlockedSubmitter, JobState, KeyExplanation, KeyHolder, KeyQueuePosition, PoolExplanation,
    PoolReason, RunInfo, RunningTask, Snapshot, StartRange, TaskExplanation, TaskState,
    WorkerPosition,
};
use crate::order::{AheadCounts, FoundTask, RollupScope};
use crate::run::{OrderPosition, has_soft_wait, soft_waiter, waiting_threads};
use crate::sync::{Thread, ThreadId, identity};

type SharedRollup<K, W> = Arc<Rollup<K, W>>;

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Explains where the task with this name is that has not begun; `None` if it is not found.
    pub(crate) fn explain_waiting(&self, name: usize) -> Option<TaskExplanation<K>> {
        if let Some(left) = self.explain_delay(name) {
            return Some(TaskExplanation { state: TaskState::Delayed { left }, age: None });
        }
        let mut found = self.explain_place(name)?;
        if let TaskState::Ready { .. } | TaskState::Queued { .. } = found.state
            && let Some(left) = self.rates.shut_for()
        {
            found.state = TaskState::RateLimited { left };
        }
        Some(found)
    }

    fn explain_place(&self, name: usize) -> Option<TaskExplanation<K>> {
        let is_target = |work: &X::Work| X::name(work) == Some(name);
        for (index, shard) in self.shards.iter().enumerate() {
            let lanes = shard.lanes.lock();
            let inbox = shard.inbox.lock();
            let Some((found, since)) = lanes.find_task(&inbox, is_target) else { continue };
            let (state, unknown) = match found {
                FoundTask::Ready { ahead } => (TaskState::Ready { ahead }, None),
                FoundTask::Free { before } => (self.queued_behind(before), None),
                FoundTask::Single { before, .. } if before.tasks == 0 && !before.is_paused => {
                    (self.queued_behind(before), None)
                }
                FoundTask::Single { hash, key, before } => {
                    let holder = self.holder(index, &lanes, &inbox, hash, &key);
                    let unknown = holder.is_none().then(|| key.clone());
                    let holder = holder.unwrap_or(KeyHolder::Unprocessed { ahead: None });
                    (
                        TaskState::Behind(vec![KeyQueuePosition {
                            key,
                            tasks: before.tasks,
                            holder,
                        }]),
                        unknown,
                    )
                }
                FoundTask::Several(rollup) => {
                    drop((lanes, inbox));
                    return Some(self.explain_rollup(&rollup));
                }
            };
            drop((lanes, inbox));
            let state = match (state, unknown) {
                (TaskState::Behind(mut lines), Some(key)) => {
                    lines[0].holder = self.rollup_on(&key);
                    TaskState::Behind(lines)
                }
                (state, _) => state,
            };
            return Some(TaskExplanation { state, age: Some(self.clock.since(since)) });
        }
        // A task that waits only for conflicts of its descriptor is in no shard.
        let described = self.registry.lock().tasks();
        let found = described.iter().find(|it| it.with_work(|work| work.is_some_and(is_target)));
        found.map(|rollup| self.explain_rollup(rollup))
    }

    fn explain_rollup(&self, rollup: &SharedRollup<K, X::Work>) -> TaskExplanation<K> {
        let age = Some(self.clock.since(rollup.meta.time));
        let claims = match &rollup.scope {
            RollupScope::Keys(claims) => &**claims,
            RollupScope::Unkeyed { .. } => &[],
            RollupScope::Everything { .. } => {
                return TaskExplanation { state: TaskState::IsBarrier, age };
            }
        };
        let (mut behind, mut queued) = (Vec::new(), AheadCounts::default());
        for (claim, RollupPart { hash, claim: KeyClaim { key, .. }, .. }) in
            claims.iter().enumerate()
        {
            let shard = self.shard_of(*hash);
            let lanes = self.shards[shard].lanes.lock();
            let inbox = self.shards[shard].inbox.lock();
            let before = lanes.before_part(&inbox, rollup, claim);
            queued.entries = queued.entries.max(before.entries);
            queued.barrier |= before.barrier;
            if before.tasks == 0 && !before.is_paused {
                continue;
            }
            let holder = self.holder(shard, &lanes, &inbox, *hash as u32, key);
            drop((lanes, inbox));
            let holder = holder.unwrap_or_else(|| self.rollup_on(key));
            behind.push(KeyQueuePosition { key: key.clone(), tasks: before.tasks, holder });
        }
        let waits_for_others = match &rollup.member {
            Some(member) => self.registry.lock().is_behind(member, |it| Arc::ptr_eq(it, rollup)),
            None => false,
        };
        let state = match behind.is_empty() {
            false => TaskState::Behind(behind),
            true if waits_for_others => TaskState::BehindIncompatible,
            true => self.queued_behind(queued),
        };
        TaskExplanation { state, age }
    }

    /// Returns the state of a task with no earlier task of its keys.
    fn queued_behind(&self, before: AheadCounts) -> TaskState<K> {
        match before.barrier {
            true => TaskState::BehindBarrier { running: self.runs_barrier() },
            false => TaskState::Queued { ahead: before.entries },
        }
    }

    /// Explains the state of a key's tasks.
    pub(crate) fn explain_key(&self, key: &K) -> KeyExplanation<K> {
        let hash = self.hasher.hash_one(key);
        let shard = self.shard_of(hash);
        let lanes = self.shards[shard].lanes.lock();
        let inbox = self.shards[shard].inbox.lock();
        let held = lanes.paused_key(hash as u32, key).and_then(|held| self.describe(held));
        let hold = held.map(|held| held.hold);
        let Some(head) = lanes.head_of(&inbox, hash as u32, key) else {
            let (key, holder) = (key.clone(), KeyHolder::Idle);
            return KeyExplanation { key, tasks: 0, age: None, holder, hold };
        };
        let holder = match head.place {
            Ok(_) => self.holder(shard, &lanes, &inbox, hash as u32, key),
            Err(_) => None,
        };
        drop((lanes, inbox));
        let holder = match (head.place, holder) {
            (Ok(_), Some(holder)) => holder,
            (Ok(_), None) => self.rollup_on(key),
            (Err(AheadCounts { barrier: true, .. }), _) => {
                KeyHolder::BehindBarrier { running: self.runs_barrier() }
            }
            (Err(before), _) => KeyHolder::Unprocessed { ahead: Some(before.entries) },
        };
        let age = Some(self.clock.since(head.since));
        KeyExplanation { key: key.clone(), tasks: head.tasks, age, holder, hold }
    }

    /// Returns the holder of a key, as far as its shard and the running tasks show it. A rollup
    /// that waits for other keys is not found.
    fn holder(
        &self,
        shard: usize,
        lanes: &Lanes<K, X::Work>,
        inbox: &Inbox<K, X::Work>,
        hash: u32,
        key: &K,
    ) -> Option<KeyHolder<K>> {
        let head = lanes.head_of(inbox, hash, key)?;
        if head.is_idle
            && let Some(held) = lanes.paused_key(hash, key).and_then(|held| self.describe(held))
        {
            return Some(KeyHolder::Paused(held.hold));
        }
        let slot = match head.place {
            Ok(slot) => slot,
            Err(before) => return Some(KeyHolder::Unprocessed { ahead: Some(before.entries) }),
        };
        if let Some(running) = self.runs_on(shard, slot, key) {
            return Some(KeyHolder::Running(running));
        }
        let is_ready = |(ready, rollup): (bool, &SharedRollup<K, X::Work>)| {
            ready && has_key(&rollup.scope, key)
        };
        if lanes.is_ready(slot) || lanes.rollups(inbox).any(is_ready) {
            return Some(KeyHolder::Ready);
        }
        None
    }

    /// Returns the running task that holds this lane of this key. The shard's lanes are locked, so
    /// it is not released meanwhile.
    fn runs_on(&self, shard: usize, slot: usize, key: &K) -> Option<RunInfo> {
        let on_a_worker = self.workers.entries().into_iter().find_map(|(id, _, counters)| {
            let present = counters.present()?;
            let is_it = match present.place {
                WorkerPosition::Free => false,
                WorkerPosition::Lane { shard: at, slot: its } => (at, its) == (shard, slot),
                WorkerPosition::Rollup => {
                    let rollup = counters.rollup().and_then(downcast::<K, X::Work>);
                    rollup.is_some_and(|rollup| has_key(&rollup.scope, key))
                }
            };
            is_it.then(|| running(id, self.waiting_workers().contains(&id), &present))
        });
        on_a_worker.or_else(|| {
            self.shards.iter().enumerate().find_map(|(at, shard_at)| {
                let now = self.clock.nanos();
                let turns = shard_at.turns.lock();
                // Includes turns that a worker has just left: the worker may have been checked
                // before.
                let kept = turns.iter().find(|kept| match &kept.held {
                    HeldLanes::Free => false,
                    HeldLanes::Lane(its) => (at, *its) == (shard, slot),
                    HeldLanes::Rollup(rollup) => has_key(&rollup.scope, key),
                })?;
                let waits = self.awaits(&position_of(at, &kept.held));
                Some(RunInfo { waits, ..kept_running(kept.began, kept.resumes_at, now) })
            })
        })
    }

    /// Returns the rollup that holds a key and waits for others of its own, found among the waiting
    /// rollups of all shards.
    fn rollup_on(&self, key: &K) -> KeyHolder<K> {
        let hash = self.hasher.hash_one(key);
        for shard in &self.shards {
            let lanes = shard.lanes.lock();
            let inbox = shard.inbox.lock();
            let has_it =
                |(_, rollup): &(bool, &SharedRollup<K, X::Work>)| has_key(&rollup.scope, key);
            let found: Vec<_> = lanes
                .rollups(&inbox)
                .filter(has_it)
                .map(|(ready, it)| (ready, it.clone()))
                .collect();
            drop((lanes, inbox));
            for (ready, rollup) in found {
                if ready {
                    return KeyHolder::Ready;
                }
                let RollupScope::Keys(claims) = &rollup.scope else { continue };
                let (mut others, mut holds) = (Vec::new(), false);
                for (claim, RollupPart { hash: its_hash, claim: KeyClaim { key: its, .. }, .. }) in
                    claims.iter().enumerate()
                {
                    let shard = &self.shards[self.shard_of(*its_hash)];
                    let lanes = shard.lanes.lock();
                    let inbox = shard.inbox.lock();
                    let free = lanes.holds_part(&inbox, &rollup, claim);
                    drop((lanes, inbox));
                    match free {
                        true => holds |= *its_hash == hash && its == key,
                        false => others.push(its.clone()),
                    }
                }
                if holds {
                    return KeyHolder::Rollup(others);
                }
            }
        }
        // The holder has released the key since it was read.
        KeyHolder::Unprocessed { ahead: None }
    }

    fn runs_barrier(&self) -> bool {
        let is_barrier = |rollup: Arc<dyn Any + Send + Sync>| {
            downcast::<K, X::Work>(rollup).is_some_and(|it| is_barrier(&it.scope))
        };
        let on_a_worker = self.workers.entries().into_iter().any(|(_, _, counters)| {
            counters.present().is_some_and(|present| present.place == WorkerPosition::Rollup)
                && counters.rollup().is_some_and(is_barrier)
        });
        on_a_worker
            || self.shards.iter().any(|shard| {
                let turns = shard.turns.lock();
                turns.iter().any(
                    |kept| matches!(&kept.held, HeldLanes::Rollup(rollup) if is_barrier_of(rollup)),
                )
            })
    }

    /// Returns the numbers of the workers whose tasks wait for other tasks.
    pub(super) fn waiting_workers(&self) -> Vec<usize> {
        let worker = |thread| Some(self.workers.entry_on(thread)?.0);
        waiting_threads().into_iter().filter_map(worker).collect()
    }

    /// Returns whether the running task at this position awaits a handle in a future.
    pub(super) fn awaits(&self, position: &OrderPosition) -> bool {
        has_soft_wait(self.address(), |other| other.is(position))
    }

    /// Returns the address by which waiting tasks name their engine.
    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Explains the state of a running task: of the worker on its thread, or of its future.
    pub(crate) fn explain_running(&self, thread: Option<ThreadId>, name: usize) -> RunInfo {
        let on_a_worker = thread.and_then(|thread| {
            let (id, counters) = self.workers.entry_on(thread)?;
            Some(running(id, self.waiting_workers().contains(&id), &counters.present()?))
        });
        let known = on_a_worker.unwrap_or_else(RunInfo::unknown);
        match soft_waiter(name) {
            Some(waiter) => RunInfo { waits: true, in_cycle: waiter.is_in_cycle(), ..known },
            None => known,
        }
    }

    /// Explains the state of a job.
    pub(crate) fn explain_job(&self, id: JobId) -> JobState {
        let jobs = self.snapshot_jobs();
        let Some(place) = jobs.iter().position(|((its, _), _)| *its == id) else {
            return JobState::Over;
        };
        let waits = |progress: &JobProgress| !progress.admitted && !progress.paused;
        let progress = &jobs[place].1;
        let JobProgress { running, ready, waiting, to_come, .. } = *progress;
        if progress.paused {
            return JobState::Paused;
        }
        if waits(progress) {
            let ahead = jobs[..place].iter().filter(|(_, other)| waits(other)).count();
            return JobState::NotAdmitted { ahead };
        }
        match (running, ready, waiting) {
            (0, 0, subtasks) if subtasks > 0 && to_come == Some(0) => {
                JobState::Waiting { subtasks }
            }
            (0, ..) => JobState::NoWorker,
            (workers, ready, _) => JobState::Running { workers, ready },
        }
    }

    /// Returns the submitters that wait for capacity, each wait queue in its order.
    pub(crate) fn submitters(&self) -> Vec<BlockedSubmitter> {
        let bytes = self.bounds.as_ref().and_then(|bounds| bounds.bytes.as_ref());
        let bytes = bytes.map_or_else(Vec::new, |bytes| bytes.waiters());
        let line = |waiters: Vec<(Option<Thread>, usize)>, is_bytes: bool| {
            waiters.into_iter().enumerate().map(move |(place, (thread, want))| {
                let (thread, name) = thread.as_ref().map_or((None, None), identity);
                let bytes = is_bytes.then_some(want);
                BlockedSubmitter { position: place + 1, bytes, thread, name }
            })
        };
        line(self.admission.waiters(), false).chain(line(bytes, true)).collect()
    }

    /// Explains why the engine does not run more tasks.
    pub(crate) fn explain(&self) -> PoolExplanation {
        let seen: Snapshot<K> = self.snapshot(0);
        let jobs = self.snapshot_jobs();
        let mut reasons = Vec::new();
        if self.admission.is_closed() {
            reasons.push(PoolReason::Closed);
        }
        if seen.unfinished == 0 {
            reasons.push(PoolReason::NothingToDo);
        }
        if seen.submitters_waiting != 0 {
            let Snapshot { unfinished, capacity, .. } = seen;
            let waiting = seen.submitters_waiting;
            reasons.push(PoolReason::NoRoom { waiting, unfinished, capacity });
        }
        if seen.submitters_held != 0 {
            reasons.push(PoolReason::KeysFull { waiting: seen.submitters_held });
        }
        if self.shards.iter().any(|shard| shard.lanes.lock().fence().is_some()) {
            reasons.push(PoolReason::Barrier { running: self.runs_barrier() });
        }
        let (workers, startable) = (seen.workers.len(), seen.ready + seen.queued);
        if startable != 0 && seen.workers.iter().all(|worker| worker.busy) {
            reasons.push(PoolReason::AllWorkersBusy { workers, startable });
        }
        if seen.blocked != 0 {
            reasons.push(PoolReason::Behind { tasks: seen.blocked });
        }
        let (mut on_hold, mut limited) = (0, 0);
        for shard in &self.shards {
            let lanes = shard.lanes.lock();
            on_hold += lanes.paused_keys().filter(|(.., why)| why.is_until_resumed()).count();
            limited += lanes.limited_keys();
        }
        if on_hold != 0 {
            reasons.push(PoolReason::KeysPaused { keys: on_hold });
        }
        if limited != 0 {
            reasons.push(PoolReason::KeysRateLimited { keys: limited });
        }
        if let Some(left) = self.rates.shut_for() {
            reasons.push(PoolReason::RateLimited { left });
        }
        let not_admitted = jobs.iter().filter(|(_, job)| !job.admitted && !job.paused).count();
        if not_admitted != 0 {
            reasons.push(PoolReason::JobsNotAdmitted { jobs: not_admitted });
        }
        PoolExplanation { reasons }
    }
}

fn running(worker: usize, waits: bool, present: &RunningTask) -> RunInfo {
    let RunningTask { at_least, at_most, .. } = *present;
    RunInfo { worker: Some(worker), at_least, at_most, backs_off: None, waits, in_cycle: false }
}

fn kept_running(began: StartRange, resumes_at: u64, now: u64) -> RunInfo {
    let since = |time: u64| Duration::from_nanos(now.saturating_sub(time));
    let backs_off = resumes_at.checked_sub(now).filter(|left| *left != 0).map(Duration::from_nanos);
    RunInfo {
        worker: None,
        at_least: since(began.latest),
        at_most: since(began.earliest),
        backs_off,
        waits: false,
        in_cycle: false,
    }
}

/// Returns the position of a turn that its worker has left.
pub(super) fn position_of<K: Key, W: Send + 'static>(
    shard: usize,
    held: &HeldLanes<K, W>,
) -> OrderPosition {
    match held {
        HeldLanes::Free => OrderPosition::Free,
        HeldLanes::Lane(slot) => OrderPosition::Lane { shard, slot: *slot },
        HeldLanes::Rollup(rollup) => OrderPosition::Rollup(rollup.clone()),
    }
}

pub(super) fn downcast<K: Key, W: Send + 'static>(
    rollup: Arc<dyn Any + Send + Sync>,
) -> Option<SharedRollup<K, W>> {
    rollup.downcast().ok()
}

fn is_barrier<K>(scope: &RollupScope<K>) -> bool {
    matches!(scope, RollupScope::Everything { .. })
}

fn is_barrier_of<K, W>(rollup: &SharedRollup<K, W>) -> bool {
    is_barrier(&rollup.scope)
}

fn has_key<K: Key>(scope: &RollupScope<K>, key: &K) -> bool {
    match scope {
        RollupScope::Unkeyed { .. } | RollupScope::Everything { .. } => false,
        RollupScope::Keys(claims) => claims.iter().any(|part| part.claim.key == *key),
    }
}

pub(super) fn keys_of<K: Key>(scope: &RollupScope<K>) -> (Vec<K>, bool) {
    match scope {
        RollupScope::Unkeyed { .. } => (Vec::new(), false),
        RollupScope::Everything { .. } => (Vec::new(), true),
        RollupScope::Keys(claims) => {
            (claims.iter().map(|part| part.claim.key.clone()).collect(), false)
        }
    }
}
