//! Persistent worker processes of a consumer, with a line per record.

use std::fmt::Display;
use std::io::Write;
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use keylane_stream::consumer::{Ack, Attempt, CancelHook, Cancellation, Outbox};
use rustix::process::Signal;

use super::environment::HandlerEnvironment;
use super::handlers::{NotHandled, line_of};
use super::keys::KeyExtractor;
use super::output_records::OutputRecordBuilder;
use super::settings::{NoKey, PayloadAs};
use crate::key::RecordKey;
use crate::output::{NotWritten, StandardOutput};
use crate::process::ChildProcesses;
use crate::worker::{self, NewRecord, PendingRecord, RecordObserver, WorkerKeys, WorkerPool};

/// The children, and the threads that look after them.
#[derive(Debug)]
pub(super) struct WorkerProcesses {
    pool: Arc<WorkerPool<ConsumerObserver>>,
    slot_threads: Vec<JoinHandle<()>>,
}

impl WorkerProcesses {
    /// Starts the workers. A worker that does not answer a record within `timeout` is ended.
    pub(super) fn start(
        words: &[String],
        (jobs, placement): (usize, WorkerKeys),
        timeout: Option<Duration>,
        environment: &HandlerEnvironment,
        records: ConsumerObserver,
        children: Arc<ChildProcesses>,
    ) -> anyhow::Result<Self> {
        let words: Vec<_> = words.iter().map(Into::into).collect();
        let mut command = worker::command(&words)?;
        environment.give(&mut command);
        // A dead letter has what the worker wrote there.
        command.stderr(Stdio::piped());
        let pool = WorkerPool::new(jobs, placement, command, children, records);
        let pool = Arc::new(pool.answer_within(timeout));
        let slot_threads = pool.spawn(jobs)?;
        Ok(WorkerProcesses { pool, slot_threads })
    }

    /// Handler that gives a record to a worker. Where the record can go to any worker, it waits until
    /// one has capacity.
    pub(super) fn handler(
        &self,
        keys: Arc<KeyExtractor>,
        payload: PayloadAs,
        no_key: NoKey,
    ) -> impl Fn(Attempt, Ack) + Send + Sync + 'static {
        let pool = Arc::clone(&self.pool);
        move |attempt, ack| match line_of(&attempt, &keys, payload) {
            // The answer that is owed holds the key's turn.
            Ok(line) => {
                let hook = end_when_cancelled(&attempt, &pool);
                let key = key_of(&attempt, &keys, no_key);
                let (place, is_alone) = (attempt.position().get(), attempt.number() > 1);
                let ticket = RecordTicket { attempt, ack, _hook: hook };
                let (key, line) = (&key, &*line);
                pool.dispatch(NewRecord { ticket, key, place, line, turn: None, is_alone });
            }
            Err(error) => ack.failed(error),
        }
    }

    /// Check that reports workers that withhold answers, and ends late ones.
    pub(super) fn watch(&self) -> impl Fn() + 'static {
        let pool = Arc::clone(&self.pool);
        move || pool.check_health(false, || 0, Instant::now())
    }

    /// Lets the children go, after the consumer, and waits for their ends.
    pub(super) fn close(self) {
        self.pool.close();
        for slot_thread in self.slot_threads {
            slot_thread.join().expect("a slot thread does not panic");
        }
        self.pool.report_lost_states();
    }

    /// Abandons the records of the workers; their results no longer count.
    pub(super) fn abandon(&self) {
        self.pool.observer.stopping.store(true, Relaxed);
        self.pool.stop();
    }
}

/// Key that selects the worker of a record.
fn key_of(attempt: &Attempt, keys: &KeyExtractor, no_key: NoKey) -> RecordKey {
    match keys.key_of(attempt.record()) {
        Some(key) => RecordKey::Named(key.into()),
        None if no_key == NoKey::Serial => RecordKey::Serial,
        None => RecordKey::Unkeyed(attempt.position().get()),
    }
}

/// Ends the worker that has the record of an attempt when the attempt is cancelled: SIGTERM on
/// request, SIGKILL when its end is forced.
fn end_when_cancelled(attempt: &Attempt, pool: &Arc<WorkerPool<ConsumerObserver>>) -> CancelHook {
    // The pool has the ticket, which has the hook.
    let pool = Arc::downgrade(pool);
    let (partition, epoch) = (attempt.partition().clone(), attempt.epoch());
    let position = attempt.position();
    attempt.on_cancel(move |stage| {
        let Some(pool) = pool.upgrade() else { return };
        let signal = match stage {
            Cancellation::Requested => Signal::TERM,
            Cancellation::Forced => Signal::KILL,
        };
        let is_it = |ticket: &RecordTicket| {
            let attempt = &ticket.attempt;
            let is_assignment = attempt.epoch() == epoch && *attempt.partition() == partition;
            is_assignment && attempt.position() == position
        };
        pool.cancel(is_it, signal);
    })
}

/// A consumer as an observer: an answer is the end of a record, and the end of a child a failed attempt.
#[derive(Debug)]
pub(super) struct ConsumerObserver {
    /// Where answers go, unless they are printed.
    results: Option<(Outbox, OutputRecordBuilder)>,
    output: Arc<StandardOutput>,
    /// True once no answer counts any more.
    stopping: AtomicBool,
}

/// A record that a child has or is to have.
#[derive(Debug)]
pub(super) struct RecordTicket {
    attempt: Attempt,
    ack: Ack,
    /// Dropped after the acknowledgement.
    _hook: CancelHook,
}

impl ConsumerObserver {
    pub(super) fn new(
        results: Option<(Outbox, OutputRecordBuilder)>,
        output: Arc<StandardOutput>,
    ) -> Self {
        ConsumerObserver { results, output, stopping: AtomicBool::new(false) }
    }
}

impl RecordObserver for ConsumerObserver {
    type Ticket = RecordTicket;

    fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    fn is_cancelled(&self, ticket: &RecordTicket) -> bool {
        ticket.attempt.is_cancelled()
    }

    fn not_run(&self, ticket: RecordTicket) {
        drop(ticket);
    }

    fn started(&self) {}

    fn answered(&self, lines: &[u8], records: &mut Vec<PendingRecord<RecordTicket>>) {
        let tickets = records.drain(..).map(|record| record.ticket);
        let Some((outbox, outputs)) = &self.results else {
            return match self.output.write(lines) {
                Ok(()) => tickets.for_each(|ticket| ticket.ack.done()),
                Err(NotWritten) => {
                    tickets.for_each(|ticket| ticket.ack.failed(NotHandled::from(NotWritten)))
                }
            };
        };
        for (line, RecordTicket { attempt, ack, .. }) in
            lines.split_inclusive(|b| *b == b'\n').zip(tickets)
        {
            outbox.send(outputs.of(&attempt, line.to_vec()), ack);
        }
    }

    fn ended(&self, records: &mut Vec<PendingRecord<RecordTicket>>) {
        for record in records.drain(..) {
            let RecordTicket { attempt, ack, .. } = record.ticket;
            match attempt.is_cancelled() {
                true => ack.failed(NotHandled::Ended),
                // Its partition stays.
                false => ack.restart(),
            }
        }
    }

    fn lost(&self, records: &mut Vec<PendingRecord<RecordTicket>>, end: &dyn Display, said: &[u8]) {
        for record in records.drain(..) {
            record.ticket.ack.failed(NotHandled::WorkerEnded {
                end: end.to_string(),
                said: String::from_utf8_lossy(said).into_owned(),
            });
        }
    }

    fn print_stderr(&self, text: &[u8]) {
        self.output.write_error(|err| err.write_all(text));
    }

    fn withdrawn(&self, records: &mut Vec<PendingRecord<RecordTicket>>) {
        for record in records.drain(..) {
            record.ticket.ack.failed(NotHandled::NoWorker);
        }
    }

    /// The retry policy decides about the end: the worker's records have failed.
    fn on_fatal(&self, error: anyhow::Error) -> bool {
        if !self.is_stopping() {
            self.output.say(format_args!("{error:#}"));
        }
        self.is_stopping()
    }

    fn name(&self, ticket: &RecordTicket) -> String {
        format!("the record at {}", ticket.attempt.position())
    }

    fn print(&self, message: &dyn Display) {
        self.output.say(message);
    }
}
