//! A pair of fences of which one side is nearly free.
//!
//! Two threads that each store to one place and then load from another need a sequentially
//! consistent fence in between, on both sides, or each may miss the other's store. If one of them
//! comes by for every task and the other once in a long while, the rare one can pay for both: on its
//! behalf the kernel sends every processor that runs a thread of this process through a full fence
//! ([`membarrier(2)`](https://man7.org/linux/man-pages/man2/membarrier.2.html), some microseconds).
//! The frequent one then needs no more than the compiler's promise to keep store and load in order:
//! wherever in its course the kernel's fence has met it, its store is visible afterwards, or its load
//! comes afterwards.
//!
//! Where the kernel has no such call, and in models, both are full fences.

use super::{Ordering, fence};

/// How this process fences: the same everywhere in it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Fences {
    /// The kernel fences for both sides.
    asymmetric: bool,
}

impl Fences {
    pub(crate) fn new() -> Self {
        Fences { asymmetric: kernel::registered() }
    }

    /// The frequent side's, between its store and its load.
    #[inline(always)]
    pub(crate) fn light(self) {
        if self.asymmetric {
            std::sync::atomic::compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The rare side's.
    pub(crate) fn heavy(self) {
        if self.asymmetric {
            kernel::fence_all();
        } else {
            fence(Ordering::SeqCst);
        }
    }
}

#[cfg(all(target_os = "linux", not(loom)))]
mod kernel {
    use std::sync::OnceLock;

    use rustix::thread::{MembarrierCommand, MembarrierQuery, membarrier, membarrier_query};

    /// Whether the kernel fences for this process. A process asks once.
    pub(super) fn registered() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| {
            membarrier_query().contains(MembarrierQuery::PRIVATE_EXPEDITED)
                && membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok()
        })
    }

    pub(super) fn fence_all() {
        membarrier(MembarrierCommand::PrivateExpedited).expect("the process is registered");
    }
}

#[cfg(any(not(target_os = "linux"), loom))]
mod kernel {
    pub(super) fn registered() -> bool {
        false
    }

    pub(super) fn fence_all() {
        unreachable!("nobody has registered");
    }
}
