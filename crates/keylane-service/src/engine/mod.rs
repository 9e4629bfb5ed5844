//! The service without its network: accepts jobs, orders and runs their subtasks, writes their
//! outcomes, and answers queries.
//!
//! ```text
//! submission ──▶ store ──▶ scheduler ──▶ dispatch ──▶ attempt ──▶ store ──▶ clients
//!                (on the   (next         (slot, key,  (handler,   (on the   (counts,
//!                disk)     subtask)      rate free)   lease)      disk)     events)
//! ```
//!
//! `core.rs` lists the parts. `engine_state.rs` has the shared state and its protocol; changes of the
//! state that need no other part are methods of [`EngineState`](engine_state::EngineState).
//!
//! | | files |
//! |---|---|
//! | state | `engine_state`, `outcomes`, `activation`, `awaited_jobs`, `dependencies`, `expiry`, `held_jobs`, `hold_transitions`, `work_claims`, `worker_table`, `order_check`, `step_numbers`, `failures`, `fences`, `versions`, `pace` |
//! | submission | `submission`, `job_submission`, `batch`, `client_id`, `idempotency`, `name_locks`, `capacity`, `unfinished_counts`, `submit_reply`, `after_jobs`, `split_result`, `unique_jobs` |
//! | dispatch | `dispatch`, `attempt`, `attempt_ends`, `leases`, `lease_reports`, `former_leases`, `remote_workers`, `logs`, `random` |
//! | webhooks | `webhooks/` |
//! | persistence | `persistence`, `rejected_change`, `store_status`, `recovery`, `retention`, `backups/`, `job_end_times`, `ticker` |
//! | control | `control`, `job_key_control`, `kind_control`, `job_retry`, `retry_plan`, `remove_damaged_job`, `audit/`, `schedules/` |
//! | query | `query/`, `metrics`, `durations`, `events/`, `timeline` |
//! | composition | `core`, `composition`, `service`, `embedded`, `engine_dependencies`, `executor`, `clock`, `wall_clock`, `timer`, `settings` |

mod activation;
mod after_jobs;
mod attempt;
mod attempt_ends;
mod attempt_signals;
mod audit;
mod awaited_jobs;
mod backups;
mod batch;
mod capacity;
mod client_id;
mod clock;
mod composition;
mod control;
mod core;
mod cut_text;
mod dependencies;
mod dispatch;
mod durations;
mod embedded;
mod engine_dependencies;
mod engine_state;
pub(crate) mod events;
mod executor;
mod expiry;
mod failures;
mod fences;
mod former_leases;
mod held_jobs;
mod history;
mod hold_transitions;
mod idempotency;
mod inbox;
mod job_end_times;
mod job_key_control;
mod job_retry;
mod job_submission;
mod kind_control;
mod lease_reports;
mod leases;
mod logs;
mod metrics;
mod name_locks;
mod node_control;
mod order_check;
mod outcomes;
mod pace;
mod persistence;
mod query;
mod random;
mod recovery;
mod rejected_change;
mod remote_workers;
mod remove_damaged_job;
mod retention;
mod retry_plan;
mod scheduler_job;
mod schedules;
mod service;
mod settings;
mod split_result;
mod start_error;
mod step_numbers;
mod store_status;
mod submission;
mod submit_reply;
mod ticker;
mod timeline;
mod timer;
mod traces;
mod unfinished_counts;
mod unique_jobs;
mod versions;
mod wall_clock;
mod webhooks;
mod work_claims;
mod worker_table;

pub(crate) use self::core::Core;
#[cfg(any(test, fuzzing))]
pub use self::schedules::fuzz_cron;
#[cfg(any(test, fuzzing))]
pub use self::split_result::fuzz_split_result;
pub(crate) use audit::{ActionAnswer, AuditLog, AuditedRequest, OperatorAction};
pub use backups::BackupSchedule;
pub(crate) use batch::key_in_batch;
pub(crate) use client_id::check as check_client_id;
#[cfg(test)]
pub(crate) use clock::SteadyClock;
pub(crate) use control::KeyCommand;
#[cfg(test)]
pub(crate) use engine_dependencies::Outside;
pub(crate) use events::{
    EventFollower, FeedReader, FollowedItem, FollowerText, JobFeed, event, sse_text,
};
pub(crate) use executor::Executor;
#[cfg(test)]
pub(crate) use executor::{Dispatcher, JoinDispatcher, Threads};
pub(crate) use idempotency::{EarlierAction, KeyedClaim, KeyedRequest};
pub(crate) use job_submission::JobSubmission;
pub(crate) use kind_control::{KindCommand, MAX_PAUSE_REASON, MAX_RATE};
pub(crate) use lease_reports::{LeaseOutcome, LeaseReport};
pub(crate) use query::{JobQuery, PinnedResults, ResultOrder};
pub(crate) use remote_workers::{MAX_CLAIM_WAIT, MAX_LEASES, WorkRequest, WorkerToken};
pub(crate) use retry_plan::RetrySelection;
pub use service::{Service, ServiceBuilder};
pub use settings::{BuildInfo, ServiceSettings};
pub use start_error::StartError;
pub(crate) use submission::ExtraWrites;
pub(crate) use submit_reply::{SubmitResult, SubmitTicket};
pub use traces::{InvalidTraceSettings, TraceSettings};
pub use wall_clock::ManualClock;
#[cfg(test)]
pub(crate) use wall_clock::WallClock;
pub use webhooks::{
    AllowedNetworks, InvalidNetwork, InvalidSecret, NoWebhookClient, WebhookSecrets,
    WebhookSettings,
};
pub(crate) use webhooks::{MAX_URL_BYTES, check_address as check_webhook};
#[cfg(test)]
pub(crate) use webhooks::{SendFailure, WebhookRequest, WebhookSender};
