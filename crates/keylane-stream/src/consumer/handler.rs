//! Forms of handlers: functions, functions with output, functions that acknowledge later, and
//! futures.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::attempt::{Ack, Attempt};
use super::failure::AttemptFailure;
use super::in_flight::InFlight;
use super::key_guard::LaneTurn;
use super::ordering::LaneId;
use super::outbox::Outbox;
use super::shared::ConsumerShared;
use crate::Record;

/// Handling of a record that has its turn, on a worker. The turn ends when the call returns, unless
/// it is [kept](InFlight::keep).
pub(super) trait HandlerAdapter: Send + Sync + 'static {
    /// Whether the call blocks until the work is done.
    const BLOCKS: bool = false;

    fn handle_record(
        &self,
        shared: &Arc<ConsumerShared>,
        lane: &LaneId,
        in_flight: InFlight,
        turn: &mut dyn LaneTurn,
    );
}

/// A function that has handled the record when it returns.
pub(super) struct SyncHandler<F>(pub(super) F);

impl<F, E> HandlerAdapter for SyncHandler<F>
where
    F: Fn(&Attempt) -> Result<(), E> + Send + Sync + 'static,
    E: Into<AttemptFailure>,
{
    const BLOCKS: bool = true;

    fn handle_record(
        &self,
        shared: &Arc<ConsumerShared>,
        _: &LaneId,
        in_flight: InFlight,
        turn: &mut dyn LaneTurn,
    ) {
        let Some((mut in_flight, running)) = shared.begin(in_flight, turn) else { return };
        let result = {
            let attempt = Attempt::of(&in_flight);
            catch_unwind(AssertUnwindSafe(|| (self.0)(&attempt).map_err(Into::into)))
        };
        let result = result.unwrap_or_else(|payload| Err(AttemptFailure::panicked(&*payload)));
        if result.is_err() {
            in_flight.keep(turn);
        }
        shared.answer(in_flight, running, result);
    }
}

/// A function whose record is handled when its output is written.
pub(super) struct SyncWithOutput<F> {
    pub(super) handler: F,
    pub(super) outbox: Outbox,
}

impl<F, E> HandlerAdapter for SyncWithOutput<F>
where
    F: Fn(&Attempt) -> Result<Vec<Record>, E> + Send + Sync + 'static,
    E: Into<AttemptFailure>,
{
    const BLOCKS: bool = true;

    fn handle_record(
        &self,
        shared: &Arc<ConsumerShared>,
        _: &LaneId,
        in_flight: InFlight,
        turn: &mut dyn LaneTurn,
    ) {
        let Some((mut in_flight, running)) = shared.begin(in_flight, turn) else { return };
        in_flight.keep(turn);
        let attempt = Attempt::of(&in_flight);
        let result = catch_unwind(AssertUnwindSafe(|| (self.handler)(&attempt)));
        drop(attempt);
        let ack = Ack::new(shared.clone(), in_flight, running);
        match result {
            Ok(Ok(records)) => self.outbox.send(records, ack),
            Ok(Err(error)) => ack.failed(error),
            Err(payload) => ack.answer(Err(AttemptFailure::panicked(&*payload))),
        }
    }
}

/// A function that starts the work; the acknowledgement follows later.
pub(super) struct WithAck<F>(pub(super) F);

impl<F> HandlerAdapter for WithAck<F>
where
    F: Fn(Attempt, Ack) + Send + Sync + 'static,
{
    fn handle_record(
        &self,
        shared: &Arc<ConsumerShared>,
        _: &LaneId,
        in_flight: InFlight,
        turn: &mut dyn LaneTurn,
    ) {
        let Some((mut in_flight, running)) = shared.begin(in_flight, turn) else { return };
        in_flight.keep(turn);
        let attempt = Attempt::of(&in_flight);
        // If it panics, unwinding drops the `Ack`, which fails the attempt; the pool catches the
        // panic.
        (self.0)(attempt, Ack::new(shared.clone(), in_flight, running));
    }
}

#[cfg(feature = "tokio")]
pub(super) use self::futures::{AckOnReady, AsyncHandler};

#[cfg(feature = "tokio")]
mod futures {
    use std::future::poll_fn;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::Poll;

    use tokio::sync::Semaphore;

    use super::{
        Ack, Attempt, AttemptFailure, ConsumerShared, HandlerAdapter, InFlight, LaneId, LaneTurn,
        Outbox, Record,
    };

    /// A function that returns a future; the record is handled when the future is ready.
    pub(crate) struct AsyncHandler<F, D> {
        handler: Arc<F>,
        /// Acknowledges the record with the value of its future.
        on_ready: D,
        runtime: tokio::runtime::Handle,
        /// One permit per running future, first come, first served.
        permits: Arc<Semaphore>,
    }

    /// Use of a future's value, and the acknowledgement.
    pub(crate) trait OnReady<V>: Clone + Send + Sync + 'static {
        fn on_ready(&self, value: V, ack: Ack);
    }

    /// Acknowledges at once: there is no output.
    #[derive(Clone)]
    pub(crate) struct AckOnReady;

    impl OnReady<()> for AckOnReady {
        fn on_ready(&self, (): (), ack: Ack) {
            ack.done();
        }
    }

    impl OnReady<Vec<Record>> for Outbox {
        fn on_ready(&self, records: Vec<Record>, ack: Ack) {
            self.send(records, ack);
        }
    }

    impl<F, D> AsyncHandler<F, D> {
        pub(crate) fn new(
            handler: F,
            on_ready: D,
            runtime: tokio::runtime::Handle,
            concurrency: usize,
        ) -> Self {
            let permits = Arc::new(Semaphore::new(concurrency.clamp(1, Semaphore::MAX_PERMITS)));
            AsyncHandler { handler: Arc::new(handler), on_ready, runtime, permits }
        }
    }

    impl<F, T, V, E, D> HandlerAdapter for AsyncHandler<F, D>
    where
        F: Fn(Attempt) -> T + Send + Sync + 'static,
        T: Future<Output = Result<V, E>> + Send + 'static,
        V: Send + 'static,
        E: Into<AttemptFailure> + 'static,
        D: OnReady<V>,
    {
        fn handle_record(
            &self,
            shared: &Arc<ConsumerShared>,
            _: &LaneId,
            mut in_flight: InFlight,
            turn: &mut dyn LaneTurn,
        ) {
            in_flight.keep(turn);
            let waiting = QueuedFuture { shared: shared.clone(), in_flight: Some(in_flight) };
            let (permits, handler) = (self.permits.clone(), self.handler.clone());
            let on_ready = self.on_ready.clone();
            self.runtime.spawn(async move {
                let _permit = permits.acquire().await.expect("the semaphore is never closed");
                let Some((attempt, ack)) = waiting.begin() else { return };
                // The future and its captures are dropped before the answer.
                match run(&*handler, attempt).await {
                    Ok(value) => on_ready.on_ready(value, ack),
                    Err(failure) => ack.answer(Err(failure)),
                }
            });
        }
    }

    /// Creates and runs the future. A panic in either is a failure.
    async fn run<F, T, V, E>(handler: &F, attempt: Attempt) -> Result<V, AttemptFailure>
    where
        F: Fn(Attempt) -> T,
        T: Future<Output = Result<V, E>>,
        E: Into<AttemptFailure>,
    {
        let made = catch_unwind(AssertUnwindSafe(|| handler(attempt)));
        let mut future = pin!(made.map_err(|payload| AttemptFailure::panicked(&*payload))?);
        let result =
            poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
                Ok(poll) => poll.map(|result| result.map_err(Into::into)),
                Err(payload) => Poll::Ready(Err(AttemptFailure::panicked(&*payload))),
            });
        result.await
    }

    /// A record that waits for a permit. If the runtime shuts down first, the attempt fails.
    struct QueuedFuture {
        shared: Arc<ConsumerShared>,
        in_flight: Option<InFlight>,
    }

    impl QueuedFuture {
        fn begin(mut self) -> Option<(Attempt, Ack)> {
            self.take()
        }

        fn take(&mut self) -> Option<(Attempt, Ack)> {
            let (in_flight, running) = self.shared.begin_kept(self.in_flight.take()?)?;
            let attempt = Attempt::of(&in_flight);
            Some((attempt, Ack::new(self.shared.clone(), in_flight, running)))
        }
    }

    impl Drop for QueuedFuture {
        fn drop(&mut self) {
            drop(self.take());
        }
    }
}
