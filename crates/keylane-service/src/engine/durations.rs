//! Histograms of durations since the start of the service, for Prometheus.

use std::collections::BTreeMap;
use std::fmt::{self, Write};

use crate::duration_histogram::DurationHistogram;
use crate::kind_registry::KindRegistry;
use crate::scheduler::WaitDurations;

/// All durations. Part of the state of the engine.
#[derive(Clone, Debug, Default)]
pub(super) struct ServiceDurations {
    /// Durations of attempts, by the number of the kind and the outcome.
    pub(super) attempts: BTreeMap<(u32, &'static str), DurationHistogram>,
    /// Waits of jobs for their first start.
    pub(super) job_waits: DurationHistogram,
    /// Times until batches of changes were on the disk.
    pub(super) writes: DurationHistogram,
}

impl ServiceDurations {
    pub(super) fn write_metrics(
        &self,
        kinds: &KindRegistry,
        waits: &WaitDurations,
        to: &mut String,
    ) -> fmt::Result {
        writeln!(to, "# HELP keylane_attempt_seconds Durations of attempts.")?;
        writeln!(to, "# TYPE keylane_attempt_seconds histogram")?;
        for ((kind, outcome), histogram) in &self.attempts {
            let name = kinds.name(*kind).replace('\\', r"\\").replace('"', r#"\""#);
            let labels = format!("kind=\"{name}\",outcome=\"{outcome}\",");
            histogram.write(to, "attempt_seconds", &labels)?;
        }
        writeln!(
            to,
            "# HELP keylane_job_wait_seconds Times from the place of a job in the order to its first start."
        )?;
        writeln!(to, "# TYPE keylane_job_wait_seconds histogram")?;
        self.job_waits.write(to, "job_wait_seconds", "")?;
        writeln!(
            to,
            "# HELP keylane_wait_seconds Times for which subtasks have waited, by reason."
        )?;
        writeln!(to, "# TYPE keylane_wait_seconds histogram")?;
        waits.key.write(to, "wait_seconds", "reason=\"key\",")?;
        waits.slot.write(to, "wait_seconds", "reason=\"slot\",")?;
        waits.backoff.write(to, "wait_seconds", "reason=\"backoff\",")?;
        writeln!(
            to,
            "# HELP keylane_store_write_seconds Times until changes of subtasks and jobs were on the disk."
        )?;
        writeln!(to, "# TYPE keylane_store_write_seconds histogram")?;
        self.writes.write(to, "store_write_seconds", "")
    }
}
