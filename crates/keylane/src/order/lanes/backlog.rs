//! Moves tasks from the inbox to the backlog, and tracks the pinned lane, whose worker watches the
//! inbox.

use super::*;
use crate::prefetch::prefetch;
use crate::unwind::drop_catch_unwind;

/// Distance, in entries, at which the memory of a task is prefetched: a few tiny tasks take as long as
/// the transfer from the submitter's processor.
const UPCOMING: usize = 4;

impl<K: Eq + Clone, W> Lanes<K, W> {
    pub(crate) fn wants_refill(&self) -> bool {
        self.backlog.is_empty() && self.fence.is_none()
    }

    /// Returns whether nothing waits behind the lane's one holder, here or in the backlog, and
    /// nothing else waits for a worker: the holder's worker may continue with a refill.
    #[inline]
    pub(crate) fn is_last(&self, slot: usize) -> bool {
        let lane = &self.lanes[slot];
        lane.waiting.is_empty()
            && lane.holders == LaneHolders::Exclusive
            && self.ready.is_empty()
            && self.wants_refill()
    }

    /// Moves all entries of the inbox to the backlog. `lane` is the one that the caller wants to
    /// continue; it becomes the pinned lane if the next entry belongs to it.
    pub(crate) fn refill(&mut self, inbox: &mut Inbox<K, W>, lane: Option<usize>) {
        self.last_refill = inbox.queue.len();
        self.backlog.take_from(&mut inbox.queue);
        inbox.signaled = false;
        if !inbox.key_panics.is_empty() {
            self.key_panics.get_mut().append(&mut inbox.key_panics);
        }
        let has_foreign = std::mem::take(&mut inbox.has_foreign);
        self.backlog_is_pinned = lane.is_some() && self.pinned == lane && !has_foreign;
        if let Some(slot) = lane
            && !self.backlog_is_pinned
            && self.is_next(slot)
        {
            self.pin_next(inbox, slot);
        }
    }

    /// Returns the work of a task that is likely to run soon, after the one that has `held`.
    #[inline(always)]
    pub(crate) fn upcoming(&self, held: Option<&HeldLanes<K, W>>) -> Option<&W> {
        if let Some(&HeldLanes::Lane(slot)) = held {
            let waiting = &self.lanes[slot].waiting;
            if let Some(later) = waiting.get(2 * UPCOMING) {
                prefetch(later);
            }
            if let Some(LaneEntry::Task { work, .. }) = waiting.get(UPCOMING) {
                return Some(work);
            }
        }
        match self.backlog.ahead(UPCOMING)? {
            InboxEntry::Single { work, .. } | InboxEntry::Free { work, .. } => Some(work),
            _ => None,
        }
    }

    /// Returns whether the next backlog entry belongs to the lane.
    #[inline]
    pub(crate) fn is_next(&self, slot: usize) -> bool {
        self.backlog.front().is_some_and(|next| self.is_of(slot, next))
    }

    /// Pins a lane whose tasks are next in the backlog: its worker must look into the inbox from
    /// now on.
    pub(crate) fn pin_next(&mut self, inbox: &mut Inbox<K, W>, slot: usize) {
        self.pin_lane(inbox, slot);
        self.backlog_is_pinned =
            self.has_pinned() && self.backlog.iter().all(|entry| self.is_of(slot, entry));
    }

    /// Records a lane as pinned in the inbox. If another lane was pinned, the inbox must be empty,
    /// since no worker is responsible any longer for the tasks of that lane in it. If the key's
    /// `Clone` panics, no lane is pinned, which costs time alone.
    pub(crate) fn pin_lane(&mut self, inbox: &mut Inbox<K, W>, slot: usize) {
        if self.pinned != Some(slot) {
            let lane = &self.lanes[slot];
            let copy = catch_key_panic(|| lane.key.clone());
            let copy = copy.unwrap_or_else(|payload| {
                self.note_key_panic(payload);
                None
            });
            let pinned = copy.map(|key| (lane.hash, key));
            self.pinned = pinned.is_some().then_some(slot);
            // The copy of the key is dropped under the lock, and its drop may panic.
            drop_catch_unwind(std::mem::replace(&mut inbox.pinned, pinned));
            inbox.has_foreign = !inbox.queue.is_empty();
        }
    }

    #[inline]
    pub(crate) fn has_pinned(&self) -> bool {
        self.pinned.is_some()
    }

    pub(crate) fn is_pinned(&self, slot: usize) -> bool {
        self.pinned == Some(slot)
    }

    /// Unpins the pinned lane before its worker leaves it. Returns whether the inbox has tasks that
    /// no notification covers.
    pub(crate) fn unpin(&mut self, inbox: &mut Inbox<K, W>) -> bool {
        self.pinned = None;
        self.backlog_is_pinned = false;
        drop_catch_unwind(inbox.pinned.take());
        let notify = !inbox.queue.is_empty() && !inbox.signaled;
        inbox.signaled |= notify;
        notify
    }

    /// Returns whether any other task of this shard waits for a worker.
    #[inline]
    pub(crate) fn others_wait(&self) -> bool {
        self.has_offer()
    }

    /// Returns whether the lane's wait queue is longer than that of the ready task whose turn is
    /// next. A backlog entry counts as longer: the number of tasks behind it is unknown.
    #[cold]
    pub(crate) fn is_longer_than_next(&self, slot: usize) -> bool {
        let waits_in = |slot: usize| self.lanes[slot].waiting.len();
        match self.ready.front() {
            Some(ReadyTask { held: HeldLanes::Lane(next), .. }) if self.backlog.is_empty() => {
                waits_in(slot) > 1 + waits_in(*next)
            }
            _ => false,
        }
    }

    /// Returns whether the task just taken was the last of a small refill, so that a short wait
    /// would bring a larger one.
    #[inline]
    pub(crate) fn runs_dry(&self) -> bool {
        self.last_refill < MAX_DRY_REFILL
            && self.backlog.is_empty()
            && self.ready.is_empty()
            && self.pinned.is_some_and(|slot| self.lanes[slot].waiting.is_empty())
    }

    /// Counts a task as ended.
    #[inline]
    pub(crate) fn count_ended(&mut self) {
        self.ended += 1;
    }

    /// Takes the permits of all tasks that have ended.
    pub(crate) fn take_ended(&mut self) -> usize {
        std::mem::take(&mut self.ended)
    }

    /// Takes at most `max` permits of tasks that have ended.
    pub(crate) fn take_some_ended(&mut self, max: u32) -> u32 {
        let some = u32::try_from(self.ended).unwrap_or(max).min(max);
        self.ended -= some as usize;
        some
    }

    /// Returns roughly the number of tasks in the shard that wait only for a worker.
    pub(crate) fn about_left(&self) -> usize {
        self.ready.len() + self.backlog.about_len()
    }

    /// Takes and clears the `entered_blocked` flag: whether an entry was entered recently that
    /// could not run.
    pub(crate) fn take_entered_blocked(&mut self) -> bool {
        std::mem::take(&mut self.entered_blocked)
    }

    /// Returns whether another worker would find a task to run, or to enter, here.
    #[inline]
    pub(crate) fn has_offer(&self) -> bool {
        !self.ready.is_empty() || self.has_fresh() && !self.backlog_is_pinned
    }

    #[inline]
    pub(super) fn has_fresh(&self) -> bool {
        self.fence.is_none() && !self.backlog.is_empty()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    struct Shard {
        lanes: Lanes<u32, ()>,
        inbox: Inbox<u32, ()>,
        task_slot: TaskSlot<u32, ()>,
    }

    impl Shard {
        fn new() -> Self {
            Shard { lanes: Lanes::new(64), inbox: Inbox::default(), task_slot: TaskSlot::default() }
        }

        /// Submits a task of this key. Returns whether the workers must be notified.
        fn submit(&mut self, key: u32) -> bool {
            self.inbox.push_single(key, 0, KeyClaim { key, mode: ClaimMode::Exclusive }, || ())
        }

        fn refill(&mut self, lane: Option<usize>) {
            self.lanes.refill(&mut self.inbox, lane);
        }

        /// Takes the next task of the backlog. Returns the slot of its lane.
        fn start(&mut self) -> Option<usize> {
            match self.lanes.next_fresh(false, &mut self.task_slot)? {
                HeldLanes::Lane(slot) => {
                    self.task_slot.take();
                    Some(slot)
                }
                other => panic!("it has one key: {other:?}"),
            }
        }
    }

    /// A shard with a running task of key 7.
    fn running() -> (Shard, usize) {
        let mut shard = Shard::new();
        assert!(shard.submit(7), "no worker has been notified");
        shard.refill(None);
        let slot = shard.start().expect("nothing else runs");
        (shard, slot)
    }

    #[test]
    fn the_load_of_a_shard_is_its_backlog_and_its_ready_tasks() {
        let mut shard = Shard::new();
        (0..3).for_each(|key| _ = shard.submit(key));
        shard.refill(None);
        assert_eq!(shard.lanes.about_left(), 3);
        let slot = shard.start().expect("nothing else runs");
        shard.task_slot.put(());
        shard.lanes.requeue(slot, &mut shard.task_slot);
        assert_eq!(shard.lanes.about_left(), 3);
        shard.start();
        shard.start();
        assert_eq!(shard.lanes.about_left(), 1);
    }

    /// The lane's worker finds the next tasks of the key by itself.
    #[test]
    fn no_worker_is_notified_of_a_task_of_the_pinned_lane() {
        let (mut shard, slot) = running();
        shard.submit(7);
        shard.refill(Some(slot));
        assert!(shard.lanes.is_pinned(slot), "the next task is the lane's");
        assert!(!shard.submit(7) && shard.submit(8));
        assert!(!shard.lanes.unpin(&mut shard.inbox), "key 8 has notified");
        shard.refill(None);
        assert!(shard.submit(7), "the lane is not pinned any more");
    }

    #[test]
    fn a_lane_of_another_key_is_not_pinned_by_a_refill() {
        let (mut shard, slot) = running();
        shard.submit(8);
        shard.refill(Some(slot));
        assert!(!shard.lanes.has_pinned());
    }

    #[test]
    fn a_task_that_waits_in_a_lane_is_taken_before_a_refill() {
        let (mut shard, slot) = running();
        assert!(shard.lanes.is_last(slot));
        shard.submit(7);
        shard.refill(None);
        assert!(!shard.lanes.is_last(slot) && shard.lanes.has_offer());
        assert_eq!(shard.start(), None, "it waits for the running one");
        assert!(!shard.lanes.is_last(slot) && !shard.lanes.has_offer());
    }

    #[test]
    fn only_a_pinned_lane_without_tasks_runs_dry() {
        let (mut shard, slot) = running();
        assert!(!shard.lanes.runs_dry(), "the lane is not pinned");
        shard.lanes.pin_lane(&mut shard.inbox, slot);
        assert!(shard.lanes.runs_dry());
        shard.submit(7);
        shard.refill(Some(slot));
        assert!(!shard.lanes.runs_dry(), "a task is left");
        assert_eq!(shard.start(), None);
        assert!(!shard.lanes.runs_dry(), "a task waits in the lane");
    }
}
