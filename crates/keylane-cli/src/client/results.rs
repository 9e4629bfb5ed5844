//! `keylane results`: results of a job's subtasks, a line of JSON each, page by page.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::os::fd::AsFd;
use std::time::Duration;

use clap::{Args, ValueEnum};
use keylane_service::wire::{Job, Page};
use reqwest::Method;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::error::{say, settle};
use super::follow::follow;
use super::options::{AFTER_HELP, ServerArgs};
use super::render::{one_line, plain};
use super::server_client::{ServerClient, block_on};
use super::watch::PATIENCE;
use crate::exit::ExitOutcome;

/// Prints the results of a job's ended subtasks, a line of JSON each.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct ResultsArgs {
    /// The job.
    #[arg(value_name = "ID")]
    id: String,

    /// In which order: by default that of the submission, with --follow that of
    /// the ends.
    #[arg(long, value_enum, value_name = "ORDER")]
    order: Option<PrintOrder>,

    /// Continue until the job has ended. With an order other than that of the ends, printing begins
    /// at the end of the job.
    #[arg(long)]
    follow: bool,

    /// Only of subtasks that have failed.
    #[arg(long)]
    failed: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// The order of results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum PrintOrder {
    /// As the subtasks were submitted.
    Submit,
    /// As they ended.
    Completion,
    /// By key, and within one as they were submitted.
    Key,
}

impl PrintOrder {
    fn as_str(self) -> &'static str {
        match self {
            PrintOrder::Submit => "submit",
            PrintOrder::Completion => "completion",
            PrintOrder::Key => "key",
        }
    }
}

/// Fields of a result by which it is filtered.
#[derive(Debug, Deserialize)]
struct ResultLine {
    outcome: String,
}

/// Results on a page: as many as the server gives.
const ON_A_PAGE: &str = "1000";

/// Runs `keylane results`.
pub(crate) fn run(args: &ResultsArgs) -> anyhow::Result<ExitOutcome> {
    settle(ServerClient::new(&args.server).and_then(|server| block_on(print(args, &server))))
}

async fn print(args: &ResultsArgs, server: &ServerClient) -> anyhow::Result<ExitOutcome> {
    let default = if args.follow { PrintOrder::Completion } else { PrintOrder::Submit };
    let order = args.order.unwrap_or(default);
    // Before the results: a job that ends meanwhile has more than they are.
    let unfinished = if args.follow { None } else { unfinished(server, &args.id).await };
    if args.follow && order != PrintOrder::Completion {
        follow(server, &args.id, PATIENCE, |_| {}).await?;
    }
    // A file instead of `Stdout`, which would search the output for line ends.
    let mut out = BufWriter::new(File::from(io::stdout().as_fd().try_clone_to_owned()?));
    let mut cursor: Option<String> = None;
    loop {
        let mut query = vec![("order", order.as_str()), ("limit", ON_A_PAGE)];
        query.extend(cursor.as_deref().map(|cursor| ("cursor", cursor)));
        let path = ["v1", "jobs", &args.id, "results"];
        let page: Page<Box<RawValue>> = server.read(&path, &query).await?;
        for item in page.items {
            if !args.failed || has_failed(&item)? {
                out.write_all(&one_line(item.get().as_bytes()))?;
                out.write_all(b"\n")?;
            }
        }
        out.flush()?;
        let Some(next) = page.next_cursor else { break };
        // The last page of an unfinished job has a cursor for later results.
        if cursor.as_ref() == Some(&next) {
            if !args.follow {
                break;
            }
            pause(server, &args.id).await?;
        }
        cursor = Some(next);
    }
    if let Some(job) = unfinished {
        say(format_args!(
            "{} is not over: {} of {} subtasks have ended; add --follow to wait for the others",
            plain(&args.id),
            job.counts.ended(),
            job.counts.total
        ));
    }
    Ok(ExitOutcome::Finished { failed: 0 })
}

fn has_failed(item: &RawValue) -> anyhow::Result<bool> {
    let outcome: ResultLine = serde_json::from_str(item.get())?;
    Ok(outcome.outcome == "failed")
}

/// Returns the job if it is not over. An error is reported by the request for its results.
async fn unfinished(server: &ServerClient, id: &str) -> Option<Job> {
    let job = server.read::<Job>(&["v1", "jobs", id], &[]).await.ok()?;
    (!job.state.is_final()).then_some(job)
}

/// Waits until something of the job has changed, or for a while.
async fn pause(server: &ServerClient, id: &str) -> anyhow::Result<()> {
    /// Minimum interval of requests: its cost is small for a server.
    const LEAST: Duration = Duration::from_millis(200);
    tokio::time::sleep(LEAST).await;
    let request = server.request(Method::GET, server.url(&["v1", "jobs", id])?);
    server.answer(request.header("prefer", "wait=5").timeout(Duration::from_secs(30))).await?;
    Ok(())
}
