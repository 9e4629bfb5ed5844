//! `keylane webhooks`: lists the webhooks that are not delivered, and sends or removes one.

use std::io::{self, Write};

use clap::{Args, Subcommand, ValueEnum};
use keylane_service::wire::{Timestamp, WebhookState, WebhookView};
use reqwest::Method;

use super::error::settle;
use super::list;
use super::options::{AFTER_HELP, ServerArgs};
use super::render::{age, plain, table};
use super::server_client::{ANSWER_WITHIN, ServerClient, block_on};
use crate::exit::ExitOutcome;

/// Shows the webhooks of ended jobs that are not delivered, or sends or removes one.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct WebhooksArgs {
    #[command(subcommand)]
    action: Option<WebhookAction>,

    #[command(flatten)]
    list: ListWebhooksArgs,
}

#[derive(Debug, Subcommand)]
enum WebhookAction {
    /// Sends a webhook now. It gets all its attempts again.
    Retry(WebhookArgs),
    /// Removes a webhook without sending it.
    Remove(WebhookArgs),
}

#[derive(Debug, Args)]
struct ListWebhooksArgs {
    /// List only those in this state.
    #[arg(long, value_enum, value_name = "STATE")]
    state: Option<StateArg>,

    /// List at most this many.
    #[arg(long, value_name = "N", default_value_t = 100)]
    limit: usize,

    /// Print JSON, a line for each.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
struct WebhookArgs {
    /// Id of the webhook, as the list has it.
    #[arg(value_name = "ID")]
    id: String,

    #[command(flatten)]
    server: ServerArgs,
}

/// State of a webhook that is not delivered.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum StateArg {
    /// It is sent, or waits for its next attempt.
    Waiting,
    /// Its last attempt failed, or its receiver wants no more of it.
    Failed,
}

/// Runs `keylane webhooks`.
pub(crate) fn run(args: &WebhooksArgs) -> anyhow::Result<ExitOutcome> {
    let done = match &args.action {
        None => args.list.show(),
        Some(WebhookAction::Retry(one)) => one.tell(Method::POST, Some("retry"), "is sent now"),
        Some(WebhookAction::Remove(one)) => one.tell(Method::DELETE, None, "is removed"),
    };
    settle(done.map(|()| ExitOutcome::Finished { failed: 0 }))
}

impl ListWebhooksArgs {
    fn show(&self) -> anyhow::Result<()> {
        let server = ServerClient::new(&self.server)?;
        let state = self.state.map(|state| match state {
            StateArg::Waiting => ("state", "waiting"),
            StateArg::Failed => ("state", "failed"),
        });
        let asked: Vec<_> = state.into_iter().collect();
        list::show(&server, &["v1", "webhooks"], &asked, self.limit, self.json, |webhooks| {
            rows(webhooks, Timestamp::now())
        })
    }
}

impl WebhookArgs {
    fn tell(&self, method: Method, action: Option<&str>, done: &str) -> anyhow::Result<()> {
        let server = ServerClient::new(&self.server)?;
        let path: Vec<_> = ["v1", "webhooks", &self.id].into_iter().chain(action).collect();
        let request = server.request(method, server.url(&path)?).timeout(ANSWER_WITHIN);
        block_on(server.answer(request))?;
        Ok(writeln!(io::stdout().lock(), "{} {done}", plain(&self.id))?)
    }
}

const COLUMNS: [&str; 7] = ["WEBHOOK", "EVENT", "STATE", "ATTEMPTS", "AGE", "URL", "LAST ERROR"];

fn rows(webhooks: &[WebhookView], now: Timestamp) -> String {
    let rows: Vec<_> = webhooks.iter().map(|webhook| row(webhook, now)).collect();
    table(&COLUMNS, &[3], &rows)
}

fn row(webhook: &WebhookView, now: Timestamp) -> Vec<String> {
    let state = match webhook.state {
        WebhookState::Waiting => "waiting",
        WebhookState::Failed => "failed",
    };
    vec![
        plain(&webhook.id).into_owned(),
        plain(&webhook.event).into_owned(),
        state.to_owned(),
        format!("{} of {}", webhook.attempts, webhook.max_attempts),
        age(webhook.created_at, now),
        plain(&webhook.url).into_owned(),
        webhook.error.as_deref().map_or_else(String::new, |error| plain(error).into_owned()),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_webhook_is_a_line_and_its_texts_cannot_steer_the_terminal() {
        let webhook: WebhookView = serde_json::from_value(serde_json::json!({
            "id": "job_7.12", "job": "job_7", "kind": "mail", "event": "job.failed", "state": "waiting",
            "url": "https://example.com/hook", "attempts": 2, "max_attempts": 8,
            "created_at": "2026-01-31T12:00:00.000Z", "error": "no\u{1b}[31m",
        }))
        .unwrap();
        let now: Timestamp = serde_json::from_str("\"2026-01-31T12:01:00.000Z\"").unwrap();
        let text = rows(&[webhook], now);
        let line = text.lines().nth(1).unwrap();
        for part in ["job_7.12", "job.failed", "waiting", "2 of 8", "1 min", "no\\u{1b}[31m"] {
            assert!(line.contains(part), "{part}: {line}");
        }
    }
}
