//! `keylane cancel`, `pause`, `resume` and `retry`: commands on jobs.

use std::io::{self, Write};

use clap::{Args, ValueEnum};
use keylane_service::wire::{CancelMode, Job, RetryOnly};
use serde_json::{Value, json};

use super::error::{RequestError, say, settle};
use super::options::{AFTER_HELP, ServerArgs};
use super::render::{one_line, plain};
use super::server_client::{ServerClient, block_on};
use super::watch::worse;
use crate::exit::ExitOutcome;

/// Which jobs, and where.
#[derive(Debug, Args)]
struct JobSelection {
    /// The jobs.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,

    /// Print each job as JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// Cancels jobs: none of their waiting subtasks starts.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct CancelArgs {
    #[command(flatten)]
    jobs: JobSelection,

    /// Also end running subtasks; by default they may finish.
    #[arg(long)]
    kill: bool,

    /// Reason, for the audit log.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

/// Pauses jobs: none of their subtasks starts until they are resumed.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct PauseArgs {
    #[command(flatten)]
    jobs: JobSelection,
}

/// Lets paused jobs go on.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct ResumeArgs {
    #[command(flatten)]
    jobs: JobSelection,
}

/// Retries failed subtasks of jobs.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct RetryArgs {
    #[command(flatten)]
    jobs: JobSelection,

    /// Which subtasks.
    #[arg(long, value_enum, default_value = "failed", value_name = "WHICH")]
    only: RetryFilter,

    /// Retries this subtask, by its number, instead. Can be repeated.
    #[arg(long = "subtask", value_name = "NUMBER", conflicts_with = "only")]
    subtasks: Vec<u32>,

    /// Gives the chosen subtask this payload first.
    #[arg(long, value_name = "JSON", requires = "subtasks", value_parser = json_text)]
    payload: Option<Value>,
}

fn json_text(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("it is not JSON: {error}"))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum RetryFilter {
    /// Subtasks that failed.
    Failed,
    /// Subtasks that failed or were cancelled.
    Unsuccessful,
}

/// Runs `keylane cancel`.
pub(crate) fn cancel(args: &CancelArgs) -> anyhow::Result<ExitOutcome> {
    let mode = if args.kill { CancelMode::Kill } else { CancelMode::Graceful };
    let mut request = json!({ "mode": mode });
    if let Some(reason) = &args.reason {
        request["reason"] = json!(reason);
    }
    args.jobs.tell("cancel", &request)
}

/// Runs `keylane pause`.
pub(crate) fn pause(args: &PauseArgs) -> anyhow::Result<ExitOutcome> {
    args.jobs.tell("pause", &json!({}))
}

/// Runs `keylane resume`.
pub(crate) fn resume(args: &ResumeArgs) -> anyhow::Result<ExitOutcome> {
    args.jobs.tell("resume", &json!({}))
}

/// Runs `keylane retry`.
pub(crate) fn retry(args: &RetryArgs) -> anyhow::Result<ExitOutcome> {
    let only = match args.only {
        RetryFilter::Failed => RetryOnly::Failed,
        RetryFilter::Unsuccessful => RetryOnly::Unsuccessful,
    };
    anyhow::ensure!(
        args.payload.is_none() || (args.subtasks.len(), args.jobs.ids.len()) == (1, 1),
        "--payload replaces the payload of one subtask: give one job and one --subtask"
    );
    if args.subtasks.is_empty() {
        return args.jobs.tell("retry", &json!({ "only": only }));
    }
    let chosen = args.subtasks.iter().map(|number| match &args.payload {
        Some(payload) => json!({ "number": number, "payload": payload }),
        None => json!({ "number": number }),
    });
    args.jobs.tell("retry", &json!({ "subtasks": chosen.collect::<Vec<_>>() }))
}

impl JobSelection {
    /// Sends the command for each job, also after one was refused.
    fn tell(&self, what: &str, body: &Value) -> anyhow::Result<ExitOutcome> {
        settle(ServerClient::new(&self.server).and_then(|server| {
            block_on(async {
                let mut ending = ExitOutcome::Finished { failed: 0 };
                for id in &self.ids {
                    match self.tell_one(&server, id, what, body).await {
                        Ok(()) => {}
                        Err(error) if is_refused(&error) => {
                            say(format_args!("{}: {error:#}", plain(id)));
                            ending = worse(ending, ExitOutcome::Refused);
                        }
                        Err(error) => return Err(error),
                    }
                }
                Ok(ending)
            })
        }))
    }

    async fn tell_one(
        &self,
        server: &ServerClient,
        id: &str,
        what: &str,
        body: &Value,
    ) -> anyhow::Result<()> {
        let answer = server.post(&["v1", "jobs", id, what], body).await?;
        let mut line = match self.json {
            true => one_line(&answer.body),
            false => {
                let job: Job = answer.read()?;
                format!("{} {}", plain(&job.id), job.state.as_str()).into_bytes()
            }
        };
        line.push(b'\n');
        Ok(io::stdout().lock().write_all(&line)?)
    }
}

fn is_refused(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(RequestError::Refused(_)))
}

#[cfg(test)]
mod tests {
    use keylane_service::wire::{CancelRequest, RetryRequest};

    use super::*;

    #[test]
    fn the_api_reads_what_is_sent() {
        let cancel = json!({ "mode": CancelMode::Kill, "reason": "old" });
        let cancel: CancelRequest = serde_json::from_value(cancel).unwrap();
        assert_eq!((cancel.mode, cancel.reason.as_deref()), (CancelMode::Kill, Some("old")));
        let retry: RetryRequest =
            serde_json::from_value(json!({ "only": RetryOnly::Unsuccessful })).unwrap();
        assert_eq!(retry.only, Some(RetryOnly::Unsuccessful));
    }
}
