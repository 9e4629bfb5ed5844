//! How long a client may pause in the middle of a body before it is given up; and what becomes of the rest of a
//! body that nobody wanted to read to its end.
//!
//! Most clients look at the answer only when they have sent everything, and lose it if the connection is closed
//! before. So what is left of a body whose request was refused is read and thrown away, if that is soon done.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, header};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt as _;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::sync::oneshot;
use tokio::time::{Sleep, sleep, timeout};

use super::serve::Settings;

/// The rest of a body did not come in time.
#[derive(Debug, thiserror::Error)]
#[error("the rest of the body did not come")]
pub(super) struct TooSlow;

/// How much of a body is read for nothing, and for how long. Who sends more is cut off.
const MOST_UNWANTED_BYTES: usize = 16 * 1024 * 1024;
const LONGEST_UNWANTED: Duration = Duration::from_secs(5);

/// Bounds the pauses in a request's body, and reads what of it the handler has not.
pub(super) async fn bound(
    State(settings): State<Arc<Settings>>,
    request: Request,
    next: Next,
) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let within = settings.body_timeout;
    // Who waits for leave to send has not begun, and need not.
    let is_asked = !request.headers().contains_key(header::EXPECT);
    let (left, mut told) = oneshot::channel();
    let flowing = |body| Flowing { body, within, pause: None, is_asked, left: Some(left) };
    let mut response = next.run(request.map(|body| Body::new(flowing(body)))).await;
    let is_read = match told.try_recv() {
        Ok(Left::Rest(rest)) => matches!(timeout(LONGEST_UNWANTED, drain(rest)).await, Ok(true)),
        Ok(Left::Broken) => false,
        Err(_) => true,
    };
    if !is_read {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// What a handler has left of a body.
#[derive(Debug)]
enum Left {
    /// This, and it can be read.
    Rest(Body),
    /// Something that will not come.
    Broken,
}

/// Whether there is nothing left.
async fn drain(mut rest: Body) -> bool {
    let mut bytes = 0;
    if rest.size_hint().lower() > MOST_UNWANTED_BYTES as u64 {
        return false;
    }
    while let Some(frame) = rest.frame().await {
        let Ok(frame) = frame else { return false };
        bytes += frame.data_ref().map_or(0, Bytes::len);
        if bytes > MOST_UNWANTED_BYTES {
            return false;
        }
    }
    true
}

/// A body that fails with [`TooSlow`] when somebody has waited too long for the next part of it. Time that
/// the server takes for a part does not count, for nobody waits then.
struct Flowing {
    body: Body,
    within: Duration,
    /// While somebody waits. What is there at once needs no timer.
    pause: Option<Pin<Box<Sleep>>>,
    /// Whether the client was asked to send it.
    is_asked: bool,
    /// Where it is said what was left. None when nothing is.
    left: Option<oneshot::Sender<Left>>,
}

impl Flowing {
    fn leave(&mut self, what: Left) {
        if let Some(left) = self.left.take() {
            // The connection may have gone meanwhile.
            let _ = left.send(what);
        }
    }
}

impl Drop for Flowing {
    fn drop(&mut self) {
        if !self.is_asked {
            self.leave(Left::Broken);
        } else if !self.body.is_end_stream() {
            let rest = std::mem::take(&mut self.body);
            self.leave(Left::Rest(rest));
        }
    }
}

impl HttpBody for Flowing {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        this.is_asked = true;
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.pause = None;
            match frame {
                Some(Ok(_)) => {}
                Some(Err(_)) => this.leave(Left::Broken),
                None => this.left = None,
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)));
        }
        let pause = this.pause.get_or_insert_with(|| Box::pin(sleep(this.within)));
        ready!(pause.as_mut().poll(context));
        this.leave(Left::Broken);
        Poll::Ready(Some(Err(TooSlow.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
