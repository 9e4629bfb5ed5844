//! Submits single tasks: the three short calls, tasks with options, and tasks that borrow.

use std::hash::BuildHasher;

use super::Pool;
use super::scope::{Scope, with_scope};
use super::scoped_body::ScopeError;
use crate::complete::Handle;
use crate::engine::{Key, WaitLimit};
use crate::error::SubmitError;
#[cfg(doc)]
use crate::error::SubmitErrorKind;
use crate::order::{Claims, IntoClaims};
use crate::run::TaskContext;
use crate::task::{ContextClosure, DetachedClosure, Task};

impl<K: Key, S: BuildHasher + Send + Sync + 'static> Pool<K, S> {
    /// Submits a task. Waits for capacity, first come, first served; never inside a task of this
    /// pool.
    ///
    /// ```
    /// use keylane::{Claims, Pool};
    ///
    /// let pool = Pool::<u64>::builder().build()?;
    /// let sum = pool.submit(7, || 1 + 1)?;
    /// let both = pool.submit([7, 8], || "after everything on 7 and on 8")?;
    /// let read = pool.submit(Claims::shared(7), || "beside other readers of 7")?;
    /// assert_eq!(sum.wait()?.ok(), Some(2));
    /// # drop((both, read));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed) or [`TooLarge`](SubmitErrorKind::TooLarge); the error
    /// contains the task.
    pub fn submit<T, F>(
        &self,
        keys: impl IntoClaims<K>,
        work: F,
    ) -> Result<Handle<T>, SubmitError<(Claims<K>, F)>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        Task::new(&self.engine, keys.into_claims()).submit(work)
    }

    /// Submits a task, if there is capacity and no other submitter waits for it.
    ///
    /// ```
    /// use keylane::{Pool, SubmitErrorKind};
    ///
    /// let pool = Pool::<u64>::builder().capacity(1).build()?;
    /// pool.keys().pause(&7);
    /// pool.execute(7, || println!("takes the only permit"))?;
    /// let refused = pool.try_submit(8, || "eight").unwrap_err();
    /// assert_eq!(refused.kind(), SubmitErrorKind::Full);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Full`](SubmitErrorKind::Full), [`KeyFull`](SubmitErrorKind::KeyFull),
    /// [`TooLarge`](SubmitErrorKind::TooLarge) or [`Closed`](SubmitErrorKind::Closed); the error
    /// contains the task.
    pub fn try_submit<T, F>(
        &self,
        keys: impl IntoClaims<K>,
        work: F,
    ) -> Result<Handle<T>, SubmitError<(Claims<K>, F)>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.task(keys).try_submit(work)
    }

    /// Submits a task without a handle. Waits for capacity, as [`submit`](Self::submit) does.
    ///
    /// ```
    /// let pool = keylane::Pool::<&str>::builder().build()?;
    /// pool.execute("alice", || println!("alice pays 10"))?;
    /// pool.execute(["alice", "bob"], || println!("a report on both"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed) or [`TooLarge`](SubmitErrorKind::TooLarge); the error
    /// contains the task.
    #[inline]
    pub fn execute<F>(
        &self,
        keys: impl IntoClaims<K>,
        work: F,
    ) -> Result<(), SubmitError<(Claims<K>, F)>>
    where
        F: FnOnce() + Send + 'static,
    {
        // Without a `Task`: its fields are written one by one and copied as a whole, and such a copy waits until all earlier
        // stores have reached the cache, also those to another processor's lines. It cost 30 of 75 ns.
        self.engine
            .submit(keys.into_claims(), DetachedClosure(work), WaitLimit::Endless)
            .map_err(|(why, claims, DetachedClosure(work))| SubmitError::new(why, (claims, work)))
    }

    /// Submits a task without a handle that can keep its turn, and with it its keys, beyond its return,
    /// as a handler [can](crate::handler::with_context). Waits for capacity, as
    /// [`submit`](Self::submit) does.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use keylane::{Claims, Pool, TaskContext};
    ///
    /// let (keep, kept) = channel();
    /// let pool = Pool::<&str>::builder().workers(1).build()?;
    /// let claims = Claims::exclusive("alice").and_shared("rates");
    /// pool.execute_with_context(claims, move |task: TaskContext<'_>| keep.send(task.keep()).unwrap())?;
    /// let turn = kept.recv()?;
    /// pool.execute("alice", || println!("after the turn"))?;
    /// pool.submit("bob", || println!("at once: the worker is free"))?.join()?;
    /// drop(turn);
    /// pool.shutdown()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`execute`](Self::execute).
    pub fn execute_with_context<F>(
        &self,
        keys: impl IntoClaims<K>,
        work: F,
    ) -> Result<(), SubmitError<(Claims<K>, F)>>
    where
        F: FnOnce(TaskContext<'_>) + Send + 'static,
    {
        let task = ContextClosure(work);
        self.engine
            .submit(keys.into_claims(), task, WaitLimit::Endless)
            .map_err(|(why, claims, ContextClosure(work))| SubmitError::new(why, (claims, work)))
    }

    /// Returns a task with these keys, to which options are added before one of its endings submits
    /// it: see [`Task`].
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<&str>::builder().build()?;
    /// let sum = pool.task(["alice", "bob"]).timeout(Duration::from_secs(1)).submit(|| 1 + 1)?;
    /// assert_eq!(sum.join()?, 2);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[inline]
    pub fn task(&self, keys: impl IntoClaims<K>) -> Task<'_, K, S> {
        Task::new(&self.engine, keys.into_claims())
    }

    /// Calls `f` with a scope for tasks that borrow, and waits until all of them have ended, as
    /// [`std::thread::scope`] does. They are tasks like all others: in order with each other and with
    /// the tasks of the same keys that were submitted outside of the scope.
    ///
    /// - A task may submit further tasks to its scope. The scope waits for them, too.
    /// - Tasks write their results to values that they borrow.
    /// - A task that panics ends alone; the others run. If `f` panics, the panic continues when all
    ///   tasks have ended.
    /// - A scope inside of a task of the same pool is refused: tasks of the caller's keys would wait
    ///   for its end, and it for theirs. A scope of another pool is allowed there; a substitute takes
    ///   the place of the waiting worker. Its tasks must not wait for the caller's keys, as by a
    ///   scope of the caller's pool.
    /// - The scope waits for tasks of a paused key until the key is resumed;
    ///   [`take`](crate::control::Keys::take) does not take them. A stop of the pool drops those that
    ///   have not begun, and [`shutdown_now`](Self::shutdown_now) does not return them.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<usize>::builder().build()?;
    /// let words = ["one", "three"].map(str::to_owned);
    /// let mut lengths = [0; 2];
    /// pool.scope(|scope| {
    ///     for (key, (word, length)) in words.iter().zip(&mut lengths).enumerate() {
    ///         scope.execute(key, move || *length = word.len()).expect("the pool is open");
    ///     }
    /// })?;
    /// assert_eq!(lengths, [3, 5]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`ScopeError::FromInside`], at once, in a task of this pool. [`ScopeError::Panicked`] if a
    /// task panicked, and [`ScopeError::Cancelled`] if the pool was stopped before all tasks had
    /// begun; each after all tasks have ended. The value of `f` is dropped then.
    ///
    /// # Panics
    ///
    /// If `f` does.
    pub fn scope<'env, R>(
        &self,
        f: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env, K, S>) -> R,
    ) -> Result<R, ScopeError> {
        with_scope(&self.engine, f)
    }
}
