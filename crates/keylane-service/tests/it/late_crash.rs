//! A server that is killed again and again keeps the order of each key also among jobs whose subtasks enter it later
//! than they were accepted: those that were put off, those that are split, those that failed and are retried.
//!
//! The server is this test's own binary in another process, killed by `SIGKILL` at random moments. All clients use the
//! same few keys, so that what enters late finds others there, some of which are between two attempts. Every attempt
//! appends a line to a ledger. `KEYLANE_KILLS` says how many kills there are.

use std::collections::{BTreeSet, HashMap};
use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use crate::common::child::{self, Child};
use keylane::Backoff;
use keylane_service::handle::{Attempt, AttemptFailure, AttemptResult, FunctionHandler};
use keylane_service::{Kind, Service, ServiceSettings};
use serde_json::value::RawValue;
use serde_json::{Value, json};
use tokio::task::JoinSet;

const CLIENTS: u64 = 3;
const KEYS: u64 = 3;

/// The server, if this process was started to be one.
#[tokio::test(flavor = "multi_thread")]
async fn server() {
    let Some(folder) = child::folder() else { return };
    let life = next_life(&folder);
    let ledger = OpenOptions::new().create(true).append(true).open(folder.join("ledger")).unwrap();
    let (ledger, notes) = (Arc::new(ledger), folder.clone());
    let note = FunctionHandler::new(move |attempt: Attempt| {
        let (ledger, notes) = (Arc::clone(&ledger), notes.clone());
        async move {
            let payload: Value = serde_json::from_slice(&attempt.payload).unwrap();
            let name = payload["name"].as_str().unwrap();
            let is_retried = is_retried(&notes, name);
            let (key, time) = (attempt.key().unwrap_or_default(), u8::from(is_retried));
            // One write of one line: whole, or not there.
            (&*ledger).write_all(format!("{life} {key} {name}.{time}\n").as_bytes()).unwrap();
            tokio::time::sleep(Duration::from_micros(attempt.fence % 7 * 300)).await;
            match payload["how"].as_str().unwrap() {
                "fails" if !is_retried => Err(AttemptFailure::lasting("it is to be retried")),
                "again" if attempt.number == 1 => {
                    Err(AttemptFailure::passing("it is to be tried again"))
                }
                _ => Ok(None),
            }
        }
    });
    let split = FunctionHandler::new(|attempt: Attempt| async move {
        let made: Box<RawValue> = serde_json::from_slice(&attempt.payload).unwrap();
        AttemptResult::Ok(Some(made))
    });
    let longest = Duration::from_millis(20);
    let backoff = Backoff { first: longest / 4, max: longest, ..Backoff::default() };
    let note = Kind { attempts: 1_000_000, backoff, ..Kind::new(note) };
    let make = Kind { split: Some(Arc::new(split)), ..note.clone() };
    let settings = ServiceSettings { slots: 8, ..ServiceSettings::new(folder.join("store")) };
    let builder = Service::builder(settings).kind("note", note).kind("make", make);
    child::serve(&builder.start().await.unwrap(), &folder).await;
}

/// How often there was a server before.
fn next_life(folder: &Path) -> u64 {
    let path = folder.join("life");
    let life = std::fs::read_to_string(&path).map_or(0, |life| life.parse().unwrap());
    std::fs::write(&path, (life + 1).to_string()).unwrap();
    life
}

/// True once the test has seen the failure, and has the job retried.
fn is_retried(folder: &Path, name: &str) -> bool {
    folder.join(format!("{name} is retried")).exists()
}

struct Asking {
    folder: PathBuf,
    http: reqwest::Client,
    stop: AtomicBool,
    acknowledged: AtomicU64,
}

impl Asking {
    /// Asks once, if there is a server: what it answers, with its status.
    async fn ask(&self, post: Option<(&Value, &str)>, path: &str) -> Option<(u16, Value)> {
        let url = format!("http://{}{path}", child::address(&self.folder).await);
        let request = match post {
            None => self.http.get(url),
            Some((body, key)) => {
                let request = self.http.post(url).body(body.to_string());
                request.header("content-type", "application/json").header("idempotency-key", key)
            }
        };
        let answer = request.send().await.ok()?;
        let status = answer.status().as_u16();
        Some((status, serde_json::from_str(&answer.text().await.ok()?).ok()?))
    }

    /// Submits jobs of all sorts until it is told to stop, and sees each to its end.
    async fn submit(self: Arc<Self>, client: u64) {
        let mut watched = JoinSet::new();
        let mut number = 0;
        while !self.stop.load(Ordering::Relaxed) {
            let name = format!("c{client}j{number}");
            let body = job(&name, client, number);
            let id = loop {
                let Some((status, job)) = self.ask(Some((&body, &name)), "/v1/jobs").await else {
                    continue;
                };
                assert_eq!(status, 202, "{job}");
                break job["id"].as_str().unwrap().to_owned();
            };
            self.acknowledged.fetch_add(1, Ordering::Relaxed);
            watched.spawn(Arc::clone(&self).see_to_its_end(name, id));
            number += 1;
            while watched.len() > 20 {
                watched.join_next().await.unwrap().unwrap();
            }
        }
        while let Some(ended) = watched.join_next().await {
            ended.unwrap();
        }
    }

    /// Has it retried when it has failed, until it has succeeded.
    async fn see_to_its_end(self: Arc<Self>, name: String, id: String) {
        loop {
            tokio::time::sleep(Duration::from_millis(10)).await;
            let Some((_, job)) = self.ask(None, &format!("/v1/jobs/{id}")).await else { continue };
            match job["state"].as_str() {
                Some("succeeded") => return,
                Some("failed") => {
                    // It is over, so nothing of it runs that might see this too early.
                    std::fs::write(self.folder.join(format!("{name} is retried")), "").unwrap();
                    let path = format!("/v1/jobs/{id}/retry");
                    let answer = self.ask(Some((&json!({}), &name)), &path).await;
                    // Or it has ended already, or it was done and a kill kept the answer back.
                    let is_done = |status| matches!(status, 200 | 202 | 409);
                    assert!(
                        answer.as_ref().is_none_or(|(status, _)| is_done(*status)),
                        "{answer:?}"
                    );
                }
                Some("cancelled") | None => panic!("{job}"),
                Some(_) => {}
            }
        }
    }
}

fn job(name: &str, client: u64, number: u64) -> Value {
    let subtask = |nth: u64, how: &str| {
        let key = format!("k{}", (client + number + nth) % KEYS);
        json!({"key": key, "payload": {"name": format!("{name}s{nth}"), "how": how}})
    };
    let one = |how: &str, delay_ms: u64| {
        let key = format!("k{}", (client + number) % KEYS);
        let payload = json!({"name": name, "how": how});
        json!({"kind": "note", "key": key, "payload": payload, "delay_ms": delay_ms})
    };
    match number % 7 {
        0 | 3 => one("again", 0),
        1 => one("fails", 0),
        2 => one("well", 5 + number % 30),
        4 => json!({"kind": "make", "payload": [subtask(0, "well"), subtask(1, "again")]}),
        5 => one("again", 1 + number % 50),
        _ => json!({"kind": "note", "subtasks": [subtask(0, "well"), subtask(1, "again")]}),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn order_holds_over_kills_also_of_what_enters_late() {
    if child::folder().is_some() {
        return;
    }
    let kills = child::kills();
    let folder = tempfile::tempdir().unwrap();
    let mut child = Child::start("late_crash::server", folder.path(), &[]);
    let asking = Arc::new(Asking {
        folder: folder.path().to_owned(),
        http: child::client(),
        stop: AtomicBool::new(false),
        acknowledged: AtomicU64::new(0),
    });
    let mut clients: JoinSet<()> =
        (0..CLIENTS).map(|client| Arc::clone(&asking).submit(client)).collect();
    for kill in 0..kills {
        let wanted = asking.acknowledged.load(Ordering::Relaxed) + 5 + kill * 11 % 60;
        while asking.acknowledged.load(Ordering::Relaxed) < wanted {
            assert!(clients.try_join_next().is_none(), "a client has ended");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        child.restart();
    }
    asking.stop.store(true, Ordering::Relaxed);
    while let Some(ended) = clients.join_next().await {
        ended.unwrap();
    }
    let jobs = asking.acknowledged.load(Ordering::Relaxed);
    let (begun, attempts) = check(&std::fs::read_to_string(folder.path().join("ledger")).unwrap());
    println!("{kills} kills: {jobs} jobs, {begun} subtasks, {attempts} attempts, all in order");
}

/// In what order subtasks of a key have begun for the first time is their order: in no life of the server is one begun
/// again behind a later one. How many there were, and how many attempts.
fn check(ledger: &str) -> (usize, usize) {
    let mut places: HashMap<&str, HashMap<&str, usize>> = HashMap::new();
    let mut last: HashMap<(&str, &str), (usize, &str)> = HashMap::new();
    let mut lives = BTreeSet::new();
    for line in ledger.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [life, key, name] = words[..] else { panic!("{line}") };
        lives.insert(life);
        let places = places.entry(key).or_default();
        let next = places.len();
        let place = *places.entry(name).or_insert(next);
        let before = last.insert((life, key), (place, name));
        let is_behind = before.is_some_and(|(before, _)| before > place);
        assert!(!is_behind, "{key} in life {life}: {name} has begun behind {before:?}");
    }
    assert!(lives.len() > 1 && places.len() as u64 == KEYS);
    (places.values().map(HashMap::len).sum(), ledger.lines().count())
}
