//! An attempt that waits for what never comes ends all the same.

use std::time::Duration;

use crate::common::{Log, builder, serve};
use keylane_service::Kind;
use keylane_service::handle::{
    Attempt, AttemptFailure, AttemptResult, BoxFuture, Handler, HttpHandler,
};
use serde_json::json;

/// Waits for an answer that never comes.
#[derive(Debug)]
struct Forlorn(Duration);

impl Handler for Forlorn {
    fn sort(&self) -> &'static str {
        "function"
    }

    fn patience(&self) -> Option<Duration> {
        Some(self.0)
    }

    fn handle(&self, attempt: Attempt) -> BoxFuture<AttemptResult> {
        Box::pin(async move {
            attempt.cancelled.cancelled().await;
            Err(AttemptFailure::passing("nothing came"))
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_may_wait_for_ever_has_a_limit_unless_the_kind_has_one() {
    let folder = tempfile::tempdir().unwrap();
    let (short, long) = (Duration::from_millis(5), Duration::from_secs(3600));
    let kind = |handler, timeout| Kind { attempts: 1, timeout, ..Kind::new(handler) };
    let builder = builder(folder.path(), &Log::default())
        .kind("by itself", kind(Forlorn(short), None))
        .kind("by its kind", kind(Forlorn(long), Some(short)));
    let service = builder.start().await.unwrap();
    let (_server, client) = serve(&service).await;
    for name in ["by itself", "by its kind"] {
        let id = client.submit(&json!({"kind": name, "payload": 1}).to_string()).await;
        let job = client.wait(&id).await;
        assert_eq!(
            (&job["state"], &job["error"]),
            (&json!("failed"), &json!("it took longer than 5ms"))
        );
    }
    // What answers over the network has one.
    assert!(HttpHandler::new("http://localhost/").unwrap().patience().is_some());
}
