//! Takeover of a connection by its event stream, which frees the HTTP library's buffers.
//!
//! For as long as an answer is sent, the library keeps a buffer of 8 KiB for reads from the
//! connection and one for writes. A stream of events lasts for hours and is mostly idle, so it
//! continues without them.
//!
//! # Protocol
//!
//! 1. Each connection has a [`TakeoverSlot`], which every request carries in its extensions.
//! 2. The library sends the head of the answer and the first chunks: they come from [`TakeoverBody`],
//!    the body of the answer. When the library asks for more, the body puts the stream into the
//!    slot, wakes the connection, and never yields anything again.
//! 3. [`FlushWatcher`], the connection's transport, marks the slot with the first flush that succeeds
//!    after that. The connection then drops the library's state, and [`send`] continues with the
//!    transport.
//!
//! *Nothing is lost or sent twice:* the library flushes its transport only when its own buffer is
//! empty, and nothing can enter the buffer after step 2. So at the mark, everything that the body
//! yielded is written. The chunked transfer coding has no state between two chunks.
//!
//! *The mark comes:* the body wakes the connection, and each poll of a connection ends with a
//! flush. If the flush waits for room, the transport wakes the connection when there is some.
//!
//! HTTP/1.0 has no chunks, and the answer to HEAD has no body: there the stream stays with the
//! library.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use axum::body::Bytes;
use axum::http::request::Parts;
use axum::http::{Method, Version};
use bytes::Buf;
use futures_util::Stream;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use super::event_stream::EventStream;

/// Slot of a connection for the stream that takes it over.
#[derive(Clone, Debug, Default)]
pub(super) struct TakeoverSlot(Arc<SlotState>);

#[derive(Debug, Default)]
struct SlotState {
    /// One of the steps below. Only the connection's own task reads and changes it.
    step: AtomicU8,
    stream: Mutex<Option<Box<EventStream>>>,
}

/// No stream is in the slot.
const EMPTY: u8 = 0;
/// A stream is in the slot; the library may still have something to write.
const OFFERED: u8 = 1;
/// The library has written everything that the body yielded.
const WRITTEN: u8 = 2;

impl TakeoverSlot {
    fn offer(&self, stream: Box<EventStream>) {
        *self.0.stream.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
        self.0.step.store(OFFERED, Relaxed);
    }

    fn flushed(&self) {
        if self.0.step.load(Relaxed) == OFFERED {
            self.0.step.store(WRITTEN, Relaxed);
        }
    }

    /// Takes the stream, once the library has written everything that the body yielded.
    pub(super) fn take(&self) -> Option<Box<EventStream>> {
        if self.0.step.load(Relaxed) != WRITTEN {
            return None;
        }
        self.0.step.store(EMPTY, Relaxed);
        self.0.stream.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

/// Returns the connection's slot if the request's answer can take the connection over.
pub(super) fn slot(parts: &Parts) -> Option<TakeoverSlot> {
    let has_chunks = parts.version == Version::HTTP_11 && parts.method == Method::GET;
    parts.extensions.get::<TakeoverSlot>().filter(|_| has_chunks).cloned()
}

/// Body of an answer that takes its connection over. It yields the initial events.
#[derive(Debug)]
pub(super) struct TakeoverBody {
    slot: TakeoverSlot,
    /// Stream; `None` once it is in the slot.
    stream: Option<Box<EventStream>>,
}

impl TakeoverBody {
    pub(super) fn new(slot: TakeoverSlot, stream: EventStream) -> Self {
        TakeoverBody { slot, stream: Some(Box::new(stream)) }
    }
}

impl Stream for TakeoverBody {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let Some(mut stream) = self.stream.take() else { return Poll::Pending };
        if let Some(first) = stream.take_first() {
            self.stream = Some(stream);
            return Poll::Ready(Some(Ok(first)));
        }
        self.slot.offer(stream);
        // Causes another poll, whose flush shows that everything is written.
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Transport that marks its slot on flushes.
#[derive(Debug)]
pub(super) struct FlushWatcher<S> {
    stream: S,
    slot: TakeoverSlot,
}

impl<S> FlushWatcher<S> {
    pub(super) fn new(stream: S, slot: TakeoverSlot) -> Self {
        FlushWatcher { stream, slot }
    }

    pub(super) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FlushWatcher<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FlushWatcher<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, parts)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = ready!(Pin::new(&mut self.stream).poll_flush(context));
        if flushed.is_ok() {
            self.slot.flushed();
        }
        Poll::Ready(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Sends a stream of events until the server stops or the client disconnects. `has_more` says that
/// bytes behind the request were read already.
pub(super) async fn send<S>(mut transport: S, mut events: Box<EventStream>, mut has_more: bool)
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    loop {
        let mut byte = [0];
        let text = tokio::select! {
            text = events.next() => text,
            // Further requests wait until the answer ends, as with the library. So the connection
            // is read only until there is data, to detect its end.
            read = transport.read(&mut byte), if !has_more => match read {
                Ok(1..) => {
                    has_more = true;
                    continue;
                }
                Ok(0) | Err(_) => return,
            },
        };
        let is_last = text.is_none();
        if chunk(&mut transport, text.unwrap_or_default()).await.is_err() {
            return;
        }
        if is_last {
            let _ = transport.shutdown().await;
            return;
        }
    }
}

/// Writes one chunk of the chunked transfer coding. An empty chunk is the last.
async fn chunk<S: AsyncWrite + Unpin>(transport: &mut S, text: Bytes) -> io::Result<()> {
    let size = format!("{:x}\r\n", text.len());
    let mut all = Buf::chain(size.as_bytes(), text).chain(&b"\r\n"[..]);
    transport.write_all_buf(&mut all).await?;
    transport.flush().await
}
