//! State of one slot: its child, and the records on their way to it and in it. Pure except for its
//! handles; guarded by the lock of the table.

use std::collections::VecDeque;
use std::process::ChildStdin;
use std::sync::Arc;
use std::time::{Duration, Instant};

use keylane::Turn;
use rustix::process::Pid;

use super::backlog::{SlotBacklog, WaitingLine};
use super::flow_window::FlowWindow;
use super::stderr::StderrTail;
use super::worker_record::PendingRecord;

/// A slot's child.
#[derive(Debug)]
pub(super) enum ChildPhase {
    /// No child; one is started when a record comes.
    Empty,
    /// It is being started; records gather. Next: `Live`, or `Empty`.
    Starting,
    /// It takes records. Next: `Leaving`.
    Live(Arc<ChildStdin>),
    /// Its input is closed; it may still answer. Next: `Empty`.
    Leaving,
}

/// One slot.
#[derive(Debug)]
pub(super) struct WorkerSlot<T> {
    pub(super) phase: ChildPhase,
    pub(super) window: FlowWindow,
    /// Lines not yet written to the child.
    outbox: Vec<u8>,
    /// The outbox's other half: a buffer to gather in while one is written.
    spare: Vec<u8>,
    /// All records that were not answered, oldest first.
    pending: VecDeque<PendingRecord<T>>,
    /// Number of records, from the back, that are still in the outbox.
    unsent: usize,
    /// Records that have to go to this slot and for which its child has no room.
    pub(super) backlog: SlotBacklog<T>,
    /// Bytes of all pending lines.
    bytes: usize,
    /// Most bytes that are sure to fit into the child's pipe.
    pub(super) pipe: usize,
    /// Process group of the child, or of the last child.
    pub(super) group: Option<Pid>,
    /// True while a thread writes to the child.
    writing: bool,
    /// Since when the child has had its oldest unanswered record to do.
    busy_since: Instant,
    /// Children that ended since one last answered.
    fruitless: u32,
    /// Whether the child has answered a record, and so may have state of keys.
    has_answered: bool,
    /// True if the child is being ended because one of its records was cancelled.
    is_cancelled: bool,
    /// What the child wrote to standard error during its oldest record.
    pub(super) said: StderrTail,
}

/// Cause of a child's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ChildEnd {
    /// One of its records was cancelled.
    Cancelled,
    /// It ended by itself; `fruitless` children in a row have ended without an answer.
    ByItself { fruitless: u32 },
}

/// Assumed until the first child's pipe has been asked.
const SMALLEST_PIPE: usize = 4 << 10;

impl<T> WorkerSlot<T> {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            phase: ChildPhase::Empty,
            window: FlowWindow::new(),
            outbox: Vec::new(),
            spare: Vec::new(),
            pending: VecDeque::new(),
            unsent: 0,
            backlog: SlotBacklog::new(),
            bytes: 0,
            pipe: SMALLEST_PIPE,
            group: None,
            writing: false,
            busy_since: now,
            fruitless: 0,
            has_answered: false,
            is_cancelled: false,
            said: StderrTail::default(),
        }
    }

    /// How busy the slot is.
    pub(super) fn load(&self) -> usize {
        self.pending.len()
    }

    /// True if the child was measured to handle a record so quickly that others of its key may
    /// queue in front of it.
    pub(super) fn is_quick(&self) -> bool {
        self.window.size() > 1
    }

    /// Records for which the key's turn is held.
    pub(super) fn turns_held(&self) -> usize {
        self.pending.iter().filter(|record| record.turn.is_some()).count() + self.backlog.len()
    }

    /// True if a line of this length may be entered, as the only one if it `is_alone`. A line too
    /// large for the pipe is let in when it would be alone.
    pub(super) fn has_room(&self, length: usize, is_alone: bool) -> bool {
        let is_alone = is_alone || self.pending.back().is_some_and(|record| record.is_alone);
        let has_place = self.load() < self.window.size() && self.bytes + length <= self.pipe;
        let fits = has_place && !is_alone;
        !matches!(self.phase, ChildPhase::Leaving) && (fits || self.pending.is_empty())
    }

    /// Enters records of the backlog for as long as there is room. With `follows`, their keys go on;
    /// returns the turns for that.
    pub(super) fn admit_backlog(&mut self, follows: bool) -> Vec<Turn> {
        let mut turns = Vec::new();
        while let Some(next) = self.backlog.next()
            && self.has_room(next.length, next.is_alone)
            && let Some(WaitingLine { mut record, line }) = self.backlog.pop()
        {
            if follows {
                turns.extend(record.turn.take());
            }
            self.enter(&line, record);
        }
        turns
    }

    pub(super) fn enter(&mut self, line: &[u8], record: PendingRecord<T>) {
        self.outbox.extend_from_slice(line);
        self.bytes += record.length;
        self.pending.push_back(record);
        self.unsent += 1;
    }

    /// Records that were written to the child and not answered.
    pub(super) fn sent(&self) -> usize {
        self.pending.len() - self.unsent
    }

    pub(super) fn oldest_sent(&self) -> Option<&PendingRecord<T>> {
        self.pending.front().filter(|_| self.sent() > 0)
    }

    pub(super) fn silent_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.busy_since)
    }

    /// Pipe of the child, if the outbox is due and no thread writes.
    fn due(&self) -> Option<Arc<ChildStdin>> {
        let batch = 2 * self.unsent >= self.window.size();
        match &self.phase {
            ChildPhase::Live(pipe)
                if !self.writing && self.unsent > 0 && (self.sent() == 0 || batch) =>
            {
                Some(Arc::clone(pipe))
            }
            _ => None,
        }
    }

    /// Takes the outbox for writing, if it is due.
    pub(super) fn begin_write(&mut self, now: Instant) -> Option<(Arc<ChildStdin>, Vec<u8>)> {
        let pipe = self.due()?;
        if self.sent() == 0 {
            self.busy_since = now;
            // An idle child wrote it.
            self.said.clear();
        }
        self.writing = true;
        self.unsent = 0;
        Some((pipe, std::mem::replace(&mut self.outbox, std::mem::take(&mut self.spare))))
    }

    pub(super) fn end_write(&mut self, mut written: Vec<u8>) {
        written.clear();
        self.spare = written;
        self.writing = false;
    }

    /// True if the outbox may not fit into the pipe.
    pub(super) fn may_block(&self) -> bool {
        self.bytes > self.pipe
    }

    /// Moves the `count` oldest records to `into`; false if the child was not
    /// given that many.
    pub(super) fn answered(
        &mut self,
        count: usize,
        now: Instant,
        into: &mut Vec<PendingRecord<T>>,
    ) -> bool {
        if count > self.sent() {
            return false;
        }
        self.window.measured(count, self.silent_for(now));
        self.busy_since = now;
        self.said.clear();
        // The end of this child must not count as fruitless.
        self.fruitless = 0;
        self.has_answered = true;
        self.take_oldest(count, into);
        true
    }

    /// Whether the child has answered a record, and so may have state of keys. Asked at its end.
    pub(super) fn take_has_answered(&mut self) -> bool {
        std::mem::take(&mut self.has_answered)
    }

    /// Ends the child's input, unless lines for it are still to be written.
    pub(super) fn close_input(&mut self) {
        if self.unsent == 0 && self.backlog.is_empty() {
            self.leave();
        }
    }

    /// Ends the child's input; unwritten records go to the next child.
    pub(super) fn leave(&mut self) {
        if matches!(self.phase, ChildPhase::Live(_)) {
            self.phase = ChildPhase::Leaving;
        }
    }

    /// Removes the child and takes its records.
    pub(super) fn child_ended(&mut self, into: &mut Vec<PendingRecord<T>>) -> ChildEnd {
        self.phase = ChildPhase::Empty;
        self.window = FlowWindow::new();
        self.take_oldest(self.sent(), into);
        if std::mem::take(&mut self.is_cancelled) {
            return ChildEnd::Cancelled;
        }
        self.fruitless += 1;
        ChildEnd::ByItself { fruitless: self.fruitless }
    }

    /// Lets the child go if it has the record, and returns its group. Takes the record back if it was
    /// not written to the child.
    #[cfg(feature = "consume")]
    pub(super) fn cancel(
        &mut self,
        is_it: impl Fn(&T) -> bool,
        withdrawn: &mut Vec<PendingRecord<T>>,
    ) -> Option<Pid> {
        if let Some(record) = self.backlog.remove(&is_it) {
            withdrawn.push(record);
            return None;
        }
        let index = self.pending.iter().position(|record| is_it(&record.ticket))?;
        let sent = self.sent();
        if index < sent {
            self.is_cancelled = true;
            self.leave();
            return self.group;
        }
        let before: usize = self.pending.range(sent..index).map(|record| record.length).sum();
        let record = self.pending.remove(index)?;
        self.outbox.drain(before..before + record.length);
        self.unsent -= 1;
        self.bytes -= record.length;
        withdrawn.push(record);
        None
    }

    /// Takes back the records that were not written to the child.
    pub(super) fn withdraw(&mut self, into: &mut Vec<PendingRecord<T>>) {
        let kept = self.sent();
        into.extend(self.pending.drain(kept..).inspect(|record| self.bytes -= record.length));
        into.extend(self.backlog.drain());
        self.unsent = 0;
        self.outbox.clear();
    }

    fn take_oldest(&mut self, count: usize, into: &mut Vec<PendingRecord<T>>) {
        into.extend(self.pending.drain(..count).inspect(|record| self.bytes -= record.length));
    }
}
