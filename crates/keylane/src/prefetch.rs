//! Prefetches cache lines that another processor has written. Has no other effect, for any address.

/// Prefetches the cache line of a value that will be read soon.
#[inline(always)]
pub(crate) fn prefetch<T>(value: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a prefetch of any address reads nothing and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(value.cast()) }
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}

/// Prefetches the cache line of a value that will be written soon.
#[inline(always)]
pub(crate) fn prefetch_to_write<T>(value: *const T) {
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    // SAFETY: a prefetch of any address changes nothing and never faults; a processor that lacks
    // the instruction executes it as a no-op.
    unsafe {
        std::arch::asm!(
            "prefetchw [{0}]",
            in(reg) value,
            options(nostack, preserves_flags, readonly)
        );
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    let _ = value;
}

/// Prefetches the first two cache lines of the block in which an `Arc` has this value.
#[inline(always)]
pub(crate) fn prefetch_shared_to_write<T: ?Sized>(value: *const T) {
    const LINE: usize = 64;
    let block = value.cast::<u8>().wrapping_sub(2 * size_of::<usize>());
    prefetch_to_write(block);
    prefetch_to_write(block.wrapping_add(LINE));
}
