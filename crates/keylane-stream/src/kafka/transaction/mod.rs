//! Transactions of handler output and progress: both are committed, or neither.
//!
//! A consumer has one transactional producer for all its partitions. One thread keeps the progress
//! of all of them, so one transaction can commit it. A producer per partition would need a seal, a
//! commit and an abort for each, and gain little: handlers continue during a commit, and only their
//! output waits for it.
//!
//! # Protocol
//!
//! A transaction is *open*, *sealed*, *ending*, *ended*; then the next one is open. Three threads
//! take part:
//!
//! - The outbox [writes](TransactionalOutput) while the transaction is open. It sends all records
//!   of an output and answers it before it releases the lock. So at the time of a seal, either the
//!   answer is in the consumer's mailbox, or none of the output's records was sent. If the client
//!   refuses a record because the transaction has failed already, the outbox requests an abort, and
//!   waits.
//! - The consumer's coordinator [seals](TransactionControl::seal) the transaction, reads its mailbox, and
//!   then requests a commit with the changed progress of all partitions, or an abort.
//! - The [producer thread](ProducerThread) commits or aborts without holding the lock. After a
//!   commit it opens the next transaction. After an abort, or a failed commit, it waits: the source
//!   reports all its partitions as lost, fetches their stored progress, and assigns them again;
//!   when these events were read, it [opens](TransactionControl::open) the next transaction.
//!
//! # Why it is exactly once
//!
//! *The committed output is that of the records completed since the previous commit.* No more: an
//! output in the transaction was answered before the seal, so its event was read before the
//! progress was taken; if the event counted, the record is complete in that progress, and if not,
//! the consumer aborts. No less: a record is complete when its output was sent. That was in this
//! transaction; or in an earlier one, which was committed with its progress, or aborted, and then
//! the partition was assigned again from the stored progress.
//!
//! *A member that the group has removed commits nothing.* The progress carries the member's id and
//! the group's generation, and the broker refuses old ones. A client without them has been told
//! about its removal; its commit is refused here, because the broker would take it for a client
//! without a group. A client gets a new generation only after the source has answered that its
//! partitions are lost.
//!
//! *A new owner starts after all decided transactions.* The stored progress is fetched so that the
//! broker does not answer while a transaction over it is open (`isolation.level=read_committed`).
//! The transaction of a dead producer ends by `transaction.timeout.ms`.
//!
//! *A fenced or failed producer* is replaced by another one with the same name, which begins only
//! when the transactions of its predecessor are decided.

mod output;
mod producer_thread;
mod shared;

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex};

use rdkafka::consumer::ConsumerGroupMetadata;
use rdkafka::topic_partition_list::TopicPartitionList;

pub use self::output::TransactionalOutput;
use self::producer_thread::ProducerThread;
#[cfg(test)]
pub(super) use self::producer_thread::config;
pub(super) use self::shared::TransactionOutcome;
use self::shared::{
    CommittedOffsets, ProducerCommand, TransactionCommit, TransactionPhase, TransactionShared,
    TransactionState,
};
use super::settings::ClientSettings;
use crate::source::SourceError;
use keylane_storage::ThreadNotify;

/// The source's handle: seals, commits and aborts transactions.
#[derive(Debug)]
pub(super) struct TransactionControl {
    shared: Arc<TransactionShared>,
    /// Ends when the handle is dropped.
    producer_thread: ProducerThread,
}

impl TransactionControl {
    /// Starts the producer thread, with producers of this name, and returns the output for this
    /// topic.
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
        Ok((TransactionControl { shared, producer_thread }, output))
    }

    /// Closes the open transaction to further output, and returns whether it is closed.
    pub(super) fn seal(&self) -> bool {
        let mut state = self.shared.state();
        let can = matches!(state.phase, TransactionPhase::Open) && !state.sending;
        if can {
            state.phase = TransactionPhase::Sealed;
        }
        can
    }

    /// Commits the sealed transaction with these offsets.
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

    /// Aborts the sealed transaction.
    pub(super) fn abort(&self) {
        self.end(ProducerCommand::Abort);
    }

    /// Opens the next transaction after an abort.
    pub(super) fn open(&self) {
        self.end(ProducerCommand::Open);
    }

    fn end(&self, command: ProducerCommand) {
        let mut state = self.shared.state();
        debug_assert!(
            matches!(state.phase, TransactionPhase::Sealed | TransactionPhase::Ended),
            "only this handle ends the transaction"
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

impl Drop for TransactionControl {
    fn drop(&mut self) {
        self.shared.state().closed = true;
        self.shared.changed.notify_all();
        self.producer_thread.join();
    }
}
