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
