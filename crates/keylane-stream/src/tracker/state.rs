//! Watermark state machine: positions in flight, completed positions, and the watermark to commit.

use std::collections::VecDeque;

use super::position_set::PositionSet;
use super::{OffsetMapLimit, Progress};
use crate::Position;

/// Tracks the completed positions of a stream while records complete out of order.
///
/// - The watermark is never above a position that was taken and is not completed.
/// - Positions arrive in ascending order. Missing positions (compaction, transaction markers) are
///   gaps and hold nothing up.
/// - Taking and completing take constant time; a snapshot takes time proportional to the number of
///   incomplete positions. Neither depends on the distance to a stuck record.
/// - If [`may_take`](Self::may_take) allows each [`take`](Self::take), the map fits its limit in
///   whatever order positions complete.
///
/// A tracker belongs to one assignment of the stream. The next assignment starts a new one from the
/// committed progress, so that no late completion can reach it.
#[derive(Clone, Debug)]
pub struct Tracker {
    limit: OffsetMapLimit,
    /// Positions taken and not completed; all below `next`.
    in_flight: PositionSet,
    /// Positions that an earlier tracker left incomplete and the source has not delivered again;
    /// from `next` to `end`.
    left_over: VecDeque<Position>,
    /// All positions below were delivered or are gaps.
    next: Position,
    /// One past the highest completed position.
    end: Position,
    removed: u64,
}

/// Result of taking a delivered position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TakeOutcome {
    /// The position is new and must be completed by the caller.
    New,
    /// The position was taken before and is not completed yet.
    InFlight,
    /// The position is completed already.
    Done,
}

/// Error of completing a position that is not in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("position {0} is not in flight")]
pub struct NotInFlight(pub Position);

impl Tracker {
    /// Starts at a position: all positions below `start` are complete, and no other.
    #[must_use]
    pub fn new(start: Position, limit: OffsetMapLimit) -> Self {
        Self::resume(&Progress::up_to(start), limit)
    }

    /// Resumes from an earlier tracker's progress. The source must deliver from the watermark on.
    ///
    /// The map may exceed the limit if it was written with a larger one; [`Progress::shortened`]
    /// then shortens what is committed.
    #[must_use]
    pub fn resume(progress: &Progress, limit: OffsetMapLimit) -> Self {
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

    /// Changes the limit. The positions in flight may exceed it already; [`Progress::shortened`]
    /// then shortens what is committed.
    pub fn set_limit(&mut self, limit: OffsetMapLimit) {
        self.limit = limit;
    }

    /// Returns whether the next position can be taken so that the map fits its limit in whatever
    /// order positions complete. If not, pause the source until a position completes.
    ///
    /// Always true if no position is in flight, or `position` would not be [`TakeOutcome::New`].
    #[must_use]
    pub fn may_take(&self, position: Position) -> bool {
        if position < self.next || position < self.end {
            return true;
        }
        // Positions left over are below `position`: taking it shows that their records were
        // removed.
        let first = self.in_flight.first().unwrap_or(position);
        self.limit.has_room_for(self.in_flight.len() as u64 + 1, position.get() - first.get())
    }

    /// Takes a position that the source has delivered. The positions between it and the one before
    /// are gaps.
    ///
    /// # Panics
    /// At [`Position::END`], which no record has.
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

    /// Records that the source continues at `position`, and that undelivered positions before it
    /// are gaps. So the watermark also passes gaps at the current end of a stream.
    pub fn skip_to(&mut self, position: Position) {
        while self.left_over.pop_front_if(|first| *first < position).is_some() {
            self.removed += 1;
        }
        self.next = self.next.max(position);
    }

    /// Completes a position. Returns whether the watermark has risen.
    ///
    /// # Errors
    /// If the position is not in flight; then nothing changes.
    pub fn complete(&mut self, position: Position) -> Result<bool, NotInFlight> {
        let was_first = self.in_flight.first() == Some(position);
        if !self.in_flight.remove(position) {
            return Err(NotInFlight(position));
        }
        self.end = self.end.max(position.next());
        Ok(was_first)
    }

    /// Returns the lowest incomplete position: the position to commit.
    #[must_use]
    pub fn watermark(&self) -> Position {
        // Positions left over are above all positions delivered since.
        let incomplete = self.in_flight.first().or(self.left_over.front().copied());
        incomplete.unwrap_or(self.next.max(self.end))
    }

    /// Returns one past the highest completed position.
    #[must_use]
    pub fn end(&self) -> Position {
        self.end.max(self.watermark())
    }

    /// Returns the number of positions taken and not completed.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Returns the number of positions that an earlier tracker left incomplete and that were not
    /// delivered again, because the stream has removed their records (retention, compaction).
    #[must_use]
    pub fn removed(&self) -> u64 {
        self.removed
    }

    /// Returns a snapshot to commit.
    #[must_use]
    pub fn progress(&self) -> Progress {
        let end = self.end();
        let incomplete = self.in_flight.iter().chain(self.left_over.iter().copied());
        let incomplete = incomplete.take_while(|position| *position < end).collect();
        Progress::with_map(self.watermark(), end, incomplete)
    }
}
