//! Table of slots: the choice of a slot for a record, and the record's entry in it. Pure except for
//! its handles; guarded by the lock of the pool.

use keylane::Turn;

use super::affinity::KeyAffinity;
use super::placement::{WorkerKeys, home_of};
use super::slot::WorkerSlot;
use super::worker_record::{NewRecord, PendingRecord};

/// All slots, and what is known of their children together.
#[derive(Debug)]
pub(super) struct SlotTable<T> {
    pub(super) slots: Vec<WorkerSlot<T>>,
    pub(super) placement: WorkerKeys,
    /// Slots of keys where `placement` lets a key go to any of them.
    pub(super) affinity: KeyAffinity,
    /// Whether a key's next record may follow the last one into its child before that is answered.
    pub(super) follows: bool,
    /// Number of dispatchers that wait for capacity.
    pub(super) waiting: usize,
    /// True once no record will come any more.
    pub(super) over: bool,
    /// True once the user was warned about a silent child.
    pub(super) hinted: bool,
    /// Number of children that ended before their time, and may have had state of keys.
    pub(super) lost_states: u64,
}

impl<T> SlotTable<T> {
    /// The slot for a record: where its key is at home, else the least busy.
    pub(super) fn place_for(&self, record: &NewRecord<'_, T>) -> Option<usize> {
        // The window does not keep a key from its home. It can exceed it by one
        // record, because then the turn is held.
        let home = match self.placement {
            WorkerKeys::Sticky => home_of(record.key, self.slots.len()),
            WorkerKeys::Any => self.affinity.of(record.key),
        };
        home.or_else(|| match record.is_alone {
            // It waits in a backlog, or others would fill each child before it is empty.
            true => self.least_loaded(),
            false => self.least_busy(record.line.len()),
        })
    }

    fn least_loaded(&self) -> Option<usize> {
        (0..self.slots.len()).min_by_key(|index| {
            let slot = &self.slots[*index];
            slot.load() + slot.backlog.len()
        })
    }

    fn least_busy(&self, length: usize) -> Option<usize> {
        let is_open =
            |slot: &WorkerSlot<T>| slot.has_room(length, false) && slot.backlog.is_empty();
        let open = self.slots.iter().enumerate().filter(|(_, slot)| is_open(slot));
        open.min_by_key(|(_, slot)| slot.load()).map(|(index, _)| index)
    }

    /// Enters a record; gives the turn back if the key can go on at once.
    pub(super) fn enter(&mut self, index: usize, record: NewRecord<'_, T>) -> Option<Turn> {
        let NewRecord { ticket, key, place, line, turn, is_alone } = record;
        let slot = &mut self.slots[index];
        let has_room = slot.has_room(line.len(), is_alone) && slot.backlog.is_empty();
        let is_sticky = self.placement == WorkerKeys::Sticky;
        let can_follow = self.follows && turn.is_some() && has_room;
        let is_pinned = can_follow && !is_sticky && slot.is_quick();
        let goes_on = is_pinned || can_follow && is_sticky;
        let (turn, given_back) = if goes_on { (None, turn) } else { (turn, None) };
        let (key_of, length) = (key.clone(), line.len());
        let pending = PendingRecord { ticket, key: key_of, length, is_alone, is_pinned, turn };
        if (is_sticky || is_alone) && !has_room {
            slot.backlog.push(place, pending, line.to_vec());
        } else {
            slot.enter(line, pending);
        }
        if is_pinned {
            self.affinity.pin(key, index);
        }
        given_back
    }

    /// Enters records of a slot's backlog for as long as there is room; returns the turns of keys
    /// that can go on.
    pub(super) fn admit_backlog(&mut self, index: usize) -> Vec<Turn> {
        self.slots[index].admit_backlog(self.follows)
    }

    /// Counts the end of a slot's child. Returns whether state of keys may be lost with it.
    pub(super) fn count_lost_state(&mut self, index: usize, dismissed: bool) -> bool {
        let had_state = self.slots[index].take_has_answered();
        let is_lost = had_state && !dismissed && self.placement == WorkerKeys::Sticky;
        self.lost_states += u64::from(is_lost);
        is_lost
    }
}
