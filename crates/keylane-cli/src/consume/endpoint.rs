//! `/healthz`, `/metrics` and `/lag` of a running consumer.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Context;
use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::CONTENT_TYPE;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use keylane_stream::consumer::{Remote, Survey};
use tokio::net::TcpListener;

use super::view::{Lag, is_healthy, metrics};

/// How long the consumer may take to say how it stands. It does so between two waits of at most 100 ms,
/// unless its source hangs.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long a client may take to send its request.
const SLOWEST_REQUEST: Duration = Duration::from_secs(10);

/// Answers at this address for as long as the runtime lives. Returns where that is.
pub(super) fn listen(
    runtime: &tokio::runtime::Handle,
    address: &str,
    remote: Remote,
    stalled_after: Duration,
) -> anyhow::Result<SocketAddr> {
    let listener = runtime.block_on(TcpListener::bind(address)).with_context(|| {
        format!("cannot listen at {address}; give an address and a free port, like 127.0.0.1:9100")
    })?;
    let at = listener.local_addr()?;
    runtime.spawn(async move {
        loop {
            // A connection that breaks before it is taken is its client's affair.
            let Ok((stream, _)) = listener.accept().await else {
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            };
            let remote = remote.clone();
            let answer = service_fn(move |request| answer(request, remote.clone(), stalled_after));
            tokio::spawn(async move {
                let _ = hyper::server::conn::http1::Builder::new()
                    .timer(TokioTimer::new())
                    .header_read_timeout(SLOWEST_REQUEST)
                    .serve_connection(TokioIo::new(stream), answer)
                    .await;
            });
        }
    });
    Ok(at)
}

async fn answer(
    request: Request<Incoming>,
    remote: Remote,
    stalled_after: Duration,
) -> Result<Response<Full<Bytes>>, Infallible> {
    if request.method() != Method::GET {
        return Ok(text(StatusCode::METHOD_NOT_ALLOWED, "only GET is answered\n".to_owned()));
    }
    let asked = tokio::task::spawn_blocking(move || remote.survey(PATIENCE)).await;
    let survey = asked.ok().flatten();
    let lags: Vec<_> = survey.iter().flat_map(|survey| &survey.partitions).collect();
    let lags: Vec<_> = lags.into_iter().map(|held| Lag::new(held, stalled_after)).collect();
    Ok(match (request.uri().path(), &survey) {
        ("/healthz", survey) => health(survey.as_ref(), &lags),
        ("/metrics", Some(survey)) => text(StatusCode::OK, metrics(survey, &lags)),
        ("/lag", Some(_)) => {
            let body = serde_json::to_string(&lags).expect("numbers and text are JSON");
            of_type(StatusCode::OK, "application/json", body)
        }
        ("/metrics" | "/lag", None) => health(None, &lags),
        _ => text(StatusCode::NOT_FOUND, "there are /healthz, /metrics and /lag\n".to_owned()),
    })
}

fn health(survey: Option<&Survey>, lags: &[Lag]) -> Response<Full<Bytes>> {
    match survey {
        None => text(StatusCode::SERVICE_UNAVAILABLE, "the consumer does not answer\n".to_owned()),
        Some(_) if is_healthy(lags) => text(StatusCode::OK, "ok\n".to_owned()),
        Some(_) => {
            let stalled = lags.iter().filter_map(|lag| {
                let live = lag.live.as_ref().filter(|live| live.stalled)?;
                let seconds = live.without_progress_seconds;
                Some(format!("{} has made no progress for {seconds:.1} s\n", lag.partition))
            });
            text(StatusCode::SERVICE_UNAVAILABLE, stalled.collect())
        }
    }
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
