//! `/healthz`, `/readyz`, `/metrics` and `/lag` of a running consumer.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{CONTENT_TYPE, HOST};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use keylane_stream::consumer::{ConsumerHandle, ConsumerStatus};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;

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
) -> anyhow::Result<SocketAddr> {
    let listener = runtime.block_on(TcpListener::bind(address)).with_context(|| {
        format!("cannot listen at {address}; give an address and a free port, like 127.0.0.1:9100")
    })?;
    let at = listener.local_addr()?;
    let is_local = at.ip().is_loopback();
    let connections = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    runtime.spawn(async move {
        loop {
            // A connection that breaks before it is taken is its client's affair.
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            // The client waits if there are too many, and is refused by the system if there are many more.
            let Ok(permit) = Arc::clone(&connections).acquire_owned().await else { return };
            let handle = handle.clone();
            let answer =
                service_fn(move |request| answer(request, is_local, handle.clone(), patience));
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
    is_local: bool,
    handle: ConsumerHandle,
    patience: HealthThresholds,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.method() != Method::GET {
        return Ok(text(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered\n".to_owned()));
    }
    if is_local && !has_honest_host(&request) {
        let what = "the request names another host; ask by address, or as localhost\n";
        return Ok(text(StatusCode::FORBIDDEN, what.to_owned()));
    }
    let asked = tokio::task::spawn_blocking(move || handle.status(PATIENCE)).await;
    let status = asked.ok().flatten();
    let lags: Vec<_> = status.iter().flat_map(|status| &status.partitions).collect();
    let lags: Vec<_> = lags.into_iter().map(|held| PartitionLag::new(held, patience)).collect();
    Ok(match (request.uri().path(), &status) {
        ("/healthz", status) => health(status.as_ref(), &lags, patience),
        ("/readyz", status) => readiness(status.as_ref()),
        ("/metrics", Some(status)) => text(StatusCode::OK, metrics(status, &lags)),
        ("/lag", Some(_)) => {
            let body = serde_json::to_string(&lags).expect("numbers and text are JSON");
            of_type(StatusCode::OK, "application/json", body)
        }
        ("/metrics" | "/lag", None) => health(None, &lags, patience),
        _ => text(
            StatusCode::NOT_FOUND,
            "there are /healthz, /readyz, /metrics and /lag\n".to_owned(),
        ),
    })
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

fn text(status: StatusCode, body: String) -> Response<Full<Bytes>> {
    of_type(status, "text/plain; charset=utf-8", body)
}

fn of_type(status: StatusCode, kind: &'static str, body: String) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    let kind = hyper::header::HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
