//! Finds a task that has not begun, and counts the tasks ahead of it.

use super::*;

/// Location of a task that has not begun.
pub(crate) enum FoundTask<K, W> {
    /// Ready: waits for a worker, behind `ahead` other ready tasks.
    Ready { ahead: usize },
    /// In the lane of its one key, or on the way there.
    Single { hash: u32, key: K, before: AheadCounts },
    /// Without a key, in the inbox or the backlog.
    Free { before: AheadCounts },
    /// With several parts, each in a lane of its own; or a barrier.
    Several(Arc<Rollup<K, W>>),
}

/// Tasks and entries ahead of a task, or of its part, in one shard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AheadCounts {
    /// Number of tasks of the key that must end first.
    pub(crate) tasks: usize,
    /// Number of inbox and backlog entries.
    pub(crate) entries: usize,
    /// Whether one of these entries, or the fence that has been reached, is a barrier.
    pub(crate) barrier: bool,
    /// Whether the key is paused, or will be when its holders end.
    pub(crate) is_paused: bool,
}

/// First task of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneHead {
    /// Number of unfinished tasks of the key.
    pub(crate) tasks: usize,
    /// [`TaskMeta::time`] of the first task.
    pub(crate) since: u32,
    /// Slot of the lane, if the key has one; otherwise the entries ahead of its first task in the
    /// backlog and the inbox.
    pub(crate) place: Result<usize, AheadCounts>,
    /// Whether only a pause marker holds the key.
    pub(crate) is_idle: bool,
}

/// One task of a key, in the order of its lane.
enum LanePlace<'a, K, W> {
    Holder,
    LaneEntry(&'a LaneEntry<K, W>),
    /// Entry of the backlog or inbox, with its index there.
    Queued(usize, &'a InboxEntry<K, W>),
}

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Finds a task of this shard that has not begun, and its time of submission.
    pub(crate) fn find_task(
        &self,
        inbox: &Inbox<K, W>,
        is_target: impl Fn(&W) -> bool,
    ) -> Option<(FoundTask<K, W>, u32)> {
        let mut ready = self.ready.iter().enumerate();
        if let Some((ahead, ready)) = ready.find(|(_, ready)| is_target(&ready.work)) {
            return Some((FoundTask::Ready { ahead }, ready.meta.time));
        }
        // A barrier that every shard has reached is in no queue.
        let reached = match &self.fence {
            Some(EntryFence::Barrier { rollup, .. }) => Some(rollup),
            Some(EntryFence::FailedTask) | None => None,
        };
        let unqueued = self.replacing.iter().chain(reached);
        let mut unqueued = unqueued.filter(|it| it.with_work(|work| work.is_some_and(&is_target)));
        if let Some(rollup) = unqueued.next() {
            return Some((FoundTask::Several(rollup.clone()), rollup.meta.time));
        }
        self.find_waiting(&is_target).or_else(|| self.find_queued(inbox, &is_target))
    }

    fn find_waiting(&self, is_target: &impl Fn(&W) -> bool) -> Option<(FoundTask<K, W>, u32)> {
        for lane in &self.lanes {
            for (place, waiting) in lane.waiting.iter().enumerate() {
                match waiting {
                    LaneEntry::Task { meta, mode, key, work } if is_target(work) => {
                        let holders = (0..lane.holders.count()).map(|_| lane.holders.mode());
                        let queue = lane.waiting.iter().take(place);
                        let queue = queue.filter(|other| other.is_task()).map(LaneEntry::mode);
                        let tasks = conflicting(holders.chain(queue), *mode);
                        let is_paused = lane.is_paused();
                        let before = AheadCounts { tasks, is_paused, ..AheadCounts::default() };
                        let found = FoundTask::Single { hash: lane.hash, key: key.clone(), before };
                        return Some((found, meta.time));
                    }
                    LaneEntry::Part { rollup, .. }
                        if rollup.with_work(|work| work.is_some_and(is_target)) =>
                    {
                        return Some((FoundTask::Several(rollup.clone()), rollup.meta.time));
                    }
                    _ => {}
                }
            }
        }
        None
    }

    fn find_queued(
        &self,
        inbox: &Inbox<K, W>,
        is_target: &impl Fn(&W) -> bool,
    ) -> Option<(FoundTask<K, W>, u32)> {
        let (place, entry) =
            self.queued(inbox).enumerate().find(|(_, entry)| entry.is_for(is_target))?;
        Some(match entry {
            InboxEntry::Single { meta, mode, key, .. } => {
                let queue = self.tasks_of(inbox, meta.hash, key);
                let queue = queue.take_while(|(_, standing)| standing.is_before(place));
                let tasks = conflicting(queue.map(|(mode, _)| mode), *mode);
                let is_paused = self.is_paused(meta.hash, key);
                let before = AheadCounts { tasks, is_paused, ..self.before(inbox, place) };
                (FoundTask::Single { hash: meta.hash, key: key.clone(), before }, meta.time)
            }
            InboxEntry::Free { meta, .. } => {
                (FoundTask::Free { before: self.before(inbox, place) }, meta.time)
            }
            InboxEntry::Part { rollup, .. }
            | InboxEntry::Unkeyed { rollup }
            | InboxEntry::Fence { rollup } => {
                (FoundTask::Several(rollup.clone()), rollup.meta.time)
            }
        })
    }

    /// Counts the tasks ahead of a rollup's part that has not begun; empty if the part holds its
    /// lane.
    pub(crate) fn before_part(
        &self,
        inbox: &Inbox<K, W>,
        rollup: &Arc<Rollup<K, W>>,
        claim: usize,
    ) -> AheadCounts {
        let (hash, key, mode) = rollup.claim(claim);
        let is_paused = self.is_paused(hash, key);
        let mut modes = Vec::new();
        for (others, standing) in self.tasks_of(inbox, hash, key) {
            match standing {
                LanePlace::LaneEntry(waiting) if waiting.is_part_of(rollup) => {
                    let tasks = conflicting(modes.into_iter(), mode);
                    return AheadCounts { tasks, is_paused, ..AheadCounts::default() };
                }
                LanePlace::Queued(place, InboxEntry::Part { rollup: other, .. })
                    if Arc::ptr_eq(other, rollup) =>
                {
                    let tasks = conflicting(modes.into_iter(), mode);
                    return AheadCounts { tasks, is_paused, ..self.before(inbox, place) };
                }
                _ => modes.push(others),
            }
        }
        AheadCounts::default()
    }

    /// Returns whether a part of a rollup with keys holds its lane.
    pub(crate) fn holds_part(
        &self,
        inbox: &Inbox<K, W>,
        rollup: &Arc<Rollup<K, W>>,
        claim: usize,
    ) -> bool {
        let (hash, key, _) = rollup.claim(claim);
        let waits = self.tasks_of(inbox, hash, key).any(|(_, standing)| match standing {
            LanePlace::Holder => false,
            LanePlace::LaneEntry(waiting) => waiting.is_part_of(rollup),
            LanePlace::Queued(_, entry) => {
                matches!(entry, InboxEntry::Part { rollup: other, .. } if Arc::ptr_eq(other, rollup))
            }
        });
        !waits && self.find(hash, key).is_some()
    }

    /// Returns the first task of a key, if it has any here.
    pub(crate) fn head_of(&self, inbox: &Inbox<K, W>, hash: u32, key: &K) -> Option<LaneHead> {
        let mut queue = self.tasks_of(inbox, hash, key);
        let slot = self.find(hash, key);
        let (since, place) = match (queue.next()?.1, slot) {
            (LanePlace::Holder, Some(slot)) => (self.lanes[slot].since, Ok(slot)),
            (LanePlace::LaneEntry(first), Some(slot)) => (first.time(), Ok(slot)),
            (LanePlace::Queued(_, entry), Some(slot)) => (entry.meta().time, Ok(slot)),
            (LanePlace::Queued(place, entry), None) => {
                (entry.meta().time, Err(self.before(inbox, place)))
            }
            (LanePlace::Holder | LanePlace::LaneEntry(_), None) => unreachable!("that is a lane"),
        };
        let is_idle = slot.is_some_and(|slot| self.lanes[slot].holders == LaneHolders::PauseMarker);
        Some(LaneHead { tasks: 1 + queue.count(), since, place, is_idle })
    }

    /// Returns whether the key is paused.
    fn is_paused(&self, hash: u32, key: &K) -> bool {
        self.find(hash, key).is_some_and(|slot| self.lanes[slot].is_paused())
    }

    /// Returns the key of the lane in a slot, unless the slot is free.
    pub(crate) fn key_at(&self, slot: usize) -> Option<&K> {
        self.lanes.get(slot)?.key.as_ref()
    }

    /// Returns whether the holders of a lane share it. Holders that limit it are rollups.
    pub(crate) fn is_shared(&self, slot: usize) -> bool {
        self.lanes.get(slot).is_some_and(|lane| lane.holders.mode() == ClaimMode::Shared)
    }

    /// Returns whether the holder of a lane waits only for a worker.
    pub(crate) fn is_ready(&self, slot: usize) -> bool {
        let is_it = |held: &HeldLanes<K, W>| match held {
            HeldLanes::Lane(at) => *at == slot,
            HeldLanes::Free | HeldLanes::Rollup(_) => false,
        };
        self.ready.iter().any(|ready| is_it(&ready.held))
    }

    /// Iterates over the rollups of this shard that are ready (`true`), and those that wait here
    /// for a part (`false`).
    pub(crate) fn rollups<'a>(
        &'a self,
        inbox: &'a Inbox<K, W>,
    ) -> impl Iterator<Item = (bool, &'a Arc<Rollup<K, W>>)> {
        let ready = self.ready.iter().filter_map(|ready| match &ready.held {
            HeldLanes::Rollup(rollup) => Some((true, rollup)),
            HeldLanes::Free | HeldLanes::Lane(_) => None,
        });
        let waiting = self.lanes.iter().flat_map(|lane| &lane.waiting);
        let waiting = waiting.filter_map(|waiting| match waiting {
            LaneEntry::Part { rollup, .. } => Some((false, rollup)),
            LaneEntry::Task { .. } | LaneEntry::PauseMarker => None,
        });
        let queued = self.queued(inbox).filter_map(|entry| match entry {
            InboxEntry::Part { rollup, .. } => Some((false, rollup)),
            _ => None,
        });
        ready.chain(waiting).chain(queued)
    }

    /// Iterates over the backlog and the inbox, oldest first.
    fn queued<'a>(&'a self, inbox: &'a Inbox<K, W>) -> impl Iterator<Item = &'a InboxEntry<K, W>> {
        self.backlog.iter().chain(inbox.queue.iter())
    }

    /// Counts the entries ahead of the entry at index `place` of the backlog and inbox.
    fn before(&self, inbox: &Inbox<K, W>, place: usize) -> AheadCounts {
        let mut earlier = self.queued(inbox).take(place);
        let barrier =
            self.fence.is_some() || earlier.any(|entry| matches!(entry, InboxEntry::Fence { .. }));
        AheadCounts { tasks: 0, entries: place, barrier, is_paused: false }
    }

    /// Iterates over all tasks of a key in their order, each with its mode.
    fn tasks_of<'a>(
        &'a self,
        inbox: &'a Inbox<K, W>,
        hash: u32,
        key: &'a K,
    ) -> impl Iterator<Item = (ClaimMode, LanePlace<'a, K, W>)> {
        let lane = self.find(hash, key).map(|slot| &self.lanes[slot]);
        let holders = lane.into_iter().flat_map(|lane| {
            (0..lane.holders.count()).map(|_| (lane.holders.mode(), LanePlace::Holder))
        });
        let waiting = lane.into_iter().flat_map(|lane| {
            let tasks = lane.waiting.iter().filter(|waiting| waiting.is_task());
            tasks.map(|waiting| (waiting.mode(), LanePlace::LaneEntry(waiting)))
        });
        let queued = self.queued(inbox).enumerate().filter_map(move |(place, entry)| {
            let (at, its_key, mode) = entry.claim()?;
            (at == hash && its_key == key && !entry.is_tombstone())
                .then_some((mode, LanePlace::Queued(place, entry)))
        });
        holders.chain(waiting).chain(queued)
    }
}

impl<K, W> LanePlace<'_, K, W> {
    /// Returns whether this is ahead of the entry at index `place` of the backlog and inbox.
    fn is_before(&self, place: usize) -> bool {
        !matches!(self, LanePlace::Queued(at, _) if *at >= place)
    }
}

/// Counts the tasks of `before` that must end before a task in `mode` may begin. A sharing task
/// waits for the last one that does not share, and for all before that. A limited task waits for as
/// many of the limited ones as exceed the least limit.
fn conflicting(before: impl Iterator<Item = ClaimMode>, mode: ClaimMode) -> usize {
    let before: Vec<ClaimMode> = before.collect();
    match mode {
        ClaimMode::Exclusive => before.len(),
        ClaimMode::Shared => {
            before.iter().rposition(|other| *other != ClaimMode::Shared).map_or(0, |last| last + 1)
        }
        ClaimMode::Limited(max) => {
            let limit = |other: &ClaimMode| match other {
                ClaimMode::Limited(max) => Some(*max),
                ClaimMode::Exclusive | ClaimMode::Shared => None,
            };
            let first = before.iter().rposition(|it| limit(it).is_none()).map_or(0, |it| it + 1);
            let beside = &before[first..];
            let least = beside.iter().filter_map(limit).fold(max, u16::min);
            first + (beside.len() + 1).saturating_sub(least.into())
        }
    }
}
