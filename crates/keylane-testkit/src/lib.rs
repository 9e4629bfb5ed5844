//! Test fixtures that several crates share: the external programs that their tests run against.
//!
//! - [`Broker`]: an Apache Kafka broker of one test, which the test can kill and restart.
//! - [`or_skip`]: skips a test on a machine that lacks a fixture.

mod broker;
mod parts;

pub use broker::Broker;
pub use parts::{Missing, or_skip};
