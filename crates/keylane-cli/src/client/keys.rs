//! `keylane keys`: lists waiting keys, oldest head first, and controls single keys.

use clap::{Args, Subcommand, ValueEnum};
use keylane_service::wire::{KeyState, KeyView, Page};
use reqwest::Method;
use serde_json::value::RawValue;

use super::error::settle;
use super::list;
use super::options::{AFTER_HELP, ServerArgs};
use super::render::{plain, table};
use super::server_client::{ServerClient, block_on};
use crate::exit::ExitOutcome;
use crate::progress::clock;

/// Shows which keys wait, or pauses, resumes, retries or skips at one.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct KeysArgs {
    #[command(subcommand)]
    action: Option<KeyAction>,

    #[command(flatten)]
    list: ListKeysArgs,
}

#[derive(Debug, Args)]
struct ListKeysArgs {
    /// Which keys come first.
    #[arg(long, value_enum, default_value = "head-age", value_name = "ORDER")]
    sort: KeySortOrder,

    /// Maximum number of keys.
    #[arg(long, value_name = "N", default_value = "20")]
    limit: usize,

    #[command(flatten)]
    how: ServerOptions,
}

#[derive(Debug, Args)]
struct ServerOptions {
    /// Print JSON, a line for each key.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum KeySortOrder {
    /// Oldest head first.
    HeadAge,
    /// Most unfinished subtasks first.
    Length,
}

#[derive(Debug, Subcommand)]
enum KeyAction {
    /// Pauses a key: none of its subtasks starts until it is resumed.
    Pause(KeyArgs),
    /// A paused key goes on.
    Resume(KeyArgs),
    /// The key's head, which has failed or waits for its next attempt, is tried now.
    RetryHead(KeyArgs),
    /// The key's head is given up, and the key goes on behind it.
    SkipHead(KeyArgs),
}

#[derive(Debug, Args)]
struct KeyArgs {
    /// The key.
    #[arg(value_name = "KEY")]
    key: String,

    #[command(flatten)]
    how: ServerOptions,
}

/// Runs `keylane keys`.
pub(crate) fn run(args: &KeysArgs) -> anyhow::Result<ExitOutcome> {
    let done = match &args.action {
        None => args.list.show(),
        Some(KeyAction::Pause(one)) => one.tell("pause"),
        Some(KeyAction::Resume(one)) => one.tell("resume"),
        Some(KeyAction::RetryHead(one)) => one.tell("retry-head"),
        Some(KeyAction::SkipHead(one)) => one.tell("skip-head"),
    };
    settle(done.map(|()| ExitOutcome::Finished { failed: 0 }))
}

impl ListKeysArgs {
    fn show(&self) -> anyhow::Result<()> {
        let sort = if self.sort == KeySortOrder::HeadAge { "head_age" } else { "length" };
        let limit = self.limit.to_string();
        let server = ServerClient::new(&self.how.server)?;
        let query = [("sort", sort), ("limit", &limit)];
        let page: Page<Box<RawValue>> = block_on(server.read(&["v1", "keys"], &query))?;
        self.how.print(&page.items)
    }
}

impl KeyArgs {
    fn tell(&self, what: &str) -> anyhow::Result<()> {
        let server = ServerClient::new(&self.how.server)?;
        let url = server.url(&["v1", "keys", &self.key, what])?;
        let answer = block_on(server.answer(server.request(Method::POST, url)))?;
        self.how.print(&[answer.read()?])
    }
}

impl ServerOptions {
    fn print(&self, keys: &[Box<RawValue>]) -> anyhow::Result<()> {
        list::print(keys, self.json, |keys| {
            table(&COLUMNS, &[2, 3], &keys.iter().map(row).collect::<Vec<_>>())
        })
    }
}

/// The columns in which keys are listed.
pub(super) const COLUMNS: [&str; 6] =
    ["KEY", "STATE", "UNFINISHED", "HEAD SINCE", "HEAD", "ITS STATE"];

/// A key in these columns.
pub(super) fn row(key: &KeyView) -> Vec<String> {
    let state = match key.state {
        KeyState::Open => "open",
        KeyState::Paused => "paused",
        KeyState::Stopped => "stopped",
    };
    let head = key.head.as_ref();
    let state_of_head = |head: &keylane_service::wire::KeyHead| {
        let word = serde_json::to_value(head.state).ok();
        let word =
            word.as_ref().and_then(|word| word.as_str()).unwrap_or_default().replace('_', " ");
        if head.attempts > 1 { format!("{word}, attempt {}", head.attempts) } else { word }
    };
    vec![
        plain(&key.key).into_owned(),
        state.to_owned(),
        key.length.to_string(),
        head.map_or_else(String::new, |head| clock(head.age_ms / 1000)),
        head.map_or_else(String::new, |head| format!("{}/{}", plain(&head.job), head.number)),
        head.map_or_else(String::new, state_of_head),
    ]
}
