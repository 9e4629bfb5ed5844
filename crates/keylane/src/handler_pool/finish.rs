//! Sends the last message of a key's life.

use std::hash::BuildHasher;

use super::HandlerPool;
use super::latest::refused;
use crate::engine::{Key, ReadyWork, WaitLimit};
use crate::error::SubmitError;
#[cfg(doc)]
use crate::error::SubmitErrorKind;
use crate::order::Claims;
use crate::task::OnClosedKey;

impl<K: Key, M: Send + 'static, S: BuildHasher + Send + Sync + 'static> HandlerPool<K, M, S> {
    /// Sends the last message of a key's life, which is handled after all messages that were sent
    /// for the key before, exactly once: see [`Task::last`](crate::Task::last).
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use keylane::{OnClosedKey, Pool, SubmitErrorKind};
    ///
    /// let (tell, told) = channel();
    /// let pool = Pool::<u32>::builder()
    ///     .build_handler(move |_: &u32, text: &'static str| tell.send(text).unwrap())?;
    /// pool.send(7, "a message of connection 7")?;
    /// pool.close_key(7, OnClosedKey::Refuse, "it is closed")?;
    /// assert_eq!(pool.send(7, "too late").unwrap_err().kind(), SubmitErrorKind::KeyClosed);
    /// pool.shutdown()?;
    /// assert_eq!(told.try_iter().last(), Some("it is closed"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed), [`TooLarge`](SubmitErrorKind::TooLarge), or
    /// [`KeyClosed`](SubmitErrorKind::KeyClosed) if the key's life has an end; the error contains
    /// the message.
    pub fn close_key(
        &self,
        key: K,
        after: OnClosedKey,
        message: M,
    ) -> Result<(), SubmitError<(K, M)>> {
        let refuses = matches!(after, OnClosedKey::Refuse);
        refused(self.engine.submit_end(
            Claims::exclusive(key),
            refuses,
            ReadyWork(message),
            WaitLimit::Endless,
        ))
    }

    /// Sends the last message of a key's life, if there is capacity and no other sender waits for
    /// it.
    ///
    /// ```
    /// use keylane::{OnClosedKey, Pool, SubmitErrorKind};
    ///
    /// let pool = Pool::<u32>::builder().capacity(1).build_handler(|_: &u32, _: &str| {})?;
    /// pool.keys().pause(&7);
    /// pool.send(7, "takes the only permit")?;
    /// let refused = pool.try_close_key(8, OnClosedKey::Refuse, "it is closed").unwrap_err();
    /// assert_eq!(refused.kind(), SubmitErrorKind::Full);
    /// assert!(pool.keys().list_closed().is_empty());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`close_key`](Self::close_key), or [`Full`](SubmitErrorKind::Full) or
    /// [`KeyFull`](SubmitErrorKind::KeyFull).
    pub fn try_close_key(
        &self,
        key: K,
        after: OnClosedKey,
        message: M,
    ) -> Result<(), SubmitError<(K, M)>> {
        let refuses = matches!(after, OnClosedKey::Refuse);
        refused(self.engine.submit_end(
            Claims::exclusive(key),
            refuses,
            ReadyWork(message),
            WaitLimit::None,
        ))
    }
}
