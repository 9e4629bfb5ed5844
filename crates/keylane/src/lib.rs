//! Run everything in parallel, except what must stay in order.
//!
//! A [`Pool`] is a set of worker threads that keeps the tasks of each key in the order in which
//! they were submitted, while tasks of different keys run in parallel.
//!
//! ```
//! use keylane::Pool;
//!
//! let pool = Pool::<&str>::builder().build()?;
//! pool.execute("alice", || println!("alice pays 10"))?;
//! pool.execute("bob", || println!("bob pays 20"))?; // beside alice
//! pool.execute("alice", || println!("alice pays 5"))?; // after alice's first
//! pool.execute(["alice", "bob"], || println!("a report on both"))?; // after all of these
//! pool.shutdown()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Guarantees
//!
//! - **Order.** If `submit(a)` returned before `submit(b)` was called, and the two conflict, then
//!   the body of a ends before the body of b begins, and b sees everything that a wrote. A
//!   [delayed](Task::after) task counts as submitted when its delay is over.
//! - **No overlap.** Two tasks that conflict never run at the same time.
//! - **No unrelated waiting.** A task waits only for tasks that it conflicts with, and for a
//!   worker. A task with several keys, a *rollup*, parks no worker while it waits, and delays only
//!   its keys.
//! - **Bounded.** At most `capacity` tasks are accepted and unfinished at a time. Submitters that
//!   wait for capacity are served first come, first served. Tasks that submit to their own pool
//!   never wait. With [`capacity_per_key`](Builder::capacity_per_key) a hot key cannot fill the
//!   pool, and its waiting submitters delay no others; with
//!   [`capacity_bytes`](Builder::capacity_bytes) the total cost of unfinished tasks is bounded,
//!   too.
//! - **Fair.** A key with many tasks yields to others after its quantum.
//! - **Isolated.** A panic ends its task alone. Its key, its worker and the others continue; or its
//!   key [stops](OnFailure), if configured.
//! - **No retained state.** A key without unfinished tasks costs no memory, and the captures of a
//!   task are dropped before the next task of its key begins, also if it was
//!   [replaced](Task::latest) or cancelled.
//!
//! Two tasks *conflict* if they have a key in common, unless both only share it or both
//! [limit](Claims::limited) it, if one of them is a barrier, or if the descriptor of one says so, a
//! value of your own type: see [`Claims`] and [`Compatibility`].
//!
//! # Overview
//!
//! | for | use |
//! |---|---|
//! | closures, each with its key or keys | [`Pool`] |
//! | order by overlap rather than by keys | [`Compatibility`] |
//! | many messages for one handler | [`HandlerPool`] |
//! | the result, cancelling, waiting | [`Handle`], from `submit` |
//! | no result, and no cost for one | `execute` |
//! | many subtasks with one result, beside others | [`Pool::job`] |
//! | tasks that borrow | [`Pool::scope`] |
//! | pausing a key, or taking its waiting tasks | [`Keys::pause`](crate::control::Keys::pause), [`Keys::take`](crate::control::Keys::take) |
//! | rate limits per key, or for the pool | [`Builder::rate_per_key`], [`Builder::rate`] |
//! | at most `n` tasks of a key at once, without order | [`Claims::limited`] |
//! | only the latest of a burst, and an end after all others | [`Task::latest`], [`Task::last`] |
//! | further attempts of failed work, in order | [`Task::retry`] |
//! | tasks that wait for a time, or for a quiet moment | [`Task::after`] |
//! | work that continues after its handler has returned | [`Turn`], [`TaskContext`] |
//! | a state for each key, and other forms of handlers | [`handler`] |
//! | timeouts, fallible work, futures (feature `tokio`) | [`Pool::task`] |
//! | counts and times of a running pool | [`Inspector::snapshot`](crate::control::Inspector::snapshot) |
//! | why a task waits, which tasks are stuck | [`Inspector::explain`](crate::control::Inspector::explain), [`Inspector::explain_key`](crate::control::Inspector::explain_key), [`Inspector::stalled`](crate::control::Inspector::stalled) |
//! | a timeline of the workers | [`Inspector::start_trace`](crate::control::Inspector::start_trace) |
//! | Prometheus (feature `metrics`), `tracing` (feature `tracing`) | `Snapshot::write_prometheus` |
//! | a fair bound, or a fair bounded queue, without a pool | [`admit::Gate`], [`admit::FairQueue`] |
//! | sharing workers among jobs in a pool or a simulation of yours | crate [`keylane_allocate`] |
//!
//! The keys' `Eq` and `Clone` are called, and clones of keys dropped, while a part of the pool is
//! locked: none of them may call the pool. Nor should they panic. A key's `Hash`, `Eq` or `Clone` that
//! panics in a call costs that call, which has then changed nothing. One that panics on a worker costs
//! the task whose key it is: the task does not run, and its outcome is
//! [`Panicked`](Outcome::Panicked). In pools with [`Builder::capacity_per_key`], with states of keys, or
//! with [`Builder::self_check`], a part of the pool may then be half changed, so the pool is
//! [poisoned](SubmitErrorKind::Poisoned): it ends, every later submission and shutdown returns that
//! error, and the handles of tasks that had not begun return that these were cancelled.

#![cfg_attr(docsrs, feature(doc_cfg))]

pub mod admit;
mod builder;
mod complete;
pub mod control;
mod engine;
mod error;
pub mod handler;
mod handler_pool;
mod job;
mod key_hasher;
mod key_state;
mod message_handler;
pub mod observe;
mod order;
mod pool;
mod prefetch;
mod retry;
mod run;
#[cfg(all(test, shuttle))]
mod schedules;
mod sync;
mod task;
mod unwind;

pub use builder::{Builder, MAX_CAPACITY, MAX_CAPACITY_BYTES, MAX_WORKERS};
pub use complete::{Handle, Outcome, PanicPayload, TaskError, WouldDeadlock};
pub use engine::{Key, OnFailure};
pub use error::{BatchError, BuildError, SubmitError, SubmitErrorKind, WaitError};
pub use handler_pool::HandlerPool;
pub use job::{Job, JobBuilder, JobInfo, OnError, ResultOrder, Subtasks};
pub use key_hasher::KeyBuildHasher;
pub use keylane_allocate::{JobId, JobPolicy, JobProgress};
pub use message_handler::Handler;
pub use order::{Claims, Compatibility, IntoClaims, Rate};
pub use pool::{PendingTask, Pool, Scope, ScopeError};
pub use retry::{Backoff, Jitter, Retry};
pub use run::{MAX_SUBSTITUTES, MockClock, Placement, TaskContext, Turn, is_cancelled};
pub use task::{Fallible, OnClosedKey, Plain, Retrying, Task, TaskWork};

/// Runs the Rust blocks of the README and of the book as tests.
#[cfg(doctest)]
mod documents {
    #[doc = include_str!("../../../README.md")]
    struct Readme;
    #[doc = include_str!("../../../docs/quick-start.md")]
    struct QuickStart;
    #[doc = include_str!("../../../docs/how-to-library.md")]
    struct HowToLibrary;
    #[doc = include_str!("../../../docs/from-rayon-and-tokio.md")]
    struct FromRayonAndTokio;
    #[doc = include_str!("../../../docs/observe.md")]
    struct Observe;
    #[doc = include_str!("../../../docs/simulate.md")]
    struct Simulate;
}
