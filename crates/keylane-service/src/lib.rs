//! Durable jobs, shared fairly among workers, in order per key: what is behind `keylane serve`.

mod ids;
pub mod store;
pub mod wire;
pub mod schedule;

pub use ids::{JobId, JobNumber, Key, SubtaskId, SubtaskNumber};
