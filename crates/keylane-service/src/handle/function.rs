//! Function handlers, for programs that embed the service.

use std::fmt;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use tokio::sync::Semaphore;

use super::{Attempt, AttemptFailure, AttemptResult, BoxFuture, Handler};

/// Handler from an async function. A panic in it is a failed attempt.
///
/// ```
/// use keylane_service::handle::{Attempt, FunctionHandler};
///
/// let handler = FunctionHandler::new(|attempt: Attempt| async move {
///     println!("{} of {}", attempt.number, attempt.idempotency_key());
///     Ok(None)
/// });
/// ```
pub struct FunctionHandler<F>(Arc<F>);

impl<F, G> FunctionHandler<F>
where
    F: Fn(Attempt) -> G + Send + Sync + 'static,
    G: Future<Output = AttemptResult> + Send + 'static,
{
    /// Returns a handler that calls `function`.
    pub fn new(function: F) -> Self {
        FunctionHandler(Arc::new(function))
    }
}

impl<F> fmt::Debug for FunctionHandler<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Function")
    }
}

impl<F, G> Handler for FunctionHandler<F>
where
    F: Fn(Attempt) -> G + Send + Sync + 'static,
    G: Future<Output = AttemptResult> + Send + 'static,
{
    fn sort(&self) -> &'static str {
        "function"
    }

    fn handle(&self, attempt: Attempt) -> BoxFuture<AttemptResult> {
        // The poll of the future catches its panics.
        Box::pin((self.0)(attempt))
    }
}

/// Handler from a function that blocks or computes. It runs on a blocking thread, with a maximum
/// number of concurrent calls.
///
/// Rust cannot end a thread from outside: after a timeout the slot is free again, and the function
/// runs on until it checks [`Attempt::cancelled`].
pub struct BlockingHandler<F> {
    function: Arc<F>,
    /// One permit per concurrent call.
    places: Arc<Semaphore>,
}

impl<F> BlockingHandler<F>
where
    F: Fn(Attempt) -> AttemptResult + Send + Sync + 'static,
{
    /// Returns a handler with at most `at_a_time` concurrent calls of `function`.
    pub fn new(at_a_time: usize, function: F) -> Self {
        BlockingHandler {
            function: Arc::new(function),
            places: Arc::new(Semaphore::new(at_a_time.clamp(1, Semaphore::MAX_PERMITS))),
        }
    }
}

impl<F> fmt::Debug for BlockingHandler<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Blocking")
    }
}

impl<F> Handler for BlockingHandler<F>
where
    F: Fn(Attempt) -> AttemptResult + Send + Sync + 'static,
{
    fn sort(&self) -> &'static str {
        "function"
    }

    fn handle(&self, attempt: Attempt) -> BoxFuture<AttemptResult> {
        let (function, places) = (Arc::clone(&self.function), Arc::clone(&self.places));
        Box::pin(async move {
            let place = places.acquire_owned().await.expect("the semaphore is never closed");
            let answer = tokio::task::spawn_blocking(move || {
                // Held until the function has really returned, even after a timeout.
                let _place = place;
                catch_unwind(AssertUnwindSafe(|| function(attempt)))
            });
            match answer.await {
                Ok(Ok(answer)) => answer,
                Ok(Err(panic)) => Err(AttemptFailure::passing(panicked(&*panic))),
                Err(_) => Err(AttemptFailure::passing("the service is stopping")),
            }
        })
    }
}

/// Message of a panic.
pub(crate) fn panicked(panic: &(dyn std::any::Any + Send)) -> String {
    let said = panic
        .downcast_ref::<&str>()
        .map(|text| (*text).to_owned())
        .or_else(|| panic.downcast_ref::<String>().cloned());
    said.map_or_else(|| "panicked".into(), |said| format!("panicked: {said}"))
}
