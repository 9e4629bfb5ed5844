//! Restart of this program, and whether it has the entry point for that.

use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// True once [`enter`](crate::enter) has been called: the program knows the arguments of this library.
static HAS_ENTRANCE: AtomicBool = AtomicBool::new(false);

pub(crate) fn note_entrance() {
    HAS_ENTRANCE.store(true, Relaxed);
}

/// Returns whether this program's `main` begins with [`enter`](crate::enter).
pub(crate) fn has_entrance() -> bool {
    HAS_ENTRANCE.load(Relaxed)
}

/// Returns the path by which this program is started again, also after its file was replaced.
pub(crate) fn own_program() -> io::Result<PathBuf> {
    let by_link = PathBuf::from("/proc/self/exe");
    if by_link.exists() { Ok(by_link) } else { std::env::current_exe() }
}
