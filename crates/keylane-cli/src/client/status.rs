//! `keylane status`: state of jobs, and reasons why they wait.

use std::fmt::Write as _;
use std::io::{self, Write};

use clap::Args;
use keylane_service::wire::{Job, JobPriority, KeyChain, Timestamp};

use super::error::settle;
use super::job_filter::JobFilter;
use super::list;
use super::options::{AFTER_HELP, ServerArgs};
use super::render::{self, age, because, one_line, plain, table};
use super::server_client::{ServerClient, block_on};
use crate::exit::ExitOutcome;

/// Shows the state of the named jobs, or of all jobs as a table.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct StatusArgs {
    /// Jobs; by default all, as a table.
    #[arg(value_name = "ID")]
    ids: Vec<String>,

    #[command(flatten)]
    filter: JobFilter,

    /// Maximum number of jobs.
    #[arg(long, value_name = "N", default_value = "50", conflicts_with = "ids")]
    limit: usize,

    /// Print JSON, a line for each job.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// Runs `keylane status`.
pub(crate) fn run(args: &StatusArgs) -> anyhow::Result<ExitOutcome> {
    settle(ServerClient::new(&args.server).and_then(|server| {
        match args.ids.is_empty() {
            true => list(args, &server)?,
            false => block_on(show(args, &server))?,
        }
        Ok(ExitOutcome::Finished { failed: 0 })
    }))
}

async fn show(args: &StatusArgs, server: &ServerClient) -> anyhow::Result<()> {
    for id in &args.ids {
        let answer = server.get(&["v1", "jobs", id], &[]).await?;
        let mut text = match args.json {
            true => one_line(&answer.body),
            false => details(&answer.read()?, Timestamp::now()).into_bytes(),
        };
        if args.json {
            text.push(b'\n');
        }
        io::stdout().lock().write_all(&text)?;
    }
    Ok(())
}

/// All that people want to know of a job.
fn details(job: &Job, now: Timestamp) -> String {
    let mut text = format!("{}\n", render::line(job));
    let ago = |at: Timestamp| format!("{at}, {} ago", age(at, now));
    let labels = job.labels.iter().map(|(name, value)| format!("{name}={value}"));
    let labels = labels.collect::<Vec<_>>().join(" ");
    let facts = [
        ("kind", Some(job.kind.clone())),
        ("name", job.name.clone()),
        ("labels", Some(labels).filter(|labels| !labels.is_empty())),
        ("weight", Some(job.weight).filter(|weight| *weight != 1).map(|weight| weight.to_string())),
        (
            "priority",
            Some(job.priority)
                .filter(|priority| *priority != JobPriority::Normal)
                .map(|priority| priority.as_str().to_owned()),
        ),
        ("accepted", Some(ago(job.created_at))),
        ("not before", job.run_at.filter(|at| *at > now).map(|at| at.to_string())),
        (if job.expired { "expired" } else { "expires" }, job.expires_at.map(|at| at.to_string())),
        ("after", Some(job.after.join(", ")).filter(|after| !after.is_empty())),
        ("webhook", job.webhook.clone()),
        ("cancelled", job.after_failed.as_ref().map(|id| format!("because {id} did not succeed"))),
        ("began", job.started_at.map(ago)),
        ("ended", job.ended_at.map(ago)),
        ("longest", job.longest_key.as_ref().map(|chain| chain_text(chain, job.useful_workers))),
        ("trace", job.traceparent.clone()),
        ("result", job.result.as_ref().map(|result| result.get().to_owned())),
    ];
    for (what, value) in facts {
        if let Some(value) = value {
            let _ = writeln!(text, "  {what:<10}  {}", plain(&value));
        }
    }
    for (index, reason) in job.waiting_because.iter().enumerate() {
        let what = if index == 0 { "waits" } else { "" };
        let _ = writeln!(text, "  {what:<10}  {}", because(reason));
    }
    text
}

fn chain_text(chain: &KeyChain, useful_workers: Option<u64>) -> String {
    let KeyChain { key, subtasks } = chain;
    let useful = useful_workers.map_or_else(String::new, |workers| {
        format!("; more than {workers} workers do not end the job earlier")
    });
    format!("key {key}: {subtasks} subtasks one after another{useful}")
}

fn list(args: &StatusArgs, server: &ServerClient) -> anyhow::Result<()> {
    let asked = args.filter.parameters();
    let asked: Vec<_> = asked.iter().map(|(name, value)| (*name, value.as_str())).collect();
    list::show(server, &["v1", "jobs"], &asked, args.limit, args.json, |jobs: &[Job]| {
        overview(jobs, Timestamp::now())
    })
}

/// The columns in which jobs are listed.
pub(super) const COLUMNS: [&str; 8] =
    ["ID", "STATE", "DONE", "TOTAL", "FAILED", "KIND", "NAME", "AGE"];

/// A job in these columns.
pub(super) fn row(job: &Job, now: Timestamp) -> Vec<String> {
    vec![
        plain(&job.id).into_owned(),
        job.state.as_str().to_owned(),
        format!("{}%", (job.progress.clamp(0.0, 1.0) * 100.0) as u64),
        job.counts.total.to_string(),
        job.counts.failed.to_string(),
        plain(&job.kind).into_owned(),
        job.name.as_deref().map_or_else(|| "-".to_owned(), |name| plain(name).into_owned()),
        age(job.created_at, now),
    ]
}

pub(super) fn overview(jobs: &[Job], now: Timestamp) -> String {
    let rows: Vec<_> = jobs.iter().map(|job| row(job, now)).collect();
    table(&COLUMNS, &[2, 3, 4], &rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::render::tests::job;

    const NOW: Timestamp = Timestamp(1_769_860_800_000 + 90_000);

    #[test]
    fn a_job_is_shown_with_why_it_waits() {
        let job = job(r#"{"name": "nightly\u001b[2J", "labels": {"team": "a"},
                "longest_key": {"key": "u7", "subtasks": 275}, "useful_workers": 2,
                "traceparent": "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01", "waiting_because": [
                {"reason": "key_order", "text": "behind others of `u7`", "count": 500},
                {"reason": "no_slot", "text": "all slots are busy", "count": 40}]}"#);
        let text = details(&job, NOW);
        let expected = "\
job_0199aaaaaaaa7000800000000000000a running: 450 of 1000 done, 3 failed; 10 running, 540 waiting
  kind        resize
  name        nightly\\u{1b}[2J
  labels      team=a
  accepted    2026-01-31T12:00:00.000Z, 1 min 30 s ago
  longest     key u7: 275 subtasks one after another; more than 2 workers do not end the job earlier
  trace       00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01
  waits       500 × behind others of `u7`
              40 × all slots are busy
";
        assert_eq!(text, expected);
    }

    #[test]
    fn jobs_are_a_table() {
        let jobs = [job("{}"), job(r#"{"state": "succeeded", "name": "n", "progress": 1}"#)];
        let expected = "\
ID                                    STATE      DONE  TOTAL  FAILED  KIND    NAME  AGE
job_0199aaaaaaaa7000800000000000000a  running     45%   1000       3  resize  -     1 min 30 s
job_0199aaaaaaaa7000800000000000000a  succeeded  100%   1000       3  resize  n     1 min 30 s
";
        assert_eq!(overview(&jobs, NOW), expected);
    }
}
