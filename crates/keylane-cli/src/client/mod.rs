//! Client commands of `keylane serve`: `keylane submit`, `status`, `watch`, `results`, `logs`,
//! `cancel`, `pause`, `resume`, `retry`, `keys`, `schedules`, `audit` and `top`. They use only its
//! public API.
//!
//! ```text
//! options ─▶ server ─▶ submit, status, results, logs, steer, keys, schedules, audit, top
//! (address,  (requests,       │
//!  token)     refusals)       ▼
//!                      follow ─▶ board
//!                      (events, else polls)  (bars, else lines)
//! ```

mod audit;
mod board;
mod follow;
mod keys;
mod list;
mod logs;
mod options;
mod refusal;
mod results;
mod schedules;
mod server;
mod sse;
mod status;
mod steer;
mod submit;
mod subtasks;
mod tls;
mod top;
mod upload;
mod watch;
mod words;

use clap::Subcommand;

use crate::exit::Ending;

/// The subcommands that ask a running server.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Submit(Box<submit::SubmitArgs>),
    Status(status::StatusArgs),
    Watch(watch::WatchArgs),
    Results(results::ResultsArgs),
    Logs(logs::LogsArgs),
    Cancel(steer::CancelArgs),
    Pause(steer::PauseArgs),
    Resume(steer::ResumeArgs),
    Retry(steer::RetryArgs),
    Keys(keys::KeysArgs),
    Schedules(schedules::SchedulesArgs),
    Audit(audit::AuditArgs),
    Top(top::TopArgs),
}

impl Command {
    pub(crate) fn run(&self) -> anyhow::Result<Ending> {
        match self {
            Command::Submit(args) => submit::run(args),
            Command::Status(args) => status::run(args),
            Command::Watch(args) => watch::run(args),
            Command::Results(args) => results::run(args),
            Command::Logs(args) => logs::run(args),
            Command::Cancel(args) => steer::cancel(args),
            Command::Pause(args) => steer::pause(args),
            Command::Resume(args) => steer::resume(args),
            Command::Retry(args) => steer::retry(args),
            Command::Keys(args) => keys::run(args),
            Command::Schedules(args) => schedules::run(args),
            Command::Audit(args) => audit::run(args),
            Command::Top(args) => top::run(args),
        }
    }
}
