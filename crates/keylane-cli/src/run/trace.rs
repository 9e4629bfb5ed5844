//! `--trace`: records the runs of all workers, and writes them for a viewer at the end.

use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Context;

use crate::key::RecordKey;

use super::RecordPool;

/// Maximum number of records in a trace: the last ones, about 100 MB during the run.
const MAX_RECORDS: usize = 500_000;

/// A file for the trace of one run.
#[derive(Debug)]
pub(super) struct TraceFile {
    path: PathBuf,
    file: File,
}

impl TraceFile {
    /// Creates the file, so that it is known before anything runs whether that can be done.
    pub(super) fn create(path: &Path) -> anyhow::Result<Self> {
        // It names keys.
        let mut options = File::options();
        let file = options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path)
            .with_context(|| format!("cannot write the trace to {}", path.display()))?;
        Ok(TraceFile { path: path.to_owned(), file })
    }

    /// Begins the recording.
    pub(super) fn record(&self, pool: &RecordPool, threads: usize) {
        pool.inspect().start_trace((MAX_RECORDS / threads.max(1)).max(1));
    }

    /// Ends it, and writes the file.
    pub(super) fn write(self, pool: &RecordPool) -> anyhow::Result<()> {
        let Some(trace) = pool.inspect().take_trace() else { return Ok(()) };
        trace
            .write_chrome_with(&self.file, name)
            .with_context(|| format!("cannot write the trace to {}", self.path.display()))
    }
}

fn name(key: &RecordKey) -> String {
    match key {
        RecordKey::Named(bytes) => String::from_utf8_lossy(bytes).into_owned(),
        RecordKey::Unkeyed(_) | RecordKey::Serial => "no key".to_owned(),
    }
}
