//! `keylane audit`: commands of operators, newest first.

use clap::Args;
use keylane_service::wire::{AuditEntry, AuditOutcome};

use super::error::settle;
use super::list;
use super::options::{AFTER_HELP, ServerArgs};
use super::render::{plain, table};
use super::server_client::ServerClient;
use crate::exit::ExitOutcome;

/// Shows the commands of operators and their outcomes, newest first.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct AuditArgs {
    /// Only commands with the token of this name.
    #[arg(long, value_name = "NAME")]
    actor: Option<String>,

    /// Only this, such as job.cancel, key.skip-head or schedule.put.
    #[arg(long, value_name = "ACTION")]
    action: Option<String>,

    /// Only commands on this job, which may have been removed.
    #[arg(long, value_name = "ID")]
    job: Option<String>,

    /// Only commands at or after this time, such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,

    /// Maximum number of entries.
    #[arg(long, value_name = "N", default_value = "50")]
    limit: usize,

    /// Print JSON, a line for each.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// Runs `keylane audit`.
pub(crate) fn run(args: &AuditArgs) -> anyhow::Result<ExitOutcome> {
    settle(args.show().map(|()| ExitOutcome::Finished { failed: 0 }))
}

impl AuditArgs {
    fn show(&self) -> anyhow::Result<()> {
        anyhow::ensure!(self.limit > 0, "--limit is one at least");
        let server = ServerClient::new(&self.server)?;
        let given = [
            ("who", &self.actor),
            ("what", &self.action),
            ("job", &self.job),
            ("since", &self.since),
        ];
        let asked: Vec<_> =
            given.iter().filter_map(|(name, value)| Some((*name, value.as_deref()?))).collect();
        list::show(&server, &["v1", "audit"], &asked, self.limit, self.json, |entries| {
            table(&COLUMNS, &[], &entries.iter().map(row).collect::<Vec<_>>())
        })
    }
}

const COLUMNS: [&str; 7] = ["AT", "ACTOR", "FROM", "ACTION", "TO", "OUTCOME", "HOW AND WHY"];

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
    let to = [&entry.key, &entry.kind, &entry.schedule, &entry.job]
        .into_iter()
        .flatten()
        .map(|to| own(to));
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
