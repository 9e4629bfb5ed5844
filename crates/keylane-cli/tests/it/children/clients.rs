//! Clients of a server that is killed again and again: one submits jobs, one is a remote worker. Both
//! repeat a request that got no answer, at the next server.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::sync::{Condvar, Mutex, MutexGuard};

use serde_json::{Value, json};

use super::dice::Dice;

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
    /// Life and address of the running server.
    server: Option<(u64, String)>,
    /// Number of the last accepted subtask of each key. They are numbered from 1.
    submitted: BTreeMap<String, u64>,
    /// Number of the last subtask of each key that has ended.
    ended: HashMap<String, u64>,
    /// Subtasks of each key that remote workers run, or the server under a lease.
    remote: HashMap<String, HashSet<u64>>,
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

    /// Names the running server, or says that there is none.
    pub(crate) fn serve(&self, server: Option<(u64, String)>) {
        self.change(|state| state.server = server);
    }

    pub(crate) fn has_server(&self) -> bool {
        self.state().server.is_some()
    }

    pub(crate) fn ended(&self, key: &str, number: u64) {
        self.change(|state| {
            let ended = state.ended.entry(key.to_owned()).or_default();
            *ended = number.max(*ended);
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

    pub(crate) fn jobs(&self) -> Vec<(String, usize)> {
        self.state().jobs.clone()
    }

    pub(crate) fn submitted(&self) -> BTreeMap<String, u64> {
        self.state().submitted.clone()
    }

    pub(crate) fn remote(&self, key: &str) -> HashSet<u64> {
        self.state().remote.get(key).cloned().unwrap_or_default()
    }

    /// Waits for a server. Returns `None` at the end.
    fn server(&self) -> Option<(u64, String)> {
        let is_down = |state: &mut State| state.server.is_none() && !state.is_over;
        let state = self.changed.wait_while(self.state(), is_down).unwrap();
        state.server.clone().filter(|_| !state.is_over)
    }

    /// Waits until more jobs are wanted. Returns false at the end.
    fn wait_for_room(&self) -> bool {
        let is_full = |state: &mut State| {
            let submitted: u64 = state.submitted.values().sum();
            let ended: u64 = state.ended.values().sum();
            submitted >= ended + MAX_WAITING && !state.accepts_no_more
        };
        let state = self.changed.wait_while(self.state(), is_full).unwrap();
        !state.accepts_no_more
    }

    /// Sends a request until a server has answered it with anything but 503, which it does while it
    /// starts.
    fn send(
        &self,
        path: &str,
        headers: &[(&str, String)],
        body: &str,
    ) -> Option<(u64, u16, Value)> {
        loop {
            let (life, address) = self.server()?;
            match request(&address, "POST", path, headers, body) {
                None | Some((503, _)) => {}
                Some((status, answer)) => return Some((life, status, answer)),
            }
        }
    }
}

/// Submits jobs one after the other: of one kind, with one to three subtasks. So the subtasks of a key are accepted
/// in the order of their numbers.
pub(crate) fn submit(clients: &Clients, mut dice: Dice) {
    let mut numbers = BTreeMap::<String, u64>::new();
    let mut nth = 0;
    while clients.wait_for_room() {
        let kind = KINDS[dice.roll(4) as usize];
        let subtasks = (0..=dice.roll(3)).map(|_| {
            let key = format!("k{}", dice.roll(KEYS));
            let number = numbers.entry(key.clone()).or_default();
            *number += 1;
            (key, *number)
        });
        let subtasks: Vec<_> = subtasks.collect();
        let items: Vec<_> =
            subtasks.iter().map(|(key, number)| json!({"key": key, "payload": number})).collect();
        let body = json!({"kind": kind, "subtasks": items}).to_string();
        // A killed server may have accepted the job without an answer.
        let once = [("idempotency-key", format!("job-{nth}"))];
        nth += 1;
        let (_, status, answer) = clients.send("/v1/jobs", &once, &body).unwrap();
        assert!(status < 300, "{status} {answer}");
        let id = answer["id"].as_str().unwrap().to_owned();
        clients.change(|state| {
            state.jobs.push((id, subtasks.len()));
            for (key, number) in subtasks {
                if ["remote", "shared"].contains(&kind) {
                    state.remote.entry(key.clone()).or_default().insert(number);
                }
                state.submitted.insert(key, number);
            }
        });
    }
}

/// Works on leases until the end. A lease continues over a restart of the server, so the worker reports a result to
/// whatever server runs.
pub(crate) fn run_remote(clients: &Clients, folder: &Path) {
    let ask = json!({"kinds": ["remote"], "max": 1, "wait_ms": 1000, "worker": "w"}).to_string();
    while let Some((life, status, answer)) = clients.send("/v1/leases", &[], &ask) {
        assert!(status < 300, "{status} {answer}");
        for lease in answer["leases"].as_array().unwrap_or(&Vec::new()) {
            act(folder, life, lease);
            let id = lease["id"].as_str().unwrap();
            let path = format!("/v1/leases/{id}/complete");
            let Some((_, status, answer)) = clients.send(&path, &[], r#"{"result":1}"#) else {
                return;
            };
            // A repeated report of one that was accepted, or a lease that has ended meanwhile.
            assert!(status < 300 || [404, 409, 410].contains(&status), "{status} {answer}");
        }
    }
}

/// Does what an attempt of a command does.
fn act(folder: &Path, life: u64, lease: &Value) {
    let number = |name: &str| lease[name].as_u64().unwrap_or_else(|| panic!("{lease}"));
    let key = lease["keys"][0].as_str().unwrap_or_else(|| panic!("{lease}"));
    let (fence, number) = (number("fence"), number("payload"));
    let open =
        |name: &str| OpenOptions::new().create(true).append(true).open(folder.join(name)).unwrap();
    let say = |mut to: File, line: String| to.write_all(line.as_bytes()).unwrap();
    let lock = open(&format!("lock-{key}"));
    if lock.try_lock().is_err() {
        say(open("overlap"), format!("{key} {number} {fence}\n"));
    }
    for step in ["begin", "end"] {
        say(open(&format!("log-{key}")), format!("{step} {number} {life} {fence}\n"));
        say(open("begun"), format!("0 {key} {number} {life} {step}\n"));
    }
}

/// Sends a request on a connection of its own. Returns the status and the body, or `None` if no complete answer comes.
pub(crate) fn request(
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
