//! Durable jobs with fair scheduling and order per key: the engine of `keylane serve`.

mod certificate_check;
mod duration_histogram;
mod engine;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod handle;
pub mod http;
mod ids;
mod job_definition;
mod kind;
mod kind_override;
mod kind_registry;
mod lease_runner;
mod node;
mod outgoing_http;
mod request_error;
pub mod scheduler;
// Its files are recorded below the C library.
#[cfg(all(test, target_os = "linux"))]
mod simulation;
pub mod store;
mod tenant;
mod trace_context;
pub mod wire;

pub use engine::{
    AllowedNetworks, BackupSchedule, BuildInfo, InvalidNetwork, InvalidSecret,
    InvalidTraceSettings, ManualClock, NoWebhookClient, Service, ServiceBuilder, ServiceSettings,
    StartError, TraceSettings, WebhookSecrets, WebhookSettings,
};
pub use ids::{JobId, JobNumber, Key, KeyClaim, SubtaskId, SubtaskNumber, TaskKeys};
pub use job_definition::SubmissionLimits;
pub use kind::{KeepJobs, Kind, KindExecutor, StartRate};
pub use lease_runner::{LeaseRunner, LeaseRunnerSettings};
pub use node::{InvalidNodeAddress, Node, NodeAddress};
pub use request_error::RequestError;
pub use tenant::{Tenant, Tenants};
pub use trace_context::TraceContext;
