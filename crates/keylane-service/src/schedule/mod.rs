//! Decides which subtask of which job runs next: in order per key, shared fairly among jobs, within the limits of
//! kinds.
//!
//! The [`Scheduler`] is a plain state machine: no clock, no lock, no I/O. Commands and events go in as calls
//! ([`accept`](Scheduler::accept), [`ended`](Scheduler::ended), [`handle_timeout`](Scheduler::handle_timeout), ...),
//! [`poll_start`](Scheduler::poll_start) says what runs now, and what follows of a call is what it returns. Whoever
//! owns it has one lock around it, writes down what must survive, and acts after the lock is given back.
//!
//! # Words
//!
//! | word | meaning here |
//! |---|---|
//! | *slot* | room for one run: a worker of the service |
//! | *key*, *lane* | bytes for which order is kept; the line of the unfinished subtasks that have it, of all jobs |
//! | *step* | what a start is of: a subtask, the split of a job, its fan-in |
//! | *kind* | which handler runs it; has limits |
//! | *fence* | the number of one start, higher than all before; only who has the present one can end the run |
//! | *attempt* | which try of the step a start is, from 1 |
//! | *held* | a job whose turn came while its kind had no place |
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
//! | state | stands in its lanes | has a slot | leaves it |
//! |---|---|---|---|
//! | *entering* | no | no | when its slice enters: waiting or ready; dropped with its job (`entries.rs`) |
//! | *scheduled* | no | no | when its job begins: waiting or ready; dropped with its job |
//! | *waiting* | yes, and does not head all of them, or one is paused | no | ready when it heads them all and none is paused; skipped; dropped |
//! | *ready* | heads all | no | running when its job gets a slot; waiting when a key is paused; skipped; dropped |
//! | *running* | heads all | yes | by the end of the run: over, backing off, ready again, or stopped |
//! | *backing off* | heads all | no | at its time, or when it is retried: ready, or waiting for a paused key; skipped; dropped |
//! | *stopped* | yes | no | when somebody has it retried: ready; skipped; dropped |
//!
//! After a restart a subtask that ran under a lease, backed off or was stopped is [restored](Scheduler::restore) to that
//! state: `restore.rs`.
//!
//! The split of a job is ready as long as it has not begun, and the fan-in is ready when everything else of its job
//! has succeeded. Neither has keys. Until a fan-in is ready it keeps the job from being over.
//!
//! # What holds
//!
//! 1. **Order.** Of two subtasks with a key in common, the one that entered first is over for good before the
//!    other starts: through retries, lost workers and restarts. They enter when their job is accepted or begins, their
//!    split has made them, or they are taken up again. *Why:* a lane is first in, first out; a subtask starts
//!    only while it heads all its lanes; it leaves them only when it is over. A head that backs off or is stopped is
//!    still the head. After a restart, accepting in the order in which they entered rebuilds the same lanes.
//! 2. **No overlap.** A lane has one head, and a slot is given to heads only. The end of a run counts only with the
//!    fence of that run, and a subtask gets a new fence only after the end of its last run was told (`End::Lost` if
//!    nobody knows), so no subtask has two runs that can both end.
//! 3. **Nothing waits for nothing, and nothing waits for ever.** All places of a subtask are taken in one step, and the
//!    subtasks of one call enter before those of the next (`entries.rs`), so
//!    the order of acceptance is the same in all lanes, and each wait for a lane points to an earlier acceptance. The
//!    earliest unfinished subtask waits for no lane. There is no cycle, and so no deadlock; what can keep a head is a
//!    person (a pause, a stopped key), a time (backing off, a rate) or a slot, and each is an answer of
//!    [`explain`](Scheduler::explain).
//! 4. **No slot idles** while something could start, but for what the bound on active jobs keeps out. A job of a kind
//!    without room is paused in the allocator when its turn comes, and the allocator asked again, so it keeps no
//!    other job from the slot; before a slot stays free, jobs of kinds that have room again are let go.
//! 5. **Jobs share by the [four rules](keylane::allocate)**, which see a job's ready subtasks as what it offers,
//!    and all that are unfinished as what it needs.
//! 6. **Kinds are fair.** Jobs held for one kind are let go in the order of their turns, and one that has had a place
//!    goes behind those who wait for it.
//! 7. **Nothing stays** of a job that is over, nor of a key that no unfinished subtask has, unless somebody paused it.
//!
//! # Cost
//!
//! A call costs O(1) or O(log n), of jobs, timers and held jobs, for each subtask that it is about, and is about at
//! most a slice of them: large jobs enter and leave in slices, see `entries.rs`. A subtask that
//! waits without keys costs no memory of its own: a job has ranges of numbers. One that waits with a key of its own
//! costs about 150 bytes, the key included if it has up to 22 bytes. Lanes and subtasks lie on pages, and lanes are
//! found by a thousand small tables, so nothing large is moved when there are more.
//!
//! # Where to look
//!
//! `restore.rs` has what goes on after a restart, and what follows when the clock is set.
//! `scheduler.rs` has the state and how jobs come in, `entries.rs` how they enter and leave in slices, `start.rs` who starts and the limits of kinds, `end.rs` what
//! follows an end, `control.rs` and `keys.rs` what people do, `explain.rs` the answers. What they are made of:
//! `lanes.rs` the order, `job.rs`, `roll.rs`, `task.rs`, `kinds.rs`, `bucket.rs`, `timers.rs`, `time.rs`, `packed.rs`; `slab.rs` and
//! `list.rs` below them; `words.rs` and `answers.rs` are what goes in and comes out.

mod answers;
mod bucket;
mod control;
mod end;
mod entries;
mod explain;
mod job;
mod keys;
mod kinds;
mod lanes;
mod line_keys;
mod list;
mod packed;
mod restore;
mod roll;
mod scheduler;
mod slab;
mod start;
mod task;
#[cfg(test)]
mod tests;
mod time;
mod timers;
mod words;

pub use answers::{
    Because, Counts, DecisionView, Explanation, Head, KeySort, KeyView, Reason, Running, Slots,
    State, StepOf,
};
pub use entries::{Trash, WorkedOff};
pub use keys::{Retried, Skipped};
pub use line_keys::KeySet;
pub use packed::Packed;
pub use restore::Restored;
pub use scheduler::Scheduler;
pub use words::{
    Accepted, AddError, Cancelled, End, Ended, EndedCounts, Fate, HeadError, KindId, KindLimits,
    NewJob, NewSubtask, OnError, OnFail, Outcome, Rate, Settings, Stale, Start, Step,
};
