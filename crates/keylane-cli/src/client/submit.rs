//! `keylane submit`: submits a job; the job is on the server's disk when its id is printed.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, IsTerminal, Read, Write};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use clap::{Args, ValueEnum};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use keylane_service::wire::{AfterCondition, Job, JobPriority, OnError, OnFail, Timestamp};
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::timeout;

use super::error::{RequestError, settle};
use super::options::{AFTER_HELP, ServerArgs};
use super::progress_bars::ProgressBars;
use super::render::one_line;
use super::server_client::{ServerClient, ServerResponse, block_on};
use super::subtask_reader::{InputOptions, KeylessPolicy, RecordConversion, SubtaskReader, json};
use super::upload;
use super::watch::{PATIENCE, watch};
use crate::duration_arg::DurationArg;
use crate::exit::ExitOutcome;
use crate::input::{InputFile, InputFormat};
use crate::progress::ProgressMode;
use crate::standard_streams::stdin;

/// Hands a job to a server, and prints its id.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP)]
pub(crate) struct SubmitArgs {
    /// Kind of the job, one of the server's kinds.
    #[arg(value_name = "KIND")]
    kind: String,

    #[command(flatten)]
    work: InputArgs,

    /// The key of the only subtask; several times, if it has several. With an
    /// input, how each record's key is found, as in keylane run: a .json.path, a
    /// column, a /regex/, a {template}.
    #[arg(long, value_name = "KEY")]
    key: Vec<String>,

    /// A key that the only subtask shares: it runs beside others that share it,
    /// never beside one that has it as --key; can be given several times. With
    /// an input, how each record's shared key is found, as for --key.
    #[arg(long, value_name = "KEY")]
    shared_key: Vec<String>,

    /// Records that are barriers: such a subtask runs after all earlier ones of
    /// the job, and before all later ones. FIELD=VALUE, or /REGEX/ for the whole
    /// record.
    #[arg(long, value_name = "CONDITION")]
    barrier: Option<String>,

    /// Each subtask replaces the last one of its key that was submitted so, if
    /// that has not started: of many updates, only the last runs. A record
    /// without a key replaces none.
    #[arg(long, requires = "key", conflicts_with_all = ["shared_key", "barrier", "subtasks"])]
    latest: bool,

    /// Number of subtasks that may run with a key at the same time, in no order; the
    /// kind's setting by default.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=256))]
    max_per_key: Option<u32>,

    /// The first line of the table has the columns' names.
    #[arg(long)]
    header: bool,

    /// Accept an input without records: the job then has no subtasks, and ends at once or
    /// after the kind's step over the results.
    #[arg(long)]
    allow_empty: bool,

    /// Handling of records without a key.
    #[arg(long, value_enum, default_value = "unordered", value_name = "POLICY")]
    no_key: KeylessPolicy,

    /// A value that means "no key"; can be given several times.
    #[arg(long, value_name = "VALUE")]
    null_value: Vec<String>,

    /// Name of the job for humans.
    #[arg(long, value_name = "NAME")]
    name: Option<String>,

    /// For finding it again; can be given several times.
    #[arg(long, value_name = "NAME=VALUE")]
    label: Vec<LabelArg>,

    /// Its claim to spare workers beside other jobs: 1 by default.
    #[arg(long, value_name = "N")]
    weight: Option<u32>,

    /// Its priority among the jobs of its tenant: normal by default.
    #[arg(long, value_enum, value_name = "CLASS")]
    priority: Option<PriorityArg>,

    /// Its tenant: that of the token, or `default`, by default.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,

    /// Minimum delay before the start.
    #[arg(long, value_name = "TIME", conflicts_with = "at")]
    delay: Option<DurationArg>,

    /// Not before this time, such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "WHEN")]
    at: Option<RunAtArg>,

    /// Time from now on after which nothing more of the job starts.
    #[arg(long, value_name = "TIME", conflicts_with = "expires_at")]
    expires: Option<DurationArg>,

    /// Time from which nothing more of the job starts, such as 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "WHEN")]
    expires_at: Option<RunAtArg>,

    /// A job that must succeed before this one starts; can be given several times. If it ends otherwise, this one is
    /// cancelled.
    #[arg(long, value_name = "JOB")]
    after: Vec<String>,

    /// Start when the jobs of --after have ended, whatever their results are.
    #[arg(long, requires = "after")]
    after_end: bool,

    /// The http or https address to which the end of the job is sent, signed; the kind's by default.
    #[arg(long, value_name = "URL")]
    webhook: Option<String>,

    /// For this long, do not accept an equal job again: one with the same kind, tenant, keys and payloads. The first one is
    /// printed instead.
    #[arg(long, value_name = "TIME")]
    unique: Option<DurationArg>,

    /// Maximum number of attempts per subtask; by default the kind's.
    #[arg(long, value_name = "N")]
    attempts: Option<u32>,

    /// Timeout of an attempt; by default the kind's.
    #[arg(long, value_name = "TIME")]
    timeout: Option<DurationArg>,

    /// Whether others go on when a subtask has failed for good.
    #[arg(long, value_enum, value_name = "WHAT")]
    on_error: Option<OnErrorArg>,

    /// Effect of a subtask's last failed attempt on its key.
    #[arg(long, value_enum, value_name = "WHAT")]
    on_fail: Option<OnFailArg>,

    /// Leave out the kind's step over the results.
    #[arg(long)]
    no_fan_in: bool,

    /// Requests with equal keys submit one job.
    #[arg(long, value_name = "KEY", conflicts_with = "id")]
    idempotency_key: Option<String>,

    /// An id of your own, by which the job is then found. Sent twice with the
    /// same id, the job is accepted once; another job under it is refused.
    #[arg(long, value_name = "NAME")]
    id: Option<String>,

    /// Follow the job to its end, or for this duration, and exit by its outcome.
    #[arg(long, value_name = "TIME", num_args = 0..=1, require_equals = true)]
    wait: Option<Option<DurationArg>>,

    /// Print the job as JSON instead of its id: as it was accepted, or with
    /// --wait as it ended.
    #[arg(long)]
    json: bool,

    /// Progress on standard error: by default bars on a terminal, else occasional lines.
    #[arg(long, value_enum, default_value = "auto", value_name = "HOW")]
    progress: ProgressMode,

    #[command(flatten)]
    server: ServerArgs,
}

/// Content of the job: one payload, or an input with many. FILE is - for standard input.
#[derive(Debug, Args)]
#[group(multiple = false)]
struct InputArgs {
    /// Payload of the only subtask, or input of the split step.
    #[arg(long, value_name = "JSON")]
    payload: Option<String>,

    /// Payload from a file; - is standard input.
    #[arg(long, value_name = "FILE")]
    payload_file: Option<PathBuf>,

    /// A subtask for each line, with the line as a text payload.
    #[arg(long, value_name = "FILE")]
    lines: Option<PathBuf>,

    /// A subtask for each line, with the line's JSON as payload.
    #[arg(long, value_name = "FILE")]
    ndjson: Option<PathBuf>,

    /// A subtask for each row of comma-separated values; the payload is an object with --header,
    /// else a list.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,

    /// A subtask for each row of tab-separated values, as with --csv.
    #[arg(long, value_name = "FILE")]
    tsv: Option<PathBuf>,

    /// A subtask for each line, in the API's format: {"key":…,"payload":…}.
    #[arg(long, value_name = "FILE")]
    subtasks: Option<PathBuf>,
}

/// Priority among the jobs of a tenant.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum PriorityArg {
    /// Before all others.
    High,
    /// After high, and before low.
    Normal,
    /// After all others.
    Low,
}

/// Whether others go on when a subtask has failed for good.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum OnErrorArg {
    /// All others are done.
    FinishAll,
    /// Subtasks that have not started are cancelled.
    FailFast,
}

/// Effect of a subtask's last failed attempt on its keys.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum OnFailArg {
    /// The next one of the key goes on.
    Continue,
    /// The key stops until an operator retries or skips its head.
    StopKey,
}

#[derive(Debug, Clone)]
struct LabelArg(String, String);

impl FromStr for LabelArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let split = text.split_once('=').filter(|(name, _)| !name.is_empty());
        let (name, value) =
            split.ok_or_else(|| format!("`{text}` is no label; write name=value"))?;
        Ok(LabelArg(name.to_owned(), value.to_owned()))
    }
}

#[derive(Debug, Clone, Copy)]
struct RunAtArg(Timestamp);

impl FromStr for RunAtArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = serde_json::from_value(serde_json::Value::String(text.to_owned()));
        read.map(RunAtArg).map_err(|_| {
            format!("`{text}` is no time; write 2026-01-31T12:00:00Z, or with +01:00 at the end")
        })
    }
}

/// The job, as it is sent: the API's `SubmitJob` without subtasks.
#[derive(Debug, Serialize)]
struct JobDefinition<'a> {
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    name: Option<&'a str>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<&'a str, &'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    weight: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    priority: Option<JobPriority>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tenant: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<&'a [String]>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    shared_keys: &'a [String],
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    latest: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    run_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    expires_ms: Option<u64>,
    #[serde(skip_serializing_if = "<[String]>::is_empty")]
    after: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    after_on: Option<AfterCondition>,
    #[serde(skip_serializing_if = "Option::is_none")]
    webhook: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    unique_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_error: Option<OnError>,
    #[serde(skip_serializing_if = "Option::is_none")]
    on_fail: Option<OnFail>,
    #[serde(skip_serializing_if = "Option::is_none")]
    max_per_key: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    attempts: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timeout_ms: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    fan_in: Option<bool>,
}

/// Runs `keylane submit`.
pub(crate) fn run(args: &SubmitArgs) -> anyhow::Result<ExitOutcome> {
    settle(ServerClient::new(&args.server).and_then(|server| block_on(submit(args, &server))))
}

async fn submit(args: &SubmitArgs, server: &ServerClient) -> anyhow::Result<ExitOutcome> {
    let answer = match args.input()? {
        Some((path, format, shape)) => args.upload(server, path, format, shape).await?,
        None => {
            let head = args.head(args.payload()?, true)?;
            args.send(server, "application/json", serde_json::to_vec(&head)?).await?
        }
    };
    let job: Job = answer.read()?;
    let Some(within) = args.wait else {
        print(args.json, &job.id, &answer.body)?;
        return Ok(ExitOutcome::Finished { failed: 0 });
    };
    if !args.json {
        // With the id the user can continue, even if this command fails later.
        print(false, &job.id, &[])?;
    }
    args.follow(server, &job, within).await
}

fn print(as_json: bool, id: &str, body: &[u8]) -> io::Result<()> {
    let mut line = if as_json { one_line(body) } else { id.as_bytes().to_vec() };
    line.push(b'\n');
    let mut out = io::stdout().lock();
    out.write_all(&line)?;
    out.flush()
}

impl SubmitArgs {
    /// Input with many subtasks, if one was given.
    fn input(&self) -> anyhow::Result<Option<(&Path, InputFormat, RecordConversion)>> {
        let work = &self.work;
        let inputs = [
            (&work.lines, InputFormat::Lines, RecordConversion::Payload),
            (&work.ndjson, InputFormat::Ndjson, RecordConversion::Payload),
            (&work.csv, InputFormat::Csv, RecordConversion::Payload),
            (&work.tsv, InputFormat::Tsv, RecordConversion::Payload),
            (&work.subtasks, InputFormat::Ndjson, RecordConversion::Whole),
        ];
        let found = inputs
            .into_iter()
            .find_map(|(path, format, shape)| path.as_deref().map(|path| (path, format, shape)));
        let is_table = found
            .is_some_and(|(_, format, _)| matches!(format, InputFormat::Csv | InputFormat::Tsv));
        ensure!(is_table || !self.header, "--header is about --csv and --tsv");
        ensure!(
            self.key.len() <= 1 || !self.latest,
            "--latest replaces by one key; give --key once, or leave out --latest"
        );
        if let Some((_, _, shape)) = found {
            ensure!(self.key.len() <= 1, "each record's key is found in one way: give --key once");
            let has_keys = !self.key.is_empty() || !self.shared_key.is_empty();
            let is_whole = shape == RecordConversion::Whole;
            ensure!(
                !(is_whole && self.barrier.is_some()),
                "the lines of --subtasks say themselves whether they are barriers; leave out --barrier"
            );
            ensure!(
                !(is_whole && has_keys),
                "the lines of --subtasks have their own keys; leave out --key and --shared-key"
            );
        }
        ensure!(
            found.is_some() || !self.allow_empty,
            "--allow-empty is about the records of an input; leave it out"
        );
        ensure!(
            found.is_some() || self.barrier.is_none(),
            "--barrier is about the records of an input; a single payload has no others beside it"
        );
        Ok(found)
    }

    fn payload(&self) -> anyhow::Result<Option<Box<RawValue>>> {
        let text = match (&self.work.payload, &self.work.payload_file) {
            (Some(text), _) => text.clone(),
            (None, Some(path)) => read_payload(path)?,
            (None, None) if !self.key.is_empty() || !self.shared_key.is_empty() => return Ok(None),
            (None, None) => bail!(
                "there is nothing to do: give --payload JSON, --key KEY, or an input with --ndjson, --csv, --tsv, \
                 --lines or --subtasks; a kind with a split step takes --payload null"
            ),
        };
        json(text).map(Some)
    }

    fn head(
        &self,
        payload: Option<Box<RawValue>>,
        keyed: bool,
    ) -> anyhow::Result<JobDefinition<'_>> {
        let millis = |span: DurationArg| u64::try_from(span.0.as_millis()).unwrap_or(u64::MAX);
        let labels: BTreeMap<_, _> = self
            .label
            .iter()
            .map(|LabelArg(name, value)| (name.as_str(), value.as_str()))
            .collect();
        ensure!(labels.len() == self.label.len(), "a label can be given once only");
        let keys = if keyed { &*self.key } else { &[] };
        Ok(JobDefinition {
            kind: &self.kind,
            name: self.name.as_deref(),
            labels,
            weight: self.weight,
            priority: self.priority.map(|priority| match priority {
                PriorityArg::High => JobPriority::High,
                PriorityArg::Normal => JobPriority::Normal,
                PriorityArg::Low => JobPriority::Low,
            }),
            tenant: self.tenant.as_deref(),
            payload,
            key: if let [key] = keys { Some(key) } else { None },
            keys: Some(keys).filter(|keys| keys.len() > 1),
            shared_keys: if keyed { &self.shared_key } else { &[] },
            latest: keyed && self.latest,
            run_at: self.at.map(|when| when.0),
            delay_ms: self.delay.map(millis),
            expires_at: self.expires_at.map(|when| when.0),
            expires_ms: self.expires.map(millis),
            after: &self.after,
            after_on: self.after_end.then_some(AfterCondition::End),
            webhook: self.webhook.as_deref(),
            unique_ms: self.unique.map(millis),
            on_error: self.on_error.map(|choice| match choice {
                OnErrorArg::FinishAll => OnError::FinishAll,
                OnErrorArg::FailFast => OnError::FailFast,
            }),
            on_fail: self.on_fail.map(|choice| match choice {
                OnFailArg::Continue => OnFail::Continue,
                OnFailArg::StopKey => OnFail::StopKey,
            }),
            attempts: self.attempts,
            max_per_key: self.max_per_key,
            timeout_ms: self.timeout.map(millis),
            fan_in: self.no_fan_in.then_some(false),
        })
    }

    async fn upload(
        &self,
        server: &ServerClient,
        path: &Path,
        format: InputFormat,
        shape: RecordConversion,
    ) -> anyhow::Result<ServerResponse> {
        let reading = InputOptions {
            format,
            header: self.header,
            shape,
            key: self.key.first().cloned(),
            shared_keys: self.shared_key.clone(),
            barrier: self.barrier.clone(),
            latest: self.latest,
            nulls: self.null_value.iter().map(|null| null.clone().into_bytes()).collect(),
            keyless: self.no_key,
            may_be_empty: self.allow_empty,
        };
        let subtasks = SubtaskReader::new(InputFile::open(Some(path))?, reading)?;
        let head = serde_json::to_vec(&self.head(None, false)?)?;
        let bar = self.upload_bar();
        let (body, broken) = upload::start(head, subtasks, bar.clone())?;
        let sent = self.send(server, "application/x-ndjson", reqwest::Body::wrap(body)).await;
        bar.finish_and_clear();
        match (sent, broken.try_recv()) {
            (_, Ok(error)) => Err(error.context("the job was not submitted")),
            (sent, Err(_)) => sent,
        }
    }

    fn upload_bar(&self) -> ProgressBar {
        let is_shown = match self.progress {
            ProgressMode::Bar => true,
            ProgressMode::Auto => io::stderr().is_terminal(),
            ProgressMode::Plain | ProgressMode::None => false,
        };
        if !is_shown {
            return ProgressBar::hidden();
        }
        let style = ProgressStyle::with_template("{spinner} {human_pos} subtasks read, {per_sec}");
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
        bar.set_style(style.expect("the template is a constant"));
        bar
    }

    async fn send(
        &self,
        server: &ServerClient,
        kind: &'static str,
        body: impl Into<reqwest::Body>,
    ) -> anyhow::Result<ServerResponse> {
        let mut request = match &self.id {
            Some(id) => server.request(Method::PUT, server.url(&["v1", "jobs", id])?),
            None => server.request(Method::POST, server.url(&["v1", "jobs"])?),
        };
        if let Some(key) = &self.idempotency_key {
            request = request.header("idempotency-key", key);
        }
        let answer = server.answer(request.header(CONTENT_TYPE, kind).body(body)).await;
        answer.map_err(|error| match error.downcast_ref::<RequestError>() {
            Some(RequestError::Unreachable { .. }) if !self.is_safe_again() => error.context(
                "whether the job was accepted is not known; with --id or --idempotency-key it can be sent again \
                 safely",
            ),
            _ => error,
        })
    }

    /// Whether repeating the command submits the job only once.
    fn is_safe_again(&self) -> bool {
        self.id.is_some() || self.idempotency_key.is_some()
    }

    /// Follows the job to its end, or until the time is over.
    async fn follow(
        &self,
        server: &ServerClient,
        job: &Job,
        within: Option<DurationArg>,
    ) -> anyhow::Result<ExitOutcome> {
        let bars = ProgressBars::new(self.progress);
        let within = within.map_or(Duration::MAX, |span| span.0);
        let ids = [job.id.as_str()];
        let Ok(watched) = timeout(within, watch(server, &ids, &bars, PATIENCE)).await else {
            bars.leave();
            bars.say(format_args!("{} is not over; `keylane watch` follows it", job.id));
            if self.json {
                let now = server.get(&["v1", "jobs", &job.id], &[]).await?;
                print(true, &job.id, &now.body)?;
            }
            return Ok(ExitOutcome::StillGoing);
        };
        let (jobs, ending) = watched?;
        if let Some(job) = jobs.first().filter(|_| self.json) {
            print(true, &job.id, &serde_json::to_vec(job)?)?;
        }
        Ok(ending)
    }
}

/// A payload out of a file, or out of standard input for `-`.
pub(super) fn read_payload(path: &Path) -> anyhow::Result<String> {
    /// More than any server takes in one piece.
    const MAX_BYTES: u64 = 64 << 20;
    let cannot = || format!("cannot read the payload in {}", path.display());
    let reader: Box<dyn Read> = match path.to_str() {
        Some("-") => Box::new(stdin()?.lock()),
        _ => Box::new(File::open(path).with_context(cannot)?),
    };
    let mut text = String::new();
    let length = reader.take(MAX_BYTES + 1).read_to_string(&mut text).with_context(cannot)?;
    ensure!(length as u64 <= MAX_BYTES, "the payload has over {MAX_BYTES} bytes");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use keylane_service::wire::SubmitJob;

    use super::*;

    #[derive(Debug, Parser)]
    struct Words {
        #[command(flatten)]
        args: SubmitArgs,
    }

    fn args(words: &[&str]) -> Result<SubmitArgs, clap::Error> {
        Words::try_parse_from([&["submit"], words].concat()).map(|words| words.args)
    }

    #[test]
    fn the_api_reads_what_is_sent() {
        let words = [
            "resize",
            "--payload",
            "{\"a\": 1e400}",
            "--key",
            "u7",
            "--key",
            "u8",
            "--name",
            "n",
            "--label",
            "a=b=c",
            "--weight",
            "3",
            "--tenant",
            "team-a",
            "--at",
            "2026-01-31T13:00:00+01:00",
            "--attempts",
            "2",
            "--timeout",
            "1.5s",
            "--on-error",
            "fail-fast",
            "--on-fail",
            "stop-key",
            "--no-fan-in",
        ];
        let args = args(&words).unwrap();
        let text =
            serde_json::to_string(&args.head(args.payload().unwrap(), true).unwrap()).unwrap();
        let job: SubmitJob = serde_json::from_str(&text).unwrap();
        assert_eq!(job.payload.unwrap().get(), "{\"a\": 1e400}");
        assert_eq!((job.key, job.keys), (None, Some(vec!["u7".into(), "u8".into()])));
        assert_eq!(job.labels["a"], "b=c");
        assert_eq!(job.tenant.as_deref(), Some("team-a"));
        assert_eq!((job.weight, job.attempts, job.timeout_ms), (Some(3), Some(2), Some(1500)));
        assert_eq!(job.run_at.unwrap().to_string(), "2026-01-31T12:00:00.000Z");
        assert_eq!(job.on_error, Some(OnError::FailFast));
        assert_eq!(job.on_fail, Some(OnFail::StopKey));
        assert_eq!((job.fan_in, job.delay_ms), (Some(false), None));
    }

    #[test]
    fn omitted_options_are_left_to_the_server() {
        let args = args(&["resize", "--key", "u7"]).unwrap();
        let text =
            serde_json::to_string(&args.head(args.payload().unwrap(), true).unwrap()).unwrap();
        assert_eq!(text, r#"{"kind":"resize","key":"u7"}"#);
    }

    #[test]
    fn words_that_contradict_each_other_are_refused() {
        let wrong: [&[&str]; 6] = [
            &["k", "--expires", "5m", "--expires-at", "2026-01-31T12:00:00Z"],
            &["k", "--id", "a", "--idempotency-key", "b"],
            &["k", "--payload", "1", "--lines", "-"],
            &["k", "--delay", "5m", "--at", "2026-01-31T12:00:00Z"],
            &["k", "--at", "tomorrow"],
            &["k", "--label", "x"],
        ];
        for words in wrong {
            assert!(args(words).is_err(), "{words:?}");
        }
        let why = |words: &[&str]| {
            let args = args(words).unwrap();
            args.input()
                .map(|_| ())
                .and_then(|()| args.payload().map(|_| ()))
                .unwrap_err()
                .to_string()
        };
        assert!(why(&["k"]).contains("nothing to do"));
        assert!(why(&["k", "--payload", "text"]).contains("not JSON"));
        assert!(why(&["k", "--lines", "-", "--header"]).contains("--header"));
        assert!(why(&["k", "--csv", "-", "--key", "1", "--key", "2"]).contains("--key once"));
        assert!(why(&["k", "--subtasks", "-", "--key", "1"]).contains("their own keys"));
    }
}
