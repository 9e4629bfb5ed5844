use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::task::Waker;
use std::thread;
use std::time::{Duration, SystemTime};

use super::line_reader::{LineRead, read_line, without_return};
use crate::source::{Assigned, Commit, Source, SourceError, SourceEvent};
use crate::thread_notify::ThreadNotify;
use crate::tracker::{MapLimit, Progress};
use crate::{Delivered, Partition, Position, Record};

/// How many lines are read ahead of those who want them.
const READ_AHEAD_LINES: usize = 1024;

/// The lines of a pipe, a socket, or whatever can be read once.
///
/// Nothing is kept of what is done: who starts again gets what is written then. A thread of its own
/// reads, since a read may wait for ever; it ends with the input, or at the next line after the source is
/// gone.
///
/// # Examples
/// ```
/// use keylane_stream::consumer::{Attempt, Consumer, Failure};
/// use keylane_stream::lines::PipeSource;
///
/// let lines = PipeSource::new("example", &b"one\ntwo\n"[..])?;
/// let consumer = Consumer::builder(lines).unordered();
/// let consumer = consumer.start(|line: &Attempt| {
///     println!("{}", String::from_utf8_lossy(line.payload()));
///     Ok::<_, Failure>(())
/// })?;
/// assert_eq!(consumer.wait().counts.handled, 2);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct PipeSource {
    partition: Partition,
    lines: Receiver<io::Result<Vec<u8>>>,
    /// Rung when there is a line, when there will be none any more, and when the consumer wants to go on.
    wakeup: Arc<ThreadNotify>,
    next: Position,
    assigned: bool,
    paused: bool,
    ended: bool,
    /// Why there is nothing more, until that was said.
    failure: Option<io::Error>,
    answers: VecDeque<SourceEvent>,
}

impl PipeSource {
    /// The lines of `input`, which is called `name`.
    ///
    /// # Errors
    /// If a thread cannot be had.
    pub fn new(
        name: impl Into<Arc<str>>,
        input: impl io::Read + Send + 'static,
    ) -> Result<Self, SourceError> {
        let (sender, lines) = sync_channel(READ_AHEAD_LINES);
        let wakeup = Arc::<ThreadNotify>::default();
        let notifies = wakeup.clone();
        thread::Builder::new()
            .name("keylane-lines".to_owned())
            .spawn(move || {
                // It may take long to let go of: nobody waits for that.
                let mut input = BufReader::new(input);
                let all = AssertUnwindSafe(|| read_all(&mut input, &sender, &notifies));
                if catch_unwind(all).is_err() {
                    // What follows is missing: that must not look like its end.
                    let _ = sender.send(Err(io::Error::other("its reader has panicked")));
                }
                // Nothing will come, which must be so when the wakeup says that something has changed.
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
            let limit = MapLimit::JOURNAL;
            events.push(SourceEvent::Assigned(Assigned {
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
                    records.push(Delivered { position, written: SystemTime::now(), record });
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

/// Reads to the end, or until nobody wants more.
fn read_all(
    input: &mut impl BufRead,
    lines: &SyncSender<io::Result<Vec<u8>>>,
    wakeup: &ThreadNotify,
) {
    loop {
        let mut line = Vec::new();
        let line = match read_line(input, &mut line) {
            Ok(LineRead::End) => break,
            Ok(LineRead::Line(_) | LineRead::Part(_)) => Ok(without_return(line)),
            Err(error) => Err(error),
        };
        let failed = line.is_err();
        if lines.send(line).is_err() || failed {
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

    fn commit(&mut self, commits: Vec<Commit>) {
        let stored =
            |Commit { partition, .. }| SourceEvent::Committed { partition, result: Ok(()) };
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
