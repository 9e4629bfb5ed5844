//! What the tests of several crates need and no user does: the real parts that they run against.
//!
//! - [`Broker`]: an Apache Kafka broker of the test's own, that can be killed and started again.
//! - [`or_skip`]: what a test does on a machine that lacks a part.

mod broker;
mod parts;

pub use broker::Broker;
pub use parts::{Missing, or_skip};
