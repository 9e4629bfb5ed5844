//! One process per record: its output appears whole after its end, and it leaves no process behind.

mod capture;
mod children;
mod collect;
mod program;
mod record_process;
mod refused;
mod registry;
mod run_one;

pub(crate) use children::ChildProcesses;
pub(crate) use program::resolve;
pub(crate) use record_process::{RecordProcessRunner, describe};
pub(crate) use refused::why_not_started;
pub(crate) use registry::{guarded, guarded_beside};
pub(crate) use run_one::{CommandResult, ask_once, run_once};
