//! Held jobs: jobs of which nothing starts until an operator decides.
//!
//! # Rules
//!
//! 1. **A job whose kind is not configured is held.** Its subtasks wait in their lanes like those
//!    of a paused job. The hold ends when the kind is configured again or the job is cancelled.
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
use std::sync::Arc;

use super::audit::Act;
use super::engine_state::EngineState;
use super::{Core, Refused};
use crate::store::{Changes, Damage, DamagedJob};
use crate::wire::{Because, Timestamp};
use crate::{JobId, JobNumber, Key};

/// Held and damaged jobs, with the reasons.
#[derive(Debug, Default)]
pub(super) struct Holds {
    /// Held jobs; the scheduler has them as paused.
    jobs: HashMap<JobNumber, Hold>,
    /// Damaged jobs; the scheduler does not have them.
    damaged: BTreeMap<JobNumber, Damaged>,
}

/// Reason why a job is held.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Hold {
    /// Name of its kind, which is not configured.
    NoKind(String),
    /// Damaged job that may come before it.
    Behind(JobNumber),
}

#[derive(Debug)]
struct Damaged {
    job: DamagedJob,
    damage: Damage,
    /// Keys that were stopped for the job and not resumed since.
    stopped: BTreeSet<Key>,
}

/// Recovered job, with the data that holds need.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entered {
    pub(super) job: JobNumber,
    pub(super) entered: u64,
    pub(super) has_keys: bool,
}

impl Holds {
    /// Returns true if a job in the scheduler is held.
    pub(super) fn has(&self, job: JobNumber) -> bool {
        self.jobs.contains_key(&job)
    }

    /// Removes the hold of a finished job.
    pub(super) fn forget(&mut self, job: JobNumber) {
        self.jobs.remove(&job);
    }

    /// Records that an operator paused or resumed a key, which decides about it.
    pub(super) fn key_decided(&mut self, key: &Key) {
        self.damaged.values_mut().for_each(|damaged| drop(damaged.stopped.take(key)));
    }

    /// Returns the first damaged job with unknown keys, and its place in the order.
    fn unknown_keys(&self) -> Option<(u64, JobNumber)> {
        let unknown = self.damaged.values().filter(|damaged| damaged.job.keys.is_none());
        unknown.map(|damaged| (damaged.job.entered.unwrap_or(0), damaged.job.number)).min()
    }

    /// Returns the number of held and damaged jobs by reason code.
    pub(super) fn counts(&self) -> [(&'static str, u64); 3] {
        let no_kind = self.jobs.values().filter(|hold| matches!(hold, Hold::NoKind(_))).count();
        let behind = self.jobs.len() - no_kind;
        [
            ("no_kind", no_kind as u64),
            ("damaged", self.damaged.len() as u64),
            ("behind_damaged", behind as u64),
        ]
    }

    /// Returns the name of a damaged job for messages.
    fn name(&self, job: JobNumber) -> String {
        let id = self.damaged.get(&job).and_then(|damaged| damaged.job.id);
        id.map_or_else(|| format!("number {}", job.0), |id| id.to_string())
    }

    fn remedy(&self, job: JobNumber) -> String {
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
        Some(match self.jobs.get(&job)? {
            Hold::NoKind(kind) => because(
                "no_kind",
                format!(
                    "there is no kind `{kind}` in the configuration; add it and start the server again, or cancel the \
                     job"
                ),
            ),
            Hold::Behind(damaged) => because(
                "behind_damaged",
                format!(
                    "job {} is damaged and came first, and may have the same keys, which cannot be read; {}",
                    self.name(*damaged),
                    self.remedy(*damaged)
                ),
            ),
        })
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
    fn refusal(&self, id: JobId) -> Option<Refused> {
        let because = self.because(id.number()).filter(|_| self.damaged.contains_key(&id.number()));
        because.map(|because| Refused::Conflict(because.text))
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

impl Core {
    /// Holds a recovered job whose kind is not configured.
    pub(super) fn hold_without_kind(
        engine: &mut EngineState,
        job: JobNumber,
        kind: &str,
        now: Timestamp,
    ) {
        engine.scheduler.pause_job(job, now.0);
        engine.holds.jobs.insert(job, Hold::NoKind(kind.to_owned()));
        let id = engine.live.get(&job).map(|live| live.id.to_string()).unwrap_or_default();
        tracing::warn!(
            job = id,
            kind,
            "the job is held: its kind is not configured; add it and start again, or cancel the job"
        );
    }

    /// Stops the keys of a recovered job that is damaged.
    pub(super) fn stop_for_damaged(
        engine: &mut EngineState,
        job: DamagedJob,
        damage: Damage,
        now: Timestamp,
    ) {
        let mut stopped = BTreeSet::new();
        for key in job.keys.iter().flatten() {
            if !engine.paused_keys.contains_key(key) {
                engine.scheduler.pause_key(&key.0, now.0);
                engine.paused_keys.insert(key.clone(), now);
                stopped.insert(key.clone());
            }
        }
        let number = job.number;
        engine.holds.damaged.insert(number, Damaged { job, damage, stopped });
        let because = engine.holds.because(number).expect("the damaged job was just added");
        tracing::error!(job = number.0, "{}", because.text);
    }

    /// Holds the jobs that may come after damaged jobs with unknown keys. Called when all jobs are
    /// recovered.
    pub(super) fn hold_behind_damaged(
        engine: &mut EngineState,
        recovered: &[Entered],
        now: Timestamp,
    ) {
        let Some((place, damaged)) = engine.holds.unknown_keys() else { return };
        let behind = recovered.iter().filter(|one| one.has_keys && one.entered >= place);
        let mut count = 0_u64;
        for one in behind {
            engine.scheduler.pause_job(one.job, now.0);
            engine.holds.jobs.entry(one.job).or_insert(Hold::Behind(damaged));
            count += 1;
        }
        let (job, remedy) = (engine.holds.name(damaged), engine.holds.remedy(damaged));
        tracing::error!(
            job,
            held = count,
            "keys of the damaged job cannot be read, so jobs with keys behind it are held; {remedy}"
        );
    }

    /// Holds a job that has just entered or got more subtasks, if it may come after a damaged job
    /// with unknown keys.
    pub(super) fn hold_if_behind(
        engine: &mut EngineState,
        job: JobNumber,
        has_keys: bool,
        now: Timestamp,
    ) {
        if !has_keys || engine.holds.damaged.is_empty() || !engine.live.contains_key(&job) {
            return;
        }
        let Some((_, damaged)) = engine.holds.unknown_keys() else { return };
        engine.scheduler.pause_job(job, now.0);
        engine.holds.jobs.entry(job).or_insert(Hold::Behind(damaged));
    }

    /// Returns the error for commands on a job, if it is damaged.
    pub(super) fn damaged(&self, id: JobId) -> Option<Refused> {
        self.engine().holds.refusal(id)
    }

    /// Returns the reason why nothing of a damaged job starts.
    pub(super) fn because_damaged(&self, job: JobNumber) -> Option<Because> {
        let engine = self.engine();
        engine.holds.damaged.contains_key(&job).then(|| engine.holds.because(job)).flatten()
    }

    /// Returns the damaged jobs that are not removed yet.
    pub(super) fn held_damaged(&self) -> Vec<JobNumber> {
        self.engine().holds.damaged.keys().copied().collect()
    }

    /// Removes a damaged job, whatever part of it can be read. Its holds end when the removal is on
    /// the disk.
    pub(super) async fn remove_damaged(
        self: &Arc<Self>,
        id: JobId,
        act: &Arc<Act>,
    ) -> Result<(), Refused> {
        let number = id.number();
        {
            let engine = self.engine();
            if engine.live.contains_key(&number) {
                return Err(Refused::Conflict("the job is not over; cancel it first".into()));
            }
            let known = engine.holds.damaged.get(&number);
            if let Some(damaged) = known
                && let Damage::Pages { why, .. } = &damaged.damage
            {
                return Err(Refused::Damaged(format!(
                    "pages of the store with rows of job {id} are damaged ({why}), so it cannot be removed; stop the \
                     server and run `keylane store salvage FROM TO`"
                )));
            }
            let is_another = known
                .and_then(|known| known.job.entered.and(known.job.id))
                .is_some_and(|known| known != id);
            if is_another {
                return Err(super::steer::unknown(id));
            }
        }
        let mut changes = Changes::new();
        changes.remove_damaged(number, self.clock.now().0);
        self.log(act, &mut changes);
        let (reply, replied) = tokio::sync::oneshot::channel();
        let (core, act) = (Arc::clone(self), Arc::clone(act));
        self.store.submit_with(changes, move |written| {
            let answer = written.map(|_| core.removed_damaged(number, &act));
            let _ = reply.send(answer.map_err(|error| core.write_refused(error)));
        });
        replied.await.map_err(|_| Refused::StoreFailed("the writer has ended".into()))?
    }

    /// Ends the holds of a damaged job whose removal is on the disk. Called on the writer's thread.
    fn removed_damaged(&self, job: JobNumber, act: &Act) {
        self.was_done(act);
        self.found_room();
        let now = self.clock.now();
        let mut engine = self.engine();
        let engine = &mut *engine;
        if let Some(damaged) = engine.holds.damaged.remove(&job) {
            for key in &damaged.stopped {
                Self::release_key(engine, key, now);
            }
            Self::release_jobs(engine, now);
        }
        self.bell.ring();
    }

    /// Resumes a key that was stopped for a removed job, unless another damaged job has it too.
    fn release_key(engine: &mut EngineState, key: &Key, now: Timestamp) {
        let needs =
            |damaged: &Damaged| damaged.job.keys.as_ref().is_some_and(|keys| keys.contains(key));
        let other = engine.holds.damaged.values_mut().find(|damaged| needs(damaged));
        if let Some(other) = other {
            other.stopped.insert(key.clone());
            return;
        }
        engine.scheduler.resume_key(&key.0, now.0);
        engine.paused_keys.remove(key);
    }

    /// Re-evaluates the jobs that were held behind a removed job: they are held behind another one,
    /// or continue.
    fn release_jobs(engine: &mut EngineState, now: Timestamp) {
        if let Some((_, damaged)) = engine.holds.unknown_keys() {
            let holds = engine.holds.jobs.values_mut();
            holds
                .filter(|hold| matches!(hold, Hold::Behind(_)))
                .for_each(|hold| *hold = Hold::Behind(damaged));
            return;
        }
        let behind = engine.holds.jobs.extract_if(|_, hold| matches!(hold, Hold::Behind(_)));
        let behind: Vec<JobNumber> = behind.map(|(job, _)| job).collect();
        for job in behind {
            engine.changed.insert(job);
            if engine.live.get(&job).is_some_and(|live| !live.paused) {
                engine.scheduler.resume_job(job, now.0);
            }
        }
    }
}
