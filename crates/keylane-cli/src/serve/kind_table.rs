//! `[kinds.NAME]`: the settings of a kind, with its handlers and its steps.

use std::ffi::OsString;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use keylane_service::handle::{
    AttemptOutput, CommandHandler, Handler, HttpHandler, ProcessLimits, WorkerHandler,
};
use keylane_service::wire::{OnError, OnFail};
use keylane_service::{KeepJobs, Kind, KindExecutor, StartRate, WebhookSettings};
use keylane_stream::retry::Backoff;
use serde::Deserialize;

use super::check::CommandLine;
use super::rate_text::RateText;
use super::slot_count::SlotCount;
use super::value_types::{BackoffRange, ByteSize, RetentionTime, words};
use crate::duration_arg::DurationArg;

/// Handler of a kind or a step: exactly one of these settings.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HandlerConfig {
    #[serde(deserialize_with = "words")]
    command: Option<Vec<String>>,
    #[serde(deserialize_with = "words")]
    worker: Option<Vec<String>>,
    workers: Option<NonZeroUsize>,
    max_tasks_per_worker: Option<NonZeroU64>,
    http: Option<String>,
    env: Option<Vec<String>>,
    limits: LimitsTable,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct LimitsTable {
    memory: Option<ByteSize>,
    cpu: Option<DurationArg>,
    files: Option<u64>,
    file_size: Option<ByteSize>,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct KindTable {
    #[serde(deserialize_with = "words")]
    command: Option<Vec<String>>,
    #[serde(deserialize_with = "words")]
    worker: Option<Vec<String>>,
    workers: Option<NonZeroUsize>,
    max_tasks_per_worker: Option<NonZeroU64>,
    http: Option<String>,
    lease: Option<DurationArg>,
    max_lease: Option<DurationArg>,
    env: Option<Vec<String>>,
    limits: LimitsTable,
    attempts: Option<NonZeroU32>,
    backoff: Option<BackoffRange>,
    timeout: Option<DurationArg>,
    concurrency: Option<SlotCount>,
    max_per_key: Option<NonZeroU32>,
    rate: Option<RateText>,
    burst: Option<NonZeroU32>,
    rate_per_key: Option<RateText>,
    burst_per_key: Option<NonZeroU32>,
    on_error: Option<OnError>,
    on_fail: Option<OnFail>,
    max_log_bytes: Option<ByteSize>,
    retention: Option<RetentionTime>,
    pub(super) webhook: Option<String>,
    split: Option<HandlerConfig>,
    fan_in: Option<HandlerConfig>,
}

fn words_of(place: String, words: Option<&[String]>, is_worker: bool) -> Option<CommandLine<'_>> {
    words.map(|words| CommandLine { place, words, is_worker })
}

/// Returns the handler of a split or fan-in, if it is configured.
fn step(step: Option<&HandlerConfig>, name: &str) -> anyhow::Result<Option<Arc<dyn Handler>>> {
    let Some(step) = step else { return Ok(None) };
    let handler = step.handler(None).with_context(|| name.to_owned())?;
    let handler = handler.with_context(|| {
        format!("{name}: nothing does its work; set one of `command`, `worker` and `http`")
    })?;
    Ok(Some(handler))
}

impl KindTable {
    /// A kind that runs this command, and has all other settings by default.
    pub(super) fn of_command(command: Vec<String>) -> Self {
        KindTable { command: Some(command), ..KindTable::default() }
    }

    /// The kind that the table describes.
    pub(super) fn kind(&self) -> anyhow::Result<Kind> {
        let handler = HandlerConfig {
            command: self.command.clone(),
            worker: self.worker.clone(),
            workers: self.workers,
            max_tasks_per_worker: self.max_tasks_per_worker,
            http: self.http.clone(),
            env: self.env.clone(),
            limits: self.limits,
        };
        let work = match (self.lease, handler.handler(self.concurrency.map(SlotCount::get))?) {
            (Some(lasts), None) => {
                handler.refuse_meaningless("what takes the lease is elsewhere")?;
                KindExecutor::Lease { lasts: lasts.0, handler: None }
            }
            (Some(lasts), handler) => KindExecutor::Lease { lasts: lasts.0, handler },
            (None, Some(handler)) => KindExecutor::Handler(handler),
            (None, None) => {
                bail!("nothing does its work; set `command`, `worker`, `http` or `lease`")
            }
        };
        if self.burst.is_some() && self.rate.is_none() {
            bail!(
                "`burst` is a part of a rate: add `rate`, such as rate = \"100/s\", or leave it out"
            );
        }
        if self.burst_per_key.is_some() && self.rate_per_key.is_none() {
            bail!(
                "`burst_per_key` is a part of a rate: add `rate_per_key`, such as rate_per_key = \"5/m\", or leave it out"
            );
        }
        if self.max_per_key.is_some_and(|max| max.get() > u32::from(Kind::MAX_PER_KEY)) {
            bail!("`max_per_key` is from 1 to {}; write a smaller number", Kind::MAX_PER_KEY);
        }
        if let Some(Err(why)) = self.webhook.as_deref().map(WebhookSettings::check_address) {
            bail!("`webhook`: {why}; write an address such as https://example.com/hook");
        }
        self.check_times()?;
        let plain = Kind::leased(Duration::ZERO);
        Ok(Kind {
            work,
            split: step(self.split.as_ref(), "split")?,
            fan_in: step(self.fan_in.as_ref(), "fan_in")?,
            attempts: self.attempts.map_or(plain.attempts, NonZeroU32::get),
            backoff: self.backoff.map_or(plain.backoff, |range| Backoff {
                first: range.0,
                max: range.1,
                ..plain.backoff
            }),
            timeout: self.timeout.map(|span| span.0),
            webhook: self.webhook.clone(),
            max_lease: self.max_lease.map_or(plain.max_lease, |span| span.0),
            concurrency: self.concurrency(),
            max_per_key: self.max_per_key.map(NonZeroU32::get),
            rate: self.rate.map(|rate| StartRate {
                per_second: rate.per_second(),
                burst: self.burst.map_or(1, NonZeroU32::get),
            }),
            rate_per_key: self.rate_per_key.map(|rate| StartRate {
                per_second: rate.per_second(),
                burst: self.burst_per_key.map_or(1, NonZeroU32::get),
            }),
            on_error: self.on_error.unwrap_or_default(),
            on_fail: self.on_fail.unwrap_or_default(),
            keep: match self.retention {
                None => KeepJobs::AsService,
                Some(RetentionTime(None)) => KeepJobs::Forever,
                Some(RetentionTime(Some(time))) => KeepJobs::For(time),
            },
            log_bytes: self.max_log_bytes(plain.log_bytes)?,
        })
    }

    /// The commands and workers of the kind with this name.
    pub(super) fn commands(&self, name: &str) -> Vec<CommandLine<'_>> {
        let place = format!("kinds.{name}");
        let mut all = Vec::new();
        all.extend(words_of(place.clone(), self.command.as_deref(), false));
        all.extend(words_of(place.clone(), self.worker.as_deref(), true));
        for (step, handler) in [("split", &self.split), ("fan_in", &self.fan_in)] {
            let Some(handler) = handler else { continue };
            let place = format!("{place}.{step}");
            all.extend(words_of(place.clone(), handler.command.as_deref(), false));
            all.extend(words_of(place, handler.worker.as_deref(), true));
        }
        all
    }

    /// Maximum number of running subtasks: at most the number of workers, because more would only
    /// hold slots. With a lease each server has that number of workers.
    fn concurrency(&self) -> Option<usize> {
        let concurrency = self.concurrency.map(SlotCount::get);
        if self.lease.is_some() {
            return concurrency.map(NonZeroUsize::get);
        }
        let workers = self.workers.or(concurrency).map_or(1, NonZeroUsize::get);
        let workers = self.worker.is_some().then_some(workers);
        let said = concurrency.map(NonZeroUsize::get);
        said.into_iter().chain(workers).min()
    }

    fn check_times(&self) -> anyhow::Result<()> {
        if self.lease.is_some_and(|lasts| lasts.0.is_zero()) {
            bail!("`lease` is the duration of a lease; write a duration such as 30s");
        }
        if self.max_lease.is_some() && self.lease.is_none() {
            bail!("`max_lease` bounds a `lease`: add `lease`, or leave it out");
        }
        if let (Some(max), Some(lasts)) = (self.max_lease, self.lease)
            && max.0 < lasts.0
        {
            bail!("`max_lease` is shorter than `lease`: write a longer one, such as 12h");
        }
        if self.timeout.is_some_and(|timeout| timeout.0.is_zero()) {
            bail!(
                "`timeout` is the maximum duration of an attempt: write one such as 5m, or leave it out"
            );
        }
        Ok(())
    }

    /// Maximum number of bytes of an attempt's log.
    fn max_log_bytes(&self, default: usize) -> anyhow::Result<usize> {
        let Some(size) = self.max_log_bytes else { return Ok(default) };
        let steps = [&self.split, &self.fan_in].into_iter().flatten();
        let commands = steps.map(|step| &step.command).chain([&self.command]);
        if self.lease.is_none() && commands.flatten().next().is_none() {
            bail!("`max_log_bytes` is for a `command` or a `lease`: leave it out");
        }
        let bytes = usize::try_from(size.0).ok().filter(|bytes| *bytes <= AttemptOutput::MAX_BYTES);
        bytes.with_context(|| {
            format!("`max_log_bytes` is at most {} bytes of each attempt", AttemptOutput::MAX_BYTES)
        })
    }
}

impl HandlerConfig {
    /// Handler, if one is set; a worker has `concurrency` processes by default.
    fn handler(
        &self,
        concurrency: Option<NonZeroUsize>,
    ) -> anyhow::Result<Option<Arc<dyn Handler>>> {
        self.check_one()?;
        if let Some(address) = &self.http {
            self.refuse_meaningless("a request starts no process here")?;
            return Ok(Some(Arc::new(HttpHandler::new(address)?)));
        }
        if let Some(words) = &self.worker {
            let workers = WorkerHandler::new(
                self.process(words)?,
                self.workers.or(concurrency).map_or(1, NonZeroUsize::get),
                self.max_tasks_per_worker.map(NonZeroU64::get),
            );
            return Ok(Some(Arc::new(workers)));
        }
        let Some(words) = &self.command else { return Ok(None) };
        self.refuse_workers()?;
        Ok(Some(Arc::new(self.process(words)?)))
    }

    /// Refuses a kind with more than one handler.
    fn check_one(&self) -> anyhow::Result<()> {
        let all = [
            (self.command.is_some(), "`command`"),
            (self.worker.is_some(), "`worker`"),
            (self.http.is_some(), "`http`"),
        ];
        let set: Vec<_> = all.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect();
        match set.len() {
            0 | 1 => Ok(()),
            _ => bail!("{} are set; keep one of them", set.join(" and ")),
        }
    }

    /// Refuses process settings without a process: their limits would have no effect.
    fn refuse_meaningless(&self, why: &str) -> anyhow::Result<()> {
        let limits = self.limits != LimitsTable::default();
        for (is_set, name) in [(self.env.is_some(), "env"), (limits, "limits")] {
            if is_set {
                bail!("`{name}` is for a `command` or a `worker`, and {why}: leave it out");
            }
        }
        self.refuse_workers()
    }

    fn refuse_workers(&self) -> anyhow::Result<()> {
        let both = [
            (self.workers.is_some(), "workers"),
            (self.max_tasks_per_worker.is_some(), "max_tasks_per_worker"),
        ];
        for (is_set, name) in both {
            if is_set {
                bail!("`{name}` is for a `worker`: name one, or leave it out");
            }
        }
        Ok(())
    }

    fn process(&self, words: &[String]) -> anyhow::Result<CommandHandler> {
        if words.first().is_none_or(String::is_empty) {
            bail!("a command has a program: write command = [\"./handle\", \"--fast\"]");
        }
        let command = CommandHandler::new(words).limits(ProcessLimits {
            memory_bytes: self.limits.memory.map(|size| size.0),
            cpu_seconds: self.limits.cpu.map(|span| span.0.as_secs().max(1)),
            open_files: self.limits.files,
            file_bytes: self.limits.file_size.map(|size| size.0),
        });
        Ok(match &self.env {
            Some(names) if names.iter().any(|name| name == "*") => command.inherit_environment(),
            Some(names) => command.environment(names.iter().map(OsString::from)),
            None => command,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> Result<Kind, String> {
        let table: KindTable = toml::from_str(text).unwrap();
        table.kind().map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn settings_without_effect_are_refused_with_the_remedy() {
        let of_kinds = |text: &str| kind(text).map(drop);
        let (lease, http) = ("lease = \"1s\"", "http = \"http://localhost:1/\"");
        let (command, worker) = ("command = [\"a\"]", "worker = [\"a\"]");
        for (text, said) in [
            (format!("{command}\nburst = 5"), ["`burst`", "add `rate`"]),
            (format!("{lease}\nburst = 5"), ["`burst`", "add `rate`"]),
            (format!("{lease}\nburst_per_key = 5"), ["`burst_per_key`", "add `rate_per_key`"]),
            (format!("{lease}\nmax_per_key = 257"), ["`max_per_key`", "from 1 to 256"]),
            (format!("{command}\nmax_lease = \"1h\""), ["`max_lease`", "add `lease`"]),
            ("lease = \"30s\"\nmax_lease = \"9s\"".into(), ["`max_lease`", "12h"]),
            (format!("{command}\ntimeout = \"0s\""), ["`timeout`", "such as 5m"]),
            ("lease = \"0s\"".to_owned(), ["`lease`", "such as 30s"]),
            (format!("{lease}\nenv = [\"PATH\"]"), ["`env`", "elsewhere"]),
            (format!("{lease}\nlimits = {{ files = 9 }}"), ["`limits`", "leave it out"]),
            (format!("{http}\nenv = []"), ["`env`", "leave it out"]),
            (format!("{http}\nlimits = {{ cpu = \"1s\" }}"), ["`limits`", "no process"]),
            (format!("{command}\nworkers = 2"), ["`workers`", "for a `worker`"]),
            (format!("{http}\nmax_log_bytes = \"8K\""), ["`max_log_bytes`", "leave it out"]),
            (format!("{worker}\nmax_log_bytes = \"8K\""), ["`max_log_bytes`", "leave it out"]),
            (format!("{http}\nmax_tasks_per_worker = 2"), ["`max_tasks_per_worker`", "leave"]),
            (
                format!("{lease}\nfan_in = {{ http = \"http://a/\", env = [] }}"),
                ["fan_in: `env`", "leave it out"],
            ),
        ] {
            let refused = of_kinds(&text).unwrap_err();
            assert!(said.iter().all(|part| refused.contains(part)), "{text}: {refused}");
        }
        for text in [
            format!("{command}\nrate = \"1/s\"\nburst = 5\nenv = []\nlimits = {{ files = 9 }}"),
            format!("{worker}\nworkers = 2\nmax_tasks_per_worker = 5\nconcurrency = 3\nenv = []"),
            format!("{http}\nmax_log_bytes = \"8K\"\nfan_in = {{ command = [\"a\"] }}"),
            format!("{lease}\ntimeout = \"10s\"\nmax_lease = \"1h\""),
            format!("{lease}\n{command}\nmax_lease = \"1h\"\nenv = []\nmax_log_bytes = \"8K\""),
            format!("{lease}\n{worker}\nworkers = 2"),
            format!("{lease}\n{http}"),
            format!(
                "{lease}\nmax_log_bytes = \"0\"\nconcurrency = 3\ntimeout = \"1s\"\nfan_in = {{ command = [\"a\"], env = [] }}"
            ),
        ] {
            assert_eq!(of_kinds(&text), Ok(()), "{text}");
        }
    }

    #[test]
    fn a_command_is_a_list_of_words() {
        for text in ["command = \"cat x\"", "worker = \"cat\"", "split = { command = \"cat\" }"] {
            let refused = toml::from_str::<KindTable>(text).unwrap_err().to_string();
            assert!(refused.contains("expected a list of words, such as [\"./"), "{refused}");
        }
    }

    #[test]
    fn no_more_tasks_run_at_once_than_there_are_workers() {
        let concurrency = |text: &str| kind(text).unwrap().concurrency;
        let worker = "worker = [\"a\"]";
        for (text, wanted) in [
            (worker.to_owned(), Some(1)),
            (format!("{worker}\nlease = \"9s\"\nworkers = 2"), None),
            (format!("{worker}\nlease = \"9s\"\nworkers = 2\nconcurrency = 8"), Some(8)),
            (format!("{worker}\nworkers = 2"), Some(2)),
            (format!("{worker}\nconcurrency = 3"), Some(3)),
            (format!("{worker}\nworkers = 2\nconcurrency = 8"), Some(2)),
            (format!("{worker}\nworkers = 8\nconcurrency = 2"), Some(2)),
            ("command = [\"a\"]".to_owned(), None),
        ] {
            assert_eq!(concurrency(&text), wanted, "{text}");
        }
    }
}
