//! Rate of remote workers in another process: one request for each end of a lease, against batches.
//!
//! ```text
//! cargo bench -p keylane-service --bench remote_workers -- FOLDER [COUNT] [ROUNDS] [PART]
//! ```
//!
//! `FOLDER` is where the stores are made: it should be on the disk in question. With `PART`, only the forms with this
//! text in their names are measured. The server is a process of its own,
//! which is this program once more. Workers lease and end the subtasks of a job over HTTP on loopback. The forms are
//! measured in turns, and the table has the median of the rounds, and the lowest and the highest. Each run checks that
//! every subtask was done once, by number and sum, and that those of a key were leased in order.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use keylane_service::http::{HttpServer, HttpSettings};
use keylane_service::{Kind, Service, ServiceSettings};
use serde::Deserialize;
use serde_json::json;

use client::{Connection, LINES};

#[allow(dead_code, reason = "each bench uses a part of it")]
mod client;

const HEADERS: &str = "content-type: application/json\r\n";

/// Form of the workers' requests.
#[derive(Clone, Copy)]
struct Form {
    name: &'static str,
    slots: usize,
    connections: u64,
    /// Maximum number of leases in one request.
    most: u32,
    /// Whether all ends of a batch are one request, which also claims the next leases.
    is_batched: bool,
    /// Number of keys; without it each subtask has its own.
    keys: Option<u64>,
}

const FORMS: &[Form] = &[
    Form {
        name: "one request for each end, 64 connections, 64 slots",
        slots: 64,
        connections: 64,
        most: 16,
        is_batched: false,
        keys: None,
    },
    Form {
        name: "the same with 2048 slots",
        slots: 2048,
        connections: 64,
        most: 16,
        is_batched: false,
        keys: None,
    },
    Form {
        name: "batches of up to 16, 4 connections, 64 slots",
        slots: 64,
        connections: 4,
        most: 16,
        is_batched: true,
        keys: None,
    },
    Form {
        name: "batches of up to 256, 4 connections, 2048 slots",
        slots: 2048,
        connections: 4,
        most: 256,
        is_batched: true,
        keys: None,
    },
    Form {
        name: "the same, all subtasks on 1000 keys",
        slots: 2048,
        connections: 4,
        most: 256,
        is_batched: true,
        keys: Some(1000),
    },
];

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    match words[..] {
        // `cargo test --benches` runs it without words.
        [] => {}
        ["serve", folder, slots] => {
            runtime.block_on(serve(Path::new(folder), slots.parse().unwrap()));
        }
        [folder, ref rest @ ..] => {
            let number = |place: usize, default| {
                rest.get(place).map_or(default, |word| word.parse().expect("a number"))
            };
            let part = rest.get(2).copied().unwrap_or_default();
            let forms: Vec<_> = FORMS.iter().filter(|form| form.name.contains(part)).collect();
            compare(&runtime, Path::new(folder), &forms, number(0, 100_000), number(1, 3));
        }
    }
}

fn compare(
    runtime: &tokio::runtime::Runtime,
    folder: &Path,
    forms: &[&Form],
    count: u64,
    rounds: u64,
) {
    let mut rates = vec![Vec::new(); forms.len()];
    for _ in 0..rounds {
        for (form, rates) in forms.iter().zip(&mut rates) {
            let own = tempfile::tempdir_in(folder).unwrap();
            let server = ServerProcess::start(own.path(), form.slots);
            rates.push(runtime.block_on(measure(**form, count, server.address)));
        }
    }
    println!("| {count} subtasks, {rounds} rounds | subtasks a second |\n|---|---:|");
    for (form, mut rates) in forms.iter().zip(rates) {
        rates.sort_unstable_by(f64::total_cmp);
        let (low, half, high) = (rates[0], rates[rates.len() / 2], rates[rates.len() - 1]);
        println!("| {} | {half:.0} ({low:.0}–{high:.0}) |", form.name);
    }
}

/// Serves until the standard input ends.
async fn serve(folder: &Path, slots: usize) {
    let settings = ServiceSettings { slots, ..ServiceSettings::new(folder.join("store")) };
    let kind = Kind::leased(Duration::from_secs(60));
    let service = Service::builder(settings).kind("leased", kind).start().await.unwrap();
    let settings = HttpSettings { listen: ([127, 0, 0, 1], 0).into(), ..Default::default() };
    let server = HttpServer::start(&service, settings).await.unwrap();
    println!("{}", server.address());
    let end = || std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
    tokio::task::spawn_blocking(end).await.unwrap();
}

/// A server in a process of its own, which ends with this.
struct ServerProcess {
    process: Child,
    address: SocketAddr,
}

impl ServerProcess {
    fn start(folder: &Path, slots: usize) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        let command = command.arg("serve").arg(folder).arg(slots.to_string());
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut address = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut address).unwrap();
        ServerProcess { process, address: address.trim().parse().unwrap() }
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        let _ = self.process.wait();
    }
}

/// Answer with leases.
#[derive(Deserialize)]
struct Leases {
    #[serde(default)]
    leases: Vec<Lease>,
    #[serde(default)]
    items: Vec<Ended>,
}

#[derive(Deserialize)]
struct Lease {
    id: String,
    payload: Payload,
}

#[derive(Deserialize)]
struct Payload {
    n: u64,
}

#[derive(Deserialize)]
struct Ended {
    status: u16,
}

/// What the workers have done.
struct Done {
    total: u64,
    count: AtomicU64,
    sum: AtomicU64,
    /// Next number of each key.
    next: Vec<AtomicU64>,
}

impl Done {
    fn is_all(&self) -> bool {
        self.count.load(Ordering::Relaxed) >= self.total
    }

    /// Checks a lease: it is the next of its key.
    fn begin(&self, lease: &Lease) {
        let keys = self.next.len() as u64;
        let key = usize::try_from(lease.payload.n % keys).unwrap();
        let expected = self.next[key].swap(lease.payload.n + keys, Ordering::Relaxed);
        assert_eq!(expected, lease.payload.n, "the order of a key");
    }

    fn end(&self, numbers: impl Iterator<Item = u64>) {
        for number in numbers {
            self.count.fetch_add(1, Ordering::Relaxed);
            self.sum.fetch_add(number, Ordering::Relaxed);
        }
    }
}

/// Returns the rate, from the first request of the workers until the last outcome can be seen.
#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
async fn measure(form: Form, count: u64, address: SocketAddr) -> f64 {
    let keys = form.keys.unwrap_or(count);
    let mut body = b"{\"kind\":\"leased\"}\n".to_vec();
    for number in 0..count {
        let key = number % keys;
        writeln!(body, "{{\"key\":\"k{key}\",\"payload\":{{\"n\":{number}}}}}").unwrap();
    }
    Connection::open(address).await.submit(LINES, &body).await;
    drop(body);
    let next = (0..keys).map(AtomicU64::new).collect();
    let done = Arc::new(Done { total: count, count: 0.into(), sum: 0.into(), next });
    let begin = Instant::now();
    let workers = (0..form.connections).map(|_| tokio::spawn(work(form, address, done.clone())));
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    let mut connection = Connection::open(address).await;
    while connection.get("/v1/summary").await["succeeded_total"] != count {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    let rate = count as f64 / begin.elapsed().as_secs_f64();
    let counted = [&done.count, &done.sum].map(|it| it.load(Ordering::Relaxed));
    assert_eq!(counted, [count, count * count.saturating_sub(1) / 2]);
    rate
}

/// Works until all is done, over one connection.
async fn work(form: Form, address: SocketAddr, done: Arc<Done>) {
    let mut connection = Connection::open(address).await;
    let claim = json!({"kinds": ["leased"], "max": form.most, "wait_ms": 20});
    let mut leases = Vec::new();
    while !done.is_all() || !leases.is_empty() {
        if leases.is_empty() {
            let answer = connection.post("/v1/leases", HEADERS, claim.to_string().as_bytes()).await;
            let answer: Leases = serde_json::from_slice(&answer).unwrap();
            leases = answer.leases;
            leases.iter().for_each(|lease| done.begin(lease));
        } else if form.is_batched {
            let ended = std::mem::take(&mut leases);
            leases = end_batch(&mut connection, &ended, &claim, &done).await;
        } else {
            for lease in std::mem::take(&mut leases) {
                let path = format!("/v1/leases/{}/complete", lease.id);
                connection.post(&path, HEADERS, b"{}").await;
                done.end([lease.payload.n].into_iter());
            }
        }
    }
}

/// Ends leases, and returns the next ones.
async fn end_batch(
    connection: &mut Connection,
    ended: &[Lease],
    claim: &serde_json::Value,
    done: &Done,
) -> Vec<Lease> {
    let ends: Vec<_> = ended.iter().map(|lease| json!({"id": lease.id})).collect();
    let body = json!({"leases": ends, "claim": claim}).to_string();
    let answer = connection.post("/v1/leases/complete", HEADERS, body.as_bytes()).await;
    let answer: Leases = serde_json::from_slice(&answer).unwrap();
    assert_eq!(answer.items.len(), ended.len());
    assert!(answer.items.iter().all(|item| item.status == 204));
    done.end(ended.iter().map(|lease| lease.payload.n));
    answer.leases.iter().for_each(|lease| done.begin(lease));
    answer.leases
}
