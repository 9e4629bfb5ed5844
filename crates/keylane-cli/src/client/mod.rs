//! Client commands of `keylane serve`: `keylane submit`, `status`, `watch`, `results`, `logs`,
//! `cancel`, `pause`, `resume`, `retry`, `keys`, `kinds`, `tenants`, `nodes`, `workers`, `schedules`, `webhooks`, `audit`, `backup` and `top`. They use only its
//! public API.
//!
//! ```text
//! options ─▶ server ─▶ submit, status, results, logs, control, keys, kinds, tenants, nodes, workers, schedules, webhooks, audit, backup, top
//! (address,  (requests,       │
//!  token)     refusals)       ▼
//!                      follow ─▶ bars
//!                      (events, else polls)  (bars, else lines)
//! ```

mod audit;
mod backup;
mod control;
mod error;
mod follow;
mod job_filter;
mod keys;
mod kinds;
mod list;
mod logs;
mod nodes;
mod options;
mod progress_bars;
mod render;
mod results;
mod schedules;
mod server_client;
mod sse;
mod status;
mod submit;
mod subtask_reader;
mod tenants;
mod tls_errors;
mod top;
mod upload;
mod watch;
mod webhooks;
mod workers;

use clap::Subcommand;

use crate::exit::ExitOutcome;

/// The subcommands that ask a running server.
#[derive(Debug, Subcommand)]
pub(crate) enum ClientCommand {
    Submit(Box<submit::SubmitArgs>),
    Status(status::StatusArgs),
    Watch(watch::WatchArgs),
    Results(results::ResultsArgs),
    Logs(logs::LogsArgs),
    Cancel(control::CancelArgs),
    Pause(control::PauseArgs),
    Resume(control::ResumeArgs),
    Retry(control::RetryArgs),
    Keys(keys::KeysArgs),
    Kinds(kinds::KindsArgs),
    Workers(workers::WorkersArgs),
    Tenants(tenants::TenantsArgs),
    Nodes(nodes::NodesArgs),
    Schedules(schedules::SchedulesArgs),
    Webhooks(webhooks::WebhooksArgs),
    Audit(audit::AuditArgs),
    Backup(backup::BackupArgs),
    Top(top::TopArgs),
}

impl ClientCommand {
    pub(crate) fn run(&self) -> anyhow::Result<ExitOutcome> {
        match self {
            ClientCommand::Submit(args) => submit::run(args),
            ClientCommand::Status(args) => status::run(args),
            ClientCommand::Watch(args) => watch::run(args),
            ClientCommand::Results(args) => results::run(args),
            ClientCommand::Logs(args) => logs::run(args),
            ClientCommand::Cancel(args) => control::cancel(args),
            ClientCommand::Pause(args) => control::pause(args),
            ClientCommand::Resume(args) => control::resume(args),
            ClientCommand::Retry(args) => control::retry(args),
            ClientCommand::Keys(args) => keys::run(args),
            ClientCommand::Kinds(args) => kinds::run(args),
            ClientCommand::Workers(args) => workers::run(args),
            ClientCommand::Tenants(args) => tenants::run(args),
            ClientCommand::Nodes(args) => nodes::run(args),
            ClientCommand::Schedules(args) => schedules::run(args),
            ClientCommand::Webhooks(args) => webhooks::run(args),
            ClientCommand::Audit(args) => audit::run(args),
            ClientCommand::Backup(args) => backup::run(args),
            ClientCommand::Top(args) => top::run(args),
        }
    }
}
