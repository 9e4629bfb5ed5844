use std::cell::Cell;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use slab::Slab;

use super::assignment::Assignment;
use super::attempt::{Cargo, Flight};
use super::buffer::{Buffer, Next};
use super::failure::Failure;
use super::order::{Lane, NoKey, Order, Place};
use super::report::{Failed, Then};
use super::survey::{HeldBy, PartitionSurvey, Waiting, WaitsFor};
use super::turn::LaneTurn;
use crate::source::{Assigned, CommitError};
use crate::tracker::{MapLimit, Progress, Taken, Tracker};
use crate::{Delivered, Position};

/// What a record takes in memory beside its bytes, roughly.
const RECORD_BYTES: usize = 256;

/// How long a commit is left alone that was refused for now.
const REFUSED_PAUSE: Duration = Duration::from_millis(100);

/// How long a source is held back at most while there is any room.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// How many of the blocked records a survey lists.
const MOST_BLOCKED_LISTED: usize = 20;

/// How many places for records are kept when none is in flight: as many as may be by default.
const MOST_PLACES_KEPT: usize = 4096;

/// How much of a partition may be incomplete at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Room {
    pub(super) records: usize,
    pub(super) bytes: usize,
}

/// A partition that is ours. Only the owner's thread sees it.
#[derive(Debug)]
pub(super) struct Held {
    pub(super) assignment: Arc<Assignment>,
    tracker: Tracker,
    limit: MapLimit,
    /// What came and was not taken on yet.
    buffer: Buffer,
    /// What was taken on and is not done, each at its cargo's place.
    flights: Slab<Entry>,
    /// What those take.
    bytes: usize,
    /// The lanes that have stopped, with the record that stopped them.
    stopped: HashMap<Lane, Position>,
    /// Their turns, which nobody gets while the partition is ours.
    turns: Vec<LaneTurn>,
    /// How many flights have stopped, or are behind one that has.
    pub(super) stuck: usize,
    /// Since when the source is told to hold it back.
    pub(super) paused: Option<Instant>,
    /// Nothing more comes.
    pub(super) exhausted: bool,
    /// It is to be given up: nothing begins.
    pub(super) closing: bool,
    /// A record was done last then, or the first one taken on.
    moved_at: Instant,
    /// One past the last position that came.
    arrived: Position,
    /// Since when a survey has seen that the source has records beyond that position, and the position.
    behind: Cell<Option<(Position, Instant)>>,
    pub(super) saving: Saving,
}

/// What of the progress is stored.
#[derive(Debug)]
pub(super) struct Saving {
    /// Counts the changes of the progress.
    version: u64,
    /// Which of them is stored.
    saved: u64,
    /// What was handed to the source and is not answered.
    on_its_way: Option<(u64, Position)>,
    /// What came of the last one, if that was no good.
    refused: Option<CommitError>,
    committed: Position,
    /// Since when there is progress that is not stored.
    unsaved_since: Option<Instant>,
    pub(super) begun_at: Instant,
    /// How many records were done since the last commit began.
    pub(super) ended: u64,
}

/// A record that was taken on and is not done.
#[derive(Debug)]
struct Entry {
    cargo: Arc<Cargo>,
    taken_at: Instant,
    /// What it takes of the room.
    bytes: usize,
    /// None of most: nothing has failed, and it runs or is about to.
    setback: Option<Box<Setback>>,
}

/// What keeps a record from being done, or has.
#[derive(Debug)]
struct Setback {
    /// The number of the attempt that failed last.
    failed: u32,
    failure: Option<Arc<Failure>>,
    state: State,
}

#[derive(Debug)]
enum State {
    Running,
    Retry(Instant),
    DeadLetter(Option<String>),
    Stopped,
    Behind(Position),
}

/// What was taken on, and where it is to run.
#[derive(Debug)]
pub(super) enum Taking {
    In(Lane, Flight),
    Unordered(Flight),
    Unfit(Flight, Failure),
}

impl Held {
    pub(super) fn new(assigned: &Assigned, assignment: Arc<Assignment>, now: Instant) -> Self {
        Held {
            assignment,
            tracker: Tracker::resume(&assigned.progress, assigned.limit),
            limit: assigned.limit,
            buffer: Buffer::default(),
            flights: Slab::new(),
            bytes: 0,
            stopped: HashMap::new(),
            turns: Vec::new(),
            stuck: 0,
            paused: None,
            exhausted: false,
            closing: false,
            moved_at: now,
            arrived: assigned.progress.watermark(),
            behind: Cell::new(None),
            saving: Saving {
                version: 0,
                saved: 0,
                on_its_way: None,
                refused: None,
                committed: assigned.progress.watermark(),
                unsaved_since: None,
                begun_at: now,
                ended: 0,
            },
        }
    }

    pub(super) fn came(&mut self, records: Vec<Delivered>) {
        if !self.closing {
            if let Some(last) = records.last() {
                self.arrived = last.position.next();
            }
            self.buffer.came(records);
        }
    }

    pub(super) fn reached(&mut self, position: Position) {
        if !self.closing {
            self.arrived = self.arrived.max(position);
            self.buffer.reached(position);
        }
    }

    /// Lets nothing begin from now on. What was not begun is not done, and comes again.
    pub(super) fn close(&mut self) {
        self.closing = true;
        self.assignment.close();
        self.buffer.clear();
    }

    /// Why the next record is not taken on, if there is one and it is not.
    pub(super) fn held_by(&self, room: Room) -> Option<HeldBy> {
        if self.closing {
            return Some(HeldBy::Closing);
        }
        self.buffer.next_record().and_then(|next| self.no_room_for(next, room))
    }

    fn no_room_for(&self, next: &Delivered, room: Room) -> Option<HeldBy> {
        if self.flights.len() >= room.records {
            Some(HeldBy::Records)
        } else if !self.flights.is_empty() && self.bytes + weight(next) > room.bytes {
            Some(HeldBy::Bytes)
        } else if !self.tracker.may_take(next.position) {
            Some(HeldBy::Map)
        } else {
            None
        }
    }

    /// Whether so much is done that a source that holds back may go on: not at the first free place, for to hold
    /// back and go on costs some sources more than a record. After a while at any: what waits behind a stopped
    /// key, or for a late attempt, may take more than half of the room for ever.
    pub(super) fn may_go_on(&self, room: Room, now: Instant) -> bool {
        let Some(since) = self.paused else { return false };
        let (records, bytes) = (self.flights.len(), self.bytes);
        let much = records <= room.records / 2 && bytes <= room.bytes / 2;
        let any = records < room.records && bytes < room.bytes;
        self.buffer.is_empty() && (much || any && now - since >= LONGEST_PAUSE)
    }

    pub(super) fn has_buffered(&self) -> bool {
        !self.buffer.is_empty()
    }

    /// Whether nothing can happen any more: all came, and what is not done has stopped.
    pub(super) fn is_at_its_end(&self, room: Room) -> bool {
        let no_more = self.buffer.is_empty() || self.held_by(room).is_some();
        self.exhausted && no_more && self.flights.len() == self.stuck
    }

    /// Takes on what there is room for. How many came again that were done already.
    pub(super) fn take_on(
        &mut self,
        (order, no_key, room): (&Order, NoKey, Room),
        now: Instant,
        mut each: impl FnMut(Taking),
    ) -> u64 {
        let mut repeated = 0;
        while !self.closing && self.held_by(room).is_none() {
            match self.buffer.pop() {
                None => break,
                Some(Next::Reached(position)) => self.skip_to(position),
                Some(Next::Record(delivered)) => match self.tracker.take(delivered.position) {
                    Taken::New => {
                        if let Some(taking) = self.enter(delivered, (order, no_key), now) {
                            each(taking);
                        }
                    }
                    Taken::Done => repeated += 1,
                    Taken::InFlight => {}
                },
            }
        }
        repeated
    }

    fn skip_to(&mut self, position: Position) {
        let before = self.tracker.watermark();
        self.tracker.skip_to(position);
        if self.tracker.watermark() != before {
            self.saving.changed(Instant::now());
        }
    }

    fn enter(
        &mut self,
        delivered: Delivered,
        (order, no_key): (&Order, NoKey),
        now: Instant,
    ) -> Option<Taking> {
        if self.flights.len() == self.stuck {
            self.moved_at = now;
        }
        let bytes = weight(&delivered);
        self.bytes += bytes;
        let place = order.place(&delivered, self.assignment.slot, no_key);
        let entry = self.flights.vacant_entry();
        let flight = Flight::new(self.assignment.clone(), delivered, entry.key());
        let cargo = flight.cargo.clone();
        let entry = entry.insert(Entry { cargo, taken_at: now, bytes, setback: None });
        if let Place::In(lane) = &place
            && !self.stopped.is_empty()
            && let Some(stopped) = self.stopped.get(lane)
        {
            entry.set_back().state = State::Behind(*stopped);
            self.stuck += 1;
            return None;
        }
        Some(match place {
            Place::In(lane) => Taking::In(lane, flight),
            Place::Unordered => Taking::Unordered(flight),
            Place::Unfit(why) => Taking::Unfit(flight, why),
        })
    }

    /// Notes that a record is done. False if that is known: nothing has changed then.
    pub(super) fn ended(&mut self, position: Position, place: usize, now: Instant) -> bool {
        // Its place may be another's if it is done. A position is taken on once while the partition is ours, so
        // it says whose the entry is.
        if self.flights.get(place).is_none_or(|entry| entry.position() != position) {
            return false;
        }
        let done = self.tracker.complete(position);
        debug_assert!(done.is_ok(), "what has an entry was taken on and is not done");
        let entry = self.flights.remove(place);
        self.bytes -= entry.bytes;
        if self.flights.is_empty() && self.flights.capacity() > MOST_PLACES_KEPT {
            // A burst's memory is given back.
            self.flights = Slab::new();
        }
        self.moved_at = now;
        self.saving.changed(now);
        self.saving.ended += 1;
        true
    }

    /// Notes that an attempt has failed.
    pub(super) fn failed(&mut self, failed: Failed, order: (&Order, NoKey)) {
        // Its place may be another's if it is done.
        let entry = self.flights.get_mut(failed.cargo.place);
        let entry = entry.filter(|entry| Arc::ptr_eq(&entry.cargo, &failed.cargo));
        let Some(entry) = entry else { return };
        let (state, turn) = match failed.then {
            Then::Retry(at) => (State::Retry(at), None),
            // Its end is the next report.
            Then::Skip => (State::Running, None),
            Then::DeadLetter => (State::DeadLetter(None), None),
            Then::NotBuried(why) => (State::DeadLetter(Some(why)), None),
            Then::StopKey(turn) | Then::StopAll(turn) => (State::Stopped, turn),
        };
        let stopped = matches!(state, State::Stopped);
        let failure = Some(failed.failure);
        entry.setback = Some(Box::new(Setback { failed: failed.attempt, failure, state }));
        self.turns.extend(turn);
        if stopped {
            self.stuck += 1;
            self.stop_lane(&failed.cargo, order);
        }
    }

    /// What is behind a record that has stopped does not run.
    fn stop_lane(&mut self, stopped: &Cargo, (order, no_key): (&Order, NoKey)) {
        let slot = self.assignment.slot;
        let lane = |cargo: &Cargo| match order.place(&cargo.delivered, slot, no_key) {
            Place::In(lane) => Some(lane),
            Place::Unordered | Place::Unfit(_) => None,
        };
        let Some(its) = lane(stopped) else { return };
        let position = stopped.delivered.position;
        for (_, entry) in &mut self.flights {
            let is_behind = entry.cargo.delivered.position > position;
            if is_behind && lane(&entry.cargo).as_ref() == Some(&its) {
                entry.set_back().state = State::Behind(position);
                self.stuck += 1;
            }
        }
        self.stopped.insert(its, position);
    }

    /// What is to be stored.
    fn progress(&self) -> Progress {
        self.tracker.progress().shortened(self.limit)
    }

    /// From when on the progress can be stored; none if it is stored, or another is on its way, or that is
    /// hopeless.
    pub(super) fn savable_at(&self) -> Option<Instant> {
        if self.is_saving() || !self.is_unsaved() {
            return None;
        }
        let begun_at = self.saving.begun_at;
        match self.saving.refused {
            Some(CommitError::NotOurs) => None,
            Some(CommitError::Later(_)) => Some(begun_at + REFUSED_PAUSE),
            Some(CommitError::TooLong) | None => Some(begun_at),
        }
    }

    /// When it is to be stored, which it can be then: so long after the last time, or at once after so many
    /// records. None if it cannot be, or no clock will reach that time.
    pub(super) fn commit_due_at(&self, every: Duration, after_records: u64) -> Option<Instant> {
        let Saving { begun_at, ended, .. } = self.saving;
        let savable_at = self.savable_at()?;
        let enough = ended >= after_records;
        let wanted_at = if enough { begun_at } else { begun_at.checked_add(every)? };
        Some(wanted_at.max(savable_at))
    }

    /// Begins to store the progress, unless that is stored, or another is on its way, or has just been
    /// refused.
    pub(super) fn begin_commit(&mut self, now: Instant) -> Option<Progress> {
        if self.savable_at().is_none_or(|at| now < at) {
            return None;
        }
        let progress = self.progress();
        self.saving.on_its_way = Some((self.saving.version, progress.watermark()));
        self.saving.begun_at = now;
        self.saving.ended = 0;
        Some(progress)
    }

    /// Notes what came of it.
    pub(super) fn committed(&mut self, result: &Result<(), CommitError>) {
        let Some((version, watermark)) = self.saving.on_its_way.take() else { return };
        self.saving.refused = result.clone().err();
        match result {
            Ok(()) => {
                self.saving.saved = version;
                let is_saved = version == self.saving.version;
                self.saving.unsaved_since = (!is_saved).then_some(self.saving.begun_at);
                self.saving.committed = watermark;
            }
            Err(CommitError::TooLong) => self.shorten_map(),
            Err(_) => {}
        }
    }

    /// Whether a commit would change nothing, or is hopeless.
    pub(super) fn has_nothing_to_save(&self) -> bool {
        !self.is_saving() && self.savable_at().is_none()
    }

    pub(super) fn is_unsaved(&self) -> bool {
        self.saving.version != self.saving.saved
    }

    pub(super) fn is_saving(&self) -> bool {
        self.saving.on_its_way.is_some()
    }

    /// Whether the ends of what is in flight can make a commit due.
    pub(super) fn can_be_due(&self, after_records: u64) -> bool {
        let can_end = self.flights.len() as u64;
        !self.is_saving() && self.saving.ended.saturating_add(can_end) >= after_records
    }

    /// The map was too long for where it is stored: makes do with half of it.
    fn shorten_map(&mut self) {
        let half = (self.limit.get() / 2).max(MapLimit::LEAST);
        self.limit = MapLimit::characters(half).unwrap_or(self.limit);
        self.tracker.set_limit(self.limit);
    }

    pub(super) fn survey(
        &self,
        room: Room,
        end: Option<Position>,
        now: Instant,
    ) -> PartitionSurvey {
        let moving = self.flights.len() - self.stuck > 0 || self.has_buffered();
        let (mut blocked, mut oldest) = (Vec::new(), None);
        for entry in self.entries() {
            if entry.is_blocked() {
                blocked.push(entry);
            }
            if entry.position() == self.tracker.watermark() {
                oldest = Some(entry);
            }
        }
        blocked.sort_unstable_by_key(|entry| entry.position());
        let blocked_count = blocked.len();
        let listed = blocked.into_iter().take(MOST_BLOCKED_LISTED);
        let without_progress = if moving {
            now.saturating_duration_since(self.moved_at)
        } else {
            self.waits_for_source(end, now)
        };
        let unsaved_since = self.saving.unsaved_since;
        PartitionSurvey {
            partition: self.assignment.partition.clone(),
            epoch: self.assignment.epoch,
            committed: self.saving.committed,
            watermark: self.tracker.watermark(),
            highest_done: self.tracker.end(),
            end,
            incomplete: self.flights.len(),
            running: self.assignment.running(),
            bytes: self.bytes,
            held: self.buffer.records(),
            held_by: self.held_by(room),
            oldest: oldest.map(|entry| entry.survey(now)),
            blocked: listed.map(|entry| entry.survey(now)).collect(),
            blocked_count,
            without_progress,
            unsaved: unsaved_since
                .map_or(Duration::ZERO, |since| now.saturating_duration_since(since)),
        }
    }

    /// How long surveys have seen that the source has more than has come, though nothing is held back.
    fn waits_for_source(&self, end: Option<Position>, now: Instant) -> Duration {
        let is_behind = end.is_some_and(|end| end > self.arrived) && self.paused.is_none();
        let same = self.behind.get().filter(|(arrived, _)| *arrived == self.arrived);
        let behind = (is_behind && !self.closing).then(|| same.unwrap_or((self.arrived, now)));
        self.behind.set(behind);
        behind.map_or(Duration::ZERO, |(_, since)| now.saturating_duration_since(since))
    }

    /// Those with which a key has stopped.
    pub(super) fn stopped(&self, now: Instant) -> impl Iterator<Item = Waiting> {
        let stopped = |entry: &&Entry| matches!(entry.state(), State::Stopped);
        self.entries().filter(stopped).map(move |entry| entry.survey(now))
    }

    fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.flights.iter().map(|(_, entry)| entry)
    }
}

impl Saving {
    /// Notes that there is more to be stored.
    fn changed(&mut self, now: Instant) {
        self.version += 1;
        self.unsaved_since.get_or_insert(now);
    }
}

impl Entry {
    fn position(&self) -> Position {
        self.cargo.delivered.position
    }

    fn state(&self) -> &State {
        self.setback.as_ref().map_or(&State::Running, |setback| &setback.state)
    }

    fn is_blocked(&self) -> bool {
        !matches!(self.state(), State::Running)
    }

    fn set_back(&mut self) -> &mut Setback {
        let none = || Box::new(Setback { failed: 0, failure: None, state: State::Running });
        self.setback.get_or_insert_with(none)
    }

    fn survey(&self, now: Instant) -> Waiting {
        let failure = self.setback.as_ref().and_then(|setback| setback.failure.as_ref());
        Waiting {
            position: self.position(),
            key: self.cargo.delivered.record.key.clone(),
            age: now.saturating_duration_since(self.taken_at),
            failed: self.setback.as_ref().map_or(0, |setback| setback.failed),
            failure: failure.map(ToString::to_string),
            why: match self.state() {
                State::Retry(at) if *at > now => WaitsFor::Retry { within: *at - now },
                State::Running | State::Retry(_) => WaitsFor::Running,
                State::DeadLetter(refused) => WaitsFor::DeadLetter { refused: refused.clone() },
                State::Stopped => WaitsFor::Stopped,
                State::Behind(position) => WaitsFor::BehindStopped(*position),
            },
        }
    }
}

fn weight(delivered: &Delivered) -> usize {
    RECORD_BYTES + delivered.record.weight()
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::{Partition, Record};

    const ROOM: Room = Room { records: 10, bytes: usize::MAX };

    fn take_on(held: &mut Held, offset: u64) -> Flight {
        let record = Record::new("ann", "x");
        let position = Position::new(offset);
        held.came(vec![Delivered { position, written: SystemTime::UNIX_EPOCH, record }]);
        let mut taken = None;
        held.take_on((&Order::Key, NoKey::default(), ROOM), Instant::now(), |taking| {
            let (Taking::In(_, flight) | Taking::Unordered(flight) | Taking::Unfit(flight, _)) =
                taking;
            taken = Some(flight);
        });
        taken.unwrap()
    }

    #[test]
    fn late_reports_of_a_record_are_not_those_of_who_has_its_place_now() {
        let partition = Partition::new("t", 0);
        let progress = Progress::up_to(Position::ZERO);
        let limit = MapLimit::characters(4096).unwrap();
        let assigned = Assigned { partition: partition.clone(), progress, limit };
        let now = Instant::now();
        let mut held = Held::new(&assigned, Assignment::new(partition, 0, 1), now);
        let first = take_on(&mut held, 0);
        let (position, place) = (first.cargo.delivered.position, first.cargo.place);
        assert!(held.ended(position, place, now));
        let second = take_on(&mut held, 1);
        assert_eq!(second.cargo.place, place, "the place is used again");
        let before = (held.progress().watermark(), held.bytes, held.saving.version);

        let failure = Arc::new(Failure::from("late"));
        let (cargo, then) = (first.cargo.clone(), Then::StopKey(None));
        held.failed(Failed { cargo, attempt: 1, failure, then }, (&Order::Key, NoKey::default()));
        assert!(!held.ended(position, place, now));
        assert_eq!((held.progress().watermark(), held.bytes, held.saving.version), before);
        let survey = held.survey(ROOM, None, now);
        assert_eq!((survey.incomplete, survey.blocked_count, held.stuck), (1, 0, 0));
        assert_eq!(survey.oldest.unwrap().position, second.cargo.delivered.position);

        assert!(held.ended(second.cargo.delivered.position, place, now));
        // Nobody has the place.
        assert!(!held.ended(second.cargo.delivered.position, place, now));
        assert_eq!(held.bytes, 0);
    }
}
