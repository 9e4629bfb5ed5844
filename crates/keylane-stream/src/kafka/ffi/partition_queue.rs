//! The client's queue of one partition.

use std::ffi::{CStr, CString, c_void};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::Arc;

use keylane_storage::ThreadNotify;
use rdkafka::bindings as c;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::types::RDKafkaErrorCode;

use super::super::topic_partition::TopicPartition;
use super::NativeObject;
use crate::{Header, Position};

/// Number of waiting messages from which they are read as a batch.
const MIN_BATCH: usize = 256;

/// Maximum number of messages in a batch.
const MAX_BATCH: usize = 1024;

/// Queue of one partition. Its records do not enter the client's common queue.
pub(in crate::kafka) struct PartitionQueue<C: ConsumerContext + 'static> {
    queue: NativeObject<c::rd_kafka_queue_t>,
    /// Notified when the queue is no longer empty. The client has its address until the drop.
    _wakeup: Arc<ThreadNotify>,
    /// Client of the queue. Dropped after it.
    client: Arc<BaseConsumer<C>>,
}

// SAFETY: the C library allows calls for a queue from any thread, and the other fields are `Send`.
unsafe impl<C: ConsumerContext + 'static> Send for PartitionQueue<C> {}

/// Whether a queue delivers its next message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::kafka) enum NextMessage {
    Deliver,
    /// It stays in the queue.
    Keep,
}

impl<C: ConsumerContext + 'static> PartitionQueue<C> {
    /// Separates the queue of a partition from the common queue. `None` if the name has a null character, as no
    /// topic's has, or if the client is no consumer.
    pub(in crate::kafka) fn split(
        client: &Arc<BaseConsumer<C>>,
        name: &TopicPartition,
        wakeup: Arc<ThreadNotify>,
    ) -> Option<Self> {
        let topic = CString::new(&*name.topic).ok()?;
        let kafka = client.client().native_ptr();
        // SAFETY: the client is borrowed, and the topic lives during the call. The queue is a counted
        // reference, which its destructor releases, before `client` is dropped. Forwarding to null ends the
        // forwarding. The address is that of the `ThreadNotify`, which `_wakeup` keeps until after the drop has
        // removed the callback.
        let queue = unsafe {
            let queue = c::rd_kafka_queue_get_partition(kafka, topic.as_ptr(), name.number);
            let queue = NativeObject::new(queue, c::rd_kafka_queue_destroy)?;
            c::rd_kafka_queue_forward(queue.get(), ptr::null_mut());
            let address = Arc::as_ptr(&wakeup).cast_mut().cast::<c_void>();
            c::rd_kafka_queue_cb_event_enable(queue.get(), Some(notify), address);
            queue
        };
        Some(PartitionQueue { queue, _wakeup: wakeup, client: Arc::clone(client) })
    }

    /// Delivers at most `max` of the messages that are there, without waiting. If [`NextMessage::Keep`] is returned, fewer are
    /// delivered, unless the queue is long. Returns whether the client's own position must be set again, with a seek
    /// to the next position that was not delivered.
    ///
    /// `deliver` must not panic: that would end the process.
    #[must_use]
    pub(in crate::kafka) fn serve<F>(&self, max: usize, deliver: F) -> bool
    where
        F: FnMut(&ClientMessage) -> NextMessage,
    {
        let waiting = self.waiting();
        if waiting < MIN_BATCH {
            self.serve_each(deliver);
            return false;
        }
        self.serve_batch(max.min(waiting), deliver)
    }

    /// Returns the number of messages that are there.
    pub(in crate::kafka) fn waiting(&self) -> usize {
        // SAFETY: the queue lives.
        unsafe { c::rd_kafka_queue_length(self.queue.get()) }
    }

    /// Delivers messages one by one, until [`NextMessage::Keep`] is returned.
    fn serve_each<F>(&self, deliver: F)
    where
        F: FnMut(&ClientMessage) -> NextMessage,
    {
        let mut served = Served { deliver, client: self.client.client().native_ptr() };
        // This function is deprecated, but the other ones take several locks and read the clock for each message.
        // SAFETY: the queue lives. The callback gets the address of `served`, whose type it has, and is called only
        // during this call.
        unsafe {
            c::rd_kafka_consume_callback_queue(
                self.queue.get(),
                0,
                Some(deliver_message::<F>),
                (&raw mut served).cast(),
            );
        }
    }

    /// Delivers a batch. Its memory is given back at once at the end: the client's thread that fetches has allocated it, and each
    /// time that both threads want the same lock of the allocator, one of them sleeps.
    ///
    /// Returns `true` if the last message was an error. In librdkafka 2.12 this function moves the client's position to one behind an
    /// error, for the end of a partition too (`rd_kafka_q_serve_rkmessages`). A pause or a rebalance before the next
    /// message would then skip a record.
    fn serve_batch(
        &self,
        max: usize,
        mut deliver: impl FnMut(&ClientMessage) -> NextMessage,
    ) -> bool {
        let mut room = [ptr::null_mut(); MAX_BATCH];
        // SAFETY: the queue lives. The function writes at most as many pointers as there is room for, and returns how many,
        // or -1. The messages live until `batch` is dropped.
        let batch = unsafe {
            let max = max.min(MAX_BATCH);
            let taken =
                c::rd_kafka_consume_batch_queue(self.queue.get(), 0, room.as_mut_ptr(), max);
            MessageBatch(&room[..usize::try_from(taken).unwrap_or(0)])
        };
        let mut is_error = false;
        for message in batch.0 {
            let message = ClientMessage(NonNull::new(*message).expect("the client has written it"));
            is_error = message.error().is_some();
            deliver(&message);
        }
        is_error
    }
}

/// Messages that this value owns.
struct MessageBatch<'a>(&'a [*mut c::rd_kafka_message_t]);

impl Drop for MessageBatch<'_> {
    fn drop(&mut self) {
        // SAFETY: the messages are owned, and each is destroyed once.
        self.0.iter().for_each(|message| unsafe { c::rd_kafka_message_destroy(*message) });
    }
}

/// Argument of [`deliver_message`].
struct Served<F> {
    deliver: F,
    client: *mut c::rd_kafka_t,
}

/// Callback of the client for each message of a queue.
unsafe extern "C" fn deliver_message<F>(message: *mut c::rd_kafka_message_t, served: *mut c_void)
where
    F: FnMut(&ClientMessage) -> NextMessage,
{
    // SAFETY: the address of the `served` of `PartitionQueue::serve`, which nothing else uses meanwhile. The message is not null, and
    // lives until the callback returns; it is only borrowed. The client's function that ends the delivery is for
    // callbacks.
    unsafe {
        let served = &mut *served.cast::<Served<F>>();
        let message = ClientMessage(NonNull::new_unchecked(message));
        if (served.deliver)(&message) == NextMessage::Keep {
            c::rd_kafka_yield(served.client);
        }
    }
}

/// Callback of the client for a queue that is no longer empty.
unsafe extern "C" fn notify(_: *mut c::rd_kafka_t, wakeup: *mut c_void) {
    // SAFETY: the address in `PartitionQueue::_wakeup`, which lives until the callback is removed.
    unsafe { &*wakeup.cast::<ThreadNotify>() }.notify();
}

impl<C: ConsumerContext + 'static> Drop for PartitionQueue<C> {
    fn drop(&mut self) {
        // SAFETY: the queue lives. The client calls `notify` under the lock of the queue, which this call takes too. So no
        // call is in progress when it returns.
        unsafe { c::rd_kafka_queue_cb_event_enable(self.queue.get(), None, ptr::null_mut()) }
    }
}

/// A record, or an error of its partition, in the client's memory.
///
/// It exists only while its message is delivered, and is passed on by reference.
pub(in crate::kafka) struct ClientMessage(NonNull<c::rd_kafka_message_t>);

impl ClientMessage {
    fn message(&self) -> &c::rd_kafka_message_t {
        // SAFETY: the message lives as long as this value.
        unsafe { self.0.as_ref() }
    }

    /// Returns the code of an error; `None` for a record.
    pub(in crate::kafka) fn error(&self) -> Option<RDKafkaErrorCode> {
        match self.message().err {
            c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => None,
            error => Some(error.into()),
        }
    }

    /// Returns the client's text about an error.
    pub(in crate::kafka) fn reason(&self) -> String {
        // SAFETY: the message lives. The text is null, or a string that belongs to the message or to the library; it is
        // copied.
        unsafe {
            let reason = c::rd_kafka_message_errstr(self.0.as_ptr());
            if reason.is_null() {
                return String::new();
            }
            CStr::from_ptr(reason).to_string_lossy().into_owned()
        }
    }

    /// Returns the position of a record, or the end of the partition for the error that reports it. Other
    /// errors may have none.
    pub(in crate::kafka) fn position(&self) -> Option<Position> {
        Position::checked(self.message().offset)
    }

    pub(in crate::kafka) fn key(&self) -> Option<&[u8]> {
        let message = self.message();
        // SAFETY: null or `key_len` bytes that belong to the message.
        unsafe { bytes(message.key, message.key_len) }
    }

    pub(in crate::kafka) fn payload(&self) -> Option<&[u8]> {
        let message = self.message();
        // SAFETY: null or `len` bytes that belong to the message.
        unsafe { bytes(message.payload, message.len) }
    }

    /// Returns the time of a record, in milliseconds since 1970, if it has one.
    pub(in crate::kafka) fn timestamp(&self) -> Option<u64> {
        let mut kind = c::rd_kafka_timestamp_type_t::RD_KAFKA_TIMESTAMP_NOT_AVAILABLE;
        // SAFETY: the message lives; the function writes `kind`.
        let time = unsafe { c::rd_kafka_message_timestamp(self.0.as_ptr(), &raw mut kind) };
        u64::try_from(time).ok()
    }

    /// Returns the leader epoch of a record, if the broker has epochs.
    pub(in crate::kafka) fn leader_epoch(&self) -> Option<u32> {
        // SAFETY: the message lives.
        let epoch = unsafe { c::rd_kafka_message_leader_epoch(self.0.as_ptr()) };
        u32::try_from(epoch).ok()
    }

    /// Copies the headers of a record, in the producer's order. Invalid UTF-8 in a name is replaced.
    pub(in crate::kafka) fn headers(&self) -> Vec<Header> {
        let mut headers = ptr::null_mut();
        // SAFETY: the message lives, and no other thread has it, as the call parses the headers and stores them in it.
        // Without an error they belong to the message.
        let error = unsafe { c::rd_kafka_message_headers(self.0.as_ptr(), &raw mut headers) };
        if error != c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
            return Vec::new();
        }
        let header = |index| {
            let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
            // SAFETY: the headers live. Without an error the name is a string, and the value null or `size` bytes; both
            // belong to the headers, and are copied.
            unsafe {
                let name_at = (&raw mut name, &raw mut value, &raw mut size);
                let error =
                    c::rd_kafka_header_get_all(headers, index, name_at.0, name_at.1, name_at.2);
                let is_there = error == c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR;
                is_there.then(|| {
                    let name = CStr::from_ptr(name).to_string_lossy().into_owned();
                    (name, bytes(value, size).map(<[u8]>::to_vec))
                })
            }
        };
        (0..).map_while(header).collect()
    }
}

/// Returns the bytes at an address; `None` if it is null.
///
/// # Safety
/// The address is null, or has `length` bytes for the lifetime.
unsafe fn bytes<'a>(address: *const c_void, length: usize) -> Option<&'a [u8]> {
    // SAFETY: the caller promises that the bytes are there.
    (!address.is_null()).then(|| unsafe { slice::from_raw_parts(address.cast(), length) })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use rdkafka::ClientConfig;
    use rdkafka::mocking::MockCluster;
    use rdkafka::producer::{BaseProducer, Producer as _};

    use super::super::super::settings::{ClientSettings, KafkaSettings};
    use super::super::super::source::KafkaSource;
    use super::*;
    use crate::source::{Source as _, SourceEvent};

    /// Writes a record with a header whose name is no text.
    fn write(brokers: &str) {
        let producer: BaseProducer =
            ClientConfig::new().set("bootstrap.servers", brokers).create().unwrap();
        let kind = |kind: c::rd_kafka_vtype_t| kind as i32;
        // SAFETY: each argument has the type that the kind before it requires, and lives during the call, which copies
        // them.
        let error = unsafe {
            c::rd_kafka_producev(
                producer.client().native_ptr(),
                kind(c::rd_kafka_vtype_t::RD_KAFKA_VTYPE_TOPIC),
                c"orders".as_ptr(),
                kind(c::rd_kafka_vtype_t::RD_KAFKA_VTYPE_HEADER),
                c"\xff".as_ptr(),
                c"value".as_ptr(),
                5_isize,
                kind(c::rd_kafka_vtype_t::RD_KAFKA_VTYPE_END),
            )
        };
        assert_eq!(error, c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR);
        producer.flush(Duration::from_secs(10)).expect("it is written");
    }

    #[test]
    fn a_record_with_a_header_whose_name_is_no_text_is_delivered() {
        let cluster = MockCluster::new(1).expect("a mock cluster starts");
        cluster.create_topic("orders", 1, 1).expect("it takes a topic");
        write(&cluster.bootstrap_servers());
        let client = ClientSettings::new(cluster.bootstrap_servers());
        let mut source = KafkaSource::join(KafkaSettings::new(client, ["orders"], "billing"))
            .expect("it takes these settings");
        let mut events = Vec::new();
        let records = loop {
            source.poll(Duration::from_millis(10), 10, &mut events).expect("the source works");
            let records = events.drain(..).find_map(|event| match event {
                SourceEvent::Records { records, .. } => Some(records),
                _ => None,
            });
            if let Some(records) = records {
                break records;
            }
        };
        let headers = vec![("\u{fffd}".to_owned(), Some(b"value".to_vec()))];
        assert_eq!(records[0].record.headers, headers);
    }
}
