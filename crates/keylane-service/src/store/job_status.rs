//! Mutable part of a job: its state, times and counts, in a column of constant length with a
//! checksum.
//!
//! The column `status` has 44 bytes, numbers in little-endian order:
//!
//! | bytes | content |
//! |---|---|
//! | 0..8 | time at which the job is to begin, 0 once it is in the order; version of an ended job |
//! | 8..16 | start of its first subtask; 0 if none has started |
//! | 16..24 | end of the job; 0 if it has not ended |
//! | 24..40 | numbers of succeeded, failed, cancelled and skipped subtasks: four bytes each, of which the lower 25 bits are the number. The upper 7 bits of all four are the number of superseded subtasks, its lowest bits first |
//! | 40..44 | checksum, which includes the job's number and its state |
//!
//! Times are milliseconds since 1970. The length is constant, so that SQLite replaces the column in
//! place.

use keylane_storage::checksum::{seal, unseal};

use super::boot_number::{FENCE_BITS, LEAST};
use crate::ids::JobNumber;

/// State of a job on the disk. Whether it is running is in memory only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum JobState {
    /// Accepted, with unfinished subtasks. The job may be scheduled or running.
    Waiting,
    /// Paused: nothing of the job starts until it is resumed.
    Paused,
    /// Cancelling: no further attempt starts, and running ones were asked to stop.
    Cancelling,
    /// All subtasks succeeded.
    Succeeded,
    /// Some subtasks did not succeed.
    Failed,
    /// Cancelled.
    Cancelled,
    /// Damaged, and set aside by an operator.
    Damaged,
}

impl JobState {
    /// All states.
    pub const ALL: [JobState; 7] = [
        JobState::Waiting,
        JobState::Paused,
        JobState::Cancelling,
        JobState::Succeeded,
        JobState::Failed,
        JobState::Cancelled,
        JobState::Damaged,
    ];

    /// Returns whether the state is final.
    #[must_use]
    pub fn is_final(self) -> bool {
        self.code() >= FIRST_FINAL
    }

    /// Returns the number in the column `state`. Numbers from 2 on take exactly one byte in SQLite;
    /// 0 and 1 take none, so a change would resize the row.
    pub(super) fn code(self) -> i64 {
        match self {
            JobState::Waiting => 2,
            JobState::Paused => 3,
            JobState::Cancelling => 4,
            JobState::Succeeded => FIRST_FINAL,
            JobState::Failed => 17,
            JobState::Cancelled => 18,
            JobState::Damaged => 19,
        }
    }

    pub(super) fn of_code(code: i64) -> Option<Self> {
        Self::ALL.into_iter().find(|state| state.code() == code)
    }

    /// Returns the state's name in exports.
    pub(super) fn word(self) -> &'static str {
        match self {
            JobState::Waiting => "waiting",
            JobState::Paused => "paused",
            JobState::Cancelling => "cancelling",
            JobState::Succeeded => "succeeded",
            JobState::Failed => "failed",
            JobState::Cancelled => "cancelled",
            JobState::Damaged => "damaged",
        }
    }
}

/// Lowest code of a final state. It is that of `Succeeded`, which the tables' index leaves out.
pub(super) const FIRST_FINAL: i64 = 16;

/// Numbers of ended subtasks, by kind of outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutcomeCounts {
    /// Succeeded subtasks.
    pub succeeded: u32,
    /// Subtasks that failed on their last attempt.
    pub failed: u32,
    /// Cancelled subtasks.
    pub cancelled: u32,
    /// Skipped subtasks.
    pub skipped: u32,
    /// Superseded subtasks.
    pub superseded: u32,
}

impl OutcomeCounts {
    /// Returns the number of ended subtasks.
    #[must_use]
    pub fn ended(&self) -> u32 {
        self.succeeded + self.failed + self.cancelled + self.skipped + self.superseded
    }

    /// Packs the counts. A job has at most 2^24 subtasks, so that a count has at most 25 bits.
    fn pack(self) -> [u32; 4] {
        let OutcomeCounts { succeeded, failed, cancelled, skipped, superseded } = self;
        let mut rest = superseded;
        [succeeded, failed, cancelled, skipped].map(|count| {
            let word = count & COUNT_MASK | rest << COUNT_BITS;
            rest >>= u32::BITS - COUNT_BITS;
            word
        })
    }

    fn unpack(words: [u32; 4]) -> Self {
        let upper = words.iter().rev().map(|word| word >> COUNT_BITS);
        let superseded = upper.fold(0, |all, part| all << (u32::BITS - COUNT_BITS) | part);
        let [succeeded, failed, cancelled, skipped] = words.map(|word| word & COUNT_MASK);
        OutcomeCounts { succeeded, failed, cancelled, skipped, superseded }
    }
}

/// Bits of a count.
const COUNT_BITS: u32 = 25;
const COUNT_MASK: u32 = (1 << COUNT_BITS) - 1;

/// Mutable part of a job. Times are milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobStatus {
    /// State.
    pub state: JobState,
    /// Time at which a delayed job is to begin; its subtasks are not in the order until then.
    pub start_at_ms: Option<u64>,
    /// Start of the first subtask.
    pub started_ms: Option<u64>,
    /// End of the job.
    pub ended_ms: Option<u64>,
    /// Version of the job at its end, at least 2^49.
    pub version: Option<u64>,
    /// Counts of ended subtasks at the last change of the state: final at the job's end. Before it,
    /// the outcomes are more recent.
    pub counts: OutcomeCounts,
}

pub(super) const STATUS_BYTES: usize = 44;

/// Lowest version: the first fence of the lowest boot number. As a time it is in the year 19809.
const LEAST_VERSION: u64 = LEAST << FENCE_BITS;

impl JobStatus {
    /// Status of a newly accepted job.
    pub const WAITING: JobStatus = JobStatus::of(JobState::Waiting);

    /// Creates a status with this state and no times.
    #[must_use]
    pub const fn of(state: JobState) -> Self {
        let counts =
            OutcomeCounts { succeeded: 0, failed: 0, cancelled: 0, skipped: 0, superseded: 0 };
        JobStatus {
            state,
            start_at_ms: None,
            started_ms: None,
            ended_ms: None,
            version: None,
            counts,
        }
    }

    pub(super) fn encode(&self, job: JobNumber) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(STATUS_BYTES);
        for time in [self.version.or(self.start_at_ms), self.started_ms, self.ended_ms] {
            bytes.extend(time.unwrap_or(0).to_le_bytes());
        }
        for count in self.counts.pack() {
            bytes.extend(count.to_le_bytes());
        }
        seal(&mut bytes, &[job.0, self.state.code().cast_unsigned()]);
        bytes
    }

    /// Decodes the column. Returns `None` if it is damaged.
    pub(super) fn decode(job: JobNumber, code: i64, bytes: &[u8]) -> Option<Self> {
        let state = JobState::of_code(code)?;
        let content = unseal(bytes, &[job.0, code.cast_unsigned()])?;
        let (times, counts) = content.split_at_checked(24)?;
        let mut times = times.chunks_exact(8).map(|time| {
            let time = u64::from_le_bytes(time.try_into().expect("chunks of eight"));
            (time != 0).then_some(time)
        });
        let mut counts = counts
            .chunks_exact(4)
            .map(|count| u32::from_le_bytes(count.try_into().expect("chunks of four")));
        // An ended job begins no more, and all versions are above all times.
        let first = times.next()?;
        Some(JobStatus {
            state,
            start_at_ms: first.filter(|first| *first < LEAST_VERSION),
            version: first.filter(|first| *first >= LEAST_VERSION),
            started_ms: times.next()?,
            ended_ms: times.next()?,
            counts: OutcomeCounts::unpack([
                counts.next()?,
                counts.next()?,
                counts.next()?,
                counts.next()?,
            ]),
        })
    }
}

/// Status of a damaged job.
pub(super) fn set_aside(ended_ms: u64) -> JobStatus {
    JobStatus { ended_ms: Some(ended_ms), ..JobStatus::of(JobState::Damaged) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn status() -> impl Strategy<Value = JobStatus> {
        let time = || prop::option::of(1u64..1 << 48);
        let first = prop_oneof![
            time().prop_map(|start| (start, None)),
            (LEAST_VERSION..1 << 53).prop_map(|version| (None, Some(version))),
        ];
        let count = || 0..=1_u32 << 24;
        let counts = (count(), count(), count(), count(), count());
        (prop::sample::select(&JobState::ALL[..]), (first, time(), time()), counts).prop_map(
            |(state, ((start_at_ms, version), started_ms, ended_ms), counts)| {
                let (succeeded, failed, cancelled, skipped, superseded) = counts;
                let counts = OutcomeCounts { succeeded, failed, cancelled, skipped, superseded };
                JobStatus { state, start_at_ms, started_ms, ended_ms, version, counts }
            },
        )
    }

    proptest! {
        #[test]
        fn it_is_read_as_it_was_written(status in status(), job in any::<u64>()) {
            let (job, code) = (JobNumber(job), status.state.code());
            let bytes = status.encode(job);
            prop_assert_eq!(bytes.len(), STATUS_BYTES);
            prop_assert_eq!(JobStatus::decode(job, code, &bytes), Some(status));
            // The checksum covers the state and the job.
            let other = if code == 2 { 3 } else { 2 };
            prop_assert_eq!(JobStatus::decode(job, other, &bytes), None);
            prop_assert_eq!(JobStatus::decode(JobNumber(!job.0), code, &bytes), None);
        }

        #[test]
        fn a_flipped_bit_is_noticed(status in status(), bit in 0usize..STATUS_BYTES * 8) {
            let mut bytes = status.encode(JobNumber(9));
            bytes[bit / 8] ^= 1 << (bit % 8);
            prop_assert_eq!(JobStatus::decode(JobNumber(9), status.state.code(), &bytes), None);
        }
    }

    #[test]
    fn every_state_has_a_code_and_a_word_of_its_own() {
        for state in JobState::ALL {
            assert_eq!(JobState::of_code(state.code()), Some(state));
            let named = JobState::ALL.into_iter().filter(|other| other.word() == state.word());
            assert_eq!(named.count(), 1);
        }
        assert_eq!(JobState::of_code(5), None);
    }
}
