//! Calls to the C library that the client's safe interface lacks: topic ids, which tell a recreated
//! topic from the one before; authorized operations; metadata that need not be UTF-8; leader epochs; asynchronous commits
//! with a result; whether the client is in its group; and the queue of a partition, read without an allocation per
//! record. This module has all unsafe code for Kafka.

mod partition_queue;

use std::ffi::{CStr, CString, c_char};
use std::ptr::{self, NonNull};
use std::time::Duration;

use rdkafka::bindings as c;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;

pub(super) use self::partition_queue::{ClientMessage, NextMessage, PartitionQueue};
use super::topic_partition::TopicPartition;
use crate::Position;

/// Id of a topic, different for each topic that ever has its name.
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

/// Description of a topic by a broker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TopicDescription {
    pub(super) topic: String,
    /// `None` if the broker is too old for ids; an error if, for example, the topic does not exist.
    pub(super) id: Result<Option<TopicId>, RDKafkaErrorCode>,
    /// Whether the client may write to the topic, if the operations were asked for.
    pub(super) may_write: Option<bool>,
}

/// Whether a description has the operations that the client is authorized for, which the broker
/// then has to look up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operations {
    Asked,
    Omitted,
}

/// A C object that is destroyed on drop.
struct NativeObject<T> {
    object: NonNull<T>,
    destroy: unsafe extern "C" fn(*mut T),
}

impl<T> NativeObject<T> {
    /// Takes ownership of an object of the C library; `None` if it is null.
    ///
    /// # Safety
    /// `object` is null, or the caller owns it, and `destroy` is its destructor.
    unsafe fn new(object: *mut T, destroy: unsafe extern "C" fn(*mut T)) -> Option<Self> {
        Some(NativeObject { object: NonNull::new(object)?, destroy })
    }

    fn get(&self) -> *mut T {
        self.object.as_ptr()
    }
}

impl<T> Drop for NativeObject<T> {
    fn drop(&mut self) {
        // SAFETY: by the contract of `new`, this object is owned and this is its destructor.
        unsafe { (self.destroy)(self.object.as_ptr()) }
    }
}

/// Requests descriptions of `topics` from a broker, with a timeout.
///
/// Any broker has them. Without a broker id the client looks for the controller, which may take
/// longer.
pub(super) fn describe<C: rdkafka::ClientContext>(
    client: &rdkafka::client::Client<C>,
    broker: i32,
    topics: &[&str],
    operations: Operations,
    timeout: Duration,
) -> Result<Vec<TopicDescription>, RDKafkaErrorCode> {
    let names: Result<Vec<CString>, _> = topics.iter().map(|topic| CString::new(*topic)).collect();
    let names = names.map_err(|_| RDKafkaErrorCode::InvalidArgument)?;
    let mut names: Vec<*const c_char> = names.iter().map(|name| name.as_ptr()).collect();
    let timeout_ms = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    let with_operations = i32::from(operations == Operations::Asked);
    let kafka = client.native_ptr();
    // SAFETY: the borrowed client outlives these objects, and each is destroyed by its own
    // destructor. The names live to the end of this function, and the collection copies them.
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
    // SAFETY: all objects were created above for this client. A refused option is ignored, without
    // an error text; the error object of the last option is destroyed. The request copies options and collection; its answer goes to the queue, which
    // lives until the answer is taken, or is dropped with it.
    let event = unsafe {
        c::rd_kafka_AdminOptions_set_request_timeout(options.get(), timeout_ms, ptr::null_mut(), 0);
        c::rd_kafka_AdminOptions_set_broker(options.get(), broker, ptr::null_mut(), 0);
        drop(NativeObject::new(
            c::rd_kafka_AdminOptions_set_include_authorized_operations(
                options.get(),
                with_operations,
            ),
            c::rd_kafka_error_destroy,
        ));
        c::rd_kafka_DescribeTopics(kafka, collection.get(), options.get(), queue.get());
        NativeObject::new(
            c::rd_kafka_queue_poll(queue.get(), timeout_ms),
            c::rd_kafka_event_destroy,
        )
    };
    let event = event.ok_or(RDKafkaErrorCode::OperationTimedOut)?;
    // SAFETY: the event is owned, and what is read from it is copied before it is destroyed.
    unsafe { read(event.get()) }
}

/// Copies the topic descriptions of an event.
///
/// # Safety
/// `event` points to a live event of the C library.
unsafe fn read(event: *mut c::rd_kafka_event_t) -> Result<Vec<TopicDescription>, RDKafkaErrorCode> {
    // SAFETY: the caller promises a live event. The functions return null for an event of another
    // kind, and an array with `count` live entries, which belong to the event.
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

/// Copies the description of one topic.
///
/// # Safety
/// `topic` points to a live description.
unsafe fn read_topic(topic: *const c::rd_kafka_TopicDescription_t) -> TopicDescription {
    // SAFETY: the caller promises a live description, which owns name, error, id and operations.
    // All but the name are checked for null before use; the operations have `count` entries.
    unsafe {
        let name = CStr::from_ptr(c::rd_kafka_TopicDescription_name(topic));
        let topic_name = name.to_string_lossy().into_owned();
        let error = c::rd_kafka_TopicDescription_error(topic);
        if !error.is_null() {
            let code = c::rd_kafka_error_code(error);
            if code != c::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
                let id = Err(code.into());
                return TopicDescription { topic: topic_name, id, may_write: None };
            }
        }
        let mut count = 0;
        let operations = c::rd_kafka_TopicDescription_authorized_operations(topic, &mut count);
        let may_write = (!operations.is_null()).then(|| {
            let write = c::rd_kafka_AclOperation_t::RD_KAFKA_ACL_OPERATION_WRITE as u32;
            // As numbers, because a newer library may know operations that the type does not have.
            (0..count).any(|index| operations.cast::<u32>().add(index).read() == write)
        });
        let id = c::rd_kafka_TopicDescription_topic_id(topic);
        if id.is_null() {
            return TopicDescription { topic: topic_name, id: Ok(None), may_write };
        }
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&c::rd_kafka_Uuid_most_significant_bits(id).to_be_bytes());
        bytes[8..].copy_from_slice(&c::rd_kafka_Uuid_least_significant_bits(id).to_be_bytes());
        // A broker without ids sends zeros.
        let id = Some(bytes).filter(|bytes| *bytes != [0; 16]).map(TopicId);
        TopicDescription { topic: topic_name, id: Ok(id), may_write }
    }
}

/// Returns the metadata of each element. Invalid UTF-8 is replaced, which no reader accepts.
pub(super) fn metadata(list: &TopicPartitionList) -> Vec<String> {
    // SAFETY: the borrowed list has `cnt` elements, and the metadata of each is null or has this
    // size; it is copied.
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

/// Returns the leader epoch of each element, if known.
pub(super) fn leader_epochs(list: &TopicPartitionList) -> Vec<Option<u32>> {
    // SAFETY: the borrowed list has `cnt` live elements.
    unsafe {
        let list = list.ptr();
        let count = usize::try_from((*list).cnt).unwrap_or(0);
        let epoch = |index| c::rd_kafka_topic_partition_get_leader_epoch((*list).elems.add(index));
        (0..count).map(|index| u32::try_from(epoch(index)).ok()).collect()
    }
}

/// Sets the leader epochs of the elements, in order.
pub(super) fn set_leader_epochs(list: &mut TopicPartitionList, epochs: &[Option<u32>]) {
    // SAFETY: the list is borrowed mutably and has `cnt` live elements.
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

/// Timeout of a seek, which the client answers without a broker.
const SEEK_TIMEOUT: Duration = Duration::from_secs(1);

/// Makes the client fetch a partition from a position; later polls return records from there. With
/// the leader epoch of the record before it, the client makes the broker check that it has that
/// record.
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

/// Returns whether a consumer is in its group, as far as it knows.
pub(super) fn is_member<C: rdkafka::ClientContext>(client: &rdkafka::client::Client<C>) -> bool {
    // SAFETY: the client is borrowed. For a client that is no consumer the data is null. The data
    // is owned until the end of this block, and its member id is null or a string in it.
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

/// Starts a commit, whose result a later poll of the consumer calls back. The safe interface
/// blocks, or has no result.
pub(super) fn commit<C: rdkafka::ClientContext>(
    client: &rdkafka::client::Client<C>,
    offsets: &TopicPartitionList,
) -> Result<(), RDKafkaErrorCode> {
    let kafka = client.native_ptr();
    // SAFETY: the client is borrowed. The queue is a counted reference, which its destructor
    // releases; the request takes one of its own. Without a callback and an opaque pointer, the
    // result becomes an event in that queue. The offsets are copied.
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
