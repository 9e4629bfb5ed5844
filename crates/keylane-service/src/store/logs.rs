//! Logs of attempts: one row for each attempt with output, deleted with its job.
//!
//! `nth` counts the rows of a subtask. The blob `body` has, in LEB128: the fence; eight times the
//! attempt plus the code of its outcome (`outcome.rs`); its start and end, in milliseconds since
//! 1970; the number of bytes omitted before the kept text. The kept text follows, and a checksum
//! that includes the row's place and `nth`.
//!
//! A log never refuses a transaction: one for a missing job or subtask is left out, so that the
//! outcome written with it is not lost.

use bytes::Bytes;
use keylane_storage::checksum::{seal, unseal};
use keylane_storage::leb128;
use keylane_storage::sqlite::SqliteError;

use super::connection::{StoreConnection, StoredRow};
use super::error::{ReadError, StoreDamage};
use super::outcome::OutcomeKind;
use super::row_numbers::{at, place, rows_of};
use crate::ids::{JobNumber, SubtaskNumber};

/// Maximum number of attempts per subtask with kept logs; the oldest are deleted. A subtask may be
/// retried without limit, and its logs must not fill the disk.
const MAX_ATTEMPTS: i64 = 32;

/// Output of an attempt: all of it, or its end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptLog {
    /// Number of the subtask in its job.
    pub number: SubtaskNumber,
    /// Fence of the attempt, higher than that of any earlier attempt at this subtask.
    pub fence: u64,
    /// Number of the attempt, from 1.
    pub attempt: u32,
    /// Outcome of the attempt, final or not.
    pub kind: OutcomeKind,
    /// Start time, in milliseconds since 1970.
    pub started_ms: u64,
    /// End time, in milliseconds since 1970.
    pub ended_ms: u64,
    /// Number of bytes omitted before `text`.
    pub left_out: u64,
    /// Kept output.
    pub text: Bytes,
}

/// Reads the logs of a job by subtask and attempt, and continues after a damaged one.
pub(super) fn for_each_of(
    connection: &dyn StoreConnection,
    job: JobNumber,
    then: impl FnMut(Result<AttemptLog, ReadError>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let (first, last) = rows_of(job);
    between(connection, first, last, then)
}

pub(super) fn between(
    connection: &dyn StoreConnection,
    first: i64,
    last: i64,
    mut then: impl FnMut(Result<AttemptLog, ReadError>) -> Result<(), ReadError>,
) -> Result<(), ReadError> {
    let sql = "SELECT place, nth, body FROM log WHERE place BETWEEN ?1 AND ?2 ORDER BY place, nth";
    connection.each(sql, &[first.into(), last.into()], |row| then(read(row)))
}

pub(super) fn read(row: &dyn StoredRow) -> Result<AttemptLog, ReadError> {
    let (place, nth) = (row.unsigned(0)?, row.unsigned(1)?);
    decode(place, nth, row.bytes(2)?).ok_or_else(|| {
        let (job, number) = at(place);
        ReadError::Damaged(StoreDamage::Log { job, number })
    })
}

/// Appends a log to those of its subtask, and deletes the oldest beyond the limit.
pub(super) fn put(
    connection: &dyn StoreConnection,
    job: JobNumber,
    log: &AttemptLog,
) -> Result<(), SqliteError> {
    let place = place(job, log.number);
    let last = "SELECT max(nth) FROM log WHERE place = ?1";
    let last = connection.first(last, &[place.into()], |row| row.optional_number(0))?;
    let nth = last.flatten().map_or(0, |last| last + 1);
    let sql = "INSERT INTO log (place, nth, body) VALUES (?1, ?2, ?3)";
    let body = encode(place, nth.cast_unsigned(), log);
    connection.execute(sql, &[place.into(), nth.into(), (&body).into()])?;
    if nth >= MAX_ATTEMPTS {
        let old = "DELETE FROM log WHERE place = ?1 AND nth <= ?2";
        connection.execute(old, &[place.into(), (nth - MAX_ATTEMPTS).into()])?;
    }
    Ok(())
}

pub(super) fn encode(place: u64, nth: u64, log: &AttemptLog) -> Vec<u8> {
    let mut body = Vec::with_capacity(log.text.len() + 48);
    let attempt = u64::from(log.attempt) << 3 | u64::from(log.kind.code());
    for number in [log.fence, attempt, log.started_ms, log.ended_ms, log.left_out] {
        leb128::put(&mut body, number & NUMBER);
    }
    body.extend(&log.text);
    seal(&mut body, &[place, nth]);
    body
}

/// Maximum of a stored number: SQLite's integers have 63 bits without the sign. No real time or
/// fence is higher.
const NUMBER: u64 = (1 << 63) - 1;

/// Returns `None` if the log is damaged.
pub(super) fn decode(place: u64, nth: u64, sealed: &[u8]) -> Option<AttemptLog> {
    let mut rest = unseal(sealed, &[place, nth])?;
    let fence = leb128::take(&mut rest)?;
    let packed = leb128::take(&mut rest)?;
    Some(AttemptLog {
        number: at(place).1,
        fence,
        attempt: u32::try_from(packed >> 3).ok()?,
        kind: OutcomeKind::of_code((packed & 7) as u8)?,
        started_ms: leb128::take(&mut rest)?,
        ended_ms: leb128::take(&mut rest)?,
        left_out: leb128::take(&mut rest)?,
        text: Bytes::copy_from_slice(rest),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PLACE: u64 = (5 << 24) | 7;

    fn log() -> impl Strategy<Value = AttemptLog> {
        let kind = prop::sample::select(&OutcomeKind::ALL[..]);
        let number = || 0..=NUMBER;
        let times = (number(), number(), number());
        let text = prop::collection::vec(any::<u8>(), 0..100);
        (number(), any::<u32>(), kind, times, text).prop_map(
            |(fence, attempt, kind, (started_ms, ended_ms, left_out), text)| AttemptLog {
                number: 7,
                fence,
                attempt,
                kind,
                started_ms,
                ended_ms,
                left_out,
                text: text.into(),
            },
        )
    }

    proptest! {
        #[test]
        fn what_was_packed_is_unpacked_where_it_belongs(log in log()) {
            let body = encode(PLACE, 3, &log);
            prop_assert_eq!(decode(PLACE + 1, 3, &body), None);
            prop_assert_eq!(decode(PLACE, 2, &body), None);
            prop_assert_eq!(decode(PLACE, 3, &body), Some(log));
        }

        #[test]
        fn a_flipped_bit_anywhere_is_noticed(log in log(), bit in any::<prop::sample::Index>()) {
            let mut body = encode(PLACE, 3, &log);
            let bit = bit.index(body.len() * 8);
            body[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(decode(PLACE, 3, &body), None);
        }

        #[test]
        fn no_bytes_make_it_panic(mut body in prop::collection::vec(any::<u8>(), 0..60)) {
            seal(&mut body, &[PLACE, 3]);
            decode(PLACE, 3, &body);
        }
    }
}
