//! Joins a source to a pool of workers: records are handled in parallel across keys and in order within
//! one, and what is done is stored.
//!
//! # What it promises
//!
//! - **OrderBy.** Of one partition and key, the handler of one record has ended before that of the next
//!   begins; through retries, waits and failures.
//! - **Nothing is lost.** A record counts as done when its handler said so, and what it made of it is
//!   acknowledged by its [sink](crate::sink), when it was skipped by the policy, or when its letter to the
//!   dead letters was acknowledged. What is stored never says more.
//! - **Little is repeated.** After a clean end nothing; after a crash what was done since the last
//!   commit, whatever the order in which it was.
//! - **A stuck key holds up nobody else**, until so much is incomplete behind it as may be, and then only
//!   its partition.
//! - **A retry costs no worker.** A record that waits for its next attempt keeps its key, and is an entry
//!   in a list of times.
//! - **Ends are bounded.** What runs when a partition is wanted back is awaited, up to a deadline; what
//!   it does later does not count, and is counted.
//!
//! A record can be handled more than once, and a handler of another process that was given up can still
//! run then: [`Attempt::partition`] and [`Attempt::position`] name a record for ever, for effects that
//! must happen once.
//!
//! # Examples
//! ```
//! use std::sync::atomic::{AtomicU64, Ordering};
//! use std::sync::Arc;
//! use keylane_stream::consumer::{Attempt, Consumer, Failure};
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
//!     Ok::<_, Failure>(())
//! })?;
//! let ended = consumer.wait();
//! assert_eq!((sum.load(Ordering::Relaxed), ended.counts.handled), (5, 2));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Completion it works
//!
//! ```text
//!            ┌──────────────── owner ────────────────┐        ┌─ pool ─┐
//! source ──▶ │ buffer ─▶ tracker.take ─▶ lane        │ ─────▶ │ lanes  │ ─▶ handler
//!        ◀── │ commit ◀─ tracker.complete ◀─ mailbox │ ◀────  └────────┘      │
//!            └───────────────────────────────────────┘                       │
//!                          ▲            ▲  turn kept: timer, dead letters ◀──┘
//! ```
//!
//! One thread, the *owner*, has the source, and of each partition that is ours the tracker, what came and
//! was not taken on, and a list of what was taken on and is not done. Nobody else touches these. Round
//! and round, it
//!
//! 1. reads what workers have put into its mailbox: ends of records, failures;
//! 2. takes records on, while there is room in their partition, and sends them to the pool, in the order
//!    of their positions; holds back the partitions that have no room;
//! 3. brings partitions that are being given up a step further: *close*, await what runs or the deadline,
//!    *fence*, store the last progress, release;
//! 4. stores progress where that is due, if no commit of that partition is on its way;
//! 5. waits, for the source, the mailbox, or both.
//!
//! A worker that gets a record *begins* its attempt at the gate of the partition's assignment
//! (`assignment.rs`), which is closed when it is being given up, and then leaves the record as it is.
//! The turn of the record's key ends when the worker's call returns, and the worker goes on with the key's
//! next record, unless the turn is kept: while somebody else works on the record, or after a failure. FailureAction the
//! policy says what follows. To wait for another attempt, the record goes to the timer with the turn of its
//! key, and then to the pool again, in a lane of its own. To be buried, it goes to the thread that writes dead
//! letters, with its turn. A key that is to stop leaves its turn with the owner. In each case the report comes
//! first, then the end of the attempt at the gate, then that of the turn.
//!
//! With batches of a key the pool only hands over: a lane's records leave it in their order for the lane's line
//! (`key_batcher.rs`), and what is a lane's turn above is its turn there (`key_batches.rs`). A record begins at the
//! gate when its batch does.
//!
//! # StopReason it is right
//!
//! *OrderBy.* One thread sends the records of a partition, in the order of their positions, and the pool
//! keeps that within a lane. A record has its lane's turn until it is done or given up: it is with a worker,
//! in its [`Ack`], the timer, the dead letters or with the owner, and nowhere twice. A record is given up only
//! when its assignment is closed; who is behind it then finds the gate closed.
//!
//! *Nothing is lost.* The tracker's watermark is below all that was taken on and not completed, and only a
//! report of an end completes. What was not taken on is above what was.
//!
//! *Nothing that is given up is counted.* The epoch of a report is that of the partition that is held, and
//! not fenced, or it is not believed. What is stored last is what is done at the fence.
//!
//! *Nothing repeated after a clean end.* All who ended before the fence have reported before it, by the
//! argument in `assignment.rs`, and the owner reads the mailbox in between.
//!
//! *Nobody waits for ever.* While an attempt's end matters, the owner's wait is ended by it
//! (`mailbox.rs`), or is short. A partition that is given up has a deadline, as has its last commit.
//!
//! *Nobody looks in vain.* The owner waits for no time only if something is due that the next round does: a
//! commit that is begun then, or a step of a partition that is given up. What must be answered first, has just
//! been refused or is hopeless is not due, for the same question decides both (`Held::savable_at`). Only a
//! transaction that cannot be cut is asked for again and again, with a pause (`CUT_AGAIN_AFTER`).

mod assignment;
mod attempt;
mod batch;
mod buffer;
mod builder;
mod coordinator;
mod dead_letter_writer;
mod event;
mod failure;
mod failure_policy;
mod handle;
mod handler;
mod handler_times;
mod key_batcher;
mod key_batches;
mod key_guard;
mod lane_key;
mod mailbox;
mod mixed_batches;
mod ordering;
mod outbox;
mod partition;
mod revocation;
mod shared;
mod status;
mod threads;
mod timer;
mod worker_event;

pub use self::attempt::{Ack, Attempt};
pub use self::batch::{BatchBy, BatchConfig, FailedAt};
pub use self::builder::Builder;
pub use self::event::{AfterFailure, ConsumerEvent};
pub use self::failure::Failure;
pub use self::handle::{
    Consumer, ConsumerHandle, ShutdownReport, StartError, StopReason, StoppedKey,
};
pub use self::handler_times::HandlerTimes;
pub use self::ordering::UnkeyedPolicy;
pub use self::outbox::Outbox;
pub use self::status::{
    ConsumerCounts, ConsumerStatus, PartitionStatus, PauseReason, PendingRecord, WaitReason,
};

/// The pool of a consumer.
type Pool = keylane::HandlerPool<ordering::LaneId, attempt::InFlight>;
