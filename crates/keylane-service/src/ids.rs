//! What jobs, subtasks and keys are called inside the service.

use std::fmt;
use std::sync::Arc;

/// A job's number in its store: that of a later upload is higher. What users see is a [`JobId`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobNumber(pub u64);

/// What users call a job: 16 bytes, a UUID of version 7, written `job_` and 32 hexadecimal digits. The last
/// 40 bits are the job's number, so that a job is found without an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub [u8; 16]);

/// A subtask's number in its job: its place in the submission, from 0.
pub type SubtaskNumber = u32;

/// A subtask of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubtaskId {
    /// Its job.
    pub job: JobNumber,
    /// Its number there.
    pub number: SubtaskNumber,
}

/// What order is kept for: any bytes. One key space for the whole service.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub Arc<[u8]>);

impl Key {
    /// Of these bytes.
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        Key(bytes.as_ref().into())
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.0.escape_ascii())
    }
}

impl JobId {
    const NUMBER_BITS: u32 = 40;

    /// The id of a job: `millis` since 1970, and 34 bits of chance besides the number.
    ///
    /// # Panics
    /// If the number is beyond 2^40.
    #[must_use]
    pub fn new(number: JobNumber, millis: u64, chance: u64) -> Self {
        assert!(number.0 >> Self::NUMBER_BITS == 0, "a store has room for 2^40 jobs");
        let low_chance = chance & ((1 << 22) - 1);
        let high_chance = (chance >> 22) & 0xfff;
        let high = (millis << 16) | 0x7000 | high_chance;
        let low = (0b10 << 62) | (low_chance << Self::NUMBER_BITS) | number.0;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&high.to_be_bytes());
        bytes[8..].copy_from_slice(&low.to_be_bytes());
        JobId(bytes)
    }

    /// The number in it. That there is such a job, and that it has this id, is for the store to say.
    #[must_use]
    pub fn number(&self) -> JobNumber {
        let low = u64::from_be_bytes(self.0[8..].try_into().expect("it is the half of sixteen"));
        JobNumber(low & ((1 << Self::NUMBER_BITS) - 1))
    }

    /// Reads what [`Display`](fmt::Display) writes.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("job_")?;
        let is_plain = digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if digits.len() != 32 || !is_plain {
            return None;
        }
        u128::from_str_radix(digits, 16).ok().map(|number| JobId(number.to_be_bytes()))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "job_{:032x}", u128::from_be_bytes(self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_has_its_number_and_is_read_as_it_is_written() {
        let id = JobId::new(JobNumber(123_456_789_012), 1_763_000_000_000, u64::MAX);
        assert_eq!(id.number(), JobNumber(123_456_789_012));
        assert_eq!(JobId::parse(&id.to_string()), Some(id));
        assert_eq!(id.0[6] >> 4, 7);
        assert_eq!(id.0[8] >> 6, 0b10);
    }

    #[test]
    fn what_is_no_id_is_not_read_as_one() {
        let upper = "job_0199AAAAAAAA7000800000000000000A";
        for text in [
            "",
            "job_",
            "job_12",
            upper,
            "0199aaaaaaaa7000800000000000000a",
            "job_+199aaaaaaaa7000800000000000000a",
        ] {
            assert_eq!(JobId::parse(text), None, "{text}");
        }
    }

    #[test]
    fn later_ids_sort_after_earlier_ones() {
        let id = |number, millis| JobId::new(JobNumber(number), millis, 0);
        assert!(id(9, 1) < id(1, 2));
        assert!(id(1, 2) < id(2, 2));
    }
}
