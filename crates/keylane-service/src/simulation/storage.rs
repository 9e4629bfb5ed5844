//! Files of the service, and what a kill, a power failure or a stop leaves of them.
//!
//! The file operations of the service, also those of SQLite, are recorded below the C library
//! (`keylane_testkit::power_loss`). A kill keeps all of them. A power failure keeps those that were
//! synced; the seed decides about each other one. It can come in the middle of a write.

use std::path::PathBuf;

use keylane_testkit::power_loss::Recording;

use keylane_testkit::Random;

#[derive(Debug)]
pub(super) struct Storage {
    recording: Recording,
    /// Number of file operations before the write that ends the process.
    last_write: Option<usize>,
}

impl Storage {
    pub(super) fn new() -> Self {
        Storage { recording: Recording::start(), last_write: None }
    }

    /// Returns the path of the store.
    pub(super) fn path(&self) -> PathBuf {
        self.recording.folder().join("store")
    }

    /// Notes that the process ends after the write that begins now.
    pub(super) fn write_begins(&mut self) {
        self.last_write = Some(self.recording.count());
    }

    /// Returns the files after the end of the process at this moment.
    pub(super) fn after_end(&self, loses_power: bool, random: &mut Random) -> Self {
        let trace = self.recording.so_far();
        let recording = match loses_power {
            false => Recording::after_kill(&trace, trace.len()),
            true => {
                let from = self.last_write.unwrap_or(trace.len());
                let at = random.within(from as u64..trace.len() as u64 + 1) as usize;
                Recording::after_power_loss(&trace.crash(at, random.number()))
            }
        };
        Storage { recording, last_write: None }
    }
}
