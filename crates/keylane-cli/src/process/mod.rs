//! One process per record: its output appears whole after its end, and it leaves no process behind.

mod attempt;
mod capture;
mod child_end;
mod children;
mod collect;
mod command_ender;
mod overdue;
mod program_search;
mod record_process;
mod registry;
mod run_one;
mod slot_numbers;
mod start_errors;

pub(crate) use attempt::{AttemptClock, AttemptFailure, AttemptTimes, EndedAttempt, RecordEnd};
pub(crate) use capture::OutputCapture;
pub(crate) use child_end::{describe, describe_end};
pub(crate) use children::ChildProcesses;
pub(crate) use collect::{CapturedOutput, OutputReceiver, OutputStream};
pub(crate) use command_ender::CommandEnder;
pub(crate) use program_search::resolve;
pub(crate) use record_process::{CommandInput, RecordCommand, RecordProcessRunner};
#[cfg(feature = "consume")]
pub(crate) use registry::guarded_with_grace;
pub(crate) use registry::{guarded, guarded_beside};
pub(crate) use run_one::{CommandResult, ask_once, run_once};
pub(crate) use slot_numbers::SlotNumbers;
pub(crate) use start_errors::why_not_started;
