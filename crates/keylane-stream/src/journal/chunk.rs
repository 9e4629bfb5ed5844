//! Layout of records in a row of the table `chunk`, version 1.
//!
//! A body has its records one after another. Lengths and counts are LEB128:
//!
//! | part | encoding |
//! |---|---|
//! | key | 0 for none; else its length plus one, and its bytes |
//! | headers | their number; for each the length of its name, the name in UTF-8, the length of its value, the value |
//! | payload | its length, its bytes |
//!
//! A null value or payload has the length 2^63 - 1, and no bytes. Versions without nulls report
//! such a chunk as damaged.
//!
//! The row's `crc` is the CRC32C of its position, count and time, as eight bytes each in
//! little-endian order, and of the body. So a row with another row's position is detected as well.

use std::time::{Duration, SystemTime};

use keylane_storage::leb128;

use crate::record_memory::RecordMemory;
use crate::{DeliveredRecord, Position, Record};

/// Maximum number of records in a chunk. A read of one record reads its whole chunk.
pub(super) const MAX_RECORDS: usize = 1024;

/// Size at which a chunk is full, in bytes. A larger record is a chunk of its own.
pub(super) const TARGET_BYTES: usize = 256 * 1024;

/// Length that stands for null: no value is as long.
const NULL: u64 = i64::MAX as u64;

/// Encoded records for one chunk.
#[derive(Debug, Default)]
pub(super) struct EncodedRecords {
    pub(super) count: u64,
    pub(super) bytes: Vec<u8>,
}

impl EncodedRecords {
    /// Returns whether `count` more records of `bytes` bytes need another chunk.
    pub(super) fn is_full_for(&self, count: u64, bytes: usize) -> bool {
        let crowded = self.count + count > MAX_RECORDS as u64;
        self.count > 0 && (crowded || self.bytes.len() + bytes > TARGET_BYTES)
    }
}

/// Encodes records into as many segments as they need.
pub(super) fn segments(records: &[Record]) -> Vec<EncodedRecords> {
    let mut segments = Vec::new();
    let mut last = EncodedRecords::default();
    for record in records {
        if last.is_full_for(1, length(record)) {
            segments.push(std::mem::take(&mut last));
        }
        put_record(&mut last.bytes, record);
        last.count += 1;
    }
    if last.count > 0 {
        segments.push(last);
    }
    segments
}

/// Returns the encoded length of a record, in bytes.
pub(super) fn length(record: &Record) -> usize {
    let bytes = |bytes: &[u8]| leb128::length(bytes.len() as u64) + bytes.len();
    let key = record.key.as_ref().map_or(1, |key| leb128::length(key.len() as u64 + 1) + key.len());
    let nullable = |value: Option<&[u8]>| match value {
        Some(value) => bytes(value),
        None => leb128::length(NULL),
    };
    let headers = record.headers.iter();
    let headers = headers.map(|(name, value)| bytes(name.as_bytes()) + nullable(value.as_deref()));
    let headers = headers.sum::<usize>();
    key + leb128::length(record.headers.len() as u64)
        + headers
        + nullable(record.payload.as_deref())
}

fn put_record(to: &mut Vec<u8>, record: &Record) {
    match &record.key {
        None => leb128::put(to, 0),
        Some(key) => {
            leb128::put(to, key.len() as u64 + 1);
            to.extend(key);
        }
    }
    leb128::put(to, record.headers.len() as u64);
    for (name, value) in &record.headers {
        put_bytes(to, name.as_bytes());
        put_nullable(to, value.as_deref());
    }
    put_nullable(to, record.payload.as_deref());
}

fn put_nullable(to: &mut Vec<u8>, bytes: Option<&[u8]>) {
    match bytes {
        Some(bytes) => put_bytes(to, bytes),
        None => leb128::put(to, NULL),
    }
}

fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    leb128::put(to, bytes.len() as u64);
    to.extend(bytes);
}

/// A row of the table `chunk`.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct JournalChunk<'a> {
    pub(super) first: Position,
    pub(super) count: u64,
    pub(super) written_ms: i64,
    pub(super) crc: u32,
    pub(super) body: &'a [u8],
}

impl<'a> JournalChunk<'a> {
    pub(super) fn sealed(first: Position, count: u64, written_ms: i64, body: &'a [u8]) -> Self {
        let crc = checksum(first, count, written_ms, body);
        JournalChunk { first, count, written_ms, crc, body }
    }

    /// Returns one past the last record, if that is a valid position.
    pub(super) fn end(&self) -> Option<Position> {
        self.first.after(self.count)
    }

    pub(super) fn is_intact(&self) -> bool {
        self.count > 0
            && self.end().is_some()
            && self.crc == checksum(self.first, self.count, self.written_ms, self.body)
    }

    /// Decodes the records from position `from` on, at most `max`. `None` if the chunk is damaged.
    pub(super) fn records(&self, from: Position, max: usize) -> Option<Vec<DeliveredRecord>> {
        if !self.is_intact() {
            return None;
        }
        let written = time(self.written_ms);
        let mut body = self.body;
        let mut delivered = Vec::new();
        let mut memory = RecordMemory::default();
        for number in 0..self.count {
            let position = self.first.after(number)?;
            let record = take_record(&mut body, &mut memory)?;
            if position >= from && delivered.len() < max {
                delivered.push(DeliveredRecord { position, written, record });
            }
        }
        body.is_empty().then_some(delivered)
    }
}

fn checksum(first: Position, count: u64, written_ms: i64, body: &[u8]) -> u32 {
    let sum = crc32c::crc32c(&first.get().to_le_bytes());
    let sum = crc32c::crc32c_append(sum, &count.to_le_bytes());
    let sum = crc32c::crc32c_append(sum, &written_ms.to_le_bytes());
    crc32c::crc32c_append(sum, body)
}

fn take_record(from: &mut &[u8], memory: &mut RecordMemory) -> Option<Record> {
    let key = match leb128::take(from)? {
        0 => None,
        more => Some(memory.copy(take_exactly(from, more - 1)?)),
    };
    let mut headers = Vec::new();
    for _ in 0..leb128::take(from)? {
        let name = String::from_utf8(take_bytes(from)?.to_vec()).ok()?;
        headers.push((name, take_nullable(from)?.map(<[u8]>::to_vec)));
    }
    let payload = take_nullable(from)?.map(|payload| memory.copy(payload));
    Some(Record { key, headers, payload })
}

fn take_nullable<'a>(from: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    match leb128::take(from)? {
        NULL => Some(None),
        length => Some(Some(take_exactly(from, length)?)),
    }
}

fn take_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = leb128::take(from)?;
    take_exactly(from, length)
}

fn take_exactly<'a>(from: &mut &'a [u8], length: u64) -> Option<&'a [u8]> {
    let (bytes, rest) = from.split_at_checked(usize::try_from(length).ok()?)?;
    *from = rest;
    Some(bytes)
}

/// Converts milliseconds since 1970, which can be negative, to a time.
fn time(written_ms: i64) -> SystemTime {
    let distance = Duration::from_millis(written_ms.unsigned_abs());
    let time = if written_ms < 0 {
        SystemTime::UNIX_EPOCH.checked_sub(distance)
    } else {
        SystemTime::UNIX_EPOCH.checked_add(distance)
    };
    time.unwrap_or(SystemTime::UNIX_EPOCH)
}

/// Converts a time to milliseconds since 1970.
pub(super) fn millis(time: SystemTime) -> i64 {
    let clamp = |distance: Duration| i64::try_from(distance.as_millis()).unwrap_or(i64::MAX);
    match time.duration_since(SystemTime::UNIX_EPOCH) {
        Ok(since) => clamp(since),
        Err(before) => -clamp(before.duration()),
    }
}

/// Fuzz target: the body of a row. Records that are read are the same when they are written again. `input` is their
/// number, one byte, and the body.
#[cfg(any(test, fuzzing))]
pub fn fuzz_chunk(input: &[u8]) {
    let Some((count, body)) = input.split_first() else { return };
    let first = Position::new(7);
    let sealed = JournalChunk::sealed(first, u64::from(*count), 5, body);
    let Some(records) = sealed.records(first, usize::MAX) else { return };
    assert_eq!(records.len(), usize::from(*count));
    let plain: Vec<Record> = records.iter().map(|delivered| delivered.record.clone()).collect();
    let mut written = segments(&plain);
    assert_eq!(written.len(), 1, "they were in one chunk");
    let EncodedRecords { count, bytes } = written.remove(0);
    assert_eq!(bytes.len(), plain.iter().map(length).sum::<usize>());
    let again = JournalChunk::sealed(first, count, 5, &bytes);
    assert_eq!(again.records(first, usize::MAX), Some(records));
    let other = JournalChunk { first: Position::new(8), ..again };
    assert_eq!(other.records(first, 1), None, "a row at another position");
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn record() -> impl Strategy<Value = Record> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..300);
        let headers = prop::collection::vec((".{0,5}", prop::option::of(bytes())), 0..4);
        (prop::option::of(bytes()), prop::option::of(bytes()), headers).prop_map(
            |(key, payload, headers)| Record {
                key: key.map(Into::into),
                payload: payload.map(Into::into),
                headers,
            },
        )
    }

    proptest! {
        #[test]
        fn what_was_packed_is_unpacked(
            records in prop::collection::vec(record(), 1..40), first in 0u64..1 << 62,
            written_ms in -1_000_000_000_000i64..4_000_000_000_000,
        ) {
            let segments = segments(&records);
            prop_assert_eq!(segments.len(), 1);
            prop_assert_eq!(segments[0].bytes.len(), records.iter().map(length).sum::<usize>());
            let first = Position::new(first);
            let chunk = JournalChunk::sealed(first, segments[0].count, written_ms, &segments[0].bytes);
            let back = chunk.records(first, usize::MAX).unwrap();
            prop_assert!(back.iter().all(|delivered| millis(delivered.written) == written_ms));
            prop_assert!(back.into_iter().map(|delivered| delivered.record).eq(records));
        }

        #[test]
        fn a_flipped_bit_anywhere_is_noticed(
            records in prop::collection::vec(record(), 1..5), bit in any::<prop::sample::Index>(),
        ) {
            let mut body = segments(&records).remove(0).bytes;
            let crc = JournalChunk::sealed(Position::ZERO, records.len() as u64, 5, &body).crc;
            let bit = bit.index(body.len() * 8);
            body[bit / 8] ^= 1 << (bit % 8);
            let chunk = JournalChunk { first: Position::ZERO, count: records.len() as u64, written_ms: 5, crc, body: &body };
            prop_assert_eq!(chunk.records(Position::ZERO, 1), None);
        }

        #[test]
        fn no_body_makes_it_panic(
            body in prop::collection::vec(any::<u8>(), 0..60),
            count in 1u64..5,
        ) {
            let chunk = JournalChunk::sealed(Position::ZERO, count, 0, &body);
            let _ = chunk.records(Position::ZERO, usize::MAX);
        }
    }

    #[test]
    fn a_row_in_anothers_place_is_noticed() {
        let body = segments(&[Record::new("a", "b")]).remove(0).bytes;
        let chunk = JournalChunk::sealed(Position::new(7), 1, 5, &body);
        assert!(chunk.is_intact());
        assert!(!JournalChunk { first: Position::new(8), ..chunk }.is_intact());
        assert!(
            !JournalChunk { written_ms: 6, ..JournalChunk::sealed(Position::new(7), 1, 5, &body) }
                .is_intact()
        );
        assert!(
            !JournalChunk { count: 2, ..JournalChunk::sealed(Position::new(7), 1, 5, &body) }
                .is_intact()
        );
    }

    #[test]
    fn chunks_have_bounds_and_a_large_record_one_of_its_own() {
        let small = vec![Record::new("a", "b"); 2500];
        let counts: Vec<_> = segments(&small).iter().map(|segment| segment.count).collect();
        assert_eq!(counts, [1024, 1024, 452]);
        let large = Record::without_key(vec![0; TARGET_BYTES + 1]);
        let mixed = [small[0].clone(), large, small[1].clone()];
        assert_eq!(
            segments(&mixed).iter().map(|segment| segment.count).collect::<Vec<_>>(),
            [1, 1, 1]
        );
    }
}
