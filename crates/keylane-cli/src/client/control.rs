//! `keylane cancel`, `pause`, `resume` and `retry`: commands on jobs.

use std::io::{self, Write};

use anyhow::ensure;
use clap::{Args, ValueEnum};
use keylane_service::wire::{CancelMode, Job, JobState, RetryOnly, Timestamp};
use serde::Serialize;
use serde_json::json;
use serde_json::value::RawValue;

use super::error::{RequestError, say, settle};
use super::job_filter::JobFilter;
use super::list;
use super::options::{AFTER_HELP, ServerArgs};
use super::render::{one_line, plain};
use super::server_client::{ServerClient, block_on};
use super::status;
use super::subtask_reader::json;
use super::watch::worse;
use crate::exit::ExitOutcome;

/// Which jobs, and where.
#[derive(Debug, Args)]
struct JobSelection {
    /// Jobs to control, if no filter is given.
    #[arg(value_name = "ID")]
    ids: Vec<String>,

    #[command(flatten)]
    filter: JobFilter,

    /// Control the jobs that the filter finds, which are otherwise only listed.
    #[arg(long, conflicts_with = "ids")]
    yes: bool,

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

    /// Retries only the subtask with this number. Can be repeated.
    #[arg(long = "subtask", value_name = "NUMBER", conflicts_with = "only")]
    subtasks: Vec<u32>,

    /// Payload that replaces the present one of the subtask, for good.
    #[arg(long, value_name = "JSON", requires = "subtasks")]
    payload: Option<String>,
}

/// Request that retries chosen subtasks. The payload is text, which keeps every digit of its numbers.
#[derive(Debug, Serialize)]
struct ChosenSubtasks<'a> {
    subtasks: Vec<ChosenSubtask<'a>>,
}

#[derive(Debug, Serialize)]
struct ChosenSubtask<'a> {
    number: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<&'a RawValue>,
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
    let states = "scheduled,queued,running,paused";
    args.jobs.tell(&JobCommand { what: "cancel", request: &request, states })
}

/// Runs `keylane pause`.
pub(crate) fn pause(args: &PauseArgs) -> anyhow::Result<ExitOutcome> {
    let states = "scheduled,queued,running";
    args.jobs.tell(&JobCommand { what: "pause", request: &json!({}), states })
}

/// Runs `keylane resume`.
pub(crate) fn resume(args: &ResumeArgs) -> anyhow::Result<ExitOutcome> {
    args.jobs.tell(&JobCommand { what: "resume", request: &json!({}), states: "paused" })
}

/// Runs `keylane retry`.
pub(crate) fn retry(args: &RetryArgs) -> anyhow::Result<ExitOutcome> {
    let (only, states) = match args.only {
        RetryFilter::Failed => (RetryOnly::Failed, "failed"),
        RetryFilter::Unsuccessful => (RetryOnly::Unsuccessful, "failed,cancelled"),
    };
    if args.subtasks.is_empty() {
        let request = json!({ "only": only });
        return args.jobs.tell(&JobCommand { what: "retry", request: &request, states });
    }
    ensure!(!args.jobs.ids.is_empty(), "--subtask names subtasks of a job: give its id");
    ensure!(
        args.payload.is_none() || (args.subtasks.len(), args.jobs.ids.len()) == (1, 1),
        "--payload replaces the payload of one subtask: give one job and one --subtask"
    );
    let payload = args.payload.clone().map(json).transpose()?;
    let chosen = |number: &u32| ChosenSubtask { number: *number, payload: payload.as_deref() };
    let request = ChosenSubtasks { subtasks: args.subtasks.iter().map(chosen).collect() };
    args.jobs.tell(&JobCommand { what: "retry", request: &request, states })
}

/// Command on jobs.
struct JobCommand<'a, R> {
    /// Last part of its path.
    what: &'static str,
    request: &'a R,
    /// States in which a filter finds jobs if it names none.
    states: &'static str,
}

impl JobSelection {
    /// Sends the command for each job, also after one was refused; or lists the jobs that a filter finds.
    fn tell(&self, command: &JobCommand<'_, impl Serialize>) -> anyhow::Result<ExitOutcome> {
        ensure!(
            !self.ids.is_empty() || !self.filter.is_empty(),
            "there are no jobs to {}: give their ids, or a filter such as --kind or --label",
            command.what
        );
        settle(ServerClient::new(&self.server).and_then(|server| {
            block_on(async {
                if !self.ids.is_empty() {
                    return self.tell_all(&server, &self.ids, command).await;
                }
                let found = self.find(&server, command).await?;
                if !self.yes || found.is_empty() {
                    return self.preview(&found, command);
                }
                let jobs = found.iter().map(|job| serde_json::from_str::<Job>(job.get()));
                let ids = jobs.map(|job| Ok(job?.id)).collect::<anyhow::Result<Vec<_>>>()?;
                self.tell_all(&server, &ids, command).await
            })
        }))
    }

    async fn tell_all(
        &self,
        server: &ServerClient,
        ids: &[String],
        command: &JobCommand<'_, impl Serialize>,
    ) -> anyhow::Result<ExitOutcome> {
        let mut ending = ExitOutcome::Finished { failed: 0 };
        for id in ids {
            match self.tell_one(server, id, command).await {
                Ok(()) => {}
                Err(error) if is_refused(&error) => {
                    say(format_args!("{}: {error:#}", plain(id)));
                    ending = worse(ending, ExitOutcome::Refused);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(ending)
    }

    /// Returns all jobs that the filter finds now. Later ones are not among them.
    async fn find(
        &self,
        server: &ServerClient,
        command: &JobCommand<'_, impl Serialize>,
    ) -> anyhow::Result<Vec<Box<RawValue>>> {
        let asked = self.filter.parameters_in(command.states);
        let asked: Vec<_> = asked.iter().map(|(name, value)| (*name, value.as_str())).collect();
        let found = list::read(server, &["v1", "jobs"], &asked, usize::MAX).await?;
        for row in &found.damaged {
            say(format_args!("left out: {}", plain(&row.problem)));
        }
        Ok(found.items)
    }

    fn preview(
        &self,
        found: &[Box<RawValue>],
        command: &JobCommand<'_, impl Serialize>,
    ) -> anyhow::Result<ExitOutcome> {
        if !found.is_empty() {
            list::print(found, self.json, |jobs: &[Job]| status::overview(jobs, Timestamp::now()))?;
        }
        let what = command.what;
        say(match found.len() {
            0 => "no job matches; nothing was done".to_owned(),
            1 => format!("1 job matches; nothing was done: add --yes to {what} it"),
            count => format!("{count} jobs match; nothing was done: add --yes to {what} them"),
        });
        Ok(ExitOutcome::Finished { failed: 0 })
    }

    async fn tell_one(
        &self,
        server: &ServerClient,
        id: &str,
        command: &JobCommand<'_, impl Serialize>,
    ) -> anyhow::Result<()> {
        let path = ["v1", "jobs", id, command.what];
        let answer = server.post(&path, command.request).await?;
        if command.what == "cancel"
            && let Ok(job) = answer.read::<Job>()
            && matches!(job.state, JobState::Succeeded | JobState::Failed)
        {
            say(format_args!(
                "{} had already ended as {}; nothing was cancelled",
                plain(&job.id),
                job.state.as_str()
            ));
        }
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
