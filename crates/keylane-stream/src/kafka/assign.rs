//! Partitions that come and go.

use std::collections::HashMap;
use std::time::Instant;

use rdkafka::consumer::Consumer as _;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};
use rdkafka::types::RDKafkaErrorCode;

use super::begin::{self, Begin, Decided, GoOn, Place, epochs_of};
use super::context::{self, Happened};
use super::hold::Item;
use super::lookup::{Answer, Bounds, Committed, Question};
use super::names::Name;
use super::native::TopicId;
use super::owned::Owned;
use super::source::{ASK_AGAIN_AFTER, KafkaSource};
use crate::Position;
use crate::source::{Assigned, Event, Partition, SourceError};
use crate::tracker::Progress;

/// Partitions that the client offers, and what is known so far of where they begin.
#[derive(Debug)]
pub(super) struct Offer {
    names: Vec<Name>,
    /// Of those that begin at one end of their stream, at which.
    unknown: HashMap<Name, Begin>,
    known: HashMap<Name, Known>,
}

/// Where a partition begins that the client offers.
#[derive(Debug)]
struct Known {
    progress: Progress,
    id: Option<TopicId>,
    /// Leader epochs: of the record before the watermark, and the highest one of the map.
    epochs: (Option<u32>, Option<u32>),
}

impl KafkaSource {
    /// What the client has called back about.
    pub(super) fn take_happened(&mut self, events: &mut Vec<Event>) -> Result<(), SourceError> {
        while let Some(happened) = self.context().take_happened() {
            match happened {
                Happened::Assign(names) => self.offered(names)?,
                Happened::Revoke { partitions, lost: false } => self.wanted(partitions, events),
                Happened::Revoke { partitions, lost: true } => self.lost(partitions, events),
                Happened::Committed(outcomes) => self.committed(outcomes, events),
            }
        }
        Ok(())
    }

    fn offered(&mut self, names: Vec<Name>) -> Result<(), SourceError> {
        let offer = Offer { names, unknown: HashMap::new(), known: HashMap::new() };
        self.offers.push_back(offer);
        if self.offers.len() == 1 { self.look_up_front() } else { Ok(()) }
    }

    /// Begins to look up the front of the offers; one of nothing needs none of that.
    fn look_up_front(&mut self) -> Result<(), SourceError> {
        while let Some(offer) = self.offers.front() {
            if !offer.names.is_empty() {
                self.ask(Question::Committed(offer.names.clone()));
                return Ok(());
            }
            self.offers.pop_front();
            self.answer_offer(&TopicPartitionList::new())?;
        }
        Ok(())
    }

    fn answer_offer(&mut self, partitions: &TopicPartitionList) -> Result<(), SourceError> {
        self.has_joined = true;
        let cannot = |error| SourceError::because("cannot take what the group has assigned", error);
        context::take(&self.consumer, partitions).map_err(cannot)
    }

    /// What the lookup has found.
    pub(super) fn take_answers(&mut self, events: &mut Vec<Event>) -> Result<(), SourceError> {
        while let Some(answer) = self.lookup.as_ref().and_then(|lookup| lookup.take()) {
            match answer {
                Answer::Committed(names, Ok(found)) if self.looks_back_for(&names) => {
                    self.found_stored(&found, events)?;
                }
                Answer::Committed(names, Ok(found)) => {
                    self.found_committed(&names, &found, events)?
                }
                Answer::Bounds(_, Ok(found)) => self.found_bounds(&found, events)?,
                Answer::Ids(Ok(ids)) => self.found_ids(&ids),
                Answer::Committed(names, Err(error)) => {
                    self.unanswered(Question::Committed(names), &error)?;
                }
                Answer::Bounds(names, Err(error)) => {
                    self.unanswered(Question::Bounds(names), &error)?;
                }
                // It is asked again soon anyway.
                Answer::Ids(Err(_)) => {}
            }
        }
        Ok(())
    }

    fn unanswered(
        &mut self,
        question: Question,
        error: &rdkafka::error::KafkaError,
    ) -> Result<(), SourceError> {
        let still_asked = match &question {
            Question::Committed(names) => {
                self.offers.front().is_some_and(|offer| offer.names == *names)
                    || self.looks_back_for(names)
            }
            Question::Bounds(names) => names.iter().any(|name| self.asks_about(name)),
            Question::Ids(_) => false,
        };
        if still_asked {
            let code = error.rdkafka_error_code().unwrap_or(RDKafkaErrorCode::Unknown);
            self.tell(code, &error.to_string())?;
            self.later.push((Instant::now() + ASK_AGAIN_AFTER, question));
        }
        Ok(())
    }

    fn asks_about(&self, name: &Name) -> bool {
        let offered = |offer: &Offer| offer.unknown.contains_key(name);
        self.offers.front().is_some_and(offered)
            || self.owned.get(name).is_some_and(|owned| owned.asking)
    }

    fn found_committed(
        &mut self,
        names: &[Name],
        found: &[Committed],
        events: &mut Vec<Event>,
    ) -> Result<(), SourceError> {
        // The offer may have been withdrawn meanwhile.
        let Some(offer) = self.offers.front_mut().filter(|offer| offer.names == names) else {
            return Ok(());
        };
        for committed in found {
            let known = self.ids.get(&committed.name.topic).copied();
            let Decided { what, notice } = self.rules.begin_again(known, committed)?;
            if let Some(notice) = notice {
                self.consumer.context().add_notice(notice);
            }
            match what {
                Begin::At(progress) => {
                    let (id, epochs) = (committed.id, epochs_of(committed));
                    offer.known.insert(committed.name.clone(), Known { progress, id, epochs });
                }
                end => {
                    offer.unknown.insert(committed.name.clone(), end);
                }
            }
        }
        if !offer.unknown.is_empty() {
            let names = offer.unknown.keys().cloned().collect();
            self.ask(Question::Bounds(names));
        }
        self.take_if_known(events)
    }

    fn found_bounds(
        &mut self,
        found: &[Bounds],
        events: &mut Vec<Event>,
    ) -> Result<(), SourceError> {
        for bounds in found {
            if self.owned.contains_key(&bounds.name) {
                self.go_on(bounds, events)?;
            } else if let Some(offer) = self.offers.front_mut()
                && let Some(begin) = offer.unknown.remove(&bounds.name)
            {
                let at = if begin == Begin::Last { bounds.end } else { bounds.first };
                let progress = Progress::up_to(Position::checked(at).unwrap_or_default());
                let (id, epochs) = (bounds.id, (None, None));
                offer.known.insert(bounds.name.clone(), Known { progress, id, epochs });
            }
        }
        self.take_if_known(events)
    }

    /// Takes what is offered, once it is known where each of it begins.
    fn take_if_known(&mut self, events: &mut Vec<Event>) -> Result<(), SourceError> {
        let known = |offer: &mut Offer| offer.known.len() == offer.names.len();
        let Some(mut offer) = self.offers.pop_front_if(known) else { return Ok(()) };
        let mut list = TopicPartitionList::with_capacity(offer.names.len());
        let mut to_check = Vec::new();
        for name in offer.names {
            let known = offer.known.remove(&name).expect("all of them are known");
            let Known { progress, id, epochs } = known;
            let at = Offset::Offset(progress.watermark().signed());
            list.add_partition_offset(&name.topic, name.number, at)
                .expect("a position is a valid offset");
            let owned = Owned::new(&name, id, &progress, epochs);
            let partition = owned.partition.clone();
            if let Some(id) = id {
                self.ids.insert(name.topic.clone(), id);
            }
            if owned.epochs.below(owned.next).is_some() {
                to_check.push(name.clone());
            }
            self.owned.insert(name, owned);
            events.push(Event::Assigned(Assigned { partition, progress, limit: self.map_limit }));
        }
        self.has_worked = true;
        self.answer_offer(&list)?;
        // The broker says whether the log still is the one that was read: a seek asks, and an assignment does not.
        to_check.iter().for_each(|name| self.seek(name));
        self.look_up_front()
    }

    /// A partition of ours goes on where the rules say.
    fn go_on(&mut self, bounds: &Bounds, events: &mut Vec<Event>) -> Result<(), SourceError> {
        let name = &bounds.name;
        let Some(owned) = self.owned.get_mut(name).filter(|owned| owned.asking) else {
            return Ok(());
        };
        let Owned { id, next, stored, ref begun, cut, .. } = *owned;
        let decided = self.rules.go_on(Place { id, next, stored, begun, cut }, bounds);
        if self.revoked.iter().any(|names| names.contains(name)) {
            // Another member is about to have it, and will notice the same. If what was done here still counts, it
            // can be stored before that.
            let still_counts =
                matches!(&decided, Ok(Decided { what: GoOn::Seek(_) | GoOn::Skip(_), .. }));
            owned.asking = !still_counts;
            return Ok(());
        }
        let Decided { what, notice } = match decided {
            Ok(decided) => decided,
            Err(error) => {
                self.refuse(name, bounds);
                return Err(error);
            }
        };
        if let Some(notice) = notice {
            self.consumer.context().add_notice(notice);
        }
        match what {
            GoOn::Seek(position) => owned.next = position,
            GoOn::Skip(to) => {
                let positions = begin::open(&owned.begun, owned.next, to);
                owned.next = to;
                let partition = owned.partition.clone();
                events.push(Event::Missed { partition: partition.clone(), positions });
                // Behind what is kept, which comes before it.
                if owned.hold.holds() {
                    owned.hold.keep(Item::Reached(to));
                } else {
                    events.push(Event::Reached { partition, position: to });
                }
            }
            GoOn::Anew(progress, positions) => {
                self.begin_anew(name, bounds.id, progress, events);
                if positions > 0 {
                    events.push(Event::Missed { partition: name.partition(), positions });
                }
            }
        }
        self.seek(name);
        Ok(())
    }

    /// A partition of which a person has to decide where it goes on. What is done of it can be stored if that still
    /// is the same log.
    fn refuse(&mut self, name: &Name, bounds: &Bounds) {
        let is_same = |owned: &mut Owned| {
            let is_gone = Position::checked(bounds.first).is_some_and(|first| owned.next < first);
            is_gone && owned.cut.is_none() && owned.id == bounds.id
        };
        if let Some(owned) = self.owned.get_mut(name)
            && is_same(owned)
        {
            owned.asking = false;
        } else {
            self.owned.remove(name);
        }
    }

    /// A partition of ours is lost and assigned again.
    fn begin_anew(
        &mut self,
        name: &Name,
        id: Option<TopicId>,
        progress: Progress,
        events: &mut Vec<Event>,
    ) {
        let Some(owned) = self.owned.get_mut(name) else { return };
        // Where the client was told to fetch nothing it has to be told to go on.
        let was_stopped = owned.hold.stopped;
        *owned = Owned::new(name, id.or(owned.id), &progress, (None, None));
        owned.hold.stopped = was_stopped;
        if let Some(id) = owned.id {
            self.ids.insert(name.topic.clone(), id);
        }
        let (partition, limit) = (owned.partition.clone(), self.map_limit);
        events.push(Event::Lost(vec![partition.clone()]));
        events.push(Event::Assigned(Assigned { partition: partition.clone(), progress, limit }));
        crate::source::Source::resume(self, &partition);
    }

    /// Topics whose id is not what it was are looked at.
    fn found_ids(&mut self, ids: &HashMap<String, TopicId>) {
        let mut changed = Vec::new();
        for (name, owned) in &mut self.owned {
            let now = ids.get(&name.topic).copied();
            if owned.id.is_some() && now.is_some() && owned.id != now && !owned.asking {
                owned.asking = true;
                changed.push(name.clone());
            }
        }
        if !changed.is_empty() {
            self.ask(Question::Bounds(changed));
        }
    }

    /// The group wants partitions back.
    fn wanted(&mut self, names: Vec<Name>, events: &mut Vec<Event>) {
        if self.offers.iter().any(|offer| offer.names.iter().any(|name| names.contains(name))) {
            self.refuse_offers();
        }
        let ours: Vec<Partition> =
            names.iter().filter_map(|name| Some(self.owned.get(name)?.partition.clone())).collect();
        if ours.is_empty() {
            self.tell_given_up(&names);
        } else {
            self.revoked.push_back(names);
            events.push(Event::Revoked(ours));
        }
    }

    /// Partitions are somebody else's, and with them those that were about to be released.
    fn lost(&mut self, names: Vec<Name>, events: &mut Vec<Event>) {
        self.refuse_offers();
        let mut gone = Vec::new();
        for names in self.revoked.drain(..).chain([names]).collect::<Vec<_>>() {
            let ours = names.iter().filter_map(|name| self.owned.remove(name));
            gone.extend(ours.map(|owned| owned.partition));
            self.tell_given_up(&names);
        }
        if !gone.is_empty() {
            events.push(Event::Lost(gone));
        }
    }

    /// Gives up what the consumer has released.
    pub(super) fn give_up(&mut self, partitions: &[Partition]) {
        let released = |names: &Vec<Name>| {
            let ours = names.iter().filter(|name| self.owned.contains_key(*name));
            partitions.iter().all(|partition| names.contains(&Name::of(partition)))
                && ours.count() == partitions.len()
        };
        let Some(index) = self.revoked.iter().position(released) else { return };
        let names = self.revoked.remove(index).expect("it was found there");
        names.iter().for_each(|name| drop(self.owned.remove(name)));
        self.tell_given_up(&names);
    }

    /// Answers all that the client waits for.
    pub(super) fn give_up_everything(&mut self) {
        self.refuse_offers();
        for names in std::mem::take(&mut self.revoked) {
            self.tell_given_up(&names);
        }
        self.owned.clear();
    }

    /// Answers offers that were not taken yet, and are worth nothing any more: the client waits for an
    /// answer to each, and may then ask for them back.
    fn refuse_offers(&mut self) {
        for offer in std::mem::take(&mut self.offers) {
            let list = super::names::list(&offer.names);
            if let Err(error) = context::take(&self.consumer, &list) {
                self.notice(format!("the group's assignment was refused: {error}"));
            }
        }
    }

    pub(super) fn tell_given_up(&self, names: &[Name]) {
        if let Err(error) = context::give_up(&self.consumer, names) {
            self.notice(format!("partitions could not be given up: {error}"));
        }
    }
}
