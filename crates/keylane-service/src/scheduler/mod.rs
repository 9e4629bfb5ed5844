//! Scheduler: decides which subtask of which job runs next, in order per key, with fair shares for
//! jobs, and within the limits of kinds.
//!
//! The [`Scheduler`] is a plain state machine without clock, lock or I/O. Commands and events are
//! calls ([`accept`](Scheduler::accept), [`ended`](Scheduler::ended),
//! [`handle_timeout`](Scheduler::handle_timeout), ...); their effects are return values, and
//! [`poll_start`](Scheduler::poll_start) returns the next start. The owner has one lock around it,
//! persists what must survive, and acts after it has released the lock.
//!
//! # Terms
//!
//! | term | meaning here |
//! |---|---|
//! | *slot* | capacity for one run: a worker of the service |
//! | *key*, *lane* | bytes for which order is kept; the queue of the unfinished subtasks of all jobs that have the key |
//! | *shared* | use of a key beside other subtasks that share it; other uses are *exclusive* |
//! | *in front* | first in a lane, or behind nothing but shared ones and shared itself |
//! | *step* | unit of a start: a subtask, the split of a job, its fan-in |
//! | *kind* | handler and limits of a job |
//! | *tenant* | owner of jobs, among which the slots are shared first |
//! | *fence* | number of one start, higher than all before; only the current one can end the run |
//! | *attempt* | number of tries of the step, from 1 |
//! | *held* | job whose turn came while its kind had no free capacity |
//!
//! # The states of a subtask
//!
//! ```text
//! accepted ──┬─▶ waiting ◀──────▶ ready ──slot──▶ running ──┬─▶ succeeded
//!            └──────────────────▶   ▲               │       ├─▶ failed, cancelled
//!                                   ├ lost, withdrawn       │
//!                                   └─ backing off ◀┤       │
//!                                   └─── stopped ◀──┘  (skipped, dropped)
//! ```
//!
//! | state | in its lanes | has a slot | leaves it |
//! |---|---|---|---|
//! | *entering* | no | no | when its slice enters: waiting or ready; dropped with its job (`large_jobs.rs`) |
//! | *scheduled* | no | no | when its job begins: waiting or ready; dropped with its job |
//! | *waiting* | yes, and is not in front of all of them, or one is paused | no | ready when it is in front of all and none is paused; skipped; dropped; superseded |
//! | *ready* | in front of all | no | running when its job gets a slot; waiting when a key is paused; skipped; dropped; superseded |
//! | *running* | in front of all | yes | by the end of the run: over, backing off, ready again, or stopped |
//! | *backing off* | in front of all | no | at its time, or when it is retried: ready, or waiting for a paused key; skipped; dropped |
//! | *stopped* | yes | no | when an operator retries it: ready; skipped; dropped |
//!
//! A subtask with [`KeyClaim::LATEST`](crate::KeyClaim::LATEST) that waits or is ready, and was never
//! started, is *superseded* when the next such subtask of its key enters (`supersede.rs`).
//!
//! After a restart a subtask that ran under a lease, backed off or was stopped is
//! [restored](Scheduler::restore) to that state (`restore.rs`).
//!
//! The split of a job is ready until it starts; the fan-in is ready when every other subtask of its
//! job has succeeded. Neither has keys. A fan-in that is not ready keeps its job unfinished.
//!
//! # Guarantees
//!
//! 1. **Order.** Of two subtasks with a common key that not both share, the one that entered first
//!    is finished before the other starts: through retries, lost workers and restarts. Subtasks enter when their job is
//!    accepted or begins, when the split adds them, or when the job is reopened. *Why:* a lane is
//!    first in, first out; a subtask starts only while it is in front of all its lanes, and leaves
//!    them only when it is finished. One that backs off or is stopped stays in front. After a
//!    restart, accepting in the order of entry rebuilds the same lanes. `README.md` has shared keys.
//! 2. **No overlap.** Subtasks in front of a lane do not conflict, and only those get slots. The end of a run counts only
//!    with the fence of that run, and a subtask gets a new fence only after the end of its last run
//!    was reported (`RunEnd::Lost` if the result is unknown), so no subtask has two runs that can both
//!    end.
//! 3. **No deadlock, no starvation.** A subtask enters all its lanes in one step, and the subtasks
//!    of one call enter before those of the next (`large_jobs.rs`), so the order of acceptance is equal
//!    in all lanes, and every wait for a lane points to an earlier acceptance. The earliest unfinished
//!    subtask waits for no lane. There is no cycle, and so no deadlock. A head can only be delayed by
//!    an operator (a pause, a stopped key), a time (backoff, a rate) or a slot, and each is an answer
//!    of [`explain`](Scheduler::explain).
//! 4. **No idle slot** while a subtask could start, except for jobs beyond the bound on active
//!    jobs. A job of a kind without free capacity is paused in the allocator when its turn comes, and
//!    the allocator is asked again, so the job keeps no other from the slot; before a slot stays idle,
//!    jobs of kinds with free capacity are released.
//! 5. **Tenants share by weight, minimum and maximum, and the jobs of each by the [four
//!    rules](keylane_allocate)**, those of a higher priority first: the rules see a job's ready subtasks as its offer, and all
//!    unfinished ones as its need. A tenant at its maximum or its rate keeps no capacity of a kind
//!    from others.
//! 6. **Kinds are fair.** Jobs held for one kind are released by priority and in the order of their turns, and a
//!    job that has used the kind's capacity goes behind those that wait for it.
//! 7. **No leak.** Nothing is kept of a finished job, nor of a key without unfinished subtasks,
//!    unless the key is paused, or has started so lately that its rate counts.
//!
//! # Cost
//!
//! A call costs O(1) or O(log n) in jobs, timers and held jobs for each subtask concerned, and
//! concerns at most a slice of them: large jobs enter and leave in slices (`large_jobs.rs`). The
//! exceptions are the pause of a key and its end, which concern all subtasks that share the front. Waiting
//! subtasks without keys cost no memory each: a job has ranges of numbers. A waiting subtask with a
//! key of its own costs about 150 bytes, including a key of up to 22 bytes. Lanes and subtasks are
//! stored in pages, and lanes are found through a thousand small tables, so growth never moves much
//! memory.
//!
//! # Files
//!
//! `state.rs` has the state and the acceptance of jobs, `large_jobs.rs` entry and exit in slices,
//! `next_start.rs` the next start and the limits of kinds, `run_end.rs` the effects of an end,
//! `tenant_control.rs` the limits of tenants,
//! `job_commands.rs` and `key_commands.rs` the commands of operators, `explain.rs` and `waits.rs` the queries,
//! `supersede.rs` replacement, `restore.rs` restarts and clock changes. Data structures: `lanes.rs` for the order, `job.rs`,
//! `unfinished_tasks.rs`, `task.rs`, `kinds.rs`, `tenants.rs`, `key_rates.rs` and `rate_waits.rs`, `token_bucket.rs`, `timers.rs`, `steady_time.rs`,
//! `packed_subtasks.rs`, `incremental_work.rs`, `entry_queue_keys.rs`, and below them `slab.rs` and
//! `list.rs`. Inputs and outputs: `settings.rs`, `new_job.rs`, `run.rs`, `results.rs`,
//! `query_results.rs`.

mod entry_queue_keys;
mod explain;
mod incremental_work;
mod job;
mod job_commands;
mod key_chain;
mod key_commands;
mod key_rates;
mod kinds;
mod lanes;
mod large_jobs;
mod list;
mod new_job;
mod next_start;
mod packed_subtasks;
mod query_results;
mod rate_waits;
mod restore;
mod results;
mod run;
mod run_end;
mod settings;
mod slab;
mod state;
mod steady_time;
mod supersede;
mod task;
mod tenant_control;
mod tenants;
#[cfg(test)]
mod tests;
mod timers;
mod token_bucket;
mod unfinished_tasks;
mod wait_totals;
mod waits;

pub use entry_queue_keys::KeySet;
pub use key_chain::KeyChain;
pub use key_commands::{RetriedSubtask, SkippedSubtask};
pub use large_jobs::{ReleasedMemory, SliceResult};
pub use new_job::{EndedCounts, JobFailurePolicy, KeyFailurePolicy, NewJob, NewSubtask};
pub use packed_subtasks::PackedSubtasks;
pub use query_results::{
    DecisionView, JobStep, JobWaitReason, KeySort, KeyView, LaneHead, RunningStep, SlotUsage,
    SubtaskCounts, SubtaskExplanation, TenantView, UnfinishedState, WaitReason,
};
pub use restore::RestoredState;
pub use results::{
    AcceptResult, AddError, CancelResult, EndResult, JobOutcome, KeyHeadError, SupersededSubtask,
};
pub use run::{RunEnd, RunStart, StaleFence, Step, SubtaskFate};
pub use settings::{KindId, KindLimits, RateLimit, SchedulerSettings, TenantSettings};
pub use state::Scheduler;
pub use wait_totals::WaitCounts;
pub(crate) use wait_totals::WaitDurations;
