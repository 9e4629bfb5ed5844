//! What attempts say goes to the disk when they end, in one transaction with their end if that is written.
//!
//! An attempt that said nothing has nothing here: no change, no row.

use super::Core;
use super::books::{Books, Running};
use crate::handle::Log;
use crate::kind::Work;
use crate::schedule::{Fate, Step};
use crate::store::{AttemptLog, OutcomeKind};
use crate::wire::Timestamp;

impl Core {
    /// Where an attempt at a step of a kind puts what it says.
    pub(super) fn log_of(&self, kind: u32, step: Step) -> Log {
        let kind = self.kinds.get(kind);
        let handler = match (step, &kind.work) {
            (Step::Split, _) => kind.split.as_ref(),
            (Step::FanIn, _) => kind.fan_in.as_ref(),
            (Step::Subtask(_), Work::Handler(handler)) => Some(handler),
            // Its worker says it all at once, with the end.
            (Step::Subtask(_), Work::Lease { .. }) => None,
        };
        let keeps = handler.is_some_and(|handler| handler.keeps_log());
        if keeps { Log::keeping(kind.log_bytes) } else { Log::default() }
    }
}

/// A run has ended: what it said is to be written before that, so that both are in the same batch.
pub(super) fn note_log(
    books: &mut Books,
    running: &Running,
    fence: u64,
    fate: Fate,
    now: Timestamp,
) {
    let Some(said) = running.log.take() else { return };
    let log = AttemptLog {
        number: running.number,
        fence,
        attempt: running.attempt,
        kind: match fate {
            Fate::Succeeded => OutcomeKind::Succeeded,
            Fate::Failed | Fate::Again { .. } | Fate::Stopped => OutcomeKind::Failed,
            Fate::Cancelled => OutcomeKind::Cancelled,
        },
        started_ms: running.since.0,
        ended_ms: now.0,
        left_out: said.left_out,
        text: said.text,
    };
    books.unwritten.changes.said(running.job, log);
}
