//! Attempts that end when a test says so: time is what the test makes of it.

use std::collections::HashMap;
use std::time::Duration;

use keylane_service::handle::{Attempt, AttemptFailure, AttemptResult, BoxFuture, Handler};
use serde_json::value::RawValue;
use tokio::sync::{mpsc, oneshot};

/// The handler: every attempt announces itself, and waits for its end.
#[derive(Clone, Debug)]
pub(crate) struct Actors(mpsc::UnboundedSender<(Attempt, oneshot::Sender<AttemptResult>)>);

impl Handler for Actors {
    fn sort(&self) -> &'static str {
        "function"
    }

    fn handle(&self, attempt: Attempt) -> BoxFuture<AttemptResult> {
        let (end, told) = oneshot::channel();
        let cancelled = attempt.cancelled.clone();
        let _ = self.0.send((attempt, end));
        Box::pin(async move {
            tokio::select! {
                // A test that is over receives no more.
                told = told => told.unwrap_or(Ok(None)),
                () = cancelled.cancelled() => Err(AttemptFailure::passing("given up")),
            }
        })
    }
}

/// The test's view of the attempts that have begun, by which it decides which of them end.
#[derive(Debug)]
pub(crate) struct Stage {
    begun: mpsc::UnboundedReceiver<(Attempt, oneshot::Sender<AttemptResult>)>,
    on: HashMap<String, oneshot::Sender<AttemptResult>>,
}

/// A stage, and the handler whose attempts come onto it.
pub(crate) fn stage() -> (Actors, Stage) {
    let (to, begun) = mpsc::unbounded_channel();
    (Actors(to), Stage { begun, on: HashMap::new() })
}

/// What a payload that is a JSON string says: the name of its attempt here.
fn name_of(attempt: &Attempt) -> String {
    let text: Result<String, _> = serde_json::from_slice(&attempt.payload);
    text.unwrap_or_else(|_| super::text(attempt))
}

impl Stage {
    /// The name of the next one that begins: its payload. Fails the test if none does, in a time in which
    /// the slowest machine gets there.
    #[track_caller]
    pub(crate) fn next(&mut self) -> impl Future<Output = String> {
        let caller = std::panic::Location::caller();
        async move {
            let begun = tokio::time::timeout(Duration::from_secs(30), self.begun.recv()).await;
            let begun = begun.unwrap_or_else(|_| panic!("nothing has begun, at {caller}"));
            let (attempt, end) = begun.expect("the handler is there");
            let name = name_of(&attempt);
            self.on.insert(name.clone(), end);
            name
        }
    }

    /// Asserts that no attempt has begun beyond those that the test has seen.
    #[track_caller]
    pub(crate) fn expect_nobody(&mut self) {
        if let Ok((attempt, _)) = self.begun.try_recv() {
            panic!("{} has begun", name_of(&attempt));
        }
    }

    /// Ends one.
    #[track_caller]
    pub(crate) fn end(&mut self, name: &str, answer: AttemptResult) {
        let end = self.on.remove(name).unwrap_or_else(|| panic!("{name} is not on the stage"));
        let _ = end.send(answer);
    }

    /// Ends one well.
    #[track_caller]
    pub(crate) fn succeed(&mut self, name: &str) {
        self.end(name, Ok(None));
    }

    /// Ends one with a result.
    #[track_caller]
    pub(crate) fn answer(&mut self, name: &str, result: &serde_json::Value) {
        self.end(name, Ok(RawValue::from_string(result.to_string()).ok()));
    }
}
