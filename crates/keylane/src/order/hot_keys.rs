//! Notices a key whose tasks, though they never wait for each other, use up more than their quantum.
//!
//! Fresh tasks run in the order in which they came, and a key that has none waiting has no lane that
//! could count its turn. So the tasks of a hot key that stand between those of others would all run
//! before whoever came after them. This small table counts what each key has run of late; a key that
//! exceeds its quantum gets a lane, and takes turns with the others from there.

/// Keys that are told apart. Two that share a place take it from each other, which forgets counts:
/// only a key that runs often, and that is the one to be noticed, keeps its place.
const SLOTS: usize = 64;

#[derive(Debug)]
pub(crate) struct HotKeys {
    quantum: u32,
    /// The half hash of a key and the tasks it has run since it has the place.
    slots: Box<[(u32, u32); SLOTS]>,
}

impl HotKeys {
    pub(crate) fn new(quantum: usize) -> Self {
        let quantum = u32::try_from(quantum).unwrap_or(u32::MAX);
        HotKeys { quantum, slots: Box::new([(0, 0); SLOTS]) }
    }

    /// Counts a task, unless its key would use up its quantum with it, and says whether it has.
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

    /// Counts a task, and says whether its key has used up its quantum; it then begins anew.
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
