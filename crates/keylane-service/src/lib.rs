//! Durable jobs with fair scheduling and order per key: the engine of `keylane serve`.

mod engine;
pub mod handle;
mod head;
pub mod http;
mod ids;
mod kind;
mod refused;
pub mod schedule;
#[cfg(test)]
mod simulation;
pub mod store;
mod trace_context;
pub mod wire;

pub use engine::{ManualClock, Service, ServiceBuilder, Settings, StartError};
pub use head::Bounds;
pub use ids::{JobId, JobNumber, Key, SubtaskId, SubtaskNumber};
pub use kind::{Kind, Rate, Work};
pub use refused::Refused;
pub use trace_context::TraceContext;
