//! Held jobs: jobs of which nothing starts until an operator decides.
//!
//! # Rules
//!
//! 1. **A job whose kind is not configured is held**, at the start and after a reload. Its subtasks
//!    wait in their lanes like those of a paused job, and its running attempts continue. The hold
//!    ends when a start or a reload configures the kind again, or the job is cancelled.
//! 2. **A damaged job is in no lane**, because its readable content may differ from what was
//!    written. The keys of its unfinished subtasks are stopped.
//! 3. **If some of these keys cannot be read**, each job with keys that entered after the damaged
//!    one is held, and so is each later one: any of their keys may be a key of the damaged job. If
//!    the damaged job's place in the order is not reliable either, all jobs with keys are held.
//!    Jobs without keys continue.
//! 4. **No hold is stored.** Each start derives the holds again. An operator decides by removing
//!    the damaged job; the removal is on the disk before any hold of rules 2 and 3 ends.
//!
//! Why order holds: a subtask that shares a key with an unfinished subtask of a damaged job, and
//! entered after it, begins only after the removal (4). Until then its key is stopped (2) or its
//! job is held (3).

use std::collections::{BTreeMap, BTreeSet, HashMap};

use crate::request_error::RequestError;
use crate::store::{DamagedJob, StoreDamage};
use crate::wire::Because;
use crate::{JobId, JobNumber, Key};

/// Held and damaged jobs, with the reasons.
#[derive(Debug, Default)]
pub(super) struct HeldJobs {
    /// Jobs whose kind is not configured, with its name; the scheduler has them as paused.
    pub(super) without_kind: HashMap<JobNumber, String>,
    /// Jobs that may come after a damaged job, with its number; the scheduler has them as paused.
    pub(super) behind: HashMap<JobNumber, JobNumber>,
    /// Damaged jobs; the scheduler does not have them.
    pub(super) damaged: BTreeMap<JobNumber, HeldDamagedJob>,
}

#[derive(Debug)]
pub(super) struct HeldDamagedJob {
    pub(super) job: DamagedJob,
    pub(super) damage: StoreDamage,
    /// Keys that were stopped for the job and not resumed since.
    pub(super) stopped: BTreeSet<Key>,
}

/// Recovered job, with the data that holds need.
#[derive(Clone, Copy, Debug)]
pub(super) struct HoldCandidate {
    pub(super) job: JobNumber,
    pub(super) entered: u64,
    pub(super) has_keys: bool,
}

impl HeldJobs {
    /// Returns true if a job in the scheduler is held.
    pub(super) fn has(&self, job: JobNumber) -> bool {
        self.without_kind.contains_key(&job) || self.behind.contains_key(&job)
    }

    /// Removes the hold of a finished job.
    pub(super) fn forget(&mut self, job: JobNumber) {
        self.without_kind.remove(&job);
        self.behind.remove(&job);
    }

    /// Records that an operator paused or resumed a key, which decides about it.
    pub(super) fn key_decided(&mut self, key: &Key) {
        self.damaged.values_mut().for_each(|damaged| drop(damaged.stopped.take(key)));
    }

    /// Returns the first damaged job with unknown keys, and its place in the order.
    pub(super) fn unknown_keys(&self) -> Option<(u64, JobNumber)> {
        let unknown = self.damaged.values().filter(|damaged| damaged.job.keys.is_none());
        unknown.map(|damaged| (damaged.job.entered.unwrap_or(0), damaged.job.number)).min()
    }

    /// Returns the number of held and damaged jobs by reason code. A job counts once.
    pub(super) fn counts(&self) -> [(&'static str, u64); 3] {
        let behind = self.behind.keys().filter(|job| !self.without_kind.contains_key(job)).count();
        [
            ("no_kind", self.without_kind.len() as u64),
            ("damaged", self.damaged.len() as u64),
            ("behind_damaged", behind as u64),
        ]
    }

    /// Returns the name of a damaged job for messages.
    pub(super) fn name(&self, job: JobNumber) -> String {
        let id = self.damaged.get(&job).and_then(|damaged| damaged.job.id);
        id.map_or_else(|| format!("number {}", job.0), |id| id.to_string())
    }

    pub(super) fn remedy(&self, job: JobNumber) -> String {
        let name = self.name(job);
        match self.damaged.get(&job).and_then(|damaged| damaged.job.id) {
            Some(_) => format!("remove job {name} (`DELETE /v1/jobs/{name}`) to let them go on"),
            None => format!(
                "stop the server and run `keylane store remove {}` to let them go on",
                job.0
            ),
        }
    }

    /// Returns the reason why nothing of a job starts, if it is held or damaged.
    pub(super) fn because(&self, job: JobNumber) -> Option<Because> {
        if let Some(damaged) = self.damaged.get(&job) {
            let text = format!(
                "the job is damaged: {}; its keys are stopped; {}",
                damaged.damage,
                self.remedy(job)
            );
            return Some(because("damaged", text));
        }
        if let Some(kind) = self.without_kind.get(&job) {
            let text = format!(
                "there is no kind `{kind}` in the configuration; add it and reload the configuration, or cancel the job"
            );
            return Some(because("no_kind", text));
        }
        let damaged = *self.behind.get(&job)?;
        let text = format!(
            "job {} is damaged and came first, and may have the same keys, which cannot be read; {}",
            self.name(damaged),
            self.remedy(damaged)
        );
        Some(because("behind_damaged", text))
    }

    /// Returns the reason why a key is stopped, if it is stopped for a damaged job.
    pub(super) fn because_of_key(&self, key: &Key) -> Option<String> {
        let (job, _) = self.damaged.iter().find(|(_, damaged)| damaged.stopped.contains(key))?;
        Some(format!(
            "its key is stopped: job {} is damaged and has unfinished subtasks with it; {}",
            self.name(*job),
            self.remedy(*job)
        ))
    }

    /// Returns the error for commands on a damaged job.
    pub(super) fn refusal(&self, id: JobId) -> Option<RequestError> {
        let because = self.because(id.number()).filter(|_| self.damaged.contains_key(&id.number()));
        because.map(|because| RequestError::Conflict(because.text))
    }
}

fn because(reason: &str, text: String) -> Because {
    Because {
        reason: reason.to_owned(),
        text,
        count: None,
        key: None,
        position: None,
        job: None,
        number: None,
        since: None,
        until: None,
    }
}
