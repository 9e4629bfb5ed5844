//! Text format of a record, version 1: one line for each item, checked when it is read.
//!
//! ```text
//! keylane record 1
//! rules workers=4 max-active=- patience=- order=arrival
//! state now=0 serials=0 needs=0 passed-over=0 line-had-its-turn=no dropped=0
//! loose ready=no running=0 needs-since=- had-its-turn=no was-last=no
//! event at=0 submitted job=0/0 supply=ready:20 weight=1
//! event at=0 decided to=0/0 rule=admit take=ready
//! event at=60 ended who=0/0 end=done
//! ```
//!
//! - The first line is fixed; then `rules`, `state` and `loose`, once each, in this order.
//! - `job` and `free` lines list the jobs and the free slots before the first event: jobs by
//!   ascending slot, free slots in the order in which they were freed. There are none if no event
//!   was dropped and recording began with the first job.
//! - `event` lines follow, the oldest first. A job is `serial/slot`; the work outside jobs is
//!   `loose`.
//! - Fields are `name=value`, all of them and in the order above. `-` is none. Times are in the
//!   unit of the recording caller, in a pool milliseconds. Numbers are decimal, and at most 2^48.
//! - Empty lines and lines that begin with `#` are skipped.
//!
//! Other versions are refused. The text is checked as far as a replay requires: a record that
//! contradicts itself gives a [`Divergence`](super::Divergence), never a panic.

use std::collections::VecDeque;
use std::fmt;
use std::str::{FromStr, SplitAsciiWhitespace};

use super::super::job::{ScheduledJob, Splitter};
use super::super::rules::{LooseWork, SchedulerState};
use super::super::{Claimant, Decision, End, JobId, JobPolicy, Rule, Supply, Take};
use super::{Event, Record, RecordedEvent};

const FIRST_LINE: &str = "keylane record 1";

/// Maximum of any number: larger than any real count, and small enough that no sum overflows.
const MAX_NUMBER: u64 = 1 << 48;

impl fmt::Display for Record {
    /// Writes the text that [`FromStr`] reads.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{FIRST_LINE}")?;
        self.base.write(f, self.dropped)?;
        self.entries.iter().try_for_each(|entry| {
            write!(f, "event at={} ", entry.at)?;
            write_event(f, &entry.event)?;
            writeln!(f)
        })
    }
}

/// Value of a field, with its text form.
trait Value: Sized {
    fn show(&self) -> String;
    fn read(text: &str) -> Option<Self>;
}

impl Value for u64 {
    fn show(&self) -> String {
        // Any larger number, such as `u64::MAX` for no limit, has the same effect.
        (*self).min(MAX_NUMBER).to_string()
    }

    fn read(text: &str) -> Option<Self> {
        // Rejects a sign, which `parse` would accept.
        let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse().ok().filter(|number| is_number && *number <= MAX_NUMBER)
    }
}

impl Value for u32 {
    fn show(&self) -> String {
        self.to_string()
    }

    fn read(text: &str) -> Option<Self> {
        u64::read(text)?.try_into().ok()
    }
}

impl Value for usize {
    fn show(&self) -> String {
        (*self as u64).show()
    }

    fn read(text: &str) -> Option<Self> {
        u64::read(text)?.try_into().ok()
    }
}

impl Value for bool {
    fn show(&self) -> String {
        if *self { "yes" } else { "no" }.to_owned()
    }

    fn read(text: &str) -> Option<Self> {
        [("yes", true), ("no", false)]
            .iter()
            .find(|(word, _)| *word == text)
            .map(|(_, value)| *value)
    }
}

impl<T: Value> Value for Option<T> {
    fn show(&self) -> String {
        self.as_ref().map_or("-".to_owned(), T::show)
    }

    fn read(text: &str) -> Option<Self> {
        if text == "-" { Some(None) } else { T::read(text).map(Some) }
    }
}

/// Parses two values with a separator between them.
fn pair<A: Value, B: Value>(text: &str, between: char) -> Option<(A, B)> {
    let (one, other) = text.split_once(between)?;
    Some((A::read(one)?, B::read(other)?))
}

impl Value for (u64, u64) {
    fn show(&self) -> String {
        format!("{}/{}", self.0, self.1)
    }

    fn read(text: &str) -> Option<Self> {
        pair(text, '/')
    }
}

impl Value for JobId {
    fn show(&self) -> String {
        format!("{}/{}", self.serial, self.slot)
    }

    fn read(text: &str) -> Option<Self> {
        let (serial, slot) = pair(text, '/')?;
        Some(JobId { serial, slot })
    }
}

impl Value for Claimant {
    fn show(&self) -> String {
        match self {
            Claimant::Job(job) => job.show(),
            Claimant::Loose => "loose".to_owned(),
        }
    }

    fn read(text: &str) -> Option<Self> {
        if text == "loose" { Some(Claimant::Loose) } else { JobId::read(text).map(Claimant::Job) }
    }
}

impl Value for Supply {
    fn show(&self) -> String {
        match self {
            Supply::Ready(count) => format!("ready:{}", count.show()),
            Supply::Lined { ready, waiting } => format!("lined:{}", (*ready, *waiting).show()),
            Supply::Split { expected } => format!("split:{}", expected.show()),
        }
    }

    fn read(text: &str) -> Option<Self> {
        match text.split_once(':')? {
            ("ready", count) => u64::read(count).map(Supply::Ready),
            ("lined", counts) => {
                pair(counts, '/').map(|(ready, waiting)| Supply::Lined { ready, waiting })
            }
            ("split", count) => Option::read(count).map(|expected| Supply::Split { expected }),
            _ => None,
        }
    }
}

impl Value for Splitter {
    fn show(&self) -> String {
        match self {
            Splitter::Closed => "closed".to_owned(),
            Splitter::Open(expected) => expected.show(),
        }
    }

    fn read(text: &str) -> Option<Self> {
        if text == "closed" {
            Some(Splitter::Closed)
        } else {
            Option::read(text).map(Splitter::Open)
        }
    }
}

/// Text forms of enums: one word for each variant.
macro_rules! words {
    ($type:ty: $($word:literal = $value:path),* $(,)?) => {
        impl Value for $type {
            fn show(&self) -> String {
                match self { $($value => $word),* }.to_owned()
            }

            fn read(text: &str) -> Option<Self> {
                match text { $($word => Some($value),)* _ => None }
            }
        }
    };
}

words!(JobPolicy: "arrival" = JobPolicy::Arrival, "balanced" = JobPolicy::Balanced, "shortest" = JobPolicy::Shortest);
words!(Rule: "keep" = Rule::Keep, "aged" = Rule::Aged, "admit" = Rule::Admit, "least" = Rule::Least);
words!(Take: "ready" = Take::Ready, "split" = Take::Split);
words!(End: "done" = End::Done, "failed" = End::Failed, "waits" = End::Waits, "nothing" = End::Nothing);

/// Writes ` name=value` for each field.
macro_rules! fields {
    ($f:expr, $($name:literal = $value:expr),* $(,)?) => {{
        $(write!($f, concat!(" ", $name, "={}"), Value::show(&$value))?;)*
        Ok(())
    }};
}

fn write_event(f: &mut fmt::Formatter<'_>, event: &Event) -> fmt::Result {
    write!(f, "{}", name(event))?;
    match *event {
        Event::Submitted { job, supply, weight } => {
            fields!(f, "job" = job, "supply" = supply, "weight" = weight)
        }
        Event::Decided(Decision { to, rule, take }) => {
            fields!(f, "to" = to, "rule" = rule, "take" = take)
        }
        Event::Ended(who, end) => fields!(f, "who" = who, "end" = end),
        Event::RanMore { job, take, done, failed } => {
            fields!(f, "job" = job, "take" = take, "done" = done, "failed" = failed)
        }
        Event::SplitMore(job, count) | Event::Ready(job, count) | Event::Unready(job, count) => {
            fields!(f, "job" = job, "count" = count)
        }
        Event::Taken(job) | Event::Exhausted(job) | Event::Cancelled(job) => {
            fields!(f, "job" = job)
        }
        Event::Came { job, ready, waiting } => {
            fields!(f, "job" = job, "ready" = ready, "waiting" = waiting)
        }
        Event::Settled(job, failed) => fields!(f, "job" = job, "failed" = failed),
        Event::Held(job, held) => fields!(f, "job" = job, "held" = held),
        Event::Paused(job, paused) => fields!(f, "job" = job, "paused" = paused),
        Event::Weighed(job, weight) => fields!(f, "job" = job, "weight" = weight),
        Event::LooseReady(ready) => fields!(f, "ready" = ready),
        Event::Resized(workers) => fields!(f, "workers" = workers),
        Event::Bounded(most) => fields!(f, "max-active" = most),
    }
}

fn name(event: &Event) -> &'static str {
    match event {
        Event::Submitted { .. } => "submitted",
        Event::Decided(_) => "decided",
        Event::Taken(_) => "taken",
        Event::Ended(..) => "ended",
        Event::RanMore { .. } => "ran-more",
        Event::SplitMore(..) => "split-more",
        Event::Exhausted(_) => "exhausted",
        Event::Ready(..) => "ready",
        Event::Unready(..) => "unready",
        Event::Came { .. } => "came",
        Event::Settled(..) => "settled",
        Event::Held(..) => "held",
        Event::Paused(..) => "paused",
        Event::Cancelled(_) => "cancelled",
        Event::Weighed(..) => "weighed",
        Event::LooseReady(_) => "loose-ready",
        Event::Resized(_) => "resized",
        Event::Bounded(_) => "bounded",
    }
}

impl SchedulerState {
    /// Writes the state as the first lines of a record.
    fn write(&self, f: &mut fmt::Formatter<'_>, dropped: u64) -> fmt::Result {
        write!(f, "rules")?;
        fields!(
            f,
            "workers" = self.workers,
            "max-active" = self.max_active,
            "patience" = self.patience,
            "order" = self.order,
        )?;
        write!(f, "\nstate")?;
        fields!(
            f,
            "now" = self.now,
            "serials" = self.serials,
            "needs" = self.needs,
            "passed-over" = self.passed_over,
            "line-had-its-turn" = self.queue_had_its_turn,
            "dropped" = dropped,
        )?;
        let LooseWork { ready, running, needs_since, had_its_turn, was_last } = self.loose;
        write!(f, "\nloose")?;
        fields!(
            f,
            "ready" = ready,
            "running" = running,
            "needs-since" = needs_since,
            "had-its-turn" = had_its_turn,
            "was-last" = was_last,
        )?;
        writeln!(f)?;
        for (slot, job) in self.jobs.iter().enumerate() {
            if let Some(job) = job {
                job.write(f, slot as u32)?;
            }
        }
        self.free.iter().try_for_each(|slot| writeln!(f, "free slot={slot}"))
    }
}

impl ScheduledJob {
    fn write(&self, f: &mut fmt::Formatter<'_>, slot: u32) -> fmt::Result {
        write!(f, "job")?;
        fields!(
            f,
            "id" = JobId { serial: self.serial, slot },
            "weight" = self.weight,
            "splitter" = self.splitter,
            "held" = self.splitter_paused,
            "ready" = self.ready,
            "running" = self.running,
            "waiting" = self.waiting,
            "done" = self.done,
            "failed" = self.failed,
            "admitted" = self.admitted,
            "paused" = self.paused,
            "cancelled" = self.cancelled,
            "arrival" = self.arrival,
            "needs-since" = self.needs_since,
            "held-down-since" = self.at_one_worker_since,
        )?;
        writeln!(f)
    }
}

/// Error of a text that is not a valid record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseRecordError {
    line: usize,
    what: String,
}

impl ParseRecordError {
    /// Number of the invalid line; the first is 1.
    pub fn line(&self) -> usize {
        self.line
    }
}

impl fmt::Display for ParseRecordError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for ParseRecordError {}

/// Fields of a line, read in order.
struct RecordFields<'a>(SplitAsciiWhitespace<'a>);

impl RecordFields<'_> {
    fn take<T: Value>(&mut self, name: &str) -> Result<T, String> {
        let field = self.0.next().ok_or_else(|| format!("`{name}=` is missing"))?;
        let value = field.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
        let value = value.ok_or_else(|| format!("expected `{name}=`, found `{field}`"))?;
        T::read(value).ok_or_else(|| format!("`{value}` is not a valid value of `{name}`"))
    }

    fn end(mut self) -> Result<(), String> {
        self.0.next().map_or(Ok(()), |field| Err(format!("unexpected field `{field}`")))
    }
}

impl FromStr for Record {
    type Err = ParseRecordError;

    /// Reads a record of version 1, as `Display` writes it.
    fn from_str(text: &str) -> Result<Self, ParseRecordError> {
        let lines = text.lines().enumerate().map(|(number, line)| (number + 1, line.trim()));
        let mut lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
        let mut reader = RecordReader::default();
        let first = lines.next();
        if first.is_none_or(|(_, line)| line != FIRST_LINE) {
            let what = format!("a record must begin with `{FIRST_LINE}`");
            return Err(ParseRecordError { line: first.map_or(1, |(line, _)| line), what });
        }
        let mut last = 1;
        for (number, line) in lines {
            last = number;
            reader.line(line).map_err(|what| ParseRecordError { line: number, what })?;
        }
        reader.finish().map_err(|what| ParseRecordError { line: last, what })
    }
}

/// Parser state between two lines.
#[derive(Default)]
struct RecordReader {
    rules: Option<SchedulerState>,
    has_state: bool,
    loose: Option<LooseWork>,
    dropped: u64,
    /// Jobs and their slots.
    jobs: Vec<(u32, ScheduledJob)>,
    free: Vec<u32>,
    entries: VecDeque<RecordedEvent>,
}

impl RecordReader {
    fn line(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split_ascii_whitespace();
        let kind = words.next().expect("an empty line is skipped");
        let mut fields = RecordFields(words);
        let is_next = match kind {
            "rules" => self.rules.is_none(),
            "state" => self.rules.is_some() && !self.has_state,
            "loose" => self.has_state && self.loose.is_none(),
            "job" => self.loose.is_some() && self.free.is_empty() && self.entries.is_empty(),
            "free" => self.loose.is_some() && self.entries.is_empty(),
            "event" => self.loose.is_some(),
            _ => return Err(format!("unknown line type `{kind}`")),
        };
        if !is_next {
            return Err(format!("a `{kind}` line is not allowed here"));
        }
        match kind {
            "rules" => self.read_rules(&mut fields)?,
            "state" => self.read_state(&mut fields)?,
            "loose" => self.loose = Some(self.read_loose(&mut fields)?),
            "job" => {
                let job = self.read_job(&mut fields)?;
                self.jobs.push(job);
            }
            "free" => self.free.push(fields.take("slot")?),
            _ => {
                let at = fields.take("at")?;
                self.entries.push_back(RecordedEvent { at, event: read_event(&mut fields)? });
            }
        }
        fields.end()
    }

    fn base(&mut self) -> &mut SchedulerState {
        self.rules.as_mut().expect("the `rules` line comes first")
    }

    fn read_rules(&mut self, fields: &mut RecordFields<'_>) -> Result<(), String> {
        let mut rules = SchedulerState::new(fields.take("workers")?);
        rules.set_max_active(fields.take("max-active")?);
        rules.patience = fields.take("patience")?;
        rules.order = fields.take("order")?;
        self.rules = Some(rules);
        Ok(())
    }

    fn read_state(&mut self, fields: &mut RecordFields<'_>) -> Result<(), String> {
        let rules = self.base();
        rules.now = fields.take("now")?;
        rules.serials = fields.take("serials")?;
        rules.needs = fields.take("needs")?;
        rules.passed_over = fields.take("passed-over")?;
        rules.queue_had_its_turn = fields.take("line-had-its-turn")?;
        self.dropped = fields.take("dropped")?;
        self.has_state = true;
        Ok(())
    }

    fn read_loose(&mut self, fields: &mut RecordFields<'_>) -> Result<LooseWork, String> {
        Ok(LooseWork {
            ready: fields.take("ready")?,
            running: fields.take("running")?,
            needs_since: self.past(fields.take("needs-since")?)?,
            had_its_turn: fields.take("had-its-turn")?,
            was_last: fields.take("was-last")?,
        })
    }

    fn read_job(&mut self, fields: &mut RecordFields<'_>) -> Result<(u32, ScheduledJob), String> {
        let id: JobId = fields.take("id")?;
        let weight: u32 = fields.take("weight")?;
        let splitter = fields.take("splitter")?;
        let mut job = ScheduledJob::new(id.serial, Supply::Ready(0), weight.max(1), 0);
        job.splitter = splitter;
        job.splitter_paused = fields.take("held")?;
        job.ready = fields.take("ready")?;
        job.running = fields.take("running")?;
        job.waiting = fields.take("waiting")?;
        job.done = fields.take("done")?;
        job.failed = fields.take("failed")?;
        job.admitted = fields.take("admitted")?;
        job.paused = fields.take("paused")?;
        job.cancelled = fields.take("cancelled")?;
        job.arrival = fields.take("arrival")?;
        job.needs_since = self.past(fields.take("needs-since")?)?;
        job.at_one_worker_since = fields.take("held-down-since")?;
        let since = [Some(job.arrival), job.at_one_worker_since];
        since.into_iter().flatten().try_for_each(|time| self.past(Some((time, 0))).map(|_| ()))?;
        if id.serial >= self.base().serials {
            return Err(format!("`{id}` was not submitted before this state"));
        }
        if job.is_over() {
            return Err(format!("`{id}` has already ended"));
        }
        Ok((id.slot, job))
    }

    /// Returns a time unless it is later than that of the state.
    fn past(&mut self, since: Option<(u64, u64)>) -> Result<Option<(u64, u64)>, String> {
        match since {
            Some((time, _)) if time > self.base().now => {
                Err(format!("time {time} is later than `now` of the `state` line"))
            }
            since => Ok(since),
        }
    }

    fn finish(mut self) -> Result<Record, String> {
        let loose = self.loose.take().ok_or("`rules`, `state` or `loose` is missing")?;
        let mut rules = self.rules.take().expect("the `rules` line precedes `loose`");
        rules.restore(self.jobs, self.free, loose).ok_or("a slot is missing or listed twice")?;
        let capacity = self.entries.len().max(1);
        Ok(Record { capacity, entries: self.entries, base: rules, dropped: self.dropped })
    }
}

fn read_event(fields: &mut RecordFields<'_>) -> Result<Event, String> {
    let word = fields.0.next().ok_or("the event type is missing")?;
    Ok(match word {
        "submitted" => {
            let (job, supply) = (fields.take("job")?, fields.take("supply")?);
            Event::Submitted { job, supply, weight: fields.take::<u32>("weight")?.max(1) }
        }
        "decided" => {
            let (to, rule) = (fields.take("to")?, fields.take("rule")?);
            Event::Decided(Decision { to, rule, take: fields.take("take")? })
        }
        "taken" => Event::Taken(fields.take("job")?),
        "ended" => Event::Ended(fields.take("who")?, fields.take("end")?),
        "ran-more" => {
            let (job, take) = (fields.take("job")?, fields.take("take")?);
            let (done, failed) = (fields.take("done")?, fields.take("failed")?);
            Event::RanMore { job, take, done, failed }
        }
        "split-more" => Event::SplitMore(fields.take("job")?, fields.take("count")?),
        "exhausted" => Event::Exhausted(fields.take("job")?),
        "ready" => Event::Ready(fields.take("job")?, fields.take("count")?),
        "unready" => Event::Unready(fields.take("job")?, fields.take("count")?),
        "came" => {
            let (job, ready) = (fields.take("job")?, fields.take("ready")?);
            Event::Came { job, ready, waiting: fields.take("waiting")? }
        }
        "settled" => Event::Settled(fields.take("job")?, fields.take("failed")?),
        "held" => Event::Held(fields.take("job")?, fields.take("held")?),
        "paused" => Event::Paused(fields.take("job")?, fields.take("paused")?),
        "cancelled" => Event::Cancelled(fields.take("job")?),
        "weighed" => Event::Weighed(fields.take("job")?, fields.take::<u32>("weight")?.max(1)),
        "loose-ready" => Event::LooseReady(fields.take("ready")?),
        "resized" => Event::Resized(fields.take("workers")?),
        "bounded" => Event::Bounded(fields.take("max-active")?),
        _ => return Err(format!("unknown event type `{word}`")),
    })
}
