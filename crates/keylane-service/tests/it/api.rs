//! The API as its users meet it: a job is accepted, done, looked at and steered, over HTTP.

use std::time::Duration;

use crate::common::{Log, builder, serve};
use serde_json::{Value, json};

macro_rules! scene {
    ($folder:ident, $log:ident, $service:ident, $client:ident) => {
        let $folder = tempfile::tempdir().unwrap();
        let $log = Log::default();
        let $service = builder($folder.path(), &$log).start().await.unwrap();
        let (_server, $client) = serve(&$service).await;
    };
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_accepted_and_done() {
    scene!(folder, log, service, client);
    let answer =
        client.post("/v1/jobs", r#"{"kind":"echo","key":"ann","payload":{"n":1.50}}"#).await;
    let job = answer.clone().expect(202).json();
    let id = job["id"].as_str().unwrap();
    assert_eq!(answer.headers["location"].to_str().unwrap(), format!("/v1/jobs/{id}"));
    assert!(answer.headers.contains_key("retry-after"));
    let done = client.wait(id).await;
    assert_eq!(done["state"], "succeeded");
    assert_eq!(done["counts"]["succeeded"], 1);
    assert_eq!(done["progress"], 1.0);
    let results = client.get(&format!("/v1/jobs/{id}/results")).await.expect(200);
    // Numbers keep their digits.
    assert!(results.text.contains("{\"n\":1.50}"), "{}", results.text);
    assert_eq!(results.json()["items"][0]["keys"], json!(["ann"]));
    assert_eq!(log.lines(), ["ann {\"n\":1.50}"]);
    drop((service, folder));
}

/// Numbers of the results in lines of JSON.
fn numbers(lines: &str) -> Vec<u64> {
    let number = |line: &str| {
        let result: Value = serde_json::from_str(line).unwrap();
        result["number"].as_u64().unwrap()
    };
    lines.lines().map(number).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_results_are_all_of_them_or_a_page_with_a_link_to_the_next() {
    scene!(_folder, log, service, client);
    let subtasks: Vec<Value> = (0..1203).map(|number| json!({"payload": number})).collect();
    let job = json!({"kind": "echo", "subtasks": subtasks}).to_string();
    let id = client.submit(&job).await;
    client.wait(&id).await;
    let path = format!("/v1/jobs/{id}/results");
    let lines = async |at: &str| {
        client.send("GET", at, &[("accept", "application/x-ndjson")], "").await.expect(200)
    };
    for order in ["submit", "completion", "key"] {
        let mut all = numbers(&lines(&format!("{path}?order={order}")).await.text);
        let as_listed = all.clone();
        all.sort_unstable();
        assert!(all.into_iter().eq(0..1203), "{order}");
        // By pages, each of which names the next.
        let (mut next, mut followed) = (format!("{path}?order={order}&limit=500"), Vec::new());
        loop {
            let page = lines(&next).await;
            followed.extend(numbers(&page.text));
            let Some(link) = page.headers.get("link") else { break };
            let link = link.to_str().unwrap().strip_prefix('<').unwrap();
            next = link.strip_suffix(">; rel=\"next\"").unwrap().to_owned();
        }
        assert_eq!(followed, as_listed, "{order}");
    }
    // What there is of a job that goes on, and no more.
    let rest = r#"{"kind":"remote","subtasks":[{"payload":1},{"payload":2}]}"#;
    let id = client.submit(rest).await;
    let claim = r#"{"kinds":["remote"],"wait_ms":20000}"#;
    let claim = client.post("/v1/leases", claim).await.expect(200).json();
    let lease = claim["leases"][0]["id"].as_str().unwrap();
    client.post(&format!("/v1/leases/{lease}/complete"), "").await.expect(204);
    for order in ["submit", "completion", "key"] {
        let there = lines(&format!("/v1/jobs/{id}/results?order={order}")).await.text;
        assert_eq!(numbers(&there), [0], "{order}");
    }
    drop((service, log));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_prefers_to_wait_gets_the_end() {
    scene!(_folder, log, service, client);
    let headers = [("content-type", "application/json"), ("prefer", "wait=30")];
    let answer = client.send("POST", "/v1/jobs", &headers, r#"{"kind":"echo","payload":7}"#).await;
    assert_eq!(answer.clone().expect(200).json()["state"], "succeeded");
    assert_eq!(answer.headers["preference-applied"], "wait=30");
    drop((service, log));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_subtasks_of_a_key_are_done_in_order_across_jobs() {
    scene!(_folder, log, service, client);
    let mut ids = Vec::new();
    for job in 0..10 {
        let subtasks: Vec<_> = (0..20)
            .map(|n| json!({"key": format!("k{}", n % 3), "payload": job * 20 + n}))
            .collect();
        let job = json!({"kind": "echo", "subtasks": subtasks});
        ids.push(client.submit(&job.to_string()).await);
    }
    for id in &ids {
        assert_eq!(client.wait(id).await["counts"]["succeeded"], 20);
    }
    for key in ["k0", "k1", "k2"] {
        let lines = log.lines();
        let numbers =
            lines.iter().filter_map(|line| line.strip_prefix(key)?.trim().parse::<u32>().ok());
        let numbers: Vec<u32> = numbers.collect();
        assert!(numbers.is_sorted() && numbers.len() >= 60, "{key}: {numbers:?}");
    }
    drop(service);
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_become_one_job_or_none() {
    scene!(_folder, log, service, client);
    let headers = [("content-type", "application/x-ndjson")];
    let mut body = String::from("{\"kind\":\"echo\",\"name\":\"many\"}\n");
    for number in 0..5000 {
        body.push_str(&format!("{{\"key\":\"k{}\",\"payload\":{number}}}\n", number % 100));
    }
    let answer = client.send("POST", "/v1/jobs", &headers, &body).await.expect(202);
    let id = answer.json()["id"].as_str().unwrap().to_owned();
    let done = client.wait(&id).await;
    assert_eq!(
        done["counts"],
        json!({"total": 5000, "waiting": 0, "ready": 0, "running": 0,
        "backing_off": 0, "succeeded": 5000, "failed": 0, "cancelled": 0, "superseded": 0})
    );
    body.push_str("{\"ky\":1}\n");
    let refused = client.send("POST", "/v1/jobs", &headers, &body).await.expect(422);
    assert_eq!(refused.headers["content-type"], "application/problem+json");
    assert_eq!(refused.json()["errors"][0]["pointer"], "line 5002");
    let all = client.get("/v1/jobs").await.expect(200).json();
    assert_eq!(all["items"].as_array().unwrap().len(), 1);
    drop((service, log));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_same_idempotency_key_is_the_same_job() {
    scene!(_folder, log, service, client);
    let headers = [("content-type", "application/json"), ("idempotency-key", "abc")];
    let send = |body: &'static str| client.send("POST", "/v1/jobs", &headers, body);
    let first = send(r#"{"kind":"echo","payload":1}"#).await.expect(202);
    let again = send(r#"{"kind":"echo","payload":1}"#).await.expect(202);
    assert_eq!(first.json()["id"], again.json()["id"]);
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert!(!first.headers.contains_key("idempotent-replayed"));
    let other = send(r#"{"kind":"echo","payload":2}"#).await.expect(422);
    assert_eq!(other.json()["code"], "other-request");
    client.wait(first.json()["id"].as_str().unwrap()).await;
    assert_eq!(log.lines().len(), 1);
    drop(service);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_is_tried_again_and_then_shown() {
    scene!(_folder, log, service, client);
    let id = client.submit(r#"{"kind":"fail","subtasks":[{"payload":1},{"payload":2}]}"#).await;
    let failed = client.wait(&id).await;
    assert_eq!((&failed["state"], &failed["counts"]["failed"]), (&json!("failed"), &json!(2)));
    assert_eq!(failed["error"], "it always fails");
    let mut lines = log.lines();
    lines.sort();
    assert_eq!(lines, ["try 1 of 1", "try 1 of 2", "try 2 of 1", "try 2 of 2"]);
    let subtask = client.get(&format!("/v1/jobs/{id}/subtasks/1")).await.expect(200).json();
    assert_eq!(subtask["outcome"]["error"], "it always fails");
    assert_eq!(subtask["attempts"], 2);
    // It can be tried once more, from the beginning.
    client.post(&format!("/v1/jobs/{id}/retry"), "").await.accepted();
    client.wait(&id).await;
    assert_eq!(log.lines().len(), 8);
    drop(service);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_cancelled_gracefully_or_killed() {
    scene!(_folder, log, service, client);
    let id =
        client.submit(r#"{"kind":"hang","subtasks":[{"key":"a"},{"key":"a"},{"key":"b"}]}"#).await;
    client.wait_until(&id, |job| job["counts"]["running"] == 2).await;
    let job = client.get(&format!("/v1/jobs/{id}")).await.json();
    assert_eq!(job["waiting_because"][0]["reason"], "key_order", "{job}");
    assert_eq!(job["waiting_because"][0]["key"], "a");
    let graceful = client.post(&format!("/v1/jobs/{id}/cancel"), "{}").await.expect(202);
    assert_eq!(graceful.json()["state"], "cancelling");
    client.post(&format!("/v1/jobs/{id}/cancel"), r#"{"mode":"kill"}"#).await;
    let over = client.wait(&id).await;
    assert_eq!((&over["state"], &over["counts"]["cancelled"]), (&json!("cancelled"), &json!(3)));
    // Once more is as well.
    client.post(&format!("/v1/jobs/{id}/cancel"), "").await.expect(200);
    // And then it can go.
    client.send("DELETE", &format!("/v1/jobs/{id}"), &[], "").await.expect(204);
    client.get(&format!("/v1/jobs/{id}")).await.expect(410);
    drop((service, log));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_job_and_a_paused_key_wait() {
    scene!(_folder, log, service, client);
    client.post("/v1/keys/a%2Fb/pause", "").await.expect(200);
    let id = client
        .submit(r#"{"kind":"echo","subtasks":[{"key":"a/b","payload":1},{"payload":2}]}"#)
        .await;
    client.wait_until(&id, |job| job["counts"]["succeeded"] == 1).await;
    let key = client.get("/v1/keys/a%2Fb").await.expect(200).json();
    assert_eq!((&key["state"], &key["length"]), (&json!("paused"), &json!(1)));
    assert_eq!(client.get("/v1/keys").await.json()["items"][0]["key"], "a/b");
    let because = client.get(&format!("/v1/jobs/{id}/explain")).await.json();
    assert_eq!(because["because"][0]["reason"], "key_paused");
    client.post(&format!("/v1/jobs/{id}/pause"), "").await.expect(200);
    client.post("/v1/keys/a%2Fb/resume", "").await.expect(200);
    assert_eq!(client.get(&format!("/v1/jobs/{id}")).await.json()["state"], "paused");
    client.post(&format!("/v1/jobs/{id}/resume"), "").await.expect(200);
    client.wait(&id).await;
    client.get("/v1/keys/a%2Fb").await.expect(404);
    assert_eq!(log.lines().len(), 2);
    drop(service);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_elsewhere_takes_leases() {
    scene!(_folder, log, service, client);
    let id = client
        .submit(r#"{"kind":"remote","subtasks":[{"key":"a","payload":1},{"key":"a","payload":2}]}"#)
        .await;
    let claim = r#"{"kinds":["remote"],"max":5,"wait_ms":30000,"worker":"w1"}"#;
    let leases = client.post("/v1/leases", claim).await.expect(200).json();
    let lease = &leases["leases"][0];
    assert_eq!(leases["leases"].as_array().unwrap().len(), 1, "the second waits for the first");
    assert_eq!((&lease["payload"], &lease["attempt"]), (&json!(1), &json!(1)));
    let path = format!("/v1/leases/{}", lease["id"].as_str().unwrap());
    client.post(&format!("{path}/heartbeat"), "").await.expect(200);
    let running = client.get("/v1/scheduler").await.json();
    assert_eq!(running["running"][0]["worker"], "w1");
    client.post(&format!("{path}/fail"), r#"{"error":"no","after_ms":0}"#).await.expect(204);
    let lost = client.post(&format!("{path}/complete"), "").await.expect(409);
    assert_eq!(lost.json()["code"], "lease-lost");
    for payload in [1, 2] {
        let leases = client.post("/v1/leases", claim).await.expect(200).json();
        let lease = &leases["leases"][0];
        assert_eq!(lease["payload"], payload);
        let path = format!("/v1/leases/{}/complete", lease["id"].as_str().unwrap());
        client.post(&path, &json!({"result": payload}).to_string()).await.expect(204);
    }
    assert_eq!(client.wait(&id).await["state"], "succeeded");
    drop((service, log));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_refused_with_its_place() {
    scene!(_folder, log, service, client);
    let refused = |body: &'static str| client.post("/v1/jobs", body);
    assert_eq!(refused("{").await.expect(400).json()["code"], "bad-syntax");
    let unknown = refused(r#"{"kind":"echo","payload":1,"keey":"a"}"#).await.expect(422).json();
    assert_eq!(unknown["errors"][0]["pointer"], "/keey");
    assert!(unknown["instance"].as_str().unwrap().len() > 5);
    assert_eq!(
        refused(r#"{"kind":"none","payload":1}"#).await.expect(422).json()["errors"][0]["pointer"],
        "/kind"
    );
    let plain = [("content-type", "text/plain")];
    client.send("POST", "/v1/jobs", &plain, "{}").await.expect(415);
    client.send("PUT", "/v1/jobs", &[], "").await.expect(405);
    client.get("/v1/jobs/job_0").await.expect(404);
    let no_path = client.get("/v1/nothing").await.expect(404).json();
    assert!(no_path["detail"].as_str().unwrap().contains("`/openapi.json` lists"), "{no_path}");
    client.get("/v1/jobs?state=odd").await.expect(422);
    client.get("/v1/jobs?limt=1").await.expect(422);
    client.get("/problems/lease-lost").await.expect(200);
    drop((service, log));
}

#[tokio::test(flavor = "multi_thread")]
async fn everything_goes_on_after_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::default();
    let service = builder(folder.path(), &log).start().await.unwrap();
    let (server, client) = serve(&service).await;
    let hung = client.submit(r#"{"kind":"hang","key":"a"}"#).await;
    let behind = client
        .submit(r#"{"kind":"echo","subtasks":[{"key":"a","payload":1},{"key":"b","payload":2}]}"#)
        .await;
    let later = client.submit(r#"{"kind":"echo","payload":3,"delay_ms":3600000}"#).await;
    client.wait_until(&behind, |job| job["counts"]["succeeded"] == 1).await;
    assert_eq!(client.get(&format!("/v1/jobs/{later}")).await.json()["state"], "scheduled");
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::from_millis(1)).await;

    let service = builder(folder.path(), &log).start().await.unwrap();
    let (_server, client) = serve(&service).await;
    let job = client.wait_until(&hung, |job| job["counts"]["running"] == 1).await;
    assert_eq!(job["state"], "running");
    let job = client.get(&format!("/v1/jobs/{behind}")).await.json();
    assert_eq!(job["counts"]["succeeded"], 1);
    assert_eq!(job["counts"]["waiting"], 1);
    client.post(&format!("/v1/jobs/{hung}/cancel"), r#"{"mode":"kill"}"#).await;
    assert_eq!(client.wait(&behind).await["state"], "succeeded");
    assert_eq!(log.lines(), ["b 2", "a 1"]);
    assert_eq!(client.get(&format!("/v1/jobs/{later}")).await.json()["state"], "scheduled");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_says_how_it_is() {
    scene!(_folder, log, service, client);
    client.get("/livez").await.expect(200);
    assert_eq!(client.get("/readyz").await.expect(200).json()["status"], "ok");
    assert_eq!(client.get("/version").await.expect(200).json()["name"], "keylane");
    assert!(
        client.get("/metrics").await.expect(200).text.contains("keylane_order_violations_total 0")
    );
    assert_eq!(client.get("/v1/summary").await.expect(200).json()["slots"], 4);
    assert_eq!(
        client.get("/v1/kinds").await.expect(200).json()["items"].as_array().unwrap().len(),
        4
    );
    assert_eq!(client.get("/openapi.json").await.expect(200).json()["info"]["title"], "Keylane");
    client.get("/").await.expect(200);
    drop((service, log));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_many_want_done_again_at_once_is_done_again_once() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::default();
    let service = builder(folder.path(), &log).start().await.unwrap();
    let (_server, client) = serve(&service).await;
    let body = json!({"kind": "fail", "subtasks": vec![json!({"payload": 1}); 500]}).to_string();
    let id = client.submit(&body).await;
    let before = client.wait(&id).await;
    let path = format!("/v1/jobs/{id}/retry");
    let all = (0..20).map(|_| client.post(&path, "{}"));
    let answers = futures_util::future::join_all(all).await;
    let taken = answers.iter().filter(|answer| answer.status == 202).count();
    let others = answers.iter().filter(|answer| answer.status == 409).count();
    assert!(taken >= 1 && taken + others == 20, "{taken} and {others}");
    let after = client.wait(&id).await;
    assert_eq!(after["counts"]["failed"], before["counts"]["failed"], "{after}");
    client.get("/readyz").await.expect(200);
}
