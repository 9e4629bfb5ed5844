//! Records that have their turns wait for company, and are handled together.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use super::attempt::{Ack, Attempt, Flight};
use super::failure::Failure;
use super::handler::Handler;
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
    pub split: bool,
}

/// The handler of a consumer with batches: it only puts records into the line.
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
    since: Instant,
}

impl Together {
    /// Starts the threads that handle batches. They end when this is gone, and the line is empty.
    pub(super) fn start<F>(batch: Batch, threads: usize, handler: F) -> std::io::Result<Self>
    where
        F: Fn(&[Attempt]) -> Result<(), Failure> + Send + Sync + 'static,
    {
        let batch = Batch { most: batch.most.max(1), ..batch };
        let line = Line { batch, waiting: Mutex::default(), changed: Condvar::new() };
        let together = Together(Arc::new(line));
        let handler = Arc::new(handler);
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
    fn serve(&self, shared: &Arc<Shared>, flight: Flight) {
        let Some(running) = flight.begin() else { return };
        let attempt = flight.attempt();
        let ack = Ack::new(shared.clone(), flight, running);
        self.0.push(Entry { attempt, ack, since: Instant::now() });
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

    fn run(&self, handler: &dyn Fn(&[Attempt]) -> Result<(), Failure>) {
        while let Some(entries) = self.next() {
            self.handle(entries, handler);
        }
    }

    /// Waits for a batch; none once the line is closed and empty.
    fn next(&self) -> Option<Vec<Entry>> {
        let mut waiting = self.waiting();
        loop {
            let due = waiting.line.front().map(|first| first.since.checked_add(self.batch.linger));
            let now = Instant::now();
            let is_due = matches!(due, Some(Some(at)) if at <= now);
            if is_due || waiting.line.len() >= self.batch.most || waiting.closed {
                break;
            }
            waiting = match due.flatten() {
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

    fn handle(&self, entries: Vec<Entry>, handler: &dyn Fn(&[Attempt]) -> Result<(), Failure>) {
        let call = |attempts: &[Attempt]| {
            let result = catch_unwind(AssertUnwindSafe(|| handler(attempts)));
            result.unwrap_or_else(|payload| Err(Failure::panicked(&*payload)))
        };
        let pairs = entries.into_iter().map(|entry| (entry.attempt, entry.ack));
        let (attempts, acks): (Vec<_>, Vec<_>) = pairs.unzip();
        match call(&attempts) {
            Err(_) if self.batch.split && attempts.len() > 1 => {
                for (attempt, ack) in attempts.into_iter().zip(acks) {
                    ack.answer(call(std::slice::from_ref(&attempt)));
                }
            }
            result => {
                drop(attempts);
                acks.into_iter().for_each(|ack| ack.answer(result.clone()));
            }
        }
    }
}
