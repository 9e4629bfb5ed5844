//! Observer of a worker pool's records: a run, or a consumer of a stream.

use std::fmt::{Debug, Display};

use super::worker_record::PendingRecord;

/// Callbacks for the result of every record given to the worker pool.
///
/// Each record is reported once: as not run, answered, lost or withdrawn. The pool unblocks the
/// keys of records left in a list.
pub(crate) trait RecordObserver: Debug + Send + Sync + 'static {
    /// Identity of a record in the pool.
    type Ticket: Debug + Send;

    /// Whether starts have stopped.
    fn is_stopping(&self) -> bool;

    /// Whether the record of a ticket is not wanted any more.
    fn is_cancelled(&self, _ticket: &Self::Ticket) -> bool {
        false
    }

    /// A record came after starts had stopped, or was cancelled while it waited for a child.
    fn not_run(&self, ticket: Self::Ticket);

    /// A record is on its way to a child.
    fn started(&self);

    /// A child has answered these records, with a line each, in order. All lines are whole.
    fn answered(&self, lines: &[u8], records: &mut Vec<PendingRecord<Self::Ticket>>);

    /// A child had these, and was ended by [`cancel`](super::WorkerPool::cancel).
    fn ended(&self, records: &mut Vec<PendingRecord<Self::Ticket>>);

    /// A child has ended, and had these. `said` is the end of what it wrote to standard error during the oldest one.
    fn lost(&self, records: &mut Vec<PendingRecord<Self::Ticket>>, end: &dyn Display, said: &[u8]);

    /// A child has written this to its standard error, which is a pipe.
    fn print_stderr(&self, text: &[u8]);

    /// These were not given to a child, and are not going to be.
    fn withdrawn(&self, records: &mut Vec<PendingRecord<Self::Ticket>>);

    /// Children violate the protocol, or cannot be started. Returns whether the run ends.
    fn on_fatal(&self, error: anyhow::Error) -> bool;

    /// The record, for people.
    fn name(&self, ticket: &Self::Ticket) -> String;

    /// Writes a message for humans.
    fn print(&self, message: &dyn Display);
}
