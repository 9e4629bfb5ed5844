//! Handlers that are called again for a message when they fail.
//!
//! Between two calls the message and its kept turn are in a [`MessageAttempt`], which the engine
//! runs on a worker when its time has come: `../engine/attempts.rs`. A call after the first costs an
//! allocation; the first costs none.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::engine::Key;
use crate::message_handler::{Handler, HandlerNeeds};
use crate::retry::{FailedAttempts, Retry, random};
use crate::run::{
    AttemptContext, AttemptEngine, ExecContext, RetryAttempt, TaskContext, Turn, TurnResult,
};
use crate::sync::Mutex;
use crate::unwind::drop_catch_unwind;

/// Handler that can fail, and the rules for its further calls.
struct RetryingHandler<K, M> {
    handler: Box<TryHandle<K, M>>,
    retry: Retry,
}

/// Handles a message, given the number of the attempt. Returns whether that succeeded.
type TryHandle<K, M> = dyn Fn(&K, &M, u32) -> bool + Send + Sync;

/// Message that the handler has failed for.
struct MessageAttempt<K, M> {
    handler: Arc<RetryingHandler<K, M>>,
    key: K,
    /// Taken by the thread that continues with the message or gives it up.
    state: Mutex<Option<Suspended<M>>>,
}

/// Message between two calls.
struct Suspended<M> {
    message: M,
    failures: FailedAttempts,
    turn: Turn,
}

/// Returns a handler that is called again for a message when it fails, as far as `retry` allows. It
/// gets the number of the attempt, counted from 1. The order is kept: later messages of the key wait
/// until the last attempt has ended, and meanwhile no worker does.
///
/// All of [`Task::retry`](crate::Task::retry) holds for a message, which a handler without a panic
/// may see several times. The error of the last attempt counts as a failure of the key, and is
/// dropped: a handler that needs it stores it in its last attempt. A message between two attempts is
/// dropped if the pool is stopped or dropped; [`shutdown_now`](crate::HandlerPool::shutdown_now) does
/// not return it.
///
/// ```
/// use std::time::Duration;
/// use keylane::{Backoff, Pool, Retry, handler};
///
/// let retry = Retry::attempts(3).backoff(Backoff::constant(Duration::from_millis(1)));
/// let pay = handler::retrying(retry, |account: &&str, amount: &i64, attempt| match attempt {
///     1 => Err("the bank does not answer"),
///     _ => Ok(println!("{account}: {amount:+}, in attempt {attempt}")),
/// });
/// let pool = Pool::<&str>::builder().build_handler(pay)?;
/// pool.send("alice", 100)?;
/// pool.send("alice", -30)?; // after the last attempt of the first
/// pool.shutdown()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn retrying<K: Key, M: Send + 'static, E>(
    retry: Retry,
    handler: impl Fn(&K, &M, u32) -> Result<(), E> + Send + Sync + 'static,
) -> impl Handler<K, M> {
    Retrying(RetryingHandler::new(retry, handler))
}

/// Handler with several attempts, shared with the messages between two of them.
struct Retrying<K, M>(Arc<RetryingHandler<K, M>>);

impl<K: Key, M: Send + 'static> Handler<K, M> for Retrying<K, M> {
    fn handle(&self, key: &K, message: M, task: TaskContext<'_>) {
        self.0.handle(key, message, task.into_inner());
    }

    fn needs(&self) -> HandlerNeeds {
        HandlerNeeds { timer: true, key_states: None }
    }
}

impl<K: Key, M: Send + 'static> RetryingHandler<K, M> {
    fn new<E>(
        retry: Retry,
        handler: impl Fn(&K, &M, u32) -> Result<(), E> + Send + Sync + 'static,
    ) -> Arc<Self> {
        let handler = move |key: &K, message: &M, attempt| match handler(key, message, attempt) {
            Ok(()) => true,
            Err(error) => {
                drop(error);
                false
            }
        };
        Arc::new(RetryingHandler { handler: Box::new(handler), retry })
    }

    /// Calls the handler for a new message.
    fn handle(self: &Arc<Self>, key: &K, message: M, ctx: &mut dyn ExecContext) {
        let failures = FailedAttempts::default();
        if (self.handler)(key, &message, failures.attempt()) {
            return;
        }
        let work = || {
            let (handler, key) = (self.clone(), key.clone());
            Arc::new(MessageAttempt { handler, key, state: Mutex::new(None) })
        };
        self.after_failure(work, message, failures, ctx);
    }

    /// Schedules the next call for a message, or ends it as failed.
    fn after_failure(
        &self,
        work: impl FnOnce() -> Arc<MessageAttempt<K, M>>,
        message: M,
        mut failures: FailedAttempts,
        ctx: &mut dyn ExecContext,
    ) {
        let engine = ctx.attempts().filter(|engine| !engine.is_stopping());
        let next = engine.and_then(|engine| {
            let delay = self.retry.after_failure(&mut failures, engine.now(), random)?;
            Some((engine, delay))
        });
        let Some((engine, delay)) = next else {
            drop_catch_unwind(message);
            return ctx.failed();
        };
        let work = work();
        let turn = ctx.keep_turn();
        turn.back_off(delay);
        let location = turn.location();
        *work.state.lock() = Some(Suspended { message, failures, turn });
        let number = engine.number_attempt();
        if !engine.schedule_attempt(number, delay, work.clone(), location) {
            work.give_up();
        }
    }
}

impl<K: Key, M: Send + 'static> RetryAttempt for MessageAttempt<K, M> {
    fn run(self: Arc<Self>, engine: &Arc<dyn AttemptEngine>) {
        let Some(suspended) = self.state.lock().take() else { return };
        let Suspended { message, failures, turn } = suspended;
        let mut ctx = AttemptContext::new(engine, turn);
        let call = || (self.handler.handler)(&self.key, &message, failures.attempt());
        match catch_unwind(AssertUnwindSafe(call)) {
            Ok(true) => drop_catch_unwind(message),
            Ok(false) => {
                self.handler.after_failure(|| self.clone(), message, failures, &mut ctx);
            }
            Err(payload) => {
                ctx.panicked(&*payload);
                drop_catch_unwind(payload);
                drop_catch_unwind(message);
            }
        }
        ctx.end();
    }

    fn give_up(&self) {
        let suspended = self.state.lock().take();
        if let Some(Suspended { message, turn, .. }) = suspended {
            drop_catch_unwind(message);
            turn.end(TurnResult::Void);
        }
    }
}
