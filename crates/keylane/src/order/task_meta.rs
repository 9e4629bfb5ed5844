//! Order data of a task besides its key: hash, sequence number and time.

/// Order data of a task besides its key. Three half words, so that an entry with an 8-byte key and
/// 40 bytes of work is one cache line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskMeta {
    /// Half of the key's hash. The other half has chosen the shard.
    pub(crate) hash: u32,
    /// Sequence number, from a Lamport clock: of two conflicting tasks the later one has the larger
    /// number. Wraps around.
    pub(crate) seq: u32,
    /// Time of submission, in milliseconds of the pool's coarse clock, in the lower 31 bits. Wraps
    /// around. The highest bit is [`MEASURED`](Self::MEASURED).
    pub(crate) time: u32,
}

impl TaskMeta {
    /// Bit in `time` that marks a task whose wait is measured.
    pub(crate) const MEASURED: u32 = 1 << 31;

    /// Returns whether the task's wait is measured.
    #[inline(always)]
    pub(crate) fn is_measured(self) -> bool {
        self.time & Self::MEASURED != 0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_time_never_looks_like_a_mark() {
        let latest = TaskMeta { time: TaskMeta::MEASURED - 1, ..TaskMeta::default() };
        let marked = TaskMeta { time: latest.time | TaskMeta::MEASURED, ..latest };
        assert!(!latest.is_measured() && marked.is_measured());
    }
}
