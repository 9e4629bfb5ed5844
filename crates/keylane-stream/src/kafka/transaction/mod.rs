//! What handlers make of records, and the progress of these records, in transactions: both are there, or neither.
//!
//! There is one transactional producer for a consumer and all its partitions. Progress is kept by one thread, and so
//! can be committed by one transaction; a producer for each partition would need a cut, a commit and an abort
//! for each, and buys little: handlers go on during a commit, and only what they made waits for it.
//!
//! # Protocol
//!
//! A transaction is *open*, *cut*, *ending*, *ended*, and then the next one is open. Three threads take part:
//!
//! - The outbox [writes](TransactionalOutput) while it is open. All records of an output are sent, and it is answered, before
//!   the lock is free for a cut; so each answer is in the consumer's mailbox, or none of its records was sent. If
//!   the client takes no more, for the transaction has failed already, the outbox has it aborted, and waits.
//! - The consumer's owner [cuts](Transactions::cut), reads its mailbox, and then asks for a commit with the progress
//!   of all partitions that has changed, or for an abort.
//! - The [producer_thread](ProducerThread) commits or aborts, with the lock free. After a commit it opens the next one. After an
//!   abort, or when it cannot commit, it waits: the source reports all its partitions as lost, looks up what is
//!   stored, and assigns them again; when that was read it [opens](Transactions::open) the next one.
//!
//! # Why it is exactly once
//!
//! *What is committed with the progress is what was made of the records that it says are done since the one before.*
//! No more: an output in a transaction was answered before the cut, so its report was read before the progress was
//! taken; if it was believed the record is done there, and if not the consumer aborts. Nor less: a record is done
//! when its output was sent, which was in this transaction, or in one before, and that was committed with its
//! progress; or it was aborted, and then the partition was assigned anew from what is stored.
//!
//! *A member that the group has given up commits nothing.* The progress goes with the member's id and the group's
//! generation, and the broker refuses those of the past. A client without either is one that has been told; then it is
//! refused here, because the broker would take it for somebody who needs none. A client gets a new generation only
//! after it was told that what it had is gone, and that was answered, which the source does.
//!
//! *Whoever begins, begins behind all that is decided.* What is stored is asked for in such a way that the broker
//! does not answer while a transaction over it is open (`isolation.level=read_committed`); one whose producer died
//! ends by `transaction.timeout.ms`.
//!
//! *A producer that the brokers refuse* is replaced by another one under the same name. It begins only when
//! what the one before had begun is decided.

mod output;
mod producer_thread;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use rdkafka::consumer::ConsumerGroupMetadata;
use rdkafka::error::KafkaError;
use rdkafka::producer::{DefaultProducerContext, ThreadedProducer};
use rdkafka::topic_partition_list::TopicPartitionList;

pub use self::output::TransactionalOutput;
use self::producer_thread::ProducerThread;
use super::settings::ClientSettings;
use super::topic_partition::TopicPartition;
use crate::Position;
use crate::source::SourceError;
use crate::thread_notify::ThreadNotify;

type TransactionalProducer = ThreadedProducer<DefaultProducerContext>;

/// The source's end: it cuts, commits and aborts.
#[derive(Debug)]
pub(super) struct Transactions {
    shared: Arc<TransactionShared>,
    /// Ends when this is dropped.
    producer_thread: ProducerThread,
}

/// What the three threads share.
struct TransactionShared {
    state: Mutex<TransactionState>,
    /// Notified of every change of the phase, and when all is over.
    changed: Condvar,
    /// Ends the source's wait when there is an outcome.
    wakeup: Arc<ThreadNotify>,
}

struct TransactionState {
    phase: TransactionPhase,
    /// The producer_thread puts it there before it opens a transaction; the outbox sends with it while one is open.
    producer: Option<Arc<TransactionalProducer>>,
    /// The outbox has sent a part of an output, and waits for room. There is no cut before it has sent the rest.
    sending: bool,
    /// What came of transactions. Filled by the producer_thread, taken by the source.
    outcomes: VecDeque<TransactionOutcome>,
    /// What a person may want to know. Filled by the producer_thread, taken by the source.
    notices: Vec<String>,
    /// The source is gone.
    closed: bool,
}

enum TransactionPhase {
    /// Outputs go into it. The owner cuts; or the outbox has it aborted, which can send nothing any more.
    Open,
    /// Nothing goes into it. The owner says how it ends.
    Sealed,
    /// The producer_thread is to end it, or does.
    Ending(Option<ProducerCommand>),
    /// It was given up. The source has the next one opened when its partitions are assigned again.
    Ended,
}

/// What the producer_thread is to do.
enum ProducerCommand {
    /// Open one.
    Open,
    /// TransactionCommit it, with this, and open the next one.
    Commit(Box<TransactionCommit>),
    /// Abort it.
    Abort,
    /// Abort it, for the client refuses what belongs into it.
    Broken(KafkaError),
}

/// What is committed with the outputs.
struct TransactionCommit {
    offsets: TopicPartitionList,
    /// Whose they are, by which the broker tells members of the past.
    member: ConsumerGroupMetadata,
    watermarks: CommittedOffsets,
}

/// Partitions and their watermarks.
pub(super) type CommittedOffsets = Vec<(TopicPartition, Position)>;

/// What came of a transaction.
#[derive(Debug)]
pub(super) enum TransactionOutcome {
    Committed(CommittedOffsets),
    /// It was given up, or perhaps not: what is stored says it. Perhaps because the map beside an offset was longer
    /// than the brokers take.
    Aborted {
        map_too_long: bool,
    },
    /// There is no use in trying again.
    Hopeless(SourceError),
}

impl Transactions {
    /// Starts the producer_thread, with producers of this name, and says what writes to this topic.
    pub(super) fn start(
        client: &ClientSettings,
        name: &str,
        topic: String,
        wakeup: Arc<ThreadNotify>,
    ) -> Result<(Self, TransactionalOutput), SourceError> {
        let config = producer_thread::config(client, name)?;
        let max_record_bytes = output::max_record_bytes(client);
        let state = TransactionState {
            phase: TransactionPhase::Ending(Some(ProducerCommand::Open)),
            producer: None,
            sending: false,
            outcomes: VecDeque::new(),
            notices: Vec::new(),
            closed: false,
        };
        let shared = Arc::new(TransactionShared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            wakeup,
        });
        let producer_thread = ProducerThread::start(shared.clone(), config)?;
        let output = TransactionalOutput::new(shared.clone(), topic, max_record_bytes);
        Ok((Transactions { shared, producer_thread }, output))
    }

    /// Lets nothing more into the open transaction. Whether that is so.
    pub(super) fn seal(&self) -> bool {
        let mut state = self.shared.state();
        let can = matches!(state.phase, TransactionPhase::Open) && !state.sending;
        if can {
            state.phase = TransactionPhase::Sealed;
        }
        can
    }

    /// Has the transaction that was cut committed, with these offsets.
    pub(super) fn commit(
        &self,
        offsets: TopicPartitionList,
        member: ConsumerGroupMetadata,
        watermarks: CommittedOffsets,
    ) {
        self.end(ProducerCommand::Commit(Box::new(TransactionCommit {
            offsets,
            member,
            watermarks,
        })));
    }

    /// Has the transaction that was cut aborted.
    pub(super) fn abort(&self) {
        self.end(ProducerCommand::Abort);
    }

    /// Has the next transaction opened, after one that was given up.
    pub(super) fn open(&self) {
        self.end(ProducerCommand::Open);
    }

    fn end(&self, command: ProducerCommand) {
        let mut state = self.shared.state();
        debug_assert!(
            matches!(state.phase, TransactionPhase::Sealed | TransactionPhase::Ended),
            "nobody else ends it"
        );
        state.phase = TransactionPhase::Ending(Some(command));
        drop(state);
        self.shared.changed.notify_all();
    }

    pub(super) fn take_outcome(&self) -> Option<TransactionOutcome> {
        self.shared.state().outcomes.pop_front()
    }

    pub(super) fn take_notices(&self) -> Vec<String> {
        std::mem::take(&mut self.shared.state().notices)
    }
}

impl Drop for Transactions {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.changed.notify_all();
        self.producer_thread.join();
    }
}

impl TransactionShared {
    /// It holds plain values that are whole after any statement.
    fn state(&self) -> MutexGuard<'_, TransactionState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'s>(
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
