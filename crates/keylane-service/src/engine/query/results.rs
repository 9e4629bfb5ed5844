//! Queries for the results of subtasks, in three orders.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::Query;
use super::key_order::{KeyOrder, OrderName};
use super::text::raw;
use crate::engine::query::outcome_view::outcome_view;
use crate::engine::split_result::null;
use crate::engine::store_status::read_refused;
use crate::handle::AttemptFailure;
use crate::request_error::RequestError;
use crate::scheduler::Step;
use crate::store::{OutcomeKind, OutcomePosition, PinnedIndex};
use crate::wire::{OutcomeView, Page};
use crate::{JobId, SubtaskNumber};

/// Order of a result list.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ResultOrder {
    /// By subtask number.
    #[default]
    Submit,
    /// In the order in which the subtasks ended.
    Completion,
    /// By key, and by number within a key.
    Key,
}

impl ResultOrder {
    /// Returns the name of the order in a query.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            ResultOrder::Submit => "submit",
            ResultOrder::Completion => "completion",
            ResultOrder::Key => "key",
        }
    }
}

/// What a stream of a job's results keeps in memory between its pages.
#[derive(Debug)]
pub(crate) struct PinnedResults {
    _ended: Option<PinnedIndex>,
    /// List for the order by key.
    by_key: Option<KeyOrder>,
}

/// Maximum size of the results that a fan-in step gets, in bytes.
const MAX_FAN_IN_BYTES: usize = 16 * 1024 * 1024;

impl Query {
    /// Returns a page of results in an order. `cursor` is the one of the previous page, and `pin`
    /// that of the stream of all pages, if there is one.
    pub(crate) fn results(
        &self,
        id: JobId,
        order: ResultOrder,
        cursor: u64,
        limit: usize,
        pin: Option<&PinnedResults>,
    ) -> Result<Page<OutcomeView>, RequestError> {
        match order {
            ResultOrder::Completion => self.results_as_ended(id, cursor, limit),
            ResultOrder::Submit => {
                let total = self.total(id)?;
                let from = u32::try_from(cursor).unwrap_or(u32::MAX).min(total);
                let end = total.min(from.saturating_add(u32::try_from(limit).unwrap_or(u32::MAX)));
                let numbers: Vec<_> = (from..end).collect();
                let items = self.results_in(id, &numbers)?;
                let next_cursor = (end < total).then(|| end.to_string());
                Ok(Page::new(items, next_cursor))
            }
            ResultOrder::Key => {
                let pinned = pin.and_then(|pin| pin.by_key.as_ref());
                let all =
                    pinned.map_or_else(|| Ok(self.by_key(id)?.1), |all| Ok(Arc::clone(all)))?;
                let from = usize::try_from(cursor).unwrap_or(usize::MAX).min(all.len());
                let end = all.len().min(from.saturating_add(limit));
                let items = self.results_in(id, &all[from..end])?;
                let next_cursor = (end < all.len()).then(|| end.to_string());
                Ok(Page::new(items, next_cursor))
            }
        }
    }

    /// Keeps in memory what all pages of a job's results need, until the result is dropped. With
    /// too much kept by others, a part of it is missing and is read for each page.
    pub(crate) fn pin_results(
        &self,
        id: JobId,
        order: ResultOrder,
    ) -> Result<PinnedResults, RequestError> {
        let ended = self.store.pin_ended(id.number()).map_err(read_refused)?;
        let by_key = match order {
            ResultOrder::Key => {
                let (name, list) = self.by_key(id)?;
                self.key_orders.pin_within_bound(name, &list)
            }
            ResultOrder::Submit | ResultOrder::Completion => None,
        };
        Ok(PinnedResults { _ended: ended, by_key })
    }

    fn results_in(
        &self,
        id: JobId,
        numbers: &[SubtaskNumber],
    ) -> Result<Vec<OutcomeView>, RequestError> {
        let plan = self.plan(id)?;
        let stored = numbers.iter().map(|number| plan.number(Step::Subtask(*number)));
        let outcomes = self.outcomes_in(id, stored)?;
        let mut views = Vec::new();
        for (number, outcome) in numbers.iter().zip(outcomes) {
            let Some(outcome) = outcome else { continue };
            let (keys, _) = self.content(id, outcome.number)?;
            views.push(outcome_view(*number, &outcome, &keys));
        }
        Ok(views)
    }

    /// Returns results in the order of their ends. The cursor is one past the place of the last
    /// outcome read.
    fn results_as_ended(
        &self,
        id: JobId,
        cursor: u64,
        limit: usize,
    ) -> Result<Page<OutcomeView>, RequestError> {
        let plan = self.plan(id)?;
        // Read before the outcomes, so that an outcome written in between is not taken for the last
        // one.
        let is_live = self.state.lock().live.contains_key(&id.number());
        let (mut after, mut items) = (cursor.checked_sub(1).map(OutcomePosition::new), Vec::new());
        loop {
            let page = self.store.outcomes(id.number(), after, limit);
            let page = page.map_err(read_refused)?;
            let Some(last) = page.last() else { break };
            let last = last.place;
            let counting = self.store.that_count(id.number(), page);
            for recorded in counting.map_err(read_refused)? {
                let Step::Subtask(number) = plan.step(recorded.outcome.number) else { continue };
                let (keys, _) = self.content(id, recorded.outcome.number)?;
                items.push(outcome_view(number, &recorded.outcome, &keys));
                if items.len() == limit {
                    let next = recorded.place.get() + 1;
                    return Ok(Page::new(items, Some(next.to_string())));
                }
            }
            after = Some(last);
        }
        // An unfinished job may have more outcomes later.
        let next = after.map_or(0, |place| place.get() + 1);
        Ok(Page::new(items, is_live.then(|| next.to_string())))
    }

    /// Returns the numbers of a job's subtasks by their first keys, and the name of that list;
    /// subtasks without a key come first.
    fn by_key(&self, id: JobId) -> Result<(OrderName, KeyOrder), RequestError> {
        let plan = self.plan(id)?;
        let name = (id, plan.stored);
        let build = || {
            let mut by_key: BTreeMap<Vec<u8>, Vec<SubtaskNumber>> = BTreeMap::new();
            for chunk in self.store.chunks(id.number(), 0..plan.stored) {
                let chunk = chunk.map_err(read_refused)?;
                for subtask in chunk.subtasks() {
                    if let Step::Subtask(number) = plan.step(subtask.number()) {
                        let key = subtask.keys().next();
                        let key = key.map_or_else(Vec::new, |claim| claim.key.to_vec());
                        by_key.entry(key).or_default().push(number);
                    }
                }
            }
            Ok(by_key.into_values().flatten().collect())
        };
        Ok((name, self.key_orders.find(name, build)?))
    }

    /// Returns the payload of a fan-in step: the job, and its results by number.
    pub(in crate::engine) fn results_for_fan_in(&self, id: JobId) -> Result<Bytes, AttemptFailure> {
        let failed = |refused: RequestError| {
            AttemptFailure::passing(format!("the results cannot be read: {refused}"))
        };
        let payload =
            self.state.lock().live.get(&id.number()).and_then(|live| live.head.payload.clone());
        let payload = payload.unwrap_or_else(null);
        let mut text = format!("{{\"job\":\"{id}\",\"payload\":{},\"results\":[", payload.get());
        let plan = self.plan(id).map_err(failed)?;
        let _pin = self.pin_results(id, ResultOrder::Submit).map_err(failed)?;
        let mut next = 0;
        while next < plan.total() {
            let end = plan.total().min(next + 1000);
            let numbers = (next..end).map(|number| plan.number(Step::Subtask(number)));
            for outcome in self.outcomes_in(id, numbers).map_err(failed)?.into_iter().flatten() {
                if text.as_bytes().last() != Some(&b'[') {
                    text.push(',');
                }
                let result = (outcome.kind == OutcomeKind::Succeeded).then(|| raw(&outcome.result));
                text.push_str(result.flatten().as_ref().map_or("null", |result| result.get()));
                if text.len() > MAX_FAN_IN_BYTES {
                    let why = format!(
                        "the results have over {MAX_FAN_IN_BYTES} bytes, more than a fan-in step gets"
                    );
                    return Err(AttemptFailure::lasting(why));
                }
            }
            next = end;
        }
        text.push_str("]}");
        Ok(text.into())
    }
}
