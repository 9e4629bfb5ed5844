//! Where a task stands, and who stands before it.

use super::*;

/// Where a task is that has not begun.
pub(crate) enum FoundTask<K, W> {
    /// It waits for a worker, behind so many.
    Ready { ahead: usize },
    /// It stands in the lane of its one key, or on the way there.
    Single { hash: u32, key: K, before: AheadCounts },
    /// It has no key, and so many entries stand before it.
    Free { before: AheadCounts },
    /// It has several parts, each in a lane of its own; or is a barrier.
    Several(Arc<Rollup<K, W>>),
}

/// What stands before a task, or its part, in one shard.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AheadCounts {
    /// Tasks of the key that must end first.
    pub(crate) tasks: usize,
    /// Entries that no worker has looked at.
    pub(crate) entries: usize,
    /// One of them, or what the workers have reached, is a barrier.
    pub(crate) barrier: bool,
    /// The key is held, or will be when the task that has it ends.
    pub(crate) on_hold: bool,
}

/// The first task of a key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LaneHead {
    /// How many tasks the key has.
    pub(crate) tasks: usize,
    /// The label's time of the first.
    pub(crate) since: u32,
    /// The lane's slot, if it has one; else what stands before the first in the backlog and inbox.
    pub(crate) place: Result<usize, AheadCounts>,
    /// Only a pause marker has the key.
    pub(crate) at_rest: bool,
}

/// One task of a key, in the order of its lane.
enum LanePlace<'a, K, W> {
    Holder,
    LaneEntry(&'a LaneEntry<K, W>),
    /// With its place among what no worker has looked at.
    Queued(usize, &'a InboxEntry<K, W>),
}

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Finds a task of this shard that has not begun, and when it was submitted.
    pub(crate) fn find_task(
        &self,
        inbox: &Inbox<K, W>,
        is_target: impl Fn(&W) -> bool,
    ) -> Option<(FoundTask<K, W>, u32)> {
        let ready = self.ready.iter().position(|ready| is_target(&ready.work));
        if let Some(ahead) = ready {
            return Some((FoundTask::Ready { ahead }, self.ready[ahead].meta.time));
        }
        let replacing = self.replacing.iter();
        let mut replacing =
            replacing.filter(|it| it.with_work(|work| work.is_some_and(&is_target)));
        if let Some(rollup) = replacing.next() {
            return Some((FoundTask::Several(rollup.clone()), rollup.meta.time));
        }
        self.find_in_line(&is_target).or_else(|| self.find_queued(inbox, &is_target))
    }

    fn find_in_line(&self, is_target: &impl Fn(&W) -> bool) -> Option<(FoundTask<K, W>, u32)> {
        for lane in &self.lanes {
            for (place, waiting) in lane.waiting.iter().enumerate() {
                match waiting {
                    LaneEntry::Task { meta, mode, key, work } if is_target(work) => {
                        let holders = (0..lane.holders.count()).map(|_| lane.holders.mode());
                        let line = lane.waiting.iter().take(place);
                        let line = line.filter(|other| other.is_task()).map(LaneEntry::mode);
                        let tasks = conflicting(holders.chain(line), *mode);
                        let on_hold = lane.is_on_hold();
                        let before = AheadCounts { tasks, on_hold, ..AheadCounts::default() };
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
                let line = self.line_of(inbox, meta.hash, key);
                let line = line.take_while(|(_, standing)| standing.is_before(place));
                let tasks = conflicting(line.map(|(mode, _)| mode), *mode);
                let on_hold = self.is_on_hold(meta.hash, key);
                let before = AheadCounts { tasks, on_hold, ..self.before(inbox, place) };
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

    /// What stands before the part of a rollup that has not begun; nothing, if it holds its lane.
    pub(crate) fn before_part(
        &self,
        inbox: &Inbox<K, W>,
        rollup: &Arc<Rollup<K, W>>,
        claim: usize,
    ) -> AheadCounts {
        let (hash, key, mode) = rollup.claim(claim);
        let on_hold = self.is_on_hold(hash, key);
        let mut modes = Vec::new();
        for (others, standing) in self.line_of(inbox, hash, key) {
            match standing {
                LanePlace::LaneEntry(waiting) if waiting.is_part_of(rollup) => {
                    let tasks = conflicting(modes.into_iter(), mode);
                    return AheadCounts { tasks, on_hold, ..AheadCounts::default() };
                }
                LanePlace::Queued(place, InboxEntry::Part { rollup: other, .. })
                    if Arc::ptr_eq(other, rollup) =>
                {
                    let tasks = conflicting(modes.into_iter(), mode);
                    return AheadCounts { tasks, on_hold, ..self.before(inbox, place) };
                }
                _ => modes.push(others),
            }
        }
        AheadCounts::default()
    }

    /// Whether a part of a rollup with keys has its lane.
    pub(crate) fn holds_part(
        &self,
        inbox: &Inbox<K, W>,
        rollup: &Arc<Rollup<K, W>>,
        claim: usize,
    ) -> bool {
        let (hash, key, _) = rollup.claim(claim);
        let waits = self.line_of(inbox, hash, key).any(|(_, standing)| match standing {
            LanePlace::Holder => false,
            LanePlace::LaneEntry(waiting) => waiting.is_part_of(rollup),
            LanePlace::Queued(_, entry) => {
                matches!(entry, InboxEntry::Part { rollup: other, .. } if Arc::ptr_eq(other, rollup))
            }
        });
        !waits && self.find(hash, key).is_some()
    }

    /// The first task of a key, if it has any here.
    pub(crate) fn head_of(&self, inbox: &Inbox<K, W>, hash: u32, key: &K) -> Option<LaneHead> {
        let mut line = self.line_of(inbox, hash, key);
        let slot = self.find(hash, key);
        let (since, place) = match (line.next()?.1, slot) {
            (LanePlace::Holder, Some(slot)) => (self.lanes[slot].since, Ok(slot)),
            (LanePlace::LaneEntry(first), Some(slot)) => (first.time(), Ok(slot)),
            (LanePlace::Queued(_, entry), Some(slot)) => (entry.meta().time, Ok(slot)),
            (LanePlace::Queued(place, entry), None) => {
                (entry.meta().time, Err(self.before(inbox, place)))
            }
            (LanePlace::Holder | LanePlace::LaneEntry(_), None) => unreachable!("that is a lane"),
        };
        let at_rest = slot.is_some_and(|slot| self.lanes[slot].holders == Holders::PauseMarker);
        Some(LaneHead { tasks: 1 + line.count(), since, place, at_rest })
    }

    /// Whether nothing of a key begins.
    fn is_on_hold(&self, hash: u32, key: &K) -> bool {
        self.find(hash, key).is_some_and(|slot| self.lanes[slot].is_on_hold())
    }

    /// The key of the lane in a slot, unless the slot is free.
    pub(crate) fn key_at(&self, slot: usize) -> Option<&K> {
        self.lanes.get(slot)?.key.as_ref()
    }

    /// Whether the holders of a lane share it. Those that limit it hold it as rollups.
    pub(crate) fn is_shared(&self, slot: usize) -> bool {
        self.lanes.get(slot).is_some_and(|lane| lane.holders.mode() == Mode::Shared)
    }

    /// Whether the holder of a lane, or of all that a rollup claims, waits for a worker only.
    pub(crate) fn is_ready(&self, slot: usize) -> bool {
        let is_it = |held: &Held<K, W>| match held {
            Held::Lane(at) => *at == slot,
            Held::Free | Held::Rollup(_) => false,
        };
        self.ready.iter().any(|ready| is_it(&ready.held))
    }

    /// The rollups of this shard that are ready, and those that wait here for a part of theirs.
    pub(crate) fn rollups<'a>(
        &'a self,
        inbox: &'a Inbox<K, W>,
    ) -> impl Iterator<Item = (bool, &'a Arc<Rollup<K, W>>)> {
        let ready = self.ready.iter().filter_map(|ready| match &ready.held {
            Held::Rollup(rollup) => Some((true, rollup)),
            Held::Free | Held::Lane(_) => None,
        });
        let in_line = self.lanes.iter().flat_map(|lane| &lane.waiting);
        let in_line = in_line.filter_map(|waiting| match waiting {
            LaneEntry::Part { rollup, .. } => Some((false, rollup)),
            LaneEntry::Task { .. } | LaneEntry::PauseMarker => None,
        });
        let queued = self.queued(inbox).filter_map(|entry| match entry {
            InboxEntry::Part { rollup, .. } => Some((false, rollup)),
            _ => None,
        });
        ready.chain(in_line).chain(queued)
    }

    /// What no worker has looked at, oldest first.
    fn queued<'a>(&'a self, inbox: &'a Inbox<K, W>) -> impl Iterator<Item = &'a InboxEntry<K, W>> {
        self.backlog.iter().chain(inbox.queue.iter())
    }

    /// What stands before an entry that no worker has looked at.
    fn before(&self, inbox: &Inbox<K, W>, place: usize) -> AheadCounts {
        let mut earlier = self.queued(inbox).take(place);
        let barrier =
            self.fence.is_some() || earlier.any(|entry| matches!(entry, InboxEntry::Fence { .. }));
        AheadCounts { tasks: 0, entries: place, barrier, on_hold: false }
    }

    /// All tasks of a key, in their order, and how each uses it.
    fn line_of<'a>(
        &'a self,
        inbox: &'a Inbox<K, W>,
        hash: u32,
        key: &'a K,
    ) -> impl Iterator<Item = (Mode, LanePlace<'a, K, W>)> {
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
    /// Whether it comes before this place among what no worker has looked at.
    fn is_before(&self, place: usize) -> bool {
        !matches!(self, LanePlace::Queued(at, _) if *at >= place)
    }
}

/// How many of those before a task must end before it: who shares waits for the last that does not,
/// and for all that this one waits for; who limits how many there are, for as many as are too many.
fn conflicting(before: impl Iterator<Item = Mode>, mode: Mode) -> usize {
    let before: Vec<Mode> = before.collect();
    match mode {
        Mode::Exclusive => before.len(),
        Mode::Shared => {
            before.iter().rposition(|other| *other != Mode::Shared).map_or(0, |last| last + 1)
        }
        Mode::Limited(most) => {
            let limit = |other: &Mode| match other {
                Mode::Limited(most) => Some(*most),
                Mode::Exclusive | Mode::Shared => None,
            };
            let first = before.iter().rposition(|it| limit(it).is_none()).map_or(0, |it| it + 1);
            let beside = &before[first..];
            let least = beside.iter().filter_map(limit).fold(most, u16::min);
            first + (beside.len() + 1).saturating_sub(least.into())
        }
    }
}
