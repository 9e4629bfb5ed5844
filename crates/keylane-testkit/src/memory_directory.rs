//! Temporary directories in memory where there is room: for what needs no disk, such as the servers that tests start.
//!
//! A new directory of PostgreSQL has a thousand files, which take half a second of processor time on a disk.

use std::path::Path;

use tempfile::TempDir;

/// File system in memory.
const MEMORY: &str = "/dev/shm";

/// Free bytes of that file system with which directories are made there: enough for dozens of servers.
const MIN_FREE_BYTES: u64 = 4 << 30;

/// Returns a new directory, with a name that begins like this.
pub(crate) fn memory_directory(prefix: &str) -> TempDir {
    let make = |parent: &Path| tempfile::Builder::new().prefix(prefix).tempdir_in(parent);
    let has_room = rustix::fs::statvfs(MEMORY)
        .is_ok_and(|free| free.f_bavail.saturating_mul(free.f_frsize) >= MIN_FREE_BYTES);
    let in_memory = if has_room { make(Path::new(MEMORY)).ok() } else { None };
    let on_disk = || make(&std::env::temp_dir());
    in_memory.map_or_else(on_disk, Ok).expect("a temporary directory can be created")
}
