//! Entry of a task into its pool: how it is admitted, and whether it replaces another task or is
//! the last one of its key.

use std::any::Any;
use std::convert::Infallible;
use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;

use super::delay::{TaskDelay, submit_delayed};
use super::prepared::{PoolContext, PreparedWork};
use super::role::{EntryPermit, KeyRole, OnClosedKey};
use crate::complete::{Handle, TaskFn};
use crate::engine::{Engine, IntoWork, Key, ReadyWork, RejectedTask};
use crate::error::{SubmitError, SubmitErrorKind};
use crate::order::Claims;
use crate::pool::ClosureExecutor;
use crate::run::{ExecContext, RunBody, TaskBody, TaskContext, Turn};

/// Error with a rejected task: its claims and its work.
pub(crate) type RejectedTaskError<K, W> = SubmitError<(Claims<K>, W)>;

/// Task without its work, and the pool that it is for.
#[doc(hidden)]
pub struct Entry<'p, K: Key, S: BuildHasher + Send + Sync + 'static> {
    pub(super) engine: &'p Arc<Engine<K, ClosureExecutor, S>>,
    pub(super) claims: Claims<K>,
    pub(super) role: KeyRole,
    pub(super) permit: EntryPermit,
    pub(super) delay: Option<TaskDelay>,
}

impl<K: Key, S: BuildHasher + Send + Sync + 'static> fmt::Debug for Entry<'_, K, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("role", &self.role).finish_non_exhaustive()
    }
}

/// Claims of a task that was refused before its work was looked at.
pub(super) struct RefusedEntry<K> {
    pub(super) why: SubmitErrorKind,
    pub(super) claims: Claims<K>,
}

impl<K> RefusedEntry<K> {
    /// Returns the error for a submitter, with the work.
    pub(super) fn with<W>(self, work: W) -> RejectedTaskError<K, W> {
        SubmitError::new(self.why, (self.claims, work))
    }
}

/// Closure without a handle.
pub(crate) struct DetachedClosure<F>(pub(crate) F);

impl<F: FnOnce() -> T + Send + 'static, T> RunBody for DetachedClosure<F> {
    #[inline]
    fn run(self, _: &mut dyn ExecContext) {
        (self.0)();
    }
}

impl<F: FnOnce() -> T + Send + 'static, T> IntoWork<TaskBody> for DetachedClosure<F> {
    #[inline(always)]
    fn into_work(self) -> TaskBody {
        TaskBody::new(self)
    }
}

/// Body of any type, for a task with a role or a delay.
struct ErasedBody(TaskBody);

impl TaskFn<(), Infallible> for ErasedBody {
    type Work = TaskBody;

    fn call(self) -> Result<(), Infallible> {
        self.0.run(&mut NoContext);
        Ok(())
    }

    fn into_work(self) -> TaskBody {
        self.0
    }
}

/// Context of a body that uses none, within another one.
struct NoContext;

impl ExecContext for NoContext {
    fn panicked(&self, _: &(dyn Any + Send)) {}

    fn keep_turn(&mut self) -> Turn {
        Turn::empty()
    }
}

/// Closure that can keep its turn.
pub(crate) struct ContextClosure<F>(pub(crate) F);

impl<F: FnOnce(TaskContext<'_>) + Send + 'static> RunBody for ContextClosure<F> {
    #[inline]
    fn run(self, ctx: &mut dyn ExecContext) {
        (self.0)(TaskContext::new(ctx));
    }
}

impl<F: FnOnce(TaskContext<'_>) + Send + 'static> IntoWork<TaskBody> for ContextClosure<F> {
    fn into_work(self) -> TaskBody {
        TaskBody::new(self)
    }
}

impl<K: Key, S: BuildHasher + Send + Sync + 'static> Entry<'_, K, S> {
    /// Submits work with a handle.
    pub(super) fn submit<W, T: 'static, E: 'static>(
        self,
        work: W,
        prepare: impl FnOnce(W, PoolContext<'_>) -> PreparedWork<W, T, E>,
    ) -> Result<Handle<T, E>, RejectedTaskError<K, W>> {
        let entry = match self.admit_first() {
            Ok(entry) => entry,
            Err(refused) => return Err(refused.with(work)),
        };
        let pool = PoolContext(&entry.engine.settings);
        let PreparedWork { body, kept } = prepare(work, pool);
        match entry.enter(body) {
            Ok(withdraw) => Ok(kept.handle.accepted(withdraw)),
            Err((why, claims, body)) => Err(SubmitError::new(why, (claims, kept.refused(body)))),
        }
    }

    /// Admits a task that may find no capacity: it is prepared afterwards, so that a refused one costs no cell. One that waits
    /// without limit is refused only by a closed pool; it is enqueued at once, where a spare permit of its inbox saves the way
    /// through the gate.
    #[inline]
    fn admit_first(self) -> Result<Self, RefusedEntry<K>> {
        match (&self.role, &self.permit) {
            (KeyRole::Ordinary, &EntryPermit::Wait(limit))
                if self.delay.is_some() || !limit.is_endless() =>
            {
                match self.engine.admit(&self.claims, 0, limit) {
                    Ok(ticket) => Ok(Entry { permit: EntryPermit::Ticket(ticket), ..self }),
                    Err(why) => Err(RefusedEntry { why, claims: self.claims }),
                }
            }
            _ => Ok(self),
        }
    }

    /// Enqueues a prepared task, or starts its delay. A delayed task gets a turn that withdraws it.
    fn enter(self, body: TaskBody) -> Result<Option<Turn>, RejectedTask<K, TaskBody>> {
        let Entry { engine, claims, role, permit, delay } = self;
        match delay {
            None => enqueue(engine, role, permit, claims, ReadyWork(body))
                .map(|()| None)
                .map_err(|(why, claims, ReadyWork(body))| (why, claims, body)),
            Some(delay) => submit_delayed(engine, (role, permit), claims, body, delay).map(Some),
        }
    }

    /// Submits a closure without a handle.
    #[inline]
    pub(super) fn execute<F, T>(self, work: F) -> Result<(), RejectedTaskError<K, F>>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let Entry { engine, claims, role, permit, delay } = self;
        match (role, permit, delay) {
            (KeyRole::Ordinary, EntryPermit::Wait(limit), None) => {
                engine.submit(claims, DetachedClosure(work), limit).map_err(
                    |(why, claims, DetachedClosure(work))| SubmitError::new(why, (claims, work)),
                )
            }
            (role, permit, delay) => {
                let entry = Entry { engine, claims, role, permit, delay };
                entry.execute_body(TaskBody::new(DetachedClosure(work))).map_err(|refused| {
                    let (why, (claims, body)) = (refused.kind(), refused.into_inner());
                    let DetachedClosure(work) = body.into_refused();
                    SubmitError::new(why, (claims, work))
                })
            }
        }
    }

    /// Submits a body without a handle, which uses no context. Only an ordinary task has no state to
    /// share. Compiled once, and not for each closure.
    fn execute_body(self, body: TaskBody) -> Result<(), RejectedTaskError<K, TaskBody>> {
        match self {
            Entry {
                engine,
                claims,
                role: KeyRole::Ordinary,
                permit: EntryPermit::Ticket(ticket),
                delay: None,
            } => engine
                .enqueue(claims, ReadyWork(body), ticket)
                .map_err(|(why, claims, ReadyWork(body))| SubmitError::new(why, (claims, body))),
            entry => {
                let prepare = |body, _: PoolContext<'_>| PreparedWork::closure(ErasedBody(body));
                entry.submit(body, prepare).map(drop)
            }
        }
    }

    /// Waits for a ticket without blocking the thread. Dropped before it is ready, it has acquired
    /// nothing.
    pub(super) async fn admit(self) -> Result<Self, RefusedEntry<K>> {
        let Entry { engine, claims, role, delay, .. } = self;
        if matches!(role, KeyRole::Last(_)) && delay.is_none() && engine.has_end(&claims) {
            return Err(RefusedEntry { why: SubmitErrorKind::KeyClosed, claims });
        }
        match engine.admit_async(&claims, 0).await {
            Ok(ticket) => {
                Ok(Entry { engine, claims, role, permit: EntryPermit::Ticket(ticket), delay })
            }
            Err(why) => Err(RefusedEntry { why, claims }),
        }
    }
}

/// Enqueues a prepared task.
fn enqueue<K: Key, S: BuildHasher + Send + Sync + 'static>(
    engine: &Arc<Engine<K, ClosureExecutor, S>>,
    role: KeyRole,
    permit: EntryPermit,
    claims: Claims<K>,
    body: ReadyWork<TaskBody>,
) -> Result<(), RejectedTask<K, ReadyWork<TaskBody>>> {
    let replaced = match (role, permit) {
        (KeyRole::Ordinary, EntryPermit::Wait(limit)) => return engine.submit(claims, body, limit),
        (KeyRole::Ordinary, EntryPermit::Ticket(ticket)) => {
            return engine.enqueue(claims, body, ticket);
        }
        (KeyRole::Last(after), permit) => {
            let refuses = matches!(after, OnClosedKey::Refuse);
            return match permit {
                EntryPermit::Ticket(ticket) => engine.enqueue_end(claims, refuses, body, ticket),
                EntryPermit::Wait(limit) => engine.submit_end(claims, refuses, body, limit),
                EntryPermit::Replaced => unreachable!("only a latest task replaces another"),
            };
        }
        (KeyRole::Latest, EntryPermit::Wait(limit)) => engine.submit_latest(claims, body, limit)?,
        (KeyRole::Latest, EntryPermit::Ticket(ticket)) => {
            engine.enqueue_latest(claims, body, ticket)?
        }
        (_, EntryPermit::Replaced) => Some(engine.replace_latest(claims, body)?),
    };
    if let Some(replaced) = replaced {
        engine.supersede(replaced);
    }
    Ok(())
}
