//! `keylane run`: reads records, runs a command for each, keeps every key in
//! order, and ends with a code that says how it went.
//!
//! ```text
//! input ─▶ reader ─▶ pool ─▶ one process per record   ─▶ output
//!          (key,     (lanes)  or a line to a worker       (whole pieces)
//!          command)
//! ```
//!
//! What cannot be read or run ends the run: what was accepted before it is
//! finished, then the code is 255. What is wrong with one record alone, such as
//! a command that fails or a field that this record lacks, is reported and
//! counted, and the run goes on.

mod books;
mod compose;
mod engine;
mod event;
mod plan;
mod reader;
mod supervisor;
mod trace;
mod work;

pub(crate) use compose::run;
pub(crate) use event::{Cause, Event};
pub(crate) use work::Pool;
