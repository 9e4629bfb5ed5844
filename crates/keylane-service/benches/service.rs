//! What the service reaches over HTTP, with every acknowledged job on the disk; server and load on one machine.
//!
//! ```text
//! cargo bench -p keylane-service --bench service -- FOLDER [SIZE] [submit|bulk|drain|latency|recover]…
//! ```
//!
//! `FOLDER` is where the stores are made: it should be on the disk in question. `SIZE` scales the numbers of
//! jobs and subtasks; 1 is what docs/performance.md shows, 0.01 a look whether it runs.
//!
//! `beside` measures the same with a process for the server, for comparisons.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use keylane_service::handle::{Attempt, FunctionHandler};
use keylane_service::http::{self, HttpServer};
use keylane_service::{Kind, Service, ServiceSettings};

use client::{Connection, JSON, LINES, job, percentile};

mod client;

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let Some(folder) = words.first() else {
        // `cargo test --benches` runs it without words.
        return;
    };
    let size: f64 = words.get(1).map_or(1.0, |size| size.parse().expect("the size is a number"));
    let wanted = |name: &str| words.len() < 3 || words[2..].iter().any(|word| word == name);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let folder = PathBuf::from(folder);
    println!("| what | result |\n|---|---:|");
    for name in RUNS {
        if wanted(name) {
            let own = tempfile::tempdir_in(&folder).unwrap();
            runtime.block_on(async {
                match *name {
                    "submit" => submit(own.path(), size).await,
                    "bulk" => bulk(own.path(), size).await,
                    "drain" => drain(own.path(), size).await,
                    "latency" => latency(own.path(), size).await,
                    _ => recover(own.path(), size).await,
                }
            });
        }
    }
}

const RUNS: &[&str] = &["submit", "bulk", "drain", "latency", "recover"];

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "counts")]
fn scaled(count: f64, size: f64) -> usize {
    (count * size).max(1.0) as usize
}

struct Scene {
    service: Service,
    _server: HttpServer,
    address: SocketAddr,
    started: Arc<AtomicU64>,
}

/// A service with a kind that does nothing, and one whose jobs wait for ever.
async fn scene(folder: &Path) -> Scene {
    let started = Arc::new(AtomicU64::new(0));
    let counter = Arc::clone(&started);
    let nothing = FunctionHandler::new(move |_: Attempt| {
        counter.fetch_add(1, Ordering::Relaxed);
        std::future::ready(Ok(None))
    });
    let settings = ServiceSettings { slots: 64, ..ServiceSettings::new(folder.join("store")) };
    let service = Service::builder(settings)
        .kind("nothing", Kind::new(nothing))
        .kind("never", Kind::leased(Duration::from_secs(60)))
        .start()
        .await
        .unwrap();
    let settings = http::HttpSettings { listen: ([127, 0, 0, 1], 0).into(), ..Default::default() };
    let server = HttpServer::start(&service, settings).await.unwrap();
    let address = server.address();
    Scene { service, _server: server, address, started }
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn rate(count: usize, time: Duration) -> String {
    format!("{:.0}/s", count as f64 / time.as_secs_f64())
}

async fn submit(folder: &Path, size: f64) {
    let scene = scene(folder).await;
    let mut one = Connection::open(scene.address).await;
    let mut times = Vec::new();
    for number in 0..scaled(2000.0, size) {
        let begin = Instant::now();
        one.submit(JSON, &job("nothing", number as u64)).await;
        times.push(begin.elapsed());
    }
    let (half, most) = (percentile(&mut times, 0.5), percentile(&mut times, 0.99));
    println!("| one submit at a time, p50 | {half:?} |\n| p99 | {most:?} |");
    let each = scaled(2000.0, size);
    let begin = Instant::now();
    let clients = (0..64_u64).map(|client| {
        let address = scene.address;
        tokio::spawn(async move {
            let mut connection = Connection::open(address).await;
            for number in 0..each {
                connection.submit(JSON, &job("nothing", client * 100_000 + number as u64)).await;
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
    println!("| submits at 64 connections | {} |", rate(64 * each, begin.elapsed()));
}

fn lines(kind: &str, count: usize, key: impl Fn(usize) -> u64) -> Vec<u8> {
    let mut body = format!("{{\"kind\":\"{kind}\"}}\n").into_bytes();
    for number in 0..count {
        body.extend(format!("{{\"key\":\"k{}\",\"payload\":{number}}}\n", key(number)).bytes());
    }
    body
}

/// Submits lines and returns the job's id, and how long that took.
async fn submit_lines(address: SocketAddr, body: &[u8]) -> (String, Duration) {
    let mut connection = Connection::open(address).await;
    let begin = Instant::now();
    let answer = connection.submit(LINES, body).await;
    let job: serde_json::Value = serde_json::from_slice(&answer).unwrap();
    (job["id"].as_str().unwrap().to_owned(), begin.elapsed())
}

async fn bulk(folder: &Path, size: f64) {
    let scene = scene(folder).await;
    let count = scaled(1_000_000.0, size);
    let body = lines("never", count, |number| number as u64);
    let before = resident();
    let (_, time) = submit_lines(scene.address, &body).await;
    println!("| subtasks in one job of {count} lines | {} |", rate(count, time));
    drop(body);
    let bytes = resident().saturating_sub(before) / count as u64;
    println!("| memory for each that waits, the store's cache included | {bytes} bytes |");
}

async fn drain(folder: &Path, size: f64) {
    let scene = scene(folder).await;
    for (what, hot) in [("random keys", false), ("one hot key", true)] {
        let count = scaled(if hot { 200_000.0 } else { 1_000_000.0 }, size);
        let key = |number: usize| {
            if hot { 0 } else { (number as u64).wrapping_mul(0x9e37_79b9) % 100_000 }
        };
        let begin = Instant::now();
        let (id, accepted) = submit_lines(scene.address, &lines("nothing", count, key)).await;
        let mut connection = Connection::open(scene.address).await;
        loop {
            let job = connection.get(&format!("/v1/jobs/{id}")).await;
            if job["state"] == "succeeded" {
                break;
            }
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let drained = begin.elapsed() - accepted;
        println!(
            "| drain of {count} that do nothing, {what}, each written | {} |",
            rate(count, drained)
        );
    }
}

/// From the submit being sent to the subtask's begin, at a steady rate from four connections.
async fn latency(folder: &Path, size: f64) {
    let scene = scene(folder).await;
    let mut times = Vec::new();
    let mut connection = Connection::open(scene.address).await;
    for number in 0..scaled(3000.0, size) {
        let wanted = scene.started.load(Ordering::Relaxed) + 1;
        let begin = Instant::now();
        connection.submit(JSON, &job("nothing", number as u64)).await;
        while scene.started.load(Ordering::Relaxed) < wanted {
            tokio::task::yield_now().await;
        }
        times.push(begin.elapsed());
        tokio::time::sleep(Duration::from_micros(300)).await;
    }
    let (half, most) = (percentile(&mut times, 0.5), percentile(&mut times, 0.99));
    println!("| submit to start, p50 | {half:?} |\n| p99 | {most:?} |");
}

async fn recover(folder: &Path, size: f64) {
    let count = scaled(1_000_000.0, size);
    let first = scene(folder).await;
    submit_lines(first.address, &lines("never", count, |number| number as u64)).await;
    // As after a kill: what is on the disk now is all that there is.
    let copy = folder.join("copy");
    std::fs::create_dir(&copy).unwrap();
    for name in ["store", "store-wal", "store-mark"] {
        if folder.join(name).exists() {
            std::fs::copy(folder.join(name), copy.join(name)).unwrap();
        }
    }
    first.service.stop(Duration::ZERO).await;
    let begin = Instant::now();
    let second = scene(&copy).await;
    println!("| recovery of {count} that wait | {:.2?} |", begin.elapsed());
    drop(second);
}

/// Bytes of memory that this process has.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap_or("0 kB");
    line.trim().trim_end_matches(" kB").trim().parse::<u64>().unwrap_or(0) * 1024
}
