//! Text format of a map, in its two versions.
//!
//! `KL1:` or `KL2:`, followed by base 64 without padding of:
//!
//! | bytes | content |
//! |---|---|
//! | 4 | CRC32C of the name of the stream, little-endian |
//! | 1–5 | `KL2` only: the highest leader epoch of the records below the end, as LEB128 |
//! | 1–9 | distance of the end above the watermark, as LEB128; 0: no map, and none of the next three |
//! | 1–4 | number of incomplete positions between them, as LEB128 |
//! | 0–1 | parameter of the gaps, if there are any |
//! | rest | gaps in Rice code, least bit first, padded with zeros |
//! | 4 | CRC32C of `KL1` or `KL2`, the watermark in eight bytes, and all bytes before; little-endian |
//!
//! A gap is the number of completed positions between an incomplete position and the incomplete one
//! before it; the first is counted from the watermark.
//!
//! [`decode`] encodes its result again and compares, so that it accepts only what [`encode`]
//! writes. A reader that knows only `KL1` takes `KL2` for a later version, and stops rather than
//! repeat completed records.

use base64::prelude::{BASE64_STANDARD_NO_PAD, Engine as _};
use keylane_storage::leb128;

use super::limit::OffsetMapLimit;
use super::map_layout::{MAX_EPOCH_BYTES, PREFIX};
use super::progress::Progress;
use super::rice;
use crate::Position;

/// Prefix of version 2, which has a leader epoch.
const PREFIX_WITH_EPOCH: &str = "KL2:";

fn encode(progress: &Progress, stream: &[u8], epoch: Option<u32>) -> String {
    let prefix = if epoch.is_some() { PREFIX_WITH_EPOCH } else { PREFIX };
    let body = body(progress, stream, epoch);
    let mut text = String::with_capacity(prefix.len() + body.len().div_ceil(3) * 4);
    text.push_str(prefix);
    BASE64_STANDARD_NO_PAD.encode_string(body, &mut text);
    text
}

impl Progress {
    /// Encodes the map as ASCII text with a version, and a checksum over the map, the watermark and
    /// `stream`.
    ///
    /// `stream` identifies the stream, so that the progress of another one, or of a topic that was
    /// deleted and recreated under the same name, is not taken for it. For Kafka it is the topic id
    /// and the partition.
    ///
    /// The time is proportional to the number of incomplete positions, however far apart they are.
    #[must_use]
    pub fn encode(&self, stream: &[u8]) -> String {
        encode(self, stream, None)
    }

    /// Encodes the map in version 2, with the highest leader epoch of the records below the
    /// [`end`](Self::end). Older readers refuse it.
    #[must_use]
    pub fn encode_with_epoch(&self, stream: &[u8], epoch: u32) -> String {
        encode(self, stream, Some(epoch))
    }

    /// Returns the progress with as much of the map as fits the limit, from the lowest position up.
    /// Positions beyond count as incomplete, so a restart repeats them.
    ///
    /// A tracker that always had this limit never needs it. It is for one that has resumed from a
    /// map with a larger limit.
    #[must_use]
    pub fn shortened(&self, limit: OffsetMapLimit) -> Progress {
        let mut shorter = self.clone();
        while length(&shorter) > limit.get() && shorter.cut_top() {}
        shorter
    }
}

/// Returns the maximum length of the text in either version, in characters.
fn length(progress: &Progress) -> usize {
    let span = progress.end().get() - progress.watermark().get();
    let count = progress.incomplete().len() as u64;
    let mut bytes = 4 + MAX_EPOCH_BYTES + leb128::length(span) + 4;
    if span > 0 {
        let (_, bits) = rice::best(gaps(progress));
        bytes += leb128::length(count) + usize::from(count > 0) + bits.div_ceil(8) as usize;
    }
    PREFIX.len() + (bytes * 4).div_ceil(3)
}

fn body(progress: &Progress, stream: &[u8], epoch: Option<u32>) -> Vec<u8> {
    let mut body = crc32c::crc32c(stream).to_le_bytes().to_vec();
    if let Some(epoch) = epoch {
        leb128::put(&mut body, u64::from(epoch));
    }
    let span = progress.end().get() - progress.watermark().get();
    leb128::put(&mut body, span);
    if span > 0 {
        leb128::put(&mut body, progress.incomplete().len() as u64);
    }
    if !progress.incomplete().is_empty() {
        let (k, _) = rice::best(gaps(progress));
        let mut writer = rice::RiceWriter::default();
        gaps(progress).for_each(|gap| writer.gap(gap, k));
        body.push(k);
        body.extend(writer.bytes);
    }
    let sum = checksum(progress.watermark(), &body, epoch.is_some());
    body.extend(sum.to_le_bytes());
    body
}

/// Returns the number of completed positions before each incomplete one.
fn gaps(progress: &Progress) -> impl Iterator<Item = u64> + Clone {
    let watermark = progress.watermark();
    let incomplete = progress.incomplete();
    incomplete.iter().enumerate().map(move |(i, position)| {
        let before = if i == 0 { watermark } else { incomplete[i - 1] };
        position.get() - before.get() - 1
    })
}

fn checksum(watermark: Position, body: &[u8], with_epoch: bool) -> u32 {
    let sum = crc32c::crc32c(if with_epoch { b"KL2" } else { b"KL1" });
    let sum = crc32c::crc32c_append(sum, &watermark.get().to_le_bytes());
    crc32c::crc32c_append(sum, body)
}

/// Reason to refuse a text with [`PREFIX`] or [`PREFIX_WITH_EPOCH`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OffsetMapTextError {
    Damaged,
    OtherStream,
}

/// Returns whether a text has a known version of this format.
pub(super) fn is_known(text: &str) -> bool {
    text.starts_with(PREFIX) || text.starts_with(PREFIX_WITH_EPOCH)
}

/// Decodes a text that [`encode`] has written for this watermark and stream.
pub(super) fn decode(
    watermark: Position,
    text: &str,
    stream: &[u8],
) -> Result<(Progress, Option<u32>), OffsetMapTextError> {
    let (text, with_epoch) = match text.strip_prefix(PREFIX_WITH_EPOCH) {
        Some(text) => (text, true),
        None => (text.strip_prefix(PREFIX).ok_or(OffsetMapTextError::Damaged)?, false),
    };
    let body = BASE64_STANDARD_NO_PAD.decode(text).map_err(|_| OffsetMapTextError::Damaged)?;
    let (rest, sum) = body.split_last_chunk::<4>().ok_or(OffsetMapTextError::Damaged)?;
    if checksum(watermark, rest, with_epoch) != u32::from_le_bytes(*sum) {
        return Err(OffsetMapTextError::Damaged);
    }
    let (tag, mut rest) = rest.split_first_chunk::<4>().ok_or(OffsetMapTextError::Damaged)?;
    if *tag != crc32c::crc32c(stream).to_le_bytes() {
        return Err(OffsetMapTextError::OtherStream);
    }
    let epoch = if with_epoch { Some(take_epoch(&mut rest)?) } else { None };
    let progress = parse(watermark, rest).ok_or(OffsetMapTextError::Damaged)?;
    let is_same = self::body(&progress, stream, epoch) == body;
    if is_same { Ok((progress, epoch)) } else { Err(OffsetMapTextError::Damaged) }
}

/// Returns the leader epoch of a text that [`decode`] has accepted.
pub(super) fn epoch(text: &str) -> Option<u32> {
    let body = BASE64_STANDARD_NO_PAD.decode(text.strip_prefix(PREFIX_WITH_EPOCH)?).ok()?;
    take_epoch(&mut body.get(4..)?).ok()
}

fn take_epoch(bytes: &mut &[u8]) -> Result<u32, OffsetMapTextError> {
    let epoch = leb128::take(bytes).ok_or(OffsetMapTextError::Damaged)?;
    u32::try_from(epoch).map_err(|_| OffsetMapTextError::Damaged)
}

fn parse(watermark: Position, mut rest: &[u8]) -> Option<Progress> {
    let span = leb128::take(&mut rest)?;
    let end = watermark.after(span)?;
    if span == 0 {
        return Some(Progress::up_to(watermark));
    }
    let count = leb128::take(&mut rest)?;
    let mut incomplete = Vec::new();
    if count > 0 {
        let (k, gaps) = rest.split_first()?;
        // Each gap takes at least one bit, so a larger count is damaged. This bounds the
        // allocation.
        if *k > rice::MAX_PARAMETER || count > gaps.len() as u64 * 8 {
            return None;
        }
        let mut reader = rice::RiceReader::new(gaps);
        let mut last = watermark;
        for _ in 0..count {
            last =
                last.after(reader.gap(*k)?.checked_add(1)?).filter(|position| *position < end)?;
            incomplete.push(last);
        }
    }
    Some(Progress::with_map(watermark, end, incomplete))
}
