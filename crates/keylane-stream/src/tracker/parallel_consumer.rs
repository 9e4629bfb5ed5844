//! Reads the maps that Confluent's parallel consumer (to 0.5.3) leaves in a group's metadata.
//!
//! Base 64 with padding of one byte that names the encoding, and its body; numbers have their most
//! significant byte first. Positions count from the committed one to the highest that is done.
//!
//! | byte | encoding | body |
//! |---|---|---|
//! | `l`, `o` | bit set | the number of positions in 2 or 4 bytes; one bit each, least first, set if done; a byte of zeros more than that takes |
//! | `n`, `e` | run lengths | in 2 or 4 bytes each: how many are not done, how many are, how many are not, … |
//! | `a`, `s`, `J`, `p` | the same, in this order | compressed with Zstandard |
//! | 1, 2 | Kafka Streams' own | not read |
//!
//! A map that says that the committed position itself is done contradicts the commit, by which it is
//! the next to be done. The commit counts: that can repeat a record, but not lose one.
//!
//! Source: `OffsetEncoding`, `BitSetEncoder`, `RunLengthEncoder` and `EncodedOffsetPair` of
//! github.com/confluentinc/parallel-consumer. The tests read what its own encoder wrote.

use std::io::Read;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use ruzstd::decoding::StreamingDecoder;

use super::{MapError, Progress};
use crate::Position;

/// The most incomplete positions, and bytes once decompressed, that are believed. A broker's 4,096
/// characters carry maps of up to some hundred thousand positions unless they are nearly all alike.
const MAX_INCOMPLETE: u64 = 1 << 20;
const MAX_BYTES: u64 = 1 << 22;

/// How far back a compressed map may point. What writes them asks for 2 MiB.
const MAX_WINDOW: u64 = 1 << 23;

#[derive(Clone, Copy)]
enum Encoding {
    BitSet,
    RunLengths,
}

#[derive(Clone, Copy)]
enum Width {
    Two,
    Four,
}

/// What a map says of the positions from `committed` on.
pub(super) fn decode(committed: Position, text: &str) -> Result<Progress, MapError> {
    let bytes = BASE64_STANDARD.decode(text).map_err(|_| MapError::Foreign)?;
    let (name, body) = bytes.split_first().ok_or(MapError::Foreign)?;
    let (encoding, width, compressed) = match name {
        b'l' => (Encoding::BitSet, Width::Two, false),
        b'a' => (Encoding::BitSet, Width::Two, true),
        b'o' => (Encoding::BitSet, Width::Four, false),
        b's' => (Encoding::BitSet, Width::Four, true),
        b'n' => (Encoding::RunLengths, Width::Two, false),
        b'J' => (Encoding::RunLengths, Width::Two, true),
        b'e' => (Encoding::RunLengths, Width::Four, false),
        b'p' => (Encoding::RunLengths, Width::Four, true),
        1 | 2 => return Err(MapError::KafkaStreams),
        _ => return Err(MapError::Foreign),
    };
    let decompressed = if compressed { Some(decompress(body)?) } else { None };
    let body = decompressed.as_deref().unwrap_or(body);
    let progress = match encoding {
        Encoding::BitSet => bit_set(committed, body, width),
        Encoding::RunLengths => run_lengths(committed, body, width),
    };
    progress.ok_or(MapError::Foreign)
}

fn decompress(body: &[u8]) -> Result<Vec<u8>, MapError> {
    let mut source = body;
    let mut bytes = Vec::new();
    let decoder = StreamingDecoder::new_with_max_window_size(&mut source, MAX_WINDOW)
        .map_err(|_| MapError::Foreign)?;
    decoder.take(MAX_BYTES + 1).read_to_end(&mut bytes).map_err(|_| MapError::Foreign)?;
    let whole = bytes.len() as u64 <= MAX_BYTES && source.is_empty();
    if whole { Ok(bytes) } else { Err(MapError::Foreign) }
}

fn bit_set(committed: Position, mut body: &[u8], width: Width) -> Option<Progress> {
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

fn run_lengths(committed: Position, mut body: &[u8], width: Width) -> Option<Progress> {
    let (mut end, mut incomplete) = (committed, Vec::new());
    let (mut first, mut done) = (true, false);
    while !body.is_empty() {
        let run = take_number(&mut body, width)?;
        // Only the first run can be empty, for it is always one of incomplete positions.
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
    // There is at least one run in all that it writes.
    if first { None } else { Some(Progress::with_map(committed, end, incomplete)) }
}

/// Numbers have a sign there, and are never negative.
fn take_number(bytes: &mut &[u8], width: Width) -> Option<u64> {
    let number = match width {
        Width::Two => {
            let (number, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            i64::from(i16::from_be_bytes(*number))
        }
        Width::Four => {
            let (number, rest) = bytes.split_first_chunk()?;
            *bytes = rest;
            i64::from(i32::from_be_bytes(*number))
        }
    };
    u64::try_from(number).ok()
}
