//! The client commands, and the Python client, with a real server.

use std::io::Write;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::common::{Outcome, feed, finish, subcommand};
use keylane_service::handle::{Attempt, AttemptFailure, FunctionHandler};
use keylane_service::http::{HttpServer, HttpSettings as Serving};
use keylane_service::{Kind, Service, ServiceSettings};
use keylane_testkit::{Missing, or_skip};
use serde_json::Value;
use serde_json::value::RawValue;
use tempfile::TempDir;
use tokio::runtime::Runtime;

/// A server with a kind that echoes and one for remote workers.
struct Real {
    url: String,
    parts: Option<(HttpServer, Service)>,
    runtime: Runtime,
    _folder: TempDir,
}

impl Real {
    fn start() -> Self {
        let runtime = Runtime::new().unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tasks");
        let parts = runtime.block_on(async {
            let echo = FunctionHandler::new(|attempt: Attempt| async move {
                let payload = String::from_utf8(attempt.payload.to_vec()).unwrap();
                match payload.contains("bad") {
                    true => Err(AttemptFailure::lasting(format!("no {payload}"))),
                    false => Ok(Some(RawValue::from_string(payload).unwrap())),
                }
            });
            let service =
                Service::builder(ServiceSettings { slots: 4, ..ServiceSettings::new(path) })
                    .kind("echo", Kind::new(echo))
                    .kind("remote", Kind::leased(Duration::from_secs(30)))
                    .start();
            let service = service.await.unwrap();
            let listen = ([127, 0, 0, 1], 0).into();
            let server =
                HttpServer::start(&service, Serving { listen, ..Serving::default() }).await;
            (server.unwrap(), service)
        });
        let url = format!("http://{}", parts.0.address());
        Real { url, parts: Some(parts), runtime, _folder: folder }
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = subcommand(words[0], &words[1..]);
        command.env("KEYLANE_SERVER", &self.url).env_remove("KEYLANE_TOKEN");
        command
    }

    #[track_caller]
    fn run(&self, words: &[&str], input: &str) -> Outcome {
        feed(self.command(words), input.as_bytes())
    }

    /// The id that `submit` prints.
    #[track_caller]
    fn submit(&self, words: &[&str], input: &str) -> String {
        let outcome = self.run(&[&["submit"], words].concat(), input);
        outcome.expect(0, &[]).stdout.trim_end().to_owned()
    }
}

impl Drop for Real {
    fn drop(&mut self) {
        if let Some((server, service)) = self.parts.take() {
            self.runtime.block_on(async {
                server.stop(Duration::from_secs(5)).await;
                service.stop(Duration::from_secs(5)).await;
            });
        }
    }
}

fn values(outcome: &Outcome) -> Vec<Value> {
    outcome.stdout.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_job_is_submitted_followed_and_read() {
    let real = Real::start();
    let words = ["submit", "echo", "--payload", "{\"n\": 1.50}", "--key", "u7", "--wait", "--json"];
    let outcome = real.run(&words, "");
    let job = &values(outcome.expect(0, &["succeeded: 1 of 1 done"]))[0];
    let id = job["id"].as_str().unwrap();
    let results = real.run(&["results", id], "");
    assert!(results.expect(0, &[]).stdout.contains(r#""result":{"n": 1.50}"#), "{results:?}");
    let said = real.run(&["status", id], "");
    assert!(said.expect(0, &[]).stdout.contains("succeeded: 1 of 1 done"));
    assert!(real.run(&["status"], "").expect(0, &[]).stdout.contains(id));
    real.run(&["cancel", id], "").expect(0, &[]);
    real.run(&["status", "job_0199aaaaaaaa7000800000000000000a"], "").expect(4, &["404 unknown"]);
}

#[test]
fn many_subtasks_go_in_as_a_stream_and_the_failed_ones_are_found() {
    let real = Real::start();
    let input: String = (0..4_000)
        .map(|n| {
            format!(
                "{{\"user\":\"u{}\",\"what\":\"{}\"}}\n",
                n % 50,
                if n % 800 == 7 { "bad" } else { "good" }
            )
        })
        .collect();
    let id = real.submit(&["echo", "--ndjson", "-", "--key", ".user"], &input);
    let followed = real.run(&["watch", &id], "");
    followed.expect(1, &["failed: 4000 of 4000 done, 5 failed"]);
    assert_eq!(values(&real.run(&["results", &id], "")).len(), 4_000);
    let failed = values(&real.run(&["results", &id, "--failed", "--order", "completion"], ""));
    let mut numbers: Vec<_> =
        failed.iter().map(|result| result["number"].as_u64().unwrap()).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, [7, 807, 1607, 2407, 3207]);
    let keyed = values(&real.run(&["results", &id, "--order", "key"], ""));
    let keys: Vec<_> =
        keyed.iter().map(|result| result["keys"][0].as_str().unwrap().to_owned()).collect();
    assert!(keys.is_sorted());
}

#[test]
fn an_upload_that_is_refused_at_once_says_why() {
    let real = Real::start();
    // Far more than fits into any buffer on the way.
    let input = "{\"payload\":1}\n".repeat(1_000_000);
    let outcome = real.run(&["submit", "nothing", "--subtasks", "-"], &input);
    outcome.expect(4, &["/kind: there is no kind `nothing`"]);
    assert_eq!(outcome.stderr.matches("there is no kind").count(), 1, "{}", outcome.stderr);
}

#[test]
fn an_input_that_breaks_off_leaves_no_job() {
    let real = Real::start();
    let input = format!("{}{{\n", "{\"n\":1}\n".repeat(100_000));
    real.run(&["submit", "echo", "--ndjson", "-"], &input)
        .expect(255, &["the job was not submitted"]);
    assert_eq!(real.run(&["status", "--json"], "").expect(0, &[]).stdout, "");
}

#[test]
fn a_job_that_waits_for_a_worker_is_steered_and_followed() {
    let real = Real::start();
    let id = real.submit(&["remote", "--payload", "1", "--key", "u7", "--name", "nightly"], "");
    let said = &real.run(&["status", &id], "").stdout;
    assert!(said.contains("waits"), "{said}");
    assert!(real.run(&["keys"], "").expect(0, &[]).stdout.contains("u7"));
    assert!(real.run(&["keys", "pause", "u7"], "").expect(0, &[]).stdout.contains("paused"));
    assert!(real.run(&["keys", "resume", "u7"], "").expect(0, &[]).stdout.contains("open"));
    assert!(real.run(&["pause", &id], "").expect(0, &[]).stdout.contains("paused"));
    assert!(real.run(&["top"], "").expect(0, &[]).stdout.contains("nightly"));
    let mut watching = real.command(&["watch", &id]).spawn().unwrap();
    watching.stdin.take().unwrap().flush().unwrap();
    real.run(&["resume", &id], "").expect(0, &[]);
    let cancelled = real.run(&["cancel", &id, "--reason", "too old"], "");
    assert!(cancelled.expect(0, &[]).stdout.contains("cancel"));
    assert_eq!(finish(watching).code, 3);
    let again = real.run(&["retry", &id, "--only", "unsuccessful"], "");
    again.expect(0, &[]);
}

#[test]
fn a_worker_in_python_does_what_was_submitted() {
    let version = Command::new("python3").arg("--version").output();
    if or_skip(version.map_err(|_| Missing::new("there is no python3; install it"))).is_none() {
        return;
    }
    let real = Real::start();
    let program = format!(
        "
from keylane_client import *
keylane = Keylane({:?})
stop = threading.Event()
handler = lambda task: {{'doubled': task.payload * 2, 'key': task.keys[0]}}
worker = threading.Thread(target=keylane.work, args=(['remote'], handler), kwargs={{'stop': stop}})
worker.start()
job = keylane.submit_lines('remote', ({{'key': str(n % 3), 'payload': n}} for n in range(30)))
print([event['job']['state'] for event in keylane.events(job['id'])][-1])
print(keylane.wait(job['id'])['counts']['succeeded'])
print(sum(result['result']['doubled'] for result in keylane.results(job['id'])))
stop.set()
worker.join()
",
        real.url
    );
    let mut command = Command::new("python3");
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/python");
    command.args(["-B", "-c", &program]).current_dir(folder);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let outcome = feed(command, b"");
    assert_eq!(outcome.expect(0, &[]).stdout, "succeeded\n30\n870\n");
}
