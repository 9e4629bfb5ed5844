//! Snapshot of the completed positions of a stream.

use crate::Position;

/// Completed positions of a stream: all below the watermark, and those from there to `end` that are
/// not incomplete.
///
/// Gaps count as completed. If a position above the watermark is complete, the watermark is not;
/// and the highest position in the map is complete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    watermark: Position,
    /// One past the highest completed position; the watermark if none above it is complete.
    end: Position,
    /// Incomplete positions between watermark and end, both exclusive, in ascending order.
    incomplete: Vec<Position>,
}

impl Progress {
    /// All positions below `watermark` are complete, and no other.
    #[must_use]
    pub const fn up_to(watermark: Position) -> Self {
        Progress { watermark, end: watermark, incomplete: Vec::new() }
    }

    /// All positions below `watermark` are complete, and those below `end` that are not in
    /// `incomplete`, except the watermark itself.
    ///
    /// `incomplete` may include the watermark and positions outside of the map, which has no
    /// effect.
    ///
    /// # Panics
    /// If `incomplete` is not in ascending order.
    #[must_use]
    pub fn with_map(watermark: Position, end: Position, incomplete: Vec<Position>) -> Self {
        assert!(incomplete.is_sorted_by(|a, b| a < b), "incomplete positions ascend");
        let mut progress = Progress { watermark, end: end.max(watermark), incomplete };
        progress.incomplete.retain(|position| *position > watermark && *position < end);
        progress.drop_undone_top();
        progress
    }

    /// Lowers the end until the position below it is complete, or the end is the watermark.
    fn drop_undone_top(&mut self) {
        while self.end > self.watermark {
            let top = Position::new(self.end.get() - 1);
            let undone = self.incomplete.pop_if(|last| *last == top).is_some();
            if !undone && top > self.watermark {
                return;
            }
            self.end = top;
        }
    }

    /// Returns the lowest incomplete position, where a restart begins to read.
    #[must_use]
    pub const fn watermark(&self) -> Position {
        self.watermark
    }

    /// Returns one past the highest completed position; the watermark if none above it is complete.
    #[must_use]
    pub const fn end(&self) -> Position {
        self.end
    }

    /// Returns the incomplete positions between watermark and end, both exclusive, in ascending
    /// order.
    #[must_use]
    pub fn incomplete(&self) -> &[Position] {
        &self.incomplete
    }

    /// Returns whether a position is complete or a gap.
    #[must_use]
    pub fn is_done(&self, position: Position) -> bool {
        if position <= self.watermark {
            return position < self.watermark;
        }
        position < self.end && self.incomplete.binary_search(&position).is_err()
    }

    /// Removes the part of the map from its last incomplete position on. Returns `false` if there
    /// is none.
    pub(super) fn cut_top(&mut self) -> bool {
        let Some(cut) = self.incomplete.pop() else { return false };
        self.end = cut;
        self.drop_undone_top();
        true
    }
}
