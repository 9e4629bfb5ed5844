//! Tells submitters what became of their tasks: handles, outcomes, cancellation.

mod attempt;
#[cfg(feature = "tokio")]
mod future;
mod handle;
#[cfg(all(test, loom))]
mod models;
mod outcome;
mod slot;

pub(crate) use attempt::{Attempt, Sure};
#[cfg(feature = "tokio")]
pub(crate) use future::{FutureTask, MOST_FUTURES, Runtime};
pub use handle::{Handle, WouldDeadlock};
pub use outcome::{Outcome, PanicPayload};
pub use slot::is_cancelled;
pub(crate) use slot::{Phase, Slot, Watch, answering};
