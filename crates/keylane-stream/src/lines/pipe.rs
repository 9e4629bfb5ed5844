//! Lines of a pipe as a source, without progress across restarts.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::task::Waker;
use std::thread;
use std::time::{Duration, SystemTime};

use keylane_storage::ThreadNotify;

use super::framing::{LineFraming, RecordFraming, without_mark};
use super::record_reader::{RecordRead, read_record};
use crate::source::{PartitionAssignment, ProgressCommit, Source, SourceError, SourceEvent};
use crate::tracker::{OffsetMapLimit, Progress};
use crate::{DeliveredRecord, Partition, Position, Record};

/// Number of lines that are read ahead.
const READ_AHEAD_LINES: usize = 1024;

/// Lines of a pipe, a socket, or another input that can be read only once.
///
/// No progress is kept: a later process gets the lines that are written then. A thread reads the
/// input, because a read may block for ever; it ends with the input, or at the next line after the
/// source is dropped.
///
/// # Examples
/// ```
/// use keylane_stream::consumer::{Attempt, Consumer, AttemptFailure};
/// use keylane_stream::lines::PipeSource;
///
/// let lines = PipeSource::new("example", &b"one\ntwo\n"[..])?;
/// let consumer = Consumer::builder(lines).unordered();
/// let consumer = consumer.start(|line: &Attempt| {
///     println!("{}", String::from_utf8_lossy(line.payload()));
///     Ok::<_, AttemptFailure>(())
/// })?;
/// assert_eq!(consumer.wait().counts.handled, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PipeSource {
    partition: Partition,
    lines: Receiver<io::Result<Vec<u8>>>,
    /// Notified when there is a line, the input has ended, or the consumer wakes the source.
    wakeup: Arc<ThreadNotify>,
    next: Position,
    assigned: bool,
    paused: bool,
    ended: bool,
    /// Read error, until it is reported.
    failure: Option<io::Error>,
    answers: VecDeque<SourceEvent>,
}

impl PipeSource {
    /// Creates a source of the lines of `input`; `name` is the name of its stream.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn new(
        name: impl Into<Arc<str>>,
        input: impl io::Read + Send + 'static,
    ) -> Result<Self, SourceError> {
        Self::framed(name, input, LineFraming)
    }

    /// Creates a source as [`new`](Self::new) does, with records that `framing` finds in the input.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn framed(
        name: impl Into<Arc<str>>,
        input: impl io::Read + Send + 'static,
        mut framing: impl RecordFraming + 'static,
    ) -> Result<Self, SourceError> {
        let (sender, lines) = sync_channel(READ_AHEAD_LINES);
        let wakeup = Arc::<ThreadNotify>::default();
        let notifies = wakeup.clone();
        thread::Builder::new()
            .name("keylane-lines".to_owned())
            .spawn(move || {
                // Owned by this thread, because dropping the input may block.
                let mut input = BufReader::new(input);
                let all =
                    AssertUnwindSafe(|| read_all(&mut input, &mut framing, &sender, &notifies));
                if catch_unwind(all).is_err() {
                    // Report an error, or a panic would look like the end of the input.
                    let _ = sender.send(Err(io::Error::other("the reader has panicked")));
                }
                // Before the notification, so that the awakened source sees the end.
                drop(sender);
                notifies.notify();
            })
            .map_err(|error| SourceError::because("cannot start a thread that reads", error))?;
        Ok(PipeSource {
            partition: Partition::new(name, 0),
            lines,
            wakeup,
            next: Position::ZERO,
            assigned: false,
            paused: false,
            ended: false,
            failure: None,
            answers: VecDeque::new(),
        })
    }

    fn collect(&mut self, max: usize, events: &mut Vec<SourceEvent>) -> Result<(), SourceError> {
        events.extend(self.answers.drain(..));
        let partition = self.partition.clone();
        if !std::mem::replace(&mut self.assigned, true) {
            let progress = Progress::up_to(Position::ZERO);
            let limit = OffsetMapLimit::JOURNAL;
            events.push(SourceEvent::Assigned(PartitionAssignment {
                partition: partition.clone(),
                progress,
                limit,
            }));
        }
        if self.paused || max == 0 {
            return Ok(());
        }
        if let Some(error) = self.failure.take() {
            return Err(SourceError::because(format!("cannot read {}", partition.stream()), error));
        }
        let mut records = Vec::new();
        while records.len() < max && !self.ended {
            match self.lines.try_recv() {
                Ok(Ok(payload)) => {
                    let position = self.next;
                    self.next = position.next();
                    let record = Record::without_key(payload);
                    records.push(DeliveredRecord { position, written: SystemTime::now(), record });
                }
                Ok(Err(error)) => {
                    self.ended = true;
                    self.failure = Some(error);
                }
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => self.ended = true,
            }
        }
        if !records.is_empty() {
            events.push(SourceEvent::Records { partition: partition.clone(), records });
        }
        if self.ended && self.failure.is_none() {
            events.push(SourceEvent::Exhausted(partition));
        }
        Ok(())
    }
}

/// Reads to the end, or until the source is dropped.
fn read_all(
    input: &mut impl BufRead,
    framing: &mut dyn RecordFraming,
    lines: &SyncSender<io::Result<Vec<u8>>>,
    wakeup: &ThreadNotify,
) {
    let mut is_first = true;
    loop {
        let mut bytes = Vec::new();
        let record = match read_record(input, framing, &mut bytes) {
            Ok(RecordRead::End) => break,
            Ok(_) => {
                let is_first = std::mem::take(&mut is_first);
                let bytes = if is_first { without_mark(bytes) } else { bytes };
                match framing.content(bytes) {
                    Some(_) if is_first && framing.has_header() => continue,
                    Some(content) => Ok(content),
                    None => continue,
                }
            }
            Err(error) => Err(error),
        };
        let failed = record.is_err();
        if lines.send(record).is_err() || failed {
            break;
        }
        wakeup.notify();
    }
}

impl Source for PipeSource {
    fn poll(
        &mut self,
        timeout: Duration,
        max_records: usize,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        self.collect(max_records, events)?;
        if events.is_empty() {
            self.wakeup.wait(timeout);
            self.collect(max_records, events)?;
        }
        Ok(())
    }

    fn commit(&mut self, commits: Vec<ProgressCommit>) {
        let stored =
            |ProgressCommit { partition, .. }| SourceEvent::Committed { partition, result: Ok(()) };
        self.answers.extend(commits.into_iter().map(stored));
    }

    fn pause(&mut self, _: &Partition) {
        self.paused = true;
    }

    fn resume(&mut self, _: &Partition) {
        self.paused = false;
    }

    fn release(&mut self, _: &[Partition]) {}

    fn close(&mut self, _: Duration) -> Result<(), SourceError> {
        Ok(())
    }

    fn waker(&self) -> Option<Waker> {
        Some(Waker::from(self.wakeup.clone()))
    }
}
