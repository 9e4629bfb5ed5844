//! Begin and end of holds in the state of the engine, by the rules of `held_jobs.rs`.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

use super::engine_state::EngineState;
use super::held_jobs::{HeldDamagedJob, HoldCandidate};
use crate::kind_registry::KindRegistry;
use crate::store::{DamagedJob, StoreDamage};
use crate::wire::Timestamp;
use crate::{JobNumber, Key};

impl EngineState {
    /// Holds a job that has just entered, if its kind is not configured: the kind may have been
    /// removed since the job was checked.
    pub(super) fn hold_if_kind_is_missing(
        &mut self,
        job: JobNumber,
        kinds: &KindRegistry,
        now: Timestamp,
    ) {
        let Some(live) = self.live.get(&job) else { return };
        let kind = &*live.head.kind;
        if live.is_closing || kinds.number(kind).is_some() {
            return;
        }
        tracing::warn!(
            job = %live.id,
            kind,
            "the job is held: its kind is not configured; add it and reload the configuration, or cancel the job"
        );
        self.holds.without_kind.insert(job, kind.to_owned());
        self.scheduler.pause_job(job, now.0);
        self.changed.insert(job);
    }

    /// Holds and releases jobs after a change of the kinds. A held job keeps its place in its
    /// lanes.
    pub(super) fn follow_kinds(&mut self, kinds: &KindRegistry, now: Timestamp) {
        let present: HashSet<Arc<str>> =
            kinds.present().into_iter().map(|kind| kind.name).collect();
        let live = self.live.iter();
        let missing = live.filter(|(_, live)| !present.contains(&*live.head.kind));
        let held = &self.holds.without_kind;
        let missing = missing.map(|(job, _)| *job).filter(|job| !held.contains_key(job));
        for job in missing.collect::<Vec<_>>() {
            self.hold_if_kind_is_missing(job, kinds, now);
        }
        let added = self.holds.without_kind.extract_if(|_, kind| present.contains(&**kind));
        let added: Vec<JobNumber> = added.map(|(job, _)| job).collect();
        added.into_iter().for_each(|job| self.release(job, now));
    }

    /// Resumes a job whose hold has ended, unless it has another one or an operator has paused it.
    fn release(&mut self, job: JobNumber, now: Timestamp) {
        self.changed.insert(job);
        let Some(live) = self.live.get_mut(&job) else { return };
        // The pace is measured again from the next start.
        live.pace = None;
        if !live.paused && !self.holds.has(job) {
            self.scheduler.resume_job(job, now.0);
        }
    }

    /// Stops the keys of a recovered job that is damaged.
    pub(super) fn stop_for_damaged(
        &mut self,
        job: DamagedJob,
        damage: StoreDamage,
        now: Timestamp,
    ) {
        let mut stopped = BTreeSet::new();
        for key in job.keys.iter().flatten() {
            if !self.paused_keys.contains_key(key) {
                self.scheduler.pause_key(&key.0, now.0);
                self.paused_keys.insert(key.clone(), now);
                stopped.insert(key.clone());
            }
        }
        let number = job.number;
        self.holds.damaged.insert(number, HeldDamagedJob { job, damage, stopped });
        let because = self.holds.because(number).expect("the damaged job was just added");
        tracing::error!(job = number.0, "{}", because.text);
    }

    /// Holds the jobs that may come after damaged jobs with unknown keys. Called when all jobs are
    /// recovered.
    pub(super) fn hold_behind_damaged(&mut self, recovered: &[HoldCandidate], now: Timestamp) {
        let Some((place, damaged)) = self.holds.unknown_keys() else { return };
        let behind = recovered.iter().filter(|one| one.has_keys && one.entered >= place);
        let mut count = 0_u64;
        for one in behind {
            self.scheduler.pause_job(one.job, now.0);
            self.holds.behind.insert(one.job, damaged);
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
        self.holds.behind.insert(job, damaged);
    }

    /// Resumes a key that was stopped for a removed job, unless another damaged job has it too.
    pub(super) fn release_key(&mut self, key: &Key, now: Timestamp) {
        let needs = |damaged: &HeldDamagedJob| {
            damaged.job.keys.as_ref().is_some_and(|keys| keys.contains(key))
        };
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
            self.holds.behind.values_mut().for_each(|before| *before = damaged);
            return;
        }
        let behind = std::mem::take(&mut self.holds.behind);
        behind.into_keys().for_each(|job| self.release(job, now));
    }
}
