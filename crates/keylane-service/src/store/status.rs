//! What changes of a job: where it is in its life.
//!
//! The column `status` has 44 bytes, numbers with the least byte first:
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | it begins at this time, and has not; 0 if it is in the order |
//! | 8..16 | when its first subtask was started; 0 if none was |
//! | 16..24 | when it ended; 0 if it has not |
//! | 24..40 | how many subtasks have succeeded, failed, were cancelled, were skipped: four bytes each |
//! | 40..44 | the seal, for the job's number and its state |
//!
//! Times are milliseconds since 1970. It always has the same length, so that SQLite replaces it where it is.

use super::seal::{seal, unseal};
use crate::ids::JobNumber;

/// Where a job is in its life, as far as that is on the disk. That it runs is known to who runs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum JobState {
    /// It was accepted, and has subtasks that have not ended. It may be scheduled for later, or run.
    Waiting,
    /// Nothing of it is to be started, until it is resumed.
    Paused,
    /// What has not begun is not to begin; what runs was asked to stop.
    Cancelling,
    /// All its subtasks have succeeded.
    Succeeded,
    /// Some have not.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It is not what was written, and an operator has set it aside.
    Damaged,
}

impl JobState {
    /// All of them.
    pub const ALL: [JobState; 7] = [
        JobState::Waiting,
        JobState::Paused,
        JobState::Cancelling,
        JobState::Succeeded,
        JobState::Failed,
        JobState::Cancelled,
        JobState::Damaged,
    ];

    /// Whether a job with this state has ended.
    #[must_use]
    pub fn is_final(self) -> bool {
        self.code() >= FIRST_FINAL
    }

    /// The number in the column `state`. All take one byte there, which 0 and 1 would not.
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

    /// The word for it in exports.
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

/// Final states have this number or a higher one. This one is that of `Succeeded`, which the index of
/// the tables leaves out.
pub(super) const FIRST_FINAL: i64 = 16;

/// How the subtasks of a job have ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// How many have succeeded.
    pub succeeded: u32,
    /// How many have failed for good.
    pub failed: u32,
    /// How many were cancelled.
    pub cancelled: u32,
    /// How many were skipped.
    pub skipped: u32,
}

impl Counts {
    /// How many have ended.
    #[must_use]
    pub fn ended(&self) -> u32 {
        self.succeeded + self.failed + self.cancelled + self.skipped
    }
}

/// What changes of a job. Times are milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobStatus {
    /// Where it is in its life.
    pub state: JobState,
    /// When it begins, if it was put off and has not yet: its subtasks are in no order until then.
    pub start_at_ms: Option<u64>,
    /// When its first subtask was started.
    pub started_ms: Option<u64>,
    /// When it ended.
    pub ended_ms: Option<u64>,
    /// How its subtasks have ended, as of when the state was written: at the job's end that is all of
    /// them, and before it the outcomes say more.
    pub counts: Counts,
}

pub(super) const STATUS_BYTES: usize = 44;

impl JobStatus {
    /// A job that was just accepted.
    pub const WAITING: JobStatus = JobStatus::of(JobState::Waiting);

    /// In this state, with nothing else to be said.
    #[must_use]
    pub const fn of(state: JobState) -> Self {
        let counts = Counts { succeeded: 0, failed: 0, cancelled: 0, skipped: 0 };
        JobStatus { state, start_at_ms: None, started_ms: None, ended_ms: None, counts }
    }

    pub(super) fn encode(&self, job: JobNumber) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(STATUS_BYTES);
        for time in [self.start_at_ms, self.started_ms, self.ended_ms] {
            bytes.extend(time.unwrap_or(0).to_le_bytes());
        }
        let Counts { succeeded, failed, cancelled, skipped } = self.counts;
        for count in [succeeded, failed, cancelled, skipped] {
            bytes.extend(count.to_le_bytes());
        }
        seal(&mut bytes, &[job.0, self.state.code().cast_unsigned()]);
        bytes
    }

    /// None if it is not what was written.
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
        Some(JobStatus {
            state,
            start_at_ms: times.next()?,
            started_ms: times.next()?,
            ended_ms: times.next()?,
            counts: Counts {
                succeeded: counts.next()?,
                failed: counts.next()?,
                cancelled: counts.next()?,
                skipped: counts.next()?,
            },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn status() -> impl Strategy<Value = JobStatus> {
        let time = || prop::option::of(1u64..1 << 48);
        let count = any::<u32>;
        let counts = (count(), count(), count(), count());
        (prop::sample::select(&JobState::ALL[..]), (time(), time(), time()), counts).prop_map(
            |(state, (start_at_ms, started_ms, ended_ms), counts)| {
                let (succeeded, failed, cancelled, skipped) = counts;
                let counts = Counts { succeeded, failed, cancelled, skipped };
                JobStatus { state, start_at_ms, started_ms, ended_ms, counts }
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
            // Another state, or another job.
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
