//! Keys of a chunk whose body is damaged elsewhere.
//!
//! The keys of a body of version 2 have their own checksum. So damage of a payload costs its job and
//! no other: its keys are known, and only they stop. One damaged byte outside the part with the
//! keys never hides them: the end of that part follows from the trailer and from the number of subtasks,
//! and the checksum of the body covers the checksum of the keys.

use keylane_storage::checksum;

use super::chunk::{MAX_IN_CHUNK, SubtaskKeys, place_of_body, skip_keys};
use super::row_numbers;
use crate::ids::{JobNumber, SubtaskNumber};

/// Distinguishes the checksums of keys from those of bodies.
const KEYS: u64 = 0x6b65_7973;

/// Keys of the subtasks of a chunk, with a valid checksum.
#[derive(Debug)]
pub(super) struct ChunkKeys<'a> {
    first: SubtaskNumber,
    count: u32,
    /// Part of the body with the keys.
    keys: &'a [u8],
}

/// Appends the trailer to a body whose first `of_keys` bytes are the keys of `count` subtasks.
pub(super) fn put_trailer(
    body: &mut Vec<u8>,
    of_keys: usize,
    job: JobNumber,
    first: SubtaskNumber,
    count: u32,
) {
    let sum = sum(&body[..of_keys], job, first, count);
    // A subtask has at most 64 MiB.
    body.extend((of_keys as u32).to_le_bytes());
    body.extend(sum.to_le_bytes());
}

fn sum(keys: &[u8], job: JobNumber, first: SubtaskNumber, count: u32) -> u32 {
    checksum::sum(keys, &[row_numbers::place(job, first), u64::from(count), KEYS])
}

impl<'a> ChunkKeys<'a> {
    /// Finds the keys in a body of version 2 that may be damaged. `count` is the number of subtasks,
    /// which may be wrong. Returns `None` if the keys are damaged.
    pub(super) fn find(
        job: JobNumber,
        first: SubtaskNumber,
        count: u32,
        sealed: &'a [u8],
    ) -> Option<Self> {
        let (content, _) = sealed.split_last_chunk::<{ checksum::BYTES }>()?;
        let (content, stored) = content.split_last_chunk::<{ checksum::BYTES }>()?;
        let (parts, length) = content.split_last_chunk::<4>()?;
        let by_length = parts.get(..u32::from_le_bytes(*length) as usize);
        let by_length = by_length.and_then(|keys| Some((keys, subtasks_in(keys)?)));
        let by_count = keys_of(parts, count).map(|keys| (keys, count));
        [by_length, by_count].into_iter().flatten().find_map(|(keys, count)| {
            let expected = sum(keys, job, first, count).to_le_bytes();
            let intact = expected == *stored || {
                // The checksum itself may be damaged; then all else is intact.
                let mut whole = sealed.to_vec();
                let at = content.len();
                whole[at..at + checksum::BYTES].copy_from_slice(&expected);
                checksum::unseal(&whole, &place_of_body(job, first, count)).is_some()
            };
            intact.then_some(ChunkKeys { first, count, keys })
        })
    }

    /// Returns one past the number of the last subtask.
    pub(super) fn end(&self) -> SubtaskNumber {
        self.first + self.count
    }

    /// Returns the keys of each subtask.
    pub(super) fn subtasks(&self) -> impl Iterator<Item = (SubtaskNumber, SubtaskKeys<'a>)> {
        let mut rest = self.keys;
        (self.first..self.end()).map_while(move |number| {
            let keys = SubtaskKeys::encoded(rest);
            skip_keys(&mut rest)?;
            Some((number, keys))
        })
    }
}

/// Returns the number of subtasks whose keys are exactly `keys`.
fn subtasks_in(mut keys: &[u8]) -> Option<u32> {
    let mut count = 0;
    while !keys.is_empty() && count < MAX_IN_CHUNK as u32 {
        skip_keys(&mut keys)?;
        count += 1;
    }
    keys.is_empty().then_some(count)
}

/// Returns the keys of the first `count` subtasks, with which `parts` begins.
fn keys_of(parts: &[u8], count: u32) -> Option<&[u8]> {
    let mut rest = parts;
    for _ in 0..count.min(MAX_IN_CHUNK as u32) {
        skip_keys(&mut rest)?;
    }
    Some(&parts[..parts.len() - rest.len()])
}

#[cfg(test)]
mod tests {
    use super::super::chunk_packer::ChunkPacker;
    use super::*;
    use crate::KeyClaim;

    const JOB: JobNumber = JobNumber(7);

    /// Bytes of a key, and whether it is shared.
    type PlainKey = (Vec<u8>, bool);

    #[test]
    fn no_more_subtasks_are_found_than_a_chunk_can_have() {
        let without_keys = [0; MAX_IN_CHUNK + 1];
        assert_eq!(subtasks_in(&without_keys[1..]), Some(MAX_IN_CHUNK as u32));
        assert_eq!(subtasks_in(&without_keys), None);
    }

    fn found(count: u32, sealed: &[u8]) -> Option<Vec<Vec<PlainKey>>> {
        let keys = ChunkKeys::find(JOB, 5, count, sealed)?;
        assert_eq!(keys.end(), 9);
        let of = |(_, keys): (_, SubtaskKeys<'_>)| {
            keys.map(|claim| (claim.key.to_vec(), claim.is_shared)).collect()
        };
        Some(keys.subtasks().map(of).collect())
    }

    #[test]
    fn each_byte_outside_of_the_keys_leaves_them_readable() {
        let keys: [&[&str]; 4] = [&["a"], &[], &["bb", "ccc"], &["a"]];
        let mut packer = ChunkPacker::new(JOB, 5);
        // Those of two letters are shared.
        let is_shared = |key: &str| key.len() == 2;
        for (number, keys) in keys.iter().enumerate() {
            let claim =
                |key: &&'static str| KeyClaim { key: key.as_bytes(), is_shared: is_shared(key) };
            let keys: Vec<_> = keys.iter().map(claim).collect();
            assert!(packer.push(&keys, &[7; 200][..number * 60]).is_none());
        }
        let sealed = packer.seal().unwrap().sealed().to_vec();
        let of_keys = u32::from_le_bytes(sealed[sealed.len() - 12..][..4].try_into().unwrap());
        assert_eq!(of_keys, 3 + 1 + (8 + 4) + 3, "count, length and bytes of each");
        let expected = found(4, &sealed).unwrap();
        assert!(expected.iter().zip(keys).all(|(found, keys)| {
            let keys = keys.iter().map(|key| (key.as_bytes().to_vec(), is_shared(key)));
            found.iter().cloned().eq(keys)
        }));
        for at in 0..sealed.len() {
            for bit in 0..8 {
                let mut damaged = sealed.clone();
                damaged[at] ^= 1 << bit;
                let found = found(4, &damaged);
                if at < of_keys as usize {
                    assert_eq!(found, None, "{at}");
                } else {
                    assert_eq!(found.as_ref(), Some(&expected), "{at}");
                }
            }
        }
        for count in (0..70).chain([1024, u32::MAX]) {
            assert_eq!(found(count, &sealed).as_ref(), Some(&expected), "{count}");
        }
    }

    #[test]
    fn keys_of_another_place_are_not_taken() {
        let mut packer = ChunkPacker::new(JOB, 5);
        packer.push(&[KeyClaim::exclusive(b"a")], b"payload");
        let sealed = packer.seal().unwrap().sealed().to_vec();
        assert!(ChunkKeys::find(JOB, 5, 1, &sealed).is_some());
        assert!(ChunkKeys::find(JOB, 6, 1, &sealed).is_none());
        assert!(ChunkKeys::find(JobNumber(8), 5, 1, &sealed).is_none());
        for length in 0..sealed.len() {
            assert!(ChunkKeys::find(JOB, 5, 1, &sealed[..length]).is_none());
        }
    }
}
