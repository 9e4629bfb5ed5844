//! Pace of a job, the base of its remaining time.
//!
//! Time in which nothing of the job could run is no part of its pace: while the job was paused or
//! held the measurement is void, and begins anew at the next start. A job whose keys are paused or
//! stopped can still run other keys. So only the time counts out in which none of its subtasks ran,
//! up to the last release of a key, or of the disk.

/// Progress of a job when its pace measurement began: at its first start in this process, and again
/// when it is resumed. Times are on the steady clock, in milliseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobPace {
    /// Begin of the measurement.
    pub(super) since: u64,
    /// Number of subtasks that had ended at that time.
    pub(super) ended: u64,
    /// Time since which none of its subtasks has run.
    pub(super) idle_since: Option<u64>,
}

impl JobPace {
    /// Returns the begin of the measurement without the idle time that a release has ended.
    fn begin(&self, released_ms: u64) -> u64 {
        let idle = self.idle_since.map_or(0, |since| released_ms.saturating_sub(since));
        self.since + idle
    }

    /// Returns the pace of a job of which a subtask starts, `before` that the one so far.
    pub(super) fn at_start(
        before: Option<Self>,
        now_ms: u64,
        released_ms: u64,
        ended: u64,
    ) -> Self {
        match before {
            None => JobPace { since: now_ms, ended, idle_since: None },
            Some(pace) => {
                JobPace { since: pace.begin(released_ms), idle_since: None, ended: pace.ended }
            }
        }
    }

    /// Estimates the remaining time, in milliseconds.
    pub(super) fn eta(&self, now_ms: u64, released_ms: u64, ended: u64, total: u64) -> Option<u64> {
        let newly = ended.checked_sub(self.ended).filter(|newly| *newly > 0)?;
        if ended >= total {
            return None;
        }
        let passed = now_ms.saturating_sub(self.begin(released_ms));
        let left = u128::from(total - ended) * u128::from(passed) / u128::from(newly);
        u64::try_from(left).ok()
    }
}

#[cfg(test)]
#[path = "pace_tests.rs"]
mod tests;
