//! Jobs that are submitted under ids of their clients, and several at once.

use std::time::Duration;

use crate::common::{Client, Log, builder, serve};
use serde_json::{Value, json};

macro_rules! scene {
    ($log:ident, $service:ident, $client:ident) => {
        let folder = tempfile::tempdir().unwrap();
        let $log = Log::default();
        let $service = builder(folder.path(), &$log).start().await.unwrap();
        let (_server, $client) = serve(&$service).await;
    };
}

const JSON: [(&str, &str); 1] = [("content-type", "application/json")];

async fn put(client: &Client, id: &str, body: &str) -> crate::common::Answered {
    client.send("PUT", &format!("/v1/jobs/{id}"), &JSON, body).await
}

async fn count(client: &Client) -> usize {
    client.get("/v1/jobs").await.expect(200).json()["items"].as_array().unwrap().len()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clients_id_is_one_job_and_works_wherever_an_id_does() {
    scene!(log, service, client);
    let body = r#"{"kind":"hang","key":"a","payload":1}"#;
    let first = put(&client, "order-4711", body).await.expect(202);
    let id = first.json()["id"].as_str().unwrap().to_owned();
    assert_eq!(first.json()["client_id"], "order-4711");
    assert_eq!(first.headers["location"].to_str().unwrap(), format!("/v1/jobs/{id}"));
    let again = put(&client, "order-4711", body).await.expect(200);
    assert_eq!(again.json()["id"], id);
    assert_eq!(again.headers["idempotent-replayed"], "true");
    let other = put(&client, "order-4711", r#"{"kind":"hang","key":"b","payload":1}"#).await;
    assert_eq!(other.expect(409).json()["code"], "conflict");
    assert_eq!(count(&client).await, 1);
    let path = "/v1/jobs/order-4711";
    for below in ["", "/results", "/subtasks", "/subtasks/0", "/explain"] {
        client.get(&format!("{path}{below}")).await.expect(200);
    }
    assert_eq!(client.get(path).await.json()["id"], id);
    client.post(&format!("{path}/pause"), "").await.expect(200);
    client.post(&format!("{path}/resume"), "").await.expect(200);
    let patch = [JSON[0], ("if-match", "*")];
    client.send("PATCH", path, &patch, r#"{"weight":2}"#).await.expect(200);
    client.post(&format!("{path}/cancel"), r#"{"mode":"kill"}"#).await;
    client.wait("order-4711").await;
    client.post(&format!("{path}/retry"), r#"{"only":"unsuccessful"}"#).await.accepted();
    client.post(&format!("{path}/cancel"), r#"{"mode":"kill"}"#).await;
    client.wait("order-4711").await;
    // With the job goes its name, and is free.
    client.send("DELETE", path, &[], "").await.expect(204);
    client.get(path).await.expect(404);
    let new = put(&client, "order-4711", r#"{"kind":"echo","payload":2}"#).await.expect(202);
    assert_ne!(new.json()["id"], id);
    client.wait("order-4711").await;
    drop((service, log));
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_key_is_the_one_that_was_submitted_first() {
    scene!(log, service, client);
    // The lane of one of them exists before, and one occurs twice.
    client.post("/v1/keys/mm/pause", "").await.expect(200);
    let id = client.submit(r#"{"kind":"echo","keys":["zz","aa","mm","aa"],"payload":1}"#).await;
    let later = r#"{"kind":"echo","keys":["yy","bb"],"payload":2,"delay_ms":1}"#;
    let later = client.submit(later).await;
    client.wait(&later).await;
    client.post("/v1/keys/mm/resume", "").await.expect(200);
    client.wait(&id).await;
    assert_eq!(log.lines(), ["yy 2", "zz 1"]);
    let leased = r#"{"kind":"remote","keys":["q","b","z"],"payload":3}"#;
    client.submit(leased).await;
    let taken = client.post("/v1/leases", r#"{"kinds":["remote"],"wait_ms":20000}"#).await;
    assert_eq!(taken.json()["leases"][0]["keys"], json!(["q", "b", "z"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clients_id_is_kept_over_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let log = Log::default();
    let service = builder(folder.path(), &log).start().await.unwrap();
    let (server, client) = serve(&service).await;
    let body = r#"{"kind":"echo","payload":1}"#;
    let id = put(&client, "a", body).await.expect(202).json()["id"].clone();
    let lines = "{\"kind\":\"echo\"}\n{\"payload\":1}\n{\"payload\":2}\n";
    let ndjson = [("content-type", "application/x-ndjson")];
    client.send("PUT", "/v1/jobs/lines", &ndjson, lines).await.expect(202);
    client.wait("a").await;
    client.wait("lines").await;
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::from_secs(5)).await;
    let service = builder(folder.path(), &log).start().await.unwrap();
    let (_server, client) = serve(&service).await;
    let again = put(&client, "a", body).await.expect(200).json();
    assert_eq!((&again["id"], &again["state"]), (&id, &json!("succeeded")));
    assert_eq!(again["client_id"], "a");
    client.send("PUT", "/v1/jobs/lines", &ndjson, lines).await.expect(200);
    client.send("PUT", "/v1/jobs/lines", &ndjson, "{\"kind\":\"echo\"}\n{}\n").await.expect(409);
    assert_eq!(log.lines().len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_no_job_can_be_called_is_refused() {
    scene!(log, service, client);
    let body = r#"{"kind":"echo","payload":1}"#;
    for id in ["a%2Fb", "a%20b", "job_0199aaaaaaaa7000800000000000000a", &"x".repeat(129)] {
        let problem = put(&client, id, body).await.expect(422).json();
        assert_eq!(problem["errors"][0]["pointer"], "id");
    }
    client.get("/v1/jobs/a%2Fb").await.expect(404);
    client.get("/v1/jobs/nobody").await.expect(404);
    put(&client, "a", "{").await.expect(400);
    put(&client, "a", r#"{"kind":"none","payload":1}"#).await.expect(422);
    client.get("/v1/jobs/a").await.expect(404);
    drop((service, log));
}

/// Sends requests at the same time, and returns their answers.
async fn together(
    client: &Client,
    requests: impl Iterator<Item = (&'static str, String, String)>,
    key: Option<&str>,
) -> Vec<crate::common::Answered> {
    let sent: Vec<_> = requests
        .map(|(method, path, body)| {
            let (client, key) = (client.clone(), key.map(str::to_owned));
            tokio::spawn(async move {
                let mut headers = JSON.to_vec();
                headers.extend(key.as_deref().map(|key| ("idempotency-key", key)));
                client.send(method, &path, &headers, &body).await
            })
        })
        .collect();
    let mut answers = Vec::new();
    for sent in sent {
        answers.push(sent.await.unwrap());
    }
    answers
}

/// How many answers have this status.
fn with_status(answers: &[crate::common::Answered], status: u16) -> usize {
    answers.iter().filter(|answer| answer.status == status).count()
}

/// Many clients want the same id at once: one job, and each is told of it. None is told to ask again.
#[tokio::test(flavor = "multi_thread")]
async fn an_id_that_many_want_at_once_is_one_job() {
    scene!(log, service, client);
    for round in 0..20 {
        let body = r#"{"kind":"echo","payload":1}"#;
        let put = |_| ("PUT", format!("/v1/jobs/r{round}"), body.to_owned());
        let answers = together(&client, (0..8).map(put), None).await;
        assert_eq!((with_status(&answers, 202), with_status(&answers, 200)), (1, 7), "{answers:?}");
        let mut ids: Vec<_> = answers.iter().map(|answer| answer.json()["id"].clone()).collect();
        ids.dedup();
        assert_eq!(ids.len(), 1);
    }
    assert_eq!(count(&client).await, 20);
    drop((service, log));
}

#[tokio::test(flavor = "multi_thread")]
async fn equal_requests_under_a_key_at_once_are_one_job() {
    scene!(log, service, client);
    let one = r#"{"kind":"echo","payload":1}"#;
    let batch = format!(r#"{{"jobs":[{one},{one}]}}"#);
    for round in 0..20 {
        for (path, body) in [("/v1/jobs", one), ("/v1/jobs/batch", &batch)] {
            let post = |_| ("POST", path.to_owned(), body.to_owned());
            let key = format!("k{round}{path}");
            let answers = together(&client, (0..8).map(post), Some(&key)).await;
            assert_eq!(with_status(&answers, 202), 8, "{answers:?}");
            let replayed = |answer: &&crate::common::Answered| {
                answer.headers.get("idempotent-replayed").is_some_and(|told| told == "true")
            };
            assert_eq!(answers.iter().filter(replayed).count(), 7);
        }
    }
    assert_eq!(count(&client).await, 50);
    let all = client.get("/v1/jobs?limit=1000").await.json();
    assert_eq!(all["items"].as_array().unwrap().len(), 60);
    drop((service, log));
}

/// A client that disconnects while its request is handled, and comes back at once, finds its one job.
#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_has_gone_away_can_ask_again_at_once() {
    scene!(log, service, client);
    let body = r#"{"kind":"echo","payload":1}"#;
    for round in 0..50 {
        let (own, id) = (client.clone(), format!("r{round}"));
        let gone = tokio::spawn(async move { put(&own, &id, body).await });
        // Anywhere between not sent and answered.
        for _ in 0..round % 10 {
            client.get("/livez").await.expect(200);
        }
        gone.abort();
        let answer = put(&client, &format!("r{round}"), body).await;
        assert!([200, 202].contains(&answer.status), "{}", answer.text);
    }
    let all = client.get("/v1/jobs?limit=1000").await.json();
    assert_eq!(all["items"].as_array().unwrap().len(), 50);
    drop((service, log));
}

#[tokio::test(flavor = "multi_thread")]
async fn other_requests_of_the_same_name_at_once_are_refused() {
    scene!(log, service, client);
    for round in 0..10 {
        let body = |payload| format!(r#"{{"kind":"echo","payload":{payload}}}"#);
        let put = |payload| ("PUT", format!("/v1/jobs/r{round}"), body(payload % 2));
        let answers = together(&client, (0..8).map(put), None).await;
        let statuses = [202, 200, 409].map(|status| with_status(&answers, status));
        assert_eq!(statuses, [1, 3, 4], "{answers:?}");
        let post = |payload| ("POST", "/v1/jobs".to_owned(), body(payload % 2));
        let answers = together(&client, (0..8).map(post), Some(&format!("k{round}"))).await;
        assert_eq!([202, 422].map(|status| with_status(&answers, status)), [4, 4], "{answers:?}");
    }
    drop((service, log));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_is_accepted_whole_or_not_at_all() {
    scene!(log, service, client);
    let job = |n: u32| json!({"kind": "echo", "key": "k", "payload": n});
    let batch = json!({"jobs": (0..50).map(job).collect::<Vec<_>>()}).to_string();
    let answer = client.post("/v1/jobs/batch", &batch).await.expect(202).json();
    let items = answer["items"].as_array().unwrap();
    let ids: Vec<&str> = items.iter().map(|item| item["job"]["id"].as_str().unwrap()).collect();
    assert!(ids.len() == 50 && items.iter().all(|item| item["status"] == 202));
    for id in &ids {
        client.wait(id).await;
    }
    // In their order.
    let wanted: Vec<String> = (0..50).map(|n| format!("k {n}")).collect();
    assert_eq!(log.lines(), wanted);

    let wrong = json!({"jobs": [job(1), {"kind": "none", "payload": 1}, job(2)]}).to_string();
    let problem = client.post("/v1/jobs/batch", &wrong).await.expect(422).json();
    assert_eq!(problem["errors"][0]["pointer"], "/jobs/1/kind");
    assert_eq!(
        client.get("/v1/jobs?limit=1000").await.json()["items"].as_array().unwrap().len(),
        50
    );
    let each = client.post("/v1/jobs/batch?atomic=false", &wrong).await.expect(200).json();
    let statuses: Vec<_> =
        each["items"].as_array().unwrap().iter().map(|item| &item["status"]).collect();
    assert_eq!(statuses, [202, 422, 202]);
    assert_eq!(each["items"][1]["problem"]["errors"][0]["pointer"], "/kind");
    assert_eq!(
        client.get("/v1/jobs?limit=1000").await.json()["items"].as_array().unwrap().len(),
        52
    );

    let refused = |body: &'static str| client.post("/v1/jobs/batch", body);
    refused(r#"{"jobs":[]}"#).await.expect(422);
    refused(r#"{"jobs":1}"#).await.expect(422);
    refused("{").await.expect(400);
    client.post("/v1/jobs/batch?atomic=maybe", &batch).await.expect(422);
    let ndjson = [("content-type", "application/x-ndjson")];
    client.send("POST", "/v1/jobs/batch", &ndjson, &batch).await.expect(415);
    drop(service);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_batch_under_an_idempotency_key_is_the_same_jobs() {
    scene!(log, service, client);
    let headers = [JSON[0], ("idempotency-key", "abc")];
    let send = |path: &'static str, body: &'static str| client.send("POST", path, &headers, body);
    let ids = |answer: &Value| -> Vec<Value> {
        answer["items"].as_array().unwrap().iter().map(|item| item["job"]["id"].clone()).collect()
    };
    let body = r#"{"jobs":[{"kind":"echo","payload":1},{"kind":"echo","payload":2}]}"#;
    let first = send("/v1/jobs/batch", body).await.expect(202);
    let again = send("/v1/jobs/batch", body).await.expect(202);
    assert_eq!(ids(&first.json()), ids(&again.json()));
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert!(!first.headers.contains_key("idempotent-replayed"));
    let other = r#"{"jobs":[{"kind":"echo","payload":1},{"kind":"echo","payload":3}]}"#;
    assert_eq!(send("/v1/jobs/batch", other).await.expect(422).json()["code"], "other-request");
    // The key by itself is another one.
    send("/v1/jobs", r#"{"kind":"echo","payload":4}"#).await.expect(202);
    assert_eq!(count(&client).await, 3);

    let headers = [JSON[0], ("idempotency-key", "each")];
    let send = || client.send("POST", "/v1/jobs/batch?atomic=false", &headers, body);
    let first = send().await.expect(200).json();
    assert_eq!(ids(&first), ids(&send().await.expect(200).json()));
    assert_eq!(count(&client).await, 5);
    drop((service, log));
}
