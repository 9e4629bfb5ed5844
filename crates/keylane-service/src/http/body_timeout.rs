//! Timeout for pauses within a request's body, and draining of a body that its handler did not
//! read.
//!
//! Most clients read the answer only after they have sent everything, and lose it if the connection
//! closes before. So the rest of a refused request's body is read and discarded, within a bound of
//! bytes and time.

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

use super::settings::HttpSettings;

/// The next part of a body did not arrive in time.
#[derive(Debug, thiserror::Error)]
#[error("the body did not arrive in time")]
pub(super) struct BodyReadTimeout;

/// Maximum number of body bytes to discard, and the maximum time for it. A connection with more is
/// closed.
const MAX_UNWANTED_BYTES: usize = 16 * 1024 * 1024;
const MAX_UNWANTED_TIME: Duration = Duration::from_secs(5);

/// Bounds the pauses within a request's body, and drains what the handler left of it.
pub(super) async fn bound(
    State(settings): State<Arc<HttpSettings>>,
    request: Request,
    next: Next,
) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let within = settings.body_timeout;
    // A client that waits for `100 Continue` has not begun to send, and need not.
    let is_asked = !request.headers().contains_key(header::EXPECT);
    let (left, mut told) = oneshot::channel();
    let flowing = |body| TimedBody { body, within, pause: None, is_asked, left: Some(left) };
    let mut response = next.run(request.map(|body| Body::new(flowing(body)))).await;
    let is_read = match told.try_recv() {
        Ok(UnreadBody::Rest(rest)) => {
            matches!(timeout(MAX_UNWANTED_TIME, drain(rest)).await, Ok(true))
        }
        Ok(UnreadBody::Broken) => false,
        Err(_) => true,
    };
    if !is_read {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    response
}

/// Unread rest of a body.
#[derive(Debug)]
enum UnreadBody {
    /// Readable rest.
    Rest(Body),
    /// The client did not send the rest, and will not.
    Broken,
}

/// Reads and discards a body. Returns whether its end was reached.
async fn drain(mut rest: Body) -> bool {
    let mut bytes = 0;
    if rest.size_hint().lower() > MAX_UNWANTED_BYTES as u64 {
        return false;
    }
    while let Some(frame) = rest.frame().await {
        let Ok(frame) = frame else { return false };
        bytes += frame.data_ref().map_or(0, Bytes::len);
        if bytes > MAX_UNWANTED_BYTES {
            return false;
        }
    }
    true
}

/// Body that fails with [`BodyReadTimeout`] when a read waits too long for the next part. Time that the
/// handler takes between reads does not count.
struct TimedBody {
    body: Body,
    within: Duration,
    /// Timer of the pending read. Data that is available at once needs no timer.
    pause: Option<Pin<Box<Sleep>>>,
    /// Whether the client was asked to send the body.
    is_asked: bool,
    /// Destination of the unread rest; `None` once it was sent.
    left: Option<oneshot::Sender<UnreadBody>>,
}

impl TimedBody {
    fn leave(&mut self, what: UnreadBody) {
        if let Some(left) = self.left.take() {
            // The connection may have closed meanwhile.
            let _ = left.send(what);
        }
    }
}

impl Drop for TimedBody {
    fn drop(&mut self) {
        if !self.is_asked {
            self.leave(UnreadBody::Broken);
        } else if !self.body.is_end_stream() {
            let rest = std::mem::take(&mut self.body);
            self.leave(UnreadBody::Rest(rest));
        }
    }
}

impl HttpBody for TimedBody {
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
                Some(Err(_)) => this.leave(UnreadBody::Broken),
                None => this.left = None,
            }
            return Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)));
        }
        let pause = this.pause.get_or_insert_with(|| Box::pin(sleep(this.within)));
        ready!(pause.as_mut().poll(context));
        this.leave(UnreadBody::Broken);
        Poll::Ready(Some(Err(BodyReadTimeout.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
