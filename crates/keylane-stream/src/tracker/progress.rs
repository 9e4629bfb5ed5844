use super::MapLimit;
use super::completed_map;
use crate::Position;

/// What of a stream is done: everything below the watermark, and everything from there to `end` but
/// the incomplete positions.
///
/// It says the same of gaps as of what is done. If anything above the watermark is done, then the
/// watermark itself is not; and the highest position that the map speaks of is done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Progress {
    watermark: Position,
    /// One past the highest that is done; the watermark if nothing above it is.
    end: Position,
    /// Those between watermark and end, both exclusive, that are not done; ascending.
    incomplete: Vec<Position>,
}

impl Progress {
    /// Everything below `watermark` is done, and nothing else.
    #[must_use]
    pub const fn up_to(watermark: Position) -> Self {
        Progress { watermark, end: watermark, incomplete: Vec::new() }
    }

    /// Everything below `watermark` is done, and what is below `end` and not in `incomplete`, except
    /// the watermark.
    ///
    /// `incomplete` may have the watermark itself, and positions outside of the map: what they say is
    /// said anyway.
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

    /// Lowers the end until the position below it is done, or nothing above the watermark is.
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

    /// The lowest position that is not done: where a restart begins to read.
    #[must_use]
    pub const fn watermark(&self) -> Position {
        self.watermark
    }

    /// One past the highest position that is done; the watermark if nothing above it is.
    #[must_use]
    pub const fn end(&self) -> Position {
        self.end
    }

    /// What is not done between the watermark and the end, both exclusive, in ascending order.
    #[must_use]
    pub fn incomplete(&self) -> &[Position] {
        &self.incomplete
    }

    /// Whether a position is done, or there is nothing to do at it.
    #[must_use]
    pub fn is_done(&self, position: Position) -> bool {
        if position <= self.watermark {
            return position < self.watermark;
        }
        position < self.end && self.incomplete.binary_search(&position).is_err()
    }

    /// The map as text: ASCII, with its version, and a checksum over it, the watermark and `stream`.
    ///
    /// `stream` says which stream this is about, so that the progress of another one, or of a topic
    /// that was deleted and made again under the same name, is not taken for it. For Kafka it is the
    /// topic's id and the partition.
    ///
    /// It takes time in proportion to the incomplete positions, however far apart they are.
    #[must_use]
    pub fn encode(&self, stream: &[u8]) -> String {
        completed_map::encode(self, stream, None)
    }

    /// The same with the highest leader epoch of the records below the [`end`](Self::end): version 2, which only
    /// readers that know it take.
    #[must_use]
    pub fn encode_with_epoch(&self, stream: &[u8], epoch: u32) -> String {
        completed_map::encode(self, stream, Some(epoch))
    }

    /// The same with as much of the map as fits, from below. It says of less that it is done, never
    /// of more, so a restart from it repeats what was cut off.
    ///
    /// A tracker that has always had this limit never needs it. It is for one that was resumed from a
    /// map that was written under a larger limit.
    #[must_use]
    pub fn shortened(&self, limit: MapLimit) -> Progress {
        let mut shorter = self.clone();
        while completed_map::length(&shorter) > limit.get() {
            let Some(cut) = shorter.incomplete.pop() else { break };
            shorter.end = cut;
            shorter.drop_undone_top();
        }
        shorter
    }
}
