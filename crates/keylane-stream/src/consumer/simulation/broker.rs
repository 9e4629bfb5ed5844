//! Broker of a simulation: logs, stored progress, and a group whose partitions move between its
//! members.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::history::{Claim, Event, Place};
use super::transaction_state::{Offsets, Phase, Transaction};
use super::world::World;
use crate::source::{CommitError, PartitionAssignment, ProgressCommit, SourceEvent};
use crate::tracker::{OffsetMapLimit, OffsetMapPolicy, Progress, decode};
use crate::{Partition, Position};
use keylane_testkit::Random;

/// Time without a sign of a member after which the group gives its partitions to others.
pub(super) const SESSION_TIMEOUT: u64 = 10_000_000;

/// Name of the stream.
const STREAM: &str = "orders";

pub(super) struct Broker {
    pub(super) world: Arc<World>,
    pub(super) logs: Vec<Log>,
    /// Sessions of all processes, by number.
    pub(super) sessions: Vec<Session>,
    /// Steps by their time, and in the order of their requests.
    due: BTreeMap<(u64, u64), BrokerStep>,
    count: u64,
    pub(super) random: Random,
    /// Whether commits are refused now and then.
    pub(super) is_faulty: bool,
}

/// Log of a partition.
#[derive(Default)]
pub(super) struct Log {
    /// Positions and keys of the records.
    pub(super) records: Vec<(u64, u8)>,
    pub(super) next: u64,
    /// Committed position and its metadata.
    pub(super) stored: (u64, String),
    pub(super) owner: Option<usize>,
    /// The owner was asked to give the partition back.
    is_revoked: bool,
    /// Member that is to have the partition.
    target: Option<usize>,
}

impl Log {
    /// Returns whether a member gets the partition, or no member was chosen.
    pub(super) fn is_for(&self, member: usize) -> bool {
        self.target.is_none_or(|target| target == member)
    }
}

/// A process as a member of the group.
pub(super) struct Session {
    pub(super) is_member: bool,
    pub(super) is_connected: bool,
    pub(super) cursors: BTreeMap<u32, Cursor>,
    pub(super) inbox: VecDeque<SourceEvent>,
    /// Revocations that were not answered.
    pub(super) revoked: Vec<Vec<u32>>,
    /// Answers for the time when there is a connection again.
    pub(super) held: Vec<SourceEvent>,
    pub(super) transaction: Transaction,
    /// The next poll fails for good.
    pub(super) fails: bool,
    /// Set when the member has something to read.
    pub(super) wake: Arc<AtomicBool>,
}

/// Read position of a partition.
pub(super) struct Cursor {
    pub(super) next: u64,
    pub(super) is_paused: bool,
}

/// A step of the broker that takes a while.
pub(super) enum BrokerStep {
    Commit {
        member: usize,
        partition: u32,
        stored: (u64, String),
    },
    Answer {
        member: usize,
        partition: u32,
        result: Result<(), CommitError>,
    },
    /// End of a transaction: a commit with this progress, or an abort.
    Transaction {
        member: usize,
        offsets: Option<Offsets>,
    },
    Assign {
        partition: u32,
    },
    Expire {
        member: usize,
    },
}

pub(super) fn partition(number: u32) -> Partition {
    Partition::new(STREAM, number)
}

impl Broker {
    pub(super) fn new(world: Arc<World>, partitions: u64, random: Random) -> Self {
        Broker {
            world,
            logs: (0..partitions).map(|_| Log::default()).collect(),
            sessions: Vec::new(),
            due: BTreeMap::new(),
            count: 0,
            random,
            is_faulty: true,
        }
    }

    /// Returns the time of the next step.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    pub(super) fn after(&mut self, micros: u64, step: BrokerStep) {
        self.count += 1;
        self.due.insert((self.world.now() + micros, self.count), step);
    }

    /// Takes a step that is due.
    pub(super) fn step(&mut self) {
        let Some((_, step)) = self.due.pop_first() else { return };
        match step {
            BrokerStep::Commit { member, partition, stored } => {
                self.store(member, partition, stored);
            }
            BrokerStep::Answer { member, partition, result } => {
                let event =
                    SourceEvent::Committed { partition: self::partition(partition), result };
                self.tell(member, event);
            }
            BrokerStep::Transaction { member, offsets } => self.decide(member, offsets),
            BrokerStep::Assign { partition } => self.assign(partition),
            BrokerStep::Expire { member } => self.expire(member),
        }
    }

    /// Adds records to a log.
    pub(super) fn produce(&mut self, number: u32, count: u64, keys: u64) {
        for _ in 0..count {
            let key = u8::try_from(self.random.within(0..keys)).unwrap();
            let gap = if self.random.chance(5) { self.random.within(1..4) } else { 0 };
            let log = &mut self.logs[number as usize];
            let position = log.next + gap;
            log.records.push((position, key));
            // A log can also end with positions without a record.
            log.next = position + 1 + if self.random.chance(3) { 2 } else { 0 };
            let place = Place { partition: number, position };
            self.world.record(Event::Produced { place, key });
        }
        self.sessions.iter().for_each(|session| session.wake.store(true, Relaxed));
    }

    /// Adds a member. Its number is that of the process.
    pub(super) fn join(&mut self) -> Arc<AtomicBool> {
        let wake = Arc::new(AtomicBool::new(true));
        self.sessions.push(Session {
            is_member: true,
            is_connected: true,
            cursors: BTreeMap::new(),
            inbox: VecDeque::new(),
            revoked: Vec::new(),
            held: Vec::new(),
            transaction: Transaction::default(),
            fails: false,
            wake: wake.clone(),
        });
        self.rebalance();
        wake
    }

    pub(super) fn tell(&mut self, member: usize, event: SourceEvent) {
        let session = &mut self.sessions[member];
        match session.is_connected {
            true => session.inbox.push_back(event),
            false => session.held.push(event),
        }
        session.wake.store(true, Relaxed);
    }

    /// Chooses members for all partitions anew.
    pub(super) fn rebalance(&mut self) {
        let members = self.sessions.iter().enumerate().filter(|(_, it)| it.is_member);
        let members: Vec<_> = members.map(|(member, _)| member).collect();
        let mut revoked: BTreeMap<usize, Vec<u32>> = BTreeMap::new();
        for (number, log) in (0..).zip(&mut self.logs) {
            log.target = self.random.pick(&members).copied();
            if let Some(owner) = log.owner.filter(|owner| Some(*owner) != log.target)
                && !log.is_revoked
            {
                log.is_revoked = true;
                revoked.entry(owner).or_default().push(number);
            }
        }
        for (owner, partitions) in revoked {
            self.sessions[owner].revoked.push(partitions.clone());
            let partitions = partitions.into_iter().map(partition).collect();
            self.tell(owner, SourceEvent::Revoked(partitions));
        }
        for number in 0..u32::try_from(self.logs.len()).unwrap() {
            self.assign_soon(number);
        }
    }

    fn assign_soon(&mut self, partition: u32) {
        let micros = self.random.within(0..300_000);
        self.after(micros, BrokerStep::Assign { partition });
    }

    /// Gives a partition without an owner to its target.
    fn assign(&mut self, number: u32) {
        let log = &mut self.logs[number as usize];
        let is_member = |member: &usize| self.sessions[*member].is_member;
        let Some(target) = log.target.filter(is_member) else { return };
        if log.owner.is_some() {
            return;
        }
        log.owner = Some(target);
        log.is_revoked = false;
        let progress = read(&log.stored);
        let next = progress.watermark().get();
        self.sessions[target].cursors.insert(number, Cursor { next, is_paused: false });
        let assignment = PartitionAssignment {
            partition: partition(number),
            progress,
            limit: OffsetMapLimit::KAFKA,
        };
        self.tell(target, SourceEvent::Assigned(assignment));
    }

    /// Takes partitions back that a member gives up.
    pub(super) fn take_back(&mut self, member: usize, partitions: &[u32]) {
        for number in partitions {
            self.sessions[member].cursors.remove(number);
            let log = &mut self.logs[*number as usize];
            if log.owner == Some(member) {
                log.owner = None;
                log.is_revoked = false;
                self.assign_soon(*number);
            }
        }
    }

    /// Removes a member that has closed its source.
    pub(super) fn leave(&mut self, member: usize) {
        self.sessions[member].is_member = false;
        let partitions: Vec<_> = self.sessions[member].cursors.keys().copied().collect();
        self.take_back(member, &partitions);
        self.rebalance();
    }

    /// Sends progress to the broker, which answers later.
    pub(super) fn commit(&mut self, member: usize, commits: Vec<ProgressCommit>) {
        for ProgressCommit { partition, progress } in commits {
            let number = partition.number();
            let claim = claim(&progress);
            self.world.record(Event::Committing { member, partition: number, claim });
            if !self.sessions[member].is_connected {
                let result = Err(CommitError::Later("there is no connection".into()));
                self.tell(member, SourceEvent::Committed { partition, result });
                continue;
            }
            let stored = Self::encode(&progress);
            let micros = self.random.within(100..40_000);
            self.after(micros, BrokerStep::Commit { member, partition: number, stored });
        }
    }

    /// Returns the position and the metadata that store progress.
    pub(super) fn encode(progress: &Progress) -> (u64, String) {
        (progress.watermark().get(), progress.encode(STREAM.as_bytes()))
    }

    fn store(&mut self, member: usize, partition: u32, stored: (u64, String)) {
        let is_refused = self.is_faulty && self.random.chance(8);
        let is_long = self.is_faulty && self.random.chance(1);
        let log = &mut self.logs[partition as usize];
        let result = if log.owner != Some(member) {
            Err(CommitError::NotOurs)
        } else if is_refused {
            Err(CommitError::Later("the group rebalances".into()))
        } else if is_long || stored.1.len() > OffsetMapLimit::KAFKA.get() {
            Err(CommitError::TooLong)
        } else {
            let claim = claim(&read(&stored));
            log.stored = stored;
            self.world.record(Event::Stored { member, partition, claim });
            Ok(())
        };
        let micros = self.random.within(100..40_000);
        self.after(micros, BrokerStep::Answer { member, partition, result });
    }

    /// Ends the connection of a member; after the session timeout others get its partitions.
    pub(super) fn disconnect(&mut self, member: usize) {
        self.sessions[member].is_connected = false;
        self.after(SESSION_TIMEOUT, BrokerStep::Expire { member });
    }

    fn expire(&mut self, member: usize) {
        let session = &mut self.sessions[member];
        if session.is_connected || !session.is_member {
            return;
        }
        session.is_member = false;
        session.revoked.clear();
        let partitions: Vec<_> = session.cursors.keys().copied().collect();
        self.end_commits(member);
        let session = &mut self.sessions[member];
        // What was on its way to the member does not arrive, except results of its commits.
        let is_answer = |event: &SourceEvent| {
            use SourceEvent::{Aborted, Committed, Lost};
            matches!(event, Committed { .. } | Lost(_) | Aborted)
        };
        session.inbox.retain(is_answer);
        session.held.retain(is_answer);
        let was_ending = session.transaction.phase == Phase::Sealed;
        self.take_back(member, &partitions);
        let lost = partitions.into_iter().map(partition).collect();
        self.sessions[member].held.push(SourceEvent::Lost(lost));
        if was_ending {
            self.abort(member);
        }
        self.rebalance();
    }

    /// Ends the commits of a member that are on their way: each is stored or not, and the member
    /// learns that it is not.
    fn end_commits(&mut self, member: usize) {
        let is_of = |step: &BrokerStep| match step {
            BrokerStep::Commit { member: of, .. }
            | BrokerStep::Answer { member: of, .. }
            | BrokerStep::Transaction { member: of, .. } => *of == member,
            _ => false,
        };
        let of: Vec<_> = self.due.iter().filter(|(_, it)| is_of(it)).map(|(at, _)| *at).collect();
        for at in of {
            let (BrokerStep::Commit { partition, .. } | BrokerStep::Answer { partition, .. }) =
                self.due.remove(&at).expect("it was found above")
            else {
                continue;
            };
            let (partition, result) = (self::partition(partition), Err(CommitError::NotOurs));
            self.tell(member, SourceEvent::Committed { partition, result });
        }
    }

    /// Restores the connection of a member.
    pub(super) fn reconnect(&mut self, member: usize) {
        let session = &mut self.sessions[member];
        session.is_connected = true;
        let held = std::mem::take(&mut session.held);
        session.inbox.extend(held);
        session.wake.store(true, Relaxed);
    }

    /// Lets a member that was removed join again, when it has read that it has lost its partitions: the
    /// client waits for this.
    pub(super) fn rejoin(&mut self, member: usize) {
        let session = &mut self.sessions[member];
        if !std::mem::replace(&mut session.is_member, true) {
            self.rebalance();
        }
    }

    /// Returns whether all records are claimed by the stored progress.
    pub(super) fn is_all_stored(&self) -> bool {
        self.logs.iter().all(|log| log.stored.0 == log.next)
    }
}

pub(super) fn read((committed, metadata): &(u64, String)) -> Progress {
    let at = Position::new(*committed);
    let map = decode(at, metadata, STREAM.as_bytes(), OffsetMapPolicy::default());
    map.expect("what was committed can be read").into_progress()
}

pub(super) fn claim(progress: &Progress) -> Claim {
    let watermark = progress.watermark().get();
    let above = watermark..progress.end().get();
    let above = above.filter(|position| progress.is_done(Position::new(*position)));
    Claim { watermark, above: above.collect() }
}
