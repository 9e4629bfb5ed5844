//! Pool that calls one handler for messages, in order for each key.

mod delay;
mod finish;
mod latest;

use std::fmt;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::admit::ByteBound;
use crate::control::{Inspector, Keys, Settings, TakeKey};
use crate::engine::{AdmissionTicket, Engine, EngineOwner, Execute, Key, ReadyWork, WaitLimit};
#[cfg(doc)]
use crate::error::SubmitErrorKind;
use crate::error::{BatchError, SubmitError, WaitError};
use crate::key_hasher::KeyBuildHasher;
use crate::message_handler::Handler;
use crate::order::{Claims, ClaimsRepr, SlotRef};
use crate::run::{ExecContext, KeepValueContext, TaskContext};

/// Pool with one handler that is called for each message: in order for the messages of one key, in
/// parallel for different keys.
///
/// It has the guarantees of a [`Pool`](crate::Pool), for messages with one key each, and needs
/// neither a closure nor an allocation for a message.
///
/// ```
/// use keylane::Pool;
///
/// let pool = Pool::<u32>::builder()
///     .workers(4)
///     .build_handler(|account: &u32, amount: i64| println!("{account}: {amount:+}"))?;
/// pool.send(7, 100)?;
/// pool.send(8, 50)?;
/// pool.send(7, -30)?; // after the first of account 7
/// pool.shutdown()?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// It has no [jobs](crate::Pool::job): a job's subtasks are closures or futures with results, whose
/// types differ from job to job, while a handler receives messages of one type without results. For
/// many messages at once there is [`send_many`](Self::send_many); to have both, build two pools.
pub struct HandlerPool<K: Key, M: Send + 'static, S = KeyBuildHasher>
where
    S: BuildHasher + Send + Sync + 'static,
{
    engine: Arc<Engine<K, Messages<K, M>, S>>,
    owner: Arc<EngineOwner<K, Messages<K, M>, S>>,
}

/// Executor of messages for one handler.
pub(crate) struct Messages<K, M> {
    handler: Box<dyn Handler<K, M>>,
    /// Bound on the total cost of the messages, if there is one.
    bytes: Option<Arc<ByteBound>>,
}

impl<K: 'static, M: 'static> Messages<K, M> {
    pub(crate) fn new(handler: impl Handler<K, M>, bytes: Option<Arc<ByteBound>>) -> Self {
        Messages { handler: Box::new(handler), bytes }
    }

    /// Handles a message whose cost was taken when it was sent.
    #[inline(never)]
    fn handle_charged(
        &self,
        bytes: &Arc<ByteBound>,
        key: &K,
        message: M,
        ctx: &mut dyn ExecContext,
    ) {
        // The cost is not stored with the message, so it is computed again.
        let cost = bytes.taken(self.handler.cost(&message));
        let mut ctx = KeepValueContext::new(ctx, cost);
        self.handler.handle(key, message, TaskContext::new(&mut ctx));
    }
}

impl<K: Key, M: Send + 'static> Execute<K> for Messages<K, M> {
    type Work = M;
    const WANTS_KEY: bool = true;

    #[inline]
    fn execute(&self, key: Option<&K>, message: SlotRef<'_, M>, ctx: &mut dyn ExecContext) {
        let key = key.expect("every message has a key");
        match &self.bytes {
            None => self.handler.handle(key, message.take(), TaskContext::new(ctx)),
            Some(bytes) => self.handle_charged(bytes, key, message.take(), ctx),
        }
    }

    fn name(_: &M) -> Option<usize> {
        None
    }

    fn weigh(&self, message: &M) -> usize {
        if self.bytes.is_some() { self.handler.cost(message) } else { 0 }
    }
}

impl<K: Key, M: Send + 'static, S: BuildHasher + Send + Sync + 'static> HandlerPool<K, M, S> {
    pub(crate) fn new(engine: Arc<Engine<K, Messages<K, M>, S>>) -> Self {
        HandlerPool { owner: EngineOwner::new(&engine), engine }
    }

    /// Sends a message. Waits for capacity, first come, first served; never inside the pool's own
    /// handler.
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed) or [`TooLarge`](SubmitErrorKind::TooLarge); the error
    /// contains the message.
    #[inline]
    pub fn send(&self, key: K, message: M) -> Result<(), SubmitError<(K, M)>> {
        self.send_with(key, message, WaitLimit::Endless)
    }

    /// Sends a message, if there is capacity and no other sender waits for it.
    ///
    /// ```
    /// use keylane::{Pool, SubmitErrorKind};
    ///
    /// let pool = Pool::<u32>::builder().capacity(1).build_handler(|_: &u32, _: &str| {})?;
    /// pool.keys().pause(&7);
    /// pool.send(7, "takes the only permit")?;
    /// let refused = pool.try_send(8, "eight").unwrap_err();
    /// assert_eq!(refused.kind(), SubmitErrorKind::Full);
    /// assert_eq!(refused.into_inner(), (8, "eight"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Full`](SubmitErrorKind::Full), [`KeyFull`](SubmitErrorKind::KeyFull),
    /// [`TooLarge`](SubmitErrorKind::TooLarge) or [`Closed`](SubmitErrorKind::Closed); the error
    /// contains the message.
    #[inline]
    pub fn try_send(&self, key: K, message: M) -> Result<(), SubmitError<(K, M)>> {
        self.send_with(key, message, WaitLimit::None)
    }

    /// Sends a message, waiting for capacity for at most `timeout`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::{Pool, SubmitErrorKind};
    ///
    /// let pool = Pool::<u32>::builder().capacity(1).build_handler(|_: &u32, _: &str| {})?;
    /// pool.keys().pause(&7);
    /// pool.send(7, "takes the only permit")?;
    /// let late = pool.send_timeout(8, "eight", Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(late.kind(), SubmitErrorKind::TimedOut);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`TimedOut`](SubmitErrorKind::TimedOut), [`TooLarge`](SubmitErrorKind::TooLarge) or
    /// [`Closed`](SubmitErrorKind::Closed); the error contains the message.
    pub fn send_timeout(
        &self,
        key: K,
        message: M,
        timeout: Duration,
    ) -> Result<(), SubmitError<(K, M)>> {
        let limit =
            Instant::now().checked_add(timeout).map_or(WaitLimit::Endless, WaitLimit::Until);
        self.send_with(key, message, limit)
    }

    /// Sends a message, waiting for capacity without blocking the thread, in one wait queue with
    /// the blocked threads. Needs no particular runtime.
    ///
    /// Cancel safe: dropped before it is ready, it has sent nothing, and has left the wait queue.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use std::sync::mpsc::channel;
    /// use keylane::Pool;
    ///
    /// let (tell, told) = channel();
    /// let handler = move |_: &u32, n: u32| tell.send(n).unwrap();
    /// let pool = Pool::<u32>::builder().build_handler(handler)?;
    /// pool.send_async(7, 1).await?;
    /// pool.send_async(7, 2).await?;
    /// pool.shutdown_async().await?;
    /// assert_eq!(told.try_iter().collect::<Vec<_>>(), [1, 2]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`Closed`](SubmitErrorKind::Closed) or [`TooLarge`](SubmitErrorKind::TooLarge); the error
    /// contains the message.
    pub async fn send_async(&self, key: K, message: M) -> Result<(), SubmitError<(K, M)>> {
        let weight = self.engine.executor().weigh(&message);
        let claims = Claims::exclusive(key);
        match self.engine.admit_async(&claims, weight).await {
            Ok(ticket) => self.enter(claims, message, ticket),
            Err(why) => Err(SubmitError::new(why, keyed((claims, message)))),
        }
    }

    /// Sends many messages in one pass, waiting for capacity as often as necessary. They are in
    /// order as if they had been sent one by one.
    ///
    /// They have one [place in the order](crate::Pool::submit_many), or few.
    ///
    /// ```
    /// use std::sync::mpsc::channel;
    /// use keylane::Pool;
    ///
    /// let (tell, told) = channel();
    /// let pool = Pool::<u32>::builder()
    ///     .build_handler(move |key: &u32, n: u32| tell.send((*key, n)).unwrap())?;
    /// assert_eq!(pool.send_many((0..40).map(|n| (n % 10, n)))?, 40);
    /// pool.shutdown()?;
    /// let of_seven = told.try_iter().filter(|(key, _)| *key == 7).map(|(_, n)| n);
    /// assert_eq!(of_seven.collect::<Vec<_>>(), [7, 17, 27, 37]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// If the pool is closed meanwhile, a message is [too large](SubmitErrorKind::TooLarge), or its
    /// key was [finished](SubmitErrorKind::KeyClosed): the number of accepted messages before it,
    /// and the others, the refused one first. No message behind it is accepted.
    pub fn send_many(
        &self,
        messages: impl IntoIterator<Item = (K, M)>,
    ) -> Result<usize, BatchError<usize, (K, M)>> {
        let batch =
            messages.into_iter().map(|(key, message)| (Claims::exclusive(key), ReadyWork(message)));
        self.engine.enqueue_many(batch).map_err(|(accepted, rejected, why)| {
            let rejected =
                rejected.into_iter().map(|(claims, ReadyWork(message))| keyed((claims, message)));
            BatchError::new(accepted, rejected.collect(), why)
        })
    }

    #[inline(always)]
    fn send_with(&self, key: K, message: M, limit: WaitLimit) -> Result<(), SubmitError<(K, M)>> {
        self.engine.submit(Claims::exclusive(key), ReadyWork(message), limit).map_err(
            |(why, claims, ReadyWork(message))| SubmitError::new(why, keyed((claims, message))),
        )
    }

    #[inline(always)]
    fn enter(
        &self,
        claims: Claims<K>,
        message: M,
        ticket: AdmissionTicket,
    ) -> Result<(), SubmitError<(K, M)>> {
        self.engine.enqueue(claims, ReadyWork(message), ticket).map_err(
            |(why, claims, ReadyWork(message))| SubmitError::new(why, keyed((claims, message))),
        )
    }

    /// Refuses new messages from now on. Accepted messages are handled, as long as the pool lives:
    /// dropping a closed pool drops the messages that were not handled, as dropping an open one
    /// does. [`shutdown`](Self::shutdown) it first to have all of them handled.
    ///
    /// ```
    /// use keylane::{Pool, SubmitErrorKind};
    ///
    /// let pool = Pool::<u32>::builder().build_handler(|_: &u32, _: &str| {})?;
    /// pool.send(7, "accepted")?;
    /// pool.close();
    /// assert_eq!(pool.send(7, "too late").unwrap_err().kind(), SubmitErrorKind::Closed);
    /// pool.shutdown()?; // after the first message
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn close(&self) {
        self.engine.close();
    }

    /// Returns whether new messages are refused.
    ///
    /// ```
    /// let pool = keylane::Pool::<u32>::builder().build_handler(|_: &u32, _: &str| {})?;
    /// assert!(!pool.is_closed());
    /// pool.close();
    /// assert!(pool.is_closed());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn is_closed(&self) -> bool {
        self.engine.admission.is_closed()
    }

    /// Closes the pool and waits until all accepted messages have ended.
    ///
    /// # Errors
    ///
    /// [`WaitError::FromInside`], at once, if the caller is a task of the pool, which would
    /// wait for its own end. [`WaitError::Poisoned`] if a panic has ended the pool.
    pub fn shutdown(&self) -> Result<(), WaitError> {
        self.engine.drain_for(None)
    }

    /// Closes the pool and waits until all accepted messages have ended, for at most `timeout`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::{Pool, WaitError};
    ///
    /// let pool = Pool::<u32>::builder().build_handler(|_: &u32, _: &str| {})?;
    /// pool.keys().pause(&7);
    /// pool.send(7, "accepted")?;
    /// assert_eq!(pool.shutdown_timeout(Duration::from_millis(1)), Err(WaitError::TimedOut));
    /// pool.keys().resume(&7);
    /// assert_eq!(pool.shutdown_timeout(Duration::from_secs(60)), Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WaitError::TimedOut`] if some have not ended: they go on, and the pool stays closed.
    /// Otherwise as for [`shutdown`](Self::shutdown).
    pub fn shutdown_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        self.engine.drain_for(Some(timeout))
    }

    /// Closes the pool and waits until all accepted messages have ended, without blocking the thread.
    /// Needs no particular runtime.
    ///
    /// Cancel safe: the pool is closed when the future is first polled, and a dropped future only
    /// ends the wait.
    ///
    /// ```
    /// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
    /// let pool = keylane::Pool::<u64>::builder().build_handler(|key: &u64, n: u32| println!("{key}: {n}"))?;
    /// pool.send(7, 100)?;
    /// pool.shutdown_async().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`shutdown`](Self::shutdown).
    pub async fn shutdown_async(&self) -> Result<(), WaitError> {
        self.engine.drain_async().await
    }

    /// Waits until the pool is idle: returns at a moment without accepted and unfinished messages.
    /// The pool stays open.
    ///
    /// - All messages that were accepted before the call have ended then, and their effects are
    ///   visible to the caller. Messages that other threads submit meanwhile may be accepted before
    ///   it returns. If they follow each other without a gap, the wait continues.
    /// - Messages of paused keys, delayed ones, those between two attempts, and kept turns are
    ///   unfinished: the wait includes them.
    /// - During the wait each end of a message costs the pool a little more.
    ///
    /// ```
    /// let pool = keylane::Pool::<u64>::builder().build_handler(|key: &u64, n: u32| println!("{key}: {n}"))?;
    /// for page in 0..100 {
    ///     pool.send(page, 1)?;
    /// }
    /// pool.wait_idle()?; // all pages are done, and the pool takes more
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WaitError::FromInside`], at once, if the caller is a task of the pool, which would wait
    /// for its own end. [`WaitError::Poisoned`] if a panic has ended the pool.
    pub fn wait_idle(&self) -> Result<(), WaitError> {
        self.engine.wait_idle(None)
    }

    /// Waits until the pool is idle, as [`wait_idle`](Self::wait_idle) does, for at most `timeout`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use keylane::{Pool, WaitError};
    ///
    /// let pool = Pool::<u32>::builder().build_handler(|_: &u32, _: &str| {})?;
    /// pool.keys().pause(&7);
    /// pool.send(7, "one")?;
    /// assert_eq!(pool.wait_idle_timeout(Duration::from_millis(1)), Err(WaitError::TimedOut));
    /// pool.keys().resume(&7);
    /// assert_eq!(pool.wait_idle_timeout(Duration::from_secs(60)), Ok(()));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`WaitError::TimedOut`] if the pool was not idle in time. Otherwise as for
    /// [`wait_idle`](Self::wait_idle).
    pub fn wait_idle_timeout(&self, timeout: Duration) -> Result<(), WaitError> {
        self.engine.wait_idle(Some(timeout))
    }

    /// Waits until the pool is idle, as [`wait_idle`](Self::wait_idle) does, without blocking the
    /// thread. Needs no particular runtime.
    ///
    /// Cancel safe: a dropped future only ends the wait.
    ///
    /// ```
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// use std::sync::mpsc::channel;
    /// use keylane::Pool;
    ///
    /// let (tell, told) = channel();
    /// let handler = move |_: &u32, n: u32| tell.send(n).unwrap();
    /// let pool = Pool::<u32>::builder().build_handler(handler)?;
    /// pool.send_many([(7, 1), (7, 2)])?;
    /// pool.wait_idle_async().await?;
    /// assert_eq!(told.try_iter().collect::<Vec<_>>(), [1, 2]);
    /// pool.send(7, 3)?; // the pool is open
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As for [`wait_idle`](Self::wait_idle).
    pub async fn wait_idle_async(&self) -> Result<(), WaitError> {
        self.engine.wait_idle_async().await
    }

    /// Closes the pool, lets the running calls end, and returns exactly the messages that the
    /// handler was not called with, those of one key in order. It does not wait for the calls.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build_handler(|_: &u32, _: &str| unreachable!())?;
    /// pool.keys().pause(&7);
    /// pool.send_many([(7, "one"), (7, "two")])?;
    /// assert_eq!(pool.shutdown_now(), [(7, "one"), (7, "two")]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn shutdown_now(&self) -> Vec<(K, M)> {
        self.engine.stop().into_iter().map(|task| keyed((task.claims, task.work))).collect()
    }

    /// Returns the operations on single keys: pause, resume, take, reopen, rates.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build_handler(|_: &u32, _: &str| unreachable!())?;
    /// pool.keys().pause(&7);
    /// pool.send(7, "one")?;
    /// pool.send(7, "two")?;
    /// assert_eq!(pool.keys().take(&7), ["one", "two"]);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn keys(&self) -> Keys<'_, K, M> {
        Keys::new(&self.engine)
    }

    /// Returns the diagnostics: explanations, snapshots, stalls, traces.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().build_handler(|_: &u32, _: &str| {})?;
    /// pool.keys().pause(&7);
    /// pool.send(7, "one")?;
    /// println!("{}", pool.inspect().explain_key(&7));
    /// assert_eq!(pool.inspect().snapshot(0).unfinished, 1);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn inspect(&self) -> Inspector<'_, K> {
        Inspector::new(&self.engine)
    }

    /// Returns the settings that can change while the pool runs.
    ///
    /// ```
    /// use keylane::Pool;
    ///
    /// let pool = Pool::<u32>::builder().workers(2).build_handler(|_: &u32, _: &str| {})?;
    /// pool.settings().set_workers(4)?;
    /// assert_eq!(pool.inspect().snapshot(0).workers_wanted, 4);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn settings(&self) -> Settings<'_> {
        Settings::new(&self.engine)
    }
}

impl<K: Key, M: Send + 'static, S: BuildHasher + Send + Sync + 'static> TakeKey<K, M>
    for Arc<Engine<K, Messages<K, M>, S>>
{
    fn take(&self, key: &K) -> Vec<M> {
        let taken = self.take_key(key).into_iter();
        taken.map(|task| keyed((task.claims, task.work)).1).collect()
    }
}

/// Splits claims with one key and their message into the key and the message.
fn keyed<K, M>((claims, message): (Claims<K>, M)) -> (K, M) {
    match claims.0 {
        ClaimsRepr::One(claim) => (claim.key, message),
        _ => unreachable!("a message has exactly one key"),
    }
}

/// A clone is the same pool. Dropping one of several changes nothing; dropping the last one stops the
/// pool. A message that contains a clone keeps its pool alive.
impl<K: Key, M: Send + 'static, S: BuildHasher + Send + Sync + 'static> Clone
    for HandlerPool<K, M, S>
{
    fn clone(&self) -> Self {
        HandlerPool { engine: self.engine.clone(), owner: self.owner.clone() }
    }
}

impl<K: Key, M: Send + 'static, S: BuildHasher + Send + Sync + 'static> fmt::Debug
    for HandlerPool<K, M, S>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HandlerPool")
            .field("settings", &self.engine.settings)
            .finish_non_exhaustive()
    }
}
