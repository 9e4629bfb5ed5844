//! Schedule of copies, and what is counted of them.

use std::fmt::{self, Write};
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

/// Copies of the store that a service makes by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackupSchedule {
    /// Folder of the copies. It must exist.
    pub folder: PathBuf,
    /// Time between two copies.
    pub every: Duration,
    /// Number of copies that are kept; older ones are removed.
    pub keep: NonZeroUsize,
}

/// Counts since the start.
#[derive(Debug, Default)]
pub(super) struct BackupCounters {
    pub(super) written: AtomicU64,
    pub(super) failed: AtomicU64,
    /// Time of the newest copy in the folder, in milliseconds since 1970; 0 if there is none.
    pub(super) newest_ms: AtomicU64,
}

impl BackupCounters {
    /// Writes the metrics in the text format of Prometheus.
    pub(super) fn write_metrics(&self, to: &mut String) -> fmt::Result {
        let BackupCounters { written, failed, newest_ms } = self;
        writeln!(to, "# HELP keylane_backups_total Scheduled backups since the start.")?;
        writeln!(to, "# TYPE keylane_backups_total counter")?;
        for (outcome, count) in [("written", written), ("failed", failed)] {
            let count = count.load(Relaxed);
            writeln!(to, "keylane_backups_total{{outcome=\"{outcome}\"}} {count}")?;
        }
        let newest = newest_ms.load(Relaxed) / 1000;
        let help = "Time of the newest scheduled backup; 0 if there is none.";
        writeln!(to, "# HELP keylane_backup_newest_timestamp_seconds {help}")?;
        writeln!(to, "# TYPE keylane_backup_newest_timestamp_seconds gauge")?;
        writeln!(to, "keylane_backup_newest_timestamp_seconds {newest}")
    }
}
