//! JSON types of version 1 of the HTTP API.
//!
//! Types inside the service do not derive `Serialize`; these do, and are converted from those by
//! `From` or by the handlers. They only grow: within `/v1` a field is never removed and never
//! changes its meaning. Requests refuse unknown fields, because a misspelt `key` would silently
//! lose the order.
//!
//! Times are RFC 3339 in UTC with milliseconds; durations are whole milliseconds, with names that
//! end in `_ms`; counters are whole numbers below 2^53.

mod audit;
mod batch;
mod event;
mod history;
mod job;
mod key;
mod kind;
mod lease;
mod lease_batch;
mod log;
mod node;
mod number;
mod object;
mod page;
mod problem;
mod schedule;
mod scheduler;
mod server;
mod subtask;
mod tenant;
mod time;
mod timeline;
mod webhook;
mod worker;

pub use audit::{AuditEntry, AuditOutcome};
pub use batch::{Batch, BatchItem, SubmitBatch};
pub use event::{Event, EventKind};
pub use history::{History, HistorySample, HistoryShare, HistoryWaits};
pub use job::{
    AfterCondition, CancelMode, CancelRequest, Counts, Job, JobPatch, JobPriority, JobState,
    OnError, OnFail, RetryOnly, RetryRequest, RetrySubtask, SubmitJob, SubmitSubtask,
};
pub(crate) use job::{DEFAULT_TENANT, Explained};
pub use key::{KeyChain, KeyHead, KeyState, KeyView};
pub use kind::{KindPatch, KindSetting, KindView, PauseKindRequest, ResetKindRequest};
pub use lease::{
    Claim, ClaimRequest, CompleteRequest, FailRequest, HeartbeatRequest, HeartbeatResponse, Lease,
};
pub use lease_batch::{
    CompleteBatch, CompleteResult, CompleteResults, HeartbeatBatch, HeartbeatResult,
    HeartbeatResults, LeaseEnd,
};
pub use log::AttemptLog;
pub(crate) use node::NodeList;
pub use node::NodeView;
pub(crate) use object::Object;
pub use page::{DamagedRow, Page};
pub use problem::{FieldError, Problem};
pub use schedule::{MissedChoice, OverlapChoice, PassedOver, Schedule, SetSchedule};
pub(crate) use scheduler::KindList;
pub use scheduler::{Because, Decision, RunningSubtask, SchedulerView};
pub use server::{Health, HealthCheck, Version};
pub use subtask::{OutcomeView, SubtaskRef, SubtaskState, SubtaskView};
pub(crate) use tenant::TenantList;
pub use tenant::TenantView;
pub use time::Timestamp;
pub use timeline::{Slice, Summary, Timeline};
pub use webhook::{WebhookState, WebhookView};
pub use worker::{WorkerLease, WorkerView};
