//! The log of what operators have done: who, when, what, to what, and what came of it.
//!
//! **An action and its entry are on the disk together, or neither is**: the entry is one of the changes that the
//! action hands to the store, in one transaction with the others. What changes nothing on the disk, and what was
//! refused, has a transaction of its own. Either way the entry is on the disk before the action is answered.
//!
//! An [`Act`] goes with a request through the engine. Whoever makes its changes puts the entry beside them
//! ([`Core::log`]), and then the act is *settled*. What comes back unsettled, because it was refused or because there
//! was nothing to do, is written before the answer ([`Core::log_rest`]). So there is one entry for each action, and a
//! request that was only answered again (the same idempotency key) has none of its own.
//!
//! **The log is bounded**: by age, and by a number of entries, which each new one enforces. An entry is small, for
//! all texts are cut, and payloads never get into it. Those who lack the role for what they ask cannot push others'
//! entries out: such refusals are counted, and one an hour of each token is written.

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

/// Bytes of a name: of a job, a key, a schedule.
const MOST_NAME_BYTES: usize = 256;

/// Bytes of a reason.
const MOST_REASON_BYTES: usize = 1024;

/// Bytes of the parameters; of larger ones only their names are kept.
const MOST_PARAMETER_BYTES: usize = 2048;

/// For how long other refusals for want of a role are only counted, when one of the same token was written.
const DENIED_MS: u64 = 3_600_000;

/// What operators do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    CancelJob,
    PauseJob,
    ResumeJob,
    RetryJob,
    PatchJob,
    PurgeJob,
    /// Something with a key; what, is not known yet.
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

    /// As it is in the log.
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

/// Something that an operator asks for, on its way through the service.
#[derive(Debug)]
pub(crate) struct Act {
    who: String,
    from: Option<IpAddr>,
    /// Its idempotency key.
    keyed: Option<Keyed>,
    /// What is known of it by now. Nothing unwinds while it is locked.
    said: Mutex<Said>,
}

#[derive(Clone, Debug)]
struct Said {
    action: Action,
    job: Option<String>,
    key: Option<String>,
    schedule: Option<String>,
    reason: Option<String>,
    parameters: Option<Value>,
    /// Its entry is on its way to the disk, or it is not to have one.
    is_settled: bool,
}

/// What the store keeps of an entry, besides what can be searched for.
#[derive(Debug, Serialize, Deserialize)]
struct Body {
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

/// A text of at most so many bytes, which says that it was cut if it was.
fn cut(text: &str, most: usize) -> String {
    const CUT: &str = "…";
    match text.len() <= most {
        true => text.to_owned(),
        false => text[..text.floor_char_boundary(most - CUT.len())].to_owned() + CUT,
    }
}

impl Act {
    pub(crate) fn new(who: &str, from: Option<IpAddr>, action: Action) -> Self {
        let said = Said {
            action,
            job: None,
            key: None,
            schedule: None,
            reason: None,
            parameters: None,
            is_settled: false,
        };
        Act { who: cut(who, MOST_NAME_BYTES), from, keyed: None, said: Mutex::new(said) }
    }

    /// Under this idempotency key.
    pub(crate) fn keyed(self, keyed: Option<Keyed>) -> Self {
        Act { keyed, ..self }
    }

    /// Of the program that embeds the service.
    pub(crate) fn in_process(action: Action) -> Self {
        Act::new("in-process", None, action)
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is(&self, action: Action) {
        self.said().action = action;
    }

    pub(crate) fn on_job(&self, job: impl fmt::Display) {
        self.said().job = Some(cut(&job.to_string(), MOST_NAME_BYTES));
    }

    /// No job was made.
    pub(super) fn on_no_job(&self) {
        self.said().job = None;
    }

    pub(crate) fn on_key(&self, key: &str) {
        self.said().key = Some(cut(key, MOST_NAME_BYTES));
    }

    pub(crate) fn on_schedule(&self, name: &str) {
        self.said().schedule = Some(cut(name, MOST_NAME_BYTES));
    }

    pub(crate) fn because(&self, reason: Option<&str>) {
        self.said().reason = reason.map(|reason| cut(reason, MOST_REASON_BYTES));
    }

    /// How it was asked for: an object, without payloads. What was not said is left out.
    pub(crate) fn with(&self, mut parameters: Value) {
        if let Value::Object(fields) = &mut parameters {
            fields.retain(|_, value| !value.is_null());
        }
        let is_small = parameters.to_string().len() <= MOST_PARAMETER_BYTES;
        let names = |parameters: &Value| {
            let names = parameters.as_object().into_iter().flat_map(serde_json::Map::keys);
            json!({"too_large": names.collect::<Vec<_>>()})
        };
        let kept = if is_small { parameters } else { names(&parameters) };
        self.said().parameters = Some(kept);
    }

    /// It has its entry, or is not to have one.
    pub(super) fn settle(&self) {
        self.said().is_settled = true;
    }

    fn record(&self, at: Timestamp, outcome: AuditOutcome, problem: Option<&str>) -> AuditRecord {
        let Said { action, job, key, schedule, reason, parameters, .. } = self.said().clone();
        let (who, what) = (self.who.clone(), action.word());
        let from = self.from.map(|from| from.to_string());
        let problem = problem.map(str::to_owned);
        let body = Body { from, key, schedule, reason, parameters, outcome, problem };
        let body = serde_json::to_vec(&body).expect("an entry can be written as JSON");
        AuditRecord { at_ms: at.0, who, what: what.to_owned(), job, body }
    }

    /// Says in the server's own log what has come of it.
    fn tell(&self, outcome: AuditOutcome, problem: Option<&str>) {
        let Said { action, job, key, schedule, reason, .. } = self.said().clone();
        let (caller, what) = (&*self.who, action.word());
        tracing::info!(caller, what, job, key, schedule, reason, ?outcome, problem, "operator");
    }
}

impl AuditEntry {
    fn of(row: AuditRow) -> Self {
        let AuditRow { number, record, is_whole } = row;
        let body = serde_json::from_slice(&record.body).ok().filter(|_| is_whole);
        let body = body.unwrap_or(Body {
            from: None,
            key: None,
            schedule: None,
            reason: None,
            parameters: None,
            outcome: AuditOutcome::Damaged,
            problem: None,
        });
        let AuditRecord { at_ms, who, what, job, .. } = record;
        let Body { from, key, schedule, reason, parameters, outcome, problem } = body;
        let at = Timestamp(at_ms);
        #[rustfmt::skip]
        let entry = AuditEntry {
            number, at, who, from, what, job, key, schedule, reason, parameters, outcome, problem,
        };
        entry
    }
}

/// What came of an act, as it was answered.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Answered<'a> {
    /// It was done, or there was nothing to do.
    Well,
    /// It was refused, with the code of this problem.
    Refused(&'a str),
    /// Its caller has no role that allows it.
    Denied,
}

/// What was counted since the start, and which refusals were written lately.
#[derive(Debug, Default)]
pub(super) struct Audit {
    done: AtomicU64,
    unchanged: AtomicU64,
    refused: AtomicU64,
    denied: AtomicU64,
    /// When a refusal for want of a role was written last, by the token's name: there are as many as tokens. Nothing
    /// unwinds while it is locked.
    last_denied: Mutex<HashMap<String, u64>>,
}

impl Audit {
    /// Whether this refusal is to be written.
    fn is_first_denied(&self, who: &str, now: Timestamp) -> bool {
        let mut last = self.last_denied.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = last.get(who).is_none_or(|last| now.0 - last >= DENIED_MS);
        if is_first {
            last.insert(who.to_owned(), now.0);
        }
        is_first
    }

    /// In the text format of Prometheus.
    pub(super) fn write_metrics(&self, to: &mut String) -> fmt::Result {
        writeln!(to, "# HELP keylane_operator_actions_total What operators have asked for.")?;
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
    /// Which entries are kept.
    pub(super) fn kept_audit(&self) -> AuditKept {
        let keep = self.settings.keep_audit.map(super::dispatch::millis);
        let since_ms = keep.map_or(0, |keep| self.clock.now().0.saturating_sub(keep));
        AuditKept { since_ms, most: self.settings.most_audit.max(1) }
    }

    /// Puts the entry of what these changes do beside them. When they are on the disk it is to be
    /// [settled](Self::was_done).
    pub(super) fn log(&self, act: &Act, changes: &mut Changes) {
        self.put_entry(act.record(self.clock.now(), AuditOutcome::Done, None), changes);
        if let Some(keyed) = act.keyed.clone() {
            // What is about no job is about one that there cannot be.
            let job = act.said().job.as_deref().and_then(JobId::parse);
            changes.idempotency(self.kept_key(keyed), job.unwrap_or(JobId([0; 16])));
        }
    }

    /// What was asked for is on the disk, with its entry; or both will be, whatever comes.
    pub(super) fn was_done(&self, act: &Act) {
        act.settle();
        act.tell(AuditOutcome::Done, None);
        self.audit.done.fetch_add(1, Relaxed);
    }

    fn put_entry(&self, record: AuditRecord, changes: &mut Changes) {
        changes.audit(record);
        changes.forget_audit(self.kept_audit());
    }

    /// Writes what came of an act that has no entry yet; returns when that is on the disk. Errors if it could not be
    /// written, and matters.
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
        act.tell(outcome, problem);
        if matches!(answered, Answered::Denied) && !self.audit.is_first_denied(&act.who, now) {
            return Ok(());
        }
        let mut changes = Changes::new();
        self.put_entry(act.record(now, outcome, problem), &mut changes);
        match self.store.submit(changes).await {
            Ok(_) => Ok(()),
            Err(error) if outcome == AuditOutcome::Refused => {
                // Nothing was done, and that was answered; a full disk must not become another answer.
                tracing::warn!(%error, "that an operator was refused was not written");
                Ok(())
            }
            Err(error) => Err(self.write_refused(error)),
        }
    }

    /// Entries of the log, the newest first. It reads.
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

    /// What a job is called in the log, whose id or name this is. It reads.
    pub(crate) fn audited_job(&self, text: &str) -> String {
        self.resolve(text).map_or_else(|_| cut(text, MOST_NAME_BYTES), |id| id.to_string())
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
        // What JSON escapes has six bytes each.
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
