//! `keylane watch`: shows the progress of jobs until all have ended, and exits by their outcomes.

use std::io::Write;
use std::time::Duration;

use clap::Args;
use futures_util::future::join_all;
use keylane_service::wire::{Job, JobState};
use tokio::sync::mpsc;

use super::error::{RequestError, settle};
use super::follow::{FollowedJob, follow};
use super::options::{AFTER_HELP, ServerArgs};
use super::progress_bars::ProgressBars;
use super::server_client::{ServerClient, block_on};
use crate::duration_arg::DurationArg;
use crate::exit::ExitOutcome;
use crate::progress::ProgressMode;
use crate::signals;

/// Default timeout for a server that does not answer: longer than a restart takes.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);

/// Maximum number of followed jobs: each has a connection.
const MAX_JOBS: usize = 100;

/// Shows the progress of jobs until all have ended.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct WatchArgs {
    /// The jobs.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,

    /// Progress on standard error: by default bars on a terminal, else occasional lines.
    #[arg(long, value_enum, default_value = "auto", value_name = "HOW")]
    progress: ProgressMode,

    /// Timeout for a server that does not answer.
    #[arg(long, value_name = "TIME", default_value = "2m")]
    reconnect_timeout: DurationArg,

    /// Print each job when it is over, as JSON.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// Runs `keylane watch`.
pub(crate) fn run(args: &WatchArgs) -> anyhow::Result<ExitOutcome> {
    anyhow::ensure!(
        args.ids.len() <= MAX_JOBS,
        "these are {} jobs, and {MAX_JOBS} can be watched at once",
        args.ids.len()
    );
    let ids: Vec<&str> = args.ids.iter().map(String::as_str).collect();
    settle(ServerClient::new(&args.server).and_then(|server| {
        let bars = ProgressBars::new(args.progress);
        let (jobs, ending) = block_on(watch(&server, &ids, &bars, args.reconnect_timeout.0))?;
        if args.json {
            print_all(&jobs)?;
        }
        Ok(ending)
    }))
}

fn print_all(jobs: &[Job]) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    for job in jobs {
        serde_json::to_writer(&mut out, job).map_err(std::io::Error::from)?;
        out.write_all(b"\n")?;
    }
    Ok(())
}

/// Follows jobs until all are over; or until a signal, which is not about them.
pub(super) async fn watch(
    server: &ServerClient,
    ids: &[&str],
    bars: &ProgressBars,
    patience: Duration,
) -> anyhow::Result<(Vec<Job>, ExitOutcome)> {
    let (tell, mut signalled) = mpsc::unbounded_channel();
    signals::each(move |signal| tell.send(signal).is_ok())?;
    let each = ids.iter().map(|id| {
        let row = bars.row(id);
        follow(server, id, patience, move |report| match report {
            FollowedJob::Changed(job) => bars.show(row, job),
            FollowedJob::Unchanged(job) => bars.show_reason(row, job),
        })
    });
    let followed = tokio::select! {
        followed = join_all(each) => followed,
        Some(signal) = signalled.recv() => {
            bars.leave();
            bars.say(go_on(ids));
            return Ok((Vec::new(), ExitOutcome::Signalled { signal }));
        }
    };
    bars.leave();
    let mut jobs = Vec::new();
    let mut ending = ExitOutcome::Finished { failed: 0 };
    for result in followed {
        let own = match result {
            Ok(job) => {
                let own = ending_of(&job);
                jobs.push(job);
                own
            }
            Err(error) => {
                let own = ending_of_error(&error);
                bars.say(format_args!("{error:#}"));
                own
            }
        };
        ending = worse(ending, own);
    }
    Ok((jobs, ending))
}

fn go_on(ids: &[&str]) -> String {
    let which = if ids.len() == 1 { "the job goes on" } else { "the jobs go on" };
    format!("{which}; `keylane watch {}` follows again", ids.join(" "))
}

pub(super) fn ending_of(job: &Job) -> ExitOutcome {
    match job.state {
        JobState::Failed => ExitOutcome::JobFailed,
        JobState::Cancelled => ExitOutcome::JobCancelled,
        _ => ExitOutcome::Finished { failed: 0 },
    }
}

fn ending_of_error(error: &anyhow::Error) -> ExitOutcome {
    match error.downcast_ref::<RequestError>() {
        Some(RequestError::Refused(_)) => ExitOutcome::Refused,
        Some(
            RequestError::Unreachable { .. }
            | RequestError::NotConnected { .. }
            | RequestError::Untrusted { .. },
        ) => ExitOutcome::Unreachable,
        None => ExitOutcome::Error,
    }
}

/// The more important of two endings: unknown outcomes first, then failures.
pub(super) fn worse(one: ExitOutcome, other: ExitOutcome) -> ExitOutcome {
    let rank = |ending: ExitOutcome| match ending {
        ExitOutcome::Error => 5,
        ExitOutcome::Unreachable => 4,
        ExitOutcome::Refused => 3,
        ExitOutcome::JobFailed => 2,
        ExitOutcome::JobCancelled => 1,
        _ => 0,
    };
    if rank(other) > rank(one) { other } else { one }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::render::tests::job;

    #[test]
    fn a_failure_counts_more_than_a_cancelled_job() {
        let ending = |states: &[&str]| {
            let jobs = states.iter().map(|state| job(&format!("{{\"state\":\"{state}\"}}")));
            jobs.map(|job| ending_of(&job)).fold(ExitOutcome::Finished { failed: 0 }, worse)
        };
        assert_eq!(ending(&["succeeded", "succeeded"]), ExitOutcome::Finished { failed: 0 });
        assert_eq!(ending(&["succeeded", "cancelled"]), ExitOutcome::JobCancelled);
        assert_eq!(ending(&["failed", "cancelled", "succeeded"]), ExitOutcome::JobFailed);
    }
}
