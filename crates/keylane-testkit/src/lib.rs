//! Test support that several crates share.
//!
//! - [`Broker`]: an Apache Kafka broker of one test, which the test can kill and restart.
//! - [`PostgresServer`]: a PostgreSQL server of one test, likewise, and its standbys.
//! - [`PgBouncer`]: a connection pooler in front of it.
//! - [`Forwarder`]: connections that the test can cut, silence or lead to another server.
//! - [`order`]: one conformance suite of order, for the library's pool and the service's scheduler.
//! - [`power_loss`]: the files that a power failure could leave (Linux).
//! - [`fuzz`]: parsers and file formats on mutations of their corpora.
//! - [`Random`]: pseudorandom numbers from a seed.
//! - [`simulation`]: seeds, kept histories, and a shorter run that fails too.
//! - [`PAUSE`]: the time between two looks at a state that sends no signal.
//! - [`or_skip`]: skips a test on a machine that lacks a fixture.

mod broker;
mod forwarder;
pub mod fuzz;
mod guarded_process;
mod locked_table;
mod memory_directory;
pub mod order;
mod parts;
mod pgbouncer;
mod postgres;
#[cfg(target_os = "linux")]
pub mod power_loss;
mod random;
pub mod simulation;

pub use broker::Broker;
pub use forwarder::Forwarder;
pub use locked_table::LockedTable;
pub use parts::{Missing, or_skip};
pub use pgbouncer::PgBouncer;
pub use postgres::PostgresServer;
pub use random::Random;

/// Time between two looks at a state that sends no signal. A test that looks again at once takes a processor from what it
/// waits for.
pub const PAUSE: std::time::Duration = std::time::Duration::from_millis(5);
