//! Encoding of subtasks in a chunk, version 1. A damaged chunk is detected by its checksum.
//!
//! A body is a sequence of subtasks. Lengths and counts are LEB128:
//!
//! | field | encoding |
//! |---|---|
//! | keys | count; for each its length and its bytes |
//! | payload | its length, its bytes |
//!
//! A checksum follows, which includes the chunk's place and count.

use std::fmt;

use keylane_storage::checksum;
use keylane_storage::leb128;

use super::row_numbers;
use crate::ids::{JobNumber, SubtaskNumber};

/// Maximum size of subtasks stored in the job's own row, in bytes.
pub(super) const MAX_INLINE_BYTES: usize = 8 * 1024;

/// Maximum number of subtasks in a job: 2²⁴.
pub const MAX_SUBTASKS: u32 = row_numbers::PLACES as u32;

/// Maximum number of subtasks in a chunk. Reading one subtask reads its whole chunk.
const MAX_IN_CHUNK: usize = 1024;

/// Size at which a chunk is full, in bytes. A larger subtask has its own chunk.
const FULL_BYTES: usize = 128 * 1024;

/// Consecutive subtasks of a job, as submitted.
pub struct Chunk {
    job: JobNumber,
    first: SubtaskNumber,
    /// Offset of each subtask in `body`, in bytes.
    begins: Vec<u32>,
    /// Encoded subtasks, with the checksum.
    body: Vec<u8>,
}

/// Subtask as submitted.
#[derive(Clone, Copy)]
pub struct StoredSubtask<'a> {
    number: SubtaskNumber,
    /// Encoding from the number of keys on.
    bytes: &'a [u8],
}

/// Iterator over the keys of a subtask.
#[derive(Clone, Copy)]
pub struct SubtaskKeys<'a> {
    left: u64,
    bytes: &'a [u8],
}

impl Chunk {
    /// Returns the number of the job.
    #[must_use]
    pub fn job(&self) -> JobNumber {
        self.job
    }

    /// Returns the numbers of the subtasks.
    #[must_use]
    pub fn numbers(&self) -> std::ops::Range<SubtaskNumber> {
        self.first..self.first + self.count()
    }

    /// Returns a subtask, or `None` if it is in another chunk.
    #[must_use]
    pub fn subtask(&self, number: SubtaskNumber) -> Option<StoredSubtask<'_>> {
        let begin = *self.begins.get(number.checked_sub(self.first)? as usize)?;
        Some(StoredSubtask { number, bytes: &self.body[begin as usize..] })
    }

    /// Returns the subtasks in their order.
    pub fn subtasks(&self) -> impl Iterator<Item = StoredSubtask<'_>> {
        self.numbers().filter_map(|number| self.subtask(number))
    }

    pub(super) fn count(&self) -> u32 {
        self.begins.len() as u32
    }

    /// Returns the stored bytes, with the checksum.
    pub(super) fn sealed(&self) -> &[u8] {
        &self.body
    }

    /// Returns the memory in use, in bytes.
    pub(super) fn bytes(&self) -> usize {
        size_of::<Self>() + self.body.len() + self.begins.len() * size_of::<u32>()
    }

    /// Decodes a stored chunk. Returns `None` if it is damaged.
    pub(super) fn open(
        job: JobNumber,
        first: SubtaskNumber,
        count: u32,
        sealed: &[u8],
    ) -> Option<Chunk> {
        let content = Self::verified(job, first, count, sealed)?;
        let mut rest = content;
        let mut begins = Vec::with_capacity(count as usize);
        for _ in 0..count {
            begins.push(u32::try_from(content.len() - rest.len()).ok()?);
            for _ in 0..leb128::take(&mut rest)? {
                let length = leb128::take(&mut rest)?;
                row_numbers::take(&mut rest, length)?;
            }
            let length = leb128::take(&mut rest)?;
            row_numbers::take(&mut rest, length)?;
        }
        rest.is_empty().then(|| Chunk { job, first, begins, body: sealed.to_vec() })
    }

    /// Returns the bytes before the checksum, or `None` if it is wrong.
    pub(super) fn verified(
        job: JobNumber,
        first: SubtaskNumber,
        count: u32,
        sealed: &[u8],
    ) -> Option<&[u8]> {
        let fits = count as usize <= MAX_IN_CHUNK
            && u64::from(first) + u64::from(count) <= u64::from(MAX_SUBTASKS);
        if !fits {
            return None;
        }
        checksum::unseal(sealed, &[row_numbers::place(job, first), u64::from(count)])
    }
}

impl<'a> StoredSubtask<'a> {
    /// Returns the number of the subtask in its job.
    #[must_use]
    pub fn number(&self) -> SubtaskNumber {
        self.number
    }

    /// Returns the keys: none, one or several, as submitted.
    #[must_use]
    pub fn keys(&self) -> SubtaskKeys<'a> {
        let mut bytes = self.bytes;
        let left = leb128::take(&mut bytes).unwrap_or(0);
        SubtaskKeys { left, bytes }
    }

    /// Returns the payload, as submitted.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        let mut keys = self.keys();
        while keys.next().is_some() {}
        let mut bytes = keys.bytes;
        take_bytes(&mut bytes).unwrap_or_default()
    }
}

impl<'a> Iterator for SubtaskKeys<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        self.left = self.left.checked_sub(1)?;
        take_bytes(&mut self.bytes)
    }
}

fn take_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = leb128::take(from)?;
    row_numbers::take(from, length)
}

/// Packs subtasks into chunks.
#[derive(Debug)]
pub(super) struct ChunkPacker {
    job: JobNumber,
    first: SubtaskNumber,
    begins: Vec<u32>,
    body: Vec<u8>,
}

impl ChunkPacker {
    /// Creates a packer whose first subtask has the number `first`.
    pub(super) fn new(job: JobNumber, first: SubtaskNumber) -> Self {
        ChunkPacker { job, first, begins: Vec::new(), body: Vec::new() }
    }

    /// Returns the number of the next subtask.
    pub(super) fn next(&self) -> u32 {
        self.first + self.begins.len() as u32
    }

    /// Packs a subtask. Returns the preceding chunk if it is full.
    pub(super) fn push<K: AsRef<[u8]>>(&mut self, keys: &[K], payload: &[u8]) -> Option<Chunk> {
        let key_bytes = keys.iter().map(|key| key.as_ref().len() + 3).sum::<usize>();
        let crowded = self.body.len() + key_bytes + payload.len() > FULL_BYTES;
        let is_full = self.begins.len() == MAX_IN_CHUNK || (crowded && !self.begins.is_empty());
        let full = is_full.then(|| self.seal()).flatten();
        self.begins.push(self.body.len() as u32);
        leb128::put(&mut self.body, keys.len() as u64);
        keys.iter().for_each(|key| put_bytes(&mut self.body, key.as_ref()));
        put_bytes(&mut self.body, payload);
        full
    }

    /// Returns a chunk of the subtasks since the last one, if there are any.
    pub(super) fn seal(&mut self) -> Option<Chunk> {
        if self.begins.is_empty() {
            return None;
        }
        let next = self.next();
        // The next chunk will probably have this size.
        let room = if self.begins.len() == MAX_IN_CHUNK { self.body.len() + 64 } else { 0 };
        let begins =
            std::mem::replace(&mut self.begins, Vec::with_capacity(room.min(MAX_IN_CHUNK)));
        let mut body = std::mem::replace(&mut self.body, Vec::with_capacity(room));
        body.reserve_exact(checksum::BYTES);
        checksum::seal(&mut body, &[row_numbers::place(self.job, self.first), begins.len() as u64]);
        let first = std::mem::replace(&mut self.first, next);
        Some(Chunk { job: self.job, first, begins, body })
    }
}

fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    leb128::put(to, bytes.len() as u64);
    to.extend(bytes);
}

impl fmt::Debug for Chunk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (job, numbers) = (self.job, self.numbers());
        f.debug_struct("Chunk").field("job", &job).field("numbers", &numbers).finish()
    }
}

impl fmt::Debug for StoredSubtask<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let payload = self.payload().len();
        let mut debug = f.debug_struct("StoredSubtask");
        debug.field("number", &self.number).field("keys", &self.keys());
        debug.field("payload_bytes", &payload).finish()
    }
}

impl fmt::Debug for SubtaskKeys<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.map(|key| key.escape_ascii().to_string())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    type Plain = (Vec<Vec<u8>>, Vec<u8>);

    fn subtask() -> impl Strategy<Value = Plain> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..200);
        (prop::collection::vec(bytes(), 0..4), bytes())
    }

    fn plain(chunk: &Chunk) -> Vec<Plain> {
        let plain = |subtask: StoredSubtask<'_>| {
            (subtask.keys().map(<[u8]>::to_vec).collect(), subtask.payload().to_vec())
        };
        chunk.subtasks().map(plain).collect()
    }

    fn packed(job: JobNumber, subtasks: &[Plain]) -> Vec<Chunk> {
        let mut packer = ChunkPacker::new(job, 0);
        let mut chunks: Vec<_> =
            subtasks.iter().filter_map(|(keys, payload)| packer.push(keys, payload)).collect();
        chunks.extend(packer.seal());
        chunks
    }

    proptest! {
        #[test]
        fn what_was_packed_is_unpacked(
            subtasks in prop::collection::vec(subtask(), 1..40), job in 0..1u64 << 39,
        ) {
            let job = JobNumber(job);
            let chunks = packed(job, &subtasks);
            prop_assert_eq!(chunks.len(), 1);
            let [sealed, count] = [chunks[0].sealed(), &[]];
            prop_assert_eq!(count.len(), 0);
            let back = Chunk::open(job, 0, subtasks.len() as u32, sealed).unwrap();
            prop_assert_eq!(plain(&back), &subtasks[..]);
            prop_assert_eq!(plain(&chunks[0]), subtasks);
        }

        #[test]
        fn a_flipped_bit_anywhere_is_noticed(
            subtasks in prop::collection::vec(subtask(), 1..5), bit in any::<prop::sample::Index>(),
        ) {
            let chunks = packed(JobNumber(7), &subtasks);
            let mut sealed = chunks[0].sealed().to_vec();
            let bit = bit.index(sealed.len() * 8);
            sealed[bit / 8] ^= 1 << (bit % 8);
            prop_assert!(Chunk::open(JobNumber(7), 0, subtasks.len() as u32, &sealed).is_none());
        }

        #[test]
        fn no_body_makes_it_panic(
            mut body in prop::collection::vec(any::<u8>(), 0..60), count in 0u32..5,
        ) {
            checksum::seal(&mut body, &[row_numbers::place(JobNumber(1), 0), u64::from(count)]);
            if let Some(chunk) = Chunk::open(JobNumber(1), 0, count, &body) {
                plain(&chunk);
            }
        }
    }

    #[test]
    fn chunks_have_bounds_and_a_large_subtask_one_of_its_own() {
        let small = vec![(vec![b"key".to_vec()], vec![1]); 2500];
        let chunks = packed(JobNumber(1), &small);
        let numbers: Vec<_> = chunks.iter().map(Chunk::numbers).collect();
        assert_eq!(numbers, [0..1024, 1024..2048, 2048..2500]);
        let large = (vec![], vec![0; FULL_BYTES + 1]);
        let mixed = [small[0].clone(), large, small[1].clone()];
        let numbers: Vec<_> = packed(JobNumber(1), &mixed).iter().map(Chunk::numbers).collect();
        assert_eq!(numbers, [0..1, 1..2, 2..3]);
    }

    #[test]
    fn a_chunk_in_anothers_place_is_noticed() {
        let chunk = packed(JobNumber(3), &[(vec![], vec![1]), (vec![], vec![2])]).remove(0);
        assert!(Chunk::open(JobNumber(3), 0, 2, chunk.sealed()).is_some());
        assert!(Chunk::open(JobNumber(4), 0, 2, chunk.sealed()).is_none());
        assert!(Chunk::open(JobNumber(3), 1, 2, chunk.sealed()).is_none());
        assert!(Chunk::open(JobNumber(3), 0, 1, chunk.sealed()).is_none());
    }
}
