//! Detects whether one task is ordered behind another, directly or through rollups and barriers.
//!
//! Called only by a task that waits for another one, so it may be slow: it enters everything in the
//! inboxes and then follows the lanes, under one shard's lock at a time. The result cannot become
//! outdated: while the caller runs, every task behind it stays behind it, and the target was
//! submitted before the call.

use std::collections::HashMap;
use std::hash::BuildHasher;
use std::sync::Arc;

use super::{Engine, Execute, Key, SharedRollup};
use crate::order::{Lanes, Rollup, RollupScope};
use crate::run::OrderPosition;
use crate::sync::{Backoff, LockGuard, Ordering, yield_now};

/// Point in a lane, or in a conflict index, after which every task is behind the caller.
enum WaitFrontier<K, W> {
    /// After the task that holds the lane.
    Slot { shard: usize, slot: usize },
    /// After this rollup, in the lane of its claim with this index.
    Rollup { rollup: Arc<Rollup<K, W>>, claim: usize },
    /// After this rollup, among the tasks that its descriptor conflicts with.
    ConflictIndex { rollup: Arc<Rollup<K, W>> },
}

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Returns whether a task whose name satisfies `is_it` waits, in the end, for the one at
    /// `position`.
    pub(crate) fn is_behind(
        &self,
        position: &OrderPosition,
        is_it: &dyn Fn(usize) -> bool,
    ) -> bool {
        // The caller may have begun in a shard where the barrier before it has lowered its fence,
        // while other shards still have theirs: there nothing could be entered, and tasks behind
        // the caller would not be seen. While the caller runs, no other barrier does, and the end of
        // that one runs no user code, so this is short.
        while self.ending_barriers.load(Ordering::Acquire) != 0 {
            yield_now();
        }
        self.await_scans();
        self.is_delayed(is_it)
            || self.is_behind_barrier(is_it)
            || self.is_behind_lanes(position, is_it)
    }

    /// Returns whether a target is behind a waiting barrier, which is behind every running task.
    fn is_behind_barrier(&self, is_it: &dyn Fn(usize) -> bool) -> bool {
        let is_target = |work: &X::Work| X::name(work).is_some_and(is_it);
        // A barrier has a fence in every shard, so the first one tells whether there is any.
        if self.entered(0).fence().is_none() {
            return false;
        }
        (0..self.shards.len()).any(|shard| {
            let lanes = self.entered(shard);
            lanes.fence().is_some_and(|barrier| {
                // A running barrier has no work left, and is behind nothing.
                barrier.with_work(|work| work.is_some_and(is_target))
                    || lanes.any_in_backlog(is_target)
                    || self.shards[shard].inbox.lock().any(is_target)
            })
        })
    }

    fn is_behind_lanes(&self, position: &OrderPosition, is_it: &dyn Fn(usize) -> bool) -> bool {
        let is_target = |work: &X::Work| X::name(work).is_some_and(is_it);
        let mut frontiers = self.frontiers_of(position);
        // Keeps the rollups alive, so that no other has the address of one of them.
        let mut seen = HashMap::new();
        while let Some(frontier) = frontiers.pop() {
            let behind = match frontier {
                WaitFrontier::Slot { shard, slot } => {
                    self.entered(shard).behind_slot(slot, is_target)
                }
                WaitFrontier::Rollup { rollup, claim } => {
                    let RollupScope::Keys(claims) = &rollup.scope else { continue };
                    let shard = self.shard_of(claims[claim].hash);
                    self.entered(shard).behind_rollup(&rollup, claim, is_target)
                }
                WaitFrontier::ConflictIndex { rollup } => self.behind_in_index(&rollup, is_target),
            };
            let Some(rollups) = behind else { return true };
            for rollup in rollups {
                let new_frontiers = frontiers_of_rollup(&rollup);
                if seen.insert(Arc::as_ptr(&rollup), rollup).is_none() {
                    frontiers.extend(new_frontiers);
                }
            }
        }
        false
    }

    /// Returns the rollups that wait for this one because of their descriptors, or `None` if the
    /// target does.
    fn behind_in_index(
        &self,
        rollup: &Rollup<K, X::Work>,
        is_target: impl Fn(&X::Work) -> bool,
    ) -> Option<Vec<SharedRollup<K, X::Work>>> {
        let member = rollup.member.as_ref()?;
        let behind = self.registry.lock().behind(member);
        let is_it = |rollup: &SharedRollup<K, X::Work>| {
            rollup.with_work(|work| work.is_some_and(&is_target))
        };
        (!behind.iter().any(is_it)).then_some(behind)
    }

    fn frontiers_of(&self, position: &OrderPosition) -> Vec<WaitFrontier<K, X::Work>> {
        match position {
            OrderPosition::Free => Vec::new(),
            &OrderPosition::Lane { shard, slot } => vec![WaitFrontier::Slot { shard, slot }],
            OrderPosition::Rollup(rollup) => {
                let rollup = rollup.clone().downcast::<Rollup<K, X::Work>>();
                frontiers_of_rollup(&rollup.expect("a worker's tasks are of its own pool"))
            }
        }
    }

    /// Returns a shard's lanes after entering everything that can be entered.
    fn entered(&self, shard: usize) -> LockGuard<'_, Lanes<K, X::Work>> {
        let mut backoff = Backoff::default();
        loop {
            let mut lanes = self.shards[shard].lanes.lock();
            lanes.enter_all();
            if lanes.wants_refill() {
                lanes.refill(&mut self.shards[shard].inbox.lock(), None);
                lanes.enter_all();
            }
            if lanes.has_offer() {
                self.mark_ready(shard);
            }
            if !lanes.is_failing() {
                return lanes;
            }
            // Tasks behind a failed one are entered when its captures are dropped: by this thread,
            // or by another one, whose user code may take its time. That drop must not wait for the
            // caller, as no drop of captures may.
            let (failed, key_panics) = (lanes.take_failed(), lanes.take_key_panics());
            drop(lanes);
            match failed {
                Some(_) => self.end_failed(shard, failed, key_panics),
                None => backoff.pause(),
            }
        }
    }
}

fn frontiers_of_rollup<K: Key, W>(rollup: &Arc<Rollup<K, W>>) -> Vec<WaitFrontier<K, W>> {
    let claims = match &rollup.scope {
        RollupScope::Keys(claims) => claims.len(),
        RollupScope::Unkeyed { .. } | RollupScope::Everything { .. } => 0,
    };
    let lanes = (0..claims).map(|claim| WaitFrontier::Rollup { rollup: rollup.clone(), claim });
    let circle =
        rollup.member.is_some().then(|| WaitFrontier::ConflictIndex { rollup: rollup.clone() });
    lanes.chain(circle).collect()
}
