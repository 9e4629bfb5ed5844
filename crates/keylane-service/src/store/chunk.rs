//! Encoding of subtasks in a chunk. A damaged chunk is detected by its checksum.
//!
//! A body of version 2 has these parts. Lengths and counts are LEB128 where no size is given:
//!
//! | part | encoding |
//! |---|---|
//! | keys of each subtask | count; for each its length, plus 2³² if it is shared, and its bytes |
//! | payload of each subtask | its length, its bytes |
//! | trailer | length of the part with the keys, 4 bytes; checksum of that part, 4 bytes |
//! | checksum | 4 bytes, over all other parts, the chunk's place and count |
//!
//! The keys come first and have their own checksum, so that damage of a payload leaves them readable:
//! see `chunk_keys.rs`.
//!
//! A body of version 1, which earlier stores have, is a sequence of subtasks, the keys of each
//! before its payload, and a checksum. The two versions have different checksums.

use std::fmt;

use keylane_storage::checksum;
use keylane_storage::leb128;

use super::row_numbers;
use crate::KeyClaim;
use crate::ids::{JobNumber, SubtaskNumber};

/// Maximum size of subtasks stored in the job's own row, in bytes.
pub(super) const MAX_INLINE_BYTES: usize = 8 * 1024;

/// Maximum number of subtasks in a job: 2²⁴.
pub const MAX_SUBTASKS: u32 = row_numbers::PLACES as u32;

/// Maximum number of subtasks in a chunk. Reading one subtask reads its whole chunk.
pub(super) const MAX_IN_CHUNK: usize = 1024;

/// Length of the trailer: the length of the part with the keys, and the checksum of that part.
pub(super) const TRAILER_BYTES: usize = 4 + checksum::BYTES;

/// Added to the length of a shared key. A subtask has at most 64 MiB, so no length has this bit.
pub(super) const SHARED: u64 = 1 << 32;

/// Distinguishes the checksums of bodies of version 2 from those of version 1.
const SECOND_VERSION: u64 = 2;

/// Consecutive subtasks of a job, as submitted.
pub struct Chunk {
    job: JobNumber,
    first: SubtaskNumber,
    /// Offsets of the parts of each subtask in `body`.
    begins: Vec<SubtaskBegin>,
    /// Encoded subtasks, with the checksum.
    body: Vec<u8>,
}

/// Offsets of the two parts of a subtask, in bytes.
#[derive(Clone, Copy, Debug)]
pub(super) struct SubtaskBegin {
    pub(super) keys: u32,
    pub(super) payload: u32,
}

/// Subtask as submitted.
#[derive(Clone, Copy)]
pub struct StoredSubtask<'a> {
    number: SubtaskNumber,
    /// Encoding from the number of keys on.
    keys: &'a [u8],
    /// Encoding from the length of the payload on.
    payload: &'a [u8],
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
        let (keys, payload) =
            (&self.body[begin.keys as usize..], &self.body[begin.payload as usize..]);
        Some(StoredSubtask { number, keys, payload })
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
        size_of::<Self>() + self.body.len() + self.begins.len() * size_of::<SubtaskBegin>()
    }

    /// Decodes a stored chunk. Returns `None` if it is damaged.
    pub(super) fn open(
        job: JobNumber,
        first: SubtaskNumber,
        count: u32,
        sealed: &[u8],
    ) -> Option<Chunk> {
        let (version, content) = Self::verified(job, first, count, sealed)?;
        let begins = match version {
            BodyVersion::First => begins_in_sequence(content, count)?,
            BodyVersion::Second => begins_in_parts(content, count)?,
        };
        Some(Chunk { job, first, begins, body: sealed.to_vec() })
    }

    /// Returns the bytes before the checksum, and their version, or `None` if the checksum is wrong.
    pub(super) fn verified(
        job: JobNumber,
        first: SubtaskNumber,
        count: u32,
        sealed: &[u8],
    ) -> Option<(BodyVersion, &[u8])> {
        let fits = count as usize <= MAX_IN_CHUNK
            && u64::from(first) + u64::from(count) <= u64::from(MAX_SUBTASKS);
        if !fits {
            return None;
        }
        let of = |version, place: &[u64]| Some((version, checksum::unseal(sealed, place)?));
        of(BodyVersion::Second, &place_of_body(job, first, count))
            .or_else(|| of(BodyVersion::First, &[row_numbers::place(job, first), u64::from(count)]))
    }

    /// Creates a chunk of encoded subtasks, a body of version 2.
    pub(super) fn packed(
        job: JobNumber,
        first: SubtaskNumber,
        begins: Vec<SubtaskBegin>,
        mut body: Vec<u8>,
    ) -> Chunk {
        checksum::seal(&mut body, &place_of_body(job, first, begins.len() as u32));
        Chunk { job, first, begins, body }
    }
}

/// Version of a chunk's encoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyVersion {
    First,
    Second,
}

/// Returns the numbers in the checksum of a body of version 2.
pub(super) fn place_of_body(job: JobNumber, first: SubtaskNumber, count: u32) -> [u64; 3] {
    [row_numbers::place(job, first), u64::from(count), SECOND_VERSION]
}

/// Finds the subtasks of a body of version 1.
fn begins_in_sequence(content: &[u8], count: u32) -> Option<Vec<SubtaskBegin>> {
    let mut rest = content;
    let mut begins = Vec::with_capacity(count as usize);
    for _ in 0..count {
        let keys = offset(content, rest)?;
        skip_keys(&mut rest)?;
        begins.push(SubtaskBegin { keys, payload: offset(content, rest)? });
        take_bytes(&mut rest)?;
    }
    rest.is_empty().then_some(begins)
}

/// Finds the subtasks of a body of version 2.
fn begins_in_parts(content: &[u8], count: u32) -> Option<Vec<SubtaskBegin>> {
    let parts = content.len().checked_sub(TRAILER_BYTES)?;
    let (mut rest, mut begins) = (&content[..parts], Vec::with_capacity(count as usize));
    for _ in 0..count {
        begins.push(SubtaskBegin { keys: offset(&content[..parts], rest)?, payload: 0 });
        skip_keys(&mut rest)?;
    }
    for begin in &mut begins {
        begin.payload = offset(&content[..parts], rest)?;
        take_bytes(&mut rest)?;
    }
    rest.is_empty().then_some(begins)
}

/// Returns the offset of `rest`, which is the end of `all`.
fn offset(all: &[u8], rest: &[u8]) -> Option<u32> {
    u32::try_from(all.len() - rest.len()).ok()
}

/// Skips the keys of a subtask.
pub(super) fn skip_keys(from: &mut &[u8]) -> Option<()> {
    for _ in 0..leb128::take(from)? {
        take_key(from)?;
    }
    Some(())
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
        SubtaskKeys::encoded(self.keys)
    }

    /// Returns the payload, as submitted.
    #[must_use]
    pub fn payload(&self) -> &'a [u8] {
        let mut bytes = self.payload;
        take_bytes(&mut bytes).unwrap_or_default()
    }
}

impl<'a> SubtaskKeys<'a> {
    /// Returns the keys that begin with their number at the start of `bytes`.
    pub(super) fn encoded(mut bytes: &'a [u8]) -> Self {
        let left = leb128::take(&mut bytes).unwrap_or(0);
        SubtaskKeys { left, bytes }
    }
}

impl<'a> Iterator for SubtaskKeys<'a> {
    type Item = KeyClaim<'a>;

    fn next(&mut self) -> Option<KeyClaim<'a>> {
        self.left = self.left.checked_sub(1)?;
        take_key(&mut self.bytes)
    }
}

fn take_key<'a>(from: &mut &'a [u8]) -> Option<KeyClaim<'a>> {
    let length = leb128::take(from)?;
    let key = row_numbers::take(from, length & !SHARED)?;
    Some(KeyClaim { key, is_shared: length & SHARED != 0 })
}

fn take_bytes<'a>(from: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = leb128::take(from)?;
    row_numbers::take(from, length)
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
        f.debug_list().entries(self.map(|claim| claim.key.escape_ascii().to_string())).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::super::chunk_packer::{ChunkPacker, FULL_BYTES};
    use super::*;
    use proptest::prelude::*;

    type Plain = (Vec<(Vec<u8>, bool)>, Vec<u8>);

    fn subtask() -> impl Strategy<Value = Plain> {
        let bytes = || prop::collection::vec(any::<u8>(), 0..200);
        (prop::collection::vec((bytes(), any::<bool>()), 0..4), bytes())
    }

    fn plain(chunk: &Chunk) -> Vec<Plain> {
        let plain = |subtask: StoredSubtask<'_>| {
            let keys = subtask.keys().map(|claim| (claim.key.to_vec(), claim.is_shared));
            (keys.collect(), subtask.payload().to_vec())
        };
        chunk.subtasks().map(plain).collect()
    }

    fn packed(job: JobNumber, subtasks: &[Plain]) -> Vec<Chunk> {
        let mut packer = ChunkPacker::new(job, 0);
        let mut push = |(keys, payload): &Plain| {
            let keys = keys.iter().map(|(key, is_shared)| KeyClaim { key, is_shared: *is_shared });
            packer.push(&keys.collect::<Vec<_>>(), payload)
        };
        let mut chunks: Vec<_> = subtasks.iter().filter_map(&mut push).collect();
        chunks.extend(packer.seal());
        chunks
    }

    /// Returns payloads of all sizes. Equal bytes, because a random number for each takes long.
    fn edit() -> impl Strategy<Value = Vec<u8>> {
        (any::<u8>(), 0..FULL_BYTES).prop_map(|(byte, length)| vec![byte; length])
    }

    proptest! {
        #[test]
        fn an_edit_changes_only_the_payloads_it_names(
            subtasks in prop::collection::vec(subtask(), 1..20),
            edits in prop::collection::btree_map(0..20_u32, edit(), 0..3),
        ) {
            let chunk = packed(JobNumber(1), &subtasks).remove(0);
            let edited = chunk.with_payloads(|number| edits.get(&number).map(Vec::as_slice));
            prop_assert_eq!(edited.numbers(), chunk.numbers());
            let read = Chunk::open(edited.job(), 0, edited.count(), edited.sealed()).unwrap();
            for (number, (was, is)) in plain(&chunk).into_iter().zip(plain(&read)).enumerate() {
                let payload = edits.get(&(number as u32)).unwrap_or(&was.1);
                prop_assert_eq!((&was.0, payload), (&is.0, &is.1));
            }
        }
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

        /// Bodies of earlier stores.
        #[test]
        fn a_body_of_version_1_is_read(mut subtasks in prop::collection::vec(subtask(), 0..20)) {
            subtasks.iter_mut().flat_map(|(keys, _)| keys).for_each(|(_, is_shared)| *is_shared = false);
            let (mut body, count) = (Vec::new(), subtasks.len() as u32);
            for (keys, payload) in &subtasks {
                leb128::put(&mut body, keys.len() as u64);
                for bytes in keys.iter().map(|(key, _)| key).chain([payload]) {
                    leb128::put(&mut body, bytes.len() as u64);
                    body.extend(bytes);
                }
            }
            checksum::seal(&mut body, &[row_numbers::place(JobNumber(7), 3), u64::from(count)]);
            let chunk = Chunk::open(JobNumber(7), 3, count, &body).unwrap();
            prop_assert_eq!(plain(&chunk), subtasks);
        }

        #[test]
        fn no_body_makes_it_panic(
            mut body in prop::collection::vec(any::<u8>(), 0..60), count in 0u32..5,
            second in any::<bool>(),
        ) {
            let place = place_of_body(JobNumber(1), 0, count);
            checksum::seal(&mut body, if second { &place } else { &place[..2] });
            if let Some(chunk) = Chunk::open(JobNumber(1), 0, count, &body) {
                plain(&chunk);
            }
        }
    }

    #[test]
    fn chunks_have_bounds_and_a_large_subtask_one_of_its_own() {
        let small = vec![(vec![(b"key".to_vec(), false)], vec![1]); 2500];
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
