//! Submits the last task of a key's life.

use std::hash::BuildHasher;

use super::Pool;
use super::latest::{handle_of_latest, new_latest_task};
use crate::complete::Handle;
use crate::engine::{Key, WaitLimit};
use crate::error::SubmitError;
#[cfg(doc)]
use crate::error::SubmitErrorKind;

/// Treatment of a key's tasks after its [end](crate::Pool::close_key).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OnClosedKey {
    /// The next task of the key begins a new life, which may have an end of its own. Costs nothing.
    NewLife,
    /// Tasks of the key are refused with [`KeyClosed`](crate::SubmitErrorKind::KeyClosed), as are
    /// rollups with it among their keys, until the key is [reopened](crate::control::Keys::reopen).
    ///
    /// The pool remembers the key until then: about a hundred bytes and a copy of the key.
    Refuse,
}

impl<K: Key, S: BuildHasher + Send + Sync + 'static> Pool<K, S> {
    /// Submits the end of a key's life: a task that runs after all tasks that were submitted for
    /// the key before, exactly once. For the last work of a connection that has been closed, or of
    /// a device that has left.
    ///
    /// - A life has one end: while there is one, and no task was submitted for the key after it,
    ///   another is refused. With [`OnClosedKey::NewLife`] the end is forgotten when it has run.
    /// - [`take_key`](crate::control::Keys::take) leaves it in place. It does not run if it is
    ///   [cancelled](Handle::cancel), or the pool stopped.
    /// - Barriers have no key, and a job's subtasks were accepted with their job: neither is
    ///   refused.
    ///
    /// Waits for capacity as [`submit`](Self::submit) does.
    ///
    /// ```
    /// use keylane::{OnClosedKey, Pool, SubmitErrorKind};
    ///
    /// let pool = Pool::<u32>::builder().build()?;
    /// pool.execute(7, || println!("a message of connection 7"))?;
    /// let closed = pool.close_key(7, OnClosedKey::Refuse, || println!("it is closed"))?;
    /// let late = pool.execute(7, || println!("a message that came too late")).unwrap_err();
    /// assert_eq!(late.kind(), SubmitErrorKind::KeyClosed);
    /// assert!(closed.wait()?.is_completed());
    /// // The number may be given to another connection now.
    /// pool.keys().reopen(&7);
    /// pool.execute(7, || println!("a message of another connection"))?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed), or [`KeyClosed`](SubmitErrorKind::KeyClosed) if the
    /// key's life has an end; the error contains the task.
    pub fn close_key<T, F>(
        &self,
        key: K,
        after: OnClosedKey,
        work: F,
    ) -> Result<Handle<T>, SubmitError<(K, F)>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.finish_with(key, after, work, WaitLimit::Endless)
    }

    /// Submits the end of a key's life, if there is capacity and no other submitter waits for it.
    ///
    /// # Errors
    ///
    /// As for [`close_key`](Self::close_key), or [`Full`](SubmitErrorKind::Full) or
    /// [`KeyFull`](SubmitErrorKind::KeyFull). The key then has no end.
    pub fn try_close_key<T, F>(
        &self,
        key: K,
        after: OnClosedKey,
        work: F,
    ) -> Result<Handle<T>, SubmitError<(K, F)>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        self.finish_with(key, after, work, WaitLimit::None)
    }

    fn finish_with<T, F>(
        &self,
        key: K,
        after: OnClosedKey,
        work: F,
        limit: WaitLimit,
    ) -> Result<Handle<T>, SubmitError<(K, F)>>
    where
        T: Send + 'static,
        F: FnOnce() -> T + Send + 'static,
    {
        let (slot, body) = new_latest_task(work);
        let refuses = after == OnClosedKey::Refuse;
        let result = self.engine.submit_end(key, refuses, body, limit);
        handle_of_latest(slot, result)
    }
}
