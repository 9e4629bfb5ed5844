//! Metrics in the text format of Prometheus. No label value is chosen by users, except for the
//! names of kinds and of configured tenants.

use std::fmt::{self, Write};

use super::audit::AuditLog;
use super::backups::Backups;
use super::engine_state::{ServiceTotals, SharedState};
use super::query::Query;
use super::schedules::ScheduleTable;
use super::settings::BuildInfo;
use super::store_status::{StoreHealth, StoreStatus};
use super::traces::Traces;
use crate::kind_registry::KindRegistry;
use crate::store::Store;
use crate::tenant::Tenant;
use crate::wire::{JobState, Summary};

/// Metrics of the service.
#[derive(Debug)]
pub(crate) struct Metrics<'a> {
    pub(super) build: &'a BuildInfo,
    pub(super) state: &'a SharedState,
    pub(super) kinds: &'a KindRegistry,
    pub(super) store: &'a Store,
    pub(super) status: &'a StoreStatus,
    pub(super) query: &'a Query,
    pub(super) audit: &'a AuditLog,
    pub(super) backups: &'a Backups,
    pub(super) schedules: &'a ScheduleTable,
    pub(super) traces: &'a Traces,
}

impl Metrics<'_> {
    /// Returns all metrics as text.
    pub(crate) fn text(&self) -> String {
        let mut text = String::with_capacity(4096);
        self.write_metrics(&mut text).expect("writing to a string does not fail");
        self.schedules.write_metrics(&mut text).expect("writing to a string does not fail");
        self.audit.write_metrics(&mut text).expect("writing to a string does not fail");
        self.backups.write_metrics(&mut text).expect("writing to a string does not fail");
        self.traces.write_metrics(&mut text).expect("writing to a string does not fail");
        let webhooks = self.state.lock().deliveries.write_metrics(&mut text);
        webhooks.expect("writing to a string does not fail");
        let engine = self.state.lock();
        let (durations, waits) =
            (engine.durations.clone(), engine.scheduler.wait_durations().clone());
        drop(engine);
        let written = durations.write_metrics(self.kinds, &waits, &mut text);
        written.expect("writing to a string does not fail");
        text
    }

    fn write_metrics(&self, to: &mut String) -> fmt::Result {
        let summary = self.query.summary();
        let totals = self.state.lock().totals;
        let mut to = MetricsText(to);
        self.write_jobs(&mut to, &summary, &totals)?;
        write_attempts(&mut to, &summary, &totals)?;
        self.write_store(&mut to, &summary)
    }

    /// Writes the metrics of jobs and subtasks.
    fn write_jobs(
        &self,
        to: &mut MetricsText<'_>,
        summary: &Summary,
        totals: &ServiceTotals,
    ) -> fmt::Result {
        to.metric(
            "build_info",
            "gauge",
            "Version, source revision and Cargo features of the running server.",
            &[(&self.build.to_string(), 1.0)],
        )?;
        // A server that waits for the store reports 0, in `http/forward.rs`.
        to.metric(
            "owner",
            "gauge",
            "Whether this server owns the store: 1, or 0 while it waits.",
            &[("", 1.0)],
        )?;
        to.metric(
            "jobs_accepted_total",
            "counter",
            "Accepted jobs.",
            &[("", number(totals.jobs_accepted))],
        )?;
        to.metric(
            "jobs_expired_total",
            "counter",
            "Jobs that were unfinished at their `expires_at`.",
            &[("", number(totals.jobs_expired))],
        )?;
        to.metric(
            "inbox_refused_total",
            "counter",
            "Jobs that were submitted by SQL and refused.",
            &[("", number(totals.inbox_refused))],
        )?;
        to.metric(
            "jobs_total",
            "counter",
            "Finished jobs.",
            &[
                ("{outcome=\"succeeded\"}", number(totals.jobs_succeeded)),
                ("{outcome=\"failed\"}", number(totals.jobs_failed)),
                ("{outcome=\"cancelled\"}", number(totals.jobs_cancelled)),
            ],
        )?;
        // States without jobs too: a series that ends looks like a server that does not answer.
        let unfinished = JobState::ALL.into_iter().filter(|state| !state.is_final());
        let of_state = |state: JobState| summary.jobs.get(state.as_str()).copied().unwrap_or(0);
        let jobs: Vec<(String, f64)> = unfinished
            .map(|state| (format!("{{state=\"{}\"}}", state.as_str()), number(of_state(state))))
            .collect();
        let jobs: Vec<(&str, f64)> =
            jobs.iter().map(|(labels, value)| (&**labels, *value)).collect();
        to.metric("jobs", "gauge", "Unfinished jobs.", &jobs)?;
        to.metric(
            "subtasks",
            "gauge",
            "Unfinished subtasks.",
            &[
                ("{state=\"waiting\"}", number(summary.waiting)),
                ("{state=\"ready\"}", number(summary.ready)),
                ("{state=\"running\"}", number(summary.busy)),
                ("{state=\"backing_off\"}", number(summary.backing_off)),
            ],
        )?;
        to.metric(
            "subtasks_total",
            "counter",
            "Subtasks that have ended permanently.",
            &[
                ("{outcome=\"succeeded\"}", number(totals.succeeded)),
                ("{outcome=\"failed\"}", number(totals.failed)),
                ("{outcome=\"cancelled\"}", number(totals.cancelled)),
                ("{outcome=\"superseded\"}", number(totals.superseded)),
            ],
        )?;
        to.metric(
            "keys_with_rate",
            "gauge",
            "Keys whose next start may have to wait for their rate.",
            &[("", number(self.state.lock().scheduler.keys_with_rate() as u64))],
        )?;
        to.metric(
            "remote_workers",
            "gauge",
            "Remote workers that have leases or wait for some.",
            &[("", number(self.state.lock().workers.connected() as u64))],
        )?;
        self.write_held(to)?;
        self.write_tenants(to)
    }

    /// Writes the metrics of tenants. Names that are not configured are chosen by users, so these
    /// tenants count together.
    fn write_tenants(&self, to: &mut MetricsText<'_>) -> fmt::Result {
        let mut shown: Vec<(String, [u64; 3])> = Vec::new();
        let mut others: Option<[u64; 3]> = None;
        for tenant in self.query.tenant_views() {
            let counts = [tenant.running, tenant.unfinished, tenant.jobs];
            if tenant.configured || tenant.name == Tenant::DEFAULT_NAME {
                shown.push((format!("{{tenant=\"{}\"}}", tenant.name), counts));
                continue;
            }
            let sum = others.get_or_insert_default();
            sum.iter_mut().zip(counts).for_each(|(sum, count)| *sum += count);
        }
        shown.extend(others.map(|sum| ("{tenant=\"others\"}".to_owned(), sum)));
        let values = |index: usize| -> Vec<(&str, f64)> {
            shown.iter().map(|(labels, counts)| (&**labels, number(counts[index]))).collect()
        };
        to.metric("tenant_slots_busy", "gauge", "Running subtasks of a tenant.", &values(0))?;
        to.metric("tenant_subtasks", "gauge", "Unfinished subtasks of a tenant.", &values(1))?;
        to.metric("tenant_jobs", "gauge", "Unfinished jobs of a tenant.", &values(2))
    }

    /// Writes the number of held jobs.
    fn write_held(&self, to: &mut MetricsText<'_>) -> fmt::Result {
        let held = self.state.lock().holds.counts();
        let held: Vec<_> = held
            .iter()
            .map(|(reason, count)| (format!("{{reason=\"{reason}\"}}"), number(*count)))
            .collect();
        let held: Vec<_> = held.iter().map(|(labels, count)| (&**labels, *count)).collect();
        to.metric(
            "jobs_held",
            "gauge",
            "Held jobs: nothing of them starts until an operator decides.",
            &held,
        )
    }

    /// Writes the metrics of the store and the server.
    fn write_store(&self, to: &mut MetricsText<'_>, summary: &Summary) -> fmt::Result {
        to.metric(
            "store_bytes",
            "gauge",
            "Bytes of the store on the disk: its file and its write-ahead log.",
            &[("", number(summary.store_bytes))],
        )?;
        let well = match &*self.status.health() {
            StoreHealth::Well => 1.0,
            StoreHealth::Full | StoreHealth::Unavailable | StoreHealth::Failed(_) => 0.0,
        };
        to.metric("store_up", "gauge", "1 if the store accepts writes, else 0.", &[("", well)])?;
        let refuses = f64::from(u8::from(self.status.takes_no_jobs().is_some()));
        to.metric(
            "store_refuses_jobs",
            "gauge",
            "1 if new jobs are refused because the store is full or has failed, else 0.",
            &[("", refuses)],
        )?;
        let stats = self.store.stats();
        to.metric(
            "store_commits_total",
            "counter",
            "Transactions since the store was created.",
            &[("", number(stats.commits))],
        )?;
        to.metric(
            "websockets",
            "gauge",
            "Clients connected by WebSocket.",
            &[("", number(summary.websockets))],
        )?;
        to.metric(
            "draining",
            "gauge",
            "1 if the server is shutting down, else 0.",
            &[("", f64::from(u8::from(summary.draining)))],
        )
    }
}

/// Writes the metrics of attempts, slots and keys.
fn write_attempts(
    to: &mut MetricsText<'_>,
    summary: &Summary,
    totals: &ServiceTotals,
) -> fmt::Result {
    to.metric("attempts_total", "counter", "Started attempts.", &[("", number(totals.starts))])?;
    to.metric(
        "attempts_retried_total",
        "counter",
        "Failed attempts that are retried.",
        &[("", number(totals.retried))],
    )?;
    to.metric(
        "lease_expired_total",
        "counter",
        "Leases that ended without an answer.",
        &[("", number(totals.leases_lost))],
    )?;
    to.metric(
        "slots",
        "gauge",
        "Maximum number of concurrent subtasks.",
        &[("", number(summary.slots))],
    )?;
    to.metric("slots_busy", "gauge", "Running subtasks.", &[("", number(summary.busy))])?;
    to.metric(
        "keys",
        "gauge",
        "Keys with unfinished subtasks, or paused.",
        &[("", number(summary.keys))],
    )?;
    #[expect(clippy::cast_precision_loss, reason = "seconds")]
    let oldest = summary.oldest_head_ms as f64 / 1000.0;
    to.metric(
        "key_head_age_seconds",
        "gauge",
        "Age of the oldest head of a key, in seconds.",
        &[("", oldest)],
    )?;
    to.metric(
        "order_violations_total",
        "counter",
        "Subtasks that began before an earlier one of their key had ended: must stay 0.",
        &[("", number(totals.order_violations))],
    )
}

/// Text of metrics.
struct MetricsText<'a>(&'a mut String);

impl MetricsText<'_> {
    fn metric(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        values: &[(&str, f64)],
    ) -> fmt::Result {
        writeln!(self.0, "# HELP keylane_{name} {help}")?;
        writeln!(self.0, "# TYPE keylane_{name} {kind}")?;
        for (labels, value) in values {
            writeln!(self.0, "keylane_{name}{labels} {value}")?;
        }
        Ok(())
    }
}

#[expect(clippy::cast_precision_loss, reason = "Prometheus has only doubles")]
fn number(count: u64) -> f64 {
    count as f64
}
