//! Lets go of what is the user's, whatever its drop does.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Payload of a panic in a key's `Eq` or `Clone`.
pub(crate) type KeyPanic = Box<dyn Any + Send>;

/// Calls the code of a key where the state of a shard is locked. The caller has changed nothing that
/// the call could leave half done.
///
/// A worker must not unwind in the middle of a step, since the lanes that it holds would never be
/// released. It looks a key up, or clones it, before it changes anything, and a panic of that call
/// costs the task whose key was looked up.
#[inline(always)]
pub(crate) fn catch_key_panic<R>(call: impl FnOnce() -> R) -> Result<R, KeyPanic> {
    catch_unwind(AssertUnwindSafe(call))
}

/// Calls what is the user's and may panic, such as a waker; the caller continues.
pub(crate) fn call_catch_unwind(call: impl FnOnce()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(call)) {
        drop_catch_unwind(payload);
    }
}

/// Drops a value of the user's, whose drop may panic; the caller continues.
#[inline]
pub(crate) fn drop_catch_unwind<T>(value: T) {
    if std::mem::needs_drop::<T>() {
        let mut value = Some(value);
        catch_unwind_once(&mut || drop(value.take()));
    }
}

/// Compiled once, for values of all types.
#[inline]
fn catch_unwind_once(call: &mut dyn FnMut()) {
    if let Err(payload) = catch_unwind(AssertUnwindSafe(call)) {
        // Its drop may panic as well, and so may what that panics with: there may be no end to it.
        std::mem::forget(payload);
    }
}
