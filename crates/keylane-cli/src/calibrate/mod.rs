//! `keylane calibrate`: how fast this machine gets with more workers, what that costs, and what it does
//! to a light task beside it; and which number of workers follows from that.
//!
//! What is measured and what is concluded are apart: a curve is plain data, and the advice, the table
//! and the drawings are functions of it.

mod advice;
mod args;
mod csv;
mod curve;
mod measure;
mod others;
mod plot;
mod probe;
mod run;
mod table;
mod workload;

pub(crate) use args::CalibrateArgs;
pub(crate) use run::run;
