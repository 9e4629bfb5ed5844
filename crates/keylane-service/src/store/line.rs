//! Lines of an export: one JSON object each, with a last line that proves completeness.
//!
//! The first line is `store`, the last one `end`, with the number of jobs; an export without it is
//! incomplete. Between them are `key`, `idempotency`, `alias`, `schedule` and `audit`; and for each
//! job, in the order in which they entered, `job`, its `subtask`s in order, its `outcome`s in
//! order, the `log`s of its attempts, the `mark`s of unfinished attempts, and `status`, which ends
//! the job. Bytes are base64 with padding, times milliseconds since 1970.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};

use super::alias::JobAlias;
use super::audit::{AuditRecord, AuditRow};
use super::change::{IdempotencyEntry, KeyBlockReason, KeyRecord, NewJob};
use super::job_status::{JobState, JobStatus, OutcomeCounts};
use super::live_settings::LiveSetting;
use super::logs::AttemptLog;
use super::outcome::{OutcomeKind, SubtaskOutcome};
use super::schedules::ScheduleRecord;
use super::started_attempts::{self, AttemptStage};
use crate::ids::{JobId, Key};

/// Version of the lines. Version 1 has no `schedule`; `alias` came in version 3, `audit` in 4,
/// `log` in 5, and `mark`, with `boot` in `store`, in 6; `shared_keys` of
/// a `subtask` in 7; the outcome `superseded`, with its count, in 8; `setting` in 9.
pub(super) const VERSION: u32 = 9;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub(super) enum ExportLine {
    Store {
        version: u32,
        /// Boot number of the opening that wrote the export.
        #[serde(default)]
        boot: u64,
    },
    Key {
        key: String,
        state: String,
        since_ms: u64,
        reason: String,
    },
    Idempotency {
        scope: String,
        key: String,
        body_hash: String,
        id: String,
        expires_ms: u64,
    },
    Alias {
        name: String,
        id: String,
        body_hash: String,
    },
    Schedule {
        name: String,
        version: u64,
        body: String,
    },
    Setting {
        name: String,
        body: String,
    },
    Audit {
        number: u64,
        at_ms: u64,
        who: String,
        what: String,
        job: Option<String>,
        body: String,
    },
    Job {
        id: String,
        kind: String,
        created_ms: u64,
        total: u32,
        head: String,
        status: StatusLine,
    },
    Subtask {
        keys: Vec<String>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        shared_keys: Vec<String>,
        payload: String,
    },
    Outcome {
        number: u32,
        attempt: u32,
        kind: String,
        started_ms: u64,
        ended_ms: u64,
        result: String,
    },
    Log {
        number: u32,
        fence: u64,
        attempt: u32,
        kind: String,
        started_ms: u64,
        ended_ms: u64,
        left_out: u64,
        text: String,
    },
    Mark(AttemptLine),
    Status(StatusLine),
    End {
        jobs: u64,
    },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct StatusLine {
    state: String,
    start_at_ms: Option<u64>,
    started_ms: Option<u64>,
    ended_ms: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    version: Option<u64>,
    succeeded: u32,
    failed: u32,
    cancelled: u32,
    skipped: u32,
    #[serde(default, skip_serializing_if = "is_zero")]
    superseded: u32,
}

fn is_zero(count: &u32) -> bool {
    *count == 0
}

/// Latest attempt at an unfinished subtask. A lease is not exported: the importing server tries its
/// subtask again.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct AttemptLine {
    number: u32,
    attempt: u32,
    /// Time of the failure, if the attempt failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    since_ms: Option<u64>,
    /// Wait until the next attempt, if there is to be one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    wait_ms: Option<u64>,
    /// Reason of the failure, if it was kept.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
}

impl AttemptLine {
    pub(super) fn of(number: u32, mark: &started_attempts::LatestAttempt) -> Self {
        let attempt = mark.attempt;
        let plain = AttemptLine { number, attempt, since_ms: None, wait_ms: None, reason: None };
        match &mark.stage {
            AttemptStage::Started | AttemptStage::Leased { .. } => plain,
            AttemptStage::BackingOff { since_ms, wait_ms, reason } => {
                let reason = (!reason.is_empty()).then(|| reason.clone().into_string());
                AttemptLine { since_ms: Some(*since_ms), wait_ms: Some(*wait_ms), reason, ..plain }
            }
            AttemptStage::Stopped { since_ms, reason } => {
                let reason = Some(reason.clone().into_string());
                AttemptLine { since_ms: Some(*since_ms), reason, ..plain }
            }
        }
    }

    /// Returns the number of the subtask, and its mark.
    pub(super) fn read(self) -> (u32, started_attempts::LatestAttempt) {
        let stage = match (self.since_ms, self.wait_ms, self.reason) {
            (Some(since_ms), Some(wait_ms), reason) => {
                let reason = reason.unwrap_or_default().into_boxed_str();
                AttemptStage::BackingOff { since_ms, wait_ms, reason }
            }
            (Some(since_ms), None, Some(reason)) => {
                AttemptStage::Stopped { since_ms, reason: reason.into_boxed_str() }
            }
            _ => AttemptStage::Started,
        };
        (self.number, started_attempts::LatestAttempt { attempt: self.attempt, stage })
    }
}

pub(super) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

pub(super) fn decode(text: &str) -> Result<Vec<u8>, String> {
    STANDARD.decode(text).map_err(|error| format!("not base64: {error}"))
}

impl StatusLine {
    pub(super) fn of(status: &JobStatus) -> Self {
        let JobStatus { state, start_at_ms, started_ms, ended_ms, version, counts } = *status;
        let OutcomeCounts { succeeded, failed, cancelled, skipped, superseded } = counts;
        let state = state.word().to_owned();
        StatusLine {
            state,
            start_at_ms,
            started_ms,
            ended_ms,
            version,
            succeeded,
            failed,
            cancelled,
            skipped,
            superseded,
        }
    }

    pub(super) fn read(&self) -> Result<JobStatus, String> {
        let state = JobState::ALL.into_iter().find(|state| state.word() == self.state);
        let state = state.ok_or_else(|| format!("{:?} is no state of a job", self.state))?;
        let StatusLine { start_at_ms, started_ms, ended_ms, version, .. } = *self;
        let StatusLine { succeeded, failed, cancelled, skipped, superseded, .. } = *self;
        let counts = OutcomeCounts { succeeded, failed, cancelled, skipped, superseded };
        Ok(JobStatus { state, start_at_ms, started_ms, ended_ms, version, counts })
    }
}

impl ExportLine {
    pub(super) fn of_key(key: &Key, record: &KeyRecord) -> Self {
        let state = word(record.state).to_owned();
        let (since_ms, reason) = (record.since_ms, record.reason.clone());
        ExportLine::Key { key: encode(&key.0), state, since_ms, reason }
    }

    pub(super) fn of_idempotency(entry: &IdempotencyEntry, id: JobId) -> Self {
        ExportLine::Idempotency {
            scope: entry.scope.clone(),
            key: entry.key.clone(),
            body_hash: encode(&entry.body_hash),
            id: id.to_string(),
            expires_ms: entry.expires_ms,
        }
    }

    pub(super) fn of_alias(alias: &JobAlias) -> Self {
        let JobAlias { name, job, body_hash } = alias;
        ExportLine::Alias { name: name.clone(), id: job.to_string(), body_hash: encode(body_hash) }
    }

    pub(super) fn of_schedule(record: &ScheduleRecord) -> Self {
        let ScheduleRecord { name, version, body } = record;
        ExportLine::Schedule { name: name.clone(), version: *version, body: encode(body) }
    }

    pub(super) fn of_setting(setting: &LiveSetting) -> Self {
        let LiveSetting { name, body } = setting;
        ExportLine::Setting { name: name.clone(), body: encode(body) }
    }

    pub(super) fn of_audit(row: &AuditRow) -> Self {
        let AuditRecord { at_ms, who, what, job, body } = &row.record;
        ExportLine::Audit {
            number: row.number,
            at_ms: *at_ms,
            who: who.clone(),
            what: what.clone(),
            job: job.clone(),
            body: encode(body),
        }
    }

    pub(super) fn of_outcome(outcome: &SubtaskOutcome) -> Self {
        ExportLine::Outcome {
            number: outcome.number,
            attempt: outcome.attempt,
            kind: outcome.kind.word().to_owned(),
            started_ms: outcome.started_ms,
            ended_ms: outcome.ended_ms,
            result: encode(&outcome.result),
        }
    }

    pub(super) fn of_log(log: &AttemptLog) -> Self {
        ExportLine::Log {
            number: log.number,
            fence: log.fence,
            attempt: log.attempt,
            kind: log.kind.word().to_owned(),
            started_ms: log.started_ms,
            ended_ms: log.ended_ms,
            left_out: log.left_out,
            text: encode(&log.text),
        }
    }
}

fn word(state: KeyBlockReason) -> &'static str {
    match state {
        KeyBlockReason::Paused => "paused",
        KeyBlockReason::Stopped => "stopped",
    }
}

pub(super) fn id(text: &str) -> Result<JobId, String> {
    JobId::parse(text).ok_or_else(|| format!("{text:?} is no job's id"))
}

pub(super) fn key(
    key: &str,
    state: &str,
    since_ms: u64,
    reason: String,
) -> Result<(Key, KeyRecord), String> {
    let states = [KeyBlockReason::Paused, KeyBlockReason::Stopped];
    let found = states.into_iter().find(|known| word(*known) == state);
    let state = found.ok_or_else(|| format!("{state:?} is no state of a key"))?;
    Ok((Key::new(decode(key)?), KeyRecord { state, since_ms, reason }))
}

pub(super) fn kind(text: &str) -> Result<OutcomeKind, String> {
    let found = OutcomeKind::ALL.into_iter().find(|kind| kind.word() == text);
    found.ok_or_else(|| format!("{text:?} is no way to end"))
}

pub(super) fn hash(text: &str) -> Result<[u8; 32], String> {
    decode(text)?.try_into().map_err(|_| "a hash has 32 bytes".to_owned())
}

/// Converts an exported job for acceptance. One that had ended waits until its status line.
pub(super) fn new_job(
    kind: String,
    created_ms: u64,
    head: &str,
    status: &StatusLine,
) -> Result<NewJob, String> {
    let status = status.read()?;
    let is_over = status.state.is_final();
    let status = if is_over { JobStatus::WAITING } else { status };
    Ok(NewJob { kind, created_ms, head: decode(head)?, status, idempotency: None })
}
