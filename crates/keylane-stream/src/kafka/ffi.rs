//! What the client's safe interface has no word for, so that this speaks to the C library: the ids of
//! topics, which a topic that is made again under the same name does not share with the one before;
//! metadata that need not be UTF-8; leader epochs; commits that are answered, but not waited for; and whether the client is in
//! its group. All that is unsafe about Kafka is in this file.

use std::ffi::{CStr, CString, c_char};
use std::ptr::{self, NonNull};
use std::time::Duration;

use rdkafka::bindings as c;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::message::BorrowedMessage;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;

use super::topic_partition::TopicPartition;
use crate::Position;

/// What tells a topic from all others that ever have its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct TopicId([u8; 16]);

impl TopicId {
    pub(super) fn bytes(&self) -> &[u8; 16] {
        &self.0
    }

    #[cfg(test)]
    pub(super) fn of(number: u8) -> Self {
        TopicId([number; 16])
    }
}

/// What a broker says about a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopicDescription {
    pub(super) topic: String,
    /// None if the broker is too old to have ids. An error if there is no such topic, say.
    pub(super) id: Result<Option<TopicId>, RDKafkaErrorCode>,
}

/// A C object that is destroyed with this.
struct NativeObject<T> {
    object: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T),
}

impl<T> NativeObject<T> {
    /// Takes over what a constructor of the C library has returned; none if that is null.
    ///
    /// # Safety
    /// `object` is null, or nobody else destroys it, and `destroy` is what does.
    unsafe fn new(object: *mut T, destroy: unsafe extern "C" fn(*mut T)) -> Option<Self> {
        Some(NativeObject { object: NonNull::new(object)?, destroy })
    }

    fn get(&self) -> *mut T {
        self.object.as_ptr()
    }
}

impl<T> Drop for NativeObject<T> {
    fn drop(&mut self) {
        // SAFETY: `new` was promised that this object is ours alone and is destroyed by this function.
        unsafe { (self.destroy)(self.object.as_ptr()) }
    }
}

/// Asks a broker for the ids of `topics`, and waits for the answer for at most `timeout`.
///
/// Any broker knows them. Unless it is told one, the client looks for the controller, which may take longer.
pub(super) fn describe<C: rdkafka::ClientContext>(
    client: &rdkafka::client::Client<C>,
    broker: i32,
    topics: &[&str],
    timeout: Duration,
) -> Result<Vec<TopicDescription>, RDKafkaErrorCode> {
    let names: Result<Vec<CString>, _> = topics.iter().map(|topic| CString::new(*topic)).collect();
    let names = names.map_err(|_| RDKafkaErrorCode::InvalidArgument)?;
    let mut names: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    let kafka = client.native_ptr();
    // SAFETY: the client lives for as long as it is borrowed here, which is longer than each of these
    // objects, and they are destroyed by the functions that belong to their constructors. The names live to
    // the end of this function, and the collection copies them.
    let (queue, options, collection) = unsafe {
        (
            NativeObject::new(c::rd_kafka_queue_new(kafka), c::rd_kafka_queue_destroy),
            NativeObject::new(
                c::rd_kafka_AdminOptions_new(
                    kafka,
                    c::rd_kafka_admin_op_t::RD_KAFKA_ADMIN_OP_DESCRIBETOPICS,
                ),
                c::rd_kafka_AdminOptions_destroy,
            ),
            NativeObject::new(
                c::rd_kafka_TopicCollection_of_topic_names(names.as_mut_ptr(), names.len()),
                c::rd_kafka_TopicCollection_destroy,
            ),
        )
    };
    let no_memory = RDKafkaErrorCode::Fail;
    let queue = queue.ok_or(no_memory)?;
    let (options, collection) = (options.ok_or(no_memory)?, collection.ok_or(no_memory)?);
    // SAFETY: all of them were made above for this client. No words are asked for if an option is refused,
    // which then is as if it were not given. The request copies what it needs of options and
    // collection; its answer goes to the queue, which we hold until it came or is dropped with the queue.
    let event = unsafe {
        c::rd_kafka_AdminOptions_set_request_timeout(options.get(), timeout_ms, ptr::null_mut(), 0);
        c::rd_kafka_AdminOptions_set_broker(options.get(), broker, ptr::null_mut(), 0);
        c::rd_kafka_DescribeTopics(kafka, collection.get(), options.get(), queue.get());
        NativeObject::new(
            c::rd_kafka_queue_poll(queue.get(), timeout_ms),
            c::rd_kafka_event_destroy,
        )
    };
    let event = event.ok_or(RDKafkaErrorCode::OperationTimedOut)?;
    // SAFETY: the event is whole and ours, and what is read from it is copied before it is destroyed.
    unsafe { read(event.get()) }
}

/// Copies what an event says.
///
/// # Safety
/// `event` points to an event of the C library's that nobody destroys meanwhile.
unsafe fn read(event: *mut c::rd_kafka_event_t) -> Result<Vec<TopicDescription>, RDKafkaErrorCode> {
    // SAFETY: the caller promises a live event. The functions return null for one of another kind, and
    // the array that they return has as many live entries as `count` then says, which belong to the event.
    unsafe {
        let error = c::rd_kafka_event_error(event);
        if error != c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
            return Err(error.into());
        }
        let result = c::rd_kafka_event_DescribeTopics_result(event);
        if result.is_null() {
            return Err(RDKafkaErrorCode::BadMessage);
        }
        let mut count = 0;
        let topics = c::rd_kafka_DescribeTopics_result_topics(result, &mut count);
        Ok((0..count).map(|index| read_topic(*topics.add(index))).collect())
    }
}

/// Copies what is said about one topic.
///
/// # Safety
/// `topic` points to a live description.
unsafe fn read_topic(topic: *const c::rd_kafka_TopicDescription_t) -> TopicDescription {
    // SAFETY: the caller promises a live description, to which name, error and id belong. The functions that
    // are given the error and the id check nothing but are given what is not null.
    unsafe {
        let name = CStr::from_ptr(c::rd_kafka_TopicDescription_name(topic));
        let topic_name = name.to_string_lossy().into_owned();
        let error = c::rd_kafka_TopicDescription_error(topic);
        if !error.is_null() {
            let code = c::rd_kafka_error_code(error);
            if code != c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                return TopicDescription { topic: topic_name, id: Err(code.into()) };
            }
        }
        let id = c::rd_kafka_TopicDescription_topic_id(topic);
        if id.is_null() {
            return TopicDescription { topic: topic_name, id: Ok(None) };
        }
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&c::rd_kafka_Uuid_most_significant_bits(id).to_be_bytes());
        bytes[8..].copy_from_slice(&c::rd_kafka_Uuid_least_significant_bits(id).to_be_bytes());
        // A broker without ids answers zeros.
        let id = Some(bytes).filter(|bytes| *bytes != [0; 16]).map(TopicId);
        TopicDescription { topic: topic_name, id: Ok(id) }
    }
}

/// What stands beside the offset of each element; what is no UTF-8 is replaced, and then read by nobody.
pub(super) fn metadata(list: &TopicPartitionList) -> Vec<String> {
    // SAFETY: the list lives for as long as it is borrowed here. It has `cnt` elements, and the metadata of
    // each is null or that many bytes, which are copied.
    unsafe {
        let list = list.ptr();
        let count = usize::try_from((*list).cnt).unwrap_or(0);
        let elements = (0..count).map(|index| &*(*list).elems.add(index));
        let text = elements.map(|element| {
            if element.metadata.is_null() {
                return String::new();
            }
            let bytes =
                std::slice::from_raw_parts(element.metadata.cast::<u8>(), element.metadata_size);
            String::from_utf8_lossy(bytes).into_owned()
        });
        text.collect()
    }
}

/// The leader epoch of each element; none where none is known.
pub(super) fn leader_epochs(list: &TopicPartitionList) -> Vec<Option<u32>> {
    // SAFETY: the list lives for as long as it is borrowed here, and has `cnt` live elements.
    unsafe {
        let list = list.ptr();
        let count = usize::try_from((*list).cnt).unwrap_or(0);
        let epoch = |index| c::rd_kafka_topic_partition_get_leader_epoch((*list).elems.add(index));
        (0..count).map(|index| u32::try_from(epoch(index)).ok()).collect()
    }
}

/// Sets the leader epochs of the elements, in their order.
pub(super) fn set_leader_epochs(list: &mut TopicPartitionList, epochs: &[Option<u32>]) {
    // SAFETY: the list lives for as long as it is borrowed here, nothing else uses it meanwhile, and it has `cnt`
    // live elements.
    unsafe {
        let list = list.ptr();
        let count = usize::try_from((*list).cnt).unwrap_or(0);
        for (index, epoch) in epochs.iter().enumerate().take(count) {
            if let Some(epoch) = epoch.and_then(|epoch| i32::try_from(epoch).ok()) {
                c::rd_kafka_topic_partition_set_leader_epoch((*list).elems.add(index), epoch);
            }
        }
    }
}

/// The leader epoch under which a record was appended, if the broker has epochs.
pub(super) fn leader_epoch(message: &BorrowedMessage<'_>) -> Option<u32> {
    // SAFETY: the message lives for as long as it is borrowed here.
    let epoch = unsafe { c::rd_kafka_message_leader_epoch(message.ptr()) };
    u32::try_from(epoch).ok()
}

/// How long the client may take to say whether it can continue elsewhere. It asks no broker for that.
const SEEK_TIMEOUT: Duration = Duration::from_secs(1);

/// Has the client continue to fetch a partition at a position. What a poll returns after this comes from there. With
/// the leader epoch of the record before, the client has the broker check that it still has that record.
pub(super) fn seek<C: ConsumerContext>(
    consumer: &BaseConsumer<C>,
    name: &TopicPartition,
    at: Position,
    epoch: Option<u32>,
) -> Result<(), RDKafkaErrorCode> {
    let mut place = TopicPartitionList::with_capacity(1);
    place
        .add_partition_offset(&name.topic, name.number, Offset::Offset(at.signed()))
        .map_err(|_| RDKafkaErrorCode::InvalidArgument)?;
    set_leader_epochs(&mut place, &[epoch]);
    let done = consumer.seek_partitions(place, SEEK_TIMEOUT);
    let done = done.map_err(|_| RDKafkaErrorCode::OperationTimedOut)?;
    let failed = done.elements().first().and_then(|element| element.error().err());
    failed.map_or(Ok(()), |error| {
        Err(error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown))
    })
}

/// Whether a consumer is in its group, as far as it knows.
pub(super) fn is_member<C: rdkafka::ClientContext>(client: &rdkafka::client::Client<C>) -> bool {
    // SAFETY: the client lives for as long as it is borrowed here, and is a consumer's or has no such data, which is
    // null. The data is ours, is read while we have it, and its member's id is null or a string in it.
    unsafe {
        let data = c::rd_kafka_consumer_group_metadata(client.native_ptr());
        let Some(data) = NativeObject::new(data, c::rd_kafka_consumer_group_metadata_destroy)
        else {
            return false;
        };
        let member = c::rd_kafka_consumer_group_metadata_member_id(data.get());
        let is_named = !member.is_null() && !CStr::from_ptr(member).is_empty();
        is_named && c::rd_kafka_consumer_group_metadata_generation_id(data.get()) >= 0
    }
}

/// Begins to commit, and has the answer called back by a later poll of the consumer. The safe interface
/// waits for it, or has none.
pub(super) fn commit<C: rdkafka::ClientContext>(
    client: &rdkafka::client::Client<C>,
    offsets: &TopicPartitionList,
) -> Result<(), RDKafkaErrorCode> {
    let kafka = client.native_ptr();
    // SAFETY: the client lives for as long as it is borrowed here. The queue is a count of the consumer's own,
    // which its destructor gives back; the request takes one for itself. Without a function to call, and
    // with nothing to pass to it, the answer becomes an event in that queue. The offsets are copied.
    let error = unsafe {
        let queue = c::rd_kafka_queue_get_consumer(kafka);
        let queue =
            NativeObject::new(queue, c::rd_kafka_queue_destroy).ok_or(RDKafkaErrorCode::State)?;
        c::rd_kafka_commit_queue(kafka, offsets.ptr(), queue.get(), None, ptr::null_mut())
    };
    match error {
        c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR => Ok(()),
        error => Err(error.into()),
    }
}
