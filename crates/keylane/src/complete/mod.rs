//! Completion of tasks: handles, outcomes and cancellation.

#[cfg(feature = "tokio")]
mod future;
mod handle;
#[cfg(all(test, loom))]
mod models;
mod outcome;
mod progress;
mod retry_task;
mod spare_cells;
mod task_cell;
mod task_fn;

#[cfg(feature = "tokio")]
pub(crate) use future::{FutureRuntime, FutureTask, MAX_FUTURES};
pub use handle::{Handle, WouldDeadlock};
pub(crate) use handle::{NoWorker, block};
pub use outcome::{Outcome, PanicPayload, TaskError};
pub(crate) use retry_task::RetryTask;
pub(crate) use task_cell::{JoinState, TakeWork, TaskCell, TaskPhase};
pub(crate) use task_fn::{FallibleFn, InfallibleFn, TaskFn};
