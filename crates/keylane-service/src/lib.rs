//! Durable jobs with fair scheduling and order per key: the engine of `keylane serve`.

mod engine;
pub mod handle;
mod head;
pub mod http;
mod ids;
mod kind;
mod refused;
pub mod scheduler;
#[cfg(test)]
mod simulation;
pub mod store;
mod trace_context;
pub mod wire;

pub use engine::{BuildInfo, ManualClock, Service, ServiceBuilder, ServiceSettings, StartError};
pub use head::SubmissionLimits;
pub use ids::{JobId, JobNumber, Key, SubtaskId, SubtaskNumber};
pub use kind::{Kind, KindWork, StartRate};
pub use refused::RequestError;
pub use trace_context::TraceContext;
