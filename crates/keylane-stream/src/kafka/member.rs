//! The client as its source has it: dropped, it leaves the group on a thread of its own, if it has not left yet.

use std::ops::Deref;
use std::sync::Arc;
use std::thread;

use rdkafka::consumer::BaseConsumer;

use super::context::Context;

/// A client that is a member of a group.
pub(super) struct GroupMember {
    /// None only while this is dropped.
    consumer: Option<Arc<BaseConsumer<Context>>>,
}

impl GroupMember {
    pub(super) fn new(consumer: Arc<BaseConsumer<Context>>) -> Self {
        GroupMember { consumer: Some(consumer) }
    }

    /// The same client, for another user of it.
    pub(super) fn share(&self) -> Arc<BaseConsumer<Context>> {
        Arc::clone(self.consumer.as_ref().expect("it is there until this is dropped"))
    }
}

impl Deref for GroupMember {
    type Target = BaseConsumer<Context>;

    fn deref(&self) -> &Self::Target {
        self.consumer.as_deref().expect("it is there until this is dropped")
    }
}

impl Drop for GroupMember {
    fn drop(&mut self) {
        let Some(consumer) = self.consumer.take() else { return };
        if consumer.closed() {
            return drop(consumer);
        }
        // The client waits for the group's broker when it is dropped, for as long as that is away.
        let leave = thread::Builder::new().name("keylane-leave".to_owned());
        leave.spawn(move || drop(consumer)).expect("a thread can be started");
    }
}
