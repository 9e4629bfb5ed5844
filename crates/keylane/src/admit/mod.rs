//! Fair bounded semaphore and fair bounded queue: both serve their waiters in the order of arrival.
//!
//! [`Gate`] limits how much is in flight at a time; the pool's own admission control is built on
//! the same semaphore. [`FairQueue`] passes items from producers to consumers. Both keep one wait
//! queue for threads and async tasks. A released slot or a pushed item is assigned directly to the
//! head of the wait queue. Uncontended operations do not touch the wait queue.
//!
//! | operation | non-blocking | blocking | with a timeout | async |
//! |---|---|---|---|---|
//! | acquire a slot | `try_acquire` | `acquire` | `acquire_timeout` | `acquire_async` |
//! | acquire several slots | `try_acquire_many` | `acquire_many` | … | `acquire_many_async` |
//! | push an item | `try_push` | `push` | `push_timeout` | `push_async` |
//! | pop an item | `try_pop` | `pop` | `pop_timeout` | `pop_async` |
//!
//! The queue has batch forms of each operation: `push_many`, `pop_many`, and so on.

mod admission;
mod byte_bound;
mod error;
mod fair_queue;
mod gate;
mod kept_states;
mod key_bound;
#[cfg(all(test, loom))]
mod key_models;
#[cfg(all(test, loom))]
mod models;
mod parker;
#[cfg(all(test, loom))]
mod queue_models;
mod semaphore;
mod wait_queue;

pub use error::{AcquireError, CapacityError, PushError, QueueError};
pub use fair_queue::FairQueue;
pub use gate::{Gate, OwnedPermit, Permit};

pub(crate) use admission::Admission;
pub(crate) use byte_bound::{ByteBound, HeldBytes};
pub(crate) use key_bound::{DeferredWakes, KeyBound, KeyRef};
pub(crate) use semaphore::TryAcquireError;
