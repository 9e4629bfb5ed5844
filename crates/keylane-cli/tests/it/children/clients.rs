//! Clients of servers that are killed again and again: one submits jobs, one is a remote worker. Both
//! repeat a request that got no answer, at the next server.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard};
use std::thread;

use keylane_testkit::PAUSE;
use serde_json::{Value, json};

use super::dice::Dice;
use super::subtasks::{act, payload};

/// Number of keys of all subtasks.
pub(crate) const KEYS: u64 = 6;

pub(crate) const KINDS: [&str; 4] = ["command", "worker", "remote", "shared"];

/// Maximum number of accepted subtasks that have not ended.
const MAX_WAITING: u64 = 40;

#[derive(Default)]
pub(crate) struct Clients {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Lives and addresses of the running servers, and the number of requests so far, which they get in turns.
    servers: Vec<(u64, String)>,
    requests: usize,
    /// Number of the last accepted subtask of each key. They are numbered from 1.
    submitted: BTreeMap<String, u64>,
    /// Number of the last subtask of each key that has ended.
    ended: HashMap<String, u64>,
    /// Subtasks of each key that remote workers run, or a server under a lease.
    leased: HashMap<String, HashSet<u64>>,
    /// Accepted jobs, with their numbers of subtasks.
    jobs: Vec<(String, usize)>,
    accepts_no_more: bool,
    is_over: bool,
}

impl Clients {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.changed.notify_all();
    }

    /// Names the running servers with their lives.
    pub(crate) fn serve(&self, servers: Vec<(u64, String)>) {
        self.change(|state| state.servers = servers);
    }

    pub(crate) fn has_server(&self) -> bool {
        !self.state().servers.is_empty()
    }

    pub(crate) fn ended(&self, places: &[(String, u64)]) {
        self.change(|state| {
            for (key, number) in places {
                let ended = state.ended.entry(key.clone()).or_default();
                *ended = (*number).max(*ended);
            }
        });
    }

    /// Notes an accepted job and its subtasks, the keys and numbers of each.
    pub(crate) fn accepted(&self, id: String, is_leased: bool, subtasks: &[Vec<(String, u64)>]) {
        self.change(|state| {
            state.jobs.push((id, subtasks.len()));
            for (key, number) in subtasks.iter().flatten() {
                if is_leased {
                    state.leased.entry(key.clone()).or_default().insert(*number);
                }
                state.submitted.insert(key.clone(), *number);
            }
        });
    }

    /// Ends the submission of jobs.
    pub(crate) fn accept_no_more(&self) {
        self.change(|state| state.accepts_no_more = true);
    }

    /// Ends the remote worker.
    pub(crate) fn stop(&self) {
        self.change(|state| state.is_over = true);
    }

    pub(crate) fn all_ended(&self) -> bool {
        let state = self.state();
        state.submitted.iter().all(|(key, total)| state.ended.get(key) == Some(total))
    }

    pub(crate) fn submitted(&self) -> BTreeMap<String, u64> {
        self.state().submitted.clone()
    }

    pub(crate) fn leased(&self, key: &str) -> HashSet<u64> {
        self.state().leased.get(key).cloned().unwrap_or_default()
    }

    /// Waits for a server. Returns `None` at the end.
    fn server(&self) -> Option<(u64, String)> {
        let is_down = |state: &mut State| state.servers.is_empty() && !state.is_over;
        let mut state = self.changed.wait_while(self.state(), is_down).unwrap();
        state.requests += 1;
        let next = state.requests % state.servers.len().max(1);
        state.servers.get(next).cloned().filter(|_| !state.is_over)
    }

    /// Waits until more jobs are wanted. Returns false at the end.
    pub(crate) fn wait_for_room(&self) -> bool {
        let is_full = |state: &mut State| {
            let submitted: u64 = state.submitted.values().sum();
            let ended: u64 = state.ended.values().sum();
            submitted >= ended + MAX_WAITING && !state.accepts_no_more
        };
        let state = self.changed.wait_while(self.state(), is_full).unwrap();
        !state.accepts_no_more
    }

    /// Sends a request until a server has answered it with anything but 503, which it does while it
    /// starts, or 507, if it could not write at that moment.
    pub(crate) fn send(
        &self,
        (method, path): (&str, &str),
        headers: &[(&str, String)],
        body: &str,
    ) -> Option<(u64, u16, Value)> {
        loop {
            let (life, address) = self.server()?;
            match request(&address, method, path, headers, body) {
                None | Some((503 | 507, _)) => thread::sleep(PAUSE),
                Some((status, answer)) => return Some((life, status, answer)),
            }
        }
    }

    /// Checks that each accepted job has succeeded, with one result of each subtask.
    pub(crate) fn check_books(&self) {
        let jobs = self.state().jobs.clone();
        for (id, total) in jobs {
            let path = format!("/v1/jobs/{id}");
            let wait = [("prefer", "wait=60".to_owned())];
            let (_, _, job) = self.send(("GET", &path), &wait, "").unwrap();
            assert_eq!(job["state"], "succeeded", "{job}");
            let path = format!("{path}/results");
            let (_, _, results) = self.send(("GET", &path), &[], "").unwrap();
            let results = results["items"].as_array().unwrap();
            let numbers: HashSet<u64> =
                results.iter().map(|one| one["number"].as_u64().unwrap()).collect();
            assert_eq!((results.len(), numbers.len()), (total, total), "{results:?}");
        }
    }
}

/// Submits jobs one after the other: of one kind, with one to three subtasks, each of one key or two. So the subtasks of a key are
/// accepted in the order of their numbers.
pub(crate) fn submit(clients: &Clients, mut dice: Dice) {
    let mut numbers = BTreeMap::<String, u64>::new();
    let mut nth = 0;
    while clients.wait_for_room() {
        let kind = KINDS[dice.roll(4) as usize];
        let subtasks = (0..=dice.roll(3)).map(|_| {
            let first = dice.roll(KEYS);
            let second = (first + 1 + dice.roll(KEYS - 1)) % KEYS;
            let keys = if dice.roll(4) == 0 { vec![first, second] } else { vec![first] };
            let next = |key: u64| {
                let key = format!("k{key}");
                let number = numbers.entry(key.clone()).or_default();
                *number += 1;
                (key, *number)
            };
            keys.into_iter().map(next).collect()
        });
        let subtasks: Vec<Vec<_>> = subtasks.collect();
        let item = |places: &Vec<(String, u64)>| {
            let keys: Vec<_> = places.iter().map(|(key, _)| key).collect();
            json!({"keys": keys, "payload": payload(places)})
        };
        let items: Vec<_> = subtasks.iter().map(item).collect();
        let body = json!({"kind": kind, "subtasks": items}).to_string();
        // A server that has ended may have accepted the job without an answer.
        let once = [("idempotency-key", format!("job-{nth}"))];
        nth += 1;
        let (_, status, answer) = clients.send(("POST", "/v1/jobs"), &once, &body).unwrap();
        assert!(status < 300, "{status} {answer}");
        let id = answer["id"].as_str().unwrap().to_owned();
        clients.accepted(id, ["remote", "shared"].contains(&kind), &subtasks);
    }
}

/// Works on leases until the end. A lease continues over a restart of the server, so the worker reports a result to
/// whatever server runs.
pub(crate) fn run_remote(clients: &Clients, folder: &Path) {
    let ask = json!({"kinds": ["remote"], "max": 1, "wait_ms": 1000, "worker": "w"}).to_string();
    while let Some((life, status, answer)) = clients.send(("POST", "/v1/leases"), &[], &ask) {
        assert!(status < 300, "{status} {answer}");
        for lease in answer["leases"].as_array().unwrap_or(&Vec::new()) {
            act(folder, life, lease);
            let id = lease["id"].as_str().unwrap();
            let path = format!("/v1/leases/{id}/complete");
            let body = r#"{"result":1}"#;
            let Some((_, status, answer)) = clients.send(("POST", &path), &[], body) else {
                return;
            };
            // A repeated report of one that was accepted, or a lease that has ended meanwhile.
            assert!(status < 300 || [404, 409, 410].contains(&status), "{status} {answer}");
        }
    }
}

/// Sends a request on a connection of its own. Returns the status and the body, or `None` if no complete answer comes.
fn request(
    address: &str,
    method: &str,
    path: &str,
    headers: &[(&str, String)],
    body: &str,
) -> Option<(u16, Value)> {
    let headers: String =
        headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let mut stream = TcpStream::connect(address).ok()?;
    let kind = if body.is_empty() { "" } else { "content-type: application/json\r\n" };
    let length = body.len();
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n{kind}\
         content-length: {length}\r\n{headers}\r\n"
    );
    stream.write_all((head + body).as_bytes()).ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).ok()?;
    let answer = String::from_utf8(answer).ok()?;
    let (head, body) = answer.split_once("\r\n\r\n")?;
    let status = head.split(' ').nth(1)?.parse().ok()?;
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    // Half an answer counts as none.
    let length: usize = length.map_or(Ok(0), str::parse).ok()?;
    let body = if length == 0 { "null" } else { body.get(..length)? };
    Some((status, serde_json::from_str(body).ok()?))
}
