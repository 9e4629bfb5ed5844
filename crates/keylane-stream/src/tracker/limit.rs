use super::completed_map;
use super::rice;

/// How long the text of a map may be.
///
/// The tracker takes a position on only if the map fits whatever then ends and in whatever order, so
/// it never has to be cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapLimit {
    characters: usize,
    /// What is left for the gaps of incomplete positions.
    bits: u64,
}

impl MapLimit {
    /// What a Kafka broker takes unless `offset.metadata.max.bytes` says otherwise.
    pub const KAFKA: MapLimit = MapLimit::constant(4096);

    /// What the journal takes: beyond it, the time to write the map for each commit counts.
    pub const JOURNAL: MapLimit = MapLimit::constant(256 * 1024);

    /// The least that can be asked for: one stuck record, and everything above it done.
    pub const MIN_CHARACTERS: usize = 64;

    /// The most. Beyond this a text that is written for each commit is not the right means.
    pub const MAX_CHARACTERS: usize = 16 * 1024 * 1024;

    /// Room for this many ASCII characters. None if that is not between
    /// [`LEAST`](Self::MIN_CHARACTERS) and [`MOST`](Self::MAX_CHARACTERS).
    #[must_use]
    pub const fn characters(characters: usize) -> Option<MapLimit> {
        if characters < Self::MIN_CHARACTERS || characters > Self::MAX_CHARACTERS {
            return None;
        }
        Some(Self::constant(characters))
    }

    const fn constant(characters: usize) -> MapLimit {
        // Four characters of base 64 carry three bytes.
        let bytes = (characters - completed_map::PREFIX.len()) / 4 * 3;
        MapLimit { characters, bits: (bytes - completed_map::MAX_BYTES_WITHOUT_GAPS) as u64 * 8 }
    }

    /// How many characters there may be.
    #[must_use]
    pub const fn get(self) -> usize {
        self.characters
    }

    /// Whether the map of `count` incomplete positions, from the first to the last of them `span`
    /// apart, fits; and then that of any of them.
    ///
    /// One that ends inside makes one gap less and the sum longer by itself: `max_bits` loses a bit
    /// at least, and gains one at most. One that ends at an edge shortens both.
    pub(super) fn has_room_for(self, count: u64, span: u64) -> bool {
        // The first of them is the watermark, which stands outside of the map.
        let gaps = count.saturating_sub(1);
        rice::max_bits(gaps, span.saturating_sub(gaps)) <= self.bits
    }
}
