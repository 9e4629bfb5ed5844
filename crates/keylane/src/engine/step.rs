//! Ends a worker's task and takes its next one, in one critical section of the shard.

use super::rate_state::PendingWakeups;
use super::*;
use crate::unwind::drop_catch_unwind;

impl<K: Key, X: Execute<K>, S: BuildHasher> Engine<K, X, S> {
    /// Releases the lane of a task and finds the shard's next task, in one critical section.
    #[inline(always)]
    pub(crate) fn step(
        &self,
        shard: usize,
        ended: Option<HeldLanes<K, X::Work>>,
        request: StepRequest,
        task_slot: &mut TaskSlot<K, X::Work>,
    ) -> Option<StepResult<K, X::Work>> {
        let lanes = self.shards[shard].lanes.lock();
        if lanes.is_checked {
            return self.step_checked(shard, lanes, ended, request, task_slot);
        }
        self.step_on::<false>(shard, lanes, ended, request, task_slot)
    }

    /// Takes a step on locked lanes. With `CHECKED` the next task is charged for its key's rate.
    #[inline(always)]
    fn step_on<const CHECKED: bool>(
        &self,
        shard: usize,
        mut lanes: LockedLanes<'_, K, X::Work>,
        ended: Option<HeldLanes<K, X::Work>>,
        request: StepRequest,
        task_slot: &mut TaskSlot<K, X::Work>,
    ) -> Option<StepResult<K, X::Work>> {
        if let Some(HeldLanes::Lane(slot)) = ended
            && request.stay
            && request.quantum_left
            && let Some(ReplaceResult { goes_on, left }) =
                lanes.replace(slot, X::WANTS_KEY, task_slot)
        {
            // The rest of the shard's work was offered before the ended task began.
            lanes.count_ended();
            let held = HeldLanes::Lane(slot);
            let wakeups = if CHECKED {
                self.charge(&mut lanes, &held, task_slot)
            } else {
                PendingWakeups::default()
            };
            self.unlock_and_release(lanes, None);
            if CHECKED {
                self.set_timers(shard, wakeups);
            }
            // A key's own drop is user code.
            drop_catch_unwind(left);
            return Some(StepResult {
                held,
                goes_on,
                in_place: true,
                passed: false,
                runs_dry: false,
            });
        }
        self.step_slow::<CHECKED>(shard, lanes, ended, request, task_slot)
    }

    /// Takes a step in a shard with bounds per key, counted failures, or rates.
    #[cold]
    fn step_checked(
        &self,
        shard: usize,
        mut lanes: LockedLanes<'_, K, X::Work>,
        ended: Option<HeldLanes<K, X::Work>>,
        mut request: StepRequest,
        task_slot: &mut TaskSlot<K, X::Work>,
    ) -> Option<StepResult<K, X::Work>> {
        let mut freed = None;
        let mut counted = PendingWakeups::default();
        if let Some(bounds) = &self.bounds {
            if let (Some(after), Some(ended)) = (bounds.stop_after, &ended) {
                counted = self.count_result(&mut lanes, ended, after);
            }
            if let Some(HeldLanes::Lane(slot)) = &ended {
                let (hash, key) = lanes.key_in(*slot);
                freed = bounds.end(KeyRef { part: shard, hash, key });
            }
        }
        let takes = request.go_on || request.stay;
        let may_take = takes && self.take_token();
        if !may_take {
            (request.go_on, request.stay) = (false, false);
        }
        let next = self.step_on::<true>(shard, lanes, ended, request, task_slot);
        self.set_timers(shard, counted);
        // Waiters are woken while nothing is locked. Their submissions come after this task's end.
        drop_catch_unwind(freed);
        if may_take {
            self.spend_token(next.as_ref(), task_slot);
        }
        next
    }

    #[inline(never)]
    fn step_slow<const CHECKED: bool>(
        &self,
        shard: usize,
        mut lanes: LockedLanes<'_, K, X::Work>,
        ended: Option<HeldLanes<K, X::Work>>,
        request: StepRequest,
        task_slot: &mut TaskSlot<K, X::Work>,
    ) -> Option<StepResult<K, X::Work>> {
        let mut left = None;
        let mut held = None;
        let mut goes_on = false;
        if let Some(ended) = ended {
            lanes.count_ended();
            if request.go_on && self.go_on(shard, &mut lanes, &ended, request, task_slot) {
                held = Some(ended);
                goes_on = true;
            } else {
                left = self.leave(shard, &mut lanes, &ended, request);
            }
        }
        if held.is_none() && request.stay {
            held = self.find(shard, &mut lanes, task_slot);
        }
        let (failed, key_panics) = (lanes.take_failed(), lanes.take_key_panics());
        let wakeups = match &held {
            Some(held) if CHECKED => self.charge(&mut lanes, held, task_slot),
            _ => PendingWakeups::default(),
        };
        let offer = lanes.has_offer();
        let runs_dry = lanes.runs_dry();
        let entered_blocked = lanes.take_entered_blocked();
        lanes.check();
        if held.is_none() {
            self.ready_shards.set_load(shard, lanes.about_left());
        }
        self.unlock_and_release(lanes, held.as_ref());
        // A key's own drop is user code.
        drop_catch_unwind(left);
        if CHECKED {
            self.set_timers(shard, wakeups);
        }
        if offer {
            self.mark_ready(shard);
        }
        if failed.is_some() || !key_panics.is_empty() {
            self.end_failed(shard, failed, key_panics);
        }
        held.map(|held| StepResult {
            held,
            goes_on,
            in_place: false,
            passed: entered_blocked,
            runs_dry,
        })
    }

    /// Ends a section in which a task may have ended. If submitters wait for permits, they get
    /// those of the ended tasks.
    #[inline(always)]
    fn unlock_and_release(
        &self,
        mut lanes: LockedLanes<'_, K, X::Work>,
        held: Option<&HeldLanes<K, X::Work>>,
    ) {
        if let Some(work) = lanes.upcoming(held) {
            X::prefetch(work);
        }
        let freed = if self.admission.has_waiters() { lanes.take_ended() } else { 0 };
        drop(lanes);
        if freed != 0 {
            self.admission.release(freed);
        }
    }

    /// Returns whether there is work for another worker, after one has found a task in this shard.
    /// The bit that led it there may have been set for that task alone.
    pub(crate) fn offers_more(&self, shard: usize) -> bool {
        let lanes = self.shards[shard].lanes.lock();
        if lanes.has_offer() {
            return true;
        }
        // Work that comes from here on sets the bit again; for earlier work `signaled` is set.
        self.ready_shards.clear(shard);
        if self.shards[shard].inbox.lock().signaled {
            self.ready_shards.set(shard);
        }
        drop(lanes);
        self.ready_shards.any_synced()
    }

    /// Collects the permits of ended tasks, and the spare permits of the inboxes.
    pub(crate) fn collect(&self) -> usize {
        let from = |shard: &Shard<K, X::Work>| {
            let ended = shard.lanes.lock().take_ended();
            ended + std::mem::take(&mut shard.inbox.lock().spare_permits) as usize
        };
        self.shards.iter().map(from).sum()
    }

    /// Refills the backlog from the inbox, and leaves the permits of ended tasks in the inbox if no
    /// submitter waits for them.
    fn drain_inbox(&self, shard: usize, lanes: &mut Lanes<K, X::Work>, lane: Option<usize>) {
        let mut inbox = self.shards[shard].inbox.lock();
        lanes.refill(&mut inbox, lane);
        if self.admission.can_cache() {
            let more = self.admission.cache_limit().saturating_sub(inbox.spare_permits);
            inbox.spare_permits += lanes.take_some_ended(more);
        }
    }

    /// Takes the next task of the lane whose task has ended.
    #[inline(always)]
    pub(super) fn go_on(
        &self,
        shard: usize,
        lanes: &mut Lanes<K, X::Work>,
        ended: &HeldLanes<K, X::Work>,
        request: StepRequest,
        task_slot: &mut TaskSlot<K, X::Work>,
    ) -> bool {
        let &HeldLanes::Lane(slot) = ended else { return false };
        // The shard's own bit counts too: its inbox may have a signaled task, behind a backlog that
        // belongs entirely to the lane.
        let quantum_left = request.quantum_left && !lanes.is_in_order()
            || !(lanes.others_wait() || self.ready_shards.any())
            || request.while_longer && lanes.is_longer_than_next(slot);
        if lanes.next_in_lane(slot, quantum_left, task_slot) {
            // Not in place of another pinned lane: the inbox may have tasks of that one for which
            // no notification was sent.
            if !lanes.has_pinned() {
                lanes.pin_lane(&mut self.shards[shard].inbox.lock(), slot);
            }
            return true;
        }
        if !lanes.is_last(slot) {
            return false;
        }
        self.drain_inbox(shard, lanes, Some(slot));
        lanes.next_in_lane(slot, quantum_left, task_slot)
    }

    /// Finds a task of the shard that may run.
    #[inline(always)]
    pub(super) fn find(
        &self,
        shard: usize,
        lanes: &mut Lanes<K, X::Work>,
        task_slot: &mut TaskSlot<K, X::Work>,
    ) -> Option<HeldLanes<K, X::Work>> {
        if let Some(held) = lanes.next_in_turn(task_slot) {
            return Some(held);
        }
        loop {
            if let Some(held) = lanes.next_fresh(X::WANTS_KEY, task_slot) {
                self.pin_lane(shard, lanes, &held);
                return Some(held);
            }
            if lanes.has_failed() {
                return None;
            }
            if !self.refill_lanes(shard, lanes) {
                break;
            }
        }
        if let Some(held) = lanes.next_ready(task_slot) {
            return Some(held);
        }
        // From here on a producer sets the bit again; what it pushed before, the refill below
        // finds.
        self.ready_shards.clear(shard);
        self.refill_lanes(shard, lanes);
        if let Some(held) = lanes.next_fresh(X::WANTS_KEY, task_slot) {
            return Some(held);
        }
        if lanes.has_failed() {
            return None;
        }
        lanes.next_ready(task_slot)
    }

    /// Pins a lane that has just been opened if the next task belongs to it too: more of them are
    /// likely to come, and would wake other workers for nothing.
    #[inline]
    fn pin_lane(&self, shard: usize, lanes: &mut Lanes<K, X::Work>, held: &HeldLanes<K, X::Work>) {
        if let &HeldLanes::Lane(slot) = held
            && !lanes.has_pinned()
            && lanes.is_next(slot)
        {
            lanes.pin_next(&mut self.shards[shard].inbox.lock(), slot);
        }
    }

    /// Refills the backlog, and returns whether that brought anything.
    pub(super) fn refill_lanes(&self, shard: usize, lanes: &mut Lanes<K, X::Work>) -> bool {
        lanes.wants_refill() && {
            self.drain_inbox(shard, lanes, None);
            !lanes.wants_refill()
        }
    }

    /// Releases a lane, or a free task's count.
    #[inline(always)]
    pub(super) fn leave(
        &self,
        shard: usize,
        lanes: &mut Lanes<K, X::Work>,
        held: &HeldLanes<K, X::Work>,
        request: StepRequest,
    ) -> Option<K> {
        if let &HeldLanes::Lane(slot) = held {
            if lanes.is_pinned(slot) && lanes.unpin(&mut self.shards[shard].inbox.lock()) {
                self.mark_ready(shard);
            }
            if !request.quantum_left && (lanes.others_wait() || self.ready_shards.any()) {
                lanes.quantum_expired(request.ran, self.settings.workers);
            }
        }
        lanes.release(held)
    }

    /// Ends a turn that was kept beyond its worker's step.
    pub(crate) fn end(&self, shard: usize, held: HeldLanes<K, X::Work>) {
        match held {
            HeldLanes::Rollup(rollup) => self.end_rollup(&rollup),
            held => {
                let request = StepRequest {
                    go_on: false,
                    stay: false,
                    quantum_left: true,
                    while_longer: false,
                    ran: 0,
                };
                self.step(shard, Some(held), request, &mut TaskSlot::default());
            }
        }
    }

    /// Releases the lanes of a rollup, each in its shard.
    #[cold]
    pub(crate) fn end_rollup(&self, rollup: &Arc<Rollup<K, X::Work>>) {
        if let Some(after) = self.bounds.as_ref().and_then(|bounds| bounds.stop_after) {
            self.count_rollup_result(rollup, after);
        }
        self.leave_order(rollup);
    }

    /// Releases everything that a rollup holds.
    pub(super) fn leave_order(&self, rollup: &Arc<Rollup<K, X::Work>>) {
        if rollup.role.is_watched() {
            self.unwatch(rollup);
        }
        self.end_parts(rollup);
        if let Some(member) = &rollup.member {
            self.leave_index(member);
        }
        if let Some(bounds) = &self.bounds {
            self.leave_scope(bounds, &rollup.scope);
        }
        self.admission.release(1);
    }

    pub(super) fn end_parts(&self, rollup: &Rollup<K, X::Work>) {
        match &rollup.scope {
            RollupScope::Everything { .. } => {
                self.ending_barriers.fetch_add(1, Ordering::AcqRel);
                for (index, shard) in self.shards.iter().enumerate() {
                    shard.lanes.lock().lower_fence();
                    // Notifications that came meanwhile reached no worker that could take the
                    // tasks.
                    self.mark_ready(index);
                }
                self.ending_barriers.fetch_sub(1, Ordering::AcqRel);
                self.sharing.barriers.fetch_sub(1, Ordering::AcqRel);
            }
            RollupScope::Unkeyed { shard } => {
                self.end_unkeyed(*shard);
            }
            RollupScope::Keys(claims) => {
                for part in claims {
                    let shard = self.shard_of(part.hash);
                    let mut lanes = self.shards[shard].lanes.lock();
                    let left = lanes.release_part(part);
                    let offer = lanes.has_offer();
                    drop(lanes);
                    drop_catch_unwind(left);
                    if offer {
                        self.mark_ready(shard);
                    }
                }
            }
        }
    }
}
