//! The service's part of a comparison with other services: one figure of it in each run, as a line of JSON.
//!
//! ```text
//! cargo bench -p keylane-service --bench beside -- FOLDER FIGURE COUNT
//! ```
//!
//! `FOLDER` is where the store is made: it should be on the disk in question. The server is a process of its
//! own, which is this program once more; clients are over HTTP on loopback. Every submit that was answered is
//! on the disk, and every outcome before it is seen. That all was done, once, is checked by number and sum.
//! `bench-compare/services.sh` runs it in turns with others, as the peer `keylane-embedded`.

use std::ffi::OsStr;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use keylane_service::handle::{Attempt, FunctionHandler};
use keylane_service::http::{self, HttpServer};
use keylane_service::{Kind, Service, ServiceSettings};
use serde_json::{Value, json};

use client::{Connection, JSON, LINES, job, percentile};

mod client;

/// How many requests are on their way at a time, where there are several.
const CONNECTIONS: u64 = 64;

/// How long jobs wait that are to be there before the first begins.
const HEADSTART: Duration = Duration::from_millis(1500);

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|word| word != "--bench").collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    match words[..] {
        ["serve", folder] => runtime.block_on(serve(Path::new(folder))),
        ["echo"] => runtime.block_on(echo()),
        [folder, figure, count] => {
            let count = count.parse().expect("the count is a number");
            let own = tempfile::tempdir_in(folder).unwrap();
            let line = runtime.block_on(measure(figure, count, own.path()));
            println!("{line}");
        }
        // `cargo test --benches` runs it without words.
        _ => {}
    }
}

/// What the handlers saw.
#[derive(Default)]
struct Seen {
    count: AtomicU64,
    /// Of the numbers in the payloads.
    sum: AtomicU64,
    /// When the first began, in nanoseconds since 1970.
    first: AtomicU64,
}

/// Serves until the standard input ends, and then says what was seen.
async fn serve(folder: &Path) {
    let seen = Arc::new(Seen::default());
    let counting = Arc::clone(&seen);
    let nothing = FunctionHandler::new(move |attempt: Attempt| {
        let _ = counting.first.compare_exchange(0, now(), Ordering::Relaxed, Ordering::Relaxed);
        counting.count.fetch_add(1, Ordering::Relaxed);
        counting.sum.fetch_add(number_in(&attempt.payload), Ordering::Relaxed);
        std::future::ready(Ok(None))
    });
    let clock = FunctionHandler::new(|attempt: Attempt| {
        let passed = now() - number_in(&attempt.payload);
        let result = serde_json::value::to_raw_value(&passed).unwrap();
        std::future::ready(Ok(Some(result)))
    });
    let slots = std::env::var("SLOTS").map_or(64, |slots| slots.parse().unwrap());
    let settings = ServiceSettings { slots, ..ServiceSettings::new(folder.join("store")) };
    let service = Service::builder(settings)
        .kind("nothing", Kind::new(nothing))
        .kind("clock", Kind::new(clock))
        .kind("leased", Kind::leased(Duration::from_secs(60)))
        .start()
        .await
        .unwrap();
    let settings = http::HttpSettings { listen: ([127, 0, 0, 1], 0).into(), ..Default::default() };
    let server = HttpServer::start(&service, settings).await.unwrap();
    println!("{}", server.address());
    input_ends().await;
    let [count, sum, first] =
        [&seen.count, &seen.sum, &seen.first].map(|of| of.load(Ordering::Relaxed));
    println!("{}", json!({ "count": count, "sum": sum, "first": first }));
}

async fn input_ends() {
    let read = || std::io::stdin().read_to_end(&mut Vec::new());
    tokio::task::spawn_blocking(read).await.unwrap().unwrap();
}

/// Serves each request by its own body, with the HTTP library of the service and nothing else, until the standard input
/// ends.
async fn echo() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("{}", listener.local_addr().unwrap());
    let listener = axum::serve::ListenerExt::tap_io(listener, |stream| {
        stream.set_nodelay(true).unwrap();
    });
    let route = axum::routing::post(|body: axum::body::Bytes| async { body });
    let app = axum::Router::new().route("/v1/jobs", route);
    let served = async { axum::serve(listener, app).await };
    tokio::select! {
        () = input_ends() => {}
        _ = served => {}
    }
}

/// The number of a payload `{"n":1}`.
fn number_in(payload: &[u8]) -> u64 {
    let payload: Value = serde_json::from_slice(payload).unwrap();
    payload["n"].as_u64().unwrap()
}

/// Nanoseconds since 1970, which all processes count alike.
fn now() -> u64 {
    let passed = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(passed.as_nanos()).unwrap()
}

/// A server in a process of its own.
struct Serving {
    process: Child,
    says: BufReader<ChildStdout>,
    address: SocketAddr,
}

impl Serving {
    fn start(folder: &Path) -> Self {
        Self::run(&["serve".as_ref(), folder.as_os_str()])
    }

    fn run(words: &[&OsStr]) -> Self {
        let mut process = Command::new(std::env::current_exe().unwrap())
            .args(words)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut says = BufReader::new(process.stdout.take().unwrap());
        let mut address = String::new();
        says.read_line(&mut address).unwrap();
        Serving { process, says, address: address.trim().parse().unwrap() }
    }

    /// Ends it, and returns when the first subtask began: each number below `count` was done once.
    fn end(mut self, count: u64) -> u64 {
        drop(self.process.stdin.take());
        let mut seen = String::new();
        self.says.read_line(&mut seen).unwrap();
        assert!(self.process.wait().unwrap().success());
        let seen: Value = serde_json::from_str(&seen).unwrap();
        assert_eq!(seen["count"], count);
        assert_eq!(seen["sum"], sum_below(count));
        seen["first"].as_u64().unwrap()
    }
}

fn sum_below(count: u64) -> u64 {
    count * count.saturating_sub(1) / 2
}

async fn measure(figure: &str, count: u64, folder: &Path) -> Value {
    let figures = match figure {
        "floor" => floor(folder, count).await,
        _ => measure_service(figure, count, Serving::start(folder)).await,
    };
    let mut line = json!({ "peer": "keylane-embedded", "figure": figure, "count": count });
    line.as_object_mut().unwrap().extend(figures.as_object().unwrap().clone());
    line
}

async fn measure_service(figure: &str, count: u64, serving: Serving) -> Value {
    match figure {
        "one" => one(serving, count).await,
        "many" => many(serving, count).await,
        "through" => through(serving, count).await,
        "bulk" => bulk(serving, count).await,
        "drain" => drain(serving, count, |number| number.wrapping_mul(0x9e37_79b9) % 100_000).await,
        "hot" => drain(serving, count, |_| 0).await,
        "drain-jobs" => drain_jobs(serving, count).await,
        "drain-leased" => drain_leased(serving, count).await,
        "start" => start(serving, count).await,
        _ => panic!("there is no figure {figure}"),
    }
}

/// The parts of `one` that do not depend on Keylane: a request over HTTP that is answered by its own body, and a transaction
/// of one row in SQLite, in WAL mode with `synchronous=FULL` as the store has it. They are measured one after the other.
async fn floor(folder: &Path, count: u64) -> Value {
    let mut server = Serving::run(&["echo".as_ref()]);
    let mut connection = Connection::open(server.address).await;
    let mut echoes = Vec::new();
    for number in 0..count {
        let body = job("leased", number);
        let begin = Instant::now();
        let answer = connection.submit(JSON, &body).await;
        echoes.push(begin.elapsed());
        assert_eq!(answer, body);
    }
    drop(server.process.stdin.take());
    assert!(server.process.wait().unwrap().success());

    let file = rusqlite::Connection::open(folder.join("floor.db")).unwrap();
    file.execute_batch("PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL").unwrap();
    file.execute_batch("CREATE TABLE jobs (job BLOB)").unwrap();
    let mut insert = file.prepare("INSERT INTO jobs VALUES (?)").unwrap();
    let mut commits = Vec::new();
    for number in 0..count {
        let body = job("leased", number);
        let begin = Instant::now();
        insert.execute([body]).unwrap();
        commits.push(begin.elapsed());
    }
    let [echo, commit] =
        [echoes, commits].map(|mut times| percentile(&mut times, 0.5).as_secs_f64() * 1e6);
    json!({ "echo_p50_us": echo, "commit_p50_us": commit, "p50_us": echo + commit })
}

/// Submits, one after the other; nothing is done meanwhile.
async fn one(serving: Serving, count: u64) -> Value {
    let mut connection = Connection::open(serving.address).await;
    let mut times = Vec::new();
    for number in 0..count {
        let begin = Instant::now();
        connection.submit(JSON, &job("leased", number)).await;
        times.push(begin.elapsed());
    }
    assert_waiting(&mut connection, count).await;
    serving.end(0);
    latency(times)
}

/// Submits from many connections; nothing is done meanwhile.
async fn many(serving: Serving, count: u64) -> Value {
    let begin = Instant::now();
    submit_all(serving.address, count, |number| job("leased", number)).await;
    let took = begin.elapsed();
    assert_waiting(&mut Connection::open(serving.address).await, count).await;
    serving.end(0);
    rate(count, took)
}

/// The same, and they are done as they come.
async fn through(serving: Serving, count: u64) -> Value {
    let begin = Instant::now();
    submit_all(serving.address, count, |number| job("nothing", number)).await;
    wait_for_all(&mut Connection::open(serving.address).await, count).await;
    let took = begin.elapsed();
    serving.end(count);
    rate(count, took)
}

/// One job of many lines; nothing is done meanwhile.
async fn bulk(serving: Serving, count: u64) -> Value {
    let body = lines("leased", 0, count, |number| number);
    let mut connection = Connection::open(serving.address).await;
    let begin = Instant::now();
    connection.submit(LINES, &body).await;
    let took = begin.elapsed();
    assert_waiting(&mut connection, count).await;
    serving.end(0);
    rate(count, took)
}

/// The subtasks of one job, from when the first began until the last outcome is there to be seen.
async fn drain(serving: Serving, count: u64, key: impl Fn(u64) -> u64) -> Value {
    let mut connection = Connection::open(serving.address).await;
    let delay = u64::try_from(HEADSTART.as_millis()).unwrap();
    connection.submit(LINES, &lines("nothing", delay, count, key)).await;
    wait_for_all(&mut connection, count).await;
    let end = now();
    let begin = serving.end(count);
    rate(count, Duration::from_nanos(end - begin))
}

/// As many jobs of one subtask.
async fn drain_jobs(serving: Serving, count: u64) -> Value {
    // Minimum number of submissions in a second.
    let begin_at = Instant::now() + HEADSTART + Duration::from_millis(count / 4);
    submit_all(serving.address, count, move |number| {
        let delay = begin_at.saturating_duration_since(Instant::now()).as_millis();
        assert!(delay > 0, "the first begin before the last was submitted");
        let payload = json!({ "n": number });
        let job = json!({ "kind": "nothing", "key": format!("k{number}"), "payload": payload, "delay_ms": delay });
        job.to_string().into_bytes()
    })
    .await;
    wait_for_all(&mut Connection::open(serving.address).await, count).await;
    let end = now();
    let begin = serving.end(count);
    rate(count, Duration::from_nanos(end - begin))
}

/// The subtasks of one job, done by workers elsewhere, which lease and complete them over HTTP.
async fn drain_leased(serving: Serving, count: u64) -> Value {
    let address = serving.address;
    let mut connection = Connection::open(address).await;
    connection.submit(LINES, &lines("leased", 0, count, |number| number)).await;
    let done = Arc::new([AtomicU64::new(0), AtomicU64::new(0)]);
    let begin = Instant::now();
    let workers = (0..CONNECTIONS).map(|_| {
        let done = Arc::clone(&done);
        tokio::spawn(async move {
            let mut connection = Connection::open(address).await;
            while done[0].load(Ordering::Relaxed) < count {
                let asked = br#"{"kinds":["leased"],"max":16,"wait_ms":20}"#;
                let claim =
                    connection.post("/v1/leases", "content-type: application/json\r\n", asked);
                let claim: Value = serde_json::from_slice(&claim.await).unwrap();
                for lease in claim["leases"].as_array().unwrap() {
                    let path = format!("/v1/leases/{}/complete", lease["id"].as_str().unwrap());
                    connection.post(&path, "content-type: application/json\r\n", b"{}").await;
                    done[0].fetch_add(1, Ordering::Relaxed);
                    done[1].fetch_add(lease["payload"]["n"].as_u64().unwrap(), Ordering::Relaxed);
                }
            }
        })
    });
    for worker in workers.collect::<Vec<_>>() {
        worker.await.unwrap();
    }
    wait_for_all(&mut connection, count).await;
    let took = begin.elapsed();
    assert_eq!(done.each_ref().map(|done| done.load(Ordering::Relaxed)), [count, sum_below(count)]);
    serving.end(0);
    rate(count, took)
}

/// From the submit being sent until the handler begins, one after the other.
async fn start(serving: Serving, count: u64) -> Value {
    let mut connection = Connection::open(serving.address).await;
    let mut times = Vec::new();
    for number in 0..count {
        let body =
            format!("{{\"kind\":\"clock\",\"key\":\"k{number}\",\"payload\":{{\"n\":{}}}}}", now());
        let headers = "content-type: application/json\r\nprefer: wait=10\r\n";
        let answer = connection.post("/v1/jobs", headers, body.as_bytes()).await;
        let job: Value = serde_json::from_slice(&answer).unwrap();
        assert_eq!(job["state"], "succeeded");
        let id = job["id"].as_str().unwrap();
        let results = connection.get(&format!("/v1/jobs/{id}/results")).await;
        times.push(Duration::from_nanos(results["items"][0]["result"].as_u64().unwrap()));
    }
    serving.end(0);
    latency(times)
}

/// Submits this many from all connections.
async fn submit_all(
    address: SocketAddr,
    count: u64,
    job: impl Fn(u64) -> Vec<u8> + Clone + Send + Sync + 'static,
) {
    let next = Arc::new(AtomicU64::new(0));
    let clients = (0..CONNECTIONS).map(|_| {
        let (job, next) = (job.clone(), Arc::clone(&next));
        tokio::spawn(async move {
            let mut connection = Connection::open(address).await;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return;
                }
                connection.submit(JSON, &job(number)).await;
            }
        })
    });
    for client in clients.collect::<Vec<_>>() {
        client.await.unwrap();
    }
}

/// A job of this many subtasks that begins after the given number of milliseconds.
fn lines(kind: &str, delay: u64, count: u64, key: impl Fn(u64) -> u64) -> Vec<u8> {
    let mut body = format!("{{\"kind\":\"{kind}\",\"delay_ms\":{delay}}}\n").into_bytes();
    for number in 0..count {
        writeln!(body, "{{\"key\":\"k{}\",\"payload\":{{\"n\":{number}}}}}", key(number)).unwrap();
    }
    body
}

async fn wait_for_all(connection: &mut Connection, count: u64) {
    while connection.get("/v1/summary").await["succeeded_total"] != count {
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

async fn assert_waiting(connection: &mut Connection, count: u64) {
    let summary = connection.get("/v1/summary").await;
    let [waiting, ready] = ["waiting", "ready"].map(|name| summary[name].as_u64().unwrap());
    assert_eq!(waiting + ready, count, "{summary}");
}

fn latency(mut times: Vec<Duration>) -> Value {
    let [half, most] = [0.5, 0.99].map(|part| percentile(&mut times, part).as_secs_f64() * 1e6);
    json!({ "p50_us": half, "p99_us": most })
}

#[expect(clippy::cast_precision_loss, reason = "a rate for people")]
fn rate(count: u64, took: Duration) -> Value {
    json!({ "per_second": count as f64 / took.as_secs_f64() })
}
