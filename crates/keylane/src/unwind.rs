//! Lets go of what is the user's, whatever its drop does.

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Calls what is the user's and may panic, such as a waker; the caller continues.
pub(crate) fn call_catch_unwind(call: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(call)) {
        drop_catch_unwind(payload);
    }
}

/// Drops a value of the user's, whose drop may panic; the caller continues.
#[inline]
pub(crate) fn drop_catch_unwind<T>(value: T) {
    if std::mem::needs_drop::<T>()
        && let Err(payload) = catch_unwind(AssertUnwindSafe(|| drop(value)))
    {
        // Its drop may panic as well, and so may what that panics with: there may be no end to it.
        std::mem::forget(payload);
    }
}
