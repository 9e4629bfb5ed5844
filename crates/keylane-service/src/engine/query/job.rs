//! Queries for jobs: active ones from memory, finished ones from the store.

use serde_json::value::RawValue;

use super::Query;
use super::reason_text::{because_of, is_held_open_ended, is_open_ended};
use super::summary::chain_view;
use super::text::raw;
use crate::engine::clock::Clock;
use crate::engine::engine_state::{ActiveJob, EngineState};
use crate::engine::step_numbers::StepNumbers;
use crate::engine::store_status::read_refused;
use crate::engine::versions;
use crate::job_definition::JobDefinition;
use crate::kind_registry::KindRegistry;
use crate::request_error::RequestError;
use crate::scheduler::{self, Step, WaitReason};
use crate::store::{self, JobState as Stored, JobStatus, OutcomeKind, StoredJob};
use crate::tenant::Tenant;
use crate::wire::{Because, Counts, DamagedRow, Job, JobState, Page, Timestamp};
use crate::{JobId, JobNumber, SubtaskNumber};

/// Maximum number of jobs that a filtered list reads before it returns a cursor.
const MAX_SCANNED: usize = 5_000;

/// Filter of a job list.
#[derive(Clone, Debug, Default)]
pub(crate) struct JobQuery {
    pub(crate) states: Vec<JobState>,
    pub(crate) kind: Option<String>,
    pub(crate) label: Option<(String, String)>,
    pub(crate) tenant: Option<String>,
    /// Text in the name or the id.
    pub(crate) text: Option<String>,
}

/// Returns the error for an unknown job.
pub(in crate::engine) fn unknown(id: JobId) -> RequestError {
    RequestError::Unknown { what: format!("job {id}") }
}

/// Returns an active job with the reasons why its subtasks wait.
pub(in crate::engine) fn live_view(
    kinds: &KindRegistry,
    engine: &EngineState,
    number: JobNumber,
    clock: &Clock,
) -> Option<Job> {
    let now = clock.now();
    let found = engine.scheduler.waiting_because(number).unwrap_or_default();
    let words = |because: &scheduler::JobWaitReason| {
        let count = (because.subtasks > 0).then_some(because.subtasks);
        let mut it = because_of(kinds, engine, number, &because.reason, now);
        if let (WaitReason::BackingOff { .. } | WaitReason::Stopped, Some(step)) =
            (&because.reason, because.example)
        {
            add_failure(engine, number, step, &mut it);
        }
        Because { count, ..it }
    };
    let waiting_because: Vec<_> = found.iter().map(words).collect();
    // A blocked job has no remaining time, whatever its pace was before.
    let is_open_ended = waiting_because.iter().any(is_open_ended)
        || found.iter().any(|it| is_held_open_ended(kinds, engine, &it.reason, now));
    let view = brief_view(engine, number)?;
    let live = engine.live.get(&number)?;
    let (ended, total) = (view.counts.ended(), view.counts.total);
    let eta_ms = if is_open_ended || live.paused {
        None
    } else {
        let (now_ms, released_ms) = (clock.steady_ms(), engine.released_ms);
        live.pace.and_then(|pace| pace.eta(now_ms, released_ms, ended, total))
    };
    Some(Job { waiting_because, eta_ms, ..view })
}

/// Adds the key that decides the end of an active job. Not for events and lists, of which there can be hundreds at a time: up
/// to 32,000 places are examined under the lock.
fn with_chain(engine: &EngineState, id: JobId, job: Job) -> Job {
    let number = id.number();
    let chain = engine.scheduler.longest_chain(number).filter(|chain| chain.subtasks > 1);
    let Some(chain) = chain else { return job };
    let unfinished = engine.scheduler.counts(number).unwrap_or_default().unfinished();
    let useful_workers = Some(unfinished.div_ceil(chain.subtasks).max(1));
    Job { longest_key: Some(chain_view(&chain)), useful_workers, ..job }
}

/// Adds the failure of the last attempt at a subtask, if it is known.
pub(super) fn add_failure(engine: &EngineState, job: JobNumber, step: Step, to: &mut Because) {
    let failures = engine.live.get(&job).map(|live| &live.failures);
    if let Some(error) = failures.and_then(|failures| failures.get(step)) {
        to.text = format!("{}: {error}", to.text);
    }
}

/// Returns an active job without the reasons, which are slow to compute, and without the remaining
/// time, which depends on them.
pub(in crate::engine) fn brief_view(engine: &EngineState, number: JobNumber) -> Option<Job> {
    let live = engine.live.get(&number)?;
    let now_counts = engine.scheduler.counts(number).unwrap_or_default();
    let counts = counts_of(live, &now_counts);
    let ended = counts.ended();
    Some(Job {
        state: live.state(),
        progress: progress(ended, counts.total, live.plan.is_unsplit()),
        started_at: live.started,
        result: live.result.clone(),
        error: live.error.clone(),
        version: live.version,
        ..plain_view(live.id, &live.head, live.created, counts)
    })
}

/// Returns a job that has just ended.
pub(in crate::engine) fn final_view(live: &ActiveJob, state: JobState, now: Timestamp) -> Job {
    let counts = stored_counts(live.plan.total(), &live.final_counts());
    Job {
        state,
        started_at: live.started,
        ended_at: Some(now),
        progress: 1.0,
        result: live.result.clone(),
        error: live.error.clone(),
        version: live.end_version.unwrap_or(live.version),
        ..plain_view(live.id, &live.head, live.created, counts)
    }
}

fn plain_view(id: JobId, head: &JobDefinition, created: Timestamp, counts: Counts) -> Job {
    Job {
        id: id.to_string(),
        client_id: head.client_id.clone(),
        kind: head.kind.clone(),
        name: head.name.clone(),
        labels: head.labels.clone(),
        state: JobState::Queued,
        weight: head.weight,
        priority: head.priority,
        tenant: head.tenant.clone().unwrap_or_else(|| Tenant::DEFAULT_NAME.into()),
        max_per_key: head.max_per_key.filter(|limit| *limit > 1),
        counts,
        progress: 0.0,
        created_at: created,
        started_at: None,
        ended_at: None,
        run_at: head.run_at,
        expires_at: head.expires_at,
        expired: head.is_expired,
        after: head.after.iter().map(JobId::to_string).collect(),
        after_on: (!head.after.is_empty()).then_some(head.after_on),
        after_failed: head.after_failed.map(|id| id.to_string()),
        webhook: head.webhook.clone(),
        eta_ms: None,
        longest_key: None,
        useful_workers: None,
        traceparent: head.trace.as_ref().map(|trace| trace.traceparent().to_owned()),
        tracestate: head.trace.as_ref().and_then(|trace| trace.tracestate().map(str::to_owned)),
        waiting_because: Vec::new(),
        result: None,
        error: None,
        version: 0,
    }
}

/// Returns the counts of an active job. A subtask whose end is not on the disk counts as running,
/// so that a count never decreases after a crash.
fn counts_of(live: &ActiveJob, now: &scheduler::SubtaskCounts) -> Counts {
    let recorded = &live.recorded;
    let waiting = now.scheduled + now.entering + now.waiting + now.stopped;
    let (ready, backing_off) = (now.ready, now.backing_off);
    let ended = u64::from(recorded.ended());
    let others = waiting + ready + backing_off + ended;
    Counts {
        total: live.plan.total().into(),
        waiting,
        ready,
        running: u64::from(live.plan.total()).saturating_sub(others),
        backing_off,
        succeeded: recorded.succeeded.into(),
        failed: recorded.failed.into(),
        cancelled: u64::from(recorded.cancelled) + u64::from(recorded.skipped),
        superseded: recorded.superseded.into(),
    }
}

fn stored_counts(total: u32, counts: &store::OutcomeCounts) -> Counts {
    Counts {
        total: total.into(),
        succeeded: counts.succeeded.into(),
        failed: counts.failed.into(),
        cancelled: u64::from(counts.cancelled) + u64::from(counts.skipped),
        superseded: counts.superseded.into(),
        ..Counts::default()
    }
}

#[expect(clippy::cast_precision_loss, reason = "a share for people")]
fn progress(ended: u64, total: u64, is_split_to_come: bool) -> f64 {
    match (total, is_split_to_come) {
        (0, true) => 0.0,
        (0, false) => 1.0,
        _ => ended as f64 / total as f64,
    }
}

impl Query {
    /// Returns a job, active or finished.
    pub(crate) fn job(&self, id: JobId) -> Result<Job, RequestError> {
        {
            let engine = self.state.lock();
            if engine.live.get(&id.number()).is_some_and(|live| live.id == id) {
                let view = live_view(&self.kinds, &engine, id.number(), &self.clock);
                return view.map(|job| with_chain(&engine, id, job)).ok_or_else(|| unknown(id));
            }
        }
        let stored = self.stored(id)?;
        let view = self.stored_view(&stored, true)?;
        let waiting_because = self.because_damaged(id.number()).into_iter().collect();
        Ok(Job { waiting_because, ..view })
    }

    /// Returns true if a job is active. If it is not, it is over or unknown.
    pub(in crate::engine) fn is_live(&self, id: JobId) -> Result<bool, RequestError> {
        let is_live = self.state.lock().live.get(&id.number()).is_some_and(|live| live.id == id);
        if !is_live {
            self.stored(id)?;
        }
        Ok(is_live)
    }

    /// Returns a job from the store.
    pub(in crate::engine) fn stored(&self, id: JobId) -> Result<StoredJob, RequestError> {
        let stored = self.store.job(id.number()).map_err(read_refused)?;
        let stored = stored.ok_or_else(|| self.missing(id))?;
        if stored.id == id { Ok(stored) } else { Err(unknown(id)) }
    }

    /// Returns the error for a job that is not in the store. A number that was given out belonged
    /// to a deleted job. The rest of the id was deleted with it, so a made-up id with such a number
    /// is reported as deleted too.
    fn missing(&self, id: JobId) -> RequestError {
        match self.store.has_given(id.number()) {
            true => RequestError::Gone { what: format!("job {id}") },
            false => unknown(id),
        }
    }

    /// Returns the version of a job in the store.
    fn stored_version(&self, status: &JobStatus) -> u64 {
        match (status.version, status.ended_ms) {
            (Some(version), _) => version,
            // Set aside by a start of the server or by a tool, after the versions of its last process.
            _ if status.state == Stored::Damaged => self.state.lock().versions.first(),
            (None, Some(ended)) => versions::of_end_time(Timestamp(ended)),
            (None, None) => 0,
        }
    }

    /// Returns the view of a stored job. With `whole` it reads the result and the error too.
    fn stored_view(&self, stored: &StoredJob, whole: bool) -> Result<Job, RequestError> {
        let mut head: JobDefinition = serde_json::from_slice(&stored.head).unwrap_or_default();
        if head.kind.is_empty() {
            head.kind.clone_from(&stored.kind);
        }
        let plan = StepNumbers::new(&head, stored.total);
        let result = match whole && head.fan_in {
            true => self.fan_in_result(stored, plan)?,
            false => None,
        };
        let error = match whole && stored.status.state == Stored::Failed {
            true => self.first_error(stored)?,
            false => None,
        };
        let ended = stored.status.ended_ms.map(Timestamp);
        Ok(Job {
            state: match stored.status.state {
                Stored::Succeeded => JobState::Succeeded,
                Stored::Failed | Stored::Damaged => JobState::Failed,
                Stored::Cancelled => JobState::Cancelled,
                Stored::Paused => JobState::Paused,
                Stored::Cancelling => JobState::Cancelling,
                _ => JobState::Queued,
            },
            progress: 1.0,
            started_at: stored.status.started_ms.map(Timestamp),
            ended_at: ended,
            result,
            error,
            version: self.stored_version(&stored.status),
            ..plain_view(
                stored.id,
                &head,
                Timestamp(stored.created_ms),
                stored_counts(plan.total(), &stored.status.counts),
            )
        })
    }

    fn fan_in_result(
        &self,
        stored: &StoredJob,
        plan: StepNumbers,
    ) -> Result<Option<Box<RawValue>>, RequestError> {
        if !plan.steps().any(|step| step == Step::FanIn) {
            return Ok(None);
        }
        let number = plan.number(Step::FanIn);
        let outcome = self.store.outcomes_of(stored.number, number..number + 1);
        let outcome = outcome.map_err(read_refused)?.into_iter().flatten().next();
        let succeeded = outcome.filter(|outcome| outcome.kind == OutcomeKind::Succeeded);
        Ok(succeeded.and_then(|outcome| raw(&outcome.result)))
    }

    fn first_error(&self, stored: &StoredJob) -> Result<Option<String>, RequestError> {
        let mut after = None;
        loop {
            let page = self.store.outcomes(stored.number, after, 1000).map_err(read_refused)?;
            let Some(last) = page.last() else { return Ok(None) };
            after = Some(last.place);
            // A failure that was retried is not the reason of the job's failure.
            let page = self.store.that_count(stored.number, page).map_err(read_refused)?;
            let failed = page.iter().find(|recorded| recorded.outcome.kind == OutcomeKind::Failed);
            if let Some(failed) = failed {
                return Ok(Some(String::from_utf8_lossy(&failed.outcome.result).into_owned()));
            }
        }
    }

    /// Returns a page of jobs, the newest first.
    pub(crate) fn jobs(
        &self,
        wanted: &JobQuery,
        cursor: Option<JobNumber>,
        limit: usize,
    ) -> Result<Page<Job>, RequestError> {
        let filter = store::JobFilter {
            states: stored_states(&wanted.states),
            kind: wanted.kind.clone(),
            matches: None,
        };
        let (is_first, mut cursor, mut looked_at) = (cursor.is_none(), cursor, 0);
        let mut shown = Page::new(Vec::new(), None);
        // The state in a damaged row may be wrong, so the state index is no help in finding the
        // job.
        let held = if wanted.states.is_empty() { Vec::new() } else { self.held_damaged() };
        for number in held.iter().filter(|_| is_first) {
            shown.damaged.push(self.damaged_row(*number)?);
        }
        loop {
            let page = self.store.jobs(&filter, cursor, limit.max(100));
            let page = page.map_err(read_refused)?;
            let unnamed = page.damaged.into_iter().filter(|number| !held.contains(number));
            let mut damaged = unnamed.peekable();
            for stored in &page.jobs {
                looked_at += 1;
                while let Some(number) = damaged.next_if(|number| *number > stored.number) {
                    shown.damaged.push(self.damaged_row(number)?);
                }
                let job = self.view(stored)?;
                if wanted.has(&job) {
                    shown.items.push(job);
                }
                if shown.items.len() == limit {
                    return Ok(Page { next_cursor: Some(stored.number.0.to_string()), ..shown });
                }
            }
            for number in damaged {
                shown.damaged.push(self.damaged_row(number)?);
            }
            let Some(next) = page.next else { return Ok(shown) };
            cursor = Some(next);
            if looked_at >= MAX_SCANNED {
                return Ok(Page { next_cursor: Some(next.0.to_string()), ..shown });
            }
        }
    }

    /// Returns a job whose row is damaged. It is listed regardless of the filter, because its
    /// fields are unknown.
    fn damaged_row(&self, number: JobNumber) -> Result<DamagedRow, RequestError> {
        let id = self.store.damaged_id(number).map_err(read_refused)?;
        let damage = store::StoreDamage::Job { job: number };
        let remedy = match id {
            Some(id) => format!("`DELETE /v1/jobs/{id}` removes it"),
            None => {
                format!("stop the server and run `keylane store remove {}` to remove it", number.0)
            }
        };
        Ok(DamagedRow {
            id: id.map(|id| id.to_string()),
            number: number.0,
            problem: format!("{damage} is damaged; {remedy}"),
        })
    }

    fn view(&self, stored: &StoredJob) -> Result<Job, RequestError> {
        let live = live_view(&self.kinds, &self.state.lock(), stored.number, &self.clock);
        live.map_or_else(|| self.stored_view(stored, false), Ok)
    }

    pub(super) fn total(&self, id: JobId) -> Result<SubtaskNumber, RequestError> {
        Ok(self.plan(id)?.total())
    }

    /// Returns the numbering of a job's steps in the store.
    pub(super) fn plan(&self, id: JobId) -> Result<StepNumbers, RequestError> {
        self.plan_and_attempts(id).map(|(plan, _)| plan)
    }

    /// Returns the plan of a job, and the maximum number of attempts of its subtasks.
    pub(super) fn plan_and_attempts(&self, id: JobId) -> Result<(StepNumbers, u32), RequestError> {
        if let Some(live) = self.state.lock().live.get(&id.number()).filter(|live| live.id == id) {
            return Ok((live.plan, live.head.attempts));
        }
        let stored = self.stored(id)?;
        let head: JobDefinition = serde_json::from_slice(&stored.head).unwrap_or_default();
        Ok((StepNumbers::new(&head, stored.total), head.attempts))
    }
}

impl JobQuery {
    fn has(&self, job: &Job) -> bool {
        let text = |text: &String| {
            job.id.contains(text) || job.name.as_ref().is_some_and(|name| name.contains(text))
        };
        (self.states.is_empty() || self.states.contains(&job.state))
            && self.label.as_ref().is_none_or(|(name, value)| job.labels.get(name) == Some(value))
            && self.tenant.as_ref().is_none_or(|tenant| job.tenant == *tenant)
            && self.text.as_ref().is_none_or(text)
    }
}

/// Returns the store's states for the wanted states.
fn stored_states(wanted: &[JobState]) -> Vec<Stored> {
    let mut states: Vec<Stored> = wanted
        .iter()
        .flat_map(|state| match state {
            JobState::Scheduled | JobState::Queued | JobState::Running => vec![Stored::Waiting],
            JobState::Paused => vec![Stored::Paused],
            JobState::Cancelling => vec![Stored::Cancelling],
            JobState::Succeeded => vec![Stored::Succeeded],
            JobState::Failed => vec![Stored::Failed, Stored::Damaged],
            JobState::Cancelled => vec![Stored::Cancelled],
        })
        .collect();
    states.sort_unstable();
    states.dedup();
    states
}
