//! Counts the unfinished tasks of a shard, by key and by state.

use super::*;

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Counts the unfinished tasks of every key, here and in the inbox. A rollup counts in each
    /// lane.
    pub(crate) fn counts(&self, inbox: &Inbox<K, W>) -> Vec<KeyCount<K>> {
        let mut counts: Vec<KeyCount<K>> = Vec::new();
        let mut index: HashTable<usize> = HashTable::new();
        let mut count = |hash: u32, key: &K, tasks: usize, since: u32, running: bool| {
            let found = index.find(spread(hash), |&at| counts[at].key == *key).copied();
            let Some(at) = found else {
                counts.push(KeyCount { key: key.clone(), hash, tasks, since, running });
                let at = counts.len() - 1;
                index.insert_unique(spread(hash), at, |&at| spread(counts[at].hash));
                return;
            };
            counts[at].tasks += tasks;
        };
        for lane in &self.lanes {
            if let Some(key) = &lane.key {
                let tasks = lane.tasks();
                if tasks != 0 {
                    let (since, running) = match lane.holders {
                        LaneHolders::PauseMarker => {
                            let first = lane.waiting.iter().find(|waiting| waiting.is_task());
                            (first.map_or(lane.since, LaneEntry::time), false)
                        }
                        _ => (lane.since, true),
                    };
                    count(lane.hash, key, tasks, since, running);
                }
            }
        }
        for entry in self.backlog.iter().chain(inbox.queue.iter()) {
            match entry {
                InboxEntry::Single { meta, key, .. } => count(meta.hash, key, 1, meta.time, false),
                InboxEntry::Part { rollup, .. } if rollup.is_tombstone() => {}
                InboxEntry::Part { rollup, claim } => {
                    let (hash, key, _) = rollup.claim(*claim);
                    count(hash, key, 1, rollup.meta.time, false);
                }
                InboxEntry::Free { .. } | InboxEntry::Unkeyed { .. } | InboxEntry::Fence { .. } => {
                }
            }
        }
        counts
    }
}

impl<K: Eq, W> Lanes<K, W> {
    /// Counts the tasks that do not run, by state. A rollup counts in each lane.
    pub(crate) fn task_counts(&self, inbox: &Inbox<K, W>) -> TaskCounts {
        TaskCounts {
            queued: self.backlog.len() + inbox.queue.len(),
            blocked: self
                .lanes
                .iter()
                .map(|lane| lane.waiting.iter().filter(|it| it.is_task()).count())
                .sum(),
            ready: self.ready.len(),
        }
    }
}

/// Tasks of a shard that do not run, by state.
#[derive(Clone, Copy, Debug)]
pub(crate) struct TaskCounts {
    /// Tasks in the inbox and the backlog.
    pub(crate) queued: usize,
    /// Tasks that wait behind another one of their key.
    pub(crate) blocked: usize,
    /// Tasks that hold their lanes and wait for a worker.
    pub(crate) ready: usize,
}

/// Unfinished tasks of a key.
#[derive(Debug)]
pub(crate) struct KeyCount<K> {
    pub(crate) key: K,
    hash: u32,
    pub(crate) tasks: usize,
    /// [`TaskMeta::time`] of the oldest task.
    pub(crate) since: u32,
    /// Whether the oldest task was given to a worker, or is about to be.
    pub(crate) running: bool,
}
