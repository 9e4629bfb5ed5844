//! The thread that has the transactional producer: it opens, commits and aborts transactions, and replaces a
//! producer that is good for nothing any more.

use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::producer::Producer as _;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::super::settings::ClientSettings;
use super::{
    ProducerCommand, TransactionCommit, TransactionOutcome, TransactionPhase, TransactionShared,
    TransactionState, TransactionalProducer,
};
use crate::source::SourceError;

/// Where output goes when nothing else is said; and for how long an open transaction holds back those who read what is
/// committed, and whoever takes a partition over, when its producer has died.
const PRODUCER_DEFAULTS: [(&str, &str); 3] = [
    ("partitioner", "murmur2_random"),
    ("compression.type", "lz4"),
    ("transaction.timeout.ms", "10000"),
];

/// How long a call to the brokers may take; it is repeated until all is over.
const CALL_TIMEOUT: Duration = Duration::from_secs(5);

/// The same when all is over.
const FINAL_ABORT_TIMEOUT: Duration = Duration::from_secs(1);

/// How long is waited before a producer is tried again.
const RETRY_INTERVAL: Duration = Duration::from_millis(500);

/// How many transactions in a row may fail for reasons that concern them, and not who we are: then somebody has to
/// look into it, for the same records will fail again.
const MAX_CONSECUTIVE_FAILURES: u32 = 8;

/// The thread.
#[derive(Debug)]
pub(super) struct ProducerThread(Option<JoinHandle<()>>);

/// What the thread has for itself.
struct ProducerLoop {
    shared: Arc<TransactionShared>,
    config: ClientConfig,
    producer: Option<Arc<TransactionalProducer>>,
    /// How many transactions in a row have failed.
    failures: u32,
}

/// The settings of the producer with this name.
pub(super) fn config(client: &ClientSettings, name: &str) -> Result<ClientConfig, SourceError> {
    let fixed = [("enable.idempotence", "true"), ("acks", "all"), ("transactional.id", name)];
    client.config(&PRODUCER_DEFAULTS, &fixed)
}

impl ProducerThread {
    pub(super) fn start(
        shared: Arc<TransactionShared>,
        config: ClientConfig,
    ) -> Result<Self, SourceError> {
        let producer_loop = ProducerLoop { shared, config, producer: None, failures: 0 };
        // Wrong settings are found here, and not by a thread that nobody asks.
        drop(producer_loop.create()?);
        let thread = thread::Builder::new()
            .name("keylane-transactions".to_owned())
            .spawn(move || producer_loop.run())
            .map_err(|error| SourceError::because("a thread cannot be had", error))?;
        Ok(ProducerThread(Some(thread)))
    }

    pub(super) fn join(&mut self) {
        if let Some(thread) = self.0.take() {
            // If it has panicked, there is nobody left to be told.
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
        // What is open holds those back who read what is committed.
        if let Some(producer) = &self.producer {
            // If that cannot be said, its time will be over.
            let _ = producer.abort_transaction(FINAL_ABORT_TIMEOUT);
        }
    }

    /// Waits for an command; none once all is over.
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

    /// Changes the state, and tells everybody.
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

    /// Opens a transaction.
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

    /// The producer, another one if there is none: it is there when all is decided that one of its name has begun.
    /// None once all is over.
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
        self.update(|state| state.notices.push(format!("there is no transaction yet: {why}")));
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

    /// Gives the transaction up, whatever became of it, and waits with the next one.
    fn abort(&mut self, why: Option<&KafkaError>) {
        let aborted =
            self.producer.as_ref().map(|it| self.retry(|| it.abort_transaction(CALL_TIMEOUT)));
        if !matches!(aborted, Some(Ok(()))) {
            // Whether it was aborted is decided before another one of its name begins.
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
                state.notices.push(format!("a transaction was given up: {error}"));
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

    /// Calls until it has worked, or has failed for good, or all is over.
    fn retry(&self, call: impl Fn() -> Result<(), KafkaError>) -> Result<(), KafkaError> {
        loop {
            match call() {
                Err(error) if is_retriable(&error) && !self.closed() => {}
                result => return result,
            }
        }
    }
}

/// Whether the same call can be repeated.
fn is_retriable(error: &KafkaError) -> bool {
    match error {
        KafkaError::Transaction(error) => error.is_retriable(),
        KafkaError::Flush(code) => *code == Code::OperationTimedOut,
        _ => false,
    }
}

/// Whether it says that we are not in the group, or the producer is not the one any more.
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
