//! Writes the entries of the audit log and reads them.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::operator_action::{AuditPayload, AuditedRequest, MAX_NAME_BYTES};
use crate::JobId;
use crate::engine::clock::{Clock, millis};
use crate::engine::cut_text::cut_text;
use crate::engine::idempotency::IdempotencyKeys;
use crate::engine::query::Query;
use crate::engine::store_status::{StoreStatus, read_refused};
use crate::request_error::RequestError;
use crate::store::{AuditFilter, AuditRecord, AuditRetention, AuditRow, Changes, Store};
use crate::wire::{AuditEntry, AuditOutcome, Page, Timestamp};

/// Interval in milliseconds after a written refusal in which further refusals of that token for
/// lack of a role are only counted.
const DENIED_MS: u64 = 3_600_000;

impl AuditEntry {
    fn of(row: AuditRow) -> Self {
        let AuditRow { number, record, is_whole } = row;
        let body = serde_json::from_slice(&record.body).ok().filter(|_| is_whole);
        let body = body.unwrap_or(AuditPayload {
            from: None,
            key: None,
            schedule: None,
            kind: None,
            reason: None,
            parameters: None,
            outcome: AuditOutcome::Damaged,
            problem: None,
        });
        let AuditRecord { at_ms, who, what, job, .. } = record;
        let AuditPayload { from, key, schedule, kind, reason, parameters, outcome, problem } = body;
        let at = Timestamp(at_ms);
        #[rustfmt::skip]
        let entry = AuditEntry {
            number, at, who, from, what, job, key, schedule, kind, reason, parameters, outcome, problem,
        };
        entry
    }
}

/// Outcome of an action, as it was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum ActionAnswer<'a> {
    /// The action was done, or there was nothing to do.
    Well,
    /// The action was refused with this problem code.
    Refused(&'a str),
    /// The caller has no role that allows the action.
    Denied,
}

/// Counters since the start, and the time of the last logged refusal per token.
#[derive(Debug, Default)]
struct AuditCounters {
    done: AtomicU64,
    unchanged: AtomicU64,
    refused: AtomicU64,
    denied: AtomicU64,
    /// Time of the last logged refusal for lack of a role, by token name: at most as many as there
    /// are tokens. No code panics while it holds this lock.
    last_denied: Mutex<HashMap<String, u64>>,
}

impl AuditCounters {
    /// Returns true if this refusal must be written.
    fn is_first_denied(&self, who: &str, now: Timestamp) -> bool {
        let mut last = self.last_denied.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = last.get(who).is_none_or(|last| now.0 - last >= DENIED_MS);
        if is_first {
            last.insert(who.to_owned(), now.0);
        }
        is_first
    }

    /// Writes the metrics in the text format of Prometheus.
    fn write_metrics(&self, to: &mut String) -> fmt::Result {
        writeln!(to, "# HELP keylane_operator_actions_total Actions requested by operators.")?;
        writeln!(to, "# TYPE keylane_operator_actions_total counter")?;
        for (outcome, count) in [
            ("done", &self.done),
            ("unchanged", &self.unchanged),
            ("refused", &self.refused),
            ("denied", &self.denied),
        ] {
            let count = count.load(Relaxed);
            writeln!(to, "keylane_operator_actions_total{{outcome=\"{outcome}\"}} {count}")?;
        }
        Ok(())
    }
}

/// The audit log.
#[derive(Debug)]
pub(crate) struct AuditLog {
    store: Store,
    clock: Arc<Clock>,
    status: Arc<StoreStatus>,
    keys: Arc<IdempotencyKeys>,
    /// Retention time of the entries.
    keep: Option<Duration>,
    /// Maximum number of entries.
    most: u64,
    counters: AuditCounters,
}

impl AuditLog {
    pub(in crate::engine) fn new(
        store: Store,
        clock: Arc<Clock>,
        status: Arc<StoreStatus>,
        keys: Arc<IdempotencyKeys>,
        keep: Option<Duration>,
        most: u64,
    ) -> Self {
        AuditLog { store, clock, status, keys, keep, most, counters: AuditCounters::default() }
    }

    /// Writes the metrics in the text format of Prometheus.
    pub(in crate::engine) fn write_metrics(&self, to: &mut String) -> fmt::Result {
        self.counters.write_metrics(to)
    }

    /// Returns the retention limits of the log.
    pub(in crate::engine) fn kept(&self) -> AuditRetention {
        let keep = self.keep.map(millis);
        let since_ms = keep.map_or(0, |keep| self.clock.now().0.saturating_sub(keep));
        AuditRetention { since_ms, most: self.most.max(1) }
    }

    /// Adds the audit entry of `act` to its changes. After their commit the context must be
    /// [settled](Self::committed).
    pub(in crate::engine) fn add(&self, act: &AuditedRequest, changes: &mut Changes) {
        self.put_entry(act.record(self.clock.now(), AuditOutcome::Done, None), changes);
        if let Some(keyed) = act.keyed.clone() {
            // An action on no job gets the id of an impossible one.
            let job = act.said().job.as_deref().and_then(JobId::parse);
            changes.idempotency(self.keys.stored_form(keyed), job.unwrap_or(JobId([0; 16])));
        }
    }

    /// Settles a context whose changes and entry are on the disk, or certain to get there.
    pub(in crate::engine) fn committed(&self, act: &AuditedRequest) {
        act.settle();
        act.report(AuditOutcome::Done, None);
        self.counters.done.fetch_add(1, Relaxed);
    }

    fn put_entry(&self, record: AuditRecord, changes: &mut Changes) {
        changes.audit(record);
        changes.forget_audit(self.kept());
    }

    /// Writes the outcome of an action that has no entry yet, and returns when it is on the disk.
    ///
    /// Returns an error if the entry could not be written and the action requires it.
    pub(crate) async fn log_rest(
        &self,
        act: &AuditedRequest,
        answered: ActionAnswer<'_>,
    ) -> Result<(), RequestError> {
        if act.said().is_settled {
            return Ok(());
        }
        let now = self.clock.now();
        let (count, outcome, problem) = match answered {
            ActionAnswer::Well => (&self.counters.unchanged, AuditOutcome::Unchanged, None),
            ActionAnswer::Refused(code) => {
                (&self.counters.refused, AuditOutcome::Refused, Some(code))
            }
            ActionAnswer::Denied => {
                (&self.counters.denied, AuditOutcome::Refused, Some("forbidden"))
            }
        };
        count.fetch_add(1, Relaxed);
        act.report(outcome, problem);
        if matches!(answered, ActionAnswer::Denied) && !self.counters.is_first_denied(&act.who, now)
        {
            return Ok(());
        }
        let mut changes = Changes::new();
        self.put_entry(act.record(now, outcome, problem), &mut changes);
        match self.store.submit(changes).await {
            Ok(_) => Ok(()),
            Err(error) if outcome == AuditOutcome::Refused => {
                // The request was refused and nothing was done: a full disk must not change that
                // answer.
                tracing::warn!(%error, "the audit entry of a refused action was not written");
                Ok(())
            }
            Err(error) => Err(self.status.write_refused(error)),
        }
    }

    /// Returns a page of the log, the newest entries first. Reads the store.
    pub(crate) fn page(
        &self,
        filter: &AuditFilter,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Page<AuditEntry>, RequestError> {
        let page = self.store.audit(filter, before, limit);
        let page = page.map_err(read_refused)?;
        let items = page.rows.into_iter().map(AuditEntry::of).collect();
        Ok(Page::new(items, page.next.map(|next| next.to_string())))
    }

    /// Returns the log's name for the job with this id or client id. Reads the store.
    pub(crate) fn job_name(query: &Query, text: &str) -> String {
        query.resolve(text).map_or_else(|_| cut_text(text, MAX_NAME_BYTES), |id| id.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_refusal_an_hour_of_each_token_is_written() {
        let audit = AuditCounters::default();
        let is_first = |who, at| audit.is_first_denied(who, Timestamp(at));
        assert!(is_first("a", 5) && is_first("b", 5));
        assert!(!is_first("a", 6) && !is_first("a", DENIED_MS + 4));
        assert!(is_first("a", DENIED_MS + 5) && !is_first("a", DENIED_MS + 6));
    }
}
