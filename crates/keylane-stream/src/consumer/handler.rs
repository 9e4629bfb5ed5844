use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use keylane::TurnKeeper;

use super::attempt::{Ack, Attempt, Flight};
use super::failure::Failure;
use super::order::Lane;
use super::outbox::Outbox;
use super::shared::Shared;
use crate::Record;

/// What is done with a record that has its turn, on a worker. The turn ends when it returns, unless it is
/// [kept](Flight::keep).
pub(super) trait Handler: Send + Sync + 'static {
    /// The work is done where it is called, and not only begun.
    const BLOCKS: bool = false;

    fn serve(&self, shared: &Arc<Shared>, lane: &Lane, flight: Flight, turn: TurnKeeper<'_>);
}

/// A function that has handled the record when it returns.
pub(super) struct Blocking<F>(pub(super) F);

impl<F, E> Handler for Blocking<F>
where
    F: Fn(&Attempt) -> Result<(), E> + Send + Sync + 'static,
    E: Into<Failure>,
{
    const BLOCKS: bool = true;

    fn serve(&self, shared: &Arc<Shared>, _: &Lane, mut flight: Flight, turn: TurnKeeper<'_>) {
        let Some(running) = flight.begin() else { return };
        let result = {
            let attempt = flight.attempt();
            catch_unwind(AssertUnwindSafe(|| (self.0)(&attempt).map_err(Into::into)))
        };
        let result = result.unwrap_or_else(|payload| Err(Failure::panicked(&*payload)));
        if result.is_err() {
            flight.keep(turn);
        }
        shared.answer(flight, running, result);
    }
}

/// A function that has handled the record when what it returns is written.
pub(super) struct Producing<F> {
    pub(super) handler: F,
    pub(super) outbox: Outbox,
}

impl<F, E> Handler for Producing<F>
where
    F: Fn(&Attempt) -> Result<Vec<Record>, E> + Send + Sync + 'static,
    E: Into<Failure>,
{
    const BLOCKS: bool = true;

    fn serve(&self, shared: &Arc<Shared>, _: &Lane, mut flight: Flight, turn: TurnKeeper<'_>) {
        let Some(running) = flight.begin() else { return };
        flight.keep(turn);
        let attempt = flight.attempt();
        let result = catch_unwind(AssertUnwindSafe(|| (self.handler)(&attempt)));
        drop(attempt);
        let ack = Ack::new(shared.clone(), flight, running);
        match result {
            Ok(Ok(records)) => self.outbox.send(records, ack),
            Ok(Err(error)) => ack.failed(error),
            Err(payload) => ack.answer(Err(Failure::panicked(&*payload))),
        }
    }
}

/// A function that only begins; the answer comes when it comes.
pub(super) struct Beginning<F>(pub(super) F);

impl<F> Handler for Beginning<F>
where
    F: Fn(Attempt, Ack) + Send + Sync + 'static,
{
    fn serve(&self, shared: &Arc<Shared>, _: &Lane, mut flight: Flight, turn: TurnKeeper<'_>) {
        let Some(running) = flight.begin() else { return };
        flight.keep(turn);
        let attempt = flight.attempt();
        // If it panics, the answer is given while it unwinds; the pool stops the panic.
        (self.0)(attempt, Ack::new(shared.clone(), flight, running));
    }
}

#[cfg(feature = "tokio")]
pub(super) use self::futures::{Done, Futures};

#[cfg(feature = "tokio")]
mod futures {
    use std::future::poll_fn;
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::Poll;

    use keylane::TurnKeeper;
    use tokio::sync::Semaphore;

    use super::{Ack, Attempt, Failure, Flight, Handler, Lane, Outbox, Record, Shared};

    /// A function that makes a future, which has handled the record when it is ready.
    pub(crate) struct Futures<F, D> {
        handler: Arc<F>,
        /// What answers when a future has ended well.
        end: D,
        runtime: tokio::runtime::Handle,
        /// A permit for each future that may run. First come, first served.
        permits: Arc<Semaphore>,
    }

    /// What is done with what a future has returned, for the answer.
    pub(crate) trait End<V>: Clone + Send + Sync + 'static {
        fn end(&self, value: V, ack: Ack);
    }

    /// Nothing is left to be done.
    #[derive(Clone)]
    pub(crate) struct Done;

    impl End<()> for Done {
        fn end(&self, (): (), ack: Ack) {
            ack.done();
        }
    }

    impl End<Vec<Record>> for Outbox {
        fn end(&self, records: Vec<Record>, ack: Ack) {
            self.send(records, ack);
        }
    }

    impl<F, D> Futures<F, D> {
        pub(crate) fn new(
            handler: F,
            end: D,
            runtime: tokio::runtime::Handle,
            concurrency: usize,
        ) -> Self {
            let permits = Arc::new(Semaphore::new(concurrency.clamp(1, Semaphore::MAX_PERMITS)));
            Futures { handler: Arc::new(handler), end, runtime, permits }
        }
    }

    impl<F, T, V, E, D> Handler for Futures<F, D>
    where
        F: Fn(Attempt) -> T + Send + Sync + 'static,
        T: Future<Output = Result<V, E>> + Send + 'static,
        V: Send + 'static,
        E: Into<Failure> + 'static,
        D: End<V>,
    {
        fn serve(&self, shared: &Arc<Shared>, _: &Lane, mut flight: Flight, turn: TurnKeeper<'_>) {
            flight.keep(turn);
            let waiting = Waiting { shared: shared.clone(), flight: Some(flight) };
            let (permits, handler) = (self.permits.clone(), self.handler.clone());
            let end = self.end.clone();
            self.runtime.spawn(async move {
                let _permit = permits.acquire().await.expect("the semaphore is never closed");
                let Some((attempt, ack)) = waiting.begin() else { return };
                // The future, and all it has, is gone before the answer is given.
                match run(&*handler, attempt).await {
                    Ok(value) => end.end(value, ack),
                    Err(failure) => ack.answer(Err(failure)),
                }
            });
        }
    }

    /// Makes the future and runs it; a panic of either is a failure.
    async fn run<F, T, V, E>(handler: &F, attempt: Attempt) -> Result<V, Failure>
    where
        F: Fn(Attempt) -> T,
        T: Future<Output = Result<V, E>>,
        E: Into<Failure>,
    {
        let made = catch_unwind(AssertUnwindSafe(|| handler(attempt)));
        let mut future = pin!(made.map_err(|payload| Failure::panicked(&*payload))?);
        let result =
            poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
                Ok(poll) => poll.map(|result| result.map_err(Into::into)),
                Err(payload) => Poll::Ready(Err(Failure::panicked(&*payload))),
            });
        result.await
    }

    /// A flight that waits for a permit. If its runtime ends before, that is a failed attempt.
    struct Waiting {
        shared: Arc<Shared>,
        flight: Option<Flight>,
    }

    impl Waiting {
        fn begin(mut self) -> Option<(Attempt, Ack)> {
            self.take()
        }

        fn take(&mut self) -> Option<(Attempt, Ack)> {
            let flight = self.flight.take()?;
            let running = flight.begin()?;
            let attempt = flight.attempt();
            Some((attempt, Ack::new(self.shared.clone(), flight, running)))
        }
    }

    impl Drop for Waiting {
        fn drop(&mut self) {
            drop(self.take());
        }
    }
}
