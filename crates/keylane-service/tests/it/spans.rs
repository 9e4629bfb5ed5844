//! Spans of jobs and attempts fit together in the collector, over restarts too, and no work waits for it.

use std::collections::HashMap;
use std::path::Path;
use std::time::Duration;

use crate::common::acting::ActingService;
use crate::common::webhook_receiver::Receiver;
use keylane_service::handle::AttemptFailure;
use keylane_service::{ServiceSettings, TraceSettings};
use serde_json::{Value, json};

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
const UNSAMPLED: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00";

async fn start(store: &Path, collector: &Receiver) -> ActingService {
    let traces = TraceSettings::new(&format!("http://{}", collector.address)).unwrap();
    let traces = traces.headers("x-team: a").unwrap().service_name("billing");
    let settings = ServiceSettings { traces: Some(traces), ..ServiceSettings::new(store) };
    ActingService::start(settings).await
}

async fn submit(place: &ActingService, name: &str, parent: Option<&str>) -> String {
    let parent = parent.map(|parent| ("traceparent", parent));
    let headers = [&[("content-type", "application/json")][..], parent.as_slice()].concat();
    let job = json!({"kind": "act", "payload": name, "key": "ann"}).to_string();
    let answer = place.client.send("POST", "/v1/jobs", &headers, &job).await;
    answer.expect(202).json()["id"].as_str().unwrap().to_owned()
}

/// Takes requests until there are this many spans.
async fn spans(collector: &mut Receiver, count: usize) -> Vec<Value> {
    let mut all = Vec::new();
    while all.len() < count {
        let received = collector.next().await;
        assert_eq!(received.headers["x-team"], "a");
        let body = received.json();
        let resource = &body["resourceSpans"][0];
        assert_eq!(resource["resource"]["attributes"][0]["value"]["stringValue"], "billing");
        all.extend(resource["scopeSpans"][0]["spans"].as_array().unwrap().iter().cloned());
        received.answer(200);
    }
    assert_eq!(all.len(), count, "{all:?}");
    all
}

fn attributes(span: &Value) -> HashMap<&str, &Value> {
    let all = span["attributes"].as_array().unwrap().iter();
    all.map(|it| (it["key"].as_str().unwrap(), &it["value"])).collect()
}

#[tokio::test]
async fn attempts_are_children_of_their_job_and_the_job_of_its_submission() {
    let folder = tempfile::tempdir().unwrap();
    let mut collector = Receiver::start().await;
    let mut place = start(&folder.path().join("tasks"), &collector).await;
    let job = submit(&place, "first", Some(PARENT)).await;
    assert_eq!(place.stage.next().await, "first");
    place.stage.end("first", Err(AttemptFailure::passing("no space")));
    assert_eq!(place.stage.next().await, "first");
    place.stage.succeed("first");
    place.client.wait(&job).await;
    // A stop sends what waits.
    let (mut all, ()) = tokio::join!(spans(&mut collector, 3), place.stop(Duration::ZERO));
    all.sort_by_key(|span| span["endTimeUnixNano"].as_str().unwrap().to_owned());
    assert!(all.iter().all(|span| span["traceId"] == "4bf92f3577b34da6a3ce929d0e0e4736"));
    let whole = all.iter().find(|span| span["name"] == "act job").unwrap();
    assert_eq!(whole["parentSpanId"], "00f067aa0ba902b7");
    assert_eq!(attributes(whole)["keylane.job"]["stringValue"], *job);
    assert_eq!(whole["events"][0]["name"], "started");
    let mut attempts: Vec<_> = all.iter().filter(|span| span["name"] == "act attempt").collect();
    assert!(attempts.iter().all(|span| span["parentSpanId"] == whole["spanId"]));
    attempts.sort_by_key(|span| attributes(span)["keylane.attempt"].to_string());
    let outcomes =
        attempts.iter().map(|span| attributes(span)["keylane.outcome"]["stringValue"].clone());
    assert_eq!(outcomes.collect::<Vec<_>>(), ["retry", "succeeded"]);
    assert_eq!(attempts[0]["status"]["code"], 2);
    assert_eq!(attempts[1]["status"], json!({}));
    let keys = &attributes(attempts[0])["keylane.keys"]["arrayValue"]["values"];
    assert_eq!(*keys, json!([{"stringValue": "ann"}]));
}

#[tokio::test]
async fn a_job_goes_on_in_its_trace_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let store = folder.path().join("tasks");
    let mut collector = Receiver::start().await;
    let mut place = start(&store, &collector).await;
    let job = submit(&place, "first", None).await;
    assert_eq!(place.stage.next().await, "first");
    let (cut, ()) = tokio::join!(spans(&mut collector, 1), place.stop(Duration::ZERO));
    let mut place = start(&store, &collector).await;
    assert_eq!(place.stage.next().await, "first");
    place.stage.succeed("first");
    place.client.wait(&job).await;
    let (rest, ()) = tokio::join!(spans(&mut collector, 2), place.stop(Duration::ZERO));
    let trace = job.strip_prefix("job_").unwrap();
    assert!(cut.iter().chain(&rest).all(|span| span["traceId"] == *trace));
    let whole = rest.iter().find(|span| span["name"] == "act job").unwrap();
    assert_eq!(whole.get("parentSpanId"), None);
    let again = rest.iter().find(|span| span["name"] == "act attempt").unwrap();
    assert_eq!([&cut[0]["parentSpanId"], &again["parentSpanId"]], [&whole["spanId"]; 2]);
    assert_ne!(cut[0]["spanId"], again["spanId"]);
}

#[tokio::test]
async fn a_job_that_its_client_does_not_sample_has_no_spans() {
    let folder = tempfile::tempdir().unwrap();
    let mut collector = Receiver::start().await;
    let mut place = start(&folder.path().join("tasks"), &collector).await;
    for (name, parent) in [("first", UNSAMPLED), ("second", PARENT)] {
        let job = submit(&place, name, Some(parent)).await;
        assert_eq!(place.stage.next().await, name);
        place.stage.succeed(name);
        place.client.wait(&job).await;
    }
    let (all, ()) = tokio::join!(spans(&mut collector, 2), place.stop(Duration::ZERO));
    let payload = all.iter().filter(|span| span["parentSpanId"] == "00f067aa0ba902b7").count();
    assert_eq!(payload, 1);
}

#[tokio::test]
async fn no_work_waits_for_a_collector_that_does_not_answer() {
    let folder = tempfile::tempdir().unwrap();
    let mut collector = Receiver::start().await;
    let mut place = start(&folder.path().join("tasks"), &collector).await;
    let job = submit(&place, "first", None).await;
    assert_eq!(place.stage.next().await, "first");
    place.stage.succeed("first");
    place.client.wait(&job).await;
    // The first request comes within 5 seconds, and gets no answer.
    let unanswered = collector.next().await;
    let job = submit(&place, "second", None).await;
    assert_eq!(place.stage.next().await, "second");
    place.stage.succeed("second");
    place.client.wait(&job).await;
    place.stop(Duration::ZERO).await;
    drop(unanswered);
}
