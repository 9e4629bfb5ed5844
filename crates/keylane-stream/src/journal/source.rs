use std::collections::VecDeque;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::Journal;
use super::error::{ReadError, WriteError};
use super::writer::JournalShared;
use crate::source::{Assigned, Commit, CommitError, Source, SourceError, SourceEvent};
use crate::thread_notify::ThreadNotify;
use crate::tracker::{MapLimit, Progress};
use crate::{Partition, Position};

/// Journals as a source: each is a partition, for one consumer group.
///
/// Of the consumers of a group in a process one has the journal; when that one ends, another takes over
/// from what it has committed. A group that has committed nothing begins with the first record there is.
///
/// # Examples
/// ```
/// use keylane_stream::Record;
/// use keylane_stream::consumer::{Attempt, Consumer, Failure};
/// use keylane_stream::journal::{Journal, JournalSource};
///
/// let folder = tempfile::tempdir()?;
/// let journal = Journal::open(folder.path().join("orders.journal"))?;
/// journal.append_all(&[Record::new("ann", "1 book"), Record::new("bob", "2 pens")])?;
///
/// let orders = JournalSource::new(journal.clone(), "billing").to_the_end();
/// let billing = Consumer::builder(orders).start(|order: &Attempt| {
///     println!("{:?}: {:?}", order.key(), order.payload());
///     Ok::<_, Failure>(())
/// })?;
/// assert_eq!(billing.wait().counts.handled, 2);
/// assert_eq!(journal.committed("billing")?.unwrap().watermark(), journal.end());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct JournalSource {
    group: Arc<str>,
    followed: Vec<FollowedJournal>,
    /// Rung when a journal has grown or failed, a group was given up, or the consumer wants to go on.
    wakeup: Arc<ThreadNotify>,
    ends: bool,
    /// What is to be said of commits.
    pending_events: VecDeque<SourceEvent>,
}

#[derive(Debug)]
struct FollowedJournal {
    journal: Journal,
    partition: Partition,
    /// Once the group is ours there.
    claim: Option<GroupClaim>,
    next: Position,
    paused: bool,
    /// It was said that nothing follows.
    ended: bool,
}

/// A group that is ours until this is dropped.
#[derive(Debug)]
struct GroupClaim {
    shared: Arc<JournalShared>,
    group: Arc<str>,
}

impl JournalSource {
    /// The records of a journal, for a group.
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

    /// And those of another journal, which is another partition.
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

    /// Ends when it has delivered all there is, instead of waiting for more.
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
    /// What has happened since the last time.
    fn collect(
        &mut self,
        group: &Arc<str>,
        most: usize,
        ends: bool,
        events: &mut Vec<SourceEvent>,
    ) -> Result<usize, SourceError> {
        if let Some(failure) = self.journal.shared().failure() {
            return Err(SourceError::because(self.cannot("write"), failure));
        }
        if self.claim.is_none() && !self.claim(group, events)? {
            return Ok(0);
        }
        if self.paused || most == 0 {
            return Ok(0);
        }
        let delivered = self.deliver(most, events)?;
        if ends && !self.ended && self.next == self.journal.end() {
            self.ended = true;
            events.push(SourceEvent::Exhausted(self.partition.clone()));
        }
        Ok(delivered)
    }

    /// Takes the group, if nobody has it.
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
        events.push(SourceEvent::Assigned(Assigned {
            partition,
            progress,
            limit: MapLimit::JOURNAL,
        }));
        Ok(true)
    }

    fn deliver(
        &mut self,
        most: usize,
        events: &mut Vec<SourceEvent>,
    ) -> Result<usize, SourceError> {
        if self.next >= self.journal.end() {
            return Ok(0);
        }
        let records = match self.journal.read(self.next, most) {
            Ok(records) => records,
            Err(ReadError::Gone { head }) => {
                let gone = format!(
                    "{} begins at position {head}: those from {} on were removed unread",
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
        most_records: usize,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        let mut waited = false;
        loop {
            events.extend(self.pending_events.drain(..));
            let mut left = most_records;
            for followed in &mut self.followed {
                left -= followed.collect(&self.group, left, self.ends, events)?;
            }
            // What is full now goes last the next time.
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

    fn commit(&mut self, commits: Vec<Commit>) {
        for Commit { partition, progress } in commits {
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

    /// It wants nothing back, so there is nothing to be released.
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
