//! Group member: on drop it leaves the group, on a thread of its own, unless it has left already.

use std::ops::Deref;
use std::sync::Arc;
use std::thread;

use rdkafka::consumer::BaseConsumer;

use super::context::ClientCallbacks;

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
