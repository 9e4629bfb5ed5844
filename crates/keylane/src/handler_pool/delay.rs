//! Sends messages whose delay begins when they are accepted.

use std::hash::BuildHasher;
use std::time::Duration;

use super::{HandlerPool, keyed};
use crate::engine::{DelayedRole, Execute, Key, RejectedTask, WaitLimit};
use crate::error::{SubmitError, SubmitErrorKind};
use crate::order::Claims;

impl<K: Key, M: Send + 'static, S: BuildHasher + Send + Sync + 'static> HandlerPool<K, M, S> {
    /// Sends a message that takes its place in the order when `delay` has passed, as if it were sent
    /// then: see [`Task::after`](crate::Task::after). Waits for capacity now.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<&str>::builder().build_handler(|client: &&str, text: &str| println!("{client}: {text}"))?;
    /// pool.send_after("alice", "are you still there?", Duration::from_millis(10))?;
    /// pool.send("alice", "welcome")?; // before the other
    /// pool.shutdown()?; // waits for both
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed), [`TooLarge`](SubmitErrorKind::TooLarge),
    /// [`KeyClosed`](SubmitErrorKind::KeyClosed), or [`NoTimer`](SubmitErrorKind::NoTimer) if the
    /// timer's thread cannot be started; the error contains the message.
    pub fn send_after(
        &self,
        key: K,
        message: M,
        delay: Duration,
    ) -> Result<(), SubmitError<(K, M)>> {
        let claims = Claims::exclusive(key);
        if self.engine.start_timer().is_err() {
            return Err(rejected((SubmitErrorKind::NoTimer, claims, message)));
        }
        let weight = self.engine.executor().weigh(&message);
        let ticket = match self.engine.admit(&claims, weight, WaitLimit::Endless) {
            Ok(ticket) => ticket,
            Err(why) => return Err(rejected((why, claims, message))),
        };
        let role = DelayedRole::Ordinary;
        self.engine.delay(claims, message, ticket, role, delay).map(drop).map_err(rejected)
    }

    /// Sends a message that replaces the delayed latest one of its key, with a delay that begins anew,
    /// and returns the replaced one: of a burst the last message is handled, once none has come for
    /// `delay`. See [`Task::after`](crate::Task::after).
    ///
    /// Without a message to replace it waits for capacity. When the delay is over it replaces the
    /// latest message of its key that still waits, which is dropped.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<&str>::builder().build_handler(|query: &&str, text: &str| println!("{query}: {text}"))?;
    /// let quiet = Duration::from_millis(20);
    /// assert_eq!(pool.send_latest_after("search", "k", quiet)?, None);
    /// assert_eq!(pool.send_latest_after("search", "ke", quiet)?, Some("k"));
    /// assert_eq!(pool.send_latest_after("search", "key", quiet)?, Some("ke"));
    /// pool.shutdown()?; // search: key
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`send_after`](Self::send_after).
    pub fn send_latest_after(
        &self,
        key: K,
        message: M,
        delay: Duration,
    ) -> Result<Option<M>, SubmitError<(K, M)>> {
        let claims = Claims::exclusive(key);
        if self.engine.start_timer().is_err() {
            return Err(rejected((SubmitErrorKind::NoTimer, claims, message)));
        }
        let (claims, message) = match self.engine.delay_latest(claims, message, None, delay) {
            Ok((_, replaced)) => return Ok(replaced.map(|(message, _)| message)),
            Err((why, claims, message)) if why.is_full() => (claims, message),
            Err(refused) => return Err(rejected(refused)),
        };
        let weight = self.engine.executor().weigh(&message);
        match self.engine.admit(&claims, weight, WaitLimit::Endless) {
            Ok(ticket) => {
                let put = self.engine.delay_latest(claims, message, Some(ticket), delay);
                put.map(|(_, replaced)| replaced.map(|(message, _)| message)).map_err(rejected)
            }
            Err(why) => Err(rejected((why, claims, message))),
        }
    }
}

fn rejected<K: Key, M>((why, claims, message): RejectedTask<K, M>) -> SubmitError<(K, M)> {
    SubmitError::new(why, keyed((claims, message)))
}
