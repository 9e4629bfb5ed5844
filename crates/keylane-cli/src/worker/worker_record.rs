//! Records on their way to a child: before a slot is chosen, and until the answer.

use keylane::Turn;

use crate::key::RecordKey;

/// A record for the children.
#[derive(Debug)]
pub(crate) struct NewRecord<'r, T> {
    pub(crate) ticket: T,
    pub(crate) key: &'r RecordKey,
    /// Number of the record; of two that wait for a child, the one with the lower goes first.
    pub(crate) place: u64,
    /// With its line end.
    pub(crate) line: &'r [u8],
    /// Turn of the key. Without one, the ticket keeps back the key's other records.
    pub(crate) turn: Option<Turn>,
    /// Whether no other record may be in the child beside it. For further attempts, so that a record
    /// that ends each child takes others along at most once.
    pub(crate) is_alone: bool,
}

/// A record that was entered in a slot and not answered.
#[derive(Debug)]
pub(crate) struct PendingRecord<T> {
    pub(crate) ticket: T,
    pub(crate) key: RecordKey,
    /// Bytes of its line.
    pub(super) length: usize,
    /// True if no other record may be in the child beside it, because its last child has ended.
    pub(super) is_alone: bool,
    /// True if the key has its home in this slot, so that its next record may follow.
    pub(super) is_pinned: bool,
    /// The key's turn, held so that no other record of the key starts; none if
    /// the key has its home in this slot instead, or the ticket holds it.
    pub(super) turn: Option<Turn>,
}

impl<T> PendingRecord<T> {
    /// Takes a record of a pool that keeps turns, with the turn.
    pub(crate) fn into_parts(self) -> (T, RecordKey, Option<Turn>) {
        debug_assert!(!self.is_pinned, "its key would not be unblocked");
        (self.ticket, self.key, self.turn)
    }
}
