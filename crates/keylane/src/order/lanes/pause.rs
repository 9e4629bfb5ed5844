//! Keys that are held, and taking what waits for a key.
//!
//! A held key has a *pause marker*: a holder of its lane that runs nothing, or the first of its line, which
//! becomes that holder at the next handing on. All else follows from the lane being held: nobody joins,
//! nobody goes on with it, and the short way is closed, because the line is not empty, or because the
//! lane is there. So nothing is asked of the tasks of other keys.

use super::*;

/// Why a key is held. It is let go when no reason is left.
#[derive(Debug, Default)]
pub(crate) struct PauseReasons {
    /// Somebody has paused it, at this time of the pool's clock.
    pub(crate) paused: Option<u32>,
    /// Its tasks have failed too often.
    pub(crate) stopped: Option<Stop>,
    /// None of it may begin before this time, of the clock by which rates are kept.
    pub(crate) limited: Option<u64>,
}

/// A key was stopped after so many failures in a row, at this time of the pool's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stop {
    pub(crate) failures: u32,
    pub(crate) at: u32,
}

/// What was taken of a key.
pub(crate) struct TakenKey<K, W> {
    /// The tasks, in their order.
    pub(crate) tasks: Vec<Unrun<K, W>>,
    /// What is left of a lane that ended, for the caller to drop outside the lock.
    pub(crate) left: Option<K>,
    /// When the timer has to look at the key, if that has changed.
    pub(crate) recall: Option<RateDeadline>,
}

/// Tasks that are taken out.
struct Removed<K, W> {
    tasks: Vec<Unrun<K, W>>,
    /// Those of them that the inbox watches.
    watched: Vec<Arc<Rollup<K, W>>>,
}

impl<K: Eq + Clone, W> Removed<K, W> {
    /// A task that has a role, or a tombstone.
    fn part(&mut self, task: Arc<Rollup<K, W>>) {
        if let Some(work) = task.take_work() {
            self.tasks.push(Unrun { claims: task.claims(), work, seq: task.meta.seq });
            if task.role.is_watched() {
                self.watched.push(task);
            }
        }
    }
}

impl PauseReasons {
    pub(super) fn is_empty(&self) -> bool {
        self.paused.is_none() && self.stopped.is_none() && self.limited.is_none()
    }

    /// Whether it is held until somebody lets it go.
    pub(crate) fn is_for_somebody(&self) -> bool {
        self.paused.is_some() || self.stopped.is_some()
    }

    /// Forgets what somebody has to take back, and says whether there was anything.
    pub(crate) fn resume(&mut self) -> bool {
        self.paused.take().is_some() | self.stopped.take().is_some()
    }
}

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Holds a key: of its tasks with one key none begins that no worker has taken, and of its rollups
    /// none that does not have the key already. Also returns when the timer has to look at the key, if that
    /// has changed.
    pub(crate) fn pause(
        &mut self,
        hash: u32,
        key: &K,
        since: u32,
    ) -> (&mut PauseReasons, Option<RateDeadline>) {
        let mut due = None;
        let slot = match self.find(hash, key) {
            None => {
                let slot = self.open_lane(hash, key.clone(), Mode::Exclusive, since);
                self.lanes[slot].holders = Holders::PauseMarker;
                slot
            }
            Some(slot) => {
                if self.pause_lane(slot) {
                    due = self.refresh_rate_limit(slot);
                }
                slot
            }
        };
        (self.held.entry(slot).or_default(), due)
    }

    /// Holds an open lane, whether it was held or not: a lane that is held for its rate may have granted
    /// tasks that no worker has taken. Returns whether any was called back. The caller gives the reason.
    pub(super) fn pause_lane(&mut self, slot: usize) -> bool {
        if self.lanes[slot].holders == Holders::PauseMarker {
            return false;
        }
        self.remove_pause_marker(slot);
        let before = self.lanes[slot].waiting.len();
        let holders_left = self.take_back_granted(slot);
        let lane = &mut self.lanes[slot];
        let called_back = lane.waiting.len() != before;
        match holders_left {
            true => lane.waiting.push_front(LaneEntry::PauseMarker),
            false => lane.holders = Holders::PauseMarker,
        }
        called_back
    }

    /// Takes the pause marker out of the line, if it is there.
    fn remove_pause_marker(&mut self, slot: usize) {
        let line = &mut self.lanes[slot].waiting;
        if let Some(LaneEntry::PauseMarker) = line.front() {
            line.pop_front();
        }
    }

    /// Takes a reason away, if the key is held. Once none is left the lane is handed on, as at the end
    /// of a task. Returns what is left of a lane that ended, for the caller to drop outside the lock.
    pub(crate) fn release_pause(
        &mut self,
        hash: u32,
        key: &K,
        forgive: impl FnOnce(&mut PauseReasons),
    ) -> Option<K> {
        let slot = self.find(hash, key)?;
        let reasons = self.held.get_mut(&slot)?;
        forgive(reasons);
        match reasons.is_empty() {
            true => self.end_pause(slot, usize::MAX).0,
            false => None,
        }
    }

    /// Takes the pause marker away, for no more than so many of those that wait. If more could have begun, it
    /// stays before them, and the lane is held, for a reason that the caller gives. Returns what is left of
    /// a lane that ended, and whether it is held.
    pub(super) fn end_pause(&mut self, slot: usize, most: usize) -> (Option<K>, bool) {
        self.held.remove(&slot);
        self.remove_pause_marker(slot);
        let has_holders = self.lanes[slot].holders != Holders::PauseMarker;
        let left = self.settle_line(slot, has_holders, most);
        let rest = most != usize::MAX && left.is_none() && self.could_join(slot);
        if rest {
            self.lanes[slot].waiting.push_front(LaneEntry::PauseMarker);
            self.held.insert(slot, PauseReasons::default());
        }
        self.grant_fence();
        (left, rest)
    }

    /// Whether the first of a line could have the key beside its holders.
    fn could_join(&self, slot: usize) -> bool {
        let lane = &self.lanes[slot];
        lane.waiting.front().is_some_and(|first| lane.holders.admit(first.mode()))
    }

    /// A key that is held, how many tasks have it all the same, and why it is held.
    pub(crate) fn held_key(&self, hash: u32, key: &K) -> Option<(&K, usize, &PauseReasons)> {
        let slot = self.find(hash, key)?;
        self.held_lane(slot, self.held.get(&slot)?)
    }

    /// The same for all of them.
    pub(crate) fn held_keys(&self) -> impl Iterator<Item = (&K, usize, &PauseReasons)> {
        self.held.iter().filter_map(|(&slot, why)| self.held_lane(slot, why))
    }

    fn held_lane<'a>(
        &'a self,
        slot: usize,
        why: &'a PauseReasons,
    ) -> Option<(&'a K, usize, &'a PauseReasons)> {
        let lane = &self.lanes[slot];
        Some((lane.key.as_ref()?, lane.holders.count(), why))
    }

    /// Takes every task out that has this key alone, has not been given to a worker, and whose work may
    /// be taken: here and in the inbox, in order. The key's end stays.
    pub(crate) fn take_key(
        &mut self,
        inbox: &mut Inbox<K, W>,
        hash: u32,
        key: &K,
        may_take: impl Fn(&W) -> bool,
    ) -> TakenKey<K, W> {
        let mut taken = Removed { tasks: Vec::new(), watched: Vec::new() };
        // A tombstone goes as well.
        let is_taken = |task: &Rollup<K, W>| match task.role {
            Role::Latest => true,
            Role::Limited => task.with_work(|work| work.is_none_or(&may_take)),
            Role::None | Role::End => false,
        };
        let (mut left, mut recall) = (None, None);
        if let Some(slot) = self.find(hash, key) {
            let holders_left = self.take_granted(slot, &may_take, &mut taken);
            if !taken.tasks.is_empty() {
                recall = self.refresh_rate_limit(slot);
            }
            for waiting in std::mem::take(&mut self.lanes[slot].waiting) {
                match waiting {
                    LaneEntry::Task { meta, mode, key, work } if may_take(&work) => {
                        taken.tasks.push(Unrun::single(meta, KeyClaim { key, mode }, work));
                    }
                    LaneEntry::Part { rollup, .. } if is_taken(&rollup) => {
                        self.parts -= 1;
                        taken.part(rollup);
                    }
                    other => self.lanes[slot].waiting.push_back(other),
                }
            }
            left = self.settle_line(slot, holders_left, usize::MAX);
        }
        let mut take = |entry: InboxEntry<K, W>| match entry {
            InboxEntry::Single { meta, mode, key: own, work }
                if meta.hash == hash && own == *key && may_take(&work) =>
            {
                taken.tasks.push(Unrun::single(meta, KeyClaim { key: own, mode }, work));
                None
            }
            InboxEntry::Part { rollup, claim } if is_taken(&rollup) => {
                let (at, own, _) = rollup.claim(claim);
                if at != hash || own != key {
                    return Some(InboxEntry::Part { rollup, claim });
                }
                taken.part(rollup);
                None
            }
            other => Some(other),
        };
        self.backlog.sift(&mut take);
        inbox.queue.sift(&mut take);
        taken.watched.iter().for_each(|task| inbox.unwatch(task));
        self.grant_fence();
        TakenKey { tasks: taken.tasks, left, recall }
    }

    /// Takes out those of the lane's tasks that wait for nothing but a worker. The others of them stay: were
    /// they called back, they could come to stand before a pause marker. Returns whether the lane still has a
    /// holder, be it a pause marker; if not, the caller must find one.
    fn take_granted(
        &mut self,
        slot: usize,
        may_take: impl Fn(&W) -> bool,
        taken: &mut Removed<K, W>,
    ) -> bool {
        let (mode, mut left) = {
            let lane = &self.lanes[slot];
            (lane.holders.mode(), lane.holders.count())
        };
        for ready in std::mem::take(&mut self.ready) {
            match ready {
                ReadyTask { work, key, meta, held: Held::Lane(at) }
                    if at == slot && may_take(&work) =>
                {
                    left -= 1;
                    let key = key.or_else(|| self.lanes[slot].key.clone());
                    let key = key.expect("a held lane has a key");
                    taken.tasks.push(Unrun::single(meta, KeyClaim { key, mode }, work));
                }
                ReadyTask { work, held: Held::Rollup(rollup), .. }
                    if rollup.role != Role::End
                        && self.is_alone_in(slot, &rollup)
                        && (rollup.role == Role::Latest || may_take(&work)) =>
                {
                    left -= 1;
                    self.parts -= 1;
                    rollup.wait_again(work);
                    if let (_, _, Mode::Limited(most)) = rollup.claim(0) {
                        self.drop_limited(slot, most);
                    }
                    taken.part(rollup);
                }
                other => self.ready.push_back(other),
            }
        }
        let holders = &mut self.lanes[slot].holders;
        if let Holders::Shared(count) = holders {
            *count = left;
        }
        left != 0 || *holders == Holders::PauseMarker
    }

    /// Whether a task with one key that has not begun is to wait because its key is held.
    pub(crate) fn is_kept_back(&self, held: &Held<K, W>) -> bool {
        let slot = match held {
            Held::Lane(slot) => Some(*slot),
            Held::Rollup(rollup) if rollup.role == Role::Limited => {
                let (hash, key, _) = rollup.claim(0);
                self.find(hash, key)
            }
            Held::Free | Held::Rollup(_) => None,
        };
        let reasons = slot.and_then(|slot| self.held.get(&slot));
        reasons.is_some_and(PauseReasons::is_for_somebody)
    }

    /// A task with one key that was taken, and has not begun, goes back to the front of its line. It is charged
    /// again when it is taken again. Returns when the timer has to look at the key, if that has changed.
    pub(crate) fn requeue_paused(&mut self, held: Held<K, W>, work: W) -> Option<RateDeadline> {
        let slot = match &held {
            Held::Lane(slot) => *slot,
            Held::Rollup(rollup) => {
                let (hash, key, _) = rollup.claim(0);
                self.find(hash, key).expect("its lane lives until it is given back")
            }
            Held::Free => unreachable!("it has a key"),
        };
        self.uncharge(slot);
        let due = self.refresh_rate_limit(slot);
        let lane = &mut self.lanes[slot];
        let mut place = usize::from(matches!(lane.waiting.front(), Some(LaneEntry::PauseMarker)));
        // The lane does not end, for the line is not empty.
        match held {
            Held::Rollup(rollup) => {
                let (_, _, mode) = rollup.claim(0);
                let Mode::Limited(most) = mode else { unreachable!("another role is not kept") };
                // Others that were taken after it may have come back before it.
                let is_before = |other: &LaneEntry<K, W>| match other {
                    LaneEntry::Part { rollup: other, .. } => {
                        other.role == Role::Limited
                            && rollup.meta.seq.wrapping_sub(other.meta.seq) < u32::MAX / 2
                    }
                    LaneEntry::Task { .. } | LaneEntry::PauseMarker => false,
                };
                while lane.waiting.get(place).is_some_and(is_before) {
                    place += 1;
                }
                rollup.wait_again(work);
                lane.waiting.insert(place, LaneEntry::Part { rollup, claim: 0 });
                self.leave_limited(slot, most);
            }
            Held::Lane(_) | Held::Free => {
                let key = lane.key.clone().expect("a held lane has a key");
                // Nothing of the key is before it, so any place in the clock that is not after another's will do.
                let meta =
                    TaskMeta { hash: lane.hash, seq: 0, time: lane.since & !TaskMeta::MEASURED };
                let mode = lane.holders.mode();
                lane.waiting.insert(place, LaneEntry::Task { meta, mode, key, work });
                self.leave(slot);
                self.admit_sharers(slot);
            }
        }
        self.grant_fence();
        due
    }

    /// Puts the lane's tasks that wait for nothing but a worker back to the front of its line, in which there
    /// is no pause marker. Returns whether the lane still has a holder, be it a pause marker; if not, the caller must
    /// find one.
    fn take_back_granted(&mut self, slot: usize) -> bool {
        let (mode, holders) = {
            let lane = &self.lanes[slot];
            (lane.holders.mode(), lane.holders.count())
        };
        let mut back = VecDeque::new();
        for ready in std::mem::take(&mut self.ready) {
            match ready {
                ReadyTask { work, key, meta, held: Held::Lane(at) } if at == slot => {
                    let key = key.or_else(|| self.lanes[slot].key.clone());
                    let key = key.expect("a held lane has a key");
                    back.push_back(LaneEntry::Task { meta, mode, key, work });
                }
                ReadyTask { work, held: Held::Rollup(rollup), .. }
                    if self.is_alone_in(slot, &rollup) =>
                {
                    rollup.wait_again(work);
                    if let (_, _, Mode::Limited(most)) = rollup.claim(0) {
                        self.drop_limited(slot, most);
                    }
                    back.push_back(LaneEntry::Part { rollup, claim: 0 });
                }
                other => self.ready.push_back(other),
            }
        }
        let lane = &mut self.lanes[slot];
        let left = holders - back.len();
        if let Holders::Shared(count) = &mut lane.holders {
            *count = left;
        }
        back.append(&mut lane.waiting);
        lane.waiting = back;
        left != 0 || lane.holders == Holders::PauseMarker
    }

    /// A holder of a lane has just become ready. If the key is held it does not begin: it goes back
    /// to the front of the line. Returns when the timer has to look at the key, if that has changed.
    pub(super) fn call_back_if_held(&mut self, slot: usize) -> Option<RateDeadline> {
        let is_held = self.held.get(&slot).is_some_and(PauseReasons::is_for_somebody);
        if is_held && self.pause_lane(slot) { self.refresh_rate_limit(slot) } else { None }
    }

    /// Whether a task has a role, and this lane's key.
    pub(super) fn is_alone_in(&self, slot: usize, task: &Rollup<K, W>) -> bool {
        let lane = &self.lanes[slot];
        task.role != Role::None && {
            let (hash, key, _) = task.claim(0);
            hash == lane.hash && lane.key.as_ref() == Some(key)
        }
    }

    /// The line of a lane has changed at its front: whoever may have the key now gets it, but no more than
    /// so many. Returns what is left of a lane that ended.
    fn settle_line(&mut self, slot: usize, has_holders: bool, most: usize) -> Option<K> {
        if has_holders {
            self.admit_some_sharers(slot, most);
            return None;
        }
        if self.lanes[slot].waiting.is_empty() {
            return self.remove_lane(slot);
        }
        self.grant_next_of(slot, most)
    }

    /// A task in this key's line, or on the way there, has become a tombstone. Those that have waited for that
    /// alone are a sharing task behind it and a barrier.
    pub(crate) fn pass_tombstones(&mut self, hash: u32, key: &K) {
        if let Some(slot) = self.find(hash, key) {
            self.admit_sharers(slot);
        }
        self.grant_fence();
    }

    /// Lets those in front of a line join the holders, if they may.
    pub(super) fn admit_sharers(&mut self, slot: usize) {
        self.admit_some_sharers(slot, usize::MAX);
    }

    fn admit_some_sharers(&mut self, slot: usize, most: usize) {
        let mut joined = 0;
        self.drop_tombstones(slot);
        while joined < most
            && let Some(mode) = self.lanes[slot].waiting.front().map(LaneEntry::mode)
            && self.lanes[slot].holders.admit(mode)
        {
            if self.grant_first(slot) {
                self.add_holder(slot, mode);
                joined += 1;
            }
            self.drop_tombstones(slot);
        }
    }

    /// Drops the tombstones in front of a line.
    pub(super) fn drop_tombstones(&mut self, slot: usize) {
        let line = &mut self.lanes[slot].waiting;
        while let Some(LaneEntry::Part { rollup, .. }) = line.front()
            && rollup.is_tombstone()
        {
            line.pop_front();
            self.parts -= 1;
        }
    }
}

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Whether no lane is open but those in which only a pause marker is.
    pub(super) fn all_at_rest(&self) -> bool {
        // A lane with a pause marker is in `held`, so the first comparison nearly always decides.
        self.index.len() <= self.held.len()
            && self.held.keys().all(|&slot| {
                let lane = &self.lanes[slot];
                lane.holders == Holders::PauseMarker && !lane.waiting.iter().any(LaneEntry::is_task)
            })
    }
}
