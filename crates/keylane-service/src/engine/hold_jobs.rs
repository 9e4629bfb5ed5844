//! Begin and end of holds in the state of the engine, by the rules of `holds.rs`.

use std::collections::BTreeSet;

use super::engine_state::EngineState;
use super::holds::{Damaged, Entered, Hold};
use crate::store::{Damage, DamagedJob};
use crate::wire::Timestamp;
use crate::{JobNumber, Key};

impl EngineState {
    /// Holds a recovered job whose kind is not configured.
    pub(super) fn hold_without_kind(&mut self, job: JobNumber, kind: &str, now: Timestamp) {
        self.scheduler.pause_job(job, now.0);
        self.holds.jobs.insert(job, Hold::NoKind(kind.to_owned()));
        let id = self.live.get(&job).map(|live| live.id.to_string()).unwrap_or_default();
        tracing::warn!(
            job = id,
            kind,
            "the job is held: its kind is not configured; add it and start again, or cancel the job"
        );
    }

    /// Stops the keys of a recovered job that is damaged.
    pub(super) fn stop_for_damaged(&mut self, job: DamagedJob, damage: Damage, now: Timestamp) {
        let mut stopped = BTreeSet::new();
        for key in job.keys.iter().flatten() {
            if !self.paused_keys.contains_key(key) {
                self.scheduler.pause_key(&key.0, now.0);
                self.paused_keys.insert(key.clone(), now);
                stopped.insert(key.clone());
            }
        }
        let number = job.number;
        self.holds.damaged.insert(number, Damaged { job, damage, stopped });
        let because = self.holds.because(number).expect("the damaged job was just added");
        tracing::error!(job = number.0, "{}", because.text);
    }

    /// Holds the jobs that may come after damaged jobs with unknown keys. Called when all jobs are
    /// recovered.
    pub(super) fn hold_behind_damaged(&mut self, recovered: &[Entered], now: Timestamp) {
        let Some((place, damaged)) = self.holds.unknown_keys() else { return };
        let behind = recovered.iter().filter(|one| one.has_keys && one.entered >= place);
        let mut count = 0_u64;
        for one in behind {
            self.scheduler.pause_job(one.job, now.0);
            self.holds.jobs.entry(one.job).or_insert(Hold::Behind(damaged));
            count += 1;
        }
        let (job, remedy) = (self.holds.name(damaged), self.holds.remedy(damaged));
        tracing::error!(
            job,
            held = count,
            "keys of the damaged job cannot be read, so jobs with keys behind it are held; {remedy}"
        );
    }

    /// Holds a job that has just entered or got more subtasks, if it may come after a damaged job
    /// with unknown keys.
    pub(super) fn hold_if_behind(&mut self, job: JobNumber, has_keys: bool, now: Timestamp) {
        if !has_keys || self.holds.damaged.is_empty() || !self.live.contains_key(&job) {
            return;
        }
        let Some((_, damaged)) = self.holds.unknown_keys() else { return };
        self.scheduler.pause_job(job, now.0);
        self.holds.jobs.entry(job).or_insert(Hold::Behind(damaged));
    }

    /// Resumes a key that was stopped for a removed job, unless another damaged job has it too.
    pub(super) fn release_key(&mut self, key: &Key, now: Timestamp) {
        let needs =
            |damaged: &Damaged| damaged.job.keys.as_ref().is_some_and(|keys| keys.contains(key));
        let other = self.holds.damaged.values_mut().find(|damaged| needs(damaged));
        if let Some(other) = other {
            other.stopped.insert(key.clone());
            return;
        }
        self.scheduler.resume_key(&key.0, now.0);
        self.paused_keys.remove(key);
    }

    /// Re-evaluates the jobs that were held behind a removed job: they are held behind another one,
    /// or continue.
    pub(super) fn release_jobs(&mut self, now: Timestamp) {
        if let Some((_, damaged)) = self.holds.unknown_keys() {
            let holds = self.holds.jobs.values_mut();
            holds
                .filter(|hold| matches!(hold, Hold::Behind(_)))
                .for_each(|hold| *hold = Hold::Behind(damaged));
            return;
        }
        let behind = self.holds.jobs.extract_if(|_, hold| matches!(hold, Hold::Behind(_)));
        let behind: Vec<JobNumber> = behind.map(|(job, _)| job).collect();
        for job in behind {
            self.changed.insert(job);
            if self.live.get(&job).is_some_and(|live| !live.paused) {
                self.scheduler.resume_job(job, now.0);
            }
        }
    }
}
