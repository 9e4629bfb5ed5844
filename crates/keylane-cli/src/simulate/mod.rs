//! `keylane simulate`: effect of the four rules on a list of jobs in virtual time, compared with
//! other policies.
//!
//! The input is a list of jobs and a number of workers; a policy assigns each free worker; the
//! output is a schedule, which is shown. The simulation neither sleeps nor reads a clock.

mod args;
mod compare;
mod event_loop;
mod gantt;
mod jobs;
mod policy;
mod random_jobs;
mod recorded;
mod report;
mod schedule;
mod time;

pub(crate) use args::SimulateArgs;
pub(crate) use report::run;
