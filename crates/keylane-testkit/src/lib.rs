//! Test fixtures that several crates share.
//!
//! - [`Broker`]: an Apache Kafka broker of one test, which the test can kill and restart.
//! - [`power_loss`]: the files that a power failure could leave (Linux).
//! - [`or_skip`]: skips a test on a machine that lacks a fixture.

mod broker;
mod parts;
#[cfg(target_os = "linux")]
pub mod power_loss;

pub use broker::Broker;
pub use parts::{Missing, or_skip};
