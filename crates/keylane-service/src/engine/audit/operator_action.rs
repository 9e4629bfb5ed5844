//! Operator requests on their way through the service, and their entries.

use std::fmt;
use std::net::IpAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::engine::cut_text::cut_text;
use crate::engine::idempotency::KeyedRequest;
use crate::store::AuditRecord;
use crate::wire::{AuditOutcome, Timestamp};

/// Maximum length of the name of a job, a key or a schedule, in bytes.
pub(super) const MAX_NAME_BYTES: usize = 256;

/// Maximum length of a reason, in bytes.
const MAX_REASON_BYTES: usize = 1024;

/// Maximum length of the parameters, in bytes. Of larger parameters only the names are kept.
const MAX_PARAMETER_BYTES: usize = 2048;

/// Action of an operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OperatorAction {
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
    PauseKind,
    ResumeKind,
    PatchKind,
    ResetKind,
    RetryWebhook,
    RemoveWebhook,
    BackUp,
    DrainNode,
    ResumeNode,
}

impl OperatorAction {
    pub(crate) const ALL: [OperatorAction; 25] = [
        OperatorAction::CancelJob,
        OperatorAction::PauseJob,
        OperatorAction::ResumeJob,
        OperatorAction::RetryJob,
        OperatorAction::PatchJob,
        OperatorAction::PurgeJob,
        OperatorAction::SteerKey,
        OperatorAction::PauseKey,
        OperatorAction::ResumeKey,
        OperatorAction::RetryHead,
        OperatorAction::SkipHead,
        OperatorAction::PutSchedule,
        OperatorAction::DeleteSchedule,
        OperatorAction::PauseSchedule,
        OperatorAction::ResumeSchedule,
        OperatorAction::RunSchedule,
        OperatorAction::PauseKind,
        OperatorAction::ResumeKind,
        OperatorAction::PatchKind,
        OperatorAction::ResetKind,
        OperatorAction::RetryWebhook,
        OperatorAction::RemoveWebhook,
        OperatorAction::BackUp,
        OperatorAction::DrainNode,
        OperatorAction::ResumeNode,
    ];

    /// Returns the name of the action in the log.
    pub(crate) fn word(self) -> &'static str {
        match self {
            OperatorAction::CancelJob => "job.cancel",
            OperatorAction::PauseJob => "job.pause",
            OperatorAction::ResumeJob => "job.resume",
            OperatorAction::RetryJob => "job.retry",
            OperatorAction::PatchJob => "job.patch",
            OperatorAction::PurgeJob => "job.purge",
            OperatorAction::SteerKey => "key.steer",
            OperatorAction::PauseKey => "key.pause",
            OperatorAction::ResumeKey => "key.resume",
            OperatorAction::RetryHead => "key.retry-head",
            OperatorAction::SkipHead => "key.skip-head",
            OperatorAction::PutSchedule => "schedule.put",
            OperatorAction::DeleteSchedule => "schedule.delete",
            OperatorAction::PauseSchedule => "schedule.pause",
            OperatorAction::ResumeSchedule => "schedule.resume",
            OperatorAction::RunSchedule => "schedule.run",
            OperatorAction::PauseKind => "kind.pause",
            OperatorAction::ResumeKind => "kind.resume",
            OperatorAction::PatchKind => "kind.patch",
            OperatorAction::ResetKind => "kind.reset",
            OperatorAction::RetryWebhook => "webhook.retry",
            OperatorAction::RemoveWebhook => "webhook.remove",
            OperatorAction::BackUp => "store.backup",
            OperatorAction::DrainNode => "node.drain",
            OperatorAction::ResumeNode => "node.resume",
        }
    }
}

/// Operator request on its way through the service.
#[derive(Debug)]
pub(crate) struct AuditedRequest {
    pub(super) who: String,
    from: Option<IpAddr>,
    /// Its idempotency key.
    pub(super) keyed: Option<KeyedRequest>,
    /// Known content of the entry. No code panics while it holds this lock.
    said: Mutex<AuditDraft>,
}

#[derive(Clone, Debug)]
pub(super) struct AuditDraft {
    action: OperatorAction,
    pub(super) job: Option<String>,
    key: Option<String>,
    schedule: Option<String>,
    kind: Option<String>,
    reason: Option<String>,
    parameters: Option<Value>,
    /// The entry is on its way to the disk, or the request needs none.
    pub(super) is_settled: bool,
}

/// Stored content of an entry, besides the searchable columns.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct AuditPayload {
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) key: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) schedule: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) kind: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) parameters: Option<Value>,
    pub(super) outcome: AuditOutcome,
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub(super) problem: Option<String>,
}

impl AuditedRequest {
    pub(crate) fn new(who: &str, from: Option<IpAddr>, action: OperatorAction) -> Self {
        let said = AuditDraft {
            action,
            job: None,
            key: None,
            schedule: None,
            kind: None,
            reason: None,
            parameters: None,
            is_settled: false,
        };
        AuditedRequest {
            who: cut_text(who, MAX_NAME_BYTES),
            from,
            keyed: None,
            said: Mutex::new(said),
        }
    }

    /// Sets the idempotency key.
    pub(crate) fn keyed(self, keyed: Option<KeyedRequest>) -> Self {
        AuditedRequest { keyed, ..self }
    }

    /// Creates the context of an action by the program that embeds the service.
    pub(crate) fn in_process(action: OperatorAction) -> Self {
        AuditedRequest::new("in-process", None, action)
    }

    pub(super) fn said(&self) -> MutexGuard<'_, AuditDraft> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is(&self, action: OperatorAction) {
        self.said().action = action;
    }

    pub(crate) fn on_job(&self, job: impl fmt::Display) {
        self.said().job = Some(cut_text(&job.to_string(), MAX_NAME_BYTES));
    }

    /// Removes the job, because none was created.
    pub(in crate::engine) fn on_no_job(&self) {
        self.said().job = None;
    }

    pub(crate) fn on_key(&self, key: &str) {
        self.said().key = Some(cut_text(key, MAX_NAME_BYTES));
    }

    pub(crate) fn on_schedule(&self, name: &str) {
        self.said().schedule = Some(cut_text(name, MAX_NAME_BYTES));
    }

    pub(crate) fn on_kind(&self, name: &str) {
        self.said().kind = Some(cut_text(name, MAX_NAME_BYTES));
    }

    pub(crate) fn because(&self, reason: Option<&str>) {
        self.said().reason = reason.map(|reason| cut_text(reason, MAX_REASON_BYTES));
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
    pub(in crate::engine) fn settle(&self) {
        self.said().is_settled = true;
    }

    pub(super) fn record(
        &self,
        at: Timestamp,
        outcome: AuditOutcome,
        problem: Option<&str>,
    ) -> AuditRecord {
        let AuditDraft { action, job, key, schedule, kind, reason, parameters, .. } =
            self.said().clone();
        let (who, what) = (self.who.clone(), action.word());
        let from = self.from.map(|from| from.to_string());
        let problem = problem.map(str::to_owned);
        let body = AuditPayload { from, key, schedule, kind, reason, parameters, outcome, problem };
        let body = serde_json::to_vec(&body).expect("an entry can be written as JSON");
        AuditRecord { at_ms: at.0, who, what: what.to_owned(), job, body }
    }

    /// Reports the outcome in the server's own log.
    pub(super) fn report(&self, outcome: AuditOutcome, problem: Option<&str>) {
        let AuditDraft { action, job, key, schedule, kind, reason, .. } = self.said().clone();
        let (caller, what) = (&*self.who, action.word());
        tracing::info!(
            caller,
            what,
            job,
            key,
            schedule,
            kind,
            reason,
            ?outcome,
            problem,
            "operator"
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_text_is_longer_than_its_bound() {
        let act = AuditedRequest::new(&"w".repeat(9999), None, OperatorAction::CancelJob);
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
    fn words_are_there_once() {
        let mut words = OperatorAction::ALL.map(OperatorAction::word);
        words.sort_unstable();
        assert!(words.windows(2).all(|two| two[0] != two[1]));
    }
}
