//! `keylane audit`: what operators have done, the newest first.

use std::io::{self, Write};

use clap::Args;
use keylane_service::wire::{AuditEntry, AuditOutcome, Page};
use serde_json::value::RawValue;

use super::options::{AFTER_HELP, ServerArgs};
use super::refusal::{say, settle};
use super::server::{Server, block_on};
use super::words::{one_line, plain, table};
use crate::exit::Ending;

/// How many entries are asked for at once: what the server gives at most.
const MOST_ON_A_PAGE: usize = 1000;

/// Shows what operators have done, and what came of it, the newest first.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct AuditArgs {
    /// Only what was done with the token of this name.
    #[arg(long, value_name = "NAME")]
    who: Option<String>,

    /// Only this, such as job.cancel, key.skip-head or schedule.put.
    #[arg(long, value_name = "ACTION")]
    what: Option<String>,

    /// Only what was done to this job, also if it was removed.
    #[arg(long, value_name = "ID")]
    job: Option<String>,

    /// Only what was done then or later, such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,

    /// How many entries are listed at most.
    #[arg(long, value_name = "N", default_value = "50")]
    limit: usize,

    /// Print JSON, a line for each.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// Runs `keylane audit`.
pub(crate) fn run(args: &AuditArgs) -> anyhow::Result<Ending> {
    settle(args.show().map(|()| Ending::Finished { failed: 0 }))
}

impl AuditArgs {
    fn show(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.limit > 0, "--limit is one at least");
        let server = Server::new(&self.server)?;
        let (entries, more) = block_on(self.read(&server))?;
        let mut out = io::stdout().lock();
        if self.json {
            for entry in &entries {
                out.write_all(&one_line(entry.get().as_bytes()))?;
                out.write_all(b"\n")?;
            }
        } else {
            let entries = entries.iter().map(|entry| serde_json::from_str(entry.get()));
            let entries: Vec<AuditEntry> = entries.collect::<Result<_, _>>()?;
            let rows: Vec<_> = entries.iter().map(row).collect();
            out.write_all(table(&COLUMNS, &[], &rows).as_bytes())?;
        }
        out.flush()?;
        if more {
            say(format_args!("there are more; --limit shows more than {}", self.limit));
        }
        Ok(())
    }

    /// Page after page, up to the limit; and whether there are more.
    async fn read(&self, server: &Server) -> anyhow::Result<(Vec<Box<RawValue>>, bool)> {
        let mut entries = Vec::new();
        let mut cursor: Option<String> = None;
        loop {
            let limit = (self.limit - entries.len()).min(MOST_ON_A_PAGE).to_string();
            let mut query = vec![("limit", limit.as_str())];
            let given = [
                ("who", &self.who),
                ("what", &self.what),
                ("job", &self.job),
                ("since", &self.since),
                ("cursor", &cursor),
            ];
            query.extend(given.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))));
            let page: Page<Box<RawValue>> = server.read(&["v1", "audit"], &query).await?;
            entries.extend(page.items);
            cursor = page.next_cursor;
            if cursor.is_none() || entries.len() >= self.limit {
                return Ok((entries, cursor.is_some()));
            }
        }
    }
}

const COLUMNS: [&str; 7] = ["AT", "WHO", "FROM", "WHAT", "TO", "OUTCOME", "HOW AND WHY"];

/// An entry in these columns.
fn row(entry: &AuditEntry) -> Vec<String> {
    let text = |text: &Option<String>| text.as_deref().map_or_else(String::new, own);
    let outcome = match (entry.outcome, &entry.problem) {
        (AuditOutcome::Done, _) => "done".to_owned(),
        (AuditOutcome::Unchanged, _) => "unchanged".to_owned(),
        (AuditOutcome::Refused, None) => "refused".to_owned(),
        (AuditOutcome::Refused, Some(why)) => format!("refused: {}", plain(why)),
        (AuditOutcome::Damaged, _) => "damaged".to_owned(),
    };
    // A schedule that has made a job has both.
    let to = [&entry.key, &entry.schedule, &entry.job].into_iter().flatten().map(|to| own(to));
    let parameters = entry.parameters.as_ref().map(|parameters| own(&parameters.to_string()));
    let why = parameters.into_iter().chain(entry.reason.as_deref().map(own));
    vec![
        entry.at.to_string(),
        own(&entry.who),
        text(&entry.from),
        own(&entry.what),
        to.collect::<Vec<_>>().join(" "),
        outcome,
        why.collect::<Vec<_>>().join(" "),
    ]
}

fn own(text: &str) -> String {
    plain(text).into_owned()
}
