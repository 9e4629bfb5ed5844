//! Jobs: many subtasks under one name, which share the pool's workers with other jobs by the rules in
//! [`allocate`](crate::allocate), and have one result.
//!
//! A job is split lazily: its iterator is asked for a subtask when a worker is free for the job. A
//! subtask without keys then runs there and then. One with keys is put into the order of the pool like
//! a task, and the worker is free again; when its keys are granted, on whatever worker, that one does
//! not run it but keeps its turn for it and tells the rules that it is ready. So order is kept by the
//! lanes and workers are given by the rules, and neither knows of the other.

mod builder;
mod core;
mod fold;
#[cfg(feature = "tokio")]
mod future;
mod handle;
mod keyed;
mod sink;
mod source;
mod subtask;

pub use builder::{JobBuilder, OnError, ResultOrder, Subtasks};
pub use handle::{Job, JobInfo};
pub(crate) use keyed::KeyedSubtask;
