//! A server that is killed again and again under load loses nothing that it has acknowledged, keeps the order of
//! each key, and does again only what it had not written down.
//!
//! The server is this test's own binary in another process, killed by `SIGKILL` at random moments. Clients submit
//! jobs under idempotency keys and ask again after a kill. Every attempt appends a line to a ledger; the books
//! of the service and the ledger are compared at the end. `KEYLANE_KILLS` says how many kills there are.

use std::collections::HashMap;
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::child::{self, Child, address};
use keylane_service::handle::{Attempt, FunctionHandler};
use keylane_service::{Kind, Service, ServiceSettings};
use serde_json::{Value, json};

const CLIENTS: u64 = 4;
const KEYS: u64 = 5;

/// The server, if this process was started to be one.
#[tokio::test(flavor = "multi_thread")]
async fn server() {
    let Some(folder) = child::folder() else { return };
    let ledger = OpenOptions::new().create(true).append(true).open(folder.join("ledger")).unwrap();
    let ledger = Arc::new(ledger);
    let note = FunctionHandler::new(move |attempt: Attempt| {
        let ledger = Arc::clone(&ledger);
        async move {
            let (key, fence) = (attempt.key().unwrap_or_default(), attempt.fence);
            let line = format!("{key} {} {fence}\n", crate::common::text(&attempt));
            // One write of one line: whole, or not there.
            (&*ledger).write_all(line.as_bytes()).unwrap();
            // So that some run when the end comes.
            tokio::time::sleep(Duration::from_micros(fence % 7 * 300)).await;
            Ok(None)
        }
    });
    let kind = Kind { attempts: 1_000_000, ..Kind::new(note) };
    let settings = ServiceSettings { slots: 8, ..ServiceSettings::new(folder.join("store")) };
    let service = Service::builder(settings).kind("note", kind).start().await.unwrap();
    child::serve(&service, &folder).await;
}

/// Submits jobs one after another until it is told to stop, each until it is acknowledged; returns their ids and
/// how many subtasks they have.
async fn submit(
    folder: PathBuf,
    client: u64,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicU64>,
) -> Vec<(String, u64)> {
    let http = child::client();
    let mut next = HashMap::new();
    let mut jobs = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let number = jobs.len() as u64;
        let count = 1 + number * 7 % 13;
        let subtasks: Vec<Value> = (0..count)
            .map(|n| {
                let key = format!("c{client}k{}", (number + n) % KEYS);
                let seq = next.entry(key.clone()).or_insert(0_u64);
                *seq += 1;
                json!({"key": key, "payload": *seq - 1})
            })
            .collect();
        let body = json!({"kind": "note", "subtasks": subtasks}).to_string();
        let id = loop {
            let url = format!("http://{}/v1/jobs", address(&folder).await);
            let request =
                http.post(url).body(body.clone()).header("content-type", "application/json");
            let request = request.header("idempotency-key", format!("{client}-{number}"));
            let Ok(answer) = request.send().await else { continue };
            let status = answer.status().as_u16();
            let Ok(text) = answer.text().await else { continue };
            let Ok(job) = serde_json::from_str::<Value>(&text) else { continue };
            assert_eq!(status, 202, "{job}");
            break job["id"].as_str().unwrap().to_owned();
        };
        acknowledged.fetch_add(1, Ordering::Relaxed);
        jobs.push((id, count));
    }
    jobs
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_lost_and_order_holds_over_kills() {
    if child::folder().is_some() {
        return;
    }
    let kills = child::kills();
    let folder = tempfile::tempdir().unwrap();
    let (stop, acknowledged) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut child = Child::start("crash::server", folder.path(), &[]);
    let clients: Vec<_> = (0..CLIENTS)
        .map(|client| {
            let (stop, acknowledged) = (Arc::clone(&stop), Arc::clone(&acknowledged));
            tokio::spawn(submit(folder.path().to_owned(), client, stop, acknowledged))
        })
        .collect();
    for kill in 0..kills {
        // After some work, at whatever point that is.
        let wanted = acknowledged.load(Ordering::Relaxed) + 5 + kill * 11 % 60;
        while acknowledged.load(Ordering::Relaxed) < wanted {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        child.restart();
    }
    stop.store(true, Ordering::Relaxed);
    let mut jobs = Vec::new();
    for client in clients {
        jobs.extend(client.await.unwrap());
    }
    let subtasks = check_books(&child.address().await, &jobs).await;
    child.kill();
    let attempts = check_ledger(&folder.path().join("ledger"), kills);
    let (jobs, again) = (jobs.len(), attempts - subtasks);
    println!(
        "{kills} kills: {jobs} jobs, {subtasks} subtasks, 0 lost, 0 out of order, {again} done again"
    );
}

/// Every job that was acknowledged is done, each of its subtasks once.
async fn check_books(address: &str, jobs: &[(String, u64)]) -> u64 {
    let http = child::client();
    let mut subtasks = 0;
    for (id, count) in jobs {
        let job = loop {
            let url = format!("http://{address}/v1/jobs/{id}");
            let answer = http.get(url).header("prefer", "wait=10").send().await.unwrap();
            let job: Value = serde_json::from_str(&answer.text().await.unwrap()).unwrap();
            if job["state"] == "succeeded" {
                break job;
            }
            assert!(job["state"] == "running" || job["state"] == "queued", "{job}");
        };
        assert_eq!(job["counts"]["succeeded"], *count, "{job}");
        subtasks += count;
    }
    let metrics = http.get(format!("http://{address}/metrics")).send().await.unwrap();
    assert!(metrics.text().await.unwrap().contains("keylane_order_violations_total 0\n"));
    subtasks
}

/// Each key's attempts go up one by one, but for steps back where a kill was; each attempt at a subtask has a
/// higher fence than the one before. Returns how many attempts there were.
fn check_ledger(path: &Path, kills: u64) -> u64 {
    let text = std::fs::read_to_string(path).unwrap();
    let mut last: HashMap<&str, (u64, u64)> = HashMap::new();
    let mut steps_back: HashMap<&str, u64> = HashMap::new();
    let mut attempts = 0;
    for line in text.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (key, seq, fence) = (words[0], words[1].parse().unwrap(), words[2].parse().unwrap());
        let (before, fence_before) = last.insert(key, (seq, fence)).unwrap_or((u64::MAX, 0));
        let next = before.wrapping_add(1);
        assert!(seq <= next, "{key}: {seq} after {before}");
        assert!(fence > fence_before, "{key}: fence {fence} after {fence_before}");
        if seq < next {
            *steps_back.entry(key).or_default() += 1;
        }
        attempts += 1;
    }
    assert_eq!(last.len() as u64, CLIENTS * KEYS);
    assert!(steps_back.values().all(|steps| *steps <= kills), "{steps_back:?}");
    attempts
}
