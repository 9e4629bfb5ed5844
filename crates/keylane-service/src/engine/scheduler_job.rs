//! Forms that the scheduler has of kinds, jobs and counts.

use std::sync::Arc;

use keylane_allocate::{Priority, TenantLimits};

use super::engine_state::EngineState;
use crate::job_definition::JobDefinition;
use crate::kind::KindExecutor;
use crate::kind_registry::{KindEntry, KindRegistry};
use crate::scheduler::{
    self, EndedCounts, JobFailurePolicy, JobOutcome, KeyFailurePolicy, KindId, KindLimits, NewJob,
    NewSubtask, TenantSettings,
};
use crate::store::{JobState as Stored, OutcomeCounts};
use crate::tenant::{Tenant, Tenants};
use crate::wire::{JobPriority, JobState, OnError, OnFail, Timestamp};
use crate::{JobNumber, KeyClaim, TaskKeys};

/// Returns the limits of a kind. A kind of remote workers runs at most `wanted` subtasks.
fn limits_of(entry: &KindEntry, wanted: Option<u32>) -> KindLimits {
    let kind = &entry.kind;
    if !entry.is_there || entry.is_paused() {
        return KindLimits { concurrency: Some(0), ..KindLimits::default() };
    }
    let concurrency = kind.concurrency.map(|most| u32::try_from(most).unwrap_or(u32::MAX));
    let concurrency = match (concurrency, wanted) {
        (Some(most), Some(wanted)) => Some(most.min(wanted)),
        (most, wanted) => most.or(wanted),
    };
    // The split and fan-in steps of a kind for remote workers run here.
    let subtasks_only = wanted.is_some();
    let [rate, rate_per_key] = [kind.rate, kind.rate_per_key].map(|rate| rate.map(rate_of));
    KindLimits { concurrency, rate, rate_per_key, subtasks_only }
}

/// Converts a rate to tokens per interval: whole numbers, exact to a thousandth or to a millisecond.
fn rate_of(rate: crate::kind::StartRate) -> scheduler::RateLimit {
    let per_second = if rate.per_second.is_finite() { rate.per_second.max(1e-6) } else { 1e6 };
    let (tokens, period_ms) = match per_second {
        // One token in some milliseconds, at most twelve days.
        few if few < 1.0 => (1.0, (1000.0 / few).round()),
        // Tokens per thousand seconds.
        few if few < 1000.0 => ((few * 1000.0).round(), 1e6),
        many => (many.min(1e9).round(), 1000.0),
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "from 1 to 10^9")]
    let [tokens, period_ms] = [tokens, period_ms].map(|number: f64| number as u32);
    scheduler::RateLimit { tokens, period_ms, burst: rate.burst.max(1) }
}

pub(super) fn new_subtask(
    number: u32,
    keys: &TaskKeys,
    attempts_made: u32,
) -> NewSubtask<impl Iterator<Item = KeyClaim<'_>>> {
    NewSubtask { number, keys: keys.claims(), attempts_made }
}

/// Returns the scheduler's description of a job, with the subtasks given.
pub(super) fn new_job<S>(
    number: JobNumber,
    kind: u32,
    head: &JobDefinition,
    subtasks: S,
) -> NewJob<S> {
    NewJob {
        kind: KindId(kind),
        has_barriers: head.barriers,
        max_per_key: head.max_per_key,
        tenant: head.tenant.as_deref().map(Arc::from),
        priority: priority_of(head.priority),
        weight: head.weight,
        on_error: match head.on_error {
            OnError::FinishAll => JobFailurePolicy::FinishAll,
            OnError::FailFast => JobFailurePolicy::FailFast,
        },
        on_fail: match head.on_fail {
            OnFail::Continue => KeyFailurePolicy::Continue,
            OnFail::StopKey => KeyFailurePolicy::StopKey,
        },
        attempts_allowed: head.attempts,
        split: head.split.then_some(0),
        fan_in: head.fan_in.then_some(0),
        ..NewJob::new(number, subtasks)
    }
}

fn priority_of(priority: JobPriority) -> Priority {
    match priority {
        JobPriority::High => Priority::High,
        JobPriority::Normal => Priority::Normal,
        JobPriority::Low => Priority::Low,
    }
}

/// Converts stored counts for the scheduler, which counts a skipped subtask as failed: also after a
/// restart.
pub(super) fn ended_counts(counts: &OutcomeCounts) -> EndedCounts {
    EndedCounts {
        succeeded: counts.succeeded.into(),
        failed: u64::from(counts.failed) + u64::from(counts.skipped),
        cancelled: counts.cancelled.into(),
        superseded: counts.superseded.into(),
    }
}

/// Returns the states of an outcome in the store and in the API.
pub(super) fn states(outcome: JobOutcome) -> (Stored, JobState) {
    match outcome {
        JobOutcome::Succeeded => (Stored::Succeeded, JobState::Succeeded),
        JobOutcome::Failed => (Stored::Failed, JobState::Failed),
        JobOutcome::Cancelled => (Stored::Cancelled, JobState::Cancelled),
    }
}

/// Passes the number of subtasks of remote kinds that may run to the scheduler.
pub(super) fn admit_leases(
    kinds: &KindRegistry,
    engine: &mut EngineState,
    numbers: impl IntoIterator<Item = u32>,
    now: Timestamp,
) {
    for number in numbers {
        let entry = kinds.entry(number);
        if matches!(entry.kind.work, KindExecutor::Lease { .. }) {
            set_kind(&entry, engine, now);
        }
    }
}

/// Sets the limits of a kind. Nothing starts of a kind that was removed or is paused.
pub(super) fn set_kind(entry: &KindEntry, engine: &mut EngineState, now: Timestamp) {
    let is_leased = matches!(entry.kind.work, KindExecutor::Lease { .. });
    let wanted = is_leased.then(|| engine.claimers.wanted(entry.number));
    engine.scheduler.set_kind(KindId(entry.number), limits_of(entry, wanted), now.0);
}

/// Sets the shares and limits of the tenants, and takes those of tenants that are no longer
/// configured away.
pub(super) fn set_tenants(
    before: &Tenants,
    tenants: &Tenants,
    engine: &mut EngineState,
    now: Timestamp,
) {
    let gone = before.named.keys().filter(|name| !tenants.named.contains_key(*name));
    let gone = gone.map(|name| (name, None));
    let all = tenants.named.iter().map(|(name, tenant)| (name, Some(settings_of(tenant))));
    for (name, settings) in gone.chain(all) {
        let name = (name != Tenant::DEFAULT_NAME).then(|| Arc::from(name.as_str()));
        engine.scheduler.set_tenant(name.as_ref(), settings, now.0);
    }
}

fn settings_of(tenant: &Tenant) -> TenantSettings {
    let Tenant { weight, min_workers, max_workers, rate, max_waiting: _ } = *tenant;
    let share = TenantLimits { weight, min_workers, max_workers };
    TenantSettings { share, rate: rate.map(rate_of) }
}

/// Sets the limits of all kinds.
pub(super) fn set_kinds(kinds: &KindRegistry, engine: &mut EngineState, now: Timestamp) {
    for entry in kinds.all() {
        set_kind(&entry, engine, now);
    }
}
