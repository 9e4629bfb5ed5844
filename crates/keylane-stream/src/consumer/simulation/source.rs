//! Source of a simulated process: its session with the broker. Its `poll` never waits, because the
//! simulation lets time pass.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::time::{Duration, SystemTime};

use super::broker::{Broker, Cursor, Log, claim, partition};
use super::history::{CommitAnswer, Event};
use super::transaction_state::Phase;
use crate::source::{
    CommitError, PartitionOwnership, ProgressCommit, Source, SourceError, SourceEvent,
};
use crate::{DeliveredRecord, Partition, Position, Record};

/// Key number of records without a key.
pub(super) const UNKEYED: u8 = 0;

pub(super) struct SimulatedSource {
    pub(super) broker: Arc<Mutex<Broker>>,
    pub(super) member: usize,
    pub(super) wake: Arc<AtomicBool>,
    pub(super) is_transactional: bool,
}

/// Wakes a process.
struct WakeProcess(Arc<AtomicBool>);

impl Wake for WakeProcess {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Relaxed);
    }
}

fn numbers(partitions: &[Partition]) -> Vec<u32> {
    partitions.iter().map(Partition::number).collect()
}

impl SimulatedSource {
    /// Records what the consumer learns.
    fn learn(broker: &Broker, member: usize, event: &SourceEvent) {
        broker.world.record(match event {
            SourceEvent::Assigned(assigned) => Event::Assigned {
                member,
                partition: assigned.partition.number(),
                claim: claim(&assigned.progress),
            },
            SourceEvent::Revoked(partitions) => {
                Event::Revoked { member, partitions: numbers(partitions) }
            }
            SourceEvent::Lost(partitions) => {
                Event::Lost { member, partitions: numbers(partitions) }
            }
            SourceEvent::Committed { partition, result } => Event::Committed {
                member,
                partition: partition.number(),
                answer: match result {
                    Ok(()) => CommitAnswer::Stored,
                    Err(CommitError::TooLong) => CommitAnswer::TooLong,
                    Err(_) => CommitAnswer::Refused,
                },
            },
            _ => return,
        });
    }
}

impl Source for SimulatedSource {
    fn poll(
        &mut self,
        _: Duration,
        max_records: usize,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        let mut broker = self.broker.lock().unwrap();
        let broker = &mut *broker;
        let session = &mut broker.sessions[self.member];
        if std::mem::take(&mut session.fails) {
            broker.world.record(Event::Failed { member: self.member });
            return Err(SourceError::new("the client has failed"));
        }
        if !session.is_connected {
            return Ok(());
        }
        let came: Vec<_> = session.inbox.drain(..).collect();
        if came.is_empty() && session.transaction.phase == Phase::Aborted {
            session.transaction.phase = Phase::Open;
        }
        came.iter().for_each(|event| Self::learn(broker, self.member, event));
        broker.rejoin(self.member);
        let assigned = |number: u32| {
            let is_it = |event: &SourceEvent| matches!(event, SourceEvent::Assigned(it) if it.partition.number() == number);
            came.iter().any(is_it)
        };
        // A new partition has records from the next poll on.
        let session = &mut broker.sessions[self.member];
        let revoked: Vec<_> = session.revoked.concat();
        let readable = session.cursors.iter_mut();
        let readable =
            readable.filter(|(number, _)| !assigned(**number) && !revoked.contains(number));
        let (mut left, mut records) = (max_records, Vec::new());
        for (number, cursor) in readable.filter(|(_, cursor)| !cursor.is_paused) {
            let max = usize::try_from(broker.random.within(1..40)).unwrap().min(left);
            left -= read(*number, cursor, &broker.logs[*number as usize], max, &mut records);
        }
        events.extend(came);
        events.append(&mut records);
        Ok(())
    }

    fn commit(&mut self, commits: Vec<ProgressCommit>) {
        let mut broker = self.broker.lock().unwrap();
        match self.is_transactional {
            true => broker.end_transaction(self.member, Some(commits)),
            false => broker.commit(self.member, commits),
        }
    }

    fn is_transactional(&self) -> bool {
        self.is_transactional
    }

    fn begin_commit(&mut self) -> bool {
        self.broker.lock().unwrap().seal(self.member)
    }

    fn abort_transaction(&mut self) {
        self.broker.lock().unwrap().end_transaction(self.member, None);
    }

    fn pause(&mut self, partition: &Partition) {
        self.set_paused(partition, true);
    }

    fn resume(&mut self, partition: &Partition) {
        self.set_paused(partition, false);
    }

    fn release(&mut self, partitions: &[Partition]) {
        let mut broker = self.broker.lock().unwrap();
        let partitions = numbers(partitions);
        broker
            .world
            .record(Event::Released { member: self.member, partitions: partitions.clone() });
        let revoked = &mut broker.sessions[self.member].revoked;
        if let Some(at) = revoked.iter().position(|revoked| *revoked == partitions) {
            revoked.remove(at);
            broker.take_back(self.member, &partitions);
        }
    }

    fn close(&mut self, _: Duration) -> Result<(), SourceError> {
        let mut broker = self.broker.lock().unwrap();
        if !broker.sessions[self.member].is_connected {
            return Err(SourceError::new("there is no connection"));
        }
        broker.leave(self.member);
        Ok(())
    }

    fn ownership(&mut self) -> PartitionOwnership {
        let broker = self.broker.lock().unwrap();
        let has = |log: &Log| match log.owner {
            Some(owner) => owner == self.member,
            // It is on its way to this member, or to another one.
            None => log.is_for(self.member),
        };
        if !broker.logs.iter().all(has) {
            return PartitionOwnership::Some("another member has some".to_owned());
        }
        match broker.logs.iter().all(|log| log.owner.is_some()) {
            true => PartitionOwnership::All,
            false => PartitionOwnership::Unknown,
        }
    }

    fn waker(&self) -> Option<Waker> {
        Some(Waker::from(Arc::new(WakeProcess(self.wake.clone()))))
    }
}

impl SimulatedSource {
    fn set_paused(&self, partition: &Partition, is_paused: bool) {
        let mut broker = self.broker.lock().unwrap();
        let session = &mut broker.sessions[self.member];
        if let Some(cursor) = session.cursors.get_mut(&partition.number()) {
            cursor.is_paused = is_paused;
        }
        session.wake.store(true, Relaxed);
    }
}

/// Reads at most `max` records of a partition, and returns their number.
fn read(
    number: u32,
    cursor: &mut Cursor,
    log: &Log,
    max: usize,
    events: &mut Vec<SourceEvent>,
) -> usize {
    let deliver = |(position, key): &(u64, u8)| DeliveredRecord {
        position: Position::new(*position),
        written: SystemTime::UNIX_EPOCH,
        record: match *key {
            UNKEYED => Record::without_key([*key]),
            key => Record::new([key], [key]),
        },
    };
    let next = log.records.iter().filter(|(position, _)| *position >= cursor.next);
    let records: Vec<_> = next.take(max).map(deliver).collect();
    let count = records.len();
    if let Some(last) = records.last() {
        cursor.next = last.position.next().get();
        events.push(SourceEvent::Records { partition: partition(number), records });
    }
    let is_at_end = log.records.last().is_none_or(|(last, _)| *last < cursor.next);
    if is_at_end && cursor.next < log.next {
        cursor.next = log.next;
        let position = Position::new(log.next);
        events.push(SourceEvent::Reached { partition: partition(number), position });
    }
    count
}
