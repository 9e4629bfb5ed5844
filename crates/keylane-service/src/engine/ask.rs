//! What people ask: how jobs, subtasks, keys and the whole stand, as it is said in the API.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use keylane::allocate::Rule;
use serde_json::value::RawValue;

use super::attempt::shown;
use super::books::{Books, Live, last_version};
use super::made::null;
use super::plan::Plan;
use super::{Core, Refused, StoreHealth};
use crate::handle::Failure;
use crate::head::Head;
use crate::schedule::{self, KeySort, Reason, State, Step};
use crate::store::{self, JobState as Stored, OutcomeKind, OutcomePlace, ReadError, StoredJob};
use crate::wire::{
    Because, Counts, Decision, Job, JobState, KeyHead, KeyState, KeyView, KindView, OutcomeView,
    Page, RunningSubtask, SchedulerView, Slice, SubtaskState, SubtaskView, Summary, Timeline,
    Timestamp,
};
use crate::{JobId, JobNumber, Key, SubtaskNumber};

/// How many bytes of results a fan-in step gets at most.
const MOST_FAN_IN_BYTES: usize = 16 * 1024 * 1024;

/// How many jobs a filtered list looks at before it says where to go on.
const MOST_LOOKED_AT: usize = 5_000;

/// Which jobs are wanted.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wanted {
    pub(crate) states: Vec<JobState>,
    pub(crate) kind: Option<String>,
    pub(crate) label: Option<(String, String)>,
    /// In its name or its id.
    pub(crate) text: Option<String>,
}

/// In which order results are listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResultOrder {
    /// By number.
    #[default]
    Submit,
    /// As they ended.
    Completion,
    /// By key, and within one by number.
    Key,
}

pub(super) fn text_of(key: &Key) -> String {
    String::from_utf8_lossy(&key.0).into_owned()
}

pub(super) fn rule_text(rule: Rule) -> &'static str {
    match rule {
        Rule::Keep => "keep",
        Rule::Aged => "aged",
        Rule::Admit => "admit",
        Rule::Least => "least",
    }
}

/// A job that is not over, and why its subtasks wait.
pub(super) fn live_view(books: &Books, number: JobNumber, now: Timestamp) -> Option<Job> {
    let because = books.scheduler.waiting_because(number).unwrap_or_default();
    let because = because.into_iter().map(|because| {
        let count = (because.subtasks > 0).then_some(because.subtasks);
        Because { count, ..because_of(books, &because.reason, now) }
    });
    let waiting_because = because.collect();
    Some(Job { waiting_because, ..brief_view(books, number, now)? })
}

/// The same without the reasons, which take a while to find.
pub(super) fn brief_view(books: &Books, number: JobNumber, now: Timestamp) -> Option<Job> {
    let live = books.live.get(&number)?;
    let now_counts = books.scheduler.counts(number).unwrap_or_default();
    let counts = counts_of(live, &now_counts);
    let ended = counts.ended();
    let scheduled = now_counts.scheduled > 0
        || live.head.run_at.is_some_and(|at| at > now) && live.started.is_none();
    Some(Job {
        state: live.state(live.started.is_some(), scheduled),
        progress: progress(ended, counts.total, live.plan.is_unsplit()),
        started_at: live.started,
        eta_ms: eta(live.started, now, ended, counts.total),
        result: live.result.clone(),
        error: live.error.clone(),
        version: live.version,
        ..plain_view(live.id, &live.head, live.created, counts)
    })
}

/// A job that has just been over.
pub(super) fn final_view(live: &Live, state: JobState, now: Timestamp) -> Job {
    let counts = stored_counts(live.plan.total(), &live.final_counts());
    Job {
        state,
        started_at: live.started,
        ended_at: Some(now),
        progress: 1.0,
        result: live.result.clone(),
        error: live.error.clone(),
        version: last_version(now),
        ..plain_view(live.id, &live.head, live.created, counts)
    }
}

fn plain_view(id: JobId, head: &Head, created: Timestamp, counts: Counts) -> Job {
    Job {
        id: id.to_string(),
        kind: head.kind.clone(),
        name: head.name.clone(),
        labels: head.labels.clone(),
        state: JobState::Queued,
        weight: head.weight,
        counts,
        progress: 0.0,
        created_at: created,
        started_at: None,
        ended_at: None,
        run_at: head.run_at,
        eta_ms: None,
        waiting_because: Vec::new(),
        result: None,
        error: None,
        version: 0,
    }
}

/// What has ended and is not on the disk counts as running: it does not go back after a crash.
fn counts_of(live: &Live, now: &schedule::Counts) -> Counts {
    let recorded = &live.recorded;
    let waiting = now.scheduled + now.waiting + now.stopped;
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
    }
}

fn stored_counts(total: u32, counts: &store::Counts) -> Counts {
    Counts {
        total: total.into(),
        succeeded: counts.succeeded.into(),
        failed: counts.failed.into(),
        cancelled: u64::from(counts.cancelled) + u64::from(counts.skipped),
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

/// If it goes on as it went so far.
fn eta(started: Option<Timestamp>, now: Timestamp, ended: u64, total: u64) -> Option<u64> {
    let since = now.0.saturating_sub(started?.0);
    if ended == 0 || ended >= total {
        return None;
    }
    let left = u128::from(total - ended) * u128::from(since) / u128::from(ended);
    u64::try_from(left).ok()
}

/// A reason of the scheduler's in words.
pub(super) fn because_of(books: &Books, reason: &Reason, now: Timestamp) -> Because {
    let plain = |reason: &str, text: String| Because {
        reason: reason.to_owned(),
        text,
        count: None,
        key: None,
        position: None,
        job: None,
        number: None,
        since: None,
        until: None,
    };
    let name = |job: JobNumber| books.live.get(&job).map(|live| live.id.to_string());
    let of = |step: Step| match step {
        Step::Subtask(number) => Some(number),
        Step::Split | Step::FanIn => None,
    };
    match reason {
        Reason::KeyOrder { key, ahead, behind, head } => {
            let at = name(head.of.job).unwrap_or_default();
            let text = format!(
                "its key `{}` is at {} of {at}, which {} ({} ahead)",
                text_of(key),
                head.of.step,
                state_text(&head.state, now),
                ahead
            );
            Because {
                key: Some(text_of(key)),
                position: Some(u64::from(*ahead) + 1),
                job: name(behind.job),
                number: of(behind.step),
                since: Some(Timestamp(head.since)),
                ..plain("key_order", text)
            }
        }
        Reason::Keys => plain("key_order", "their keys are taken by earlier subtasks".into()),
        Reason::KeyPaused { key } => Because {
            key: Some(text_of(key)),
            since: books.paused_keys.get(key).copied(),
            ..plain("key_paused", format!("its key `{}` is paused", text_of(key)))
        },
        Reason::KeyStopped { key, head } => Because {
            key: Some(text_of(key)),
            job: name(head.of.job),
            number: of(head.of.step),
            since: Some(Timestamp(head.since)),
            ..plain(
                "key_stopped",
                format!(
                    "its key `{}` stands still since {} failed; retry or skip that",
                    text_of(key),
                    head.of.step
                ),
            )
        },
        Reason::NoSlot { running, slots, ahead } => {
            let ahead = ahead.map_or_else(String::new, |ahead| {
                format!("; {ahead} jobs need less and come first")
            });
            plain(
                "no_slot",
                format!("all slots are taken: the job has {running} of {slots}{ahead}"),
            )
        }
        Reason::NotAdmitted { active, ahead } => Because {
            position: ahead.map(|ahead| ahead as u64 + 1),
            ..plain(
                "not_admitted",
                format!("{active} jobs are active, as many as may be, and it waits in the line"),
            )
        },
        Reason::KindBound { running } => {
            plain("kind_at_limit", format!("as many of its kind run as may: {running}"))
        }
        Reason::KindRate { until } => Because {
            until: until.map(Timestamp),
            ..plain("kind_rate_limited", "as many of its kind have begun as may for now".into())
        },
        Reason::BackingOff { until } => Because {
            until: Some(Timestamp(*until)),
            ..plain("backing_off", "it failed, and is tried again later".into())
        },
        Reason::Stopped => plain(
            "key_stopped",
            "it failed for the last time, and its key waits for a word: retry or skip it".into(),
        ),
        Reason::JobPaused => plain("job_paused", "somebody has paused the job".into()),
        Reason::Scheduled { until } => Because {
            until: Some(Timestamp(*until)),
            ..plain("scheduled", format!("its time is {}", Timestamp(*until)))
        },
        Reason::Split => plain("split", "its subtasks have yet to be made".into()),
        Reason::Others { left } => plain("fan_in", format!("{left} subtasks must end before")),
        Reason::Draining => {
            plain("draining", "the server is about to stop and begins nothing".into())
        }
    }
}

fn state_text(state: &State, now: Timestamp) -> String {
    match state {
        State::Scheduled { at } => format!("begins at {}", Timestamp(*at)),
        State::Waiting => "waits".into(),
        State::Ready => "could begin".into(),
        State::Running { since, .. } => format!("has run for {} ms", now.0.saturating_sub(*since)),
        State::BackingOff { until } => {
            format!("is tried again in {} ms", until.saturating_sub(now.0))
        }
        State::Stopped => "failed for the last time".into(),
    }
}

fn subtask_state(state: &State) -> SubtaskState {
    match state {
        State::Scheduled { .. } | State::Waiting | State::Stopped => SubtaskState::Waiting,
        State::Ready => SubtaskState::Ready,
        State::Running { .. } => SubtaskState::Running,
        State::BackingOff { .. } => SubtaskState::BackingOff,
    }
}

fn outcome_state(kind: OutcomeKind) -> SubtaskState {
    match kind {
        OutcomeKind::Succeeded => SubtaskState::Succeeded,
        OutcomeKind::Failed => SubtaskState::Failed,
        OutcomeKind::Skipped => SubtaskState::Skipped,
        _ => SubtaskState::Cancelled,
    }
}

impl Core {
    pub(crate) fn read_refused(&self, error: ReadError) -> Refused {
        tracing::error!(%error, "the store cannot be read");
        Refused::StoreFailed(error.to_string())
    }

    /// A job that is known, live or over.
    pub(crate) fn job(&self, id: JobId) -> Result<Job, Refused> {
        let now = self.clock.now();
        {
            let books = self.books();
            if books.live.get(&id.number()).is_some_and(|live| live.id == id) {
                return live_view(&books, id.number(), now)
                    .ok_or_else(|| super::steer::unknown(id));
            }
        }
        let stored = self.stored(id)?;
        self.stored_view(&stored, true)
    }

    /// A job in the store. One that was removed, and one that never was, cannot be told apart: both are
    /// unknown, but for numbers that were given out.
    pub(super) fn stored(&self, id: JobId) -> Result<StoredJob, Refused> {
        let stored = self.store.job(id.number()).map_err(|error| self.read_refused(error))?;
        stored.filter(|stored| stored.id == id).ok_or_else(|| super::steer::unknown(id))
    }

    /// `whole` looks for the result and the error as well, which takes a read.
    fn stored_view(&self, stored: &StoredJob, whole: bool) -> Result<Job, Refused> {
        let mut head: Head = serde_json::from_slice(&stored.head).unwrap_or_default();
        if head.kind.is_empty() {
            head.kind.clone_from(&stored.kind);
        }
        let plan = Plan::new(&head, stored.total);
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
            version: ended.map_or(0, last_version),
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
        plan: Plan,
    ) -> Result<Option<Box<RawValue>>, Refused> {
        if !plan.steps().any(|step| step == Step::FanIn) {
            return Ok(None);
        }
        let number = plan.number(Step::FanIn);
        let outcome = self.store.outcomes_of(stored.number, number..number + 1);
        let outcome =
            outcome.map_err(|error| self.read_refused(error))?.into_iter().flatten().next();
        let succeeded = outcome.filter(|outcome| outcome.kind == OutcomeKind::Succeeded);
        Ok(succeeded.and_then(|outcome| raw(&outcome.result)))
    }

    fn first_error(&self, stored: &StoredJob) -> Result<Option<String>, Refused> {
        let mut after = None;
        loop {
            let page = self.store.outcomes(stored.number, after, 1000);
            let page = page.map_err(|error| self.read_refused(error))?;
            let failed = page.iter().find(|recorded| recorded.outcome.kind == OutcomeKind::Failed);
            if let Some(failed) = failed {
                return Ok(Some(String::from_utf8_lossy(&failed.outcome.result).into_owned()));
            }
            let Some(last) = page.last() else { return Ok(None) };
            after = Some(last.place);
        }
    }

    /// A page of jobs, the newest first.
    pub(crate) fn jobs(
        &self,
        wanted: &Wanted,
        cursor: Option<JobNumber>,
        limit: usize,
    ) -> Result<Page<Job>, Refused> {
        let filter = store::JobFilter {
            states: stored_states(&wanted.states),
            kind: wanted.kind.clone(),
            matches: None,
        };
        let (mut cursor, mut items, mut looked_at) = (cursor, Vec::new(), 0);
        loop {
            let page = self.store.jobs(&filter, cursor, limit.max(100));
            let page = page.map_err(|error| self.read_refused(error))?;
            for stored in &page.jobs {
                looked_at += 1;
                let job = self.view(stored)?;
                if wanted.has(&job) {
                    items.push(job);
                }
                if items.len() == limit {
                    return Ok(Page { items, next_cursor: Some(stored.number.0.to_string()) });
                }
            }
            let Some(next) = page.next else { return Ok(Page { items, next_cursor: None }) };
            cursor = Some(next);
            if looked_at >= MOST_LOOKED_AT {
                return Ok(Page { items, next_cursor: Some(next.0.to_string()) });
            }
        }
    }

    fn view(&self, stored: &StoredJob) -> Result<Job, Refused> {
        let live = live_view(&self.books(), stored.number, self.clock.now());
        live.map_or_else(|| self.stored_view(stored, false), Ok)
    }

    /// Why a job's subtasks wait.
    pub(crate) fn explain(&self, id: JobId) -> Result<Vec<Because>, Refused> {
        self.job(id).map(|job| job.waiting_because)
    }

    /// Subtasks from a number on.
    pub(crate) fn subtasks(
        &self,
        id: JobId,
        from: SubtaskNumber,
        limit: usize,
        state: Option<SubtaskState>,
        key: Option<&str>,
    ) -> Result<Page<SubtaskView>, Refused> {
        let total = self.total(id)?;
        let (mut items, mut number, mut looked_at) = (Vec::new(), from, 0);
        while number < total && items.len() < limit && looked_at < MOST_LOOKED_AT {
            // Some at a time, so that their outcomes are looked up together.
            let end = total.min(number.saturating_add(256));
            for view in self.subtask_views(id, number..end)? {
                (number, looked_at) = (view.number + 1, looked_at + 1);
                let fits = state.is_none_or(|state| view.state == state)
                    && key.is_none_or(|key| view.keys.iter().any(|own| own == key));
                if fits {
                    items.push(view);
                }
                if items.len() == limit {
                    break;
                }
            }
            number = if items.len() < limit { end } else { number };
        }
        let next_cursor = (number < total).then(|| number.to_string());
        Ok(Page { items, next_cursor })
    }

    /// One subtask.
    pub(crate) fn subtask(&self, id: JobId, number: SubtaskNumber) -> Result<SubtaskView, Refused> {
        let unknown = || Refused::Unknown { what: format!("subtask {number} of {id}") };
        if number >= self.total(id)? {
            return Err(unknown());
        }
        self.subtask_views(id, number..number + 1)?.pop().ok_or_else(unknown)
    }

    fn total(&self, id: JobId) -> Result<SubtaskNumber, Refused> {
        Ok(self.plan(id)?.total())
    }

    /// How a job's steps are numbered in the store.
    fn plan(&self, id: JobId) -> Result<Plan, Refused> {
        if let Some(live) = self.books().live.get(&id.number()).filter(|live| live.id == id) {
            return Ok(live.plan);
        }
        let stored = self.stored(id)?;
        let head: Head = serde_json::from_slice(&stored.head).unwrap_or_default();
        Ok(Plan::new(&head, stored.total))
    }

    /// The keys of a subtask and its payload, by its number in the store.
    fn content(
        &self,
        id: JobId,
        number: SubtaskNumber,
    ) -> Result<(Vec<String>, Box<RawValue>), Refused> {
        let chunk =
            self.store.chunk(id.number(), number).map_err(|error| self.read_refused(error))?;
        let Some(subtask) = chunk.subtask(number) else { return Ok((Vec::new(), null())) };
        let keys = subtask.keys().map(|key| String::from_utf8_lossy(key).into_owned());
        Ok((keys.collect(), raw(subtask.payload()).unwrap_or_else(null)))
    }

    /// The outcomes of subtasks that have one, by their numbers in the store; neither of steps nor of what is
    /// done again.
    fn outcomes_in(
        &self,
        id: JobId,
        numbers: std::ops::Range<SubtaskNumber>,
    ) -> Result<Vec<Option<store::Outcome>>, Refused> {
        let outcomes = self.store.outcomes_of(id.number(), numbers);
        let outcomes = outcomes.map_err(|error| self.read_refused(error))?;
        let is_end = |outcome: &store::Outcome| outcome.kind != OutcomeKind::Reopened;
        Ok(outcomes.into_iter().map(|outcome| outcome.filter(is_end)).collect())
    }

    fn subtask_views(
        &self,
        id: JobId,
        numbers: std::ops::Range<SubtaskNumber>,
    ) -> Result<Vec<SubtaskView>, Refused> {
        let plan = self.plan(id)?;
        let first = plan.number(Step::Subtask(numbers.start));
        let outcomes = self.outcomes_in(id, first..first + (numbers.end - numbers.start))?;
        let now = self.clock.now();
        let mut views = Vec::with_capacity(outcomes.len());
        for (number, outcome) in numbers.zip(outcomes) {
            let (keys, payload) = self.content(id, plan.number(Step::Subtask(number)))?;
            let (state, attempts, because) = match &outcome {
                Some(outcome) => (outcome_state(outcome.kind), outcome.attempt, None),
                None => self.standing(id, number, now),
            };
            let outcome = outcome.map(|outcome| outcome_view(number, &outcome, keys.clone()));
            views.push(SubtaskView {
                number,
                keys,
                state,
                attempts,
                payload,
                outcome,
                waiting_because: because,
            });
        }
        Ok(views)
    }

    /// How an unfinished subtask stands; one of a job that is over was cancelled with it.
    fn standing(
        &self,
        id: JobId,
        number: SubtaskNumber,
        now: Timestamp,
    ) -> (SubtaskState, u32, Option<Because>) {
        let books = self.books();
        let Some(live) = books.live.get(&id.number()) else {
            return (SubtaskState::Cancelled, 0, None);
        };
        match books.scheduler.explain(id.number(), Step::Subtask(number)) {
            Some(explained) => {
                let because =
                    explained.reasons.first().map(|reason| because_of(&books, reason, now));
                (subtask_state(&explained.state), explained.attempts, because)
            }
            None if live.cancelling || live.is_closing => (SubtaskState::Cancelled, 0, None),
            // It has ended, and that is on its way to the disk.
            None => (SubtaskState::Running, 0, None),
        }
    }

    /// Results, in an order. The cursor is what the last page said.
    pub(crate) fn results(
        &self,
        id: JobId,
        order: ResultOrder,
        cursor: u64,
        limit: usize,
    ) -> Result<Page<OutcomeView>, Refused> {
        match order {
            ResultOrder::Completion => self.results_as_ended(id, cursor, limit),
            ResultOrder::Submit => {
                let total = self.total(id)?;
                let from = u32::try_from(cursor).unwrap_or(u32::MAX).min(total);
                let end = total.min(from.saturating_add(u32::try_from(limit).unwrap_or(u32::MAX)));
                let items = self.results_in(id, from..end)?;
                let next_cursor = (end < total).then(|| end.to_string());
                Ok(Page { items, next_cursor })
            }
            ResultOrder::Key => {
                let all = self.by_key(id)?;
                let from = usize::try_from(cursor).unwrap_or(usize::MAX).min(all.len());
                let end = all.len().min(from.saturating_add(limit));
                let mut items = Vec::new();
                for number in &all[from..end] {
                    items.extend(self.results_in(id, *number..*number + 1)?);
                }
                let next_cursor = (end < all.len()).then(|| end.to_string());
                Ok(Page { items, next_cursor })
            }
        }
    }

    fn results_in(
        &self,
        id: JobId,
        numbers: std::ops::Range<SubtaskNumber>,
    ) -> Result<Vec<OutcomeView>, Refused> {
        let plan = self.plan(id)?;
        let first = plan.number(Step::Subtask(numbers.start));
        let outcomes = self.outcomes_in(id, first..first + (numbers.end - numbers.start))?;
        let mut views = Vec::new();
        for (number, outcome) in numbers.zip(outcomes) {
            let Some(outcome) = outcome else { continue };
            let (keys, _) = self.content(id, outcome.number)?;
            views.push(outcome_view(number, &outcome, keys));
        }
        Ok(views)
    }

    /// The cursor is one past the place of the last outcome that was looked at.
    fn results_as_ended(
        &self,
        id: JobId,
        cursor: u64,
        limit: usize,
    ) -> Result<Page<OutcomeView>, Refused> {
        let plan = self.plan(id)?;
        // Looked at before what is there, so that nothing that comes in between is taken for the end.
        let is_live = self.books().live.contains_key(&id.number());
        let (mut after, mut items) = (cursor.checked_sub(1).map(OutcomePlace::new), Vec::new());
        loop {
            let page = self.store.outcomes(id.number(), after, limit);
            let page = page.map_err(|error| self.read_refused(error))?;
            let Some(last) = page.last() else { break };
            let last = last.place;
            for recorded in &page {
                let place = recorded.place;
                if let Some(view) = self.last_outcome(id, plan, &recorded.outcome)? {
                    items.push(view);
                }
                if items.len() == limit {
                    return Ok(Page { items, next_cursor: Some((place.get() + 1).to_string()) });
                }
            }
            after = Some(last);
        }
        // More may come as long as the job is not over.
        let next = after.map_or(0, |place| place.get() + 1);
        Ok(Page { items, next_cursor: is_live.then(|| next.to_string()) })
    }

    /// An outcome, if it is that of a subtask and the last one of it.
    fn last_outcome(
        &self,
        id: JobId,
        plan: Plan,
        outcome: &store::Outcome,
    ) -> Result<Option<OutcomeView>, Refused> {
        let Step::Subtask(number) = plan.step(outcome.number) else { return Ok(None) };
        if outcome.kind == OutcomeKind::Reopened {
            return Ok(None);
        }
        let now = self.outcomes_in(id, outcome.number..outcome.number + 1)?.pop().flatten();
        if now.as_ref() != Some(outcome) {
            return Ok(None);
        }
        let (keys, _) = self.content(id, outcome.number)?;
        Ok(Some(outcome_view(number, outcome, keys)))
    }

    /// The numbers of a job's subtasks by their first keys; those without a key come first.
    fn by_key(&self, id: JobId) -> Result<Vec<u32>, Refused> {
        let plan = self.plan(id)?;
        let mut by_key: BTreeMap<Vec<u8>, Vec<u32>> = BTreeMap::new();
        for chunk in self.store.chunks(id.number(), 0..plan.stored) {
            let chunk = chunk.map_err(|error| self.read_refused(error))?;
            for subtask in chunk.subtasks() {
                if let Step::Subtask(number) = plan.step(subtask.number()) {
                    let key = subtask.keys().next().unwrap_or_default().to_vec();
                    by_key.entry(key).or_default().push(number);
                }
            }
        }
        Ok(by_key.into_values().flatten().collect())
    }

    /// What a fan-in step gets: the job, and the results by number.
    pub(super) fn results_for_fan_in(&self, id: JobId) -> Result<Bytes, Failure> {
        let failed =
            |refused: Refused| Failure::passing(format!("the results cannot be read: {refused}"));
        let payload =
            self.books().live.get(&id.number()).and_then(|live| live.head.payload.clone());
        let payload = payload.unwrap_or_else(null);
        let mut text = format!("{{\"job\":\"{id}\",\"payload\":{},\"results\":[", payload.get());
        let mut cursor = 0;
        loop {
            let page = self.results(id, ResultOrder::Submit, cursor, 1000).map_err(failed)?;
            for outcome in &page.items {
                if text.as_bytes().last() != Some(&b'[') {
                    text.push(',');
                }
                text.push_str(outcome.result.as_ref().map_or("null", |result| result.get()));
            }
            if text.len() > MOST_FAN_IN_BYTES {
                let why = format!(
                    "the results have over {MOST_FAN_IN_BYTES} bytes, more than a fan-in step gets"
                );
                return Err(Failure::lasting(why));
            }
            let Some(next) = page.next_cursor.and_then(|next| next.parse().ok()) else { break };
            cursor = next;
        }
        text.push_str("]}");
        Ok(text.into())
    }

    /// Keys with unfinished subtasks, and those that are paused.
    pub(crate) fn keys(&self, sort: KeySort, limit: usize) -> Vec<KeyView> {
        let now = self.clock.now();
        let books = self.books();
        let keys = books.scheduler.keys(sort, limit);
        keys.into_iter().map(|key| key_view(&books, key, now)).collect()
    }

    /// One key; nothing if it has no unfinished subtask and is not paused.
    pub(crate) fn key(&self, key: &[u8]) -> Option<KeyView> {
        let books = self.books();
        let found = books.scheduler.key(key)?;
        Some(key_view(&books, found, self.clock.now()))
    }

    /// How slots are shared.
    pub(crate) fn scheduler_view(&self) -> SchedulerView {
        let books = self.books();
        let slots = books.scheduler.slots();
        let name = |job: JobNumber| {
            books.live.get(&job).map_or_else(String::new, |live| live.id.to_string())
        };
        let mut running: Vec<_> =
            books.running.values().map(|running| running_view(&books, running)).collect();
        running.sort_unstable_by_key(|running| running.slot);
        let decisions = books.scheduler.decisions(200);
        let decisions = decisions.map(|decision| Decision {
            at: Timestamp(decision.at),
            job: name(decision.start.job),
            rule: rule_text(decision.rule()).into(),
        });
        SchedulerView {
            slots: slots.total as u64,
            busy: slots.busy as u64,
            jobs: slots.unfinished_jobs as u64,
            active: slots.active_jobs as u64,
            draining: slots.draining,
            decisions: decisions.collect(),
            running,
        }
    }

    /// What ran since a place, and what runs.
    pub(crate) fn timeline_after(&self, place: u64) -> Timeline {
        const MOST_RUNNING: usize = 1000;
        let mut timeline = self.timeline.after(place);
        let books = self.books();
        let running = books.running.values().take(MOST_RUNNING).map(|running| {
            let view = running_view(&books, running);
            Slice {
                slot: view.slot,
                job: view.job,
                number: view.number,
                keys: view.keys,
                attempt: view.attempt,
                begin: view.since,
                end: None,
                outcome: None,
                rule: rule_text(running.rule).into(),
            }
        });
        timeline.slices.extend(running);
        timeline
    }

    /// The whole in numbers.
    pub(crate) fn summary(&self) -> Summary {
        let now = self.clock.now();
        let books = self.books();
        let slots = books.scheduler.slots();
        let mut jobs: BTreeMap<String, u64> = BTreeMap::new();
        let mut all = schedule::Counts::default();
        for (number, live) in &books.live {
            let counts = books.scheduler.counts(*number).unwrap_or_default();
            let state = live.state(live.started.is_some(), counts.scheduled > 0);
            *jobs.entry(state.as_str().into()).or_default() += 1;
            all.waiting += counts.waiting + counts.scheduled + counts.stopped;
            all.ready += counts.ready;
            all.backing_off += counts.backing_off;
        }
        let oldest = books.scheduler.keys(KeySort::HeadAge, 1).pop().and_then(|key| key.head);
        let totals = books.totals;
        let store = match &*self.health() {
            StoreHealth::Well => "ok",
            StoreHealth::Full => "full",
            StoreHealth::Failed(_) => "failed",
        };
        Summary {
            at: now,
            slots: slots.total as u64,
            busy: slots.busy as u64,
            jobs,
            waiting: all.waiting,
            ready: all.ready,
            backing_off: all.backing_off,
            succeeded_total: totals.succeeded,
            failed_total: totals.failed,
            cancelled_total: totals.cancelled,
            retried_total: totals.retried,
            keys: slots.keys as u64,
            oldest_head_ms: oldest.map_or(0, |head| now.0.saturating_sub(head.since)),
            store_bytes: std::fs::metadata(self.store.path()).map_or(0, |file| file.len()),
            store: store.into(),
            websockets: self.websockets.load(std::sync::atomic::Ordering::Relaxed),
            started_at: self.clock.started(),
            draining: slots.draining,
        }
    }

    /// The kinds that there are.
    pub(crate) fn kind_views(&self) -> Vec<KindView> {
        let view = |name: &Arc<str>, kind: &crate::kind::Kind| KindView {
            name: name.to_string(),
            handler: kind.sort().into(),
            concurrency: kind.concurrency.map(|most| most as u64),
            per_second: kind.rate.map(|rate| rate.per_second),
            attempts: kind.attempts,
            timeout_ms: kind.timeout.map(super::dispatch::millis),
            split: kind.split.is_some(),
            fan_in: kind.fan_in.is_some(),
        };
        self.kinds.iter().map(|(_, name, kind)| view(name, kind)).collect()
    }
}

impl Wanted {
    fn has(&self, job: &Job) -> bool {
        let text = |text: &String| {
            job.id.contains(text) || job.name.as_ref().is_some_and(|name| name.contains(text))
        };
        (self.states.is_empty() || self.states.contains(&job.state))
            && self.label.as_ref().is_none_or(|(name, value)| job.labels.get(name) == Some(value))
            && self.text.as_ref().is_none_or(text)
    }
}

/// As what states the wanted ones are in the store.
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

fn running_view(books: &Books, running: &super::books::Running) -> RunningSubtask {
    RunningSubtask {
        slot: running.slot,
        job: books.live.get(&running.job).map_or_else(String::new, |live| live.id.to_string()),
        number: shown(running.step),
        keys: running.keys.iter().map(text_of).collect(),
        attempt: running.attempt,
        since: running.since,
        worker: running.lease.as_ref().and_then(|lease| lease.worker.clone()),
    }
}

fn key_view(books: &Books, key: schedule::KeyView, now: Timestamp) -> KeyView {
    let is_stopped = key.head.is_some_and(|head| head.state == State::Stopped);
    let head = key.head.map(|head| KeyHead {
        job: books.live.get(&head.of.job).map_or_else(String::new, |live| live.id.to_string()),
        number: shown(head.of.step),
        state: subtask_state(&head.state),
        since: Timestamp(head.since),
        age_ms: now.0.saturating_sub(head.since),
        attempts: head.attempts,
    });
    KeyView {
        key: text_of(&key.key),
        state: match (key.paused, is_stopped) {
            (true, _) => KeyState::Paused,
            (false, true) => KeyState::Stopped,
            (false, false) => KeyState::Open,
        },
        length: key.length.into(),
        head,
    }
}

fn outcome_view(number: SubtaskNumber, outcome: &store::Outcome, keys: Vec<String>) -> OutcomeView {
    let is_result = outcome.kind == OutcomeKind::Succeeded;
    let said = (!outcome.result.is_empty()).then(|| outcome.result.clone());
    OutcomeView {
        number,
        keys,
        outcome: outcome_state(outcome.kind),
        attempt: outcome.attempt,
        started_at: Some(Timestamp(outcome.started_ms)),
        ended_at: Timestamp(outcome.ended_ms),
        result: said.clone().filter(|_| is_result).and_then(|bytes| raw(&bytes)),
        error: said
            .filter(|_| !is_result)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
    }
}

/// Bytes that were JSON when they were written.
fn raw(bytes: &[u8]) -> Option<Box<RawValue>> {
    let text = std::str::from_utf8(bytes).ok()?;
    if text.is_empty() {
        return None;
    }
    RawValue::from_string(text.to_owned()).ok()
}
