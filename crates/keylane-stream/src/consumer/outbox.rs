//! The thread that writes what handlers made of records, and then answers for these.

use std::collections::VecDeque;
use std::fmt;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};

use super::attempt::Ack;
use crate::Record;
use crate::sink::{self, OutputCallback, Sink, SinkError};

/// From how many records on no others join those that are written together.
const WRITE_BATCH_RECORDS: usize = 4096;

/// A sink between handlers and the end of their records: each record is done when what was made of it is
/// written.
///
/// - What is handed over while the sink writes is written together next, so that records in parallel share
///   its syncs or round trips. A sink [may](Sink::put_each) have more on its way meanwhile.
/// - What is bad holds nothing else up. The record whose output is refused has a failed attempt, with the
///   [`SinkError`] in its [`Failure`](super::Failure), and the consumer's policy says what follows.
/// - The record keeps its key meanwhile, and no thread. So the output of a key's records is in their order.
/// - What is given up before its turn to be written is not written.
///
/// At least once: a process that dies between the write and the commit of its record's progress writes
/// again what it made, as does one whose sink wrote and could not say so. [`Attempt::origin`] gives the
/// output a name by which that can be noticed.
///
/// A clone is the same outbox. When the last one is dropped, that waits until all that was handed over is
/// written or refused, and the sink is gone.
///
/// [`Attempt::origin`]: super::Attempt::origin
///
/// # Examples
/// [`start_producing`](super::Builder::start_producing) has one inside. By itself it is for handlers that
/// give their answers:
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
///     let bill = Record { payload: Some(b"a bill".to_vec()), ..order.record().clone() };
///     outbox.send(vec![bill], ack);
/// })?;
/// consumer.wait();
/// assert_eq!(bills.end().get(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Outbox(Arc<OutboxThread>);

/// The thread, which ends with the last handle.
struct OutboxThread {
    queue: Arc<OutboxQueue>,
    thread: Option<JoinHandle<()>>,
}

/// PendingOutput that is to be written, in the order in which it came.
#[derive(Default)]
struct OutboxQueue {
    state: Mutex<OutboxState>,
    /// Notified when something has come, or nobody comes any more.
    changed: Condvar,
}

#[derive(Default)]
struct OutboxState {
    outputs: VecDeque<PendingOutput>,
    /// There is no handle left.
    closed: bool,
}

/// What was made of a record, and the answer for it.
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
    /// Starts the thread that has the sink.
    ///
    /// # Errors
    /// If it cannot be had.
    pub fn start(sink: impl Sink + 'static) -> io::Result<Self> {
        let queue = Arc::<OutboxQueue>::default();
        let (writes, mut sink) = (queue.clone(), sink);
        let thread = thread::Builder::new()
            .name("keylane-outbox".to_owned())
            .spawn(move || writes.run(&mut sink))?;
        Ok(Outbox(Arc::new(OutboxThread { queue, thread: Some(thread) })))
    }

    /// Hands over what was made of a record; its attempt is answered when that is written. Nothing is
    /// written at once.
    ///
    /// Never waits. A record counts as incomplete until then, so as much waits here at most as the
    /// handlers make of as many records as a consumer [may have](super::Builder::max_in_flight).
    pub fn send(&self, records: Vec<Record>, ack: Ack) {
        if records.is_empty() {
            return ack.done();
        }
        self.0.queue.state().outputs.push_back(PendingOutput { records, ack });
        self.0.queue.changed.notify_one();
    }
}

impl OutboxQueue {
    /// No section unwinds.
    fn state(&self) -> MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn run(&self, sink: &mut dyn Sink) {
        while let Some(outputs) = self.next() {
            // Who is given up is answered by nobody: whoever has the record now makes it anew.
            let (current, gone): (Vec<_>, Vec<_>) =
                outputs.into_iter().partition(|output| output.ack.is_current());
            gone.into_iter().for_each(|output| output.ack.withdraw());
            let outputs = current.into_iter().map(PendingOutput::into_sink).collect();
            // What it did not get to is dropped, and so has failed.
            let _ = catch_unwind(AssertUnwindSafe(|| sink.put_each(outputs)));
        }
    }

    /// Waits for output; none once all handles are gone and nothing is left.
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
        // An answer can let go of the last handle there.
        if writer.thread().id() != thread::current().id() {
            // It stops panics of the sink; there are no others.
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
