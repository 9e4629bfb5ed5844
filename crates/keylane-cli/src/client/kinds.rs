//! `keylane kinds`: lists the kinds of jobs, and pauses, resumes or changes one.

use clap::{Args, Subcommand};
use keylane_service::wire::{KindSetting, KindView, Page};
use reqwest::Method;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use serde::Serialize;
use serde_json::value::RawValue;

use super::error::settle;
use super::list;
use super::options::{AFTER_HELP, ServerArgs};
use super::render::{plain, table};
use super::server_client::{ANSWER_WITHIN, ServerClient, block_on};
use crate::duration_arg::DurationArg;
use crate::exit::ExitOutcome;
use crate::rate_arg::RateArg;

/// Shows the kinds of jobs, or pauses, resumes or changes one. Changes last until they are reset, over restarts
/// and reloads of the configuration.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct KindsArgs {
    #[command(subcommand)]
    action: Option<KindAction>,

    #[command(flatten)]
    how: KindOptions,
}

#[derive(Debug, Args)]
struct KindOptions {
    /// Print JSON, a line for each kind.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Subcommand)]
enum KindAction {
    /// Pauses a kind: nothing of it starts until it is resumed. What runs goes on.
    Pause(PauseArgs),
    /// Resumes a paused kind.
    Resume(KindArgs),
    /// Changes limits of a kind.
    Set(Box<SetArgs>),
    /// Gives changed limits their configured values again.
    Reset(ResetArgs),
}

#[derive(Debug, Args)]
struct KindArgs {
    /// The kind.
    #[arg(value_name = "KIND")]
    kind: String,

    #[command(flatten)]
    how: KindOptions,
}

#[derive(Debug, Args)]
struct PauseArgs {
    #[command(flatten)]
    kind: KindArgs,

    /// Reason, shown to operators and to clients whose jobs wait.
    #[arg(long, value_name = "TEXT")]
    reason: Option<String>,
}

#[derive(Debug, Args)]
struct ResetArgs {
    #[command(flatten)]
    kind: KindArgs,

    /// Only this limit, such as concurrency or per_second; can be repeated. All by default.
    #[arg(long, value_name = "LIMIT", value_parser = setting)]
    only: Vec<KindSetting>,
}

#[derive(Debug, Args)]
struct SetArgs {
    #[command(flatten)]
    kind: KindArgs,

    /// Maximum number of running subtasks.
    #[arg(long, value_name = "N")]
    concurrency: Option<u32>,

    /// Maximum number of starts per unit, such as 100/s or 30/m.
    #[arg(long, value_name = "RATE")]
    rate: Option<RateArg>,

    /// Maximum number of starts at once after a pause.
    #[arg(long, value_name = "N")]
    burst: Option<u32>,

    /// Maximum number of starts with the same key per unit.
    #[arg(long, value_name = "RATE")]
    rate_per_key: Option<RateArg>,

    /// Maximum number of starts with the same key at once after a pause.
    #[arg(long, value_name = "N")]
    burst_per_key: Option<u32>,

    /// Maximum number of attempts per subtask, of jobs that are submitted from now on.
    #[arg(long, value_name = "N")]
    attempts: Option<u32>,

    /// Maximum duration of an attempt, of jobs that are submitted from now on.
    #[arg(long, value_name = "TIME")]
    timeout: Option<DurationArg>,
}

/// Body of a change.
#[derive(Debug, Default, PartialEq, Serialize)]
struct KindPatchBody {
    #[serde(skip_serializing_if = "Option::is_none")]
    concurrency: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_second: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    burst: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    per_second_per_key: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    burst_per_key: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
}

fn setting(text: &str) -> Result<KindSetting, String> {
    let name = |setting: KindSetting| serde_json::to_value(setting).ok();
    let found = KindSetting::ALL.into_iter().find(|it| name(*it).is_some_and(|name| name == text));
    let names =
        KindSetting::ALL.map(|it| name(it).map_or_else(String::new, |name| name.to_string()));
    found.ok_or_else(|| format!("the limits are {}", names.join(", ")))
}

/// Runs `keylane kinds`.
pub(crate) fn run(args: &KindsArgs) -> anyhow::Result<ExitOutcome> {
    let done = match &args.action {
        None => args.how.list(),
        Some(KindAction::Pause(pause)) => {
            let body = serde_json::json!({"reason": pause.reason});
            let body = pause.reason.as_ref().map(|_| body);
            pause.kind.tell((Method::POST, Some("pause")), body.as_ref())
        }
        Some(KindAction::Resume(one)) => one.tell((Method::POST, Some("resume")), None::<&()>),
        Some(KindAction::Reset(reset)) => {
            let body =
                (!reset.only.is_empty()).then(|| serde_json::json!({"settings": reset.only}));
            reset.kind.tell((Method::POST, Some("reset")), body.as_ref())
        }
        Some(KindAction::Set(set)) => set.tell(),
    };
    settle(done.map(|()| ExitOutcome::Finished { failed: 0 }))
}

impl SetArgs {
    fn tell(&self) -> anyhow::Result<()> {
        let body = self.body();
        anyhow::ensure!(
            body != KindPatchBody::default(),
            "nothing to set: give a limit, such as --concurrency 4; `keylane kinds set --help` lists them"
        );
        self.kind.tell((Method::PATCH, None), Some(&body))
    }

    fn body(&self) -> KindPatchBody {
        KindPatchBody {
            concurrency: self.concurrency,
            per_second: self.rate.map(RateArg::per_second),
            burst: self.burst,
            per_second_per_key: self.rate_per_key.map(RateArg::per_second),
            burst_per_key: self.burst_per_key,
            attempts: self.attempts,
            timeout_ms: self
                .timeout
                .map(|timeout| u64::try_from(timeout.0.as_millis()).unwrap_or(u64::MAX)),
        }
    }
}

impl KindArgs {
    fn tell(
        &self,
        (method, what): (Method, Option<&str>),
        body: Option<&impl Serialize>,
    ) -> anyhow::Result<()> {
        let server = ServerClient::new(&self.how.server)?;
        let words: Vec<_> = ["v1", "kinds", &self.kind].into_iter().chain(what).collect();
        let mut request = server.request(method, server.url(&words)?).timeout(ANSWER_WITHIN);
        if let Some(body) = body {
            let json = HeaderValue::from_static("application/json");
            request = request.header(CONTENT_TYPE, json).body(serde_json::to_vec(body)?);
        }
        let answer = block_on(server.answer(request))?;
        self.how.print(&[answer.read()?])
    }
}

impl KindOptions {
    fn list(&self) -> anyhow::Result<()> {
        let server = ServerClient::new(&self.server)?;
        let page: Page<Box<RawValue>> = block_on(server.read(&["v1", "kinds"], &[]))?;
        self.print(&page.items)
    }

    fn print(&self, kinds: &[Box<RawValue>]) -> anyhow::Result<()> {
        list::print(kinds, self.json, |kinds| {
            table(&COLUMNS, &[2, 3, 5], &kinds.iter().map(row).collect::<Vec<_>>())
        })
    }
}

const COLUMNS: [&str; 8] =
    ["KIND", "HANDLER", "RUNNING", "CONCURRENCY", "RATE", "ATTEMPTS", "STATE", "CHANGED"];

fn row(kind: &KindView) -> Vec<String> {
    let state = match (&kind.paused, &kind.pause_reason) {
        (false, _) => "open".to_owned(),
        (true, None) => "paused".to_owned(),
        (true, Some(reason)) => format!("paused: {}", plain(reason)),
    };
    let changed = kind.changed.iter().filter_map(|setting| serde_json::to_value(setting).ok());
    let changed: Vec<_> = changed.filter_map(|name| name.as_str().map(str::to_owned)).collect();
    let rate = |rate: Option<f64>| rate.map_or_else(String::new, |rate| format!("{rate}/s"));
    vec![
        plain(&kind.name).into_owned(),
        kind.handler.clone(),
        kind.running.to_string(),
        kind.concurrency.map_or_else(String::new, |most| most.to_string()),
        rate(kind.per_second),
        kind.attempts.to_string(),
        state,
        changed.join(", "),
    ]
}
