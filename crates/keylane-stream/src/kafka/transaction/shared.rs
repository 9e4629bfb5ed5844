//! State of the transaction that the outbox, the coordinator and the producer thread share.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use keylane_storage::ThreadNotify;
use rdkafka::consumer::ConsumerGroupMetadata;
use rdkafka::error::KafkaError;
use rdkafka::producer::{DefaultProducerContext, ThreadedProducer};
use rdkafka::topic_partition_list::TopicPartitionList;

use super::super::topic_partition::TopicPartition;
use crate::Position;
use crate::source::SourceError;

pub(super) type TransactionalProducer = ThreadedProducer<DefaultProducerContext>;

/// State shared by the three threads.
pub(super) struct TransactionShared {
    pub(super) state: Mutex<TransactionState>,
    /// Notified of every change of the phase, and of the end.
    pub(super) changed: Condvar,
    /// Wakes the source when there is an outcome.
    pub(super) wakeup: Arc<ThreadNotify>,
}

pub(super) struct TransactionState {
    pub(super) phase: TransactionPhase,
    /// Set by the producer thread before it opens a transaction; used by the outbox while one is
    /// open.
    pub(super) producer: Option<Arc<TransactionalProducer>>,
    /// The outbox has sent part of an output and waits for room. A seal must wait for the rest.
    pub(super) sending: bool,
    /// Outcomes of transactions, from the producer thread to the source.
    pub(super) outcomes: VecDeque<TransactionOutcome>,
    /// Messages for the operator, from the producer thread to the source.
    pub(super) notices: Vec<String>,
    /// The source is dropped.
    pub(super) closed: bool,
}

pub(super) enum TransactionPhase {
    /// Accepts output. The coordinator may seal it; the outbox may request an abort after a
    /// failure.
    Open,
    /// Accepts no output. The coordinator decides how it ends.
    Sealed,
    /// The producer thread ends it.
    Ending(Option<ProducerCommand>),
    /// It was aborted. The source opens the next one after its partitions are assigned again.
    Ended,
}

/// A command for the producer thread.
pub(super) enum ProducerCommand {
    /// Open a transaction.
    Open,
    /// Commit the transaction with this progress, and open the next one.
    Commit(Box<TransactionCommit>),
    /// Abort the transaction.
    Abort,
    /// Abort the transaction, because the client has refused output.
    Broken(KafkaError),
}

/// Progress to commit with the output.
pub(super) struct TransactionCommit {
    pub(super) offsets: TopicPartitionList,
    /// Group membership, by which the broker detects removed members.
    pub(super) member: ConsumerGroupMetadata,
    pub(super) watermarks: CommittedOffsets,
}

/// Partitions and their watermarks.
pub(in crate::kafka) type CommittedOffsets = Vec<(TopicPartition, Position)>;

/// Outcome of a transaction.
#[derive(Debug)]
pub(in crate::kafka) enum TransactionOutcome {
    Committed(CommittedOffsets),
    /// It was aborted, or perhaps committed: the stored progress decides. `map_too_long` if the map
    /// beside an offset exceeded the brokers' limit.
    Aborted {
        map_too_long: bool,
    },
    /// Repeated failures: no further transaction is tried.
    Hopeless(SourceError),
}

impl TransactionShared {
    /// The mutex holds plain values that are whole after any statement, so poisoning is ignored.
    pub(super) fn state(&self) -> MutexGuard<'_, TransactionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn wait<'s>(
        &self,
        state: MutexGuard<'s, TransactionState>,
    ) -> MutexGuard<'s, TransactionState> {
        self.changed.wait(state).unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for TransactionShared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TransactionShared")
            .field("closed", &self.state().closed)
            .finish_non_exhaustive()
    }
}
