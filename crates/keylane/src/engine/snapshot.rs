//! Takes a snapshot of a running engine, one shard at a time.

use std::hash::BuildHasher;

use super::{Engine, Execute, Key};
use crate::admit::{ByteBound, KeyBound};
use crate::observe::{Histogram, KeySnapshot, Snapshot, WorkerSnapshot};

/// Sums over the shards of an engine, each of which is read at a time of its own.
struct LaneTotals<K> {
    lanes: Vec<KeySnapshot<K>>,
    accepted: u64,
    queued: usize,
    blocked: usize,
    ready: usize,
    kept_turns: usize,
    metered_keys: usize,
}

impl<K> Default for LaneTotals<K> {
    fn default() -> Self {
        let (queued, blocked, ready, kept_turns, metered_keys) = (0, 0, 0, 0, 0);
        let (lanes, accepted) = (Vec::new(), 0);
        LaneTotals { lanes, accepted, queued, blocked, ready, kept_turns, metered_keys }
    }
}

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Returns a snapshot with the `top` longest lanes, and the `top` lanes with the longest wait.
    pub(crate) fn snapshot(&self, top: usize) -> Snapshot<K> {
        let (mut wait_time, mut run_time) = (Histogram::new(), Histogram::new());
        let lanes = self.lane_totals(top, &mut run_time);
        self.admission.release(self.collect());
        let retired = self.workers.add_retired_to(&mut wait_time, &mut run_time);
        let workers = self.workers.map(|id, counters| {
            counters.add_times_to(&mut wait_time, &mut run_time);
            WorkerSnapshot {
                id,
                finished: counters.ran(),
                busy: counters.is_busy(),
                since: counters.since_look(),
                busy_time: counters.worked(),
                asleep_time: counters.slept(),
            }
        });
        let bounds = self.bounds.as_deref();
        let bytes = bounds.and_then(|bounds| bounds.bytes.as_deref());
        let keys = bounds.and_then(|bounds| bounds.keys.as_ref());
        Snapshot {
            poisoned: self.is_poisoned(),
            capacity: self.admission.capacity(),
            capacity_bytes: bytes.map(ByteBound::limit),
            bytes: bytes.map_or(0, ByteBound::in_use),
            submitters_held: keys.map_or(0, KeyBound::blocked),
            metered_keys: lanes.metered_keys,
            unfinished: self.admission.in_use(),
            submitters_waiting: self.admission.waiting() + bytes.map_or(0, ByteBound::waiting),
            accepted: lanes.accepted,
            refused: self.counters.refused(),
            finished: retired + workers.iter().map(|worker| worker.finished).sum::<u64>(),
            panicked: self.counters.panicked(),
            failed: self.counters.failed(),
            cancelled: self.counters.cancelled(),
            retried: self.counters.retried(),
            superseded: self.counters.superseded(),
            delayed: self.delays.len(),
            queued: lanes.queued,
            blocked: lanes.blocked,
            ready: lanes.ready,
            running: workers.iter().filter(|worker| worker.busy).count() + lanes.kept_turns,
            wait_time,
            run_time,
            violations: self.checker.as_ref().map(|checker| checker.violations()),
            workers_wanted: self.workers.wanted(),
            workers_asleep: self.idle.asleep(),
            workers,
            oldest: by_age(lanes.lanes.clone(), top),
            hottest: by_length(lanes.lanes, top),
        }
    }

    fn lane_totals(&self, top: usize, run_time: &mut Histogram) -> LaneTotals<K> {
        let mut totals = LaneTotals::default();
        for shard in &self.shards {
            let order = shard.lanes.lock();
            let inbox = shard.inbox.lock();
            totals.accepted += inbox.accepted;
            totals.metered_keys += order.metered_keys();
            let tasks = order.task_counts(&inbox);
            let counts = if top == 0 { Vec::new() } else { order.counts(&inbox) };
            drop(inbox);
            drop(order);
            let turns = shard.turns.lock();
            totals.kept_turns += turns.count_alone();
            turns.add_times_to(run_time);
            drop(turns);
            totals.queued += tasks.queued;
            totals.blocked += tasks.blocked;
            totals.ready += tasks.ready;
            totals.lanes.extend(counts.into_iter().map(|count| KeySnapshot {
                len: count.tasks,
                head_age: self.clock.since(count.since),
                running: count.running,
                key: count.key,
            }));
            keep_extremes(&mut totals.lanes, top);
        }
        totals
    }
}

/// Drops the lanes that are neither among the `top` longest nor among the `top` oldest.
fn keep_extremes<K: Clone>(lanes: &mut Vec<KeySnapshot<K>>, top: usize) {
    if lanes.len() <= top.saturating_mul(2) {
        return;
    }
    lanes.sort_by(longer);
    let mut rest = lanes.split_off(top);
    rest.sort_by(older);
    rest.truncate(top);
    lanes.append(&mut rest);
}

fn by_length<K>(mut lanes: Vec<KeySnapshot<K>>, top: usize) -> Vec<KeySnapshot<K>> {
    lanes.sort_by(longer);
    lanes.truncate(top);
    lanes
}

fn by_age<K>(mut lanes: Vec<KeySnapshot<K>>, top: usize) -> Vec<KeySnapshot<K>> {
    lanes.sort_by(older);
    lanes.truncate(top);
    lanes
}

fn longer<K>(a: &KeySnapshot<K>, b: &KeySnapshot<K>) -> std::cmp::Ordering {
    b.len.cmp(&a.len).then(b.head_age.cmp(&a.head_age))
}

fn older<K>(a: &KeySnapshot<K>, b: &KeySnapshot<K>) -> std::cmp::Ordering {
    b.head_age.cmp(&a.head_age).then(b.len.cmp(&a.len))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn neither_the_longest_nor_the_oldest_lanes_are_lost_on_the_way() {
        // The longest are the youngest, so that none is among the first by both.
        let lane = |n: u64| KeySnapshot {
            key: n,
            len: n as usize,
            head_age: Duration::from_millis(1000 - n),
            running: false,
        };
        let mut lanes = Vec::new();
        for n in 0..500 {
            lanes.push(lane(n * 7 % 500));
            keep_extremes(&mut lanes, 3);
            assert!(lanes.len() <= 6);
        }
        let keys = |lanes: Vec<KeySnapshot<u64>>| lanes.iter().map(|l| l.key).collect::<Vec<_>>();
        assert_eq!(keys(by_length(lanes.clone(), 3)), [499, 498, 497]);
        assert_eq!(keys(by_age(lanes, 3)), [0, 1, 2]);
    }
}
