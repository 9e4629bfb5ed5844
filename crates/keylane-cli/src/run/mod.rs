//! `keylane run`: runs a command for each record, keeps every key in order, and exits with a code
//! for the result.
//!
//! ```text
//! input ─▶ reader ─▶ pool ─▶ one process per record   ─▶ output
//!          (key,     (lanes)  or a line to a worker       (whole pieces)
//!          command)
//! ```
//!
//! With batches, records wait between the reader and the pool for others of their key, and a process
//! gets all records of a batch.
//!
//! An input or program error ends the run: the records accepted before are finished, then the code
//! is 255. An error of one record alone, such as a command that fails or a missing field, is
//! reported and counted, and the run goes on.

mod args;
mod batch_args;
mod batch_pace;
mod batch_preview;
mod batch_queue;
mod batch_submitter;
mod batch_task;
mod command_task;
mod compose;
mod coordinator;
mod coordinator_event;
mod dead_letters;
mod dispatched_record;
mod dry_run;
mod executor;
mod failed_records;
mod failures;
mod input_args;
mod job_log;
mod log;
mod log_args;
mod logs;
mod output_args;
mod plan;
mod preview_args;
mod reader;
mod record_bound;
mod record_pool;
mod record_sinks;
mod record_task;
mod record_template;
mod resume;
mod trace;
mod waiting_batches;
mod worker_events;
mod worker_retries;
mod worker_retry_thread;
mod worker_task;

pub(crate) use args::RunArgs;
pub(crate) use compose::run;
pub(crate) use coordinator_event::{CoordinatorEvent, StopCause};
pub(crate) use record_pool::RecordPool;
