//! A receiver of webhooks, or other POST requests, which answers when a test says so.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::http::{HeaderMap, StatusCode};
use axum::routing::post;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::mpsc;

/// A webhook that a receiver has got.
pub(crate) struct Received {
    pub(crate) headers: HashMap<String, String>,
    body: String,
    /// Sends the response.
    answer: tokio::sync::oneshot::Sender<StatusCode>,
}

impl Received {
    pub(crate) fn id(&self) -> &str {
        &self.headers["webhook-id"]
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Verifies the signature as a receiver does, with one of its secrets.
    pub(crate) fn is_signed_with(&self, secret: &str) -> bool {
        let key = BASE64_STANDARD.decode(&secret[6..]).unwrap();
        let key = hmac::Key::new(hmac::HMAC_SHA256, &key);
        let signed = format!("{}.{}.{}", self.id(), self.headers["webhook-timestamp"], self.body);
        let signatures = self.headers["webhook-signature"].split(' ');
        let mut signatures = signatures.map(|it| it.strip_prefix("v1,").unwrap());
        signatures.any(|signature| {
            let tag = BASE64_STANDARD.decode(signature).unwrap();
            hmac::verify(&key, signed.as_bytes(), &tag).is_ok()
        })
    }

    pub(crate) fn answer(self, status: u16) {
        self.answer.send(StatusCode::from_u16(status).unwrap()).unwrap();
    }
}

/// Receiver of webhooks, which answers when a test says so.
pub(crate) struct Receiver {
    pub(crate) address: SocketAddr,
    received: mpsc::UnboundedReceiver<Received>,
}

impl Receiver {
    pub(crate) async fn start() -> Self {
        let (sender, received) = mpsc::unbounded_channel();
        let sender = Arc::new(sender);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let take = move |headers: HeaderMap, body: String| async move {
            let headers = headers.iter();
            let headers = headers
                .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
                .collect();
            let (answer, answered) = tokio::sync::oneshot::channel();
            let _ = sender.send(Received { headers, body, answer });
            let status = answered.await.unwrap_or(StatusCode::SERVICE_UNAVAILABLE);
            (status, "so it is")
        };
        let routes = Router::new().fallback(post(take));
        tokio::spawn(async move { axum::serve(listener, routes).await });
        Receiver { address, received }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    pub(crate) async fn next(&mut self) -> Received {
        self.received.recv().await.unwrap()
    }
}
