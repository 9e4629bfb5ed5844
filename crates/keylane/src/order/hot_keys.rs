//! Detects keys that use up more than their quantum although their tasks never wait for each other.
//!
//! Backlog tasks run in order of submission, and a key with no waiting task has no lane that could
//! count its turn. The tasks of a hot key that lie between those of others would all run before
//! tasks that came after them. This small table counts recent runs per key. A key that exceeds its
//! quantum gets a lane, and takes turns with the others from there.

/// Number of slots, each for one key at a time. Two keys in one slot evict each other and lose
/// their counts: only a key that runs often, the one to be detected, keeps its slot.
const SLOTS: usize = 64;

#[derive(Debug)]
pub(crate) struct HotKeys {
    quantum: u32,
    /// Half hash of a key, and the number of tasks that it has run since it has the slot.
    slots: Box<[(u32, u32); SLOTS]>,
}

impl HotKeys {
    pub(crate) fn new(quantum: usize) -> Self {
        let quantum = u32::try_from(quantum).unwrap_or(u32::MAX);
        HotKeys { quantum, slots: Box::new([(0, 0); SLOTS]) }
    }

    /// Counts a task and returns true, unless the key's quantum is used up.
    #[inline(always)]
    pub(crate) fn counts(&mut self, hash: u32) -> bool {
        let (owner, count) = &mut self.slots[hash as usize % SLOTS];
        if *owner != hash {
            (*owner, *count) = (hash, 1);
            return true;
        }
        let counts = *count < self.quantum;
        *count += u32::from(counts);
        counts
    }

    /// Counts a task, and returns whether its key has exceeded its quantum. The count then restarts
    /// at zero.
    #[inline]
    pub(crate) fn exceeds(&mut self, hash: u32) -> bool {
        let (owner, count) = &mut self.slots[hash as usize % SLOTS];
        if *owner != hash {
            (*owner, *count) = (hash, 1);
            return false;
        }
        *count += 1;
        if *count <= self.quantum {
            return false;
        }
        *count = 0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_exceeds_its_quantum_once_in_a_while_and_rare_keys_never() {
        let mut hot_keys = HotKeys::new(4);
        let exceeded = (0..100).filter(|_| hot_keys.exceeds(7)).count();
        assert_eq!(exceeded, 20);
        assert!((0..1000).all(|key| !hot_keys.exceeds(key)));
    }
}
