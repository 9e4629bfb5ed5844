//! Power-loss simulation: a test records every file operation below a folder, and then builds the
//! files as a power failure at any moment could have left them.
//!
//! # Model
//!
//! 1. [`intercept_file_calls`](crate::intercept_file_calls) defines the C library's functions for
//!    files in the test program. So the calls of SQLite and of the standard library arrive here, and
//!    the product runs unchanged, on real files.
//! 2. A [`Recording`] keeps the operations on the files of one folder in their order. The test adds
//!    a [`note`](Recording::note) when the product has acknowledged something.
//! 3. [`Trace::crash`] takes the operations before a moment. A sync of a file makes its earlier
//!    writes durable; a sync of the folder makes earlier creations, renames and removals of names
//!    durable. Of all other operations the seed decides: lost, kept, a prefix with the next write
//!    torn at a sector, or any subset in sectors of 512 bytes. A file without a durable name is
//!    gone. A lost write within the file's length reads as zeros.
//! 4. [`Recording::after_kill`] continues a recording after a `kill -9` at a moment: the files have all
//!    writes, because the kernel has them, but no more is durable than before.
//! 5. [`Recording::fail_sync`] lets one sync fail. The writes before it are durable or lost, as the
//!    seed decides, and a later sync does not change that, as on Linux.
//! 6. [`Trace::ignore`] treats some syncs as missing. A test that still passes then is too weak, or
//!    the syncs are needless.
//!
//! [`Recording::finish`] checks that the recorded operations give the files on the disk, so an
//! operation that no intercepted function has seen is an error. SQLite's `-shm` is memory of
//! running processes, and not recorded; it is absent after a crash. Subfolders are not recorded.

pub mod calls;
mod checks;
mod disk;
mod recording;
mod trace;

pub use checks::{check_all, check_needed, seeds};
pub use recording::Recording;
pub use trace::{Crashed, SyncPoint, Trace};
