//! Encoding of outcomes in a row of the table `outcome`, version 1. A damaged row is detected by
//! its checksums.
//!
//! A row has the outcomes of one job from one transaction, in their order. The blob `numbers` names
//! the subtasks, so that recovery does not read the results. For each outcome, in LEB128:
//!
//! | field | encoding |
//! |---|---|
//! | subtask | its number minus the previous one's successor (at first: minus 0), zigzag |
//! | attempt and kind | eight times the attempt, plus the kind: 0 succeeded, 1 failed, 2 cancelled, 3 skipped, 4 reopened, 5 superseded |
//!
//! The blob `body` begins with the end time of the first outcome, eight bytes, little-endian. For
//! each outcome, in LEB128: its end minus that time, and its end minus its start, both zigzag; the
//! length of the result, and the result.
//!
//! Each blob ends with a checksum, which includes the row's place and count; the body's also
//! includes the checksum of the numbers.

use keylane_storage::checksum::{self, seal, unseal};
use keylane_storage::leb128;

use super::row_numbers::{self, unzigzag, zigzag};
use crate::ids::{JobNumber, SubtaskNumber};

/// Maximum number of outcomes in a row.
const MAX_IN_ROW: usize = 1024;

/// Size at which a row is full, in bytes. A larger outcome has its own row.
const FULL_BYTES: usize = 256 * 1024;

/// Final outcome of a subtask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum OutcomeKind {
    /// The subtask succeeded.
    Succeeded,
    /// The last attempt failed.
    Failed,
    /// The subtask was cancelled.
    Cancelled,
    /// The subtask was skipped.
    Skipped,
    /// An ended subtask was reopened, and waits as if it had never started.
    Reopened,
    /// A later subtask has replaced it. The result names that: its job's id, a slash, and its number.
    Superseded,
}

impl OutcomeKind {
    /// All kinds.
    pub const ALL: [OutcomeKind; 6] = [
        OutcomeKind::Succeeded,
        OutcomeKind::Failed,
        OutcomeKind::Cancelled,
        OutcomeKind::Skipped,
        OutcomeKind::Reopened,
        OutcomeKind::Superseded,
    ];

    pub(super) fn code(self) -> u8 {
        match self {
            OutcomeKind::Succeeded => 0,
            OutcomeKind::Failed => 1,
            OutcomeKind::Cancelled => 2,
            OutcomeKind::Skipped => 3,
            OutcomeKind::Reopened => 4,
            OutcomeKind::Superseded => 5,
        }
    }

    pub(super) fn of_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.code() == code)
    }

    /// Returns the kind's name in exports.
    pub(super) fn word(self) -> &'static str {
        match self {
            OutcomeKind::Succeeded => "succeeded",
            OutcomeKind::Failed => "failed",
            OutcomeKind::Cancelled => "cancelled",
            OutcomeKind::Skipped => "skipped",
            OutcomeKind::Reopened => "reopened",
            OutcomeKind::Superseded => "superseded",
        }
    }
}

/// Outcome of a subtask. Times are milliseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SubtaskOutcome {
    /// Number of the subtask in its job.
    pub number: SubtaskNumber,
    /// Number of the attempt, from 1; 0 if there was none.
    pub attempt: u32,
    /// Kind of the outcome.
    pub kind: OutcomeKind,
    /// Start of the attempt, or its end if it never started.
    pub started_ms: u64,
    /// End time.
    pub ended_ms: u64,
    /// Result, or the error.
    pub result: Vec<u8>,
}

/// Position of an outcome among those of its job, in the order of their commits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OutcomePosition(u64);

impl OutcomePosition {
    /// Restores a position from its number.
    #[must_use]
    pub fn new(number: u64) -> Self {
        OutcomePosition(number)
    }

    /// Returns the position's number. Numbers grow, with gaps.
    #[must_use]
    pub fn get(self) -> u64 {
        self.0
    }

    pub(super) fn at(row: u32, within: u32) -> Self {
        OutcomePosition((u64::from(row) << 10) | u64::from(within))
    }

    /// Returns the row's number and the index within it.
    pub(super) fn row(self) -> (u64, u32) {
        (self.0 >> 10, (self.0 & 1023) as u32)
    }
}

/// Outcome with its position among those of its job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedOutcome {
    /// Position.
    pub place: OutcomePosition,
    /// Outcome.
    pub outcome: SubtaskOutcome,
}

/// Outcomes to write in one row.
#[derive(Debug, Default)]
pub(super) struct OutcomeRow {
    count: u32,
    /// Successor of the last subtask's number.
    expected: i64,
    base_ms: u64,
    numbers: Vec<u8>,
    body: Vec<u8>,
}

impl OutcomeRow {
    pub(super) fn is_full_for(&self, outcome: &SubtaskOutcome) -> bool {
        let crowded = self.body.len() + outcome.result.len() > FULL_BYTES;
        self.count as usize == MAX_IN_ROW || (self.count > 0 && crowded)
    }

    pub(super) fn push(&mut self, outcome: &SubtaskOutcome) {
        if self.count == 0 {
            self.base_ms = outcome.ended_ms & TIME;
            self.body.extend(self.base_ms.to_le_bytes());
        }
        self.count += 1;
        let number = i64::from(outcome.number);
        leb128::put(&mut self.numbers, zigzag(number - self.expected));
        self.expected = number + 1;
        let attempt = u64::from(outcome.attempt) << 3;
        leb128::put(&mut self.numbers, attempt | u64::from(outcome.kind.code()));
        let ended = (outcome.ended_ms & TIME).cast_signed();
        let started = (outcome.started_ms & TIME).cast_signed();
        leb128::put(&mut self.body, zigzag(ended - self.base_ms.cast_signed()));
        leb128::put(&mut self.body, zigzag(ended - started));
        leb128::put(&mut self.body, outcome.result.len() as u64);
        self.body.extend(&outcome.result);
    }

    /// Adds the checksums, and returns the count, the blob of numbers and the body.
    pub(super) fn sealed(mut self, place: u64) -> (u32, Vec<u8>, Vec<u8>) {
        seal(&mut self.numbers, &[place, u64::from(self.count)]);
        let sum = seal_of(&self.numbers);
        seal(&mut self.body, &[place, u64::from(self.count), sum]);
        (self.count, self.numbers, self.body)
    }
}

/// Maximum of a stored time: 48 bits, about 8,900 years. Differences of such times cannot overflow.
const TIME: u64 = (1 << 48) - 1;

/// Returns the checksum as a number. A second checksum over the whole blob would be useless: the
/// CRC of any data followed by its own CRC is constant.
fn seal_of(sealed: &[u8]) -> u64 {
    sealed.last_chunk::<{ checksum::BYTES }>().map_or(0, |sum| u64::from(u32::from_le_bytes(*sum)))
}

/// Number of the subtask, number of the attempt, and kind of the outcome.
pub(super) type OutcomeHead = (SubtaskNumber, u32, OutcomeKind);

/// Decodes the numbers of a row. Returns `None` if it is damaged.
pub(super) fn numbers(place: u64, count: u32, sealed: &[u8]) -> Option<Vec<OutcomeHead>> {
    if count as usize > MAX_IN_ROW {
        return None;
    }
    let mut rest = unseal(sealed, &[place, u64::from(count)])?;
    let mut expected = 0i64;
    let mut numbers = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let number = expected.checked_add(unzigzag(leb128::take(&mut rest)?))?;
        expected = number.checked_add(1)?;
        let packed = leb128::take(&mut rest)?;
        let attempt = u32::try_from(packed >> 3).ok()?;
        let kind = OutcomeKind::of_code((packed & 7) as u8)?;
        numbers.push((SubtaskNumber::try_from(number).ok()?, attempt, kind));
    }
    rest.is_empty().then_some(numbers)
}

/// Decodes a whole row. Returns `None` if it is damaged.
pub(super) fn outcomes(
    job: JobNumber,
    row: u32,
    count: u32,
    sealed_numbers: &[u8],
    sealed_body: &[u8],
) -> Option<Vec<SubtaskOutcome>> {
    let place = row_numbers::place(job, row);
    let sum = seal_of(sealed_numbers);
    let mut rest = unseal(sealed_body, &[place, u64::from(count), sum])?;
    let base = u64::from_le_bytes(row_numbers::take(&mut rest, 8)?.try_into().ok()?).cast_signed();
    let mut outcomes = Vec::with_capacity(count as usize);
    for (number, attempt, kind) in numbers(place, count, sealed_numbers)? {
        let ended = base.checked_add(unzigzag(leb128::take(&mut rest)?))?;
        let started = ended.checked_sub(unzigzag(leb128::take(&mut rest)?))?;
        let length = leb128::take(&mut rest)?;
        outcomes.push(SubtaskOutcome {
            number,
            attempt,
            kind,
            started_ms: started.try_into().ok()?,
            ended_ms: ended.try_into().ok()?,
            result: row_numbers::take(&mut rest, length)?.to_vec(),
        });
    }
    rest.is_empty().then_some(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn outcome() -> impl Strategy<Value = SubtaskOutcome> {
        let kind = prop::sample::select(&OutcomeKind::ALL[..]);
        let time = || 0u64..1 << 48;
        let result = prop::collection::vec(any::<u8>(), 0..100);
        (any::<u32>(), 0u32..1 << 29, kind, time(), time(), result).prop_map(
            |(number, attempt, kind, started_ms, ended_ms, result)| SubtaskOutcome {
                number,
                attempt,
                kind,
                started_ms,
                ended_ms,
                result,
            },
        )
    }

    fn sealed(all: &[SubtaskOutcome]) -> (u32, Vec<u8>, Vec<u8>) {
        let mut row = OutcomeRow::default();
        all.iter().for_each(|outcome| row.push(outcome));
        row.sealed(row_numbers::place(JobNumber(5), 9))
    }

    fn opened(count: u32, numbers: &[u8], body: &[u8]) -> Option<Vec<SubtaskOutcome>> {
        outcomes(JobNumber(5), 9, count, numbers, body)
    }

    proptest! {
        #[test]
        fn what_was_packed_is_unpacked(all in prop::collection::vec(outcome(), 1..30)) {
            let (count, packed, body) = sealed(&all);
            let about = all.iter().map(|one| (one.number, one.attempt, one.kind));
            let place = row_numbers::place(JobNumber(5), 9);
            prop_assert!(numbers(place, count, &packed).unwrap().into_iter().eq(about));
            prop_assert_eq!(opened(count, &packed, &body), Some(all));
            prop_assert_eq!(outcomes(JobNumber(5), 8, count, &packed, &body), None);
            prop_assert_eq!(outcomes(JobNumber(4), 9, count, &packed, &body), None);
        }

        #[test]
        fn a_flipped_bit_anywhere_is_noticed(
            all in prop::collection::vec(outcome(), 1..5), bit in any::<prop::sample::Index>(),
        ) {
            let (count, mut numbers, mut body) = sealed(&all);
            let bit = bit.index((numbers.len() + body.len()) * 8);
            let split = numbers.len();
            let byte = if bit / 8 < split { &mut numbers[bit / 8] } else { &mut body[bit / 8 - split] };
            *byte ^= 1 << (bit % 8);
            prop_assert_eq!(opened(count, &numbers, &body), None);
        }

        #[test]
        fn no_bytes_make_it_panic(
            mut numbers in prop::collection::vec(any::<u8>(), 0..40),
            mut body in prop::collection::vec(any::<u8>(), 0..60), count in 0u32..5,
        ) {
            let place = row_numbers::place(JobNumber(5), 9);
            seal(&mut numbers, &[place, u64::from(count)]);
            seal(&mut body, &[place, u64::from(count), seal_of(&numbers)]);
            opened(count, &numbers, &body);
        }
    }

    #[test]
    fn a_body_of_another_row_is_noticed() {
        let one = |number| SubtaskOutcome {
            number,
            attempt: 1,
            kind: OutcomeKind::Succeeded,
            started_ms: 5,
            ended_ms: 7,
            result: vec![],
        };
        let (count, numbers, _) = sealed(&[one(1)]);
        let (_, _, body) = sealed(&[one(2)]);
        assert_eq!(opened(count, &numbers, &body), None);
    }

    #[test]
    fn places_rise_and_are_told_apart() {
        let places = [(0, 0), (0, 1), (0, 1023), (1, 0), (1 << 24, 7)];
        let numbers = places.map(|(row, within)| OutcomePosition::at(row, within));
        assert!(numbers.is_sorted());
        for (place, (row, within)) in numbers.into_iter().zip(places) {
            assert_eq!(OutcomePosition::new(place.get()).row(), (u64::from(row), within));
        }
    }
}
