//! Audit log: records every operator action with its time, caller, target and outcome.
//!
//! **An action and its entry are committed together, or neither is**: the entry is one of the
//! changes that the action submits to the store, in one transaction with the others. An action that
//! changes nothing on the disk, or that was refused, has a transaction of its own. Either way the
//! entry is on the disk before the action is answered.
//!
//! An [`Act`] accompanies a request through the engine. The code that creates the
//! request's changes adds the entry to them ([`Core::log`]), and then the context is *settled*. A
//! context that comes back unsettled, because the request was refused or had nothing to do, is
//! written before the answer ([`Core::log_rest`]). So each action has one entry, and a request that
//! only repeats an earlier answer (by its idempotency key) has none.
//!
//! **The log is bounded**: by age, and by a number of entries that each new one enforces. An entry
//! is small, because all texts are cut, and payloads are never logged. A caller without the
//! required role cannot displace other entries: such refusals are counted, and one per hour and
//! token is written.

use std::collections::HashMap;
use std::fmt::{self, Write};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::again::Keyed;
use super::{Core, Refused};
use crate::JobId;
use crate::store::{AuditFilter, AuditKept, AuditRecord, AuditRow, Changes};
use crate::wire::{AuditEntry, AuditOutcome, Page, Timestamp};

/// Maximum length of the name of a job, a key or a schedule, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// Maximum length of a reason, in bytes.
const MAX_REASON_BYTES: usize = 1024;

/// Maximum length of the parameters, in bytes. Of larger parameters only the names are kept.
const MAX_PARAMETER_BYTES: usize = 2048;

/// Interval in milliseconds after a written refusal in which further refusals of that token for
/// lack of a role are only counted.
const DENIED_MS: u64 = 3_600_000;

/// Action of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    CancelJob,
    PauseJob,
    ResumeJob,
    RetryJob,
    PatchJob,
    PurgeJob,
    /// Command on a key that is not parsed yet.
    SteerKey,
    PauseKey,
    ResumeKey,
    RetryHead,
    SkipHead,
    PutSchedule,
    DeleteSchedule,
    PauseSchedule,
    ResumeSchedule,
    RunSchedule,
}

impl Action {
    pub(crate) const ALL: [Action; 16] = [
        Action::CancelJob,
        Action::PauseJob,
        Action::ResumeJob,
        Action::RetryJob,
        Action::PatchJob,
        Action::PurgeJob,
        Action::SteerKey,
        Action::PauseKey,
        Action::ResumeKey,
        Action::RetryHead,
        Action::SkipHead,
        Action::PutSchedule,
        Action::DeleteSchedule,
        Action::PauseSchedule,
        Action::ResumeSchedule,
        Action::RunSchedule,
    ];

    /// Returns the name of the action in the log.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Action::CancelJob => "job.cancel",
            Action::PauseJob => "job.pause",
            Action::ResumeJob => "job.resume",
            Action::RetryJob => "job.retry",
            Action::PatchJob => "job.patch",
            Action::PurgeJob => "job.purge",
            Action::SteerKey => "key.steer",
            Action::PauseKey => "key.pause",
            Action::ResumeKey => "key.resume",
            Action::RetryHead => "key.retry-head",
            Action::SkipHead => "key.skip-head",
            Action::PutSchedule => "schedule.put",
            Action::DeleteSchedule => "schedule.delete",
            Action::PauseSchedule => "schedule.pause",
            Action::ResumeSchedule => "schedule.resume",
            Action::RunSchedule => "schedule.run",
        }
    }
}

/// Operator request on its way through the service.
#[derive(Debug)]
pub(crate) struct Act {
    who: String,
    from: Option<IpAddr>,
    /// Its idempotency key.
    keyed: Option<Keyed>,
    /// Known content of the entry. No code panics while it holds this lock.
    said: Mutex<AuditDraft>,
}

#[derive(Clone, Debug)]
struct AuditDraft {
    action: Action,
    job: Option<String>,
    key: Option<String>,
    schedule: Option<String>,
    reason: Option<String>,
    parameters: Option<Value>,
    /// The entry is on its way to the disk, or the request needs none.
    is_settled: bool,
}

/// Stored content of an entry, besides the searchable columns.
#[derive(Debug, Serialize, Deserialize)]
struct AuditPayload {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    schedule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    parameters: Option<Value>,
    outcome: AuditOutcome,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    problem: Option<String>,
}

/// Cuts a text to `most` bytes; the cut is marked.
fn cut(text: &str, most: usize) -> String {
    const CUT: &str = "…";
    match text.len() <= most {
        true => text.to_owned(),
        false => text[..text.floor_char_boundary(most - CUT.len())].to_owned() + CUT,
    }
}

impl Act {
    pub(crate) fn new(who: &str, from: Option<IpAddr>, action: Action) -> Self {
        let said = AuditDraft {
            action,
            job: None,
            key: None,
            schedule: None,
            reason: None,
            parameters: None,
            is_settled: false,
        };
        Act { who: cut(who, MAX_NAME_BYTES), from, keyed: None, said: Mutex::new(said) }
    }

    /// Sets the idempotency key.
    pub(crate) fn keyed(self, keyed: Option<Keyed>) -> Self {
        Act { keyed, ..self }
    }

    /// Creates the context of an action by the program that embeds the service.
    pub(crate) fn in_process(action: Action) -> Self {
        Act::new("in-process", None, action)
    }

    fn said(&self) -> MutexGuard<'_, AuditDraft> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is(&self, action: Action) {
        self.said().action = action;
    }

    pub(crate) fn on_job(&self, job: impl fmt::Display) {
        self.said().job = Some(cut(&job.to_string(), MAX_NAME_BYTES));
    }

    /// Removes the job, because none was created.
    pub(super) fn on_no_job(&self) {
        self.said().job = None;
    }

    pub(crate) fn on_key(&self, key: &str) {
        self.said().key = Some(cut(key, MAX_NAME_BYTES));
    }

    pub(crate) fn on_schedule(&self, name: &str) {
        self.said().schedule = Some(cut(name, MAX_NAME_BYTES));
    }

    pub(crate) fn because(&self, reason: Option<&str>) {
        self.said().reason = reason.map(|reason| cut(reason, MAX_REASON_BYTES));
    }

    /// Sets the request parameters: an object without payloads. Absent values are left out.
    pub(crate) fn with(&self, mut parameters: Value) {
        if let Value::Object(fields) = &mut parameters {
            fields.retain(|_, value| !value.is_null());
        }
        let is_small = parameters.to_string().len() <= MAX_PARAMETER_BYTES;
        let names = |parameters: &Value| {
            let names = parameters.as_object().into_iter().flat_map(serde_json::Map::keys);
            json!({"too_large": names.collect::<Vec<_>>()})
        };
        let kept = if is_small { parameters } else { names(&parameters) };
        self.said().parameters = Some(kept);
    }

    /// Marks the context as settled: its entry is written, or it needs none.
    pub(super) fn settle(&self) {
        self.said().is_settled = true;
    }

    fn record(&self, at: Timestamp, outcome: AuditOutcome, problem: Option<&str>) -> AuditRecord {
        let AuditDraft { action, job, key, schedule, reason, parameters, .. } = self.said().clone();
        let (who, what) = (self.who.clone(), action.word());
        let from = self.from.map(|from| from.to_string());
        let problem = problem.map(str::to_owned);
        let body = AuditPayload { from, key, schedule, reason, parameters, outcome, problem };
        let body = serde_json::to_vec(&body).expect("an entry can be written as JSON");
        AuditRecord { at_ms: at.0, who, what: what.to_owned(), job, body }
    }

    /// Reports the outcome in the server's own log.
    fn report(&self, outcome: AuditOutcome, problem: Option<&str>) {
        let AuditDraft { action, job, key, schedule, reason, .. } = self.said().clone();
        let (caller, what) = (&*self.who, action.word());
        tracing::info!(caller, what, job, key, schedule, reason, ?outcome, problem, "operator");
    }
}

impl AuditEntry {
    fn of(row: AuditRow) -> Self {
        let AuditRow { number, record, is_whole } = row;
        let body = serde_json::from_slice(&record.body).ok().filter(|_| is_whole);
        let body = body.unwrap_or(AuditPayload {
            from: None,
            key: None,
            schedule: None,
            reason: None,
            parameters: None,
            outcome: AuditOutcome::Damaged,
            problem: None,
        });
        let AuditRecord { at_ms, who, what, job, .. } = record;
        let AuditPayload { from, key, schedule, reason, parameters, outcome, problem } = body;
        let at = Timestamp(at_ms);
        #[rustfmt::skip]
        let entry = AuditEntry {
            number, at, who, from, what, job, key, schedule, reason, parameters, outcome, problem,
        };
        entry
    }
}

/// Outcome of an action, as it was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answered<'a> {
    /// The action was done, or there was nothing to do.
    Well,
    /// The action was refused with this problem code.
    Refused(&'a str),
    /// The caller has no role that allows the action.
    Denied,
}

/// Counters since the start, and the time of the last logged refusal per token.
#[derive(Debug, Default)]
pub(super) struct Audit {
    done: AtomicU64,
    unchanged: AtomicU64,
    refused: AtomicU64,
    denied: AtomicU64,
    /// Time of the last logged refusal for lack of a role, by token name: at most as many as there
    /// are tokens. No code panics while it holds this lock.
    last_denied: Mutex<HashMap<String, u64>>,
}

impl Audit {
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
    pub(super) fn write_metrics(&self, to: &mut String) -> fmt::Result {
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

impl Core {
    /// Returns the retention limits of the log.
    pub(super) fn kept_audit(&self) -> AuditKept {
        let keep = self.settings.keep_audit.map(super::dispatch::millis);
        let since_ms = keep.map_or(0, |keep| self.clock.now().0.saturating_sub(keep));
        AuditKept { since_ms, most: self.settings.most_audit.max(1) }
    }

    /// Adds the audit entry of `act` to its changes. After their commit the context must be
    /// [settled](Self::was_done).
    pub(super) fn log(&self, act: &Act, changes: &mut Changes) {
        self.put_entry(act.record(self.clock.now(), AuditOutcome::Done, None), changes);
        if let Some(keyed) = act.keyed.clone() {
            // An action on no job gets the id of an impossible one.
            let job = act.said().job.as_deref().and_then(JobId::parse);
            changes.idempotency(self.kept_key(keyed), job.unwrap_or(JobId([0; 16])));
        }
    }

    /// Settles a context whose changes and entry are on the disk, or certain to get there.
    pub(super) fn was_done(&self, act: &Act) {
        act.settle();
        act.report(AuditOutcome::Done, None);
        self.audit.done.fetch_add(1, Relaxed);
    }

    fn put_entry(&self, record: AuditRecord, changes: &mut Changes) {
        changes.audit(record);
        changes.forget_audit(self.kept_audit());
    }

    /// Writes the outcome of an action that has no entry yet, and returns when it is on the disk.
    ///
    /// Returns an error if the entry could not be written and the action requires it.
    pub(crate) async fn log_rest(&self, act: &Act, answered: Answered<'_>) -> Result<(), Refused> {
        if act.said().is_settled {
            return Ok(());
        }
        let now = self.clock.now();
        let (count, outcome, problem) = match answered {
            Answered::Well => (&self.audit.unchanged, AuditOutcome::Unchanged, None),
            Answered::Refused(code) => (&self.audit.refused, AuditOutcome::Refused, Some(code)),
            Answered::Denied => (&self.audit.denied, AuditOutcome::Refused, Some("forbidden")),
        };
        count.fetch_add(1, Relaxed);
        act.report(outcome, problem);
        if matches!(answered, Answered::Denied) && !self.audit.is_first_denied(&act.who, now) {
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
            Err(error) => Err(self.write_refused(error)),
        }
    }

    /// Returns a page of the log, the newest entries first. Reads the store.
    pub(crate) fn audit_page(
        &self,
        filter: &AuditFilter,
        before: Option<u64>,
        limit: usize,
    ) -> Result<Page<AuditEntry>, Refused> {
        let page = self.store.audit(filter, before, limit);
        let page = page.map_err(|error| self.read_refused(error))?;
        let items = page.rows.into_iter().map(AuditEntry::of).collect();
        Ok(Page::new(items, page.next.map(|next| next.to_string())))
    }

    /// Returns the log's name for the job with this id or client id. Reads the store.
    pub(crate) fn audited_job(&self, text: &str) -> String {
        self.resolve(text).map_or_else(|_| cut(text, MAX_NAME_BYTES), |id| id.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_longer_than_its_bound() {
        for (text, most, cut_to) in
            [("abc", 3, "abc"), ("abcd", 3, "…"), ("aééé", 6, "aé…"), ("", 3, "")]
        {
            assert_eq!(cut(text, most), cut_to);
        }
        let act = Act::new(&"w".repeat(9999), None, Action::CancelJob);
        act.on_job("j".repeat(9999));
        act.on_key(&"ü".repeat(9999));
        act.on_schedule(&"s".repeat(9999));
        act.because(Some(&"\u{1}".repeat(9999)));
        act.with(json!({"labels": "l".repeat(9999), "weight": 3}));
        let record = act.record(Timestamp(1), AuditOutcome::Refused, Some("conflict"));
        let body: Value = serde_json::from_slice(&record.body).unwrap();
        assert_eq!(body["parameters"], json!({"too_large": ["labels", "weight"]}));
        // JSON escapes take up to six bytes per byte.
        assert!(record.body.len() < 8 * 1024, "{}", record.body.len());
        assert!(record.who.len() + record.job.unwrap().len() <= 512);
    }

    #[test]
    fn one_refusal_an_hour_of_each_token_is_written() {
        let audit = Audit::default();
        let is_first = |who, at| audit.is_first_denied(who, Timestamp(at));
        assert!(is_first("a", 5) && is_first("b", 5));
        assert!(!is_first("a", 6) && !is_first("a", DENIED_MS + 4));
        assert!(is_first("a", DENIED_MS + 5) && !is_first("a", DENIED_MS + 6));
    }

    #[test]
    fn words_are_there_once() {
        let mut words = Action::ALL.map(Action::word);
        words.sort_unstable();
        assert!(words.windows(2).all(|two| two[0] != two[1]));
    }
}
