//! `keylane schedules`: lists and controls recurring jobs.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::ensure;
use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use keylane_service::wire::{Job, MissedChoice, OverlapChoice, Schedule};
use reqwest::Method;
use reqwest::header::CONTENT_TYPE;
use serde::Serialize;
use serde_json::value::RawValue;

use super::error::settle;
use super::list;
use super::options::{AFTER_HELP, ServerArgs};
use super::render::{one_line, plain, table};
use super::server_client::{ANSWER_WITHIN, ServerClient, ServerResponse, block_on};
use super::submit::read_payload;
use super::subtask_reader::json;
use crate::exit::ExitOutcome;

/// Shows the jobs that are made again and again, or sets, removes, pauses, resumes or runs one.
#[derive(Debug, Args)]
#[command(after_long_help = AFTER_HELP, args_conflicts_with_subcommands = true)]
pub(crate) struct SchedulesArgs {
    #[command(subcommand)]
    action: Option<ScheduleAction>,

    #[command(flatten)]
    list: ListSchedulesArgs,
}

#[derive(Debug, Subcommand)]
enum ScheduleAction {
    /// Lists all schedules, by name; the default.
    List(ListSchedulesArgs),
    /// When one makes its jobs, its last one, and why a time made none.
    Show(ScheduleArgs),
    /// Makes a schedule, or changes all of one.
    Set(Box<SetScheduleArgs>),
    /// Removes one; the jobs that it made stay.
    Remove(RemoveScheduleArgs),
    /// Makes no jobs until it is resumed.
    Pause(ScheduleArgs),
    /// Makes jobs again, from its next time on.
    Resume(ScheduleArgs),
    /// Makes its job now, also while it is paused, and prints the job's id.
    Run(RunScheduleArgs),
}

#[derive(Debug, Args)]
struct ListSchedulesArgs {
    /// Maximum number of schedules.
    #[arg(long, value_name = "N", default_value = "50")]
    limit: usize,

    #[command(flatten)]
    how: ServerOptions,
}

#[derive(Debug, Args)]
struct ServerOptions {
    /// Print JSON, a line for each.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
struct ScheduleArgs {
    /// The schedule.
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    how: ServerOptions,
}

#[derive(Debug, Args)]
struct RemoveScheduleArgs {
    /// The schedule.
    #[arg(value_name = "NAME")]
    name: String,

    #[command(flatten)]
    server: ServerArgs,
}

#[derive(Debug, Args)]
struct RunScheduleArgs {
    #[command(flatten)]
    one: ScheduleArgs,

    /// Requests with equal keys make one job.
    #[arg(long, value_name = "KEY")]
    idempotency_key: Option<String>,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("work").required(true))]
struct SetScheduleArgs {
    #[command(flatten)]
    one: ScheduleArgs,

    /// When: minute, hour, day of the month, month, day of the week, as in
    /// "0 9 * * MON-FRI"; or @hourly, @daily, @weekly, @monthly, @yearly.
    #[arg(long, value_name = "PATTERN")]
    cron: String,

    /// Time zone of the pattern, such as Europe/Berlin; UTC by default.
    #[arg(long, value_name = "ZONE")]
    time_zone: Option<String>,

    /// Kind of the job.
    #[arg(long, value_name = "KIND", group = "work")]
    kind: Option<String>,

    /// Payload of the only subtask, or input of the split step.
    #[arg(long, value_name = "JSON", conflicts_with = "job_file")]
    payload: Option<String>,

    /// Payload from a file; - is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["payload", "job_file"])]
    payload_file: Option<PathBuf>,

    /// The key of its only subtask; several times, if it has several.
    #[arg(long, value_name = "KEY", conflicts_with = "job_file")]
    key: Vec<String>,

    /// All of the job, as POST /v1/jobs takes it, out of a file; - is standard
    /// input.
    #[arg(long, value_name = "FILE", group = "work")]
    job_file: Option<PathBuf>,

    /// Whether a job is made while the one before is not over.
    #[arg(long, value_enum, default_value = "allow", value_name = "WHAT")]
    overlap: OverlapPolicy,

    /// Handling of times that passed while the server was down or its disk full.
    #[arg(long, value_enum, default_value = "once", value_name = "WHAT")]
    missed: MissedRunPolicy,

    /// Pause the schedule until it is resumed. By default an existing schedule is unchanged.
    #[arg(long)]
    paused: bool,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum OverlapPolicy {
    /// It is.
    Allow,
    /// The time is passed over.
    Skip,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum MissedRunPolicy {
    /// One job for all missed times.
    Once,
    /// They are passed over.
    Skip,
}

/// The API's `SetSchedule`.
#[derive(Debug, Serialize)]
struct SetScheduleBody<'a> {
    cron: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    time_zone: Option<&'a str>,
    job: Box<RawValue>,
    overlap: OverlapChoice,
    missed: MissedChoice,
    #[serde(skip_serializing_if = "Option::is_none")]
    paused: Option<bool>,
}

/// The job of a schedule with one payload.
#[derive(Debug, Serialize)]
struct ScheduledJob<'a> {
    kind: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    payload: Option<Box<RawValue>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    keys: Option<&'a [String]>,
}

/// Runs `keylane schedules`.
pub(crate) fn run(args: &SchedulesArgs) -> anyhow::Result<ExitOutcome> {
    let done = match &args.action {
        None => args.list.show(),
        Some(ScheduleAction::List(list)) => list.show(),
        Some(ScheduleAction::Show(one)) => one.tell(Method::GET, None),
        Some(ScheduleAction::Set(set)) => set.send(),
        Some(ScheduleAction::Remove(one)) => one.send(),
        Some(ScheduleAction::Pause(one)) => one.tell(Method::POST, Some("pause")),
        Some(ScheduleAction::Resume(one)) => one.tell(Method::POST, Some("resume")),
        Some(ScheduleAction::Run(run)) => run.send(),
    };
    settle(done.map(|()| ExitOutcome::Finished { failed: 0 }))
}

impl ListSchedulesArgs {
    fn show(&self) -> anyhow::Result<()> {
        let server = ServerClient::new(&self.how.server)?;
        list::show(&server, &["v1", "schedules"], &[], self.limit, self.how.json, |schedules| {
            table(&COLUMNS, &[], &schedules.iter().map(row).collect::<Vec<_>>())
        })
    }
}

impl ScheduleArgs {
    /// Requests the schedule or a change of it; the response is its new state.
    fn tell(&self, method: Method, what: Option<&str>) -> anyhow::Result<()> {
        let server = ServerClient::new(&self.how.server)?;
        let path: Vec<_> = ["v1", "schedules", &self.name].into_iter().chain(what).collect();
        let request = server.request(method, server.url(&path)?).timeout(ANSWER_WITHIN);
        self.how.print(&block_on(server.answer(request))?)
    }
}

impl ServerOptions {
    fn print(&self, answer: &ServerResponse) -> anyhow::Result<()> {
        if self.json {
            return line(one_line(&answer.body));
        }
        Ok(io::stdout().lock().write_all(details(&answer.read()?).as_bytes())?)
    }
}

fn line(mut bytes: Vec<u8>) -> anyhow::Result<()> {
    bytes.push(b'\n');
    Ok(io::stdout().lock().write_all(&bytes)?)
}

impl RemoveScheduleArgs {
    fn send(&self) -> anyhow::Result<()> {
        let server = ServerClient::new(&self.server)?;
        let url = server.url(&["v1", "schedules", &self.name])?;
        block_on(server.answer(server.request(Method::DELETE, url).timeout(ANSWER_WITHIN)))?;
        line(format!("{} removed", plain(&self.name)).into_bytes())
    }
}

impl RunScheduleArgs {
    fn send(&self) -> anyhow::Result<()> {
        let server = ServerClient::new(&self.one.how.server)?;
        let url = server.url(&["v1", "schedules", &self.one.name, "run"])?;
        let mut request = server.request(Method::POST, url).timeout(ANSWER_WITHIN);
        if let Some(key) = &self.idempotency_key {
            request = request.header("idempotency-key", key);
        }
        let answer = block_on(server.answer(request))?;
        if self.one.how.json {
            return line(one_line(&answer.body));
        }
        let job: Job = answer.read()?;
        line(job.id.into_bytes())
    }
}

impl SetScheduleArgs {
    fn send(&self) -> anyhow::Result<()> {
        let body = serde_json::to_vec(&self.asked()?)?;
        let server = ServerClient::new(&self.one.how.server)?;
        let url = server.url(&["v1", "schedules", &self.one.name])?;
        let request = server.request(Method::PUT, url).timeout(ANSWER_WITHIN);
        let request = request.header(CONTENT_TYPE, "application/json").body(body);
        self.one.how.print(&block_on(server.answer(request))?)
    }

    fn asked(&self) -> anyhow::Result<SetScheduleBody<'_>> {
        Ok(SetScheduleBody {
            cron: &self.cron,
            time_zone: self.time_zone.as_deref(),
            job: self.job()?,
            overlap: match self.overlap {
                OverlapPolicy::Allow => OverlapChoice::Allow,
                OverlapPolicy::Skip => OverlapChoice::Skip,
            },
            missed: match self.missed {
                MissedRunPolicy::Once => MissedChoice::Once,
                MissedRunPolicy::Skip => MissedChoice::Skip,
            },
            paused: self.paused.then_some(true),
        })
    }

    fn job(&self) -> anyhow::Result<Box<RawValue>> {
        let Some(kind) = &self.kind else {
            let path = self.job_file.as_deref().expect("one of the two is required");
            return json(read_payload(path)?);
        };
        let payload = match (&self.payload, &self.payload_file) {
            (Some(text), _) => Some(json(text.clone())?),
            (None, Some(path)) => Some(json(read_payload(path)?)?),
            (None, None) => None,
        };
        let is_something = payload.is_some() || !self.key.is_empty();
        ensure!(is_something, "there is nothing to do: give --payload JSON, or --key");
        let (key, keys) = match &*self.key {
            [] => (None, None),
            [key] => (Some(key.as_str()), None),
            keys => (None, Some(keys)),
        };
        Ok(serde_json::value::to_raw_value(&ScheduledJob { kind, payload, key, keys })?)
    }
}

const COLUMNS: [&str; 6] = ["NAME", "STATE", "CRON", "TIME ZONE", "NEXT", "LAST JOB"];

fn row(schedule: &Schedule) -> Vec<String> {
    let next = schedule.next.first();
    vec![
        plain(&schedule.name).into_owned(),
        state(schedule).to_owned(),
        plain(&schedule.cron).into_owned(),
        plain(&schedule.time_zone).into_owned(),
        next.map_or_else(|| "-".to_owned(), ToString::to_string),
        schedule.last_job.as_deref().map_or_else(|| "-".to_owned(), |id| plain(id).into_owned()),
    ]
}

fn state(schedule: &Schedule) -> &'static str {
    match (schedule.paused, &schedule.held_up) {
        (true, _) => "paused",
        (false, Some(_)) => "held up",
        (false, None) => "active",
    }
}

/// All that people want to know of a schedule.
fn details(schedule: &Schedule) -> String {
    let mut text = format!("{}: {}\n", plain(&schedule.name), state(schedule));
    let overlap = match schedule.overlap {
        OverlapChoice::Allow => "allow",
        OverlapChoice::Skip => "skip",
    };
    let missed = match schedule.missed {
        MissedChoice::Once => "once",
        MissedChoice::Skip => "skip",
    };
    let passed = schedule
        .last_passed
        .as_ref()
        .map(|passed| format!("{}, the last at {}: {}", schedule.passed, passed.at, passed.text));
    let fired = schedule.last_fired.map(|at| format!("{}, the last at {at}", schedule.fired));
    let facts = [
        ("cron", Some(format!("{} in {}", schedule.cron, schedule.time_zone))),
        ("job", Some(schedule.job.get().to_owned())),
        ("overlap", Some(overlap.to_owned())),
        ("missed", Some(missed.to_owned())),
        ("fired", fired),
        ("passed", passed),
        ("last job", schedule.last_job.clone()),
        ("held up", schedule.held_up.clone()),
    ];
    for (what, value) in facts {
        if let Some(value) = value {
            let _ = writeln!(text, "  {what:<10}  {}", plain(&value));
        }
    }
    for (index, at) in schedule.next.iter().enumerate() {
        let what = if index == 0 { "next" } else { "" };
        let _ = writeln!(text, "  {what:<10}  {at}");
    }
    text
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use keylane_service::wire::SetSchedule;

    use super::*;

    #[derive(Debug, Parser)]
    struct Words {
        #[command(flatten)]
        set: SetScheduleArgs,
    }

    fn set(words: &[&str]) -> Result<SetScheduleArgs, clap::Error> {
        let words = [&["set", "report", "--cron", "@daily"], words].concat();
        Words::try_parse_from(words).map(|words| words.set)
    }

    #[test]
    fn the_api_reads_what_is_sent() {
        let words = ["--kind", "report", "--payload", "{\"a\": 1e400}", "--key", "a", "--key", "b"];
        let rest = ["--time-zone", "Europe/Berlin", "--overlap", "skip", "--missed", "skip"];
        let set = set(&[&words[..], &rest, &["--paused"]].concat()).unwrap();
        let text = serde_json::to_string(&set.asked().unwrap()).unwrap();
        let asked: SetSchedule = serde_json::from_str(&text).unwrap();
        assert_eq!((&*asked.cron, asked.time_zone.as_deref()), ("@daily", Some("Europe/Berlin")));
        let expected = r#"{"kind":"report","payload":{"a": 1e400},"keys":["a","b"]}"#;
        assert_eq!(asked.job.get(), expected);
        assert_eq!((asked.overlap, asked.missed), (OverlapChoice::Skip, MissedChoice::Skip));
        assert_eq!(asked.paused, Some(true));
    }

    #[test]
    fn words_that_contradict_each_other_are_refused() {
        let wrong: [&[&str]; 5] = [
            &[],
            &["--payload", "1"],
            &["--kind", "k", "--job-file", "-"],
            &["--job-file", "-", "--payload", "1"],
            &["--kind", "k", "--payload", "1", "--payload-file", "-"],
        ];
        for words in wrong {
            assert!(set(words).is_err(), "{words:?}");
        }
        let why = |words: &[&str]| set(words).unwrap().asked().unwrap_err().to_string();
        assert!(why(&["--kind", "k"]).contains("nothing to do"));
        assert!(why(&["--kind", "k", "--payload", "text"]).contains("not JSON"));
    }
}
