//! Group member: leaves its group within a time, or else on drop, on a thread of its own.

use std::io;
use std::ops::Deref;
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread;
use std::time::{Duration, Instant};

use rdkafka::consumer::BaseConsumer;

use super::context::ClientCallbacks;

/// Time between two looks whether the client has left its group.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// Maximum time for which the thread that serves the callbacks may go on after the client has left.
const LAST_CALLBACK: Duration = Duration::from_secs(1);

/// A client that is a group member.
pub(super) struct GroupMember {
    /// `None` only during the drop.
    consumer: Option<Arc<BaseConsumer<ClientCallbacks>>>,
}

impl GroupMember {
    pub(super) fn new(consumer: Arc<BaseConsumer<ClientCallbacks>>) -> Self {
        GroupMember { consumer: Some(consumer) }
    }

    /// Returns the client for another owner.
    pub(super) fn share(&self) -> Arc<BaseConsumer<ClientCallbacks>> {
        Arc::clone(self.consumer.as_ref().expect("the client exists until the drop"))
    }

    /// Serves the client's last callbacks after `close_queue`, until it has left its group. Returns whether it has, within
    /// `timeout`.
    ///
    /// The callbacks run on a thread of their own, because one can wait for ever: a call that answers a revocation gets no reply
    /// if it is in the client's queue at the moment at which the client leaves (`rd_kafka_cgrp_op_serve` of librdkafka
    /// 2.12 frees it). Such a thread stays, with the client's memory.
    ///
    /// # Errors
    /// If the system cannot start a thread.
    pub(super) fn serve_until_left(&self, timeout: Duration) -> io::Result<bool> {
        let deadline = Instant::now() + timeout;
        let (stop, stopped) = mpsc::channel();
        let (serves, ended) = mpsc::channel();
        let is_stopped = move || stopped.try_recv().is_ok();
        serve_callbacks(self.share(), is_stopped, serves)?;
        while !self.closed() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                let _ = stop.send(());
                return Ok(false);
            }
            if ended.recv_timeout(LOOK_INTERVAL.min(left)) == Err(RecvTimeoutError::Disconnected) {
                return Ok(self.closed());
            }
        }
        let _ = ended.recv_timeout(LAST_CALLBACK);
        Ok(true)
    }
}

/// Starts a thread that polls until the client has left its group, or `is_stopped`, and then drops `serves`. No records come
/// any more.
fn serve_callbacks(
    consumer: Arc<BaseConsumer<ClientCallbacks>>,
    is_stopped: impl Fn() -> bool + Send + 'static,
    serves: Sender<()>,
) -> io::Result<()> {
    let serve = move || {
        while !consumer.closed() && !is_stopped() {
            drop(consumer.poll(LOOK_INTERVAL));
        }
        // First, so that the client ends with its last other owner.
        drop(consumer);
        drop(serves);
    };
    thread::Builder::new().name("keylane-leave".to_owned()).spawn(serve).map(drop)
}

impl Deref for GroupMember {
    type Target = BaseConsumer<ClientCallbacks>;

    fn deref(&self) -> &Self::Target {
        self.consumer.as_deref().expect("the client exists until the drop")
    }
}

impl Drop for GroupMember {
    fn drop(&mut self) {
        let Some(consumer) = self.consumer.take() else { return };
        if consumer.closed() {
            return drop(consumer);
        }
        // Dropping the client blocks until the group's broker answers, however long that takes.
        let leave = thread::Builder::new().name("keylane-leave".to_owned());
        leave.spawn(move || drop(consumer)).expect("a thread can be started");
    }
}
