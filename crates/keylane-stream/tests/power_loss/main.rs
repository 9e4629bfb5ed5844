//! Nothing acknowledged is lost by a power failure, at any moment: the file operations of the
//! journal, of state files and of dead letters are recorded, and the files that a power failure
//! could leave are opened. CONTRIBUTING.md lists the syncs, and the test that needs each of them.
//!
//! A program of its own, because it replaces the C library's functions for files.
#![cfg(target_os = "linux")]

mod dead_letters;
mod journal;
mod state_file;

keylane_testkit::intercept_file_calls!();
