//! Transactions of a simulated member: output and progress are committed together, or neither.

use super::broker::{Broker, BrokerStep, Cursor, claim, partition, read};
use super::history::{Event, Place};
use super::transaction_state::{Offsets, Phase, Transaction};
use crate::source::{CommitError, PartitionAssignment, ProgressCommit, SourceEvent};
use crate::tracker::OffsetMapLimit;

impl Broker {
    /// Adds output of a record to the transaction of a member. Returns `false` if it is closed.
    pub(super) fn put_output(&mut self, member: usize, place: Place) -> bool {
        let transaction = &mut self.sessions[member].transaction;
        let is_open = transaction.phase == Phase::Open;
        if is_open {
            transaction.outputs.push(place);
            self.world.record(Event::Output { member, place });
        }
        is_open
    }

    /// Closes the transaction to output, unless some is being written.
    pub(super) fn seal(&mut self, member: usize) -> bool {
        let is_busy = self.random.chance(20);
        let transaction = &mut self.sessions[member].transaction;
        if is_busy || transaction.phase != Phase::Open {
            return false;
        }
        transaction.phase = Phase::Sealed;
        true
    }

    /// Begins to commit a sealed transaction, or to abort it.
    pub(super) fn end_transaction(&mut self, member: usize, commits: Option<Vec<ProgressCommit>>) {
        let offsets = commits.map(|commits| {
            let stored = |ProgressCommit { partition, progress }: ProgressCommit| {
                let (number, claim) = (partition.number(), claim(&progress));
                self.world.record(Event::Committing { member, partition: number, claim });
                (number, Self::encode(&progress))
            };
            commits.into_iter().map(stored).collect::<Offsets>()
        });
        let offsets = offsets.filter(|_| self.sessions[member].is_connected);
        let micros = self.random.within(100..80_000);
        self.after(micros, BrokerStep::Transaction { member, offsets });
    }

    /// Decides a transaction.
    pub(super) fn decide(&mut self, member: usize, offsets: Option<Offsets>) {
        let is_refused = self.is_faulty && self.random.chance(8);
        let is_owner = |(number, _): &(u32, _)| self.logs[*number as usize].owner == Some(member);
        let is_member = self.sessions[member].is_member;
        let offsets =
            offsets.filter(|offsets| is_member && !is_refused && offsets.iter().all(is_owner));
        let Some(offsets) = offsets else { return self.abort(member) };
        let transaction = &mut self.sessions[member].transaction;
        transaction.phase = Phase::Open;
        let outputs = std::mem::take(&mut transaction.outputs);
        for (number, stored) in offsets {
            let claim = claim(&read(&stored));
            self.logs[number as usize].stored = stored;
            self.world.record(Event::Stored { member, partition: number, claim });
            let (partition, result) = (partition(number), Ok::<(), CommitError>(()));
            self.tell(member, SourceEvent::Committed { partition, result });
        }
        self.world.record(Event::Published { member, outputs });
    }

    /// Aborts the transaction of a member, which gets its partitions again from their stored
    /// progress. Revoked ones are revoked again, for the member to give them back.
    pub(super) fn abort(&mut self, member: usize) {
        self.world.record(Event::Aborted { member });
        let session = &mut self.sessions[member];
        // Assignments and revocations that the member has not read are replaced by those below.
        let stays = |event: &SourceEvent| {
            !matches!(event, SourceEvent::Assigned(_) | SourceEvent::Revoked(_))
        };
        session.inbox.retain(stays);
        session.held.retain(stays);
        session.transaction = Transaction { phase: Phase::Aborted, outputs: Vec::new() };
        let revoked = session.revoked.clone();
        let lost = session.cursors.keys().map(|number| partition(*number)).collect();
        self.tell(member, SourceEvent::Lost(lost));
        for partitions in &revoked {
            let partitions = partitions.iter().copied().map(partition).collect();
            self.tell(member, SourceEvent::Revoked(partitions));
        }
        let kept: Vec<_> = self.sessions[member].cursors.keys().copied().collect();
        for number in
            kept.into_iter().filter(|number| !revoked.iter().any(|it| it.contains(number)))
        {
            let progress = read(&self.logs[number as usize].stored);
            let next = progress.watermark().get();
            let cursor = Cursor { next, is_paused: false };
            self.sessions[member].cursors.insert(number, cursor);
            let limit = OffsetMapLimit::KAFKA;
            let partition = partition(number);
            let assignment = PartitionAssignment { partition, progress, limit };
            self.tell(member, SourceEvent::Assigned(assignment));
        }
        self.tell(member, SourceEvent::Aborted);
    }
}
