//! A service that is told to stop lets what has begun come to its end, and begins nothing more.

use std::net::TcpStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::common::{Log, builder, serve};
use keylane_service::handle::{Attempt, AttemptFailure, FunctionHandler};
use keylane_service::http::{HttpServer, HttpSettings, StartingServer};
use keylane_service::{Kind, Service};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use tokio::sync::watch;

/// More than any stop here takes.
const LONG: Duration = Duration::from_secs(60);

/// A kind whose steps are tried once. Each says that it is there and ends; whatever is told to give up fails.
fn once(begun: &UnboundedSender<()>, sums: &Arc<AtomicU32>) -> Kind {
    let (begun, sums) = (begun.clone(), Arc::clone(sums));
    let work = FunctionHandler::new(move |_| {
        let _ = begun.send(());
        async { Ok(None) }
    });
    let fan_in = FunctionHandler::new(move |attempt: Attempt| {
        let sums = Arc::clone(&sums);
        async move {
            // What it does takes a moment, and is not for nothing.
            tokio::task::yield_now().await;
            if attempt.cancelled.is_cancelled() {
                return Err(AttemptFailure::passing("it was told to give up"));
            }
            sums.fetch_add(1, Ordering::SeqCst);
            Ok(None)
        }
    });
    Kind { attempts: 1, fan_in: Some(Arc::new(fan_in)), ..Kind::new(work) }
}

async fn start(folder: &Path, kind: Kind) -> Service {
    builder(folder, &Log::default()).kind("once", kind).start().await.unwrap()
}

/// A fan-in waits for its mark on the disk before it begins. A stop in between neither fails it nor has it done twice.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_at_any_moment_costs_no_attempt() {
    for round in 0..60_u64 {
        let folder = tempfile::tempdir().unwrap();
        let (begun, mut begins) = unbounded_channel();
        let sums = Arc::default();
        let service = start(folder.path(), once(&begun, &sums)).await;
        let (server, client) = serve(&service).await;
        let id = client.submit(r#"{"kind":"once","key":"k","payload":1}"#).await;
        begins.recv().await.unwrap();
        // From before the subtask's end to behind the job's.
        tokio::time::sleep(Duration::from_micros(round * 50)).await;
        service.drain();
        server.stop(LONG).await;
        service.stop(LONG).await;

        let service = start(folder.path(), once(&begun, &sums)).await;
        let (server, client) = serve(&service).await;
        let done = client.wait(&id).await;
        assert_eq!(done["state"], "succeeded", "round {round}: {done}");
        assert_eq!(sums.load(Ordering::SeqCst), 1, "round {round}");
        server.stop(LONG).await;
        service.stop(LONG).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn drained_it_begins_nothing_and_what_runs_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (begun, mut begins) = unbounded_channel();
    let (let_end, may_end) = watch::channel(false);
    let waiting = || {
        let (begun, may_end) = (begun.clone(), may_end.clone());
        Kind::new(FunctionHandler::new(move |attempt: Attempt| {
            let mut may_end = may_end.clone();
            let _ = begun.send(attempt.number);
            async move {
                may_end.wait_for(|may| *may).await.unwrap();
                Ok(None)
            }
        }))
    };
    let service = start(folder.path(), waiting()).await;
    let (server, client) = serve(&service).await;
    let one = r#"{"kind":"once","key":"k","payload":1}"#;
    let (first, second) = (client.submit(one).await, client.submit(one).await);
    begins.recv().await.unwrap();
    service.drain();
    client.post("/v1/jobs", one).await.expect(503);
    let_end.send(true).unwrap();
    assert_eq!(client.wait(&first).await["state"], "succeeded");
    server.stop(LONG).await;
    service.stop(LONG).await;
    assert!(begins.try_recv().is_err(), "another has begun");

    let service = start(folder.path(), waiting()).await;
    let (server, client) = serve(&service).await;
    assert_eq!(client.wait(&second).await["state"], "succeeded");
    assert_eq!(begins.recv().await, Some(1));
    server.stop(LONG).await;
    service.stop(LONG).await;
}

/// On one thread, so that no other task runs between the end of the stop and the next connection.
#[tokio::test]
async fn a_stopped_server_accepts_no_connection() {
    let settings = HttpSettings { listen: ([127, 0, 0, 1], 0).into(), ..HttpSettings::default() };
    let starting = StartingServer::bind(settings.clone()).await.unwrap();
    let address = starting.address();
    TcpStream::connect(address).unwrap();
    starting.stop(LONG).await;
    TcpStream::connect(address).unwrap_err();

    let folder = tempfile::tempdir().unwrap();
    let service = builder(folder.path(), &Log::default()).start().await.unwrap();
    let server = HttpServer::start(&service, settings).await.unwrap();
    let address = server.address();
    TcpStream::connect(address).unwrap();
    server.stop(LONG).await;
    TcpStream::connect(address).unwrap_err();
    service.stop(LONG).await;
}
