//! A group begins an attempt only under a lease that it holds for sure.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use bytes::Bytes;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::sleep;

use super::{LeaseRunner, LeaseRunnerSettings, LeaseTransport, TransportError};
use crate::handle::{Attempt, AttemptResult, BoxFuture, FunctionHandler, Handler};
use crate::{JobId, JobNumber, Kind};

/// Duration of the lease.
const LASTS: Duration = Duration::from_secs(2);

/// An owner that gives one lease.
struct Owner {
    /// Time until a subtask is ready.
    ready_after: Duration,
    /// Time from a request to its answer.
    latency: Duration,
    /// Status of the answer to a heartbeat, unless it is lost.
    status: Option<u16>,
    has_given: AtomicBool,
    /// Ends that were reported.
    ends: UnboundedSender<Value>,
}

impl LeaseTransport for Owner {
    fn worker(&self) -> String {
        "here".to_owned()
    }

    fn post(
        &self,
        path: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<Result<(u16, Bytes), TransportError>> {
        let body: Value = serde_json::from_slice(&body).unwrap();
        let lasts = u64::try_from(LASTS.as_millis()).unwrap();
        let (wait, answer) = match path {
            "/v1/leases" if self.has_given.swap(true, Ordering::Relaxed) => {
                (Duration::MAX, json!({}))
            }
            "/v1/leases" => (self.ready_after, json!({"leases": [lease()]})),
            "/v1/leases/heartbeat" => {
                let wait = self.status.map_or(Duration::MAX, |_| self.latency);
                (wait, json!({"items": [{"status": self.status, "expires_in_ms": lasts}]}))
            }
            _ => {
                self.ends.send(body["leases"][0].clone()).unwrap();
                (self.latency, json!({"items": [{"status": 200}]}))
            }
        };
        Box::pin(async move {
            sleep(wait).await;
            Ok((200, answer.to_string().into()))
        })
    }
}

fn lease() -> Value {
    json!({
        "id": "lease_1_0_j",
        "job": JobId::new(JobNumber(1), 0, 0).to_string(),
        "kind": "a",
        "number": 0,
        "keys": ["k"],
        "shared_keys": [],
        "attempt": 1,
        "fence": 1,
        "payload": 7,
        "expires_at": "2026-01-01T00:00:00Z",
        "expires_in_ms": u64::try_from(LASTS.as_millis()).unwrap(),
    })
}

/// Starts a runner whose attempts take half of a lease. Returns it with the number of attempts that have begun, and the ends.
fn start(
    ready_after: Duration,
    status: Option<u16>,
) -> (LeaseRunner, Arc<AtomicU32>, UnboundedReceiver<Value>) {
    let begun = Arc::new(AtomicU32::new(0));
    let counted = Arc::clone(&begun);
    let handler = FunctionHandler::new(move |_| {
        counted.fetch_add(1, Ordering::Relaxed);
        async {
            sleep(LASTS / 2).await;
            Ok(RawValue::from_string("5".to_owned()).ok())
        }
    });
    let runner = LeaseRunner::new(LeaseRunnerSettings { slots: 1, ..Default::default() });
    runner.set_kinds([("a", &Kind::on_all_servers(LASTS, handler))]);
    let (ends, reported) = unbounded_channel();
    let latency = Duration::from_millis(50);
    let has_given = AtomicBool::new(false);
    runner.connect(Some(Arc::new(Owner { ready_after, latency, status, has_given, ends })));
    (runner, begun, reported)
}

/// The time of a lease counts from the claim, which can have waited for longer.
#[tokio::test(start_paused = true)]
async fn an_attempt_whose_claim_has_waited_begins_and_is_not_cancelled() {
    for ready_after in [Duration::from_millis(1), LASTS / 2, LASTS * 9 / 10, LASTS * 5] {
        let (_runner, begun, mut reported) = start(ready_after, Some(200));
        let end = reported.recv().await.unwrap();
        assert_eq!((&end["result"], &end["error"]), (&json!(5), &Value::Null), "{ready_after:?}");
        assert_eq!(begun.load(Ordering::Relaxed), 1);
    }
}

/// As that of a process that stood still before it read the answer to its claim.
#[tokio::test(start_paused = true)]
async fn an_attempt_whose_lease_has_ended_does_not_begin() {
    let (runner, begun, mut reported) = start(LASTS * 5, Some(409));
    sleep(LASTS * 10).await;
    runner.stop(Duration::from_secs(1)).await;
    assert_eq!(begun.load(Ordering::Relaxed), 0);
    assert!(reported.try_recv().is_err());
}

#[tokio::test(start_paused = true)]
async fn a_lease_whose_attempt_has_not_begun_is_given_back_at_the_end() {
    let (runner, begun, mut reported) = start(LASTS * 5, None);
    sleep(LASTS * 6).await;
    runner.stop(Duration::from_secs(1)).await;
    assert_eq!(begun.load(Ordering::Relaxed), 0);
    assert_eq!(reported.recv().await.unwrap()["release"], true);
}

/// An owner that notes what it is asked for, and gives nothing. It knows the leases of former processes, or has a version that does not.
struct Notes {
    knows_former: bool,
    /// Requests whose answers are lost.
    lost: AtomicU32,
    paths: UnboundedSender<(&'static str, Value)>,
}

impl LeaseTransport for Notes {
    fn worker(&self) -> String {
        "here".to_owned()
    }

    fn post(
        &self,
        path: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<Result<(u16, Bytes), TransportError>> {
        let body: Value = serde_json::from_slice(&body).unwrap();
        self.paths.send((path, body["below"].clone())).unwrap();
        let is_lost = self.lost.load(Ordering::Relaxed) > 0;
        self.lost.fetch_sub(u32::from(is_lost), Ordering::Relaxed);
        let answer = match path {
            _ if is_lost => Err(TransportError("the answer was lost".to_owned())),
            "/v1/leases/former" if self.knows_former => Ok((200, json!({"next_fence": 9}))),
            "/v1/leases/former" => Ok((404, Value::Null)),
            _ => return Box::pin(std::future::pending()),
        };
        Box::pin(async move { answer.map(|(status, body)| (status, body.to_string().into())) })
    }
}

/// A handler that has a group of its own.
struct OneAtATime;

impl Handler for OneAtATime {
    fn sort(&self) -> &'static str {
        "test"
    }

    fn max_attempts(&self) -> Option<usize> {
        Some(1)
    }

    fn handle(&self, _: Attempt) -> BoxFuture<AttemptResult> {
        Box::pin(std::future::ready(Ok(None)))
    }
}

/// Two groups of kinds share the leases of the former process.
#[tokio::test(start_paused = true)]
async fn the_leases_of_the_former_process_are_ended_once_before_any_claim() {
    let folder = tempfile::tempdir().unwrap();
    let list = folder.path().join("children");
    // With a new list there is no former process.
    let mut is_new = true;
    for (knows_former, lost) in [(true, 0), (true, 0), (true, 1), (true, 3), (false, 0), (false, 1)]
    {
        assert_eq!(list.exists(), !is_new);
        let children = Some(list.clone());
        let runner = LeaseRunner::new(LeaseRunnerSettings { children, ..Default::default() });
        let function = FunctionHandler::new(|_| std::future::ready(Ok(None)));
        let one = Kind::on_all_servers(LASTS, function);
        let alone = Kind::on_all_servers(LASTS, OneAtATime);
        runner.set_kinds([("a", &one), ("b", &alone)]);
        let (paths, mut asked) = unbounded_channel();
        let lost = AtomicU32::new(lost);
        runner.connect(Some(Arc::new(Notes { knows_former, lost, paths })));
        let (mut former, mut claims) = (Vec::new(), 0);
        while claims < 2 {
            match asked.recv().await.unwrap() {
                ("/v1/leases/former", below) if claims == 0 => former.push(below),
                ("/v1/leases", _) => claims += 1,
                other => panic!("{other:?} after {former:?}"),
            }
        }
        match knows_former {
            _ if std::mem::take(&mut is_new) => assert_eq!(former, [Value::Null; 0]),
            true => assert_eq!(former[former.len() - 2..], [Value::Null, json!(9)]),
            false => assert_eq!(former.last(), Some(&Value::Null)),
        }
        runner.stop(Duration::ZERO).await;
    }
}
