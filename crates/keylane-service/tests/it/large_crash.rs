//! A server that is killed while a large job enters the order, is cancelled or retried has the whole job after the next
//! start, in its place: what was accepted behind it stays behind it.
//!
//! The server is this test's own binary in another process, killed by `SIGKILL`. Every attempt appends a line to a ledger.
//! There is a round of three kills for each six of `KEYLANE_KILLS`.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::common::child::{self, Child};
use keylane_service::handle::{Attempt, AttemptFailure, FunctionHandler};
use keylane_service::{Kind, Service, ServiceSettings};
use serde_json::{Value, json};

/// Subtasks of a large job: a dozen slices, and two parts of a retry.
const LARGE: usize = 12_000;

/// Keys of all but its last subtask, which alone has the key of the small job behind it.
const KEYS: usize = 3000;

/// The server, if this process was started to be one.
#[tokio::test(flavor = "multi_thread")]
async fn server() {
    let Some(folder) = child::folder() else { return };
    let ledger = OpenOptions::new().create(true).append(true).open(folder.join("ledger")).unwrap();
    let ledger = Arc::new(ledger);
    let notes = folder.clone();
    let note = FunctionHandler::new(move |attempt: Attempt| {
        let (ledger, notes) = (Arc::clone(&ledger), notes.clone());
        async move {
            let payload: Value = serde_json::from_slice(&attempt.payload).unwrap();
            let name = payload["name"].as_str().unwrap();
            if payload["waits"] == json!(true) && !is_retried(&notes, name) {
                attempt.cancelled.cancelled().await;
                return Err(AttemptFailure::lasting("it was cancelled"));
            }
            let line = format!("{name} {}\n", payload["number"]);
            (&*ledger).write_all(line.as_bytes()).unwrap();
            Ok(None)
        }
    });
    let settings = ServiceSettings { slots: 4, ..ServiceSettings::new(folder.join("store")) };
    let builder = Service::builder(settings).kind("note", Kind::new(note));
    child::serve(&builder.start().await.unwrap(), &folder).await;
}

/// Whether the attempts of a job that waits are to end now.
fn is_retried(folder: &Path, name: &str) -> bool {
    folder.join(format!("{name} is retried")).exists()
}

async fn json_of(request: reqwest::RequestBuilder) -> Value {
    let text = request.send().await.unwrap().text().await.unwrap();
    serde_json::from_str(&text).unwrap()
}

/// The server and its client.
struct Round {
    child: Child,
    folder: PathBuf,
    http: reqwest::Client,
}

impl Round {
    async fn send(&self, path: &str, kind: &'static str, body: String) -> reqwest::Result<Value> {
        let url = format!("http://{}{path}", child::address(&self.folder).await);
        let request = self.http.post(url).header("content-type", kind).body(body);
        let answer = request.send().await?;
        let (status, text) = (answer.status().as_u16(), answer.text().await?);
        assert!((200..300).contains(&status), "{status} {text}");
        Ok(serde_json::from_str(&text).unwrap())
    }

    /// Submits a job whose subtasks note this name and their numbers, and returns its id.
    async fn submit_large(&self, name: &str, waits: bool) -> String {
        let mut lines = "{\"kind\":\"note\"}\n".to_owned();
        for number in 0..LARGE {
            let key = if number + 1 == LARGE { "z".into() } else { format!("k{}", number % KEYS) };
            let payload = json!({"name": name, "number": number, "waits": waits});
            writeln!(lines, "{}", json!({"key": key, "payload": payload})).unwrap();
        }
        let job = self.send("/v1/jobs", "application/x-ndjson", lines).await.unwrap();
        job["id"].as_str().unwrap().to_owned()
    }

    /// Submits a job with the key of the last subtask of large ones.
    async fn submit_small(&self, name: &str) -> String {
        let payload = json!({"name": name, "number": 0});
        let job = json!({"kind": "note", "key": "z", "payload": payload});
        let job = self.send("/v1/jobs", "application/json", job.to_string()).await.unwrap();
        job["id"].as_str().unwrap().to_owned()
    }

    async fn job(&self, id: &str) -> Value {
        let url = format!("http://{}/v1/jobs/{id}", child::address(&self.folder).await);
        json_of(self.http.get(url)).await
    }

    /// Waits until a job is over, and returns it.
    async fn wait(&self, id: &str) -> Value {
        loop {
            let url = format!("http://{}/v1/jobs/{id}", child::address(&self.folder).await);
            let request = self.http.get(url).header("prefer", "wait=10");
            let job = json_of(request).await;
            if matches!(job["state"].as_str(), Some("succeeded" | "failed" | "cancelled")) {
                return job;
            }
        }
    }

    /// Kills the server, and returns when the next one answers.
    async fn kill(&mut self) {
        self.child.restart();
        self.child.address().await;
    }

    /// What was noted: names and numbers, in the order in which they began.
    fn ledger(&self) -> Vec<(String, usize)> {
        let text = std::fs::read_to_string(self.folder.join("ledger")).unwrap();
        let line = |line: &str| {
            let (name, number) = line.split_once(' ').unwrap();
            (name.to_owned(), number.parse().unwrap())
        };
        text.lines().map(line).collect()
    }

    /// Each subtask of the large job has begun, and its last one before the small job.
    fn check(&self, large: &str, small: &str) {
        let ledger = self.ledger();
        let of_large = ledger.iter().filter(|(name, _)| name == large);
        let numbers: HashSet<usize> = of_large.map(|(_, number)| *number).collect();
        assert_eq!(numbers.len(), LARGE, "{large}");
        let place = |of: &str, number| {
            ledger.iter().position(|(name, other)| name == of && *other == number)
        };
        assert!(place(large, LARGE - 1) < place(small, 0), "{small} has passed {large}");
    }

    async fn killed_while_it_enters(&mut self, round: u64) {
        let (name, behind) = (format!("enters{round}"), format!("behind-enters{round}"));
        let large = self.submit_large(&name, false).await;
        let small = self.submit_small(&behind).await;
        self.kill().await;
        for (id, count) in [(large, LARGE), (small, 1)] {
            let job = self.wait(&id).await;
            assert_eq!(
                (&job["state"], &job["counts"]["succeeded"]),
                (&json!("succeeded"), &json!(count))
            );
        }
        self.check(&name, &behind);
    }

    /// Returns the large job, which is cancelled.
    async fn killed_while_it_is_cancelled(&mut self, round: u64) -> (String, String) {
        let (name, behind) = (format!("cancelled{round}"), format!("behind-cancelled{round}"));
        let large = self.submit_large(&name, true).await;
        let small = self.submit_small(&behind).await;
        let cancel = json!({"mode": "kill"}).to_string();
        self.send(&format!("/v1/jobs/{large}/cancel"), "application/json", cancel).await.unwrap();
        self.kill().await;
        let job = self.wait(&large).await;
        assert_eq!(job["state"], "cancelled");
        let counts = &job["counts"];
        let ended = counts["cancelled"].as_u64().unwrap() + counts["failed"].as_u64().unwrap();
        assert_eq!(ended, LARGE as u64, "{job}");
        assert_eq!(self.wait(&small).await["state"], "succeeded");
        // Nothing of it has begun once more after the kill.
        assert!(self.ledger().iter().all(|(of, _)| *of != name));
        (name, large)
    }

    async fn killed_while_it_is_retried(&mut self, round: u64, name: &str, large: &str) {
        std::fs::write(self.folder.join(format!("{name} is retried")), "").unwrap();
        let path = format!("/v1/jobs/{large}/retry");
        let only = || json!({"only": "unsuccessful"}).to_string();
        let (http, address) = (self.http.clone(), child::address(&self.folder).await);
        let (url, body) = (format!("http://{address}{path}"), only());
        // Its answer comes when all parts are there, or never.
        let retry = tokio::spawn(async move {
            http.post(url).header("content-type", "application/json").body(body).send().await
        });
        while self.job(large).await["state"] == "cancelled" {
            tokio::task::yield_now().await;
        }
        let behind = format!("behind-retried{round}");
        let small = self.submit_small(&behind).await;
        self.kill().await;
        // A client that was not told asks again, when the job is over: then the rest is done.
        let is_told = retry.await.unwrap().is_ok_and(|answer| answer.status() == 202);
        let mut job = self.wait(large).await;
        let is_whole = job["counts"]["succeeded"] == json!(LARGE);
        assert!(is_whole || !is_told, "{job}");
        while job["counts"]["succeeded"] != json!(LARGE) {
            self.send(&path, "application/json", only()).await.unwrap();
            job = self.wait(large).await;
        }
        assert_eq!((&job["state"], &job["counts"]["total"]), (&json!("succeeded"), &json!(LARGE)));
        assert_eq!(self.wait(&small).await["state"], "succeeded");
        if is_whole {
            self.check(name, &behind);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_job_is_whole_and_in_its_place_after_a_kill_while_it_enters_leaves_or_is_retried() {
    if child::folder().is_some() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let child = Child::start("large_crash::server", folder.path(), &[]);
    let mut round = Round { child, folder: folder.path().to_owned(), http: child::client() };
    for number in 0..child::kills().div_ceil(6) {
        round.killed_while_it_enters(number).await;
        let (name, large) = round.killed_while_it_is_cancelled(number).await;
        round.killed_while_it_is_retried(number, &name, &large).await;
    }
}
