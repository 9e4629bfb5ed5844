//! API forms of states and outcomes.

use super::text::{raw, text_of};
use crate::scheduler::UnfinishedState;
use crate::store::{self, OutcomeKind};
use crate::wire::{OutcomeView, SubtaskRef, SubtaskState, Timestamp};
use crate::{SubtaskNumber, TaskKeys};

pub(super) fn subtask_state(state: &UnfinishedState) -> SubtaskState {
    match state {
        UnfinishedState::Scheduled { .. } | UnfinishedState::Waiting | UnfinishedState::Stopped => {
            SubtaskState::Waiting
        }
        UnfinishedState::Ready => SubtaskState::Ready,
        UnfinishedState::Running { .. } => SubtaskState::Running,
        UnfinishedState::BackingOff { .. } => SubtaskState::BackingOff,
    }
}

pub(super) fn outcome_state(kind: OutcomeKind) -> SubtaskState {
    match kind {
        OutcomeKind::Succeeded => SubtaskState::Succeeded,
        OutcomeKind::Failed => SubtaskState::Failed,
        OutcomeKind::Skipped => SubtaskState::Skipped,
        OutcomeKind::Superseded => SubtaskState::Superseded,
        _ => SubtaskState::Cancelled,
    }
}

pub(super) fn outcome_view(
    number: SubtaskNumber,
    outcome: &store::SubtaskOutcome,
    keys: &TaskKeys,
) -> OutcomeView {
    let is_result = outcome.kind == OutcomeKind::Succeeded;
    let superseded_by = superseded_by(outcome);
    let said = (!outcome.result.is_empty()).then(|| outcome.result.clone());
    OutcomeView {
        number,
        keys: keys.exclusive.iter().map(text_of).collect(),
        shared_keys: keys.shared.iter().map(text_of).collect(),
        outcome: outcome_state(outcome.kind),
        attempt: outcome.attempt,
        started_at: Some(Timestamp(outcome.started_ms)),
        ended_at: Timestamp(outcome.ended_ms),
        result: said.clone().filter(|_| is_result).and_then(|bytes| raw(&bytes)),
        error: said
            .filter(|_| !is_result && superseded_by.is_none())
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned()),
        superseded_by,
    }
}

/// Returns the subtask that has replaced this one, from the text of the outcome.
fn superseded_by(outcome: &store::SubtaskOutcome) -> Option<SubtaskRef> {
    let text = std::str::from_utf8(&outcome.result).ok()?;
    let (job, number) = text.split_once('/').filter(|_| outcome.kind == OutcomeKind::Superseded)?;
    Some(SubtaskRef { job: job.to_owned(), number: number.parse().ok()? })
}
