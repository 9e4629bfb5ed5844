//! Scheduler for jobs: assigns free workers to jobs by four rules, and computes the default number
//! of workers.
//!
//! A *job* is a set of subtasks that belong together. Jobs share the workers so that none takes
//! them all, as few jobs as possible wait, and the job that needs the least work finishes first:
//!
//! 1. An active job with a subtask to run and no worker gets one.
//! 2. Otherwise the first queued job becomes active, if fewer jobs than the bound are active, and
//!    gets one.
//! 3. Otherwise the active job with the least requirement that has a subtask to run gets one.
//!
//! These are the rules in the order of arrival; the other [`JobPolicy`]s prefer the jobs with the least
//! requirement.
//!
//! The [`JobScheduler`] is a pure state machine: no clock, no lock, no thread. A pool calls it, and so
//! does a simulation. The README beside the source has the origin of the rules, their guarantees,
//! and the contradictions in their original text.

mod decision;
mod indexed_heap;
mod job;
mod job_scheduler;
mod policy;
mod priority;
mod record;
mod rules;
mod sizing;
mod tenant_scheduler;
mod tenant_shares;

pub use decision::{Claimant, Decision, End, JobId, Rule, Take};
pub use job::{JobProgress, Supply};
pub use job_scheduler::JobScheduler;
pub use policy::JobPolicy;
pub use priority::Priority;
pub use record::{Divergence, Event, ParseRecordError, Record, RecordedEvent};
pub use sizing::{Machine, default_workers};
pub use tenant_scheduler::{TenantIndex, TenantJobId, TenantScheduler};
pub use tenant_shares::TenantLimits;
