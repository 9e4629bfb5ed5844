//! `keylane workers`: lists the remote workers with what they run.

use clap::Args;
use keylane_service::wire::{Timestamp, WorkerLease, WorkerView};

use super::error::settle;
use super::list;
use super::options::{AFTER_HELP, ServerArgs};
use super::render::{age, plain, table};
use super::server_client::ServerClient;
use crate::exit::ExitOutcome;

/// Lists the remote workers that have leases, wait for some, or were heard of lately.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct WorkersArgs {
    /// List at most this many.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,

    /// Print JSON, a line for each worker, with its oldest leases.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

/// Runs `keylane workers`.
pub(crate) fn run(args: &WorkersArgs) -> anyhow::Result<ExitOutcome> {
    settle(args.list().map(|()| ExitOutcome::Finished { failed: 0 }))
}

impl WorkersArgs {
    fn list(&self) -> anyhow::Result<()> {
        let server = ServerClient::new(&self.server)?;
        list::show(&server, &["v1", "workers"], &[], self.limit, self.json, |workers| {
            rows(workers, Timestamp::now())
        })
    }
}

const COLUMNS: [&str; 7] =
    ["WORKER", "TOKEN", "KINDS", "WAITING", "LEASES", "SEEN", "OLDEST LEASE"];

fn rows(workers: &[WorkerView], now: Timestamp) -> String {
    let rows: Vec<_> = workers.iter().map(|worker| row(worker, now)).collect();
    table(&COLUMNS, &[3, 4, 5], &rows)
}

fn row(worker: &WorkerView, now: Timestamp) -> Vec<String> {
    let text = |text: &Option<String>| {
        text.as_ref().map_or_else(|| "-".to_owned(), |text| plain(text).into_owned())
    };
    let seen = worker.last_contact.map(|at| age(at, now));
    vec![
        text(&worker.name),
        text(&worker.token),
        plain(&worker.kinds.join(", ")).into_owned(),
        worker.waiting.to_string(),
        worker.leases.to_string(),
        seen.unwrap_or_else(|| "-".to_owned()),
        worker.running.first().map_or_else(String::new, |lease| oldest(lease, now)),
    ]
}

/// A lease in a few words: its subtask, its keys and its age.
fn oldest(lease: &WorkerLease, now: Timestamp) -> String {
    let keys: Vec<_> = lease.keys.iter().chain(&lease.shared_keys).map(|key| plain(key)).collect();
    let keys = if keys.is_empty() { String::new() } else { format!(" key {}", keys.join(", ")) };
    format!("{}/{}{keys}, for {}", plain(&lease.job), lease.number, age(lease.since, now))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_is_a_line_and_its_names_cannot_steer_the_terminal() {
        let worker: WorkerView = serde_json::from_value(serde_json::json!({
            "name": "w\u{1b}[31m", "token": "farm", "kinds": ["render", "resize"], "waiting": 1, "leases": 2,
            "running": [{"job": "job_7", "kind": "render", "number": 3, "keys": ["album-7"], "attempt": 1,
                "since": "2026-01-31T12:00:00.000Z", "expires_at": "2026-01-31T12:01:00.000Z"}],
            "last_contact": "2026-01-31T12:00:30.000Z",
        }))
        .unwrap();
        let unknown = WorkerView {
            name: None,
            token: None,
            running: Vec::new(),
            last_contact: None,
            ..worker.clone()
        };
        let now: Timestamp = serde_json::from_str("\"2026-01-31T12:01:00.000Z\"").unwrap();
        let text = rows(&[worker, unknown], now);
        let lines: Vec<_> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>()).collect();
        assert_eq!(lines[1][..6], ["w\\u{1b}[31m", "farm", "render,", "resize", "1", "2"]);
        assert!(text.contains("job_7/3 key album-7, for 1 min 0 s"), "{text}");
        assert_eq!(lines[2], ["-", "-", "render,", "resize", "1", "2", "-"]);
    }
}
