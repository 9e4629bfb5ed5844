//! Decodes the maps that Confluent's parallel consumer (up to 0.5.3) stores in a group's metadata.
//!
//! Base 64 with padding of one byte that names the encoding, and a body; numbers are big-endian.
//! Positions count from the committed one to the highest completed one.
//!
//! | byte | encoding | body |
//! |---|---|---|
//! | `l`, `o` | bit set | number of positions in 2 or 4 bytes; one bit each, least first, set if completed; one byte of zeros more than that takes |
//! | `n`, `e` | run lengths | in 2 or 4 bytes each: number of incomplete positions, of completed ones, of incomplete ones, … |
//! | `a`, `s`, `J`, `p` | as above, in this order | compressed with Zstandard |
//! | 1, 2 | Kafka Streams | not supported |
//!
//! A map that has the committed position itself as completed contradicts the commit. The commit
//! counts: that can repeat a record, but not lose one.
//!
//! Source: `OffsetEncoding`, `BitSetEncoder`, `RunLengthEncoder` and `EncodedOffsetPair` of
//! github.com/confluentinc/parallel-consumer. The tests decode maps that its own encoder wrote.

use std::io::Read;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use ruzstd::decoding::StreamingDecoder;

use super::map_error::OffsetMapError;
use super::progress::Progress;
use crate::Position;

/// Maximum number of incomplete positions, and of bytes after decompression. The 4,096 characters
/// of a broker hold maps of some hundred thousand positions, unless these are nearly all alike.
const MAX_INCOMPLETE: u64 = 1 << 20;
const MAX_BYTES: u64 = 1 << 22;

/// Maximum window of compressed maps. The parallel consumer's encoder uses 2 MiB.
const MAX_WINDOW: u64 = 1 << 23;

#[derive(Clone, Copy)]
enum MapEncoding {
    BitSet,
    RunLengths,
}

#[derive(Clone, Copy)]
enum RunLengthWidth {
    Two,
    Four,
}

/// Decodes the map of the positions from `committed` on.
pub(super) fn decode(committed: Position, text: &str) -> Result<Progress, OffsetMapError> {
    let bytes = BASE64_STANDARD.decode(text).map_err(|_| OffsetMapError::Foreign)?;
    let (name, body) = bytes.split_first().ok_or(OffsetMapError::Foreign)?;
    let (encoding, width, compressed) = match name {
        b'l' => (MapEncoding::BitSet, RunLengthWidth::Two, false),
        b'a' => (MapEncoding::BitSet, RunLengthWidth::Two, true),
        b'o' => (MapEncoding::BitSet, RunLengthWidth::Four, false),
        b's' => (MapEncoding::BitSet, RunLengthWidth::Four, true),
        b'n' => (MapEncoding::RunLengths, RunLengthWidth::Two, false),
        b'J' => (MapEncoding::RunLengths, RunLengthWidth::Two, true),
        b'e' => (MapEncoding::RunLengths, RunLengthWidth::Four, false),
        b'p' => (MapEncoding::RunLengths, RunLengthWidth::Four, true),
        1 | 2 => return Err(OffsetMapError::KafkaStreams),
        _ => return Err(OffsetMapError::Foreign),
    };
    let decompressed = if compressed { Some(decompress(body)?) } else { None };
    let body = decompressed.as_deref().unwrap_or(body);
    let progress = match encoding {
        MapEncoding::BitSet => bit_set(committed, body, width),
        MapEncoding::RunLengths => run_lengths(committed, body, width),
    };
    progress.ok_or(OffsetMapError::Foreign)
}

fn decompress(body: &[u8]) -> Result<Vec<u8>, OffsetMapError> {
    let mut source = body;
    let mut bytes = Vec::new();
    let decoder = StreamingDecoder::new_with_max_window_size(&mut source, MAX_WINDOW)
        .map_err(|_| OffsetMapError::Foreign)?;
    decoder.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|_| OffsetMapError::Foreign)?;
    let whole = bytes.len() as u64 <= MAX_BYTES && source.is_empty();
    if whole { Ok(bytes) } else { Err(OffsetMapError::Foreign) }
}

fn bit_set(committed: Position, mut body: &[u8], width: RunLengthWidth) -> Option<Progress> {
    let count = take_number(&mut body, width)?;
    let end = committed.after(count)?;
    if body.len() as u64 != count.div_ceil(8) + 1 {
        return None;
    }
    let is_set = |i: u64| body[(i / 8) as usize] >> (i % 8) & 1 == 1;
    if (count..body.len() as u64 * 8).any(is_set) {
        return None;
    }
    let mut incomplete = Vec::new();
    for i in (0..count).filter(|i| !is_set(*i)) {
        if incomplete.len() as u64 == MAX_INCOMPLETE {
            return None;
        }
        incomplete.push(committed.after(i)?);
    }
    Some(Progress::with_map(committed, end, incomplete))
}

fn run_lengths(committed: Position, mut body: &[u8], width: RunLengthWidth) -> Option<Progress> {
    let (mut end, mut incomplete) = (committed, Vec::new());
    let (mut first, mut done) = (true, false);
    while !body.is_empty() {
        let run = take_number(&mut body, width)?;
        // Only the first run, of incomplete positions, may be empty.
        if run == 0 && !first {
            return None;
        }
        let after = end.after(run)?;
        if !done {
            if incomplete.len() as u64 + run > MAX_INCOMPLETE {
                return None;
            }
            incomplete.extend((end.get()..after.get()).map(Position::new));
        }
        (end, first, done) = (after, false, !done);
    }
    // The encoder writes at least one run.
    if first { None } else { Some(Progress::with_map(committed, end, incomplete)) }
}

/// Reads a signed number, which must not be negative.
fn take_number(bytes: &mut &[u8], width: RunLengthWidth) -> Option<u64> {
    let number = match width {
        RunLengthWidth::Two => {
            let (number, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            i64::from(i16::from_be_bytes(*number))
        }
        RunLengthWidth::Four => {
            let (number, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            i64::from(i32::from_be_bytes(*number))
        }
    };
    u64::try_from(number).ok()
}
