//! Joins a source to a pool of workers: records are handled in parallel across keys and in order
//! within a key, and progress is committed.
//!
//! # Guarantees
//!
//! - **Order.** Within one partition and key, the handler of a record ends before that of the next
//!   one starts, through retries, waits and failures.
//! - **No loss.** A record is complete when its handler has succeeded and its [sink](crate::sink)
//!   has acknowledged the output, when the policy has skipped it, or when its dead letter was
//!   acknowledged. Commits never claim more.
//! - **Little repetition.** Nothing is repeated after a clean shutdown; after a crash only the
//!   records completed since the last commit, in whatever order.
//! - **A stuck key holds up no other key** until the records in flight behind it reach a limit, and
//!   then only its partition.
//! - **A retry occupies no worker.** A record that waits for its next attempt keeps its key and is
//!   an entry in a timer.
//! - **A paused target starts no attempt.** The operator can [pause](ConsumerHandle::pause) a topic, a
//!   partition or a key. Its records wait in order, and all others go on.
//! - **Shutdown is bounded.** When a partition is revoked, its running attempts are awaited up to a
//!   deadline; later answers are ignored and counted.
//! - **No overlap with the next owner**, of attempts that [can be cancelled](Attempt::on_cancel): a
//!   partition that is revoked is released after they have ended, and the attempts of a lost
//!   partition are ended at once.
//!
//! A record can be handled more than once, and a handler that cannot be cancelled may still be
//! running then, on a member that has lost its partition. [`Attempt::partition`] and [`Attempt::position`] identify a record
//! permanently, for effects that must happen once.
//!
//! # Examples
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use std::sync::Arc;
//! use keylane_stream::consumer::{Attempt, Consumer, AttemptFailure};
//! use keylane_stream::memory::MemoryStream;
//! use keylane_stream::Record;
//!
//! let stream = MemoryStream::new("orders", 1);
//! stream.push(0, Record::new("ann", "2"));
//! stream.push(0, Record::new("bob", "3"));
//! stream.exhaust();
//!
//! let sum = Arc::new(AtomicU64::new(0));
//! let adds = sum.clone();
//! let consumer = Consumer::builder(stream.source()).threads(8).start(move |order: &Attempt| {
//!     let count: u64 = std::str::from_utf8(order.payload())?.parse()?;
//!     adds.fetch_add(count, Ordering::Relaxed);
//!     Ok::<_, AttemptFailure>(())
//! })?;
//! let ended = consumer.wait();
//! assert_eq!((sum.load(Ordering::Relaxed), ended.counts.handled), (5, 2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # How it works
//!
//! ```text
//!            ┌───────────── coordinator ─────────────┐        ┌─ pool ─┐
//! source ──▶ │ buffer ─▶ tracker.take ─▶ lane        │ ─────▶ │ lanes  │ ─▶ handler
//!        ◀── │ commit ◀─ tracker.complete ◀─ mailbox │ ◀────  └────────┘      │
//!            └───────────────────────────────────────┘                       │
//!                          ▲           ▲  guard kept: timer, dead letters ◀──┘
//! ```
//!
//! One thread, the *coordinator*, has the source, and for each assigned partition its tracker, its
//! delivered records that are not admitted yet, and the list of its records in flight. No other
//! thread accesses these. In each round it
//!
//! 1. reads the events in its mailbox: completions and failures;
//! 2. admits records while their partition has room, and sends them to the pool in the order of
//!    their positions; pauses partitions without room;
//! 3. advances revocations: *close* the assignment, await running attempts, *cancel* them shortly
//!    before the deadline and force their end there, *fence*, commit the last progress, release;
//! 4. commits progress that is due, if no commit of that partition is in progress;
//! 5. waits for the source, the mailbox, or both.
//!
//! A worker that receives a record *begins* its attempt at the partition's assignment
//! (`assignment.rs`). A revocation closes the assignment; the worker then leaves the record as it
//! is. The turn of the record's key ends when the worker's call returns, and the worker continues
//! with the key's next record, unless the turn is kept as a guard: while another thread works on
//! the record, or after a failure. Then the policy decides. For a retry, the record goes to the
//! timer with the guard of its key, and then to the pool again, in a lane of its own. For a dead
//! letter, it goes to the writer thread with its guard. A key that stops leaves its record, with
//! the guard, to the coordinator. In each case the event comes first, then the end of the attempt at
//! the assignment, then that of the guard.
//!
//! A record that the operator has paused has a flag. A worker that begins an attempt at it finds the
//! flag, and parks the record with its guard in the timer, without a time. The flags change first, then
//! the parked records without one are scheduled, so that each of them is either found there or finds
//! that its pause is over.
//!
//! With batches of one key the pool only passes records on: they enter their lane's buffer in order
//! (`key_batcher.rs`), and the batcher's guard takes the place of the turn (`key_batches.rs`). A
//! record begins its attempt when its batch is handled.
//!
//! # Why it is right
//!
//! *Order.* One thread sends the records of a partition in the order of their positions, and the
//! pool keeps that order within a lane. A record holds its lane until it is complete or dropped: it
//! is with a worker, in its [`Ack`], the timer, the dead letters or the coordinator, and never in
//! two places. A record is dropped only when its assignment is closed; the record behind it then
//! finds the assignment closed.
//!
//! *No loss.* The tracker's watermark is below all records that are admitted and incomplete, and
//! only a completion event completes a record. Records that are not admitted have higher positions.
//!
//! *No late answer counts.* An event counts only if its epoch is the current one of its partition,
//! and that is not fenced. The last commit has the progress at the fence.
//!
//! *No repetition after a clean shutdown.* All attempts that ended before the fence have put their
//! events into the mailbox before it, by the argument in `assignment.rs`, and the coordinator reads
//! the mailbox in between.
//!
//! *No overlap.* A hook is registered until its attempt has no effects any more. A revocation passes
//! its deadline only when no hook is registered, or the forced end has taken too long. Attempts of a
//! lost partition that are still ending hold back the records of its next assignment here.
//!
//! *No endless wait.* While the end of an attempt matters, it ends the coordinator's wait
//! (`mailbox.rs`), or the wait is short. A revocation has a deadline, and so has its last commit.
//!
//! *No spinning.* The coordinator does not wait only if a step is due that the next round takes: a
//! commit, or a step of a revocation. A commit that awaits an answer, was just refused, or cannot
//! succeed is not due, because the same function decides both (`PartitionState::committable_at`).
//! Only a transaction whose commit cannot begin yet is polled, with a pause
//! (`BEGIN_COMMIT_RETRY_INTERVAL`).

mod assignment;
mod attempt;
mod batch;
mod buffer;
mod builder;
mod cancellation;
mod coordinator;
mod dead_letter_queue;
mod dead_letter_writer;
mod event;
mod failure;
mod failure_policy;
mod handle;
mod handler;
mod handler_times;
mod in_flight;
mod key_batcher;
mod key_batches;
mod key_guard;
mod lane_key;
mod mailbox;
mod mixed_batches;
mod operator_pauses;
mod ordering;
mod outbox;
mod outside;
mod partition;
mod pool_lanes;
mod record_lanes;
mod revocation;
mod shared;
#[cfg(test)]
mod simulation;
mod status;
mod stopped_lanes;
mod target;
mod threads;
mod timer;
mod worker_event;

pub use self::attempt::{Ack, Attempt};
pub use self::batch::{BatchBy, BatchConfig, BatchFailure};
pub use self::builder::ConsumerBuilder;
pub use self::cancellation::{CancelHook, Cancellation};
pub use self::event::{AfterFailure, ConsumerEvent};
pub use self::failure::AttemptFailure;
pub use self::handle::{
    Consumer, ConsumerHandle, ShutdownReport, StartError, StopReason, StoppedKey,
};
pub use self::handler_times::HandlerTimes;
pub use self::ordering::{RecordClaims, UnkeyedPolicy};
pub use self::outbox::Outbox;
pub use self::status::{
    ConsumerCounts, ConsumerStatus, PartitionStatus, PauseReason, PendingRecord, WaitReason,
};
pub use self::target::{ControlError, PausedTarget, Target};

/// Pool of a consumer.
type RecordPool = keylane::HandlerPool<ordering::LaneId, in_flight::InFlight>;
