//! `keylane simulate`: what the four rules would do with some jobs, in virtual time, and what other
//! ways to share the workers would.
//!
//! The world is a list of jobs and some workers; a policy says who gets each free worker; what comes
//! out is a schedule, which is shown. Nothing here sleeps or reads a clock.

mod args;
mod compare;
mod gantt;
mod jobs;
mod mix;
mod policy;
mod recorded;
mod report;
mod schedule;
mod time;
mod world;

pub(crate) use args::SimulateArgs;
pub(crate) use report::run;
