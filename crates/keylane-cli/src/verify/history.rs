//! History: runs of tasks, read from lines of JSON.

use std::borrow::Cow;
use std::collections::HashMap;

use anyhow::{Context, bail, ensure};
use foldhash::fast::RandomState;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::check::{Access, TaskRun};

/// Runs of all files.
#[derive(Debug, Default)]
pub(super) struct History {
    runs: Vec<TaskRun>,
    /// Number of each lane.
    lanes: HashMap<LaneName, u32, RandomState>,
    /// Name of each lane, by number.
    names: Vec<LaneName>,
    files: Vec<String>,
    /// Unit of the times in `start` and `end`, once one was read.
    unit: Option<TimeUnit>,
    /// Lines that were read.
    pub(super) lines: u64,
    /// Lines without a key: their tasks have no order.
    pub(super) keyless: u64,
}

/// Tasks with a key, in a source: only they are ordered among each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct LaneName {
    pub(super) source: Option<String>,
    pub(super) key: String,
}

/// Form of the times. Two forms cannot be compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TimeUnit {
    /// Microseconds since 1970, in `start_us` or as RFC 3339.
    Microseconds,
    /// Numbers of an unknown unit.
    Plain,
}

/// Line of a file: one run of a task.
#[derive(Debug, Deserialize)]
struct HistoryLine<'a> {
    #[serde(borrow, default)]
    key: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    key_hex: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    keys: Vec<Cow<'a, str>>,
    #[serde(borrow, default)]
    shared_keys: Vec<Cow<'a, str>>,
    #[serde(borrow, default)]
    source: Option<Cow<'a, str>>,
    #[serde(alias = "number")]
    place: Option<u64>,
    /// Place of the first task of its batch.
    #[serde(default)]
    batch: Option<u64>,
    #[serde(borrow, default)]
    result: Option<&'a RawValue>,
    #[serde(default)]
    attempt: Option<u32>,
    #[serde(default)]
    fence: Option<FenceField>,
    start: Option<i64>,
    end: Option<i64>,
    start_us: Option<i64>,
    end_us: Option<i64>,
    #[serde(borrow, default)]
    started_at: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    ended_at: Option<Cow<'a, str>>,
    /// Version of a log of `keylane run`, in its headers.
    #[serde(default)]
    keylane_log: Option<u32>,
    /// Number of the run that ran a finally failed record again.
    #[serde(default)]
    rerun: Option<u32>,
}

/// Fence as a number, or as a string of digits.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum FenceField {
    Number(u64),
    Text(String),
}

impl History {
    /// Adds a file, and returns its number.
    pub(super) fn add_file(&mut self, name: &str) -> u32 {
        self.files.push(name.to_owned());
        self.files.len() as u32 - 1
    }

    /// Adds the runs of one line: one for each of its keys.
    pub(super) fn add_line(&mut self, file: u32, number: u32, line: &[u8]) -> anyhow::Result<()> {
        let line: HistoryLine<'_> = serde_json::from_slice(line)
            .map_err(|error| anyhow::anyhow!("{}", without_line(&error.to_string())))?;
        if line.keylane_log.is_some() {
            return Ok(());
        }
        let Some(times) = self.times(&line)? else {
            // A skipped or cancelled task has an end, and has never started.
            self.lines += 1;
            return Ok(());
        };
        let place = line
            .place
            .context("`place` is missing; give each task its number in the order of submission")?;
        if line.is_repeated_by_first(place) {
            self.lines += 1;
            return Ok(());
        }
        let run = TaskRun {
            lane: 0,
            place,
            batch: line.batch,
            access: Access::Exclusive,
            attempt: line.attempt.unwrap_or(1),
            fence: line.fence.as_ref().map(FenceField::number).transpose()?,
            start: times.0,
            end: times.1,
            file,
            line: number,
        };
        let keys = line.exclusive_keys()?;
        if keys.is_empty() && line.shared_keys.is_empty() {
            self.keyless += 1;
        }
        // Records that had failed run again after later ones of their keys, and in order among each
        // other.
        let rerun = line.rerun.map(|run| match &line.source {
            Some(source) => format!("{source}, records run again in run {run}"),
            None => format!("records run again in run {run}"),
        });
        let source = rerun.as_deref().or(line.source.as_deref());
        let first = self.runs.len();
        for (keys, access) in [(&keys, Access::Exclusive), (&line.shared_keys, Access::Shared)] {
            for key in keys {
                let lane = self.lane(source, key);
                // A repeated key counts once, and exclusive access includes shared access.
                if !self.runs[first..].iter().any(|run| run.lane == lane) {
                    self.runs.push(TaskRun { lane, access, ..run });
                }
            }
        }
        self.lines += 1;
        Ok(())
    }

    pub(super) fn runs(&self) -> &[TaskRun] {
        &self.runs
    }

    pub(super) fn lane_count(&self) -> usize {
        self.names.len()
    }

    pub(super) fn lane_name(&self, lane: u32) -> &LaneName {
        &self.names[lane as usize]
    }

    /// Place of a run in the input, for messages.
    pub(super) fn location(&self, run: &TaskRun) -> String {
        match &self.files[..] {
            [_] => format!("line {}", run.line),
            files => format!("{}, line {}", files[run.file as usize], run.line),
        }
    }

    fn lane(&mut self, source: Option<&str>, key: &str) -> u32 {
        let name = LaneName { source: source.map(str::to_owned), key: key.to_owned() };
        let next = self.names.len() as u32;
        let lane = *self.lanes.entry(name.clone()).or_insert(next);
        if lane == next {
            self.names.push(name);
        }
        lane
    }

    /// Start and end of a run; `None` if it never started.
    fn times(&mut self, line: &HistoryLine<'_>) -> anyhow::Result<Option<(i64, Option<i64>)>> {
        let rfc_3339 = |text: &Option<Cow<'_, str>>| text.as_deref().map(micros).transpose();
        let (unit, start, end) = if line.start.is_some() || line.end.is_some() {
            (TimeUnit::Plain, line.start, line.end)
        } else {
            let start = line.start_us.or(rfc_3339(&line.started_at)?);
            (TimeUnit::Microseconds, start, line.end_us.or(rfc_3339(&line.ended_at)?))
        };
        let Some(start) = start else {
            ensure!(
                end.is_some(),
                "the times are missing; give `start` and `end`, `start_us` and `end_us`, or `started_at` and \
                 `ended_at`"
            );
            return Ok(None);
        };
        if *self.unit.get_or_insert(unit) != unit {
            bail!(
                "`start` has another unit than the times of the lines before; use one form in all lines"
            );
        }
        ensure!(
            end.is_none_or(|end| end >= start),
            "the end is before the start; use times of one clock that is not set back, such as `start_us` of `keylane \
             run --log`"
        );
        Ok(Some((start, end)))
    }
}

impl HistoryLine<'_> {
    /// Whether the attempt of a batch has to be repeated, and the task is not the first of the batch.
    /// Its next attempt can be in another batch than those of the others, so that the first task alone
    /// has the times of this one.
    fn is_repeated_by_first(&self, place: u64) -> bool {
        let results = ["\"retry\"", "\"interrupted\"", "\"stopped\""];
        self.batch.is_some_and(|first| first != place)
            && self.result.is_some_and(|result| results.contains(&result.get()))
    }

    fn exclusive_keys(&self) -> anyhow::Result<Vec<Cow<'_, str>>> {
        let mut keys: Vec<_> =
            self.key.iter().chain(&self.keys).map(|key| Cow::Borrowed(&**key)).collect();
        if let Some(hex) = &self.key_hex {
            let is_hex = hex.len() % 2 == 0 && hex.bytes().all(|byte| byte.is_ascii_hexdigit());
            ensure!(is_hex, "`key_hex` has to be pairs of hexadecimal digits");
            // No UTF-8 key begins with this character of the private use area by accident.
            keys.push(Cow::Owned(format!("\u{f8ff}{}", hex.to_ascii_lowercase())));
        }
        Ok(keys)
    }
}

impl FenceField {
    fn number(&self) -> anyhow::Result<u64> {
        match self {
            FenceField::Number(number) => Ok(*number),
            FenceField::Text(text) => text
                .parse()
                .with_context(|| format!("`fence` is {text:?}; it has to be a whole number")),
        }
    }
}

fn micros(text: &str) -> anyhow::Result<i64> {
    let time: jiff::Timestamp = text
        .parse()
        .with_context(|| format!("{text:?} is no time; write it as in 2026-01-31T12:00:00.000Z"))?;
    Ok(time.as_microsecond())
}

/// An error text of the JSON parser without its own line number, which is always 1.
fn without_line(error: &str) -> String {
    error.replace(" at line 1 column", " at column")
}
