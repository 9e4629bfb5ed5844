//! Writes the logs of attempts when they end, in the transaction of their end if that is written.
//!
//! An attempt without log output causes no change and no row.

use super::engine_state::{EngineState, RunningAttempt};
use crate::handle::AttemptOutput;
use crate::kind::{Kind, KindExecutor};
use crate::scheduler::{Step, SubtaskFate};
use crate::store::{AttemptLog, OutcomeKind};
use crate::wire::Timestamp;

/// Returns the log buffer for an attempt at a step of a kind.
pub(super) fn log_of(kind: &Kind, step: Step) -> AttemptOutput {
    let handler = match (step, &kind.work) {
        (Step::Split, _) => kind.split.as_ref(),
        (Step::FanIn, _) => kind.fan_in.as_ref(),
        (Step::Subtask(_), KindExecutor::Handler(handler)) => Some(handler),
        // A remote worker sends its whole log with the end.
        (Step::Subtask(_), KindExecutor::Lease { .. }) => None,
    };
    let keeps = handler.is_some_and(|handler| handler.keeps_log());
    if keeps { AttemptOutput::keeping(kind.log_bytes) } else { AttemptOutput::default() }
}

/// Adds the log of an ended run to the next batch. Called before the end is added, so that both are
/// in one batch.
pub(super) fn note_log(
    engine: &mut EngineState,
    running: &RunningAttempt,
    fence: u64,
    fate: SubtaskFate,
    now: Timestamp,
) {
    let Some(said) = running.log.take() else { return };
    let log = AttemptLog {
        number: running.number,
        fence,
        attempt: running.attempt,
        kind: match fate {
            SubtaskFate::Succeeded => OutcomeKind::Succeeded,
            SubtaskFate::Failed | SubtaskFate::Again { .. } | SubtaskFate::Stopped => {
                OutcomeKind::Failed
            }
            SubtaskFate::Cancelled => OutcomeKind::Cancelled,
        },
        started_ms: running.since.0,
        ended_ms: now.0,
        left_out: said.left_out,
        text: said.text,
    };
    engine.unwritten.changes.said(running.job, log);
}
