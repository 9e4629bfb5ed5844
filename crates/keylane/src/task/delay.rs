//! Submits tasks whose delay begins when they are accepted.

use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::role::{EntryPermit, KeyRole, OnClosedKey};
use crate::engine::{AdmissionTicket, DelayedRole, Engine, Key, RejectedTask};
use crate::order::Claims;
use crate::pool::ClosureExecutor;
use crate::run::{EndTurn, TaskBody, Turn, TurnResult};
use crate::unwind::call_catch_unwind;

/// Time at which a task enters the order.
#[derive(Clone, Copy, Debug)]
pub(super) enum TaskDelay {
    /// After this time from its acceptance.
    For(Duration),
    Until(Instant),
}

impl TaskDelay {
    /// Time left from now.
    fn left(self) -> Duration {
        match self {
            TaskDelay::For(delay) => delay,
            TaskDelay::Until(at) => at.saturating_duration_since(Instant::now()),
        }
    }
}

/// Withdraws a delayed task that was cancelled.
pub(super) struct DelayWithdrawal<K: Key, S> {
    engine: Arc<Engine<K, ClosureExecutor, S>>,
    number: u64,
}

impl<K: Key, S: BuildHasher + Send + Sync + 'static> EndTurn for DelayWithdrawal<K, S> {
    fn end(self: Box<Self>, _: TurnResult) {
        self.engine.withdraw_delayed(self.number);
    }
}

/// Accepts a task with a delay. Returns a turn that withdraws it when it ends.
pub(super) fn submit_delayed<K: Key, S: BuildHasher + Send + Sync + 'static>(
    engine: &Arc<Engine<K, ClosureExecutor, S>>,
    (role, permit): (KeyRole, EntryPermit),
    claims: Claims<K>,
    body: TaskBody,
    delay: TaskDelay,
) -> Result<Turn, RejectedTask<K, TaskBody>> {
    let ticket = match permit {
        EntryPermit::Ticket(ticket) => Some(ticket),
        EntryPermit::Replaced => None,
        EntryPermit::Wait(limit) => match replace(engine, role, claims, body, delay) {
            Ok(withdraw) => return Ok(withdraw),
            Err((why, claims, body)) if why.is_full() => {
                return match engine.admit(&claims, 0, limit) {
                    Ok(ticket) => put(engine, role, claims, body, Some(ticket), delay),
                    Err(why) => Err((why, claims, body)),
                };
            }
            Err(refused) => return Err(refused),
        },
    };
    put(engine, role, claims, body, ticket, delay)
}

/// Lets a latest task take over the permits of the one that it replaces.
fn replace<K: Key, S: BuildHasher + Send + Sync + 'static>(
    engine: &Arc<Engine<K, ClosureExecutor, S>>,
    role: KeyRole,
    claims: Claims<K>,
    body: TaskBody,
    delay: TaskDelay,
) -> Result<Turn, RejectedTask<K, TaskBody>> {
    match role {
        KeyRole::Latest => put(engine, role, claims, body, None, delay),
        KeyRole::Ordinary | KeyRole::Last(_) => Err((crate::SubmitErrorKind::Full, claims, body)),
    }
}

/// Delays an admitted task, or a latest one that replaces another.
fn put<K: Key, S: BuildHasher + Send + Sync + 'static>(
    engine: &Arc<Engine<K, ClosureExecutor, S>>,
    role: KeyRole,
    claims: Claims<K>,
    body: TaskBody,
    ticket: Option<AdmissionTicket>,
    delay: TaskDelay,
) -> Result<Turn, RejectedTask<K, TaskBody>> {
    let number = match (role, ticket) {
        (KeyRole::Ordinary, Some(ticket)) => {
            engine.delay(claims, body, ticket, DelayedRole::Ordinary, delay.left())?
        }
        (KeyRole::Last(after), Some(ticket)) => {
            let role = DelayedRole::End { refuses: matches!(after, OnClosedKey::Refuse) };
            engine.delay(claims, body, ticket, role, delay.left())?
        }
        (KeyRole::Ordinary | KeyRole::Last(_), None) => {
            unreachable!("only a latest task replaces another")
        }
        (KeyRole::Latest, ticket) => {
            let (number, replaced) = engine.delay_latest(claims, body, ticket, delay.left())?;
            if let Some((replaced, series)) = replaced {
                // Completes its handle and drops its captures.
                call_catch_unwind(|| replaced.supersede(Turn::empty()));
                engine.end_delayed_replacing(series);
            }
            number
        }
    };
    Ok(Turn::new(DelayWithdrawal { engine: engine.clone(), number }))
}
