//! Compact storage of subtasks before they enter the order, cut into slices.

use std::collections::VecDeque;

use super::NewSubtask;
use super::entry_queue_keys::KeySet;
use super::settings::SLICE;
use crate::{KeyClaim, SubtaskNumber};

/// Number of bytes after which a slice is full, whatever its units: long keys cost by their bytes.
const SLICE_BYTES: usize = 64 * 1024;

/// Subtasks that wait to enter the order, in the order of their pushes.
///
/// A run of subtasks without keys takes a few bytes, whatever its length. A subtask with keys takes
/// 12 bytes, and 4 bytes plus the key for each key. Memory is allocated in slices of at most 64 KiB
/// plus one subtask, so that it can be released slice by slice.
#[derive(Clone, Debug, Default)]
pub struct PackedSubtasks {
    slices: VecDeque<PackedSlice>,
    /// Number of subtasks in all slices.
    count: u64,
    /// Number of keys in all slices.
    keys: u64,
    /// Size of these keys, in bytes.
    key_bytes: u64,
    /// All keys ever pushed, including those of removed slices.
    key_set: KeySet,
    /// Whether a barrier was ever pushed.
    has_barriers: bool,
    /// Whether a subtask was ever pushed that may be replaced.
    has_latest: bool,
}

/// Records in sequence: number, attempts, number of keys, then for each key twice its length, plus
/// one if it is shared, and its bytes.
/// All numbers take four bytes, least significant first. [`RUN`] instead of the number of keys
/// marks a run of subtasks without keys, followed by the run's length.
#[derive(Clone, Debug)]
struct PackedSlice {
    bytes: Vec<u8>,
    /// Units of work.
    units: u32,
    /// Lowest and highest subtask number in the slice.
    numbers: (SubtaskNumber, SubtaskNumber),
    /// Offset of the length of the last record, if that is a run.
    run_at: Option<usize>,
}

/// Marker of a run, instead of the number of keys.
const RUN: u32 = u32::MAX;

/// Decoded record.
pub(super) enum PackedRecord<'a> {
    /// `len` subtasks without keys, from `first`.
    Run { first: SubtaskNumber, len: u32, attempts_made: u32 },
    /// Subtask with keys.
    Keyed(NewSubtask<PackedKeys<'a>>),
}

impl PackedSubtasks {
    /// Appends a subtask.
    pub fn push<'k>(&mut self, subtask: NewSubtask<impl IntoIterator<Item: Into<KeyClaim<'k>>>>) {
        self.push_within(subtask, SLICE);
    }

    /// Appends a subtask, with slices of at most `most` units.
    pub(super) fn push_within<'k>(
        &mut self,
        subtask: NewSubtask<impl IntoIterator<Item: Into<KeyClaim<'k>>>>,
        most: u32,
    ) {
        let NewSubtask { number, keys, attempts_made } = subtask;
        let mut keys = keys.into_iter().peekable();
        self.count += 1;
        let slice = self.open_slice(most.max(1));
        slice.note(number);
        if keys.peek().is_none() {
            return slice.push_without_keys(number, attempts_made);
        }
        slice.put(number);
        slice.put(attempts_made);
        let count_at = slice.bytes.len();
        slice.put(0);
        let (mut count, before) = (0_u32, slice.bytes.len());
        let mut key_set = std::mem::take(&mut self.key_set);
        let slice = self.slices.back_mut().expect("a slice is open");
        for claim in keys {
            let claim = claim.into();
            let KeyClaim { key, is_shared } = claim;
            if claim.is_barrier() {
                self.has_barriers = true;
            } else if claim.is_latest() {
                self.has_latest = true;
            } else {
                key_set.add(key);
            }
            let len = i32::try_from(key.len()).expect("a key is shorter than 2 GiB");
            slice.put(len.cast_unsigned() << 1 | u32::from(is_shared));
            slice.bytes.extend_from_slice(key);
            count += 1;
        }
        slice.bytes[count_at..count_at + 4].copy_from_slice(&count.to_le_bytes());
        slice.units = slice.units.saturating_add(1 + count);
        slice.run_at = None;
        let written = slice.bytes.len() - before;
        self.key_set = key_set;
        self.keys += u64::from(count);
        self.key_bytes += written as u64 - 4 * u64::from(count);
    }

    fn open_slice(&mut self, most: u32) -> &mut PackedSlice {
        let is_full = |slice: &PackedSlice| slice.units >= most || slice.bytes.len() >= SLICE_BYTES;
        if self.slices.back().is_none_or(is_full) {
            let numbers = (SubtaskNumber::MAX, 0);
            let slice = PackedSlice { bytes: Vec::new(), units: 0, numbers, run_at: None };
            if let Some(last) = self.slices.back_mut() {
                last.bytes.shrink_to_fit();
            }
            self.slices.push_back(slice);
        }
        self.slices.back_mut().expect("a slice was just added")
    }

    /// Number of subtasks left.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Whether no subtask is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Whether a remaining subtask has a key.
    #[must_use]
    pub fn has_keys(&self) -> bool {
        self.keys > 0
    }

    /// Whether a barrier was ever pushed.
    #[must_use]
    pub fn has_barriers(&self) -> bool {
        self.has_barriers
    }

    /// Whether a subtask was ever pushed that may be replaced by a later one.
    #[must_use]
    pub fn has_latest(&self) -> bool {
        self.has_latest
    }

    /// Size of all keys ever pushed, in bytes.
    #[must_use]
    pub fn key_bytes(&self) -> u64 {
        self.key_bytes
    }

    /// Approximate memory use, in bytes.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let slices =
            self.slices.iter().map(|slice| slice.bytes.capacity() + size_of::<PackedSlice>());
        (slices.sum::<usize>() + self.key_set.memory()) as u64
    }

    /// Removes the first slice; `None` if there is none.
    pub(super) fn pop(&mut self) -> Option<PoppedSlice> {
        let slice = self.slices.pop_front()?;
        for record in slice.records() {
            match record {
                PackedRecord::Run { len, .. } => self.count -= u64::from(len),
                PackedRecord::Keyed(subtask) => {
                    self.count -= 1;
                    self.keys -= u64::from(subtask.keys.count);
                }
            }
        }
        Some(PoppedSlice(slice))
    }

    /// Takes the set of all keys ever pushed.
    pub(super) fn take_key_set(&mut self) -> KeySet {
        std::mem::take(&mut self.key_set)
    }

    /// Replaces the key set by the keys of all present and future subtasks.
    pub(super) fn set_key_set(&mut self, keys: KeySet) {
        self.key_set = keys;
    }

    /// Keys of the first slice.
    pub(super) fn first_keys(&self) -> impl Iterator<Item = &[u8]> {
        let records = self.slices.front().into_iter().flat_map(PackedSlice::records);
        let keys = records.filter_map(|record| match record {
            PackedRecord::Run { .. } => None,
            PackedRecord::Keyed(subtask) => Some(subtask.keys),
        });
        keys.flatten().filter(|claim| !claim.is_of_job()).map(|claim| claim.key)
    }

    /// Whether a subtask is left. Costs O(slices) plus one slice.
    pub(super) fn has(&self, number: SubtaskNumber) -> bool {
        let may_have = |slice: &&PackedSlice| (slice.numbers.0..=slice.numbers.1).contains(&number);
        let is_it = |record: PackedRecord<'_>| match record {
            PackedRecord::Run { first, len, .. } => (first..first + len).contains(&number),
            PackedRecord::Keyed(subtask) => subtask.number == number,
        };
        self.slices.iter().filter(may_have).any(|slice| slice.records().any(is_it))
    }

    /// Appends the subtasks of `other`, without its key set.
    pub(super) fn append(&mut self, other: PackedSubtasks) {
        let PackedSubtasks { mut slices, count, keys, key_bytes, .. } = other;
        self.slices.append(&mut slices);
        self.count += count;
        self.keys += keys;
        self.key_bytes += key_bytes;
    }
}

/// Slice that was removed.
pub(super) struct PoppedSlice(PackedSlice);

impl PoppedSlice {
    pub(super) fn records(&self) -> impl Iterator<Item = PackedRecord<'_>> {
        self.0.records()
    }
}

impl PackedSlice {
    fn put(&mut self, number: u32) {
        self.bytes.extend_from_slice(&number.to_le_bytes());
    }

    fn note(&mut self, number: SubtaskNumber) {
        self.numbers = (self.numbers.0.min(number), self.numbers.1.max(number));
    }

    /// Extends the last run if this subtask follows it; otherwise starts a run.
    fn push_without_keys(&mut self, number: SubtaskNumber, attempts_made: u32) {
        if let Some(at) = self.run_at {
            let word = |at: usize| {
                let bytes = self.bytes[at..at + 4].try_into().expect("a number has four bytes");
                u32::from_le_bytes(bytes)
            };
            let (first, made, len) = (word(at - 12), word(at - 8), word(at));
            if first.checked_add(len) == Some(number) && made == attempts_made {
                self.bytes[at..at + 4].copy_from_slice(&(len + 1).to_le_bytes());
                // A subtask with earlier attempts may have none left, and is then handled alone.
                self.units = self.units.saturating_add(u32::from(attempts_made > 0));
                return;
            }
        }
        self.put(number);
        self.put(attempts_made);
        self.put(RUN);
        self.run_at = Some(self.bytes.len());
        self.put(1);
        self.units = self.units.saturating_add(1);
    }

    fn records(&self) -> impl Iterator<Item = PackedRecord<'_>> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || {
            if rest.is_empty() {
                return None;
            }
            let (number, attempts_made) = (word(&mut rest), word(&mut rest));
            let count = word(&mut rest);
            if count == RUN {
                return Some(PackedRecord::Run {
                    first: number,
                    len: word(&mut rest),
                    attempts_made,
                });
            }
            let keys = PackedKeys { rest, count };
            for _ in 0..count {
                let len = word(&mut rest) >> 1;
                bytes(&mut rest, len);
            }
            Some(PackedRecord::Keyed(NewSubtask { number, keys, attempts_made }))
        })
    }
}

/// Keys of a packed subtask.
pub(super) struct PackedKeys<'a> {
    rest: &'a [u8],
    count: u32,
}

impl<'a> Iterator for PackedKeys<'a> {
    type Item = KeyClaim<'a>;

    fn next(&mut self) -> Option<KeyClaim<'a>> {
        self.count = self.count.checked_sub(1)?;
        let len = word(&mut self.rest);
        Some(KeyClaim { key: bytes(&mut self.rest, len >> 1), is_shared: len & 1 == 1 })
    }
}

fn word(rest: &mut &[u8]) -> u32 {
    let (number, behind) = rest.split_first_chunk().expect("numbers were written whole");
    *rest = behind;
    u32::from_le_bytes(*number)
}

fn bytes<'a>(rest: &mut &'a [u8], len: u32) -> &'a [u8] {
    let (bytes, behind) = rest.split_at(len as usize);
    *rest = behind;
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    type Plain = (u32, u32, Vec<Vec<u8>>);

    fn unpack(packed: &mut PackedSubtasks) -> Vec<Vec<Plain>> {
        let plain = |popped: PoppedSlice| {
            let mut all: Vec<Plain> = Vec::new();
            for record in popped.records() {
                match record {
                    PackedRecord::Run { first, len, attempts_made } => {
                        let run = first..first + len;
                        all.extend(run.map(|number| (number, attempts_made, Vec::new())));
                    }
                    PackedRecord::Keyed(it) => {
                        let keys = it.keys.map(|claim| claim.key.to_vec()).collect();
                        all.push((it.number, it.attempts_made, keys));
                    }
                }
            }
            all
        };
        std::iter::from_fn(|| packed.pop()).map(plain).collect()
    }

    #[test]
    fn what_is_packed_comes_back_in_its_order_and_in_slices() {
        let all: [(u32, u32, &[&[u8]]); 7] = [
            (0, 0, &[]),
            (7, 2, &[b"a"]),
            (8, 0, &[b"", b"long enough", b"\xff"]),
            (9, 1, &[]),
            (10, 1, &[]),
            (11, 0, &[]),
            (12, 0, &[b"b"]),
        ];
        let mut packed = PackedSubtasks::default();
        for (number, attempts_made, keys) in all {
            let keys = keys.iter().copied();
            packed.push_within(NewSubtask { number, keys, attempts_made }, 4);
        }
        assert_eq!((packed.count(), packed.key_bytes(), packed.has_keys()), (7, 14, true));
        assert!(packed.has(8) && packed.has(10) && !packed.has(1) && !packed.has(13));
        let back = unpack(&mut packed);
        // Seven units: one, two and four; then one each for two runs, and two.
        assert_eq!(back.iter().map(Vec::len).collect::<Vec<_>>(), [3, 4]);
        let wanted =
            all.map(|it| (it.0, it.1, it.2.iter().map(|key| key.to_vec()).collect::<Vec<_>>()));
        assert_eq!(back.concat(), wanted);
        assert!(packed.is_empty() && !packed.has_keys());
    }

    #[test]
    fn subtasks_without_keys_take_no_room_of_their_own() {
        let mut packed = PackedSubtasks::default();
        for number in 0..1_000_000 {
            packed.push(NewSubtask { number, keys: [&[][..]; 0], attempts_made: 0 });
        }
        assert_eq!((packed.count(), packed.slices.len()), (1_000_000, 1));
        assert!(packed.memory() < 1024);
    }
}
