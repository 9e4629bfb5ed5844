//! Orders a store and a load on two threads by a pair of fences, one of them nearly free.
//!
//! Two threads that each store to one place and then load from another need a sequentially
//! consistent fence in between, on both sides, or each may miss the other's store. If one of them
//! does this for every task and the other once in a long while, the rare one can pay for both: on
//! its behalf the kernel sends every processor that runs a thread of this process through a full
//! fence ([`membarrier(2)`](https://man7.org/linux/man-pages/man2/membarrier.2.html), some
//! microseconds). The frequent one then needs only the compiler's promise to keep store and load in
//! order: at whatever point the kernel's fence interrupts it, its store is visible afterwards, or
//! its load comes afterwards.
//!
//! Where the kernel has no such call, in models, under shuttle and under Miri, both are full fences.

use super::{Ordering, fence};

/// Kind of fences in this process; the same for all instances.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FenceKind {
    /// Whether the kernel fences for both sides.
    asymmetric: bool,
}

impl FenceKind {
    pub(crate) fn new() -> Self {
        FenceKind { asymmetric: kernel::registered() }
    }

    /// Fences the frequent side, between its store and its load.
    #[inline(always)]
    pub(crate) fn light(self) {
        if self.asymmetric {
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// Fences the rare side, between its store and its load. Returns false if the kernel refuses,
    /// which it may do although the process is registered: a seccomp filter that came later, a
    /// process restored elsewhere, no memory. Then the caller's load may miss a store of the
    /// frequent side.
    #[must_use]
    pub(crate) fn heavy(self) -> bool {
        if self.asymmetric {
            return kernel::fence_all();
        }
        fence(Ordering::SeqCst);
        true
    }
}

#[cfg(all(target_os = "linux", not(any(loom, miri, shuttle))))]
mod kernel {
    use std::sync::OnceLock;

    use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

    /// Returns whether the kernel fences for this process. Registers once per process.
    pub(super) fn registered() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| {
            membarrier_query().contains(MembarrierQuery::PRIVATE_EXPEDITED)
                && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
        })
    }

    pub(super) fn fence_all() -> bool {
        membarrier(MembarrierCommand::PrivateExpedited).is_ok()
    }
}

#[cfg(any(not(target_os = "linux"), loom, miri, shuttle))]
mod kernel {
    pub(super) fn registered() -> bool {
        false
    }

    pub(super) fn fence_all() -> bool {
        unreachable!("no process is registered")
    }
}

#[cfg(all(test, not(any(loom, miri, shuttle))))]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

    use super::super::spin_hint;
    use super::*;

    /// Two threads that each store and then load: at least one of them sees the other's store.
    /// Without the heavy fence both can miss it, but only in a round in which both run at the same
    /// moment: on a busy machine a missing fence may pass.
    #[test]
    fn one_of_two_sees_the_others_store() {
        const ROUNDS: usize = 4_000;
        let fences = FenceKind::new();
        let (one, two) = (AtomicBool::new(false), AtomicBool::new(false));
        let (begun, ended) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let saw = AtomicBool::new(false);
        let await_both = |count: &AtomicUsize, round: usize| {
            count.fetch_add(1, Ordering::AcqRel);
            let mut looks = 0_u32;
            while count.load(Ordering::Acquire) < 2 * (round + 1) {
                looks += 1;
                if looks.is_multiple_of(1 << 12) { std::thread::yield_now() } else { spin_hint() }
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..ROUNDS {
                    await_both(&begun, round);
                    one.store(true, Ordering::Relaxed);
                    fences.light();
                    saw.store(two.load(Ordering::Relaxed), Ordering::Relaxed);
                    await_both(&ended, round);
                }
            });
            for round in 0..ROUNDS {
                await_both(&begun, round);
                two.store(true, Ordering::Relaxed);
                assert!(fences.heavy(), "the kernel has promised it");
                let seen = one.load(Ordering::Relaxed);
                await_both(&ended, round);
                assert!(
                    seen || saw.load(Ordering::Relaxed),
                    "round {round}: neither saw the other"
                );
                // The other side waits for this thread before it stores again.
                one.store(false, Ordering::Relaxed);
                two.store(false, Ordering::Relaxed);
            }
        });
    }
}
