//! Thread of the transactional producer: opens, commits and aborts transactions, and replaces
//! failed producers.

use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::producer::Producer as _;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::super::settings::ClientSettings;
use super::shared::{
    ProducerCommand, TransactionCommit, TransactionOutcome, TransactionPhase, TransactionShared,
    TransactionState, TransactionalProducer,
};
use crate::source::SourceError;

/// Producer defaults. The transaction timeout bounds how long the transaction of a dead producer
/// delays readers of committed data and the next owner of a partition.
const PRODUCER_DEFAULTS: [(&str, &str); 3] = [
    ("partitioner", "murmur2_random"),
    ("compression.type", "lz4"),
    ("transaction.timeout.ms", "10000"),
];

/// Timeout of a call to the brokers; calls are repeated until the source is dropped.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// Timeout of the last abort, when the source is dropped.
const FINAL_ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// Pause before a new producer is tried.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// Maximum number of consecutive transactions that fail for reasons other than group membership.
/// Then an operator must act, because the same records will fail again.
const MAX_CONSECUTIVE_FAILURES: u32 = 8;

/// Handle of the thread.
#[derive(Debug)]
pub(super) struct ProducerThread(Option<JoinHandle<()>>);

/// State of the thread.
struct ProducerLoop {
    shared: Arc<TransactionShared>,
    config: ClientConfig,
    producer: Option<Arc<TransactionalProducer>>,
    /// Number of consecutive failed transactions.
    failures: u32,
}

/// Returns the configuration of producers with this name.
pub(in crate::kafka) fn config(
    client: &ClientSettings,
    name: &str,
) -> Result<ClientConfig, SourceError> {
    let fixed = [("enable.idempotence", "true"), ("acks", "all"), ("transactional.id", name)];
    client.config(&PRODUCER_DEFAULTS, &fixed)
}

impl ProducerThread {
    pub(super) fn start(
        shared: Arc<TransactionShared>,
        config: ClientConfig,
    ) -> Result<Self, SourceError> {
        let producer_loop = ProducerLoop { shared, config, producer: None, failures: 0 };
        // Finds invalid settings here, where the caller gets the error.
        drop(producer_loop.create()?);
        let thread = thread::Builder::new()
            .name("keylane-transactions".to_owned())
            .spawn(move || producer_loop.run())
            .map_err(|error| SourceError::because("cannot start a thread", error))?;
        Ok(ProducerThread(Some(thread)))
    }

    pub(super) fn join(&mut self) {
        if let Some(thread) = self.0.take() {
            // A panic of the thread has no other observer.
            let _ = thread.join();
        }
    }
}

impl ProducerLoop {
    fn run(mut self) {
        while let Some(command) = self.next() {
            match command {
                ProducerCommand::Open => self.open(),
                ProducerCommand::Commit(commit) => self.commit(*commit),
                ProducerCommand::Abort => self.abort(None),
                ProducerCommand::Broken(error) => self.abort(Some(&error)),
            }
        }
        // An open transaction would delay readers of committed data until its timeout.
        if let Some(producer) = &self.producer {
            // If the broker does not answer, the transaction times out.
            let _ = producer.abort_transaction(FINAL_ABORT_TIMEOUT);
        }
    }

    /// Waits for a command. Returns `None` once the source is dropped.
    fn next(&self) -> Option<ProducerCommand> {
        let mut state = self.shared.state();
        loop {
            if state.closed {
                return None;
            }
            if let TransactionPhase::Ending(command) = &mut state.phase
                && let Some(command) = command.take()
            {
                return Some(command);
            }
            state = self.shared.wait(state);
        }
    }

    fn closed(&self) -> bool {
        self.shared.state().closed
    }

    /// Changes the state and notifies the other threads.
    fn update(&self, change: impl FnOnce(&mut TransactionState)) {
        change(&mut self.shared.state());
        self.shared.changed.notify_all();
        self.shared.wakeup.notify();
    }

    fn create(&self) -> Result<TransactionalProducer, SourceError> {
        let context = rdkafka::producer::DefaultProducerContext;
        let created = self.config.create_with_context(context);
        created.map_err(|error| SourceError::because("cannot start the Kafka client", error))
    }

    /// Opens a transaction, with a new producer if necessary.
    fn open(&mut self) {
        while let Some(producer) = self.producer() {
            match producer.begin_transaction() {
                Ok(()) => {
                    return self.update(|state| {
                        state.producer = Some(producer);
                        state.phase = TransactionPhase::Open;
                    });
                }
                Err(error) => {
                    self.drop_producer();
                    self.wait_before_retry(&error.to_string());
                }
            }
        }
    }

    /// Returns the producer, or a new one, which exists only when all earlier transactions of its
    /// name are decided. `None` once the source is dropped.
    fn producer(&mut self) -> Option<Arc<TransactionalProducer>> {
        while self.producer.is_none() && !self.closed() {
            let made = self.create().map_err(|error| error.to_string()).and_then(|producer| {
                let begun = self.retry(|| producer.init_transactions(CALL_TIMEOUT));
                begun.map(|()| producer).map_err(|error| error.to_string())
            });
            match made {
                Ok(producer) => self.producer = Some(Arc::new(producer)),
                Err(why) => self.wait_before_retry(&why),
            }
        }
        self.producer.clone()
    }

    fn wait_before_retry(&self, why: &str) {
        self.update(|state| {
            state.notices.push(format!("no transaction could be opened yet, retrying: {why}"))
        });
        let state = self.shared.state();
        let goes_on = |state: &mut TransactionState| !state.closed;
        let waited = self.shared.changed.wait_timeout_while(state, RETRY_INTERVAL, goes_on);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn commit(&mut self, commit: TransactionCommit) {
        match self.try_to_commit(&commit) {
            Ok(()) => {
                self.failures = 0;
                self.update(|state| {
                    state.outcomes.push_back(TransactionOutcome::Committed(commit.watermarks))
                });
                self.open();
            }
            Err(error) => self.abort(Some(&error)),
        }
    }

    fn try_to_commit(&self, commit: &TransactionCommit) -> Result<(), KafkaError> {
        let Some(producer) = &self.producer else { return Err(KafkaError::Canceled) };
        if commit.offsets.count() > 0 {
            let (offsets, member) = (&commit.offsets, &commit.member);
            self.retry(|| producer.send_offsets_to_transaction(offsets, member, CALL_TIMEOUT))?;
        }
        self.retry(|| producer.commit_transaction(CALL_TIMEOUT))
    }

    /// Aborts the transaction, in whatever state it is, and waits before the next one.
    fn abort(&mut self, why: Option<&KafkaError>) {
        let aborted =
            self.producer.as_ref().map(|it| self.retry(|| it.abort_transaction(CALL_TIMEOUT)));
        if !matches!(aborted, Some(Ok(()))) {
            // A new producer of this name begins only when the outcome is decided.
            self.drop_producer();
            if self.producer().is_none() {
                return;
            }
        }
        let code = why.and_then(KafkaError::rdkafka_error_code);
        if why.is_some() && !code.is_some_and(is_membership_error) {
            self.failures += 1;
        }
        let hopeless = self.failures >= MAX_CONSECUTIVE_FAILURES;
        self.update(|state| {
            state.phase = TransactionPhase::Ended;
            if let Some(error) = why {
                state.notices.push(format!("a transaction was aborted: {error}"));
            }
            state.outcomes.push_back(match why {
                Some(error) if hopeless => {
                    let what = "no transaction can be committed";
                    TransactionOutcome::Hopeless(SourceError::because(what, error.clone()))
                }
                _ => TransactionOutcome::Aborted {
                    map_too_long: code == Some(Code::OffsetMetadataTooLarge),
                },
            });
        });
    }

    fn drop_producer(&mut self) {
        let shared = self.shared.state().producer.take();
        drop(shared);
        self.producer = None;
    }

    /// Repeats a call until it succeeds, fails permanently, or the source is dropped.
    fn retry(&self, call: impl Fn() -> Result<(), KafkaError>) -> Result<(), KafkaError> {
        loop {
            match call() {
                Err(error) if is_retriable(&error) && !self.closed() => {}
                result => return result,
            }
        }
    }
}

/// Returns whether the same call can be repeated.
fn is_retriable(error: &KafkaError) -> bool {
    match error {
        KafkaError::Transaction(error) => error.is_retriable(),
        KafkaError::Flush(code) => *code == Code::OperationTimedOut,
        _ => false,
    }
}

/// Returns whether the error means that this member left the group, or that the producer was
/// fenced.
fn is_membership_error(code: Code) -> bool {
    matches!(
        code,
        Code::UnknownMemberId
            | Code::IllegalGeneration
            | Code::FencedInstanceId
            | Code::FencedMemberEpoch
            | Code::StaleMemberEpoch
            | Code::RebalanceInProgress
            | Code::ProducerFenced
            | Code::Fenced
            | Code::InvalidProducerEpoch
            | Code::InvalidProducerIdMapping
    )
}
