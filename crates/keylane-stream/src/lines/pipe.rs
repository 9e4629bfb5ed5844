use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::task::Waker;
use std::thread;
use std::time::{Duration, SystemTime};

use super::split::{Read, read_line, without_return};
use crate::bell::Bell;
use crate::source::{Assigned, Commit, Event, Source, SourceError};
use crate::tracker::{MapLimit, Progress};
use crate::{Delivered, Partition, Position, Record};

/// How many lines are read ahead of those who want them.
const LINES_AHEAD: usize = 1024;

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
    bell: Arc<Bell>,
    next: Position,
    assigned: bool,
    paused: bool,
    ended: bool,
    /// Why there is nothing more, until that was said.
    failure: Option<io::Error>,
    answers: VecDeque<Event>,
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
        let (sender, lines) = sync_channel(LINES_AHEAD);
        let bell = Arc::<Bell>::default();
        let rings = bell.clone();
        thread::Builder::new()
            .name("keylane-lines".to_owned())
            .spawn(move || {
                // It may take long to let go of: nobody waits for that.
                let mut input = BufReader::new(input);
                let all = AssertUnwindSafe(|| read_all(&mut input, &sender, &rings));
                if catch_unwind(all).is_err() {
                    // What follows is missing: that must not look like its end.
                    let _ = sender.send(Err(io::Error::other("its reader has panicked")));
                }
                // Nothing will come, which must be so when the bell says that something has changed.
                drop(sender);
                rings.ring();
            })
            .map_err(|error| SourceError::because("cannot start a thread that reads", error))?;
        Ok(PipeSource {
            partition: Partition::new(name, 0),
            lines,
            bell,
            next: Position::ZERO,
            assigned: false,
            paused: false,
            ended: false,
            failure: None,
            answers: VecDeque::new(),
        })
    }

    fn collect(&mut self, most: usize, events: &mut Vec<Event>) -> Result<(), SourceError> {
        events.extend(self.answers.drain(..));
        let partition = self.partition.clone();
        if !std::mem::replace(&mut self.assigned, true) {
            let progress = Progress::up_to(Position::ZERO);
            let limit = MapLimit::JOURNAL;
            events.push(Event::Assigned(Assigned {
                partition: partition.clone(),
                progress,
                limit,
            }));
        }
        if self.paused || most == 0 {
            return Ok(());
        }
        if let Some(error) = self.failure.take() {
            return Err(SourceError::because(format!("cannot read {}", partition.stream()), error));
        }
        let mut records = Vec::new();
        while records.len() < most && !self.ended {
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
            events.push(Event::Records { partition: partition.clone(), records });
        }
        if self.ended && self.failure.is_none() {
            events.push(Event::Exhausted(partition));
        }
        Ok(())
    }
}

/// Reads to the end, or until nobody wants more.
fn read_all(input: &mut impl BufRead, lines: &SyncSender<io::Result<Vec<u8>>>, bell: &Bell) {
    loop {
        let mut line = Vec::new();
        let line = match read_line(input, &mut line) {
            Ok(Read::End) => break,
            Ok(Read::Line(_) | Read::Part(_)) => Ok(without_return(line)),
            Err(error) => Err(error),
        };
        let failed = line.is_err();
        if lines.send(line).is_err() || failed {
            break;
        }
        bell.ring();
    }
}

impl Source for PipeSource {
    fn poll(
        &mut self,
        timeout: Duration,
        most_records: usize,
        events: &mut Vec<Event>,
    ) -> Result<(), SourceError> {
        self.collect(most_records, events)?;
        if events.is_empty() {
            self.bell.wait(timeout);
            self.collect(most_records, events)?;
        }
        Ok(())
    }

    fn commit(&mut self, commits: Vec<Commit>) {
        let stored = |Commit { partition, .. }| Event::Committed { partition, result: Ok(()) };
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
        Some(Waker::from(self.bell.clone()))
    }
}
