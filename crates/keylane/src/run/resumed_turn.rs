//! Work that continues in a kept turn, on a worker of the turn's pool.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::attempt::{AttemptEngine, RetryAttempt};
use super::attempt_context::AttemptContext;
use super::context::{ExecContext, Turn, noop_context};
use super::turn_keeper::TaskContext;
use crate::sync::Mutex;
use crate::unwind::drop_catch_unwind;

impl Turn {
    /// Runs `work` in this turn, as soon as a worker of the pool is free. The turn ends when the work
    /// returns, unless it is [kept](TaskContext::keep) again.
    ///
    /// The keys stay with the turn, so no task runs between the work that kept it and this work,
    /// and tasks that wait for the keys, barriers included, are not in its way. It is not charged to the
    /// [rates](crate::Builder::rate), which count starts of tasks. While one of its keys is paused it
    /// waits.
    ///
    /// If the pool is stopped before the work begins, the work is dropped, and then the turn. Work that
    /// panics ends its turn as failed.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use keylane::{Claims, Pool, TaskContext};
    ///
    /// let (keep, kept) = channel();
    /// let pool = Pool::<&str>::builder().build()?;
    /// pool.execute_with_context(["alice", "bob"], move |task: TaskContext<'_>| {
    ///     println!("asks the bank");
    ///     keep.send(task.keep()).unwrap();
    /// })?;
    /// pool.execute(Claims::barrier(), || println!("the balance of the day"))?;
    /// // The answer has come.
    /// kept.recv()?.resume(|_: TaskContext<'_>| println!("books the transfer"));
    /// pool.shutdown()?; // the balance comes last
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn resume(self, work: impl FnOnce(TaskContext<'_>) + Send + 'static) {
        let Some(engine) = self.engine() else {
            // A task that was run outside of its pool.
            return work(TaskContext::new(&mut noop_context()));
        };
        let location = self.location();
        let resumed = ResumedTurn(Mutex::new(Some((work, self))));
        engine.run_soon(Arc::new(resumed), location);
    }
}

/// Work with the turn in which it continues, until it begins.
struct ResumedTurn<F>(Mutex<Option<(F, Turn)>>);

impl<F: FnOnce(TaskContext<'_>) + Send + 'static> RetryAttempt for ResumedTurn<F> {
    fn run(self: Arc<Self>, engine: &Arc<dyn AttemptEngine>) {
        let Some((work, turn)) = self.0.lock().take() else { return };
        let mut ctx = AttemptContext::new(engine, turn);
        let body = AssertUnwindSafe(|| work(TaskContext::new(&mut ctx)));
        if let Err(payload) = catch_unwind(body) {
            ctx.panicked(&*payload);
            drop_catch_unwind(payload);
        }
        ctx.end();
    }

    fn give_up(&self) {
        let given_up = self.0.lock().take();
        drop(given_up);
    }

    fn is_task(&self) -> bool {
        false
    }
}
