//! What the producers have left, and the lane whose worker is bound to look there.

use super::*;
use crate::unwind::drop_catch_unwind;

impl<K: Eq + Clone, W> Lanes<K, W> {
    pub(crate) fn wants_refill(&self) -> bool {
        self.backlog.is_empty() && self.fence.is_none()
    }

    /// Whether a lane has nobody behind its one holder, here or in the backlog, and nobody else
    /// waits for a worker: a chance to go on with what the producers have left.
    #[inline]
    pub(crate) fn is_last(&self, slot: usize) -> bool {
        let lane = &self.lanes[slot];
        lane.waiting.is_empty()
            && lane.holders == Holders::Exclusive
            && self.ready.is_empty()
            && self.wants_refill()
    }

    /// Takes over what the producers have left. `lane` is the one that the caller goes on with if
    /// it can; it becomes the pinned lane if the next task is its own.
    pub(crate) fn refill(&mut self, inbox: &mut Inbox<K, W>, lane: Option<usize>) {
        self.last_refill = inbox.queue.len();
        self.backlog.take_from(&mut inbox.queue);
        inbox.signaled = false;
        let has_foreign = std::mem::take(&mut inbox.has_foreign);
        self.backlog_is_pinned = lane.is_some() && self.pinned == lane && !has_foreign;
        if let Some(slot) = lane
            && !self.backlog_is_pinned
            && self.is_next(slot)
        {
            self.pin_next(inbox, slot);
        }
    }

    /// Whether the next of the backlog is the lane's.
    #[inline]
    pub(crate) fn is_next(&self, slot: usize) -> bool {
        self.backlog.front().is_some_and(|next| self.lanes[slot].is_of(next))
    }

    /// A worker that is on this lane finds the lane's tasks next in the backlog: it is bound to look
    /// into the inbox from now on.
    pub(crate) fn pin_next(&mut self, inbox: &mut Inbox<K, W>, slot: usize) {
        self.pin_lane(inbox, slot);
        self.backlog_is_pinned = self.backlog.iter().all(|entry| self.lanes[slot].is_of(entry));
    }

    /// Lets the inbox know that a worker has settled on a lane. If another lane was the pinned lane, the
    /// inbox must be empty, for its worker no longer answers for what is there.
    pub(crate) fn pin_lane(&mut self, inbox: &mut Inbox<K, W>, slot: usize) {
        if self.pinned != Some(slot) {
            self.pinned = Some(slot);
            let lane = &self.lanes[slot];
            let pinned = lane.key.clone().map(|key| (lane.hash, key));
            // The copy of a key is dropped under the lock, and may panic.
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

    /// The pinned lane lane is about to be left: the inbox must know, and says whether it has tasks
    /// that nobody was told of.
    pub(crate) fn unpin(&mut self, inbox: &mut Inbox<K, W>) -> bool {
        self.pinned = None;
        self.backlog_is_pinned = false;
        drop_catch_unwind(inbox.pinned.take());
        let tell = !inbox.queue.is_empty() && !inbox.signaled;
        inbox.signaled |= tell;
        tell
    }

    /// Whether anybody in this shard waits for a worker but the lane that has one.
    #[inline]
    pub(crate) fn others_wait(&self) -> bool {
        self.has_offer()
    }

    /// Whether more waits in a lane than in that of the task whose turn it would be. Who has not got a lane yet
    /// counts as longer: nobody knows how much there is behind it.
    #[cold]
    pub(crate) fn is_longer_than_next(&self, slot: usize) -> bool {
        let waits_in = |slot: usize| self.lanes[slot].waiting.len();
        match self.ready.front() {
            Some(ReadyTask { held: Held::Lane(next), .. }) if self.backlog.is_empty() => {
                waits_in(slot) > 1 + waits_in(*next)
            }
            _ => false,
        }
    }

    /// Whether the task just taken was the last of a small delivery, so that a moment's patience
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

    /// The slots of the tasks that have ended.
    pub(crate) fn take_ended(&mut self) -> usize {
        std::mem::take(&mut self.ended)
    }

    /// The same, but no more than `most`.
    pub(crate) fn take_some_ended(&mut self, most: u32) -> u32 {
        let some = u32::try_from(self.ended).unwrap_or(most).min(most);
        self.ended -= some as usize;
        some
    }

    /// About how many tasks of the shard wait for nothing but a worker.
    pub(crate) fn about_left(&self) -> usize {
        self.ready.len() + self.backlog.about_len()
    }

    /// Whether something was entered of late that could not run.
    pub(crate) fn take_passed(&mut self) -> bool {
        std::mem::take(&mut self.passed)
    }

    /// Whether another worker would find something to do, or to enter, here.
    #[inline]
    pub(crate) fn has_offer(&self) -> bool {
        !self.ready.is_empty() || self.has_fresh() && !self.backlog_is_pinned
    }

    #[inline]
    pub(super) fn has_fresh(&self) -> bool {
        self.fence.is_none() && !self.backlog.is_empty()
    }
}
