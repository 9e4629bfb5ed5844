//! `keylane calibrate`: throughput of this machine by number of workers, its cost, its effect on a
//! light task, and the number of workers to use.
//!
//! Measurements and conclusions are separate: a curve is plain data, and the advice, the table and
//! the drawings are functions of it.

mod advice;
mod args;
mod csv;
mod curve;
mod measure;
mod other_processes;
mod plot;
mod probe;
mod run;
mod table;
mod workload;

pub(crate) use args::CalibrateArgs;
pub(crate) use run::run;
