//! Least-recently-used cache of chunks, bounded in bytes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::chunk::Chunk;
use super::row_numbers::{self, place};
use crate::ids::{JobNumber, SubtaskNumber};

#[derive(Debug)]
pub(super) struct ChunkCache {
    max_bytes: usize,
    /// No code that holds this lock unwinds.
    inner: Mutex<LruChunks>,
}

#[derive(Debug, Default)]
struct LruChunks {
    /// Chunks by place. A subtask's chunk is the last one that does not begin behind it.
    chunks: BTreeMap<u64, CachedChunk>,
    /// Places by the time of their last use, oldest first.
    uses: BTreeMap<u64, u64>,
    /// One past the last use.
    clock: u64,
    /// Number of chunks that were replaced on the disk.
    edits: u64,
    bytes: usize,
}

#[derive(Debug)]
struct CachedChunk {
    chunk: Arc<Chunk>,
    used: u64,
}

impl ChunkCache {
    pub(super) fn new(max_bytes: usize) -> Self {
        ChunkCache { max_bytes, inner: Mutex::default() }
    }

    fn inner(&self) -> MutexGuard<'_, LruChunks> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the cached chunk that contains a subtask.
    pub(super) fn get(&self, job: JobNumber, number: SubtaskNumber) -> Option<Arc<Chunk>> {
        let mut inner = self.inner();
        let first = place(job, 0);
        let (at, kept) = inner.chunks.range_mut(first..=place(job, number)).next_back()?;
        if !kept.chunk.numbers().contains(&number) {
            return None;
        }
        let (at, chunk, used) = (*at, Arc::clone(&kept.chunk), kept.used);
        inner.touch(at, used);
        Some(chunk)
    }

    /// Caches a chunk, and evicts those used least recently.
    pub(super) fn put(&self, chunk: &Arc<Chunk>) {
        self.put_if(chunk, |_| true);
    }

    /// Returns the number of edits so far, to read a chunk and cache it with [`put_read`](Self::put_read).
    pub(super) fn edits(&self) -> u64 {
        self.inner().edits
    }

    /// Caches a chunk that was read from the disk after there were `edits` edits. If there were more since, the chunk
    /// may be obsolete, and is not cached.
    pub(super) fn put_read(&self, chunk: &Arc<Chunk>, edits: u64) {
        self.put_if(chunk, |inner| inner.edits == edits);
    }

    fn put_if(&self, chunk: &Arc<Chunk>, is_valid: impl FnOnce(&LruChunks) -> bool) {
        if chunk.bytes() > self.max_bytes {
            return;
        }
        let gone = {
            let mut inner = self.inner();
            if !is_valid(&inner) {
                return;
            }
            inner.insert(chunk);
            inner.shrink(self.max_bytes)
        };
        // Freed after the lock is released.
        drop(gone);
    }

    /// Removes the chunks of a job, one of which was replaced on the disk.
    pub(super) fn edited(&self, job: JobNumber) {
        self.inner().edits += 1;
        self.forget(job);
    }

    /// Caches a chunk if it fits without an eviction. An older chunk at its place is obsolete and
    /// is removed either way.
    pub(super) fn put_if_room(&self, chunk: &Arc<Chunk>) {
        let mut inner = self.inner();
        drop(inner.remove(place(chunk.job(), chunk.numbers().start)));
        if inner.bytes + chunk.bytes() <= self.max_bytes {
            inner.insert(chunk);
        }
    }

    /// Removes all chunks of a job.
    pub(super) fn forget(&self, job: JobNumber) {
        let mut inner = self.inner();
        let all = place(job, 0)..=place(job, (row_numbers::PLACES - 1) as u32);
        let places: Vec<_> = inner.chunks.range(all).map(|(place, _)| *place).collect();
        places.into_iter().for_each(|place| drop(inner.remove(place)));
    }

    #[cfg(test)]
    fn bytes(&self) -> usize {
        self.inner().bytes
    }
}

impl LruChunks {
    fn insert(&mut self, chunk: &Arc<Chunk>) {
        let place = place(chunk.job(), chunk.numbers().start);
        drop(self.remove(place));
        self.bytes += chunk.bytes();
        self.chunks.insert(place, CachedChunk { chunk: Arc::clone(chunk), used: self.clock });
        self.uses.insert(self.clock, place);
        self.clock += 1;
    }

    fn touch(&mut self, place: u64, used: u64) {
        // It is the most recent one already.
        if used + 1 == self.clock {
            return;
        }
        self.uses.remove(&used);
        self.uses.insert(self.clock, place);
        self.chunks.get_mut(&place).expect("it was found there").used = self.clock;
        self.clock += 1;
    }

    fn remove(&mut self, place: u64) -> Option<Arc<Chunk>> {
        let CachedChunk { chunk, used } = self.chunks.remove(&place)?;
        self.uses.remove(&used);
        self.bytes -= chunk.bytes();
        Some(chunk)
    }

    fn shrink(&mut self, max_bytes: usize) -> Vec<Arc<Chunk>> {
        let mut gone = Vec::new();
        while self.bytes > max_bytes {
            let (_, place) = self.uses.first_key_value().expect("what has bytes was used");
            gone.extend(self.remove(*place));
        }
        gone
    }
}

#[cfg(test)]
mod tests {
    use super::super::chunk_packer::ChunkPacker;
    use super::*;
    use proptest::prelude::*;

    fn chunk(job: u64, subtasks: u32) -> Arc<Chunk> {
        let mut packer = ChunkPacker::new(JobNumber(job), 0);
        for _ in 0..subtasks {
            packer.push(&[], &[7; 50]);
        }
        Arc::new(packer.seal().unwrap())
    }

    #[test]
    fn what_was_used_least_lately_goes_first() {
        let size = chunk(0, 1).bytes();
        let cache = ChunkCache::new(3 * size);
        (0..3).for_each(|job| cache.put(&chunk(job, 1)));
        assert!(cache.get(JobNumber(0), 0).is_some());
        cache.put(&chunk(3, 1));
        let there = [0, 1, 2, 3].map(|job| cache.get(JobNumber(job), 0).is_some());
        assert_eq!(there, [true, false, true, true]);
        cache.put_if_room(&chunk(4, 1));
        assert!(cache.get(JobNumber(4), 0).is_none());
        cache.forget(JobNumber(3));
        assert!(cache.get(JobNumber(3), 0).is_none());
        cache.put_if_room(&chunk(4, 1));
        assert!(cache.get(JobNumber(4), 0).is_some());
    }

    #[test]
    fn what_there_is_no_room_for_is_not_there_as_it_was_before() {
        let cache = ChunkCache::new(chunk(0, 1).bytes());
        cache.put_if_room(&chunk(0, 1));
        cache.put_if_room(&chunk(0, 2));
        assert!(cache.get(JobNumber(0), 0).is_none());
    }

    #[test]
    fn a_chunk_that_was_read_before_an_edit_is_not_cached_after_it() {
        let cache = ChunkCache::new(usize::MAX);
        cache.put(&chunk(0, 1));
        let edits = cache.edits();
        cache.edited(JobNumber(0));
        cache.put_read(&chunk(0, 1), edits);
        assert!(cache.get(JobNumber(0), 0).is_none());
        cache.put_read(&chunk(0, 1), cache.edits());
        assert!(cache.get(JobNumber(0), 0).is_some());
    }

    #[test]
    fn a_subtask_beyond_a_chunk_is_not_in_it() {
        let cache = ChunkCache::new(usize::MAX);
        cache.put(&chunk(1, 3));
        assert!(cache.get(JobNumber(1), 2).is_some());
        assert!(cache.get(JobNumber(1), 3).is_none());
        assert!(cache.get(JobNumber(2), 0).is_none());
    }

    proptest! {
        #[test]
        fn it_never_has_more_than_it_may(
            steps in prop::collection::vec((0u8..4, 0u64..8, 1u32..30), 1..100),
        ) {
            let cache = ChunkCache::new(3000);
            for (step, job, subtasks) in steps {
                match step {
                    0 => cache.put_if_room(&chunk(job, subtasks)),
                    1 => cache.forget(JobNumber(job)),
                    2 => drop(cache.get(JobNumber(job), subtasks)),
                    _ => cache.put(&chunk(job, subtasks)),
                }
                let inner = cache.inner();
                let held: usize = inner.chunks.values().map(|kept| kept.chunk.bytes()).sum();
                prop_assert_eq!(inner.bytes, held);
                prop_assert_eq!(inner.uses.len(), inner.chunks.len());
                drop(inner);
                prop_assert!(cache.bytes() <= 3000);
            }
        }
    }
}
