//! How records are handled together; and those of different keys: such that have their turns wait for company.

use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use keylane::TurnKeeper;

use super::attempt::{Ack, Attempt, Flight};
use super::failure::Failure;
use super::handler::Handler;
use super::order::Lane;
use super::shared::Shared;

/// How records are handled together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Batch {
    /// How many there are in a batch at most; one at least.
    pub most: usize,
    /// How long the first of them waits for others.
    pub linger: Duration,
    /// What follows when a batch fails that has several: its records are handled again at once, each
    /// alone, and only those that fail then have failed. Without it all of them have.
    ///
    /// In a batch [of a key](BatchBy::Key) those behind the first that fails are not handled before that is
    /// done with, and have not failed.
    pub split: bool,
    /// Whose records there are in a batch.
    pub by: BatchBy,
}

/// Whose records there are in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchBy {
    /// Of different keys: of each one at the most, since its next one waits for it. They may be of different
    /// partitions. For work that is cheaper by the dozen, whosever it is: a statement with many rows.
    #[default]
    Mixed,
    /// Of one key, one after another: of one partition if that is what order is kept for. For work that is
    /// about a key: read its state once, apply all that happened to it, and write it once. A record with
    /// which none is in order is alone.
    Key,
}

/// Names the first record of a batch that failed, as a handler's error: those before it are done, an attempt at
/// it has failed for the reason given, and those behind it have not been tried.
///
/// An index that is not in the batch is a failure of all of it.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use keylane_stream::consumer::{Attempt, Batch, BatchBy, Consumer, FailedAt};
/// # use keylane_stream::Record;
/// # use keylane_stream::memory::MemoryStream;
///
/// # let stream = MemoryStream::new("orders", 1);
/// # (0..9).for_each(|number| drop(stream.push(0, Record::new("ann", number.to_string()))));
/// # stream.exhaust();
/// let linger = Duration::from_millis(5);
/// let batch = Batch { most: 100, linger, split: false, by: BatchBy::Key };
/// let consumer = Consumer::builder(stream.source()).start_batches(batch, |orders: &[Attempt]| {
///     for (index, order) in orders.iter().enumerate() {
///         let text = std::str::from_utf8(order.payload());
///         let count = text.map_err(|error| FailedAt::new(index, error))?;
///         println!("{count} more for {:?}", order.key());
///     }
///     Ok::<_, FailedAt>(())
/// })?;
/// assert_eq!(consumer.wait().counts.handled, 9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct FailedAt {
    index: usize,
    why: Failure,
}

impl FailedAt {
    /// The record with this index, the first being 0, has failed.
    pub fn new(index: usize, why: impl Into<Failure>) -> Self {
        FailedAt { index, why: why.into() }
    }

    /// What a failure names in a batch of so many, and why that failed.
    pub(super) fn in_batch(failure: &Failure, length: usize) -> Option<(usize, Failure)> {
        let named = failure.downcast_ref::<FailedAt>().filter(|named| named.index < length)?;
        Some((named.index, named.why.clone()))
    }
}

impl fmt::Display for FailedAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} of the batch: {}", self.index, self.why)
    }
}

impl Error for FailedAt {}

/// A user's function.
pub(super) type Function = dyn Fn(&[Attempt]) -> Result<(), Failure> + Send + Sync;

/// The handler of a consumer with mixed batches: it only puts records into the line.
pub(super) struct Together(Arc<Line>);

/// Records that are to be handled, in the order in which they got their turns.
struct Line {
    batch: Batch,
    waiting: Mutex<Waiting>,
    /// Notified when the line has got its first, is long enough, or is closed.
    changed: Condvar,
}

#[derive(Default)]
struct Waiting {
    line: VecDeque<Entry>,
    /// Nobody comes any more.
    closed: bool,
}

struct Entry {
    attempt: Attempt,
    ack: Ack,
    /// Until when it waits for others at the longest; none if without end.
    due: Option<Instant>,
}

impl Together {
    /// Starts the threads that handle batches. They end when this is gone, and the line is empty.
    pub(super) fn start(
        batch: Batch,
        threads: usize,
        handler: &Arc<Function>,
    ) -> std::io::Result<Self> {
        let batch = Batch { most: batch.most.max(1), ..batch };
        let line = Line { batch, waiting: Mutex::default(), changed: Condvar::new() };
        let together = Together(Arc::new(line));
        for number in 0..threads {
            let (line, handler) = (together.0.clone(), handler.clone());
            thread::Builder::new()
                .name(format!("keylane-batch-{number}"))
                .spawn(move || line.run(&*handler))?;
        }
        Ok(together)
    }
}

impl Handler for Together {
    fn serve(&self, shared: &Arc<Shared>, _: &Lane, mut flight: Flight, turn: TurnKeeper<'_>) {
        let Some(running) = flight.begin() else { return };
        flight.keep(turn);
        let attempt = flight.attempt();
        let ack = Ack::new(shared.clone(), flight, running);
        let due = Instant::now().checked_add(self.0.batch.linger);
        self.0.push(Entry { attempt, ack, due });
    }
}

impl Drop for Together {
    fn drop(&mut self) {
        self.0.waiting().closed = true;
        self.0.changed.notify_all();
    }
}

impl Line {
    /// No section unwinds.
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, entry: Entry) {
        let mut waiting = self.waiting();
        waiting.line.push_back(entry);
        let count = waiting.line.len();
        drop(waiting);
        if count == 1 || count >= self.batch.most {
            self.changed.notify_one();
        }
    }

    fn run(&self, handler: &Function) {
        while let Some(entries) = self.next() {
            self.handle(entries, handler);
        }
    }

    /// Waits for a batch; none once the line is closed and empty.
    fn next(&self) -> Option<Vec<Entry>> {
        let mut waiting = self.waiting();
        loop {
            let due = waiting.line.front().and_then(|first| first.due);
            let now = Instant::now();
            let is_due = due.is_some_and(|at| at <= now);
            if is_due || waiting.line.len() >= self.batch.most || waiting.closed {
                break;
            }
            waiting = match due {
                None => self.changed.wait(waiting).unwrap_or_else(PoisonError::into_inner),
                Some(at) => {
                    let waited = self.changed.wait_timeout(waiting, at - now);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
            };
        }
        let count = waiting.line.len().min(self.batch.most);
        let batch: Vec<_> = waiting.line.drain(..count).collect();
        let is_left = !waiting.line.is_empty();
        drop(waiting);
        if is_left {
            // Others wait, perhaps without a time, for what is first now.
            self.changed.notify_one();
        }
        (!batch.is_empty()).then_some(batch)
    }

    fn handle(&self, mut entries: Vec<Entry>, handler: &Function) {
        let attempts: Vec<_> = entries.iter().map(|entry| entry.attempt.clone()).collect();
        let result = call(handler, &attempts);
        drop(attempts);
        match result {
            Err(failure) if FailedAt::in_batch(&failure, entries.len()).is_some() => {
                self.failed_at(entries, &failure);
            }
            Err(_) if self.batch.split && entries.len() > 1 => {
                for Entry { attempt, ack, .. } in entries {
                    ack.answer(call_alone(handler, &attempt));
                }
            }
            result => entries.drain(..).for_each(|entry| entry.ack.answer(result.clone())),
        }
    }

    /// Those before the one that has failed are done; those behind it go first next time.
    fn failed_at(&self, mut done: Vec<Entry>, failure: &Failure) {
        let Some((index, why)) = FailedAt::in_batch(failure, done.len()) else { return };
        let mut failed = done.split_off(index);
        let others = failed.split_off(1);
        done.into_iter().for_each(|entry| entry.ack.done());
        let now = Instant::now();
        let mut waiting = self.waiting();
        let others = others.into_iter().rev();
        // They have waited.
        others.for_each(|other| waiting.line.push_front(Entry { due: Some(now), ..other }));
        drop(waiting);
        failed.into_iter().for_each(|entry| entry.ack.failed(why.clone()));
    }
}

/// Calls a user's function; a panic is a failure.
pub(super) fn call(handler: &Function, attempts: &[Attempt]) -> Result<(), Failure> {
    let result = catch_unwind(AssertUnwindSafe(|| handler(attempts)));
    result.unwrap_or_else(|payload| Err(Failure::panicked(&*payload)))
}

/// The same for one: what has failed of it need not be named.
pub(super) fn call_alone(handler: &Function, attempt: &Attempt) -> Result<(), Failure> {
    call(handler, std::slice::from_ref(attempt)).map_err(|failure| {
        let named = FailedAt::in_batch(&failure, 1);
        named.map_or(failure, |(_, why)| why)
    })
}
