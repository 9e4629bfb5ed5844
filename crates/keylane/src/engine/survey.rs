//! Looks at a running engine, a shard at a time.

use std::hash::BuildHasher;

use super::{Engine, Execute, Key};
use crate::admit::{ByteBound, KeyBound};
use crate::observe::{LaneSnapshot, Snapshot, WorkerSnapshot};

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// A snapshot with the `hottest` longest lanes.
    pub(crate) fn survey(&self, hottest: usize) -> Snapshot<K> {
        let capacity = self.admission.capacity();
        let mut lanes = Vec::new();
        let mut accepted = 0;
        for shard in &self.shards {
            let order = shard.lanes.lock();
            let inbox = shard.inbox.lock();
            accepted += inbox.accepted;
            let counts = if hottest == 0 { Vec::new() } else { order.census(&inbox) };
            drop(inbox);
            drop(order);
            lanes.extend(counts.into_iter().map(|count| LaneSnapshot {
                len: count.tasks,
                head_age: self.clock.since(count.since),
                running: count.running,
                key: count.key,
            }));
            lanes.sort_by(|a, b| b.len.cmp(&a.len).then(b.head_age.cmp(&a.head_age)));
            lanes.truncate(hottest);
        }
        self.admission.give_back(self.collect());
        let workers = self.crew.survey(|id, tally| WorkerSnapshot {
            id,
            finished: tally.ran(),
            busy: tally.is_busy(),
            since: tally.since_look(),
        });
        let bounds = self.bounds.as_deref();
        let bytes = bounds.and_then(|bounds| bounds.bytes.as_deref());
        let keys = bounds.and_then(|bounds| bounds.keys.as_ref());
        Snapshot {
            capacity,
            capacity_bytes: bytes.map(ByteBound::most),
            bytes: bytes.map_or(0, ByteBound::in_use),
            submitters_held: keys.map_or(0, KeyBound::held),
            unfinished: self.admission.in_use(),
            submitters_waiting: self.admission.waiting() + bytes.map_or(0, ByteBound::waiting),
            accepted,
            panicked: self.tally.panicked() as u64,
            workers_wanted: self.crew.wanted(),
            workers_asleep: self.idle.asleep(),
            workers,
            hottest: lanes,
        }
    }
}
