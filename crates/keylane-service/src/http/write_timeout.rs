//! Write timeout: a client that stops reading is disconnected.
//!
//! Writes go into the system's buffers as long as there is room. A client that stays connected and
//! reads nothing would otherwise keep its place among the connections, and the memory of its
//! pending messages, without end. All writes of a connection pass here: answers, events and
//! WebSocket messages.
//!
//! Progress is visible only when the system accepts more, which is when about a third of its buffer
//! was read: with a buffer of 256 KiB and two minutes, that is about 1 KB a second.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// Connection whose writes fail with [`TimedOut`](io::ErrorKind::TimedOut) after the system has
/// accepted nothing for the timeout. Time without a pending write does not count.
#[derive(Debug)]
pub(super) struct WriteTimeoutStream<S> {
    stream: S,
    within: Duration,
    /// Timer of a pending write. A write that succeeds at once needs none.
    pause: Option<Pin<Box<Sleep>>>,
}

impl<S> WriteTimeoutStream<S> {
    pub(super) fn new(stream: S, within: Duration) -> Self {
        WriteTimeoutStream { stream, within, pause: None }
    }

    /// Checks a pending write against the timeout.
    fn bound(
        &mut self,
        context: &mut Context<'_>,
        written: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        if written.is_ready() {
            self.pause = None;
            return written;
        }
        let pause = self.pause.get_or_insert_with(|| Box::pin(sleep(self.within)));
        ready!(pause.as_mut().poll(context));
        let why = "the client does not read its answers";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WriteTimeoutStream<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(context, bytes);
        this.bound(context, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(context, parts);
        this.bound(context, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WriteTimeoutStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}
