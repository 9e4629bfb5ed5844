//! Maximum length of a map: decides whether one more position may be in flight.

use super::map_layout::{MAX_BYTES_WITHOUT_GAPS, PREFIX};
use super::rice;

/// Maximum length of the text of a map.
///
/// The tracker admits a position only if the map fits in whatever order positions complete, so a
/// map never needs to be truncated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OffsetMapLimit {
    characters: usize,
    /// Space for the gaps of incomplete positions, in bits.
    bits: u64,
}

impl OffsetMapLimit {
    /// Default limit of a Kafka broker (`offset.metadata.max.bytes`).
    pub const KAFKA: OffsetMapLimit = OffsetMapLimit::constant(4096);

    /// Limit for journals. Longer maps would make each commit slower.
    pub const JOURNAL: OffsetMapLimit = OffsetMapLimit::constant(256 * 1024);

    /// Minimum length: one stuck record and everything above it completed.
    pub const MIN_CHARACTERS: usize = 64;

    /// Maximum length. A map is written with each commit, so longer ones do not pay.
    pub const MAX_CHARACTERS: usize = 16 * 1024 * 1024;

    /// A limit of `characters` ASCII characters. `None` outside of
    /// [`MIN_CHARACTERS`](Self::MIN_CHARACTERS) to [`MAX_CHARACTERS`](Self::MAX_CHARACTERS).
    #[must_use]
    pub const fn characters(characters: usize) -> Option<OffsetMapLimit> {
        if characters < Self::MIN_CHARACTERS || characters > Self::MAX_CHARACTERS {
            return None;
        }
        Some(Self::constant(characters))
    }

    const fn constant(characters: usize) -> OffsetMapLimit {
        // Four characters of base 64 encode three bytes.
        let bytes = (characters - PREFIX.len()) / 4 * 3;
        OffsetMapLimit { characters, bits: (bytes - MAX_BYTES_WITHOUT_GAPS) as u64 * 8 }
    }

    /// Returns the limit in characters.
    #[must_use]
    pub const fn get(self) -> usize {
        self.characters
    }

    /// Returns whether the map of `count` incomplete positions fits, whose first and last are
    /// `span` apart, and so does the map of each subset.
    ///
    /// Completing an inner position removes a gap and increases the sum of the gaps by one:
    /// `max_bits` falls by at least one bit and grows by at most one. Completing an outer position
    /// shortens both.
    pub(super) fn has_room_for(self, count: u64, span: u64) -> bool {
        // The first of them is the watermark, which is not part of the map.
        let gaps = count.saturating_sub(1);
        rice::max_bits(gaps, span.saturating_sub(gaps)) <= self.bits
    }
}
