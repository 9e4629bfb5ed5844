//! `/healthz`, `/readyz`, `/metrics` and `/lag` of a running consumer, and the way to the commands of an
//! operator.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::HOST;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use keylane_stream::consumer::{ConsumerHandle, ConsumerStatus};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

use super::control_endpoints::{self, ControlAccess, ControlCommand};
use super::responses::{json, text};
use super::status::{HealthThresholds, PartitionLag, complaints, metrics, unready};

/// Timeout for the consumer's status. The consumer answers between two waits of at most 100 ms,
/// unless its source hangs.
const PATIENCE: Duration = Duration::from_secs(2);

/// Maximum number of concurrent clients.
const MAX_CONNECTIONS: usize = 64;

/// Timeout of a client's request.
const SLOWEST_REQUEST: Duration = Duration::from_secs(10);

/// Answers at this address for as long as the runtime lives. Returns where that is.
pub(super) fn listen(
    runtime: &tokio::runtime::Handle,
    address: &str,
    handle: ConsumerHandle,
    patience: HealthThresholds,
    access: ControlAccess,
) -> anyhow::Result<SocketAddr> {
    let listener = runtime.block_on(TcpListener::bind(address)).with_context(|| {
        format!("cannot listen at {address}; give an address and a free port, like 127.0.0.1:9100")
    })?;
    let at = listener.local_addr()?;
    let is_local = at.ip().is_loopback();
    let access = Arc::new(access);
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    runtime.spawn(async move {
        loop {
            // A connection that breaks before it is taken is its client's affair.
            let Ok((stream, peer)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            // The client waits if there are too many, and is refused by the system if there are many more.
            let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
            let (handle, access) = (handle.clone(), access.clone());
            let answer = service_fn(move |request: Request<Incoming>| {
                let (handle, access) = (handle.clone(), access.clone());
                async move {
                    Ok::<_, Infallible>(if is_local && !has_honest_host(&request) {
                        dishonest_host()
                    } else if let Some(command) = ControlCommand::at(request.uri().path()) {
                        let peer = peer.ip();
                        control_endpoints::answer(command, request, peer, &access, handle).await
                    } else {
                        answer(request, handle, patience).await
                    })
                }
            });
            tokio::spawn(async move {
                let _ = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(SLOWEST_REQUEST)
                    .serve_connection(TokioIo::new(stream), answer)
                    .await;
                drop(permit);
            });
        }
    });
    Ok(at)
}

async fn answer(
    request: Request<Incoming>,
    handle: ConsumerHandle,
    patience: HealthThresholds,
) -> Response<Full<Bytes>> {
    if request.method() != Method::GET {
        return text(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered\n".to_owned());
    }
    let asked = tokio::task::spawn_blocking(move || handle.status(PATIENCE)).await;
    let status = asked.ok().flatten();
    let lags = status.as_ref().map_or(Vec::new(), |status| PartitionLag::all(status, patience));
    match (request.uri().path(), &status) {
        ("/healthz", status) => health(status.as_ref(), &lags, patience),
        ("/readyz", status) => readiness(status.as_ref()),
        ("/metrics", Some(status)) => text(StatusCode::OK, metrics(status, &lags)),
        ("/lag", Some(_)) => json(&lags),
        ("/metrics" | "/lag", None) => health(None, &lags, patience),
        _ => text(
            StatusCode::NOT_FOUND,
            "there are /healthz, /readyz, /metrics and /lag; and for an operator /pause, /resume, \
             /retry and /paused\n"
                .to_owned(),
        ),
    }
}

fn dishonest_host() -> Response<Full<Bytes>> {
    let what = "the request names another host; ask by address, or as localhost\n";
    text(StatusCode::FORBIDDEN, what.to_owned())
}

fn health(
    status: Option<&ConsumerStatus>,
    lags: &[PartitionLag],
    patience: HealthThresholds,
) -> Response<Full<Bytes>> {
    let complaints = match status {
        None => vec!["the consumer does not answer".to_owned()],
        Some(status) => complaints(status, lags, patience),
    };
    if complaints.is_empty() {
        return text(StatusCode::OK, "ok\n".to_owned());
    }
    text(StatusCode::SERVICE_UNAVAILABLE, complaints.join("\n") + "\n")
}

fn readiness(status: Option<&ConsumerStatus>) -> Response<Full<Bytes>> {
    let why = status.map_or(Some("the consumer does not answer"), unready);
    match why {
        None => text(StatusCode::OK, "ready\n".to_owned()),
        Some(why) => text(StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

/// Whether the request's host is `localhost` or an address. Without this check, a web page whose
/// own name resolves to this machine could read the responses in a local browser (DNS rebinding).
fn has_honest_host(request: &Request<Incoming>) -> bool {
    let Some(host) = request.headers().get(HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let bare = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
    name.eq_ignore_ascii_case("localhost") || bare.parse::<IpAddr>().is_ok()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::sync::{Mutex, mpsc};
    use std::time::{Instant, SystemTime};

    use indicatif::ProgressBar;
    use keylane_stream::consumer::{Attempt, AttemptFailure, Consumer};
    use keylane_stream::source::{
        PartitionAssignment, ProgressCommit, Source, SourceError, SourceEvent,
    };
    use keylane_stream::tracker::{OffsetMapLimit, Progress};
    use keylane_stream::{DeliveredRecord, Partition, Position, Record};
    use tokio::runtime::Runtime;

    use super::super::log::ThrottledLog;
    use super::*;
    use crate::output::StandardOutput;

    /// Time after which a partition without progress is unhealthy here.
    const STALLED: Duration = Duration::from_millis(50);

    /// What a source does and says.
    #[derive(Default)]
    struct Script {
        events: Vec<SourceEvent>,
        resolving_since: Option<Instant>,
        /// Commits that were not answered.
        commits: Vec<Partition>,
    }

    struct ScriptedSource(Arc<Mutex<Script>>);

    impl Source for ScriptedSource {
        fn poll(
            &mut self,
            timeout: Duration,
            _: usize,
            events: &mut Vec<SourceEvent>,
        ) -> Result<(), SourceError> {
            events.append(&mut self.0.lock().unwrap().events);
            if events.is_empty() {
                std::thread::park_timeout(timeout);
            }
            Ok(())
        }

        fn commit(&mut self, commits: Vec<ProgressCommit>) {
            let partitions = commits.into_iter().map(|commit| commit.partition);
            self.0.lock().unwrap().commits.extend(partitions);
        }

        fn pause(&mut self, _: &Partition) {}

        fn resume(&mut self, _: &Partition) {}

        fn release(&mut self, _: &[Partition]) {}

        fn close(&mut self, _: Duration) -> Result<(), SourceError> {
            Ok(())
        }

        fn resolving_since(&self, _: &Partition) -> Option<Instant> {
            self.0.lock().unwrap().resolving_since
        }
    }

    fn partition() -> Partition {
        Partition::new("t", 0)
    }

    fn assigned() -> SourceEvent {
        SourceEvent::Assigned(PartitionAssignment {
            partition: partition(),
            progress: Progress::up_to(Position::ZERO),
            limit: OffsetMapLimit::KAFKA,
        })
    }

    fn records(count: u64) -> SourceEvent {
        let record = |number| DeliveredRecord {
            position: Position::new(number),
            written: SystemTime::UNIX_EPOCH,
            record: Record::new(format!("k{number}"), "x"),
        };
        SourceEvent::Records { partition: partition(), records: (0..count).map(record).collect() }
    }

    /// A consumer with its endpoints.
    struct Stage {
        script: Arc<Mutex<Script>>,
        consumer: Consumer,
        address: SocketAddr,
        _runtime: Runtime,
    }

    impl Stage {
        fn new(
            script: Script,
            handler: impl Fn(&Attempt) -> Result<(), AttemptFailure> + Send + Sync + 'static,
        ) -> Self {
            let script = Arc::new(Mutex::new(script));
            let source = ScriptedSource(script.clone());
            let builder = Consumer::builder(source).threads(1).commit(Duration::ZERO, 1);
            let consumer = builder.start(handler).unwrap();
            let runtime = Runtime::new().unwrap();
            let patience = HealthThresholds { stalled: STALLED, uncommitted: STALLED };
            let output = StandardOutput::new(ProgressBar::hidden(), mpsc::channel().0).unwrap();
            let log = Arc::new(ThrottledLog::new(Arc::new(output)));
            let access = ControlAccess { token: None, log };
            let at = "127.0.0.1:0";
            let address =
                listen(runtime.handle(), at, consumer.handle(), patience, access).unwrap();
            Stage { script, consumer, address, _runtime: runtime }
        }

        fn get(&self, path: &str) -> (u16, String) {
            let mut stream = TcpStream::connect(self.address).unwrap();
            let request =
                format!("GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
            stream.write_all(request.as_bytes()).unwrap();
            let mut answer = String::new();
            stream.read_to_string(&mut answer).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
        }

        /// The value of a metric.
        fn metric(&self, name: &str) -> f64 {
            let text = self.get("/metrics").1;
            let is_it = |line: &&str| {
                line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']))
            };
            let line = text.lines().find(is_it).unwrap_or_else(|| panic!("no {name}: {text}"));
            line.rsplit(' ').next().unwrap().parse().unwrap()
        }

        /// Waits until the health has this status, and returns its text.
        fn until_health(&self, wanted: u16) -> String {
            let deadline = Instant::now() + Duration::from_secs(60);
            loop {
                let (status, text) = self.get("/healthz");
                if status == wanted {
                    return text;
                }
                assert!(Instant::now() < deadline, "{status}: {text}");
            }
        }
    }

    #[test]
    fn a_partition_whose_position_is_being_looked_for_is_unhealthy() {
        let resolving_since = Some(Instant::now());
        let script = Script { events: vec![assigned()], resolving_since, ..Script::default() };
        let stage = Stage::new(script, |_| Ok(()));
        let said = stage.until_health(503);
        assert!(said.contains("t[0] has made no progress for "), "{said}");
        assert_eq!(stage.metric("keylane_partition_stalled"), 1.0);
        stage.script.lock().unwrap().resolving_since = None;
        assert_eq!(stage.until_health(200), "ok\n");
        assert_eq!(stage.metric("keylane_partition_stalled"), 0.0);
    }

    #[test]
    fn metrics_have_the_values_of_the_consumer() {
        let (go, gate) = mpsc::channel::<()>();
        let (gate, (tell, begun)) = (Mutex::new(gate), mpsc::channel());
        let script = Script { events: vec![assigned(), records(3)], ..Script::default() };
        let stage = Stage::new(script, move |_| {
            tell.send(()).unwrap();
            gate.lock().unwrap().recv().map_err(AttemptFailure::from)
        });
        begun.recv().unwrap();
        // One runs, and the others are in flight behind it.
        assert_eq!(stage.metric("keylane_partition_running"), 1.0);
        assert_eq!(stage.metric("keylane_partition_incomplete"), 3.0);
        assert_eq!(stage.metric("keylane_rebalances_total"), 1.0);
        assert_eq!(stage.metric("keylane_partition_uncommitted_seconds"), 0.0);
        go.send(()).unwrap();
        begun.recv().unwrap();
        // Its progress is sent, and the source does not answer.
        let said = stage.until_health(503);
        assert!(said.contains("t[0] has progress that was not stored for "), "{said}");
        let age = stage.metric("keylane_partition_uncommitted_seconds");
        assert!(age >= STALLED.as_secs_f64());
        assert!(stage.metric("keylane_partition_uncommitted_seconds") > age);
        assert_eq!(stage.metric("keylane_partition_incomplete"), 2.0);
        // The answer to the commit stores it. No other progress was made.
        let answer = |partition| SourceEvent::Committed { partition, result: Ok(()) };
        let mut script = stage.script.lock().unwrap();
        let answers: Vec<_> = script.commits.drain(..).map(answer).collect();
        script.events.extend(answers);
        script.events.push(SourceEvent::Lost(vec![Partition::new("other", 1)]));
        drop(script);
        let deadline = Instant::now() + Duration::from_secs(60);
        while stage.metric("keylane_rebalances_total") < 2.0 {
            assert!(Instant::now() < deadline, "the events are not handled");
        }
        assert_eq!(stage.metric("keylane_partition_uncommitted_seconds"), 0.0);
        assert_eq!(stage.metric("keylane_commits_total"), 1.0);
        drop(go);
        stage.consumer.stop(Duration::ZERO);
    }
}
