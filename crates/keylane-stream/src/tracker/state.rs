use std::collections::VecDeque;

use super::position_set::PositionSet;
use super::{MapLimit, Progress};
use crate::Position;

/// Keeps what of a stream is done while records end out of order.
///
/// - The watermark is never above a position that was taken on and has not been completed.
/// - Positions come in ascending order. Those that are left out (a compacted topic, the markers of
///   transactions) are gaps, and hold nothing up.
/// - Taking on and completing cost constant time; a snapshot costs time in proportion to what is
///   incomplete. Neither depends on how far a stuck record lies behind.
/// - If [`may_take`](Self::may_take) is asked before each [`take`](Self::take), the map fits its limit
///   whatever ends and in whatever order.
///
/// It belongs to one stretch of owning the stream: who gets a partition back makes a new one from
/// what is committed. Then no late completion of an earlier stretch can reach it.
#[derive(Clone, Debug)]
pub struct Tracker {
    limit: MapLimit,
    /// TakeOutcome on, not completed; all below `next`.
    in_flight: PositionSet,
    /// What an earlier life left incomplete and the source has not delivered again; all from `next`
    /// on and below `end`.
    left_over: VecDeque<Position>,
    /// All below it has been delivered, or is a gap.
    next: Position,
    /// One past the highest position that is done.
    end: Position,
    removed: u64,
}

/// What is to be done with a position that a source delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOutcome {
    /// It is incomplete, and yours until you complete it.
    New,
    /// It was delivered before and is not completed yet.
    InFlight,
    /// It is done already: there is nothing to do.
    Done,
}

/// A position was completed that was not taken on, or twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("position {0} is not in flight")]
pub struct NotInFlight(pub Position);

impl Tracker {
    /// For a stream of which everything below `start` is done, and nothing else.
    #[must_use]
    pub fn new(start: Position, limit: MapLimit) -> Self {
        Self::resume(&Progress::up_to(start), limit)
    }

    /// Goes on where an earlier tracker was. The source is to deliver from the watermark on.
    ///
    /// The map may be longer than the limit, if it was written under a larger one:
    /// [`Progress::shortened`] cuts what is to be committed until enough of it is done.
    #[must_use]
    pub fn resume(progress: &Progress, limit: MapLimit) -> Self {
        let mut left_over = VecDeque::from(progress.incomplete().to_vec());
        if progress.end() > progress.watermark() {
            left_over.push_front(progress.watermark());
        }
        Tracker {
            limit,
            in_flight: PositionSet::default(),
            left_over,
            next: progress.watermark(),
            end: progress.end(),
            removed: 0,
        }
    }

    /// Has a map of another length from now on. What is in flight may be too much for it already: then
    /// [`Progress::shortened`] cuts what is to be committed until enough of it is done.
    pub fn set_limit(&mut self, limit: MapLimit) {
        self.limit = limit;
    }

    /// Whether a position, which is to be the next one, can be taken on so that the map fits its
    /// limit whatever is completed then. If not, hold the source until something is completed.
    ///
    /// It is always so if nothing is in flight, or the position is none that would be [`TakeOutcome::New`].
    #[must_use]
    pub fn may_take(&self, position: Position) -> bool {
        if position < self.next || position < self.end {
            return true;
        }
        // What was left over is below `position`: taking that on shows that they have removed.
        let first = self.in_flight.first().unwrap_or(position);
        self.limit.has_room_for(self.in_flight.len() as u64 + 1, position.get() - first.get())
    }

    /// Takes on a position that the source delivers. All between it and the one before are gaps.
    ///
    /// # Panics
    /// At [`Position::END`], of which no record can be.
    pub fn take(&mut self, position: Position) -> TakeOutcome {
        if position < self.next {
            let in_flight = self.in_flight.contains(position);
            return if in_flight { TakeOutcome::InFlight } else { TakeOutcome::Done };
        }
        let after = position.next();
        self.skip_to(position);
        self.next = after;
        let left_over = self.left_over.pop_front_if(|first| *first == position).is_some();
        if position < self.end && !left_over {
            return TakeOutcome::Done;
        }
        self.in_flight.push(position);
        TakeOutcome::New
    }

    /// Notes that the source goes on at `position`, and that all before it that it did not deliver are
    /// gaps: so the watermark also passes those at which a stream ends for now.
    pub fn skip_to(&mut self, position: Position) {
        while self.left_over.pop_front_if(|first| *first < position).is_some() {
            self.removed += 1;
        }
        self.next = self.next.max(position);
    }

    /// Notes that a position is done. Whether the watermark has risen.
    ///
    /// # Errors
    /// If it is not in flight; then nothing changes.
    pub fn complete(&mut self, position: Position) -> Result<bool, NotInFlight> {
        let was_first = self.in_flight.first() == Some(position);
        if !self.in_flight.remove(position) {
            return Err(NotInFlight(position));
        }
        self.end = self.end.max(position.next());
        Ok(was_first)
    }

    /// The lowest position that is not done, which is what to commit.
    #[must_use]
    pub fn watermark(&self) -> Position {
        // What was left over comes after everything that has been delivered since.
        let incomplete = self.in_flight.first().or(self.left_over.front().copied());
        incomplete.unwrap_or(self.next.max(self.end))
    }

    /// One past the highest position that is done.
    #[must_use]
    pub fn end(&self) -> Position {
        self.end.max(self.watermark())
    }

    /// How many positions were taken on and are not completed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// How many were left incomplete by an earlier life and were never delivered again, because the
    /// stream has lost them meanwhile (retention, compaction).
    #[must_use]
    pub fn removed(&self) -> u64 {
        self.removed
    }

    /// A snapshot, to be committed.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let end = self.end();
        let incomplete = self.in_flight.iter().chain(self.left_over.iter().copied());
        let incomplete = incomplete.take_while(|position| *position < end).collect();
        Progress::with_map(self.watermark(), end, incomplete)
    }
}
