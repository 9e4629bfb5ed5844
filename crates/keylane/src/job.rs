//! Jobs: named sets of subtasks that share the pool's workers by the rules of
//! [`keylane_allocate`], each with one result.
//!
//! A job is split lazily: its iterator produces a subtask when a worker is free for the job. A
//! subtask without keys then runs on that worker at once. One with keys enters the order of the
//! pool like a task, and the worker is free again. When its keys are granted, on any worker, that
//! worker keeps its turn for it and reports it to the scheduler as ready. So the lanes keep the
//! order and the scheduler assigns the workers, each without knowledge of the other. While there is
//! only this job, the scheduler has nothing to choose, and the worker runs the subtask itself
//! (`run/stretch.rs`).

mod blocked;
mod builder;
mod core;
mod fold;
#[cfg(feature = "tokio")]
mod future;
#[cfg(feature = "tokio")]
mod future_slots;
mod handle;
mod keyed_subtask;
mod options;
mod shared_batch;
mod sink;
mod source;
mod subtask;

pub use builder::{JobBuilder, Subtasks};
pub use handle::{Job, JobInfo};
pub(crate) use keyed_subtask::KeyedSubtask;
pub use options::{OnError, ResultOrder};
