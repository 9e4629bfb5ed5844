//! Send queue of one client's connection, bounded by number and by bytes.
//!
//! Most messages are small. But a job and its end contain the result of its fan-in, which may be
//! many megabytes. So a bound on the number alone would not bound the memory for a slow reader.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Maximum number of queued messages.
const WAITING: usize = 64;

/// Maximum total size of the queued messages, in bytes. A larger message waits until the queue is
/// empty, and is then queued alone.
const WAITING_BYTES: u32 = 1024 * 1024;

/// Sender side of the queue.
#[derive(Debug)]
pub(super) struct SendQueue<T> {
    to: mpsc::Sender<(T, QueuePermit)>,
    /// One permit for each byte of free capacity. Closed with the receiver.
    room: Arc<Semaphore>,
}

/// Receiver side of the queue.
#[derive(Debug)]
pub(super) struct SendQueueReceiver<T> {
    from: mpsc::Receiver<(T, QueuePermit)>,
    room: Arc<Semaphore>,
}

/// Capacity used by a message until it is sent; released on drop.
#[derive(Debug)]
pub(super) struct QueuePermit(
    #[expect(dead_code, reason = "it is there to be dropped")] OwnedSemaphorePermit,
);

/// The client has disconnected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Disconnected;

pub(super) fn outbox<T>() -> (SendQueue<T>, SendQueueReceiver<T>) {
    let room = Arc::new(Semaphore::new(WAITING_BYTES as usize));
    let (to, from) = mpsc::channel(WAITING);
    (SendQueue { to, room: Arc::clone(&room) }, SendQueueReceiver { from, room })
}

impl<T> Clone for SendQueue<T> {
    fn clone(&self) -> Self {
        SendQueue { to: self.to.clone(), room: Arc::clone(&self.room) }
    }
}

impl<T> SendQueue<T> {
    /// Queues a message of `bytes` bytes as soon as there is capacity. Cancel safe: dropped before,
    /// the message is not queued.
    ///
    /// Fails if the receiver is dropped.
    pub(super) async fn send(&self, said: T, bytes: usize) -> Result<(), Disconnected> {
        let bytes = u32::try_from(bytes).unwrap_or(WAITING_BYTES).min(WAITING_BYTES);
        let room =
            Arc::clone(&self.room).acquire_many_owned(bytes).await.map_err(|_| Disconnected)?;
        self.to.send((said, QueuePermit(room))).await.map_err(|_| Disconnected)
    }

    /// Returns when the receiver is dropped.
    pub(super) async fn closed(&self) {
        self.to.closed().await;
    }
}

impl<T> SendQueueReceiver<T> {
    /// Returns the next message with its capacity, or `None` at the end.
    pub(super) async fn recv(&mut self) -> Option<(T, QueuePermit)> {
        self.from.recv().await
    }
}

impl<T> Drop for SendQueueReceiver<T> {
    fn drop(&mut self) {
        self.room.close();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    const ALL: usize = WAITING_BYTES as usize;

    /// Regression: only their number was bounded, and 64 events with 16 MiB of results each waited
    /// for a client that did not read.
    #[tokio::test]
    async fn what_waits_is_bounded_by_its_bytes_as_well() {
        let (outbox, mut unsent) = outbox();
        outbox.send(1, ALL / 2).await.unwrap();
        outbox.send(2, ALL / 2).await.unwrap();
        let mut third = std::pin::pin!(outbox.send(3, 100 * ALL));
        assert_eq!(third.as_mut().now_or_never(), None);
        let (first, _) = unsent.recv().await.unwrap();
        assert_eq!(third.as_mut().now_or_never(), None, "it takes all there is");
        let (second, room) = unsent.recv().await.unwrap();
        assert_eq!(third.as_mut().now_or_never(), None, "the second is not sent yet");
        drop(room);
        third.await.unwrap();
        let (third, _) = unsent.recv().await.unwrap();
        assert_eq!([first, second, third], [1, 2, 3]);
    }

    #[tokio::test]
    async fn what_is_small_is_bounded_by_its_number() {
        let (outbox, mut unsent) = outbox();
        for number in 0..WAITING {
            outbox.send(number, 0).await.unwrap();
        }
        assert_eq!(outbox.send(WAITING, 0).now_or_never(), None);
        assert_eq!(unsent.recv().await.map(|(first, _)| first), Some(0));
        assert_eq!(outbox.send(WAITING, 0).now_or_never(), Some(Ok(())));
    }

    #[tokio::test]
    async fn who_waits_for_room_learns_that_the_client_is_gone() {
        let (outbox, unsent) = outbox();
        outbox.send(1, ALL).await.unwrap();
        let mut second = std::pin::pin!(outbox.send(2, 1));
        assert_eq!(second.as_mut().now_or_never(), None);
        drop(unsent);
        assert_eq!(second.await, Err(Disconnected));
        assert_eq!(outbox.send(3, 0).await, Err(Disconnected));
        outbox.closed().await;
    }
}
