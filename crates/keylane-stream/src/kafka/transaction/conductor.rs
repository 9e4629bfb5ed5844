//! The thread that has the transactional producer: it opens, commits and aborts transactions, and replaces a
//! producer that is good for nothing any more.

use std::sync::{Arc, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rdkafka::ClientConfig;
use rdkafka::error::KafkaError;
use rdkafka::producer::Producer as _;
use rdkafka::types::RDKafkaErrorCode as Code;

use super::super::settings::Client;
use super::{Commit, Order, Outcome, Phase, Producer, Shared, State};
use crate::source::SourceError;

/// Where output goes when nothing else is said; and for how long an open transaction holds back those who read what is
/// committed, and whoever takes a partition over, when its producer has died.
const DEFAULTS: [(&str, &str); 3] = [
    ("partitioner", "murmur2_random"),
    ("compression.type", "lz4"),
    ("transaction.timeout.ms", "10000"),
];

/// How long a call to the brokers may take; it is repeated until all is over.
const CALL: Duration = Duration::from_secs(5);

/// The same when all is over.
const LAST_CALL: Duration = Duration::from_secs(1);

/// How long is waited before a producer is tried again.
const PAUSE: Duration = Duration::from_millis(500);

/// How many transactions in a row may fail for reasons that concern them, and not who we are: then somebody has to
/// look into it, for the same records will fail again.
const MOST_FAILURES: u32 = 8;

/// The thread.
#[derive(Debug)]
pub(super) struct Conductor(Option<JoinHandle<()>>);

/// What the thread has for itself.
struct Conducting {
    shared: Arc<Shared>,
    config: ClientConfig,
    producer: Option<Arc<Producer>>,
    /// How many transactions in a row have failed.
    failures: u32,
}

/// The settings of the producer with this name.
pub(super) fn config(client: &Client, name: &str) -> Result<ClientConfig, SourceError> {
    let fixed = [("enable.idempotence", "true"), ("acks", "all"), ("transactional.id", name)];
    client.config(&DEFAULTS, &fixed)
}

impl Conductor {
    pub(super) fn start(shared: Arc<Shared>, config: ClientConfig) -> Result<Self, SourceError> {
        let conducting = Conducting { shared, config, producer: None, failures: 0 };
        // Wrong settings are found here, and not by a thread that nobody asks.
        drop(conducting.create()?);
        let thread = thread::Builder::new()
            .name("keylane-transactions".to_owned())
            .spawn(move || conducting.run())
            .map_err(|error| SourceError::because("a thread cannot be had", error))?;
        Ok(Conductor(Some(thread)))
    }

    pub(super) fn join(&mut self) {
        if let Some(thread) = self.0.take() {
            // If it has panicked, there is nobody left to be told.
            let _ = thread.join();
        }
    }
}

impl Conducting {
    fn run(mut self) {
        while let Some(order) = self.next() {
            match order {
                Order::Open => self.open(),
                Order::Commit(commit) => self.commit(*commit),
                Order::Abort => self.give_up(None),
                Order::Broken(error) => self.give_up(Some(&error)),
            }
        }
        // What is open holds those back who read what is committed.
        if let Some(producer) = &self.producer {
            // If that cannot be said, its time will be over.
            let _ = producer.abort_transaction(LAST_CALL);
        }
    }

    /// Waits for an order; none once all is over.
    fn next(&self) -> Option<Order> {
        let mut state = self.shared.state();
        loop {
            if state.is_over {
                return None;
            }
            if let Phase::Ending(order) = &mut state.phase
                && let Some(order) = order.take()
            {
                return Some(order);
            }
            state = self.shared.wait(state);
        }
    }

    fn is_over(&self) -> bool {
        self.shared.state().is_over
    }

    /// Changes the state, and tells everybody.
    fn tell(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.shared.state());
        self.shared.changed.notify_all();
        self.shared.bell.ring();
    }

    fn create(&self) -> Result<Producer, SourceError> {
        let context = rdkafka::producer::DefaultProducerContext;
        let created = self.config.create_with_context(context);
        created.map_err(|error| SourceError::because("cannot start the Kafka client", error))
    }

    /// Opens a transaction.
    fn open(&mut self) {
        while let Some(producer) = self.producer() {
            match producer.begin_transaction() {
                Ok(()) => {
                    return self.tell(|state| {
                        state.producer = Some(producer);
                        state.phase = Phase::Open;
                    });
                }
                Err(error) => {
                    self.drop_producer();
                    self.try_again_after(&error.to_string());
                }
            }
        }
    }

    /// The producer, another one if there is none: it is there when all is decided that one of its name has begun.
    /// None once all is over.
    fn producer(&mut self) -> Option<Arc<Producer>> {
        while self.producer.is_none() && !self.is_over() {
            let made = self.create().map_err(|error| error.to_string()).and_then(|producer| {
                let begun = self.repeat(|| producer.init_transactions(CALL));
                begun.map(|()| producer).map_err(|error| error.to_string())
            });
            match made {
                Ok(producer) => self.producer = Some(Arc::new(producer)),
                Err(why) => self.try_again_after(&why),
            }
        }
        self.producer.clone()
    }

    fn try_again_after(&self, why: &str) {
        self.tell(|state| state.notices.push(format!("there is no transaction yet: {why}")));
        let state = self.shared.state();
        let goes_on = |state: &mut State| !state.is_over;
        let waited = self.shared.changed.wait_timeout_while(state, PAUSE, goes_on);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }

    fn commit(&mut self, commit: Commit) {
        match self.try_to_commit(&commit) {
            Ok(()) => {
                self.failures = 0;
                self.tell(|state| state.outcomes.push_back(Outcome::Committed(commit.places)));
                self.open();
            }
            Err(error) => self.give_up(Some(&error)),
        }
    }

    fn try_to_commit(&self, commit: &Commit) -> Result<(), KafkaError> {
        let Some(producer) = &self.producer else { return Err(KafkaError::Canceled) };
        if commit.offsets.count() > 0 {
            let (offsets, member) = (&commit.offsets, &commit.member);
            self.repeat(|| producer.send_offsets_to_transaction(offsets, member, CALL))?;
        }
        self.repeat(|| producer.commit_transaction(CALL))
    }

    /// Gives the transaction up, whatever became of it, and waits with the next one.
    fn give_up(&mut self, why: Option<&KafkaError>) {
        let aborted = self.producer.as_ref().map(|it| self.repeat(|| it.abort_transaction(CALL)));
        if !matches!(aborted, Some(Ok(()))) {
            // Whether it was aborted is decided before another one of its name begins.
            self.drop_producer();
            if self.producer().is_none() {
                return;
            }
        }
        let code = why.and_then(KafkaError::rdkafka_error_code);
        if why.is_some() && !code.is_some_and(is_about_us) {
            self.failures += 1;
        }
        let hopeless = self.failures >= MOST_FAILURES;
        self.tell(|state| {
            state.phase = Phase::Ended;
            if let Some(error) = why {
                state.notices.push(format!("a transaction was given up: {error}"));
            }
            state.outcomes.push_back(match why {
                Some(error) if hopeless => {
                    let what = "no transaction can be committed";
                    Outcome::Hopeless(SourceError::because(what, error.clone()))
                }
                _ => Outcome::GivenUp { map_too_long: code == Some(Code::OffsetMetadataTooLarge) },
            });
        });
    }

    fn drop_producer(&mut self) {
        let shared = self.shared.state().producer.take();
        drop(shared);
        self.producer = None;
    }

    /// Calls until it has worked, or has failed for good, or all is over.
    fn repeat(&self, call: impl Fn() -> Result<(), KafkaError>) -> Result<(), KafkaError> {
        loop {
            match call() {
                Err(error) if is_passing(&error) && !self.is_over() => {}
                result => return result,
            }
        }
    }
}

/// Whether the same call can be repeated.
fn is_passing(error: &KafkaError) -> bool {
    match error {
        KafkaError::Transaction(error) => error.is_retriable(),
        KafkaError::Flush(code) => *code == Code::OperationTimedOut,
        _ => false,
    }
}

/// Whether it says that we are not in the group, or the producer is not the one any more.
fn is_about_us(code: Code) -> bool {
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
