//! Finds tasks that have run for long, and those of them that wait for themselves.

use super::explain::{downcast, keys_of, position_of};
use super::*;
use crate::observe::{StallWatch, Stalled, WorkerPosition};
use crate::run::{OrderPosition, tasks_in_cycles};

/// Identity of a running task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TaskId {
    /// Number of its worker, and the number of tasks that had run there before it.
    OnWorker(usize, u64),
    /// Its shard, the index of its turn there, and its start.
    Kept { shard: usize, turn: usize, began: u64 },
}

/// Shortest time between two checks of a stall watch.
const SHORTEST_INTERVAL: Duration = Duration::from_millis(1);

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> Engine<K, X, S> {
    /// Calls `on_stall` once for each task that runs for at least `than`, until the watch is
    /// dropped.
    pub(crate) fn watch_stalls(
        self: &Arc<Self>,
        than: Duration,
        mut on_stall: impl FnMut(&Stalled<K>) + Send + 'static,
    ) -> std::io::Result<StallWatch> {
        // Weak, so that a watch does not keep its engine alive.
        let engine = Arc::downgrade(self);
        let mut known: Vec<TaskId> = Vec::new();
        let pool = self.settings.thread_name.clone();
        let look = move || {
            let Some(engine) = engine.upgrade() else { return false };
            let stalled = engine.stalled(than);
            drop(engine);
            known.retain(|id| stalled.iter().any(|(its, _)| its == id));
            for (id, stalled) in &stalled {
                if !known.contains(id) {
                    known.push(*id);
                    TraceEvents::stalled(&pool, stalled.thread.as_deref(), stalled.at_least);
                    on_stall(stalled);
                }
            }
            true
        };
        let name = format!("{}-stalls", self.settings.thread_name);
        StallWatch::start(name, (than / 4).max(SHORTEST_INTERVAL), look)
    }
}

/// Stalled task, before it is known whether it is in a cycle of waits.
struct StalledTask<K> {
    id: TaskId,
    position: OrderPosition,
    what: Stalled<K>,
}

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Returns the tasks that have run for at least `than`, the longest first.
    pub(crate) fn stalled(&self, than: Duration) -> Vec<(TaskId, Stalled<K>)> {
        let mut stalled = self.stalled_on_workers(than);
        let turns = self.stalled_turns(than);
        // A worker may have left its task meanwhile, which is then among the turns too.
        let is_turn = |it: &OrderPosition| turns.iter().any(|turn| turn.position.is(it));
        stalled.retain(|one| !is_turn(&one.position));
        stalled.extend(turns);
        // While nothing is locked: each check locks the shards, one at a time.
        let is_stalled = |its: &OrderPosition| stalled.iter().any(|one| one.position.is(its));
        let in_cycles = tasks_in_cycles(self.address(), is_stalled);
        stalled.sort_by_key(|one| std::cmp::Reverse(one.what.at_least));
        let with_cycle = |StalledTask { id, position, what }| {
            let in_cycle = in_cycles.iter().any(|task| task.position.is(&position));
            (id, Stalled { in_cycle, ..what })
        };
        stalled.into_iter().map(with_cycle).collect()
    }

    fn stalled_on_workers(&self, than: Duration) -> Vec<StalledTask<K>> {
        let mut stalled = Vec::new();
        let waiting = self.waiting_workers();
        for (worker, thread, counters) in self.workers.entries() {
            let Some(present) = counters.present().filter(|present| present.at_least >= than)
            else {
                continue;
            };
            let (keys, is_barrier, position) = match present.place {
                WorkerPosition::Free => (Vec::new(), false, OrderPosition::Free),
                WorkerPosition::Lane { shard, slot } => {
                    let lanes = self.shards[shard].lanes.lock();
                    // While the lanes are locked no lane is released; but the task may have ended,
                    // and its worker be about to take the next step.
                    match lanes.key_at(slot) {
                        Some(key) if counters.ran() == present.number => {
                            (vec![key.clone()], false, OrderPosition::Lane { shard, slot })
                        }
                        _ => continue,
                    }
                }
                WorkerPosition::Rollup => {
                    match counters.rollup().and_then(downcast::<K, X::Work>) {
                        Some(rollup) => {
                            let (keys, is_barrier) = keys_of(&rollup.scope);
                            (keys, is_barrier, OrderPosition::Rollup(rollup))
                        }
                        None => continue,
                    }
                }
            };
            let id = TaskId::OnWorker(worker, present.number);
            let waits = waiting.contains(&worker) || self.awaits(&position);
            let (worker, at_least, in_cycle) = (Some(worker), present.at_least, false);
            let what = Stalled { keys, is_barrier, worker, thread, at_least, waits, in_cycle };
            stalled.push(StalledTask { id, position, what });
        }
        stalled
    }

    /// Returns the stalled tasks that no worker runs.
    fn stalled_turns(&self, than: Duration) -> Vec<StalledTask<K>> {
        let mut stalled = Vec::new();
        for (index, shard) in self.shards.iter().enumerate() {
            let lanes = shard.lanes.lock();
            let turns = shard.turns.lock();
            let now = self.clock.nanos();
            for (turn, kept) in turns.alone() {
                let at_least = Duration::from_nanos(now.saturating_sub(kept.began.latest));
                if at_least < than {
                    continue;
                }
                let (keys, is_barrier) = match &kept.held {
                    HeldLanes::Free => (Vec::new(), false),
                    HeldLanes::Lane(slot) => (vec![lanes.key_in(*slot).1.clone()], false),
                    HeldLanes::Rollup(rollup) => keys_of(&rollup.scope),
                };
                let id = TaskId::Kept { shard: index, turn, began: kept.began.latest };
                let position = position_of(index, &kept.held);
                let (worker, thread, waits) = (None, None, self.awaits(&position));
                let in_cycle = false;
                let what = Stalled { keys, is_barrier, worker, thread, at_least, waits, in_cycle };
                stalled.push(StalledTask { id, position, what });
            }
        }
        stalled
    }
}
