//! Past of the service: what ran, ended and waited, for charts that survive a restart.
//!
//! # Protocol
//!
//! 1. **Intervals.** Once a second the recorder reads the running subtasks and the counters. Every 10 seconds it counts
//!    the waiting subtasks and makes a sample. Intervals are aligned to the wall clock.
//! 2. **Resolutions.** The file has a table of samples for each of 10 seconds, a minute and 15 minutes
//!    ([`Resolution`]). A sample of a coarser resolution is computed from those of the finer one, as often as one of
//!    them is written, so it needs no state of its own and a restart changes nothing.
//! 3. **Bounds.** A resolution has a fixed number of rows. The interval's number modulo this number is the row, so the
//!    oldest sample is overwritten. A sample has at most 8 jobs and 32 attempts with cut keys.
//! 4. **Loss.** Samples are written once a minute, without a wait for the disk, and at the end of the service. A crash
//!    loses the last minute. The file is not part of the store: no job depends on it, and a damaged one is replaced.
//! 5. **Clock and restart.** A sample of an interval that has one, because of a restart or a step of the wall clock, is
//!    joined with it. The past has a gap after a step forward. After a step back, samples with later times stay until
//!    their interval comes again, and no answer has them before.

mod file;
mod query;
mod recorder;
mod resolution;
mod sample;

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use keylane_storage::files;

use self::file::HistoryFile;
use self::sample::StoredSample;

pub(super) use self::recorder::HistoryRecorder;

/// Past of the service. The lock of the file is taken first, and only where a thread may block: answers read megabytes
/// under it.
#[derive(Debug, Default)]
pub(crate) struct History {
    storage: Mutex<HistoryStorage>,
    /// Samples that are not in the file, in the order in which they were made.
    unwritten: Mutex<Vec<StoredSample>>,
}

#[derive(Debug, Default)]
struct HistoryStorage {
    /// File of the samples. `None` if the service keeps no history, or cannot.
    file: Option<HistoryFile>,
    /// Whether a failure was reported since the last success.
    has_failed: bool,
}

impl History {
    /// Opens the history beside the store. On failure the past is kept in no file, and a warning says why.
    pub(super) fn open(&self, store: &Path) {
        let path = files::beside(store, "-history");
        match HistoryFile::open(&path) {
            Ok(file) => self.storage().file = Some(file),
            Err(error) => {
                let path = path.display();
                tracing::warn!("no history is kept, because {path} cannot be used: {error}");
            }
        }
    }

    /// Whether samples are kept.
    fn is_kept(&self) -> bool {
        self.storage().file.is_some()
    }

    fn storage(&self) -> MutexGuard<'_, HistoryStorage> {
        self.storage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn unwritten(&self) -> MutexGuard<'_, Vec<StoredSample>> {
        self.unwritten.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, sample: StoredSample) {
        self.unwritten().push(sample);
    }

    /// Writes the samples that are not in the file. Blocks on the disk.
    fn flush(&self) {
        let mut storage = self.storage();
        let HistoryStorage { file: Some(file), has_failed } = &mut *storage else { return };
        // Taken also if the write fails, because nothing bounds them otherwise.
        let samples = std::mem::take(&mut *self.unwritten());
        match file.write(&samples) {
            Ok(()) => *has_failed = false,
            Err(error) if !std::mem::replace(has_failed, true) => {
                tracing::warn!(%error, "the history of the last minute is lost");
            }
            Err(_) => {}
        }
    }
}
