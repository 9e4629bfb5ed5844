//! One process per record: its output appears whole after its end, and it leaves no process behind.

mod capture;
mod children;
mod collect;
mod once;
mod program;
mod refused;
mod registry;
mod task;

pub(crate) use children::Children;
pub(crate) use once::{Ended, ask_once, run_once};
pub(crate) use program::resolve;
pub(crate) use refused::why_not_started;
pub(crate) use registry::{guarded, guarded_beside};
pub(crate) use task::{Processes, describe};
