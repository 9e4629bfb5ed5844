//! Thread that writes the output of handlers, then acknowledges their records.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::attempt::Ack;
use crate::Record;
use crate::sink::{self, OutputCallback, Sink, SinkError};

/// Number of records at which a write is full: no further output joins it.
const WRITE_BATCH_RECORDS: usize = 4096;

/// A sink behind handlers: each record is complete when its output is written.
///
/// - Output that is handed over during a write is written together next, so that parallel records
///   share syncs and round trips. A sink [may](Sink::put_each) keep several writes in flight.
/// - Bad output holds up no other. Its record's attempt fails, with the [`SinkError`] in its
///   [`AttemptFailure`](super::AttemptFailure), and the consumer's policy applies.
/// - The record keeps its key meanwhile, but no thread. So the output of a key has the order of its
///   records.
/// - Output of a record whose partition was released before the write is not written.
///
/// Delivery is at least once: a process that dies between the write and the commit of the record's
/// progress writes the output again, and so does a sink that has written but could not acknowledge.
/// [`Attempt::origin`] gives the output an identity for deduplication.
///
/// A clone is the same outbox. Dropping the last one waits until all output is written or refused,
/// and the sink is dropped.
///
/// [`Attempt::origin`]: super::Attempt::origin
///
/// # Examples
/// [`start_producing`](super::ConsumerBuilder::start_producing) contains an outbox. An outbox of its own is
/// for handlers that acknowledge themselves:
/// ```
/// use keylane_stream::Record;
/// use keylane_stream::consumer::{Consumer, Outbox};
/// use keylane_stream::journal::Journal;
/// use keylane_stream::memory::MemoryStream;
/// use keylane_stream::sink::JournalSink;
///
/// # let folder = tempfile::tempdir()?;
/// let bills = Journal::open(folder.path().join("bills.journal"))?;
/// let outbox = Outbox::start(JournalSink::new(bills.clone()))?;
/// # let stream = MemoryStream::new("orders", 1);
/// # stream.push(0, Record::new("ann", "2"));
/// # stream.exhaust();
/// let consumer = Consumer::builder(stream.source()).start_with_acks(move |order, ack| {
///     let bill = Record { payload: Some("a bill".into()), ..order.record().clone() };
///     outbox.send(vec![bill], ack);
/// })?;
/// consumer.wait();
/// assert_eq!(bills.end().get(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Outbox(Arc<OutboxThread>);

/// Writer thread; ends with the last handle.
struct OutboxThread {
    queue: Arc<OutboxQueue>,
    thread: Option<JoinHandle<()>>,
}

/// Output to write, first come, first served.
#[derive(Default)]
struct OutboxQueue {
    state: Mutex<OutboxState>,
    /// Notified when output is added, or the last handle is dropped.
    changed: Condvar,
}

#[derive(Default)]
struct OutboxState {
    outputs: VecDeque<PendingOutput>,
    /// The last handle is dropped.
    closed: bool,
}

/// Output of a record, and its acknowledgement.
struct PendingOutput {
    records: Vec<Record>,
    ack: Ack,
}

impl PendingOutput {
    fn into_sink(self) -> sink::HandlerOutput {
        sink::HandlerOutput::new(self.records, self.ack)
    }
}

impl OutputCallback for Ack {
    fn is_wanted(&self) -> bool {
        self.is_current()
    }

    fn answer(self: Box<Self>, result: Result<(), SinkError>) {
        match result {
            Ok(()) => self.produced(),
            Err(error) => Ack::answer(*self, Err(error.into())),
        }
    }

    fn withdraw(self: Box<Self>) {
        Ack::withdraw(*self);
    }
}

impl Outbox {
    /// Starts the writer thread.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn start(sink: impl Sink + 'static) -> io::Result<Self> {
        let queue = Arc::<OutboxQueue>::default();
        let (writes, mut sink) = (queue.clone(), sink);
        let thread = thread::Builder::new()
            .name("keylane-outbox".to_owned())
            .spawn(move || writes.run(&mut sink))?;
        Ok(Outbox(Arc::new(OutboxThread { queue, thread: Some(thread) })))
    }

    /// Hands over the output of a record. Its attempt is acknowledged when the output is written,
    /// or at once if there is none.
    ///
    /// Never blocks. The record stays in flight, so the consumer's
    /// [limits](super::ConsumerBuilder::max_in_flight) bound the waiting output.
    pub fn send(&self, records: Vec<Record>, ack: Ack) {
        if records.is_empty() {
            return ack.done();
        }
        self.0.queue.state().outputs.push_back(PendingOutput { records, ack });
        self.0.queue.changed.notify_one();
    }
}

impl OutboxQueue {
    /// No code that holds this lock unwinds.
    fn state(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, sink: &mut dyn Sink) {
        while let Some(outputs) = self.next() {
            // Records of released partitions get no answer: their new owner makes the output again.
            let (current, gone): (Vec<_>, Vec<_>) =
                outputs.into_iter().partition(|output| output.ack.is_current());
            gone.into_iter().for_each(|output| output.ack.withdraw());
            let outputs = current.into_iter().map(PendingOutput::into_sink).collect();
            // Output that a panic leaves behind is dropped, which fails its attempts.
            let _ = catch_unwind(AssertUnwindSafe(|| sink.put_each(outputs)));
        }
    }

    /// Waits for output. Returns `None` once all handles are dropped and no output is left.
    fn next(&self) -> Option<Vec<PendingOutput>> {
        let idle = |state: &mut OutboxState| state.outputs.is_empty() && !state.closed;
        let waited = self.changed.wait_while(self.state(), idle);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        let mut records = 0;
        let mut count = 0;
        while records < WRITE_BATCH_RECORDS
            && let Some(output) = state.outputs.get(count)
        {
            records += output.records.len();
            count += 1;
        }
        (count > 0).then(|| state.outputs.drain(..count).collect())
    }
}

impl Drop for OutboxThread {
    fn drop(&mut self) {
        self.queue.state().closed = true;
        self.queue.changed.notify_one();
        let Some(writer) = self.thread.take() else { return };
        // An acknowledgement on the writer thread itself can drop the last handle.
        if writer.thread().id() != thread::current().id() {
            // The writer catches panics of the sink, and has no others.
            let _ = writer.join();
        }
    }
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiting = self.0.queue.state().outputs.len();
        f.debug_struct("Outbox").field("waiting", &waiting).finish_non_exhaustive()
    }
}
