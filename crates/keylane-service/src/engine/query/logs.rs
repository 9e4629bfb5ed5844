//! Queries for the logs of a subtask's attempts.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use super::Query;
use super::outcome_view::outcome_state;
use crate::engine::engine_state::EngineState;
use crate::engine::step_numbers::StepNumbers;
use crate::engine::store_status::read_refused;
use crate::handle::OutputTail;
use crate::request_error::RequestError;
use crate::scheduler::Step;
use crate::wire::{AttemptLog, Page, SubtaskState, Timestamp};
use crate::{JobId, JobNumber, store};

impl Query {
    /// Returns the logs of the attempts at a step, in order: ended attempts from the store, and the
    /// current output of a running one.
    pub(crate) fn logs(&self, id: JobId, step: Step) -> Result<Page<AttemptLog>, RequestError> {
        let plan = self.plan(id)?;
        if !has(plan, step) {
            return Err(RequestError::Unknown { what: format!("subtask {} of {id}", name(step)) });
        }
        let job = id.number();
        // Read before the store, so that an attempt that ends in between is found there.
        let running = running(&self.state.lock(), job, step);
        let ended = self.store.logs(job, plan.number(step));
        let ended = ended.map_err(read_refused)?;
        let running = running.filter(|log| ended.iter().all(|ended| ended.fence != log.fence));
        let items = ended.into_iter().map(of_ended).chain(running).collect();
        Ok(Page::new(items, None))
    }
}

fn has(plan: StepNumbers, step: Step) -> bool {
    match step {
        Step::Subtask(number) => number < plan.total(),
        Step::Split | Step::FanIn => plan.steps().any(|own| own == step),
    }
}

/// Returns the name of a step in paths and for handlers.
fn name(step: Step) -> String {
    match step {
        Step::Split => "split".into(),
        Step::Subtask(number) => number.to_string(),
        Step::FanIn => "fan-in".into(),
    }
}

fn running(engine: &EngineState, job: JobNumber, step: Step) -> Option<AttemptLog> {
    let all = engine.running.iter();
    let (fence, running) =
        all.into_iter().find(|(_, running)| running.job == job && running.step == step)?;
    let said = running.log.so_far()?;
    let (state, started, attempt) = (SubtaskState::Running, running.since, running.attempt);
    Some(view(*fence, attempt, state, started, None, said))
}

fn of_ended(log: store::AttemptLog) -> AttemptLog {
    let state = outcome_state(log.kind);
    let [started, ended] = [log.started_ms, log.ended_ms].map(Timestamp);
    let said = OutputTail { text: log.text, left_out: log.left_out };
    view(log.fence, log.attempt, state, started, Some(ended), said)
}

fn view(
    fence: u64,
    attempt: u32,
    state: SubtaskState,
    started_at: Timestamp,
    ended_at: Option<Timestamp>,
    said: OutputTail,
) -> AttemptLog {
    let text = String::from_utf8_lossy(&said.text);
    let is_text = matches!(text, std::borrow::Cow::Borrowed(_));
    AttemptLog {
        attempt,
        fence,
        state,
        started_at,
        ended_at,
        left_out_bytes: said.left_out,
        base64: (!is_text).then(|| STANDARD.encode(&said.text)),
        text: text.into_owned(),
    }
}
