//! Keys of the entries in the entry queue, so that a slice that shares none of them can pass.
//!
//! A set of many keys is a series of blocked Bloom filters, each four times as large as the one
//! before, so that it grows while a job is read and no filter is built under a lock. About one key
//! in two hundred is a false positive: its entry then waits without need, which never breaks the
//! order.
//!
//! The cost of a query is bounded: one look-up, and one probe for each filter of at most
//! [`MAX_LARGE`] entries.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::BuildHasher;

use foldhash::fast::FixedState;
use hashbrown::HashMap;

/// Maximum number of keys whose hashes are kept one by one.
const FEW: usize = if cfg!(test) { 4 } else { 64 };

/// Maximum number of entries with more keys than `FEW` that can be passed: beyond it, no entry
/// passes the last of them.
const MAX_LARGE: usize = 16;

/// Number of 64-bit words per block: one cache line.
const BLOCK: usize = 8;
/// Number of keys per block: 16 bits each.
const KEYS_OF_BLOCK: usize = 32;
/// Number of blocks of the first filter.
const FIRST_BLOCKS: usize = 4;
/// Number of bits that are set per key.
const BITS: u32 = 4;

/// Hash of a key, equal in all processes.
pub(super) fn hash_of(key: &[u8]) -> u64 {
    FixedState::with_seed(0).hash_one(key)
}

/// Set of keys that may return false positives.
#[derive(Clone, Debug, Default)]
pub struct KeySet {
    /// Hashes of the keys, up to `FEW`.
    few: Vec<u64>,
    /// Filters with the keys, beyond `FEW`.
    filters: Vec<KeyFilter>,
}

#[derive(Clone, Debug)]
struct KeyFilter {
    /// Blocks in sequence; their number is a power of two.
    words: Vec<u64>,
    keys: usize,
}

impl KeyFilter {
    fn new(blocks: usize) -> Self {
        KeyFilter { words: vec![0; blocks * BLOCK], keys: 0 }
    }

    fn blocks(&self) -> usize {
        self.words.len() / BLOCK
    }

    /// Words and bits of a key.
    fn bits(&self, hash: u64) -> impl Iterator<Item = (usize, u64)> + use<> {
        let first = (hash as usize & (self.blocks() - 1)) * BLOCK;
        // Six bits choose the bit and three the word, from the half that does not choose the block.
        let rest = hash >> 28;
        (0..BITS).map(move |bit| {
            let part = (rest >> (bit * 9)) as usize;
            (first + (part >> 6) % BLOCK, 1 << (part & 63))
        })
    }

    fn has(&self, hash: u64) -> bool {
        self.bits(hash).all(|(word, bit)| self.words[word] & bit != 0)
    }

    fn add(&mut self, hash: u64) {
        let bits = self.bits(hash);
        bits.for_each(|(word, bit)| self.words[word] |= bit);
        self.keys += 1;
    }
}

impl KeySet {
    /// Adds a key.
    pub fn add(&mut self, key: &[u8]) {
        self.add_hash(hash_of(key));
    }

    fn add_hash(&mut self, hash: u64) {
        if self.filters.is_empty() {
            if self.few.contains(&hash) {
                return;
            }
            self.few.push(hash);
            if self.few.len() <= FEW {
                return;
            }
            self.filters.push(KeyFilter::new(FIRST_BLOCKS));
            return std::mem::take(&mut self.few).into_iter().for_each(|hash| self.add_hash(hash));
        }
        let last = self.filters.last_mut().expect("a filter exists");
        if last.has(hash) {
            return;
        }
        if last.keys < last.blocks() * KEYS_OF_BLOCK {
            return last.add(hash);
        }
        let mut next = KeyFilter::new(last.blocks() * 4);
        next.add(hash);
        self.filters.push(next);
    }

    fn may_have(&self, hash: u64) -> bool {
        self.few.contains(&hash) || self.filters.iter().any(|filter| filter.has(hash))
    }

    /// Approximate memory use, in bytes.
    pub(super) fn memory(&self) -> usize {
        let filters = self.filters.iter().map(|filter| filter.words.len());
        (self.few.capacity() + filters.sum::<usize>()) * size_of::<u64>()
    }
}

/// Keys of the queued entries, including keys of subtasks that have entered.
#[derive(Debug, Default)]
pub(super) struct QueuedKeys {
    /// Key sets by entry.
    sets: BTreeMap<u64, KeySet>,
    /// Entries by the hash of a key, for entries with few keys.
    by_hash: HashMap<u64, BTreeSet<u64>, FixedState>,
    /// Entries with many keys.
    large: BTreeSet<u64>,
}

impl QueuedKeys {
    /// Adds an entry.
    pub(super) fn list(&mut self, entry: u64, keys: KeySet) {
        for hash in &keys.few {
            self.by_hash.entry(*hash).or_default().insert(entry);
        }
        if !keys.filters.is_empty() {
            self.large.insert(entry);
        }
        self.sets.insert(entry, keys);
    }

    pub(super) fn is_listed(&self, entry: u64) -> bool {
        self.sets.contains_key(&entry)
    }

    /// Removes an entry. Returns its keys, which may use much memory.
    pub(super) fn unlist(&mut self, entry: u64) -> Option<KeySet> {
        let keys = self.sets.remove(&entry)?;
        for hash in &keys.few {
            if let Some(entries) = self.by_hash.get_mut(hash) {
                entries.remove(&entry);
                if entries.is_empty() {
                    self.by_hash.remove(hash);
                }
            }
        }
        self.large.remove(&entry);
        if self.sets.is_empty() {
            self.by_hash = HashMap::default();
        }
        Some(keys)
    }

    /// Whether none of these keys belongs to an earlier entry.
    pub(super) fn are_free<'k>(
        &self,
        entry: u64,
        mut keys: impl Iterator<Item = &'k [u8]>,
    ) -> bool {
        let large = || self.large.range(..entry);
        if large().nth(MAX_LARGE).is_some() {
            return keys.next().is_none();
        }
        keys.all(|key| {
            let hash = hash_of(key);
            let first = self.by_hash.get(&hash).and_then(BTreeSet::first);
            first.is_none_or(|first| *first >= entry)
                && !large().any(|before| self.sets[before].may_have(hash))
        })
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.sets.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(keys: impl Iterator<Item = u32>) -> KeySet {
        let mut set = KeySet::default();
        keys.for_each(|key| set.add(&key.to_le_bytes()));
        set
    }

    #[test]
    fn a_set_has_all_that_was_added_and_little_else() {
        for many in [0, 1, FEW as u32, FEW as u32 + 1, 1000, 100_000] {
            let keys = set(0..many);
            assert!((0..many).all(|key| keys.may_have(hash_of(&key.to_le_bytes()))), "{many}");
            let others = (0..10_000_u32)
                .filter(|other| keys.may_have(hash_of(&(1_000_000_u32 + other).to_le_bytes())));
            let wrong = others.count();
            assert!(wrong < 300, "{wrong} of 10,000 beside {many}");
        }
        let same = set((0..1_000_000).map(|key| key % 3));
        assert_eq!(same.few.len(), 3);
    }

    #[test]
    fn a_key_is_taken_by_the_entries_before_and_no_others() {
        let mut line = QueuedKeys::default();
        line.list(3, set(0..1000));
        line.list(5, set(2000..2002));
        line.list(7, set(2001..2002));
        let key = |key: u32| key.to_le_bytes();
        let is_free =
            |line: &QueuedKeys, entry, one| line.are_free(entry, [&key(one)[..]].into_iter());
        assert!(!is_free(&line, 8, 7) && !is_free(&line, 4, 7) && is_free(&line, 3, 7));
        assert!(!is_free(&line, 8, 2001) && is_free(&line, 5, 2000) && !is_free(&line, 6, 2001));
        line.unlist(5);
        assert!(is_free(&line, 8, 2000) && is_free(&line, 7, 2001) && !is_free(&line, 8, 2001));
        assert!(line.unlist(3).is_some() && line.unlist(7).is_some() && line.unlist(7).is_none());
        assert!(is_free(&line, 8, 7) && is_free(&line, 8, 2001));
        assert!(line.sets.is_empty() && line.by_hash.is_empty() && line.large.is_empty());
    }

    #[test]
    fn nothing_with_keys_passes_too_many_large_entries() {
        let mut line = QueuedKeys::default();
        (0..=MAX_LARGE as u64).for_each(|entry| line.list(entry, set(0..FEW as u32 + 1)));
        let other = [&b"other"[..]];
        assert!(!line.are_free(99, other.into_iter()));
        assert!(line.are_free(99, std::iter::empty()));
        line.unlist(0);
        assert!(line.are_free(99, other.into_iter()));
    }
}
