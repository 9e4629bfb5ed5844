//! How long a client may pause in the middle of a body before it is given up.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::BoxError;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio::time::{Sleep, sleep};

use super::serve::Settings;

/// The rest of a body did not come in time.
#[derive(Debug, thiserror::Error)]
#[error("the rest of the body did not come")]
pub(super) struct TooSlow;

/// Bounds the pauses in a request's body.
pub(super) async fn bound(
    State(settings): State<Arc<Settings>>,
    request: Request,
    next: Next,
) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let within = settings.body_timeout;
    next.run(request.map(|body| Body::new(Flowing { body, within, pause: None }))).await
}

/// A body that fails with [`TooSlow`] when somebody has waited too long for the next part of it. Time that
/// the server takes for a part does not count, for nobody waits then.
struct Flowing {
    body: Body,
    within: Duration,
    /// While somebody waits. What is there at once needs no timer.
    pause: Option<Pin<Box<Sleep>>>,
}

impl HttpBody for Flowing {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        let this = self.get_mut();
        if let Poll::Ready(frame) = Pin::new(&mut this.body).poll_frame(context) {
            this.pause = None;
            return Poll::Ready(frame.map(|frame| frame.map_err(BoxError::from)));
        }
        let pause = this.pause.get_or_insert_with(|| Box::pin(sleep(this.within)));
        ready!(pause.as_mut().poll(context));
        Poll::Ready(Some(Err(TooSlow.into())))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
