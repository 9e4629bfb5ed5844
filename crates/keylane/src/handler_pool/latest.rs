//! Sends messages that replace the latest one of their key.

use std::hash::BuildHasher;
use std::time::{Duration, Instant};

use super::{HandlerPool, keyed};
use crate::engine::{Key, ReadyWork, RejectedTask, SupersededWork, WaitLimit};
use crate::error::SubmitError;
#[cfg(doc)]
use crate::error::SubmitErrorKind;
use crate::order::Claims;

impl<K: Key, M: Send + 'static, S: BuildHasher + Send + Sync + 'static> HandlerPool<K, M, S> {
    /// Sends a message that replaces the latest one of its key, if that still waits, and returns
    /// the replaced one: see [`Task::latest`](crate::Task::latest).
    ///
    /// With [costs](crate::Builder::capacity_bytes), a message with a cost waits for its bytes
    /// before it replaces another, whose bytes are free then.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<&str>::builder().build_handler(|sensor: &&str, t| println!("{sensor}: {t}"))?;
    /// pool.keys().pause(&"boiler");
    /// assert_eq!(pool.send_latest("boiler", 71)?, None);
    /// assert_eq!(pool.send_latest("boiler", 72)?, Some(71));
    /// pool.keys().resume(&"boiler");
    /// pool.shutdown()?; // boiler: 72
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed), [`TooLarge`](SubmitErrorKind::TooLarge) or
    /// [`KeyClosed`](SubmitErrorKind::KeyClosed); the error contains the message.
    pub fn send_latest(&self, key: K, message: M) -> Result<Option<M>, SubmitError<(K, M)>> {
        refused(
            self.engine
                .submit_latest(Claims::exclusive(key), ReadyWork(message), WaitLimit::Endless)
                .map(message_of),
        )
    }

    /// Replaces the latest message as [`send_latest`](Self::send_latest) does, if there is one to
    /// replace, or there is capacity and no other sender waits for it.
    ///
    /// ```
    /// use keylane::{Pool, SubmitErrorKind};
    ///
    /// let pool = Pool::<&str>::builder().capacity(1).build_handler(|_: &&str, _: u32| {})?;
    /// pool.keys().pause(&"boiler");
    /// assert_eq!(pool.try_send_latest("boiler", 71)?, None);
    /// // It takes over the capacity of the first.
    /// assert_eq!(pool.try_send_latest("boiler", 72)?, Some(71));
    /// let refused = pool.try_send_latest("oven", 180).unwrap_err();
    /// assert_eq!(refused.kind(), SubmitErrorKind::Full);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`send_latest`](Self::send_latest), or [`Full`](SubmitErrorKind::Full) or
    /// [`KeyFull`](SubmitErrorKind::KeyFull).
    pub fn try_send_latest(&self, key: K, message: M) -> Result<Option<M>, SubmitError<(K, M)>> {
        refused(
            self.engine
                .submit_latest(Claims::exclusive(key), ReadyWork(message), WaitLimit::None)
                .map(message_of),
        )
    }

    /// Replaces the latest message as [`send_latest`](Self::send_latest) does, waiting for capacity
    /// for at most `timeout`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::{Pool, SubmitErrorKind};
    ///
    /// let pool = Pool::<&str>::builder().capacity(1).build_handler(|_: &&str, _: u32| {})?;
    /// pool.keys().pause(&"boiler");
    /// let short = Duration::from_millis(1);
    /// assert_eq!(pool.send_latest_timeout("boiler", 71, short)?, None);
    /// assert_eq!(pool.send_latest_timeout("boiler", 72, short)?, Some(71));
    /// let late = pool.send_latest_timeout("oven", 180, short).unwrap_err();
    /// assert_eq!(late.kind(), SubmitErrorKind::TimedOut);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`send_latest`](Self::send_latest), or [`TimedOut`](SubmitErrorKind::TimedOut).
    pub fn send_latest_timeout(
        &self,
        key: K,
        message: M,
        timeout: Duration,
    ) -> Result<Option<M>, SubmitError<(K, M)>> {
        let limit =
            Instant::now().checked_add(timeout).map_or(WaitLimit::Endless, WaitLimit::Until);
        refused(
            self.engine
                .submit_latest(Claims::exclusive(key), ReadyWork(message), limit)
                .map(message_of),
        )
    }

    /// Replaces the latest message as [`send_latest`](Self::send_latest) does, waiting for capacity
    /// without blocking the thread. Needs no particular runtime.
    ///
    /// Cancel safe: dropped before it is ready, it has replaced nothing, and has left the wait
    /// queue.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<&str>::builder().build_handler(|_: &&str, _: u32| {})?;
    /// pool.keys().pause(&"boiler");
    /// assert_eq!(pool.send_latest_async("boiler", 71).await?, None);
    /// assert_eq!(pool.send_latest_async("boiler", 72).await?, Some(71));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`send_latest`](Self::send_latest).
    pub async fn send_latest_async(
        &self,
        key: K,
        message: M,
    ) -> Result<Option<M>, SubmitError<(K, M)>> {
        refused(
            self.engine
                .submit_latest_async(Claims::exclusive(key), ReadyWork(message))
                .await
                .map(message_of),
        )
    }
}

fn message_of<K, M>(replaced: Option<SupersededWork<K, M>>) -> Option<M> {
    replaced.map(|replaced| replaced.work)
}

/// Converts a rejected task into an error with its message.
pub(super) fn refused<K: Key, M, T>(
    result: Result<T, RejectedTask<K, ReadyWork<M>>>,
) -> Result<T, SubmitError<(K, M)>> {
    result.map_err(|(why, claims, ReadyWork(message))| {
        SubmitError::new(why, keyed((claims, message)))
    })
}
