//! Callbacks of the Kafka client: recorded for the source, which acts on them after its poll.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use keylane_storage::ThreadNotify;
use rdkafka::client::ClientContext;
use rdkafka::config::RDKafkaLogLevel;
use rdkafka::consumer::{BaseConsumer, Consumer as _, ConsumerContext};
use rdkafka::error::{KafkaError, KafkaResult};
use rdkafka::statistics::Statistics;
use rdkafka::topic_partition_list::TopicPartitionList;
use rdkafka::types::{RDKafkaErrorCode, RDKafkaRespErr};

use super::topic_partition::{TopicPartition, list, partitions_of};

/// Maximum number of stored notices. It bounds the memory if they are not fetched; the first of a
/// series say most.
const MAX_NOTICES: usize = 64;

/// Callbacks of the client. They only record events for the polling thread, which is inside the
/// client when they are called.
#[derive(Debug, Default)]
pub(super) struct ClientCallbacks {
    /// Events since the last poll. Written during a poll, taken after it.
    events: Mutex<VecDeque<ClientEvent>>,
    /// Warnings and errors from the client's log. Written during a poll.
    notices: Mutex<VecDeque<String>>,
    /// The client's text about its last error. Written just before a poll returns that error.
    reason: Mutex<String>,
    /// Time since when no broker has been connected, if none is. Updated about once a second, by
    /// the client's statistics.
    unreachable_since: Mutex<Option<Instant>>,
    /// Ends of the partitions. Updated about once a second, by the client's statistics.
    ends: Mutex<HashMap<TopicPartition, i64>>,
    /// Number of callbacks. If it changes during a poll without a result, the client's queue may
    /// have more.
    calls: AtomicU64,
    /// Whether the consumer is closing: then no release is awaited.
    closing: AtomicBool,
    /// Notified by the client's threads when its queue is no longer empty, and by the source's
    /// waker.
    pub(super) wakeup: Arc<ThreadNotify>,
}

/// An event that the client expects an answer to, or the result of a commit.
#[derive(Debug)]
pub(super) enum ClientEvent {
    /// Partitions are offered; the client waits for their assignment.
    Assign(Vec<TopicPartition>),
    /// Partitions are revoked; the client waits for their release.
    Revoke {
        partitions: Vec<TopicPartition>,
        /// Whether other members may have them already.
        lost: bool,
    },
    /// Results of a commit, with the committed offsets.
    Committed(Vec<(TopicPartition, Option<i64>, Result<(), RDKafkaErrorCode>)>),
}

impl ClientCallbacks {
    pub(super) fn take_client_events(&self) -> Option<ClientEvent> {
        lock(&self.events).pop_front()
    }

    pub(super) fn take_notices(&self) -> VecDeque<String> {
        std::mem::take(&mut *lock(&self.notices))
    }

    pub(super) fn add_notice(&self, notice: String) {
        let mut notices = lock(&self.notices);
        // A repetition adds nothing.
        if notices.len() < MAX_NOTICES && notices.back() != Some(&notice) {
            notices.push_back(notice);
        }
    }

    /// Returns the client's text about the error that a poll has just returned.
    pub(super) fn reason(&self) -> String {
        lock(&self.reason).clone()
    }

    pub(super) fn end(&self, name: &TopicPartition) -> Option<i64> {
        lock(&self.ends).get(name).copied()
    }

    pub(super) fn unreachable_since(&self) -> Option<Instant> {
        *lock(&self.unreachable_since)
    }

    pub(super) fn calls(&self) -> u64 {
        self.calls.load(Ordering::Relaxed)
    }

    /// From now on partitions are released as soon as they are revoked.
    pub(super) fn close(&self) {
        self.closing.store(true, Ordering::Relaxed);
    }

    fn count_call(&self) {
        self.calls.fetch_add(1, Ordering::Relaxed);
    }

    fn push_event(&self, event: ClientEvent) {
        lock(&self.events).push_back(event);
    }
}

/// Each mutex holds a plain value that is whole after any statement, so poisoning is ignored.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl ClientContext for ClientCallbacks {
    fn log(&self, level: RDKafkaLogLevel, facility: &str, message: &str) {
        self.count_call();
        // Consumers and producers share their settings, and each ignores those of the other.
        if facility == "CONFWARN" && message.contains(" property and will be ignored by ") {
            return;
        }
        let worth_it = matches!(
            level,
            RDKafkaLogLevel::Emerg
                | RDKafkaLogLevel::Alert
                | RDKafkaLogLevel::Critical
                | RDKafkaLogLevel::Error
                | RDKafkaLogLevel::Warning
        );
        if worth_it {
            self.add_notice(message.to_owned());
        }
    }

    fn stats(&self, statistics: Statistics) {
        self.count_call();
        let is_connected =
            statistics.brokers.values().any(|broker| matches!(&*broker.state, "UP" | "UPDATE"));
        let mut since = lock(&self.unreachable_since);
        *since = (!is_connected).then(|| since.unwrap_or_else(Instant::now));
        drop(since);
        let mut ends = lock(&self.ends);
        ends.clear();
        for topic in statistics.topics.into_values() {
            for (number, partition) in topic.partitions {
                let stable = Some(partition.ls_offset).filter(|offset| *offset >= 0);
                let end = stable.unwrap_or(partition.hi_offset);
                if number >= 0 && end >= 0 {
                    ends.insert(TopicPartition { topic: topic.topic.clone(), number }, end);
                }
            }
        }
    }

    fn error(&self, _error: KafkaError, reason: &str) {
        self.count_call();
        reason.clone_into(&mut lock(&self.reason));
    }
}

impl ConsumerContext for ClientCallbacks {
    fn rebalance(
        &self,
        consumer: &BaseConsumer<Self>,
        what: RDKafkaRespErr,
        partitions: &mut TopicPartitionList,
    ) {
        self.count_call();
        let assign = what == RDKafkaRespErr::RD_KAFKA_RESP_ERR__ASSIGN_PARTITIONS;
        if self.closing.load(Ordering::Relaxed) {
            // Errors here show when the client closes.
            let _ = if assign {
                take(consumer, &TopicPartitionList::new())
            } else {
                give_up(consumer, &partitions_of(partitions))
            };
            return;
        }
        let partitions = partitions_of(partitions);
        self.push_event(if assign {
            ClientEvent::Assign(partitions)
        } else {
            ClientEvent::Revoke { partitions, lost: consumer.assignment_lost() }
        });
    }

    fn commit_callback(&self, result: KafkaResult<()>, offsets: &TopicPartitionList) {
        self.count_call();
        let whole = result.err().map(|error| code(&error));
        let outcomes = offsets.elements().into_iter().map(|element| {
            let name =
                TopicPartition { topic: element.topic().to_owned(), number: element.partition() };
            let own = element.error().err().map(|error| code(&error));
            (name, element.offset().to_raw(), own.or(whole).map_or(Ok(()), Err))
        });
        self.push_event(ClientEvent::Committed(outcomes.collect()));
    }
}

fn code(error: &KafkaError) -> RDKafkaErrorCode {
    error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown)
}

/// Accepts partitions, each from the offset in the list.
pub(super) fn take(
    consumer: &BaseConsumer<ClientCallbacks>,
    partitions: &TopicPartitionList,
) -> KafkaResult<()> {
    if is_cooperative(consumer) {
        consumer.incremental_assign(partitions)
    } else {
        consumer.assign(partitions)
    }
}

/// Releases partitions; all of them if the group does not rebalance cooperatively.
pub(super) fn give_up(
    consumer: &BaseConsumer<ClientCallbacks>,
    partitions: &[TopicPartition],
) -> KafkaResult<()> {
    if is_cooperative(consumer) {
        consumer.incremental_unassign(&list(partitions))
    } else {
        consumer.unassign()
    }
}

pub(super) fn is_cooperative(consumer: &BaseConsumer<ClientCallbacks>) -> bool {
    use rdkafka::consumer::RebalanceProtocol;
    matches!(consumer.rebalance_protocol(), RebalanceProtocol::Cooperative)
}
