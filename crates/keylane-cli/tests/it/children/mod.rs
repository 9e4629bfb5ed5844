//! No child outlives `keylane` unnoticed, whatever ends it: none runs beside the next attempt of what it was started
//! for.

mod clients;
#[cfg(all(feature = "postgres", target_os = "linux"))]
mod cluster_faults;
#[cfg(feature = "postgres")]
mod cluster_inbox;
mod consume;
pub(crate) mod dice;
pub(crate) mod family;
mod first_process;
#[cfg(target_os = "linux")]
mod long_lines;
mod run;
mod run_kills;
mod run_resume_kills;
mod serve;
mod serve_kills;
mod subtasks;
