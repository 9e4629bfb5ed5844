//! A source whose progress is committed in transactions, with what was made of its records: how one begins, and how
//! its partitions go on when a transaction was given up.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;

use rdkafka::consumer::Consumer as _;
use rdkafka::topic_partition_list::TopicPartitionList;

use super::begin::{Begin, epochs_of};
use super::lookup::{Committed, Question};
use super::names::Name;
use super::native;
use super::owned::Owned;
use super::settings::Settings;
use super::source::KafkaSource;
use super::transaction::{Outcome, TransactionalOutput, Transactions};
use crate::source::{Assigned, Event, Partition, Source as _, SourceError};
use crate::tracker::MapLimit;

/// What is to be done about a transaction that was given up.
#[derive(Debug)]
pub(super) enum Aborted {
    /// There is none.
    No,
    /// The partitions are lost; what is stored of these is being looked up.
    LookedUp(Vec<Name>),
    /// They are assigned again; the next transaction is opened when that was read.
    Told,
    /// There will be no other.
    Hopeless,
}

impl KafkaSource {
    /// Joins a group whose records are handled exactly once, as far as their output is concerned: what was made of a
    /// record is in the topic `output`, as those see it who read what is committed, if and only if the
    /// record is done, and once, whatever fails. The second value is the sink for the handler's output; the two
    /// belong to one consumer.
    ///
    /// - Output and progress are committed in transactions: as often as the consumer
    ///   [commits](crate::consumer::Builder::commit). Output is seen so much later. Handlers go on meanwhile.
    /// - When one cannot be committed, its output is aborted, all partitions go back to what is stored, and their
    ///   records are handled again; [`Attempt::epoch`](crate::consumer::Attempt::epoch) is another one then. What
    ///   handlers do beside their output happens at least once, and dead letters are written at least once.
    /// - A process that dies, is stopped for long, or has lost its partitions leaves nothing behind that counts. Whoever
    ///   takes a partition over waits until the transaction is decided, at most for the client's
    ///   `transaction.timeout.ms` (10 s); it is also the longest time between two commits.
    /// - A record of a topic that is written by transactions is handled when its own was committed.
    /// - Output that brokers refuse for good, which the client did not know, ends the consumer.
    ///
    /// # Errors
    /// If a setting is unknown, wrong, or one that Keylane relies on.
    ///
    /// # Examples
    /// ```no_run
    /// use keylane_stream::Record;
    /// use keylane_stream::consumer::{Attempt, Consumer, Failure};
    /// use keylane_stream::kafka::{Client, KafkaSource, Settings};
    ///
    /// let settings = Settings::new(Client::new("localhost:9092"), ["orders"], "billing");
    /// let (orders, bills) = KafkaSource::join_exactly_once(settings, "bills")?;
    /// let consumer = Consumer::builder(orders).start_producing(bills, |order: &Attempt| {
    ///     let key = order.key().map(Vec::from);
    ///     Ok::<_, Failure>(vec![Record { key, payload: Some(b"a bill".to_vec()), headers: vec![] }])
    /// })?;
    /// # drop(consumer);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn join_exactly_once(
        settings: Settings,
        output: impl Into<String>,
    ) -> Result<(Self, TransactionalOutput), SourceError> {
        let client = settings.client.clone();
        if client.get("isolation.level").is_some_and(|level| level != "read_committed") {
            let what = "exactly once is for records that are committed; leave out isolation.level";
            return Err(SourceError::new(what));
        }
        // Another producer of this name would be told that this one is the past, so no other process may have it.
        let random = RandomState::new().build_hasher().finish();
        let name = format!("keylane-{}-{random:016x}", settings.group);
        let mut source = KafkaSource::join(settings)?;
        let bell = Arc::clone(&source.context().bell);
        let (transactions, output) = Transactions::start(&client, &name, output.into(), bell)?;
        source.transactions = Some(transactions);
        Ok((source, output))
    }

    /// Commits these offsets and the output that goes with them, all of it or nothing.
    pub(super) fn commit_with_outputs(&mut self, offsets: TopicPartitionList, whose: &[Partition]) {
        let Some(transactions) = &self.transactions else { return };
        let names: Vec<_> = whose.iter().map(Name::of).collect();
        let place = |name: &Name| Some((name.clone(), self.owned.get(name)?.committing?));
        let places: Vec<_> = names.iter().filter_map(place).collect();
        let is_member = native::is_member(self.consumer.client());
        let is_whole = places.len() == offsets.count() && self.pending.is_empty();
        match self.consumer.group_metadata() {
            // The broker would take a client without a name for one that is in no group.
            Some(member) if is_whole && (is_member || places.is_empty()) => {
                transactions.commit(offsets, member, places);
            }
            _ => transactions.abort(),
        }
    }

    /// What came of transactions.
    pub(super) fn take_outcomes(&mut self, events: &mut Vec<Event>) -> Result<(), SourceError> {
        let Some(transactions) = &self.transactions else { return Ok(()) };
        if matches!(self.aborted, Aborted::Hopeless) {
            return Err(SourceError::new("no transaction can be committed"));
        }
        for notice in transactions.take_notices() {
            self.notice(notice);
        }
        while let Some(outcome) = self.transactions.as_ref().and_then(Transactions::take_outcome) {
            match outcome {
                Outcome::Committed(places) => {
                    let places = places.into_iter();
                    let committed = places.map(|(name, at)| (name, Some(at.signed()), Ok(())));
                    self.committed(committed.collect(), events);
                }
                Outcome::GivenUp { map_too_long } => {
                    if map_too_long {
                        let half = (self.map_limit.get() / 2).max(MapLimit::LEAST);
                        self.map_limit = MapLimit::characters(half).unwrap_or(self.map_limit);
                    }
                    self.go_back(events);
                }
                Outcome::Hopeless(error) => {
                    self.aborted = Aborted::Hopeless;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Gives everything up, and looks where it goes on.
    fn go_back(&mut self, events: &mut Vec<Event>) {
        self.pending.retain(|event| !matches!(event, Event::Committed { .. }));
        let ours = self.owned.values().map(|owned| owned.partition.clone());
        events.push(Event::Lost(ours.collect()));
        // What was to be given back is given back as it is stored.
        for names in std::mem::take(&mut self.revoked) {
            names.iter().for_each(|name| drop(self.owned.remove(name)));
            self.tell_given_up(&names);
        }
        let mut names = Vec::with_capacity(self.owned.len());
        for (name, owned) in &mut self.owned {
            owned.asking = true;
            names.push(name.clone());
        }
        self.aborted = Aborted::LookedUp(names.clone());
        if names.is_empty() {
            self.all_are_back(events);
        } else {
            self.ask(Question::Committed(names));
        }
    }

    pub(super) fn looks_back_for(&self, names: &[Name]) -> bool {
        matches!(&self.aborted, Aborted::LookedUp(asked) if asked == names)
    }

    /// What is stored of partitions that are still ours: they go on there.
    pub(super) fn found_stored(
        &mut self,
        found: &[Committed],
        events: &mut Vec<Event>,
    ) -> Result<(), SourceError> {
        for committed in found {
            let name = &committed.name;
            let decided = self.rules.begin(committed)?;
            let Some(owned) = self.owned.get_mut(name) else { continue };
            let (progress, epochs) = match decided.what {
                Begin::At(progress) => (progress, epochs_of(committed)),
                // Nothing was ever stored, so it goes on where it began.
                Begin::First | Begin::Last => (owned.begun.clone(), (None, None)),
            };
            // Where the client was told to fetch nothing it has to be told to go on.
            let was_stopped = owned.hold.stopped;
            *owned = Owned::new(name, owned.id, &progress, epochs);
            owned.hold.stopped = was_stopped;
            let partition = owned.partition.clone();
            let limit = self.map_limit;
            events.push(Event::Assigned(Assigned {
                partition: partition.clone(),
                progress,
                limit,
            }));
            self.resume(&partition);
            self.seek(name);
        }
        self.all_are_back(events);
        Ok(())
    }

    fn all_are_back(&mut self, events: &mut Vec<Event>) {
        events.push(Event::Aborted);
        self.aborted = Aborted::Told;
    }

    /// Opens the next transaction, if the one before was given up and that was read: this is called by the poll after.
    pub(super) fn open_if_all_is_read(&mut self, events: &[Event]) {
        if matches!(self.aborted, Aborted::Told) && events.is_empty() {
            self.aborted = Aborted::No;
            self.transactions.iter().for_each(Transactions::open);
        }
    }
}
