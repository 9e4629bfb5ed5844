//! Identifiers of jobs, subtasks and keys inside the service.

use std::fmt;
use std::sync::Arc;

/// Number of a job in its store, ascending in order of submission. Users see a [`JobId`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobNumber(pub u64);

/// Public id of a job: 16 bytes, a UUID of version 7, written as `job_` and 32 hexadecimal digits.
/// The last 40 bits are the job's number, so that no index is needed to find a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(pub [u8; 16]);

/// Number of a subtask in its job: its position in the submission, from 0.
pub type SubtaskNumber = u32;

/// Id of a subtask.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubtaskId {
    /// Number of the job.
    pub job: JobNumber,
    /// Number of the subtask in the job.
    pub number: SubtaskNumber,
}

/// Ordering key: any bytes. The whole service has one key space.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key(pub Arc<[u8]>);

impl Key {
    /// Returns a key with these bytes.
    pub fn new(bytes: impl AsRef<[u8]>) -> Self {
        Key(bytes.as_ref().into())
    }
}

/// A subtask's use of a key, while it is submitted: exclusive, or shared with other subtasks that
/// share the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyClaim<'k> {
    /// Bytes of the key.
    pub key: &'k [u8],
    /// Whether other subtasks that share the key may run at the same time.
    pub is_shared: bool,
}

impl<'k> KeyClaim<'k> {
    /// Marks a barrier among the uses of keys: the subtask runs after all earlier subtasks of its job
    /// and before all later ones. A key of a client is UTF-8, so no key has this byte.
    pub const BARRIER: KeyClaim<'static> = KeyClaim { key: &[Self::JOB], is_shared: false };

    /// Marks the latest of its key among the uses of keys: the subtask replaces the one of its key
    /// that has this mark, too, and has not started.
    pub const LATEST: KeyClaim<'static> = KeyClaim { key: &[Self::JOB, b'l'], is_shared: false };

    /// First byte of the marks, and of the key that the scheduler gives to the subtasks of a job with
    /// barriers.
    pub(crate) const JOB: u8 = 0xff;

    /// Returns whether this is [`BARRIER`](Self::BARRIER).
    #[must_use]
    pub fn is_barrier(&self) -> bool {
        // Compared by hand: a comparison of slices costs a call for each key of each subtask.
        matches!(self.key, [Self::JOB]) && !self.is_shared
    }

    /// Returns whether this is [`LATEST`](Self::LATEST).
    #[must_use]
    pub fn is_latest(&self) -> bool {
        matches!(self.key, [Self::JOB, b'l'])
    }

    /// Returns whether this is a mark, or about the order in a job, and no key of a client.
    #[must_use]
    pub fn is_of_job(&self) -> bool {
        self.key.first() == Some(&Self::JOB)
    }

    /// Returns an exclusive use of the key.
    #[must_use]
    pub fn exclusive(key: &'k [u8]) -> Self {
        KeyClaim { key, is_shared: false }
    }

    /// Returns a shared use of the key.
    #[must_use]
    pub fn shared(key: &'k [u8]) -> Self {
        KeyClaim { key, is_shared: true }
    }
}

impl<'k> From<&'k [u8]> for KeyClaim<'k> {
    fn from(key: &'k [u8]) -> Self {
        KeyClaim::exclusive(key)
    }
}

/// Keys of a subtask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskKeys {
    /// Keys that no other subtask uses while this one is unfinished, or at most `limit`.
    pub exclusive: Vec<Key>,
    /// Keys that other subtasks may share.
    pub shared: Vec<Key>,
    /// Whether the subtask is a barrier in its job.
    pub is_barrier: bool,
    /// Whether the subtask is no barrier, and its job has some.
    pub is_beside_barriers: bool,
    /// Whether the subtask replaces the latest one of its key, and may be replaced.
    pub is_latest: bool,
    /// Maximum number of subtasks that have one of the keys in `exclusive` at a time; 0: one, in order.
    pub limit: u16,
}

impl TaskKeys {
    /// Returns whether there is no key.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.exclusive.is_empty() && self.shared.is_empty()
    }

    /// Returns all keys, the exclusive ones first.
    pub fn all(&self) -> impl Iterator<Item = &Key> {
        self.exclusive.iter().chain(&self.shared)
    }

    /// Returns the uses of the keys, the exclusive ones first.
    pub fn claims(&self) -> impl Iterator<Item = KeyClaim<'_>> {
        let exclusive = self.exclusive.iter().map(|key| KeyClaim::exclusive(&key.0));
        let shared = self.shared.iter().map(|key| KeyClaim::shared(&key.0));
        let barrier = self.is_barrier.then_some(KeyClaim::BARRIER);
        let latest = self.is_latest.then_some(KeyClaim::LATEST);
        exclusive.chain(shared).chain(barrier).chain(latest)
    }
}

impl<'k> FromIterator<KeyClaim<'k>> for TaskKeys {
    fn from_iter<I: IntoIterator<Item = KeyClaim<'k>>>(claims: I) -> Self {
        let mut keys = TaskKeys::default();
        for claim in claims {
            let KeyClaim { key, is_shared } = claim;
            if claim.is_latest() {
                keys.is_latest = true;
                continue;
            }
            if claim.is_of_job() {
                (keys.is_barrier, keys.is_beside_barriers) = (!is_shared, is_shared);
                continue;
            }
            let list = if is_shared { &mut keys.shared } else { &mut keys.exclusive };
            list.push(Key::new(key));
        }
        keys
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Key({})", self.0.escape_ascii())
    }
}

impl JobId {
    const NUMBER_BITS: u32 = 40;

    /// Returns the id of a job from its number, `millis` since 1970, and 34 random bits.
    ///
    /// # Panics
    ///
    /// Panics if the number is above 2^40.
    #[must_use]
    pub fn new(number: JobNumber, millis: u64, chance: u64) -> Self {
        assert!(number.0 >> Self::NUMBER_BITS == 0, "a store holds at most 2^40 jobs");
        let low_chance = chance & ((1 << 22) - 1);
        let high_chance = (chance >> 22) & 0xfff;
        let high = (millis << 16) | 0x7000 | high_chance;
        let low = (0b10 << 62) | (low_chance << Self::NUMBER_BITS) | number.0;
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&high.to_be_bytes());
        bytes[8..].copy_from_slice(&low.to_be_bytes());
        JobId(bytes)
    }

    /// Job number in the id. Only the store can tell whether a job with this id exists.
    #[must_use]
    pub fn number(&self) -> JobNumber {
        let low = u64::from_be_bytes(self.0[8..].try_into().expect("it is the half of sixteen"));
        JobNumber(low & ((1 << Self::NUMBER_BITS) - 1))
    }

    /// Parses the format that [`Display`](fmt::Display) writes.
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

impl serde::Serialize for JobId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for JobId {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'_, str>::deserialize(deserializer)?;
        let wrong = || serde::de::Error::custom(format_args!("`{text}` is no job id"));
        JobId::parse(&text).ok_or_else(wrong)
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
