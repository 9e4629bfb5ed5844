//! In-memory stream, for tests of handlers and consumers.
//!
//! [`MemoryStream`] plays the broker: it has partitions, stores commits, and moves partitions
//! between the members of its group. [`MemorySource`] is a member.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant, SystemTime};

use crate::source::{
    CommitError, PartitionAssignment, PartitionOwnership, ProgressCommit, Source, SourceError,
    SourceEvent,
};
use crate::tracker::{OffsetMapLimit, Progress};
use crate::{DeliveredRecord, Partition, Position, Record};

/// A stream in memory, with one consumer group. A clone is the same stream.
///
/// # Examples
/// ```
/// use keylane_stream::memory::MemoryStream;
/// use keylane_stream::{Position, Record};
///
/// let stream = MemoryStream::new("orders", 2);
/// assert_eq!(stream.push(1, Record::new("ann", "1 book")), Position::new(0));
/// assert_eq!(stream.committed(1).watermark(), Position::new(0));
/// ```
#[derive(Clone)]
pub struct MemoryStream {
    shared: Arc<MemoryShared>,
}

/// A group member of a [`MemoryStream`]. It takes every partition without an owner.
#[derive(Debug)]
pub struct MemorySource {
    stream: MemoryStream,
    /// Number of the member.
    member: usize,
    /// Partitions that were reported as assigned.
    assigned: BTreeMap<u32, MemoryCursor>,
    /// Events for the next poll.
    events: Vec<SourceEvent>,
}

/// Read position of a partition.
#[derive(Debug)]
struct MemoryCursor {
    next: Position,
    paused: bool,
    /// `Exhausted` was reported.
    ended: bool,
}

struct MemoryShared {
    state: Mutex<MemoryState>,
    /// Notified of every change.
    changed: Condvar,
}

struct MemoryState {
    name: Arc<str>,
    partitions: Vec<MemoryPartition>,
    limit: OffsetMapLimit,
    /// Answer to commits, if they are to fail.
    refusal: Option<CommitError>,
    /// No record will follow.
    exhausted: bool,
    /// For each member, whether its wait is to end.
    notified: Vec<bool>,
}

#[derive(Debug)]
struct MemoryPartition {
    records: Vec<DeliveredRecord>,
    next: Position,
    committed: Progress,
    owner: Option<usize>,
    /// Member that is to own the partition, if one was chosen.
    target: Option<usize>,
    /// The owner was told to release the partition.
    revoked: bool,
}

impl MemoryStream {
    /// Creates an empty stream with this number of partitions.
    pub fn new(name: impl Into<Arc<str>>, partitions: u32) -> Self {
        let log = |_| MemoryPartition {
            records: Vec::new(),
            next: Position::ZERO,
            committed: Progress::up_to(Position::ZERO),
            owner: None,
            target: None,
            revoked: false,
        };
        let state = MemoryState {
            name: name.into(),
            partitions: (0..partitions).map(log).collect(),
            limit: OffsetMapLimit::KAFKA,
            refusal: None,
            exhausted: false,
            notified: Vec::new(),
        };
        MemoryStream {
            shared: Arc::new(MemoryShared { state: Mutex::new(state), changed: Condvar::new() }),
        }
    }

    /// Code that holds this lock unwinds only for a missing partition, before any change.
    fn state(&self) -> MutexGuard<'_, MemoryState> {
        self.shared.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change<T>(&self, change: impl FnOnce(&mut MemoryState) -> T) -> T {
        let result = change(&mut self.state());
        self.shared.changed.notify_all();
        result
    }

    /// Appends a record and returns its position.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn push(&self, partition: u32, record: Record) -> Position {
        self.change(|state| state.partitions[partition as usize].push(record))
    }

    /// Appends records.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn push_all(&self, partition: u32, records: impl IntoIterator<Item = Record>) {
        let records: Vec<_> = records.into_iter().collect();
        self.change(|state| {
            let log = &mut state.partitions[partition as usize];
            for record in records {
                log.push(record);
            }
        });
    }

    /// Leaves this number of positions without a record.
    ///
    /// # Panics
    /// If there is no such partition, or the positions are exhausted.
    pub fn skip(&self, partition: u32, positions: u64) {
        self.change(|state| {
            let log = &mut state.partitions[partition as usize];
            log.next = log.next.after(positions).expect("positions within range");
        });
    }

    /// Ends the stream: consumers end when they have handled all records.
    pub fn exhaust(&self) {
        self.change(|state| state.exhausted = true);
    }

    /// Adds a member to the group; the first has number 0.
    pub fn source(&self) -> MemorySource {
        let member = self.change(|state| {
            state.notified.push(false);
            state.notified.len() - 1
        });
        MemorySource { stream: self.clone(), member, assigned: BTreeMap::new(), events: Vec::new() }
    }

    /// Assigns a partition to a member; the current owner is asked to release it.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn move_to(&self, partition: u32, member: usize) {
        self.change(|state| state.partitions[partition as usize].target = Some(member));
    }

    /// Assigns a partition to a member at once; the current owner loses it.
    ///
    /// # Panics
    /// If there is no such partition.
    pub fn steal_for(&self, partition: u32, member: usize) {
        self.change(|state| {
            let log = &mut state.partitions[partition as usize];
            log.target = Some(member);
            log.owner = None;
            log.revoked = false;
        });
    }

    /// Returns the committed progress.
    ///
    /// # Panics
    /// If there is no such partition.
    #[must_use]
    pub fn committed(&self, partition: u32) -> Progress {
        self.state().partitions[partition as usize].committed.clone()
    }

    /// Returns the member that owns a partition.
    ///
    /// # Panics
    /// If there is no such partition.
    #[must_use]
    pub fn owner(&self, partition: u32) -> Option<usize> {
        self.state().partitions[partition as usize].owner
    }

    /// Makes commits fail with this error from now on, or succeed again.
    pub fn refuse_commits(&self, refusal: Option<CommitError>) {
        self.change(|state| state.refusal = refusal);
    }

    /// Sets the maximum length of maps, for later assignments. Default: that of a Kafka broker.
    pub fn set_limit(&self, limit: OffsetMapLimit) {
        self.change(|state| state.limit = limit);
    }
}

impl MemoryPartition {
    fn push(&mut self, record: Record) -> Position {
        let position = self.next;
        self.next = position.next();
        self.records.push(DeliveredRecord { position, written: SystemTime::now(), record });
        position
    }

    /// Returns at most `max` records from a position on.
    fn from(&self, next: Position, max: usize) -> &[DeliveredRecord] {
        let begin = self.records.partition_point(|record| record.position < next);
        let end = self.records.len().min(begin.saturating_add(max));
        &self.records[begin..end]
    }
}

impl MemorySource {
    /// Returns the number of the member.
    #[must_use]
    pub fn member(&self) -> usize {
        self.member
    }

    /// Collects new events.
    fn collect(&mut self, state: &mut MemoryState, mut max: usize, events: &mut Vec<SourceEvent>) {
        events.append(&mut self.events);
        for (number, log) in (0..).zip(&mut state.partitions) {
            let partition = Partition::new(state.name.clone(), number);
            if log.owner != Some(self.member) && self.assigned.remove(&number).is_some() {
                events.push(SourceEvent::Lost(vec![partition.clone()]));
            }
            let for_us = log.target.is_none_or(|target| target == self.member);
            if log.owner.is_none() && for_us {
                log.owner = Some(self.member);
                let next = log.committed.watermark();
                self.assigned.insert(number, MemoryCursor { next, paused: false, ended: false });
                events.push(SourceEvent::Assigned(PartitionAssignment {
                    partition: partition.clone(),
                    progress: log.committed.clone(),
                    limit: state.limit,
                }));
            }
            let Some(cursor) = self.assigned.get_mut(&number) else { continue };
            if !for_us && !log.revoked {
                log.revoked = true;
                events.push(SourceEvent::Revoked(vec![partition]));
            } else if !log.revoked && !cursor.paused {
                max -= cursor.deliver(partition, log, max, state.exhausted, events);
            }
        }
    }
}

impl MemoryCursor {
    /// Delivers records and returns their number.
    fn deliver(
        &mut self,
        partition: Partition,
        log: &MemoryPartition,
        max: usize,
        exhausted: bool,
        events: &mut Vec<SourceEvent>,
    ) -> usize {
        let records = log.from(self.next, max).to_vec();
        let count = records.len();
        if let Some(last) = records.last() {
            self.next = last.position.next();
            events.push(SourceEvent::Records { partition: partition.clone(), records });
        }
        let is_at_end = log.from(self.next, 1).is_empty();
        if is_at_end && self.next < log.next {
            self.next = log.next;
            events.push(SourceEvent::Reached { partition: partition.clone(), position: self.next });
        }
        if is_at_end && exhausted && !self.ended {
            self.ended = true;
            events.push(SourceEvent::Exhausted(partition));
        }
        count
    }
}

impl Source for MemorySource {
    fn poll(
        &mut self,
        timeout: Duration,
        max_records: usize,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        let until = Instant::now() + timeout;
        let shared = self.stream.shared.clone();
        let mut state = shared.state.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            self.collect(&mut state, max_records, events);
            let notified = std::mem::take(&mut state.notified[self.member]);
            let left = until.saturating_duration_since(Instant::now());
            if notified || !events.is_empty() || left.is_zero() {
                return Ok(());
            }
            let waited = shared.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn commit(&mut self, commits: Vec<ProgressCommit>) {
        let mut state = self.stream.state();
        let refusal = state.refusal.clone();
        for ProgressCommit { partition, progress } in commits {
            let log = &mut state.partitions[partition.number() as usize];
            let result = if log.owner != Some(self.member) {
                Err(CommitError::NotOurs)
            } else if let Some(refusal) = &refusal {
                Err(refusal.clone())
            } else {
                log.committed = progress;
                Ok(())
            };
            self.events.push(SourceEvent::Committed { partition, result });
        }
    }

    fn pause(&mut self, partition: &Partition) {
        if let Some(cursor) = self.assigned.get_mut(&partition.number()) {
            cursor.paused = true;
        }
    }

    fn resume(&mut self, partition: &Partition) {
        if let Some(cursor) = self.assigned.get_mut(&partition.number()) {
            cursor.paused = false;
        }
    }

    fn release(&mut self, partitions: &[Partition]) {
        let stream = self.stream.clone();
        stream.change(|state| {
            for partition in partitions {
                self.assigned.remove(&partition.number());
                let log = &mut state.partitions[partition.number() as usize];
                if log.owner == Some(self.member) {
                    log.owner = None;
                    log.revoked = false;
                }
            }
        });
    }

    fn close(&mut self, _: Duration) -> Result<(), SourceError> {
        let name = self.stream.state().name.clone();
        let assigned = self.assigned.keys().map(|number| Partition::new(name.clone(), *number));
        let assigned: Vec<_> = assigned.collect();
        self.release(&assigned);
        Ok(())
    }

    fn waker(&self) -> Option<Waker> {
        Some(Waker::from(Arc::new(MemberWaker {
            stream: self.stream.clone(),
            member: self.member,
        })))
    }

    fn ownership(&mut self) -> PartitionOwnership {
        let state = self.stream.state();
        let mut is_settled = true;
        for (number, log) in (0..).zip(&state.partitions) {
            let member = log.target.or(log.owner).unwrap_or(self.member);
            if member != self.member {
                let partition = Partition::new(state.name.clone(), number);
                let what = format!("member {member} of the group has {partition}");
                return PartitionOwnership::Some(what);
            }
            is_settled &= self.assigned.contains_key(&number);
        }
        if is_settled { PartitionOwnership::All } else { PartitionOwnership::Unknown }
    }

    fn end(&self, partition: &Partition) -> Option<Position> {
        Some(self.stream.state().partitions.get(partition.number() as usize)?.next)
    }
}

/// Ends a member's wait.
struct MemberWaker {
    stream: MemoryStream,
    member: usize,
}

impl Wake for MemberWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.stream.change(|state| state.notified[self.member] = true);
    }
}

impl fmt::Debug for MemoryStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStream").field("name", &self.state().name).finish_non_exhaustive()
    }
}
