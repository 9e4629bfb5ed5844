//! Journals as the partitions of a source.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use keylane_storage::ThreadNotify;

use super::Journal;
use super::error::{JournalReadError, WriteError};
use super::writer::JournalShared;
use crate::source::{
    CommitError, PartitionAssignment, ProgressCommit, Source, SourceError, SourceEvent,
};
use crate::tracker::{OffsetMapLimit, Progress};
use crate::{Partition, Position};

/// Journals as a source for one consumer group. Each journal is a partition.
///
/// Within a process, one consumer of a group at a time has a journal; when it stops, another takes
/// over from the committed progress. A group without commits starts at the first record.
///
/// # Examples
/// ```
/// use keylane_stream::Record;
/// use keylane_stream::consumer::{Attempt, Consumer, AttemptFailure};
/// use keylane_stream::journal::{Journal, JournalSource};
///
/// let folder = tempfile::tempdir()?;
/// let journal = Journal::open(folder.path().join("orders.journal"))?;
/// journal.append_all(&[Record::new("ann", "1 book"), Record::new("bob", "2 pens")])?;
///
/// let orders = JournalSource::new(journal.clone(), "billing").to_the_end();
/// let billing = Consumer::builder(orders).start(|order: &Attempt| {
///     println!("{:?}: {:?}", order.key(), order.payload());
///     Ok::<_, AttemptFailure>(())
/// })?;
/// assert_eq!(billing.wait().counts.handled, 2);
/// assert_eq!(journal.committed("billing")?.unwrap().watermark(), journal.end());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct JournalSource {
    group: Arc<str>,
    followed: Vec<FollowedJournal>,
    /// Notified when a journal has grown or failed, a group was released, or the consumer wakes the
    /// source.
    wakeup: Arc<ThreadNotify>,
    ends: bool,
    /// Results of commits, for the next poll.
    pending_events: VecDeque<SourceEvent>,
}

/// A journal of the source.
#[derive(Debug)]
struct FollowedJournal {
    journal: Journal,
    partition: Partition,
    /// The group's claim on the journal, once it is ours.
    claim: Option<GroupClaim>,
    next: Position,
    paused: bool,
    /// `Exhausted` was reported.
    ended: bool,
}

/// Exclusive claim of a group on a journal within the process; released on drop.
#[derive(Debug)]
struct GroupClaim {
    shared: Arc<JournalShared>,
    group: Arc<str>,
}

impl JournalSource {
    /// Creates a source of a journal's records, for a group.
    pub fn new(journal: Journal, group: impl Into<Arc<str>>) -> Self {
        let source = JournalSource {
            group: group.into(),
            followed: Vec::new(),
            wakeup: Arc::default(),
            ends: false,
            pending_events: VecDeque::new(),
        };
        source.and(journal)
    }

    /// Adds another journal as a further partition.
    #[must_use]
    pub fn and(mut self, journal: Journal) -> Self {
        journal.shared().add_listener(&self.wakeup);
        self.followed.push(FollowedJournal {
            partition: Partition::new(journal.path().display().to_string(), 0),
            journal,
            claim: None,
            next: Position::ZERO,
            paused: false,
            ended: false,
        });
        self
    }

    /// Ends when all records are delivered, instead of waiting for more.
    #[must_use]
    pub fn to_the_end(mut self) -> Self {
        self.ends = true;
        self
    }

    fn of(&mut self, partition: &Partition) -> Option<&mut FollowedJournal> {
        self.followed.iter_mut().find(|followed| followed.partition == *partition)
    }
}

impl FollowedJournal {
    /// Collects new events, and returns the number of records delivered.
    fn collect(
        &mut self,
        group: &Arc<str>,
        max: usize,
        ends: bool,
        events: &mut Vec<SourceEvent>,
    ) -> Result<usize, SourceError> {
        if let Some(failure) = self.journal.shared().failure() {
            return Err(SourceError::because(self.cannot("write"), failure));
        }
        if self.claim.is_none() && !self.claim(group, events)? {
            return Ok(0);
        }
        if self.paused || max == 0 {
            return Ok(0);
        }
        let delivered = self.deliver(max, events)?;
        if ends && !self.ended && self.next == self.journal.end() {
            self.ended = true;
            events.push(SourceEvent::Exhausted(self.partition.clone()));
        }
        Ok(delivered)
    }

    /// Claims the group and reports the assignment, unless another consumer has it.
    fn claim(
        &mut self,
        group: &Arc<str>,
        events: &mut Vec<SourceEvent>,
    ) -> Result<bool, SourceError> {
        let shared = self.journal.shared();
        if !shared.try_claim(group) {
            return Ok(false);
        }
        let claim = GroupClaim { shared: shared.clone(), group: group.clone() };
        let failed = |error| SourceError::because(self.cannot("read"), error);
        let progress = match self.journal.committed(group).map_err(failed)? {
            Some(progress) => progress,
            None => Progress::up_to(self.journal.begin().map_err(failed)?),
        };
        self.claim = Some(claim);
        self.next = progress.watermark();
        (self.paused, self.ended) = (false, false);
        let partition = self.partition.clone();
        events.push(SourceEvent::Assigned(PartitionAssignment {
            partition,
            progress,
            limit: OffsetMapLimit::JOURNAL,
        }));
        Ok(true)
    }

    fn deliver(&mut self, max: usize, events: &mut Vec<SourceEvent>) -> Result<usize, SourceError> {
        if self.next >= self.journal.end() {
            return Ok(0);
        }
        let records = match self.journal.read(self.next, max) {
            Ok(records) => records,
            Err(JournalReadError::Gone { head }) => {
                let gone = format!(
                    "{} begins at position {head}: the records from {} on were \
                     removed before they were read",
                    self.partition, self.next
                );
                events.push(SourceEvent::Notice(gone));
                self.next = head;
                events.push(SourceEvent::Reached {
                    partition: self.partition.clone(),
                    position: head,
                });
                return Ok(0);
            }
            Err(error) => return Err(SourceError::because(self.cannot("read"), error)),
        };
        let count = records.len();
        if let Some(last) = records.last() {
            self.next = last.position.next();
            events.push(SourceEvent::Records { partition: self.partition.clone(), records });
        }
        Ok(count)
    }

    fn cannot(&self, what: &str) -> String {
        format!("cannot {what} {}", self.journal.path().display())
    }
}

impl Source for JournalSource {
    fn poll(
        &mut self,
        timeout: Duration,
        max_records: usize,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        let mut waited = false;
        loop {
            events.extend(self.pending_events.drain(..));
            let mut left = max_records;
            for followed in &mut self.followed {
                left -= followed.collect(&self.group, left, self.ends, events)?;
            }
            // The partition that was served last comes first the next time.
            if left == 0 && !self.followed.is_empty() {
                self.followed.rotate_left(1);
            }
            if waited || !events.is_empty() {
                return Ok(());
            }
            self.wakeup.wait(timeout);
            waited = true;
        }
    }

    fn commit(&mut self, commits: Vec<ProgressCommit>) {
        for ProgressCommit { partition, progress } in commits {
            let group = self.group.clone();
            let Some(followed) = self.of(&partition) else { continue };
            let result = match followed.journal.commit(&group, &progress) {
                Ok(()) => Ok(()),
                Err(WriteError::Stale { .. }) => Err(CommitError::NotOurs),
                Err(error) => Err(CommitError::Later(error.to_string())),
            };
            self.pending_events.push_back(SourceEvent::Committed { partition, result });
        }
    }

    fn pause(&mut self, partition: &Partition) {
        if let Some(followed) = self.of(partition) {
            followed.paused = true;
        }
    }

    fn resume(&mut self, partition: &Partition) {
        if let Some(followed) = self.of(partition) {
            followed.paused = false;
        }
    }

    /// A journal is never revoked.
    fn release(&mut self, _: &[Partition]) {}

    fn close(&mut self, _: Duration) -> Result<(), SourceError> {
        for followed in &mut self.followed {
            followed.claim = None;
        }
        Ok(())
    }

    fn waker(&self) -> Option<Waker> {
        Some(Waker::from(self.wakeup.clone()))
    }

    fn end(&self, partition: &Partition) -> Option<Position> {
        let followed = self.followed.iter().find(|followed| followed.partition == *partition)?;
        Some(followed.journal.end())
    }
}

impl Drop for GroupClaim {
    fn drop(&mut self) {
        self.shared.release(&self.group);
    }
}
