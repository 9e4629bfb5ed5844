//! Pauses keys, and takes out the tasks that wait for a key.
//!
//! A paused key has a *pause marker*: a holder of its lane that runs nothing, or the first entry of
//! its wait queue, which becomes that holder when the lane is next granted. Everything else follows
//! from the lane being held: no task joins, no worker continues with the lane, and the short path
//! is closed, because the wait queue is not empty or because the lane exists. So tasks of other
//! keys pay nothing.

use super::*;
use crate::unwind::drop_catch_unwind;

/// Reasons why a key is paused. It is resumed when none is left.
#[derive(Debug, Default)]
pub(crate) struct PauseReasons {
    /// Time on the pool's clock at which the user paused the key.
    pub(crate) paused: Option<u32>,
    /// Stop of the key, because its tasks have failed too often.
    pub(crate) stopped: Option<KeyStop>,
    /// Time on the rate clock before which none of the key's tasks may begin.
    pub(crate) limited: Option<u64>,
}

/// Stop of a key after `failures` consecutive failures, at time `at` on the pool's clock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyStop {
    pub(crate) failures: u32,
    pub(crate) at: u32,
}

/// Result of taking the waiting tasks of a key.
pub(crate) struct TakenTasks<K, W> {
    /// Tasks, in their order.
    pub(crate) tasks: Vec<UnrunTask<K, W>>,
    /// Key of a lane that ended, for the caller to drop outside of the lock.
    pub(crate) left: Option<K>,
    /// Changed deadline of the key, if any.
    pub(crate) recall: Option<RateDeadline>,
    /// Copies of keys, for the caller to drop outside of the lock.
    pub(crate) unused: Vec<Claims<K>>,
}

/// Tasks that are being taken out.
struct RemovedTasks<K, W> {
    tasks: Vec<UnrunTask<K, W>>,
    /// Those of `tasks` that the inbox watches.
    watched: Vec<Arc<Rollup<K, W>>>,
    /// Claims of the tasks with a role that follow, in their order.
    claims: VecDeque<Claims<K>>,
    /// Claims of tombstones.
    unused: Vec<Claims<K>>,
}

impl<K: Eq + Clone, W> RemovedTasks<K, W> {
    /// Adds a task that has a role, of which the part has this place from now on. A tombstone adds
    /// nothing.
    fn part(&mut self, task: Arc<Rollup<K, W>>, place: PartPlace) {
        task.part(0).set_place(place);
        let claims = self.claims.pop_front().expect("its claims were copied");
        match task.take_work() {
            Some(work) => {
                self.tasks.push(UnrunTask { claims, work, number: task.number });
                if task.role.is_watched() {
                    return self.watched.push(task);
                }
            }
            None => self.unused.push(claims),
        }
        drop_catch_unwind(task);
    }
}

/// Returns whether a task with a role is taken with its key. A tombstone is taken too.
fn is_taken<K: Eq, W>(task: &Rollup<K, W>, may_take: impl Fn(&W) -> bool) -> bool {
    match task.role {
        MarkerRole::Latest => true,
        MarkerRole::Limited => task.with_work(|work| work.is_none_or(may_take)),
        MarkerRole::None | MarkerRole::End => false,
    }
}

impl PauseReasons {
    pub(super) fn is_empty(&self) -> bool {
        self.paused.is_none() && self.stopped.is_none() && self.limited.is_none()
    }

    /// Returns whether the key stays paused until the user resumes it.
    pub(crate) fn is_until_resumed(&self) -> bool {
        self.paused.is_some() || self.stopped.is_some()
    }

    /// Clears the reasons that the user can clear, and returns whether there was one.
    pub(crate) fn resume(&mut self) -> bool {
        self.paused.take().is_some() | self.stopped.take().is_some()
    }
}

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Pauses a key: none of its tasks with one key begins that no worker has taken, and none of
    /// its rollups that does not hold the key already. Returns the slot of its lane, for the caller
    /// to add a reason, and the changed deadline of the key, if any.
    pub(crate) fn pause(
        &mut self,
        hash: u32,
        key: &K,
        since: u32,
    ) -> (usize, Option<RateDeadline>) {
        match self.find(hash, key) {
            None => {
                let slot = self.open_lane(hash, key.clone(), ClaimMode::Exclusive, since);
                self.lanes[slot].holders = LaneHolders::PauseMarker;
                (slot, None)
            }
            Some(slot) => (slot, self.pause_slot(slot)),
        }
    }

    /// Pauses the key of a lane, as [`pause`](Self::pause) does.
    pub(crate) fn pause_slot(&mut self, slot: usize) -> Option<RateDeadline> {
        if self.pause_lane(slot) { self.refresh_rate_limit(slot) } else { None }
    }

    /// Returns the reasons for which a paused key is paused.
    pub(crate) fn pause_reasons(&mut self, slot: usize) -> &mut PauseReasons {
        self.paused.entry(slot).or_default()
    }

    /// Returns the slot of a key's lane.
    pub(crate) fn slot_of(&self, hash: u32, key: &K) -> Option<usize> {
        self.find(hash, key)
    }

    /// Pauses an open lane, paused already or not: a lane that is paused for its rate may have
    /// granted tasks that no worker has taken. Returns whether any was called back. The caller adds
    /// the reason.
    pub(super) fn pause_lane(&mut self, slot: usize) -> bool {
        if self.lanes[slot].holders == LaneHolders::PauseMarker {
            return false;
        }
        self.remove_pause_marker(slot);
        let before = self.lanes[slot].waiting.len();
        let holders_left = self.take_back_granted(slot);
        let lane = &mut self.lanes[slot];
        let recalled = lane.waiting.len() != before;
        match holders_left {
            true => lane.waiting.push_front(LaneEntry::PauseMarker),
            false => lane.holders = LaneHolders::PauseMarker,
        }
        recalled
    }

    /// Removes the pause marker from the wait queue, if it is there.
    fn remove_pause_marker(&mut self, slot: usize) {
        let queue = &mut self.lanes[slot].waiting;
        if let Some(LaneEntry::PauseMarker) = queue.front() {
            queue.pop_front();
        }
    }

    /// Removes a reason, if the key is paused. With the last reason gone the lane is granted
    /// onward, as at the end of a task. Returns the key of a lane that ended, for the caller to
    /// drop outside of the lock.
    pub(crate) fn release_pause(
        &mut self,
        slot: usize,
        remove_reason: impl FnOnce(&mut PauseReasons),
    ) -> Option<K> {
        let reasons = self.paused.get_mut(&slot)?;
        remove_reason(reasons);
        match reasons.is_empty() {
            true => self.end_pause(slot, usize::MAX).0,
            false => None,
        }
    }

    /// Removes the pause marker, for at most `max` waiting tasks. If more could have begun, the
    /// marker stays before them, and the lane remains paused, for a reason that the caller adds.
    /// Returns the key of a lane that ended, and whether the lane remains paused.
    pub(super) fn end_pause(&mut self, slot: usize, max: usize) -> (Option<K>, bool) {
        self.paused.remove(&slot);
        self.remove_pause_marker(slot);
        let has_holders = self.lanes[slot].holders != LaneHolders::PauseMarker;
        let left = self.settle_queue(slot, has_holders, max);
        let rest = max != usize::MAX && left.is_none() && self.can_join(slot);
        if rest {
            self.lanes[slot].waiting.push_front(LaneEntry::PauseMarker);
            self.paused.insert(slot, PauseReasons::default());
        }
        self.grant_fence();
        (left, rest)
    }

    /// Returns whether the first of the wait queue could hold the lane beside its holders.
    fn can_join(&self, slot: usize) -> bool {
        let lane = &self.lanes[slot];
        lane.waiting.front().is_some_and(|first| lane.holders.admit(first.mode()))
    }

    /// Returns a paused key, the number of tasks that hold it nevertheless, and the reasons.
    pub(crate) fn paused_key(&self, hash: u32, key: &K) -> Option<(&K, usize, &PauseReasons)> {
        let slot = self.find(hash, key)?;
        self.paused_lane(slot, self.paused.get(&slot)?)
    }

    /// Iterates over all paused keys, as in [`paused_key`](Self::paused_key).
    pub(crate) fn paused_keys(&self) -> impl Iterator<Item = (&K, usize, &PauseReasons)> {
        self.paused.iter().filter_map(|(&slot, why)| self.paused_lane(slot, why))
    }

    fn paused_lane<'a>(
        &'a self,
        slot: usize,
        why: &'a PauseReasons,
    ) -> Option<(&'a K, usize, &'a PauseReasons)> {
        let lane = &self.lanes[slot];
        Some((lane.key.as_ref()?, lane.holders.count(), why))
    }

    /// Takes out every task of this one key that no worker has taken and whose work satisfies
    /// `may_take`: here and in the inbox, in order. The key's end task stays. If the key panics,
    /// nothing has changed.
    pub(crate) fn take_key(
        &mut self,
        inbox: &mut Inbox<K, W>,
        hash: u32,
        key: &K,
        may_take: impl Fn(&W) -> bool,
    ) -> TakenTasks<K, W> {
        let slot = self.find(hash, key);
        let (entries, claims) = self.find_taken(inbox, slot, (hash, key), &may_take);
        // From here on no key is compared or cloned.
        let mut taken =
            RemovedTasks { tasks: Vec::new(), watched: Vec::new(), claims, unused: Vec::new() };
        let (mut left, mut recall) = (None, None);
        if let Some(slot) = slot {
            let holders_left = self.take_granted(slot, &may_take, &mut taken);
            if !taken.tasks.is_empty() {
                recall = self.refresh_rate_limit(slot);
            }
            self.take_waiting(slot, &may_take, &mut taken);
            left = self.settle_queue(slot, holders_left, usize::MAX);
        }
        let mut entries = entries.into_iter();
        let mut take = |entry: InboxEntry<K, W>| match entry {
            other if !entries.next().expect("each entry was looked at") => Some(other),
            InboxEntry::Single { meta, mode, key, work } => {
                taken.tasks.push(UnrunTask::single(meta.seq.into(), KeyClaim { key, mode }, work));
                None
            }
            InboxEntry::Part { rollup, claim } => {
                taken.part(rollup.clone(), PartPlace::Outside);
                // As in the wait queue.
                if rollup.is_replacing() {
                    return Some(InboxEntry::Part { rollup, claim });
                }
                drop_catch_unwind(rollup);
                None
            }
            other => Some(other),
        };
        self.backlog.sift(&mut take);
        inbox.queue.sift(&mut take);
        for task in taken.watched {
            inbox.unwatch(&task);
            drop_catch_unwind(task);
        }
        self.grant_fence();
        TakenTasks { tasks: taken.tasks, left, recall, unused: taken.unused }
    }

    /// Takes the waiting tasks of a lane whose work satisfies `may_take`.
    fn take_waiting(
        &mut self,
        slot: usize,
        may_take: &impl Fn(&W) -> bool,
        taken: &mut RemovedTasks<K, W>,
    ) {
        for waiting in std::mem::take(&mut self.lanes[slot].waiting) {
            match waiting {
                LaneEntry::Task { meta, mode, key, work } if may_take(&work) => {
                    let claim = KeyClaim { key, mode };
                    taken.tasks.push(UnrunTask::single(meta.seq.into(), claim, work));
                }
                LaneEntry::Part { rollup, claim } if is_taken(&rollup, may_take) => {
                    if rollup.is_replacing() {
                        // It keeps its position until the replaced captures are dropped.
                        taken.part(rollup.clone(), PartPlace::Waits(slot));
                        let remains = LaneEntry::Part { rollup, claim };
                        self.lanes[slot].waiting.push_back(remains);
                    } else {
                        self.parts -= 1;
                        taken.part(rollup, PartPlace::Outside);
                    }
                }
                other => self.lanes[slot].waiting.push_back(other),
            }
        }
    }

    /// Returns for each entry of the backlog and the inbox whether [`take_key`](Self::take_key) takes
    /// it, and copies of the claims of the tasks with a role that it takes, in its order.
    fn find_taken(
        &self,
        inbox: &Inbox<K, W>,
        slot: Option<usize>,
        (hash, key): (u32, &K),
        may_take: impl Fn(&W) -> bool,
    ) -> (Vec<bool>, VecDeque<Claims<K>>) {
        let mut claims = VecDeque::new();
        if let Some(slot) = slot {
            for ready in self.ready.iter() {
                if let ReadyTask { work, held: HeldLanes::Rollup(rollup), .. } = ready
                    && self.may_take_granted(slot, rollup, work, &may_take)
                {
                    claims.push_back(rollup.claims());
                }
            }
            for waiting in &self.lanes[slot].waiting {
                if let LaneEntry::Part { rollup, .. } = waiting
                    && is_taken(rollup, &may_take)
                {
                    claims.push_back(rollup.claims());
                }
            }
        }
        let mut is_it = |entry: &InboxEntry<K, W>| match entry {
            InboxEntry::Single { meta, key: own, work, .. } => {
                meta.hash == hash && *own == *key && may_take(work)
            }
            InboxEntry::Part { rollup, claim } if is_taken(rollup, &may_take) => {
                let (at, own, _) = rollup.claim(*claim);
                let found = at == hash && own == key;
                if found {
                    claims.push_back(rollup.claims());
                }
                found
            }
            _ => false,
        };
        let entries = self.backlog.iter().chain(inbox.queue.iter()).map(&mut is_it).collect();
        (entries, claims)
    }

    /// Returns whether a ready task with a role is taken with the key of this lane.
    fn may_take_granted(
        &self,
        slot: usize,
        rollup: &Rollup<K, W>,
        work: &W,
        may_take: impl Fn(&W) -> bool,
    ) -> bool {
        rollup.role != MarkerRole::End
            && self.is_alone_in(slot, rollup)
            && (rollup.role == MarkerRole::Latest || may_take(work))
    }

    /// Takes out the lane's tasks that wait only for a worker. Those that may not be taken stay:
    /// called back, they could end up before a pause marker. Returns whether the lane still has a
    /// holder, or a pause marker as its holder; if not, the caller must grant it.
    fn take_granted(
        &mut self,
        slot: usize,
        may_take: impl Fn(&W) -> bool,
        taken: &mut RemovedTasks<K, W>,
    ) -> bool {
        let (mode, mut left) = {
            let lane = &self.lanes[slot];
            (lane.holders.mode(), lane.holders.count())
        };
        for ready in self.ready.take_all() {
            match ready {
                ReadyTask { work, key, meta, held: HeldLanes::Lane(at) }
                    if at == slot && may_take(&work) =>
                {
                    left -= 1;
                    let key = key.expect("a task that holds a lane has a key");
                    taken.tasks.push(UnrunTask::single(
                        meta.seq.into(),
                        KeyClaim { key, mode },
                        work,
                    ));
                }
                ReadyTask { work, held: HeldLanes::Rollup(rollup), .. }
                    if self.may_take_granted(slot, &rollup, &work, &may_take) =>
                {
                    left -= 1;
                    self.parts -= 1;
                    rollup.wait_again(work);
                    if let (_, _, ClaimMode::Limited(max)) = rollup.claim(0) {
                        self.drop_limited(slot, max);
                    }
                    taken.part(rollup, PartPlace::Outside);
                }
                other => self.push_ready(other),
            }
        }
        let holders = &mut self.lanes[slot].holders;
        if let LaneHolders::Shared(count) = holders {
            *count = left;
        }
        left != 0 || *holders == LaneHolders::PauseMarker
    }

    /// Returns whether a task with one key that has not begun must wait because its key is paused.
    pub(crate) fn must_wait_paused(&self, held: &HeldLanes<K, W>) -> bool {
        let slot = match held {
            HeldLanes::Lane(slot) => Some(*slot),
            HeldLanes::Rollup(rollup) if rollup.role == MarkerRole::Limited => {
                rollup.part(0).held_slot()
            }
            HeldLanes::Free | HeldLanes::Rollup(_) => None,
        };
        slot.is_some_and(|slot| self.is_slot_paused(slot))
    }

    /// Returns whether the key of a lane is paused until it is resumed.
    pub(crate) fn is_slot_paused(&self, slot: usize) -> bool {
        self.paused.get(&slot).is_some_and(PauseReasons::is_until_resumed)
    }

    /// Returns a copy of the key of a held lane.
    pub(crate) fn copy_key(&self, held: &HeldLanes<K, W>) -> Option<K> {
        match held {
            HeldLanes::Lane(slot) => self.lanes[*slot].key.clone(),
            HeldLanes::Free | HeldLanes::Rollup(_) => None,
        }
    }

    /// Returns a task with one key that was taken and has not begun to the front of its wait queue,
    /// with a [copy](Self::copy_key) of its key. It is charged again when it is taken again. Returns the changed deadline of the key, if any.
    pub(crate) fn requeue_paused(
        &mut self,
        held: HeldLanes<K, W>,
        key: Option<K>,
        work: W,
    ) -> Option<RateDeadline> {
        let slot = match &held {
            HeldLanes::Lane(slot) => *slot,
            HeldLanes::Rollup(rollup) => rollup.held_slot(),
            HeldLanes::Free => unreachable!("it has a key"),
        };
        self.uncharge(slot);
        let due = self.refresh_rate_limit(slot);
        let lane = &mut self.lanes[slot];
        let mut place = usize::from(matches!(lane.waiting.front(), Some(LaneEntry::PauseMarker)));
        // The lane does not end, since the wait queue is not empty.
        match held {
            HeldLanes::Rollup(rollup) => {
                let (_, _, mode) = rollup.claim(0);
                let ClaimMode::Limited(max) = mode else {
                    unreachable!("another role is not kept")
                };
                // Tasks that were taken after this one may have come back before it.
                let is_before = |other: &LaneEntry<K, W>| match other {
                    LaneEntry::Part { rollup: other, .. } => {
                        other.role == MarkerRole::Limited
                            && rollup.meta.seq.wrapping_sub(other.meta.seq) < u32::MAX / 2
                    }
                    LaneEntry::Task { .. } | LaneEntry::PauseMarker => false,
                };
                while lane.waiting.get(place).is_some_and(is_before) {
                    place += 1;
                }
                rollup.wait_again(work);
                rollup.part(0).set_place(PartPlace::Waits(slot));
                lane.waiting.insert(place, LaneEntry::Part { rollup, claim: 0 });
                self.leave_limited(slot, max);
            }
            HeldLanes::Lane(_) | HeldLanes::Free => {
                // No task of the key is before it, so any sequence number that is not after another
                // one will do; the self-check knows this one.
                let meta =
                    TaskMeta { hash: lane.hash, seq: 0, time: lane.since & !TaskMeta::MEASURED };
                let mode = lane.holders.mode();
                let key = key.expect("the caller has copied the key of a held lane");
                lane.waiting.insert(place, LaneEntry::Task { meta, mode, key, work });
                self.leave(slot);
                self.admit_sharers(slot);
            }
        }
        self.grant_fence();
        due
    }

    /// Moves the lane's tasks that wait only for a worker back to the front of its wait queue,
    /// which has no pause marker. Returns whether the lane still has a holder, or a pause marker as
    /// its holder; if not, the caller must grant it.
    fn take_back_granted(&mut self, slot: usize) -> bool {
        let (mode, holders) = {
            let lane = &self.lanes[slot];
            (lane.holders.mode(), lane.holders.count())
        };
        let mut back = VecDeque::new();
        for ready in self.ready.take_all() {
            match ready {
                ReadyTask { work, key, meta, held: HeldLanes::Lane(at) } if at == slot => {
                    let key = key.expect("a task that holds a lane has a key");
                    back.push_back(LaneEntry::Task { meta, mode, key, work });
                }
                ReadyTask { work, held: HeldLanes::Rollup(rollup), .. }
                    if self.is_alone_in(slot, &rollup) =>
                {
                    rollup.wait_again(work);
                    if let (_, _, ClaimMode::Limited(max)) = rollup.claim(0) {
                        self.drop_limited(slot, max);
                    }
                    rollup.part(0).set_place(PartPlace::Waits(slot));
                    back.push_back(LaneEntry::Part { rollup, claim: 0 });
                }
                other => self.push_ready(other),
            }
        }
        let lane = &mut self.lanes[slot];
        let left = holders - back.len();
        if let LaneHolders::Shared(count) = &mut lane.holders {
            *count = left;
        }
        back.append(&mut lane.waiting);
        lane.waiting = back;
        left != 0 || lane.holders == LaneHolders::PauseMarker
    }

    /// Calls back a holder that has just become ready, if its key is paused: it returns to the
    /// front of the wait queue. Returns the changed deadline of the key, if any.
    pub(super) fn recall_if_paused(&mut self, slot: usize) -> Option<RateDeadline> {
        if self.is_slot_paused(slot) && self.pause_lane(slot) {
            self.refresh_rate_limit(slot)
        } else {
            None
        }
    }

    /// Returns whether a task has a role, and this lane's key.
    pub(super) fn is_alone_in(&self, slot: usize, task: &Rollup<K, W>) -> bool {
        task.role != MarkerRole::None && task.part(0).held_slot() == Some(slot)
    }

    /// Grants the lane after the front of its wait queue has changed, to at most `max` tasks.
    /// Returns the key of a lane that ended.
    fn settle_queue(&mut self, slot: usize, has_holders: bool, max: usize) -> Option<K> {
        if has_holders {
            self.admit_some_sharers(slot, max);
            return None;
        }
        if self.lanes[slot].waiting.is_empty() {
            return self.remove_lane(slot);
        }
        self.grant_next_of(slot, max)
    }

    /// Updates the lane after the task of this part became a tombstone. Only a sharing task behind
    /// it, or a barrier, can have waited for that task alone.
    pub(crate) fn pass_tombstone(&mut self, part: &RollupPart<K>) {
        if let PartPlace::Waits(slot) = part.place() {
            self.admit_sharers(slot);
        }
        self.grant_fence();
    }

    /// Admits tasks from the front of the wait queue beside the holders, as far as the holders
    /// allow.
    pub(super) fn admit_sharers(&mut self, slot: usize) {
        self.admit_some_sharers(slot, usize::MAX);
    }

    fn admit_some_sharers(&mut self, slot: usize, max: usize) {
        let mut joined = 0;
        self.drop_tombstones(slot);
        while joined < max
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

    /// Drops the tombstones at the front of the wait queue.
    pub(super) fn drop_tombstones(&mut self, slot: usize) {
        let queue = &mut self.lanes[slot].waiting;
        while let Some(LaneEntry::Part { rollup, claim }) = queue.front()
            && rollup.is_tombstone()
        {
            rollup.part(*claim).set_place(PartPlace::Outside);
            // The last owner drops the key, which may panic.
            drop_catch_unwind(queue.pop_front());
            self.parts -= 1;
        }
    }
}

impl<K: Eq + Clone, W> Lanes<K, W> {
    /// Returns whether every open lane has only a pause marker.
    pub(super) fn all_idle(&self) -> bool {
        // Each lane with a pause marker is in `paused`, so the first comparison nearly always
        // decides.
        self.index.len() <= self.paused.len()
            && self.paused.keys().all(|&slot| {
                let lane = &self.lanes[slot];
                lane.holders == LaneHolders::PauseMarker
                    && !lane.waiting.iter().any(LaneEntry::is_task)
            })
    }
}
