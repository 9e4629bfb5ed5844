//! A Kafka group member as a source.

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::sync::{Arc, mpsc};
use std::task::Waker;
use std::thread;
use std::time::{Duration, Instant};

use foldhash::fast::RandomState;
use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;

use super::abort_state::AbortState;
use super::context::ClientCallbacks;
use super::error::of_commit;
use super::fetched_batch::FetchedMessage;
use super::ffi::{self, TopicId};
use super::member::GroupMember;
use super::metadata_thread::{MetadataRequest, MetadataThread};
use super::partition::OwnedPartition;
use super::partition_queues::PartitionQueues;
use super::pending_assignment::PendingAssignment;
use super::settings::{KafkaSettings, OffsetMapVersion};
use super::start_offset::StartPolicy;
use super::topic_partition::TopicPartition;
use super::topic_partitions::TopicPartitions;
use super::transaction::TransactionControl;
use crate::Position;
use crate::record_memory::RecordMemory;
use crate::source::{
    CommitError, Partition, PartitionOwnership, ProgressCommit, Source, SourceError, SourceEvent,
};
use crate::tracker::{OffsetMapLimit, Progress};

/// Interval between checks of the topic ids.
const TOPIC_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Pause before an unanswered request is repeated.
pub(super) const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Pause before a check whether the client fetches a restarted partition.
pub(super) const SEEK_RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// A member of a consumer group. The [module](super) documents the guarantees.
///
/// If it is dropped without [`close`](Source::close), or after a close that timed out, it leaves
/// the group on another thread, which ends when the group's broker has answered.
pub struct KafkaSource {
    /// Queues of the partitions. Dropped before the client.
    pub(super) queues: PartitionQueues,
    pub(super) consumer: GroupMember,
    pub(super) metadata: Option<MetadataThread>,
    pub(super) start_policy: StartPolicy,
    pub(super) map_limit: OffsetMapLimit,
    map_version: OffsetMapVersion,
    /// Ends of the partitions that this member has or had, if they are read only to there.
    pub(super) ends: Option<HashMap<TopicPartition, Position>>,
    pub(super) owned: HashMap<TopicPartition, OwnedPartition, RandomState>,
    /// Assignments that the client waits for, oldest first. The first one is being resolved.
    pub(super) pending_assignments: VecDeque<PendingAssignment>,
    /// Revocations that the client waits for, oldest first, until the consumer releases their
    /// partitions.
    pub(super) revoked: VecDeque<Vec<TopicPartition>>,
    /// Requests to repeat, and when.
    pub(super) retries: Vec<(Instant, MetadataRequest)>,
    /// Subscribed topics.
    pub(super) topics: Vec<String>,
    /// Their partitions, for consumers that need all of them.
    pub(super) topic_partitions: TopicPartitions,
    /// Id of each topic at the last assignment of one of its partitions.
    pub(super) ids: HashMap<String, TopicId>,
    /// Time of the next check of the topic ids.
    next_check: Instant,
    /// Whether the group has ever assigned partitions to this member, perhaps none.
    pub(super) has_joined: bool,
    /// Whether partitions were ever assigned: then the settings are valid.
    pub(super) has_worked: bool,
    /// Events for the next poll.
    pub(super) pending: Vec<SourceEvent>,
    /// Transactions of output and progress, for exactly-once sources.
    pub(super) transactions: Option<TransactionControl>,
    /// State of the recovery from an aborted transaction.
    pub(super) aborted: AbortState,
    /// Scratch buffer for messages of a partition; empty between polls.
    pub(super) fetched: Vec<FetchedMessage>,
    /// Memory of the records' keys and payloads.
    pub(super) memory: RecordMemory,
}

impl KafkaSource {
    /// Joins a group. An unreachable broker shows while the source is polled.
    ///
    /// # Errors
    /// If a client setting is unknown, invalid, or reserved by Keylane.
    pub fn join(settings: KafkaSettings) -> Result<Self, SourceError> {
        let config = settings.config()?;
        let cannot = |error| SourceError::because("cannot start the Kafka client", error);
        let context = ClientCallbacks::default();
        let mut consumer: BaseConsumer<ClientCallbacks> =
            config.create_with_context(context).map_err(cannot)?;
        let wakeup = Arc::clone(&consumer.context().wakeup);
        consumer.set_nonempty_callback(move || wakeup.notify());
        let topics: Vec<&str> = settings.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics).map_err(|error| {
            let topics = topics.join(",");
            SourceError::because(format!("cannot subscribe to `{topics}`; check the names"), error)
        })?;
        let consumer = Arc::new(consumer);
        Ok(KafkaSource {
            queues: PartitionQueues::default(),
            metadata: Some(MetadataThread::new(Arc::clone(&consumer))),
            consumer: GroupMember::new(consumer),
            start_policy: StartPolicy {
                start: settings.start,
                out_of_range: settings.out_of_range,
                policy: settings.policy,
                recreated_topic: settings.recreated_topic,
            },
            map_limit: settings.map_limit,
            map_version: settings.map_version,
            ends: settings.to_the_end.then(HashMap::new),
            owned: HashMap::default(),
            pending_assignments: VecDeque::new(),
            revoked: VecDeque::new(),
            retries: Vec::new(),
            topics: settings.topics,
            topic_partitions: TopicPartitions::default(),
            ids: HashMap::new(),
            next_check: Instant::now() + TOPIC_CHECK_INTERVAL,
            has_joined: false,
            has_worked: false,
            pending: Vec::new(),
            transactions: None,
            aborted: AbortState::None,
            fetched: Vec::new(),
            memory: RecordMemory::default(),
        })
    }

    pub(super) fn context(&self) -> &Arc<ClientCallbacks> {
        self.consumer.context()
    }

    pub(super) fn ask(&self, request: MetadataRequest) {
        if let Some(metadata) = &self.metadata {
            metadata.ask(request);
        }
    }

    /// Returns where a partition ends, if it is read only to there.
    pub(super) fn end_of(&self, name: &TopicPartition) -> Option<Position> {
        self.ends.as_ref()?.get(name).copied()
    }

    pub(super) fn notice(&self, notice: impl Into<String>) {
        self.context().add_notice(notice.into());
    }

    /// Processes all events so far, in order.
    fn poll_once(
        &mut self,
        max_records: usize,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        self.reopen_if_read(events);
        events.append(&mut self.pending);
        let owned = &self.owned;
        self.queues.retain(|name| owned.contains_key(name));
        self.fetch(max_records, events)?;
        self.take_client_events(events)?;
        self.take_transaction_outcomes(events)?;
        self.take_metadata(events)?;
        self.send_due_requests();
        events.append(&mut self.pending);
        events.extend(self.context().take_notices().into_iter().map(SourceEvent::Notice));
        Ok(())
    }

    fn send_due_requests(&mut self) {
        let now = Instant::now();
        for (_, request) in self.retries.extract_if(.., |(at, _)| *at <= now).collect::<Vec<_>>() {
            self.ask(request);
        }
        if now >= self.next_check {
            self.next_check = now + TOPIC_CHECK_INTERVAL;
            let mut topics: Vec<String> =
                self.owned.keys().map(|name| name.topic.clone()).collect();
            topics.sort();
            topics.dedup();
            if !topics.is_empty() {
                self.ask(MetadataRequest::Ids(topics));
            }
        }
    }

    /// Prepares the commit of a partition, or returns why there is none.
    fn commit_of(
        &mut self,
        commit: &ProgressCommit,
    ) -> Result<(TopicPartition, CommitEntry), CommitError> {
        let name = TopicPartition::of(&commit.partition);
        let owned = self.owned.get_mut(&name).ok_or(CommitError::NotOurs)?;
        if owned.resolving.is_some() {
            return Err(CommitError::Later("its topic is being looked at".to_owned()));
        }
        let (watermark, end) = (commit.progress.watermark(), commit.progress.end());
        owned.committing = Some(watermark);
        owned.epochs.forget_below(watermark);
        let epoch = owned.epochs.below(watermark);
        let highest = match self.map_version {
            OffsetMapVersion::One => None,
            OffsetMapVersion::Two => owned.epochs.below(end),
        };
        let text = encode(&commit.progress, &owned.identity, highest, self.map_limit);
        Ok((name, CommitEntry { at: watermark, epoch, text }))
    }

    /// Processes results of commits. Results for earlier assignments, or for earlier commits, are
    /// ignored.
    pub(super) fn committed(
        &mut self,
        outcomes: Vec<(TopicPartition, Option<i64>, Result<(), RDKafkaErrorCode>)>,
        events: &mut Vec<SourceEvent>,
    ) {
        for (name, at, outcome) in outcomes {
            let Some(owned) = self.owned.get_mut(&name) else { continue };
            let Some(position) = owned.committing.take_if(|at_| Some(at_.signed()) == at) else {
                continue;
            };
            if outcome.is_ok() {
                owned.stored = position;
            }
            let partition = owned.partition.clone();
            events.push(SourceEvent::Committed { partition, result: outcome.map_err(of_commit) });
        }
    }

    /// Answers everything that the client waits for, so that it can leave.
    fn abandon(&mut self) {
        self.context().close();
        if let Some(metadata) = self.metadata.take() {
            metadata.close();
        }
        self.revoke_all();
        self.queues.retain(|_| false);
    }
}

/// Committed offset of a partition.
struct CommitEntry {
    at: Position,
    /// Leader epoch of the record before the offset.
    epoch: Option<u32>,
    /// Metadata with the map.
    text: String,
}

/// Encodes the map, shortened if it exceeds the limit.
fn encode(
    progress: &Progress,
    identity: &[u8],
    highest_epoch: Option<u32>,
    limit: OffsetMapLimit,
) -> String {
    let encode = |progress: &Progress| match highest_epoch {
        Some(epoch) => progress.encode_with_epoch(identity, epoch),
        None => progress.encode(identity),
    };
    let text = encode(progress);
    if text.len() <= limit.get() { text } else { encode(&progress.shortened(limit)) }
}

impl Source for KafkaSource {
    fn poll(
        &mut self,
        timeout: Duration,
        max_records: usize,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        let before = events.len();
        self.poll_once(max_records, events)?;
        if events.len() == before {
            let due = self.retries.iter().map(|(at, _)| *at).min();
            let due = due.map(|at| at.saturating_duration_since(Instant::now()));
            self.context().wakeup.wait(due.map_or(timeout, |due| due.min(timeout)));
            self.poll_once(max_records, events)?;
        }
        Ok(())
    }

    fn commit(&mut self, commits: Vec<ProgressCommit>) {
        let mut offsets = TopicPartitionList::with_capacity(commits.len());
        let mut sent = Vec::with_capacity(commits.len());
        let mut epochs = Vec::with_capacity(commits.len());
        for commit in commits {
            match self.commit_of(&commit) {
                Ok((name, CommitEntry { at, epoch, text })) => {
                    epochs.push(epoch);
                    let mut element = offsets.add_partition(&name.topic, name.number);
                    element.set_metadata(text);
                    element
                        .set_offset(Offset::Offset(at.signed()))
                        .expect("a position is a valid offset");
                    sent.push(commit.partition);
                }
                Err(error) => self.pending.push(answered(commit.partition, error)),
            }
        }
        ffi::set_leader_epochs(&mut offsets, &epochs);
        if self.transactions.is_some() {
            return self.commit_with_outputs(offsets, &sent);
        }
        if sent.is_empty() {
            return;
        }
        if let Err(code) = ffi::commit(self.consumer.client(), &offsets) {
            for partition in sent {
                if let Some(owned) = self.owned.get_mut(&TopicPartition::of(&partition)) {
                    owned.committing = None;
                }
                self.pending.push(answered(partition, of_commit(code)));
            }
        }
    }

    fn is_transactional(&self) -> bool {
        self.transactions.is_some()
    }

    fn begin_commit(&mut self) -> bool {
        self.transactions.as_ref().is_none_or(TransactionControl::seal)
    }

    fn abort_transaction(&mut self) {
        self.transactions.iter().for_each(TransactionControl::abort);
    }

    fn pause(&mut self, partition: &Partition) {
        if let Some(owned) = self.owned.get_mut(&TopicPartition::of(partition)) {
            owned.is_paused = true;
        }
    }

    fn resume(&mut self, partition: &Partition) {
        let name = TopicPartition::of(partition);
        let Some(owned) = self.owned.get_mut(&name) else { return };
        owned.is_paused = false;
        self.resume_fetch(&name);
        // Its queue may have had records for a long time, of which the client does not notify again.
        self.context().wakeup.notify();
    }

    fn release(&mut self, partitions: &[Partition]) {
        self.give_up(partitions);
    }

    fn close(&mut self, timeout: Duration) -> Result<(), SourceError> {
        let deadline = Instant::now() + timeout;
        // Abort the open transaction before other members get the partitions.
        if let Some(transactions) = self.transactions.take()
            && !dropped_within(transactions, timeout)
        {
            return Err(SourceError::new("the transaction's broker did not answer in time"));
        }
        self.abandon();
        let cannot = "cannot leave the group";
        self.consumer.close_queue().map_err(|error| SourceError::because(cannot, error))?;
        let left = deadline.saturating_duration_since(Instant::now());
        match self.consumer.serve_until_left(left) {
            Ok(true) => Ok(()),
            Ok(false) => Err(SourceError::new("the group's broker did not answer in time")),
            Err(error) => Err(SourceError::because(cannot, error)),
        }
    }

    fn waker(&self) -> Option<Waker> {
        Some(Waker::from(Arc::clone(&self.context().wakeup)))
    }

    fn is_ready(&self) -> bool {
        // Partitions of a pending assignment deliver nothing, and have no status that shows it.
        let is_assigned = self.has_joined && self.pending_assignments.is_empty();
        is_assigned && self.unreachable_since().is_none()
    }

    fn resolving_since(&self, partition: &Partition) -> Option<Instant> {
        self.owned.get(&TopicPartition::of(partition))?.resolving
    }

    fn unreachable_since(&self) -> Option<Instant> {
        self.context().unreachable_since()
    }

    fn ownership(&mut self) -> PartitionOwnership {
        self.all_partitions()
    }

    fn end(&self, partition: &Partition) -> Option<Position> {
        self.context().end(&TopicPartition::of(partition)).and_then(Position::checked)
    }
}

/// Drops a value on another thread, and returns whether that has ended within `timeout`.
fn dropped_within(what: impl Send + 'static, timeout: Duration) -> bool {
    let (done, ended) = mpsc::channel();
    let dropping = thread::Builder::new().name("keylane-leave".to_owned()).spawn(move || {
        drop(what);
        let _ = done.send(());
    });
    dropping.is_ok() && ended.recv_timeout(timeout).is_ok()
}

fn answered(partition: Partition, error: CommitError) -> SourceEvent {
    SourceEvent::Committed { partition, result: Err(error) }
}

impl Drop for KafkaSource {
    fn drop(&mut self) {
        self.abandon();
    }
}

impl fmt::Debug for KafkaSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let owned: Vec<_> = self.owned.values().map(|owned| &owned.partition).collect();
        f.debug_struct("KafkaSource").field("owned", &owned).finish_non_exhaustive()
    }
}
