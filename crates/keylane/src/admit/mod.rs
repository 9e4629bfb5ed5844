//! A fair bounded gate and a fair bounded queue: whoever has waited longest is served first.
//!
//! [`Gate`] bounds how much goes on at a time; the pool's own admission is one. [`FairQueue`] hands
//! items from producers to consumers. In both, threads and async tasks wait in the same line, a slot
//! or an item is handed to the head of the line by whoever frees or brings it, and while nobody waits
//! there is no line to pay for.
//!
//! | | taken at once, or not | waits | for a time | until | as a future |
//! |---|---|---|---|---|---|
//! | a slot | `try_acquire` | `acquire` | `acquire_timeout` | `acquire_deadline` | `acquire_async` |
//! | several slots | `try_acquire_many` | `acquire_many` | … | … | `acquire_many_async` |
//! | bring an item | `try_push` | `push` | `push_timeout` | `push_deadline` | `push_async` |
//! | take an item | `try_pop` | `pop` | `pop_timeout` | `pop_deadline` | `pop_async` |
//!
//! The same with several items: `push_many`, `pop_many`, and so on.

mod admission;
mod byte_bound;
mod error;
mod fair_queue;
mod gate;
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

pub use error::{AcquireError, CapacityError, PopError, PushError, PushErrorKind, TransferError};
pub use fair_queue::FairQueue;
pub use gate::{Gate, OwnedPermit, Permit};

pub(crate) use admission::Admission;
pub(crate) use byte_bound::{ByteBound, Cost};
pub(crate) use key_bound::{DeferredWakes, KeyBound, KeyRef};
pub(crate) use semaphore::TryAcquireError;
