//! Whose records a crew handles: a run, or a consumer of a stream.

use std::fmt::{Debug, Display};

use super::slot::Pending;

/// What is told of the records that a crew got.
///
/// Each is told of once: as not run, answered, lost or withdrawn. Records that are left in a list are let go
/// of by the crew.
pub(crate) trait Employer: Debug + Send + Sync + 'static {
    /// What stands for a record while the crew has it.
    type Ticket: Debug + Send;

    /// Whether nothing more is to start.
    fn is_stopping(&self) -> bool;

    /// A record came when nothing more was to start.
    fn not_run(&self, ticket: Self::Ticket);

    /// A record is on its way to a child.
    fn started(&self);

    /// A child has answered these, with a line each, in their order. All of them are whole.
    fn answered(&self, lines: &[u8], records: &mut Vec<Pending<Self::Ticket>>);

    /// A child has ended, and had these.
    fn lost(&self, records: &mut Vec<Pending<Self::Ticket>>, end: &dyn Display);

    /// These were not given to a child, and are not going to be.
    fn withdrawn(&self, records: &mut Vec<Pending<Self::Ticket>>);

    /// Children do what they must not, or none can be had. Whether that is the end.
    fn is_over(&self, error: anyhow::Error) -> bool;

    /// The record, for people.
    fn name(&self, ticket: &Self::Ticket) -> String;

    /// Says something to people.
    fn say(&self, message: &dyn Display);
}
