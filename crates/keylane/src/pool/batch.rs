//! Submits many tasks in one pass.

use std::hash::BuildHasher;

use super::Pool;
use crate::complete::{Handle, InfallibleFn, TakeWork, TaskCell};
use crate::engine::{Key, ReadyWork};
use crate::error::BatchError;
#[cfg(doc)]
use crate::error::SubmitErrorKind;
use crate::order::{Claims, IntoClaims};
use crate::run::TaskBody;
use crate::task::DetachedClosure;

/// Rejected task of a batch: its claims and its closure.
type RejectedClosure<K, F> = (Claims<K>, F);

/// Error of a batch with handles: those of the accepted tasks, and the other tasks.
type BatchRejected<K, T, F> = BatchError<Vec<Handle<T>>, RejectedClosure<K, F>>;

impl<K: Key, S: BuildHasher + Send + Sync + 'static> Pool<K, S> {
    /// Submits a batch in one pass, waiting for capacity as often as necessary. The tasks of the
    /// batch are in order as if they had been submitted one by one.
    ///
    /// # Place in the order
    ///
    /// A batch of at most 256 tasks has one place in the order, also with tasks that have several
    /// keys or none, and with barriers: any other task comes before all of its tasks or behind all
    /// of them. Where that would delay other submitters, a batch has several such parts:
    ///
    /// - after each 256 tasks, which are submitted when the iterator has yielded them, or about
    ///   4,096 claims;
    /// - where the free capacity ends: the rest waits for more;
    /// - before and after a task with a descriptor;
    /// - after each task in a pool with bounds per key or by bytes.
    ///
    /// ```
    /// use keylane::{Handle, Pool};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// let handles = pool.submit_many((0..4).map(|n| (n % 2, move || n * n)))?;
    /// let squares: Vec<u32> = handles.into_iter().map(Handle::join).collect::<Result<_, _>>()?;
    /// assert_eq!(squares, [0, 1, 4, 9]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the pool is closed meanwhile, a task is [too large](SubmitErrorKind::TooLarge), or its
    /// key was [finished](SubmitErrorKind::KeyClosed): the handles of the tasks before it, and the
    /// others, the refused one first. No task behind it is accepted.
    pub fn submit_many<C, T, F>(
        &self,
        batch: impl IntoIterator<Item = (C, F)>,
    ) -> Result<Vec<Handle<T>>, BatchRejected<K, T, F>>
    where
        C: IntoClaims<K>,
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let mut cells = Vec::new();
        let bodies = batch.into_iter().map(|(keys, work)| {
            let cell = TaskCell::shared(InfallibleFn(work));
            cells.push(cell.clone());
            (keys.into_claims(), ReadyWork(TaskBody::shared(cell)))
        });
        let Err((accepted, rejected, why)) = self.engine.enqueue_many(bodies) else {
            return Ok(cells.into_iter().map(Handle::new).collect());
        };
        let rest = cells.split_off(accepted);
        let rejected = rejected.into_iter().zip(rest).map(|((claims, body), cell)| {
            let work = cell.take_work().expect("a rejected cell was never shared");
            drop(body);
            (claims, work)
        });
        let rejected = rejected.collect();
        Err(BatchError::new(cells.into_iter().map(Handle::new).collect(), rejected, why))
    }

    /// Submits a batch without handles in one pass, waiting for capacity as often as necessary. The
    /// tasks of the batch are in order as if they had been submitted one by one.
    ///
    /// It has one [place in the order](Self::submit_many), or few.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use keylane::Pool;
    ///
    /// let (tell, told) = channel();
    /// let pool = Pool::<&str>::builder().build()?;
    /// let batch = (0..4).map(|n| {
    ///     let tell = tell.clone();
    ///     ("alice", move || tell.send(n).unwrap())
    /// });
    /// assert_eq!(pool.execute_many(batch)?, 4);
    /// pool.shutdown()?;
    /// assert_eq!(told.try_iter().collect::<Vec<_>>(), [0, 1, 2, 3]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the pool is closed meanwhile, a task is [too large](SubmitErrorKind::TooLarge), or its
    /// key was [finished](SubmitErrorKind::KeyClosed): the number of accepted tasks before it, and
    /// the others, the refused one first. No task behind it is accepted.
    pub fn execute_many<C, F>(
        &self,
        batch: impl IntoIterator<Item = (C, F)>,
    ) -> Result<usize, BatchError<usize, RejectedClosure<K, F>>>
    where
        C: IntoClaims<K>,
        F: FnOnce() + Send + 'static,
    {
        let batch =
            batch.into_iter().map(|(keys, work)| (keys.into_claims(), DetachedClosure(work)));
        self.engine.enqueue_many(batch).map_err(|(accepted, rejected, why)| {
            let rejected =
                rejected.into_iter().map(|(claims, DetachedClosure(work))| (claims, work));
            BatchError::new(accepted, rejected.collect(), why)
        })
    }
}
