//! Standard streams that the parent left closed.
//!
//! Before `main`, the standard library opens `/dev/null` in place of a closed standard stream, so that no file that is
//! opened later takes its number. From `main` on, a closed stream is therefore an empty input, or an output in which
//! everything vanishes. This module looks before that.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use rustix::fd::BorrowedFd;
use rustix::io::{Errno, fcntl_getfd};

static STDIN_CLOSED: AtomicBool = AtomicBool::new(false);
static STDOUT_CLOSED: AtomicBool = AtomicBool::new(false);

/// Returns whether this process was started with standard input closed, as by `<&-` in a shell.
#[must_use]
pub fn stdin_was_closed() -> bool {
    STDIN_CLOSED.load(Relaxed)
}

/// Returns whether this process was started with standard output closed, as by `>&-` in a shell.
#[must_use]
pub fn stdout_was_closed() -> bool {
    STDOUT_CLOSED.load(Relaxed)
}

/// Function that the loader calls before `main`, and so before the runtime of the standard library.
#[used]
// SAFETY: each of these sections holds pointers to functions that the loader calls without a result. `look` is such a
// function, takes no notice of the arguments that some loaders pass, and uses nothing that needs the runtime.
#[cfg_attr(not(target_vendor = "apple"), unsafe(link_section = ".init_array"))]
#[cfg_attr(target_vendor = "apple", unsafe(link_section = "__DATA,__mod_init_func"))]
static LOOK: extern "C" fn() = look;

extern "C" fn look() {
    let closed = |stream: BorrowedFd<'_>| fcntl_getfd(stream) == Err(Errno::BADF);
    STDIN_CLOSED.store(closed(rustix::stdio::stdin()), Relaxed);
    STDOUT_CLOSED.store(closed(rustix::stdio::stdout()), Relaxed);
}
