//! Copies on a schedule.
//!
//! The newest copy in the folder says when the next one is due, so a restart neither skips nor repeats one.
//! A clock that is set can make the wait up to twice as long, and never makes copies follow each other
//! faster than the interval of one process: that is also measured by a clock that only advances.

use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::copies::{Backups, with_cause};
use super::folder::BackupFolder;
use crate::engine::timer::sleep;
use crate::store::BackupError;

/// Interval between two comparisons of the clock with the time of the next copy.
const GLANCE: Duration = Duration::from_secs(1);

/// Wait after a copy that failed, if the interval is not shorter.
const RETRY: Duration = Duration::from_secs(600);

/// Outcome of a scheduled copy.
#[derive(Clone, Copy, Debug)]
enum CopyOutcome {
    Written,
    Failed,
    /// A client's copy is being made, or the service stops.
    Busy,
}

impl Backups {
    /// Makes the scheduled copies until the service stops.
    pub(in crate::engine) async fn run(self: Arc<Self>) {
        let Some(schedule) = self.schedule.clone() else { return };
        let folder = Arc::new(BackupFolder::new(schedule.folder.clone()));
        let seen = Arc::clone(&folder);
        let newest = self.executor.blocking_or_panic(move || {
            seen.remove_incomplete();
            seen.newest()
        });
        if let Some(newest) = newest.await {
            self.counters.newest_ms.store(newest.0, Relaxed);
        }
        let mut not_before = self.clock.steady();
        while !self.stopped.is_cancelled() {
            if self.clock.steady() >= not_before && self.is_due(schedule.every) {
                let wait = match self.copy_into(&folder, schedule.keep).await {
                    CopyOutcome::Written => schedule.every,
                    CopyOutcome::Failed => schedule.every.min(RETRY),
                    CopyOutcome::Busy => Duration::ZERO,
                };
                not_before = self.clock.steady().saturating_add(wait);
            }
            tokio::select! {
                biased;
                () = self.stopped.cancelled() => {}
                () = sleep(GLANCE) => {}
            }
        }
    }

    fn is_due(&self, every: Duration) -> bool {
        let newest = self.counters.newest_ms.load(Relaxed);
        // The difference of a clock that was set back counts too: otherwise a copy from the future would
        // prevent all others until then.
        Duration::from_millis(self.wall.now().0.abs_diff(newest)) >= every
    }

    /// Writes a copy, and removes those that are too many.
    async fn copy_into(
        self: &Arc<Self>,
        folder: &Arc<BackupFolder>,
        keep: NonZeroUsize,
    ) -> CopyOutcome {
        let Ok(turn) = self.turn() else { return CopyOutcome::Busy };
        let (this, folder, now) = (Arc::clone(self), Arc::clone(folder), self.wall.now());
        let copied = self.executor.blocking_or_panic(move || {
            let _turn = turn;
            let path = folder.path_at(now);
            this.store.backup_unless(&path, &this.stopped)?;
            folder.keep_newest(keep, &path);
            Ok(path)
        });
        match copied.await {
            Ok(path) => {
                self.counters.written.fetch_add(1, Relaxed);
                self.counters.newest_ms.store(now.0, Relaxed);
                tracing::info!(path = %path.display(), "a backup is written");
                CopyOutcome::Written
            }
            // The loop ends.
            Err(BackupError::Stopped) => CopyOutcome::Busy,
            Err(error) => {
                self.counters.failed.fetch_add(1, Relaxed);
                tracing::error!(error = with_cause(&error), "a scheduled backup failed");
                CopyOutcome::Failed
            }
        }
    }
}
