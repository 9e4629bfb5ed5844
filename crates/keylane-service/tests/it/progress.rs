//! Clients see the progress that handlers of every type report, while the attempt runs and not longer.

use std::path::Path;
use std::time::Duration;

use crate::common::attempts::named_pipe;
use crate::common::{Client, serve};
use keylane_service::handle::{Attempt, CommandHandler, FunctionHandler, WorkerHandler};
use keylane_service::{Kind, Service, ServiceSettings};
use serde_json::{Value, json};
use tokio::sync::watch;

/// Reports its progress in two steps, and ends when the pipe is written.
const COMMAND: &str = r#"
echo 'keylane-progress: 0.25' >&2
echo 'reads the pictures' >&2
echo 'keylane-progress: 0.5' >&2
cat FOLDER/end-command > /dev/null
"#;

const WORKER: &str = r#"
read hello; echo '{"op":"ready"}'
while read line; do
    case "$line" in *'"op":"bye"'*) exit ;; esac
    id=$(echo "$line" | sed 's/.*"id":"\([^"]*\)".*/\1/')
    echo '{"op":"progress","id":"'$id'","progress":0.1}'
    echo '{"op":"progress","id":"'$id'","progress":0.5}'
    cat FOLDER/end-worker > /dev/null
    echo '{"op":"done","id":"'$id'"}'
done
"#;

async fn subtask(client: &Client, job: &str) -> Value {
    client.get(&format!("/v1/jobs/{job}/subtasks/0")).await.expect(200).json()
}

async fn until_half(client: &Client, job: &str) {
    while subtask(client, job).await["progress"] != 0.5 {}
    let running = client.get("/v1/scheduler").await.expect(200).json()["running"].clone();
    let running = running.as_array().unwrap().iter().find(|one| one["job"] == job).unwrap();
    assert_eq!(running["progress"], 0.5, "{running}");
}

async fn end(folder: &Path, name: &str) {
    let path = folder.join(name);
    tokio::task::spawn_blocking(|| std::fs::write(path, "")).await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_type_of_handler_can_report_its_progress() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path();
    for name in ["end-command", "end-worker"] {
        named_pipe(&place.join(name));
    }
    let shell = |script: &str| {
        CommandHandler::new(["sh", "-c", &script.replace("FOLDER", place.to_str().unwrap())])
    };
    let (may_end, ending) = watch::channel(false);
    let function = FunctionHandler::new(move |attempt: Attempt| {
        let mut ending = ending.clone();
        async move {
            attempt.progress.report(0.5);
            let _ = ending.wait_for(|end| *end).await;
            Ok(None)
        }
    });
    let service = Service::builder(ServiceSettings::new(place.join("store")))
        .kind("command", Kind::new(shell(COMMAND)))
        .kind("worker", Kind::new(WorkerHandler::new(shell(WORKER), 1, None)))
        .kind("function", Kind::new(function))
        .kind("lease", Kind::leased(Duration::from_secs(60)));
    let service = service.start().await.unwrap();
    let (server, client) = serve(&service).await;
    let submit =
        async |kind: &str| client.submit(&json!({"kind": kind, "payload": 1}).to_string()).await;
    for kind in ["command", "worker", "function"] {
        let job = submit(kind).await;
        until_half(&client, &job).await;
        match kind {
            "function" => may_end.send(true).unwrap(),
            kind => end(place, &format!("end-{kind}")).await,
        }
        assert_eq!(client.wait(&job).await["state"], "succeeded", "{kind}");
        assert!(subtask(&client, &job).await.get("progress").is_none(), "{kind}");
    }

    let job = submit("lease").await;
    let claim = r#"{"kinds":["lease"],"wait_ms":60000}"#;
    let claimed = client.post("/v1/leases", claim).await.expect(200).json();
    let lease = claimed["leases"][0]["id"].as_str().unwrap();
    assert!(subtask(&client, &job).await.get("progress").is_none());
    let beat = format!("/v1/leases/{lease}/heartbeat");
    let refused = client.post(&beat, r#"{"progress":1.5}"#).await.expect(422).json();
    assert_eq!(refused["errors"][0]["pointer"], "/progress", "{refused}");
    client.post(&beat, r#"{"progress":0.5}"#).await.expect(200);
    until_half(&client, &job).await;
    // A heartbeat without one changes nothing.
    client.post(&beat, "").await.expect(200);
    until_half(&client, &job).await;
    client.post(&format!("/v1/leases/{lease}/complete"), "").await.expect(204);
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::from_secs(5)).await;
}
