//! Queries for subtasks and their states.

use serde_json::value::RawValue;

use super::Query;
use super::job::add_failure;
use super::outcome_view::{outcome_state, outcome_view, subtask_state};
use super::reason_text::because_of;
use super::text::{raw, text_of};
use crate::engine::split_result::null;
use crate::engine::store_status::read_refused;
use crate::request_error::RequestError;
use crate::scheduler::{Step, UnfinishedState, WaitReason};
use crate::store::{self, OutcomeKind};
use crate::wire::{Because, Page, SubtaskState, SubtaskView, Timestamp};
use crate::{JobId, SubtaskNumber, TaskKeys};

/// Maximum number of subtasks that a filtered list reads before it returns a cursor.
const MAX_SCANNED: usize = 5_000;

impl Query {
    /// Returns a page of subtasks from a number on.
    pub(crate) fn subtasks(
        &self,
        id: JobId,
        from: SubtaskNumber,
        limit: usize,
        state: Option<SubtaskState>,
        key: Option<&str>,
    ) -> Result<Page<SubtaskView>, RequestError> {
        let total = self.total(id)?;
        let (mut items, mut number, mut looked_at) = (Vec::new(), from, 0);
        while number < total && items.len() < limit && looked_at < MAX_SCANNED {
            // In groups, so that their outcomes are read together.
            let end = total.min(number.saturating_add(256));
            for view in self.subtask_views(id, number..end)? {
                (number, looked_at) = (view.number + 1, looked_at + 1);
                let fits = state.is_none_or(|state| view.state == state)
                    && key.is_none_or(|key| {
                        view.keys.iter().chain(&view.shared_keys).any(|own| own == key)
                    });
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
        Ok(Page::new(items, next_cursor))
    }

    /// Returns a subtask.
    pub(crate) fn subtask(
        &self,
        id: JobId,
        number: SubtaskNumber,
    ) -> Result<SubtaskView, RequestError> {
        let unknown = || RequestError::Unknown { what: format!("subtask {number} of {id}") };
        if number >= self.total(id)? {
            return Err(unknown());
        }
        self.subtask_views(id, number..number + 1)?.pop().ok_or_else(unknown)
    }

    /// Returns the keys of a subtask and its payload, by its number in the store.
    pub(super) fn content(
        &self,
        id: JobId,
        number: SubtaskNumber,
    ) -> Result<(TaskKeys, Box<RawValue>), RequestError> {
        let chunk = self.store.chunk(id.number(), number).map_err(read_refused)?;
        let Some(subtask) = chunk.subtask(number) else {
            return Ok((TaskKeys::default(), null()));
        };
        Ok((subtask.keys().collect(), raw(subtask.payload()).unwrap_or_else(null)))
    }

    /// Returns the outcomes of subtasks by their numbers in the store, without those of the split
    /// and the fan-in and of subtasks that are retried.
    pub(super) fn outcomes_in(
        &self,
        id: JobId,
        numbers: impl IntoIterator<Item = SubtaskNumber>,
    ) -> Result<Vec<Option<store::SubtaskOutcome>>, RequestError> {
        let outcomes = self.store.outcomes_of(id.number(), numbers);
        let outcomes = outcomes.map_err(read_refused)?;
        let is_end = |outcome: &store::SubtaskOutcome| outcome.kind != OutcomeKind::Reopened;
        Ok(outcomes.into_iter().map(|outcome| outcome.filter(is_end)).collect())
    }

    fn subtask_views(
        &self,
        id: JobId,
        numbers: std::ops::Range<SubtaskNumber>,
    ) -> Result<Vec<SubtaskView>, RequestError> {
        let (plan, max_attempts) = self.plan_and_attempts(id)?;
        let first = plan.number(Step::Subtask(numbers.start));
        let outcomes = self.outcomes_in(id, first..first + (numbers.end - numbers.start))?;
        let now = self.clock.now();
        let mut views = Vec::with_capacity(outcomes.len());
        for (number, outcome) in numbers.zip(outcomes) {
            let (keys, payload) = self.content(id, plan.number(Step::Subtask(number)))?;
            let Standing { state, attempts, because, progress } = match &outcome {
                Some(outcome) => Standing::new(outcome_state(outcome.kind), outcome.attempt),
                None => self.standing(id, number, now),
            };
            let outcome = outcome.map(|outcome| outcome_view(number, &outcome, &keys));
            views.push(SubtaskView {
                number,
                keys: keys.exclusive.iter().map(text_of).collect(),
                shared_keys: keys.shared.iter().map(text_of).collect(),
                barrier: keys.is_barrier,
                latest: keys.is_latest,
                state,
                attempts,
                max_attempts: max_attempts.max(1),
                payload,
                progress,
                outcome,
                waiting_because: because,
            });
        }
        Ok(views)
    }

    /// Returns the state of an unfinished subtask. In a finished job it was cancelled with the job.
    fn standing(&self, id: JobId, number: SubtaskNumber, now: Timestamp) -> Standing {
        let engine = self.state.lock();
        let Some(live) = engine.live.get(&id.number()) else {
            return Standing::new(SubtaskState::Cancelled, 0);
        };
        let Some(explained) = engine.scheduler.explain(id.number(), Step::Subtask(number)) else {
            return match live.cancelling || live.is_closing {
                true => Standing::new(SubtaskState::Cancelled, 0),
                // The subtask has ended, and its outcome is on its way to the disk.
                false => Standing::new(SubtaskState::Running, 0),
            };
        };
        let because = explained.reasons.first().map(|reason| {
            let mut because = because_of(&self.kinds, &engine, id.number(), reason, now);
            if let WaitReason::BackingOff { .. } | WaitReason::Stopped = reason {
                add_failure(&engine, id.number(), Step::Subtask(number), &mut because);
            }
            because
        });
        let progress = match explained.state {
            UnfinishedState::Running { fence, .. } => {
                engine.running.get(&fence).and_then(|running| running.signals.fraction())
            }
            _ => None,
        };
        let (state, attempts) = (subtask_state(&explained.state), explained.attempts);
        Standing { state, attempts, because, progress }
    }
}

/// State of a subtask that clients see.
struct Standing {
    state: SubtaskState,
    attempts: u32,
    because: Option<Because>,
    progress: Option<f64>,
}

impl Standing {
    fn new(state: SubtaskState, attempts: u32) -> Self {
        Standing { state, attempts, because: None, progress: None }
    }
}
