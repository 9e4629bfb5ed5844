//! Settings of batches, and the error that names the first failed record of a batch.

use std::error::Error;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Duration;

use super::attempt::Attempt;
use super::failure::AttemptFailure;

/// Settings of handlers that receive several records at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchConfig {
    /// Maximum number of records in a batch, at least 1.
    pub max_records: usize,
    /// Maximum time that the first record of a batch waits for others.
    pub linger: Duration,
    /// Whether the records of a failed batch are handled again at once, each alone, so that only
    /// those that fail then count as failed. Without it all records of a failed batch have failed.
    ///
    /// In a batch [of one key](BatchBy::Key), records behind the first failure are not handled
    /// before that failure is resolved, and have not failed.
    pub split: bool,
    /// Keys of the records in a batch.
    pub by: BatchBy,
}

/// Keys of the records in a batch.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BatchBy {
    /// Different keys, at most one record of each, of any partitions. For work that is cheaper in
    /// bulk, such as an `INSERT` with many rows.
    #[default]
    Mixed,
    /// Consecutive records of one key. For work on the state of a key: read it once, apply all
    /// records, write it once. A record without an order is a batch of its own.
    Key,
}

/// Error of a batch handler that names the first failed record. The records before it are complete,
/// the attempt at it has failed with this cause, and the records behind it were not tried.
///
/// An index outside of the batch fails the whole batch.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use keylane_stream::consumer::{Attempt, BatchConfig, BatchBy, Consumer, BatchFailure};
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
///         let count = text.map_err(|error| BatchFailure::new(index, error))?;
///         println!("{count} more for {:?}", order.key());
///     }
///     Ok::<_, BatchFailure>(())
/// })?;
/// assert_eq!(consumer.wait().counts.handled, 9);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct BatchFailure {
    index: usize,
    why: AttemptFailure,
}

impl BatchFailure {
    /// Reports that the record at `index` has failed; the first record has index 0.
    pub fn new(index: usize, why: impl Into<AttemptFailure>) -> Self {
        BatchFailure { index, why: why.into() }
    }

    /// Returns the index and the cause if the failure names a record in a batch of `length`
    /// records.
    pub(super) fn in_batch(
        failure: &AttemptFailure,
        length: usize,
    ) -> Option<(usize, AttemptFailure)> {
        let named = failure.downcast_ref::<BatchFailure>().filter(|named| named.index < length)?;
        Some((named.index, named.why.clone()))
    }
}

impl fmt::Display for BatchFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "record {} of the batch: {}", self.index, self.why)
    }
}

impl Error for BatchFailure {}

/// A batch handler.
pub(super) type BatchFn = dyn Fn(&[Attempt]) -> Result<(), AttemptFailure> + Send + Sync;

/// Calls a batch handler. A panic is a failure.
pub(super) fn call(handler: &BatchFn, attempts: &[Attempt]) -> Result<(), AttemptFailure> {
    let result = catch_unwind(AssertUnwindSafe(|| handler(attempts)));
    result.unwrap_or_else(|payload| Err(AttemptFailure::panicked(&*payload)))
}

/// Calls a batch handler with one record. Unwraps a [`BatchFailure`], which has nothing to tell here.
pub(super) fn call_alone(handler: &BatchFn, attempt: &Attempt) -> Result<(), AttemptFailure> {
    call(handler, std::slice::from_ref(attempt)).map_err(|failure| {
        let named = BatchFailure::in_batch(&failure, 1);
        named.map_or(failure, |(_, why)| why)
    })
}
