//! Packing of subtasks into chunks, in the encoding of `chunk.rs`.

use keylane_storage::{checksum, leb128};

use super::chunk::{Chunk, MAX_IN_CHUNK, SHARED, SubtaskBegin, TRAILER_BYTES};
use super::chunk_keys;
use crate::KeyClaim;
use crate::ids::{JobNumber, SubtaskNumber};

/// Size at which a chunk is full, in bytes. A larger subtask has its own chunk.
pub(super) const FULL_BYTES: usize = 128 * 1024;

/// Packs subtasks into chunks.
#[derive(Debug)]
pub(super) struct ChunkPacker {
    job: JobNumber,
    first: SubtaskNumber,
    /// Offsets of the subtasks: of the keys in `keys`, and of the payload in `payloads`.
    begins: Vec<SubtaskBegin>,
    keys: Vec<u8>,
    payloads: Vec<u8>,
}

impl ChunkPacker {
    /// Creates a packer whose first subtask has the number `first`.
    pub(super) fn new(job: JobNumber, first: SubtaskNumber) -> Self {
        ChunkPacker { job, first, begins: Vec::new(), keys: Vec::new(), payloads: Vec::new() }
    }

    /// Returns the number of the next subtask.
    pub(super) fn next(&self) -> u32 {
        self.first + self.begins.len() as u32
    }

    /// Packs a subtask. Returns the preceding chunk if it is full.
    pub(super) fn push(&mut self, keys: &[KeyClaim<'_>], payload: &[u8]) -> Option<Chunk> {
        let key_bytes = keys.iter().map(|claim| claim.key.len() + 3).sum::<usize>();
        let packed = self.keys.len() + self.payloads.len();
        let crowded = packed + key_bytes + payload.len() > FULL_BYTES;
        let is_full = self.begins.len() == MAX_IN_CHUNK || (crowded && !self.begins.is_empty());
        let full = is_full.then(|| self.seal()).flatten();
        self.add(keys, payload);
        full
    }

    /// Packs a subtask into the present chunk, however large that is.
    pub(super) fn add(&mut self, keys: &[KeyClaim<'_>], payload: &[u8]) {
        let (keys_begin, payload_begin) = (self.keys.len() as u32, self.payloads.len() as u32);
        self.begins.push(SubtaskBegin { keys: keys_begin, payload: payload_begin });
        leb128::put(&mut self.keys, keys.len() as u64);
        for KeyClaim { key, is_shared } in keys {
            leb128::put(&mut self.keys, key.len() as u64 | if *is_shared { SHARED } else { 0 });
            self.keys.extend(*key);
        }
        put_bytes(&mut self.payloads, payload);
    }

    /// Returns a chunk of the subtasks since the last one, if there are any.
    pub(super) fn seal(&mut self) -> Option<Chunk> {
        if self.begins.is_empty() {
            return None;
        }
        let next = self.next();
        // The next chunk will probably have this size.
        let room = if self.begins.len() == MAX_IN_CHUNK { MAX_IN_CHUNK } else { 0 };
        let mut begins = std::mem::replace(&mut self.begins, Vec::with_capacity(room));
        let of_keys = self.keys.len();
        begins.iter_mut().for_each(|begin| begin.payload += of_keys as u32);
        let mut body =
            Vec::with_capacity(of_keys + self.payloads.len() + TRAILER_BYTES + checksum::BYTES);
        body.extend(&self.keys);
        body.extend(&self.payloads);
        chunk_keys::put_trailer(&mut body, of_keys, self.job, self.first, begins.len() as u32);
        for part in [&mut self.keys, &mut self.payloads] {
            part.clear();
            // A large subtask leaves no large buffer behind.
            part.shrink_to(FULL_BYTES);
        }
        let first = std::mem::replace(&mut self.first, next);
        Some(Chunk::packed(self.job, first, begins, body))
    }
}

impl Chunk {
    /// Returns a chunk of the same subtasks, in which those for which `edited` returns a payload have that one.
    #[must_use]
    pub fn with_payloads<'p>(&self, edited: impl Fn(SubtaskNumber) -> Option<&'p [u8]>) -> Chunk {
        let mut packer = ChunkPacker::new(self.job(), self.numbers().start);
        for subtask in self.subtasks() {
            let keys: Vec<_> = subtask.keys().collect();
            packer.add(&keys, edited(subtask.number()).unwrap_or(subtask.payload()));
        }
        packer.seal().expect("a chunk has subtasks")
    }
}

fn put_bytes(to: &mut Vec<u8>, bytes: &[u8]) {
    leb128::put(to, bytes.len() as u64);
    to.extend(bytes);
}
