//! A service of a test's own, and a client that speaks to it over HTTP.

#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod acting;
pub(crate) mod attempts;
pub(crate) mod child;
#[cfg(feature = "postgres")]
pub(crate) mod cluster;
pub(crate) mod slow;
pub(crate) mod stage;
pub(crate) mod webhook_receiver;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use keylane_service::handle::{Attempt, AttemptFailure, AttemptResult, FunctionHandler};
use keylane_service::http::{self, HttpServer};
use keylane_service::{Kind, Service, ServiceBuilder, ServiceSettings};
use serde_json::Value;

/// What has begun and ended, in order: the key and the payload of each attempt.
#[derive(Clone, Debug, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    pub(crate) fn add(&self, line: impl Into<String>) {
        self.0.lock().unwrap().push(line.into());
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }
}

/// Four slots, and the store in this folder.
pub(crate) fn settings(folder: &Path) -> ServiceSettings {
    ServiceSettings { slots: 4, ..ServiceSettings::new(folder.join("store")) }
}

/// A service whose kinds answer, fail, or wait to be told.
pub(crate) fn builder(folder: &Path, log: &Log) -> ServiceBuilder {
    builder_with(settings(folder), log)
}

/// The same with these settings.
pub(crate) fn builder_with(settings: ServiceSettings, log: &Log) -> ServiceBuilder {
    let echo = log.clone();
    let fails = log.clone();
    Service::builder(settings)
        .kind(
            "echo",
            Kind::new(FunctionHandler::new(move |attempt: Attempt| {
                let log = echo.clone();
                async move {
                    log.add(format!("{} {}", attempt.key().unwrap_or_default(), text(&attempt)));
                    Ok(serde_json::value::RawValue::from_string(text(&attempt)).ok())
                }
            })),
        )
        .kind(
            "fail",
            Kind {
                attempts: 2,
                backoff: keylane::Backoff { first: Duration::from_millis(1), ..Default::default() },
                ..Kind::new(FunctionHandler::new(move |attempt: Attempt| {
                    let log = fails.clone();
                    async move {
                        log.add(format!("try {} of {}", attempt.number, text(&attempt)));
                        let answer: AttemptResult = Err(AttemptFailure::passing("it always fails"));
                        answer
                    }
                }))
            },
        )
        .kind(
            "hang",
            Kind::new(FunctionHandler::new(|attempt: Attempt| async move {
                attempt.cancelled.cancelled().await;
                Err(AttemptFailure::passing("given up"))
            })),
        )
        .kind("remote", Kind::leased(Duration::from_secs(30)))
}

pub(crate) fn text(attempt: &Attempt) -> String {
    String::from_utf8_lossy(&attempt.payload).into_owned()
}

/// A client of a server.
#[derive(Clone, Debug)]
pub(crate) struct Client {
    pub(crate) address: SocketAddr,
    pub(crate) http: reqwest::Client,
}

/// An answer, read to its end.
#[derive(Clone, Debug)]
pub(crate) struct Answered {
    pub(crate) status: u16,
    pub(crate) headers: reqwest::header::HeaderMap,
    pub(crate) text: String,
}

impl Answered {
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|error| panic!("{error}: {}", self.text))
    }

    #[track_caller]
    pub(crate) fn expect(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }

    /// Expects that a change was accepted: it is in progress, or has ended before the answer.
    #[track_caller]
    pub(crate) fn accepted(self) -> Self {
        assert!(matches!(self.status, 200 | 202), "{}: {}", self.status, self.text);
        self
    }
}

impl Client {
    pub(crate) fn of(address: SocketAddr) -> Self {
        let _ = rustls::crypto::ring::default_provider().install_default();
        Client { address, http: reqwest::Client::new() }
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answered {
        let url = format!("http://{}{path}", self.address);
        let method = reqwest::Method::from_bytes(method.as_bytes()).unwrap();
        let mut request = self.http.request(method, url).body(body.to_owned());
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let answer = request.send().await.unwrap();
        let (status, headers) = (answer.status().as_u16(), answer.headers().clone());
        Answered { status, headers, text: answer.text().await.unwrap() }
    }

    pub(crate) async fn get(&self, path: &str) -> Answered {
        self.send("GET", path, &[], "").await
    }

    pub(crate) async fn post(&self, path: &str, body: &str) -> Answered {
        self.send("POST", path, &[("content-type", "application/json")], body).await
    }

    /// Submits a job and returns its id.
    pub(crate) async fn submit(&self, job: &str) -> String {
        let answer = self.post("/v1/jobs", job).await.expect(202);
        answer.json()["id"].as_str().unwrap().to_owned()
    }

    /// Waits until a job is over, and returns it.
    pub(crate) async fn wait(&self, id: &str) -> Value {
        self.wait_until(id, |job| {
            matches!(job["state"].as_str(), Some("succeeded" | "failed" | "cancelled"))
        })
        .await
    }

    /// Waits until a job is as wanted, by its version.
    pub(crate) async fn wait_until(&self, id: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let path = format!("/v1/jobs/{id}");
        let mut tag = String::new();
        let mut last = String::new();
        for _ in 0..10_000 {
            let headers = [("prefer", "wait=10"), ("if-none-match", tag.as_str())];
            let headers = if tag.is_empty() { &headers[..0] } else { &headers[..] };
            let answer = self.send("GET", &path, headers, "").await;
            tag = answer.headers["etag"].to_str().unwrap().to_owned();
            if answer.status == 200 {
                last.clone_from(&answer.text);
            }
            if answer.status == 200 && wanted(&answer.json()) {
                return answer.json();
            }
        }
        panic!("never was as wanted: {last} {tag}");
    }
}

/// A server on a port of its own.
pub(crate) async fn serve(service: &Service) -> (HttpServer, Client) {
    serve_with(service, http::HttpSettings::default()).await
}

pub(crate) async fn serve_with(
    service: &Service,
    settings: http::HttpSettings,
) -> (HttpServer, Client) {
    let settings = http::HttpSettings { listen: ([127, 0, 0, 1], 0).into(), ..settings };
    let server = HttpServer::start(service, settings).await.unwrap();
    let client = Client::of(server.address());
    (server, client)
}
