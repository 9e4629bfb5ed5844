//! How long a client may leave unread what it is sent, before it is given up.
//!
//! What is written goes into the system's buffers as long as there is room. A client that is there and reads nothing
//! would be waited for without end, and keep its place among the connections, and the memory of what is still to be said
//! to it. All that a connection writes passes here, whatever it is: answers, events, messages of a WebSocket.
//!
//! That the client reads is seen when the system takes more, which is when about a third of its buffer has been read: of
//! one of 256 KiB that is about 1 KB a second in two minutes.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};

/// A connection whose writes fail with [`TimedOut`](io::ErrorKind::TimedOut) when the system has taken nothing for so
/// long. Time in which there is nothing to be written does not count.
#[derive(Debug)]
pub(super) struct Unread<S> {
    stream: S,
    within: Duration,
    /// While a write waits. Where there is room at once no timer is needed.
    pause: Option<Pin<Box<Sleep>>>,
}

impl<S> Unread<S> {
    pub(super) fn new(stream: S, within: Duration) -> Self {
        Unread { stream, within, pause: None }
    }

    /// What a write has come to: an error if it waits, and has done so for too long.
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
        let why = "the client does not read what it is sent";
        Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, why)))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Unread<S> {
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

impl<S: AsyncRead + Unpin> AsyncRead for Unread<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}
