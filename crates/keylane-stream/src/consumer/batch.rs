//! Completion records are handled batches; and those of different keys: such that have their turns wait for company.

use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::attempt::Attempt;
use super::failure::Failure;

/// How
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchConfig {
    /// Completion many there are in a batch at most; one at least.
    pub max_records: usize,
    /// Completion long the first of them waits for others.
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
/// use keylane_stream::consumer::{Attempt, BatchConfig, BatchBy, Consumer, FailedAt};
/// # use keylane_stream::Record;
/// # use keylane_stream::memory::MemoryStream;
///
/// # let stream = MemoryStream::new("orders", 1);
/// # (0..9).for_each(|number| drop(stream.push(0, Record::new("ann", number.to_string()))));
/// # stream.exhaust();
/// let linger = Duration::from_millis(5);
/// let batch = BatchConfig { max_records: 100, linger, split: false, by: BatchBy::Key };
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
pub(super) type BatchFn = dyn Fn(&[Attempt]) -> Result<(), Failure> + Send + Sync;

/// Calls a user's function; a panic is a failure.
pub(super) fn call(handler: &BatchFn, attempts: &[Attempt]) -> Result<(), Failure> {
    let result = catch_unwind(AssertUnwindSafe(|| handler(attempts)));
    result.unwrap_or_else(|payload| Err(Failure::panicked(&*payload)))
}

/// The same for one: what has failed of it need not be named.
pub(super) fn call_alone(handler: &BatchFn, attempt: &Attempt) -> Result<(), Failure> {
    call(handler, std::slice::from_ref(attempt)).map_err(|failure| {
        let named = FailedAt::in_batch(&failure, 1);
        named.map_or(failure, |(_, why)| why)
    })
}
