//! Configuration file of `keylane serve`: every setting, its default, and errors by the setting's
//! name.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use keylane_service::handle::{
    AttemptOutput, CommandHandler, Handler, HttpHandler, ProcessLimits, WorkerHandler,
};
use keylane_service::http::{TlsIdentity, Tokens};
use keylane_service::wire::{OnError, OnFail};
use keylane_service::{
    BackupSchedule, BuildInfo, KeepJobs, Kind, KindExecutor, ServiceSettings, StartRate,
    SubmissionLimits, Tenants, WebhookSettings, http,
};
use keylane_stream::retry::Backoff;
use serde::Deserialize;

use super::check::CommandLine;
use super::kind_arg::KindArg;
use super::old_names;
use super::rate_text::RateText;
use super::slot_count::SlotCount;
use super::tenant_table::{self, TenantTables, UnknownTenants};
use super::webhook_table::WebhookTable;
use crate::duration_arg::DurationArg;
use crate::features;
use crate::message::say;
use crate::renamed::file;

/// The whole file.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(super) struct Config {
    server: ServerTable,
    kinds: BTreeMap<String, KindTable>,
    tenants: TenantTables,
    webhooks: WebhookTable,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ServerTable {
    listen: Option<SocketAddr>,
    store: Option<PathBuf>,
    slots: Option<SlotCount>,
    order: Option<JobOrder>,
    priority_ageing: Option<DurationArg>,
    unknown_tenants: UnknownTenants,
    tokens: Option<PathBuf>,
    tls_certificates: Option<PathBuf>,
    tls_key: Option<PathBuf>,
    hosts: Vec<String>,
    read_only: bool,
    environment: Option<String>,
    retention: Option<RetentionTime>,
    audit_retention: Option<RetentionTime>,
    max_audit_entries: Option<NonZeroU64>,
    max_connections: Option<NonZeroUsize>,
    max_websockets: Option<usize>,
    max_event_streams: Option<usize>,
    max_connections_per_client: Option<NonZeroUsize>,
    max_body_bytes: Option<ByteSize>,
    body_timeout: Option<DurationArg>,
    max_payload_bytes: Option<ByteSize>,
    max_subtasks_per_job: Option<NonZeroU32>,
    max_waiting_subtasks: Option<NonZeroU64>,
    max_key_bytes: Option<ByteSize>,
    max_store_bytes: Option<ByteSize>,
    backup_folder: Option<PathBuf>,
    backup_interval: Option<BackupInterval>,
    max_backups: Option<NonZeroUsize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum JobOrder {
    Arrival,
    Balanced,
    Shortest,
}

/// Handler of a kind or a step: exactly one of these settings.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct HandlerConfig {
    command: Option<Vec<String>>,
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
    command: Option<Vec<String>>,
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
    webhook: Option<String>,
    split: Option<HandlerConfig>,
    fan_in: Option<HandlerConfig>,
}

/// Retention time of jobs: a duration, also in days, or `forever`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct RetentionTime(Option<Duration>);

impl TryFrom<String> for RetentionTime {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        if text == "forever" {
            return Ok(RetentionTime(None));
        }
        if let Some(days) = text.strip_suffix('d').and_then(|days| days.parse::<u32>().ok()) {
            return Ok(RetentionTime(Some(Duration::from_secs(u64::from(days) * 24 * 3600))));
        }
        let span: DurationArg = text
            .parse()
            .map_err(|_| format!("`{text}` is no time to keep jobs; write 12h, 7d or forever"))?;
        Ok(RetentionTime(Some(span.0)))
    }
}

/// Time between two scheduled backups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct BackupInterval(Duration);

impl TryFrom<String> for BackupInterval {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match RetentionTime::try_from(text.clone()) {
            Ok(RetentionTime(Some(interval))) if interval >= Duration::from_secs(60) => {
                Ok(BackupInterval(interval))
            }
            _ => Err(format!(
                "`{text}` is no time between backups; write 1m or longer, such as 6h or 1d"
            )),
        }
    }
}

/// Time between two backups, and their number, if only the folder is set.
const BACKUP_INTERVAL: Duration = Duration::from_secs(24 * 3600);
const MAX_BACKUPS: NonZeroUsize = NonZeroUsize::new(7).unwrap();

/// A number of bytes, as in `512M`: with K, M or G for 2¹⁰, 2²⁰ or 2³⁰.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct ByteSize(u64);

impl TryFrom<String> for ByteSize {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let digits = text.trim_end_matches(|letter: char| letter.is_ascii_alphabetic());
        let shift = match &text[digits.len()..] {
            "" => Some(0),
            "K" => Some(10),
            "M" => Some(20),
            "G" => Some(30),
            _ => None,
        };
        let count: Option<u64> = digits.parse().ok();
        let size = count.zip(shift).and_then(|(count, shift)| count.checked_mul(1 << shift));
        size.map(ByteSize)
            .ok_or_else(|| format!("`{text}` is no number of bytes; write 64K, 512M or 2G"))
    }
}

/// The first wait and the longest, as in `1s..1m`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(try_from = "String")]
struct BackoffRange(Duration, Duration);

impl TryFrom<String> for BackoffRange {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let wrong = || format!("`{text}` is no range of waits; write 1s..1m");
        let (first, longest) = text.split_once("..").ok_or_else(wrong)?;
        let first: DurationArg = first.parse().map_err(|_| wrong())?;
        let longest: DurationArg = longest.parse().map_err(|_| wrong())?;
        if longest.0 < first.0 {
            return Err(format!("in `{text}` the first wait is longer than the longest"));
        }
        Ok(BackoffRange(first.0, longest.0))
    }
}

impl Config {
    /// Reads and validates the file. Warns of old names in it.
    pub(super) fn read(path: &Path) -> anyhow::Result<Self> {
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read {}", path.display()))?;
        let parsed = file::parse(&text, old_names::TABLES);
        let (config, old) = parsed.with_context(|| format!("{} is not right", path.display()))?;
        old.iter().for_each(|old| say(old.warning(path)));
        Ok(config)
    }

    /// Adds a kind. Returns `false` if there is one with that name already.
    pub(super) fn add_kind(&mut self, kind: &KindArg) -> bool {
        let command = Some(kind.command.clone());
        let table = KindTable { command, ..KindTable::default() };
        let is_new = !self.kinds.contains_key(&kind.name);
        if is_new {
            self.kinds.insert(kind.name.clone(), table);
        }
        is_new
    }

    /// Replaces the address to listen at.
    pub(super) fn listen_at(&mut self, address: SocketAddr) {
        self.server.listen = Some(address);
    }

    /// Path of the store, if the configuration has one.
    pub(super) fn store(&self) -> Option<&Path> {
        self.server.store.as_deref()
    }

    /// Settings of the service; `store` is the store's path if the configuration has none.
    pub(super) fn settings(&self, store: &Path) -> ServiceSettings {
        let server = &self.server;
        let plain = ServiceSettings::new(server.store.clone().unwrap_or_else(|| store.to_owned()));
        let bounds = SubmissionLimits::default();
        let size = |size: Option<ByteSize>, default: usize| {
            size.map_or(default, |size| usize::try_from(size.0).unwrap_or(usize::MAX))
        };
        ServiceSettings {
            slots: server.slots.map_or(plain.slots, |slots| slots.get().get()),
            order: match server.order {
                None | Some(JobOrder::Arrival) => keylane::JobPolicy::Arrival,
                Some(JobOrder::Balanced) => keylane::JobPolicy::Balanced,
                Some(JobOrder::Shortest) => keylane::JobPolicy::Shortest,
            },
            bounds: SubmissionLimits {
                body_bytes: size(server.max_body_bytes, bounds.body_bytes),
                payload_bytes: size(server.max_payload_bytes, bounds.payload_bytes),
                job_subtasks: server
                    .max_subtasks_per_job
                    .map_or(bounds.job_subtasks, NonZeroU32::get),
                waiting_subtasks: server
                    .max_waiting_subtasks
                    .map_or(bounds.waiting_subtasks, NonZeroU64::get),
                waiting_key_bytes: server
                    .max_key_bytes
                    .map_or(bounds.waiting_key_bytes, |size| size.0),
            },
            priority_ageing: server
                .priority_ageing
                .map_or(plain.priority_ageing, |time| Some(time.0)),
            keep: server.retention.map_or(plain.keep, |keep| keep.0),
            keep_audit: server.audit_retention.map_or(plain.keep_audit, |keep| keep.0),
            max_audit: server.max_audit_entries.map_or(plain.max_audit, NonZeroU64::get),
            store: keylane_service::store::StoreSettings {
                max_bytes: server.max_store_bytes.map(|size| size.0),
                ..plain.store.clone()
            },
            build: BuildInfo {
                version: env!("CARGO_PKG_VERSION").into(),
                revision: features::REVISION.into(),
                features: features::names().into_iter().map(String::from).collect(),
            },
            ..plain
        }
    }

    /// Backups that the server makes by itself.
    ///
    /// # Errors
    /// If the settings are incomplete, or there is no such folder: it is not created, because the disk of
    /// the backups may not be mounted.
    pub(super) fn backups(&self) -> anyhow::Result<Option<BackupSchedule>> {
        let server = &self.server;
        let Some(folder) = &server.backup_folder else {
            if server.backup_interval.is_some() || server.max_backups.is_some() {
                bail!("server: `backup_interval` and `max_backups` need `backup_folder`");
            }
            return Ok(None);
        };
        if !folder.is_dir() {
            bail!("server: `backup_folder`: there is no folder {}; create it", folder.display());
        }
        Ok(Some(BackupSchedule {
            folder: folder.clone(),
            every: server.backup_interval.map_or(BACKUP_INTERVAL, |interval| interval.0),
            keep: server.max_backups.unwrap_or(MAX_BACKUPS),
        }))
    }

    /// Warns of settings that are allowed and dangerous.
    pub(super) fn warn(&self) {
        use std::os::unix::fs::PermissionsExt;
        let secrets = [
            ("the key of `tls_key`", &self.server.tls_key),
            ("the secrets of `secret_file`", &self.webhooks.secret_file),
        ];
        for (name, path) in secrets {
            let Some(path) = path else { continue };
            let mode = std::fs::metadata(path).map(|file| file.permissions().mode());
            if mode.is_ok_and(|mode| mode & 0o007 != 0) {
                tracing::warn!("other users may read {name}; run `chmod o= {}`", path.display());
            }
        }
    }

    /// Settings of webhooks, if there are secrets.
    pub(super) fn webhooks(&self) -> anyhow::Result<Option<WebhookSettings>> {
        let settings = self.webhooks.settings()?;
        let needing = self.kinds.iter().find(|(_, kind)| kind.webhook.is_some());
        match (&settings, needing) {
            (None, Some((name, _))) => {
                bail!("kinds.{name}: `webhook` needs `secret_file` in [webhooks], which signs it")
            }
            _ => Ok(settings),
        }
    }

    /// How it is to be served.
    pub(super) fn serving(&self) -> anyhow::Result<http::HttpSettings> {
        let server = &self.server;
        if server.body_timeout.is_some_and(|span| span.0.is_zero()) {
            bail!(
                "server: `body_timeout` is the maximum pause within a request's body: write one such as 2m"
            );
        }
        let plain = http::HttpSettings::default();
        let tokens = match &server.tokens {
            Some(path) => Tokens::read(path)?,
            None => Tokens::default(),
        };
        let tls = match (&server.tls_certificates, &server.tls_key) {
            (Some(certificates), Some(key)) => Some(TlsIdentity::read(certificates, key)?),
            (None, None) => None,
            _ => bail!("server: `tls_certificates` and `tls_key` go together"),
        };
        let settings = http::HttpSettings {
            listen: server.listen.unwrap_or(plain.listen),
            tokens,
            tls,
            hosts: server.hosts.clone(),
            read_only: server.read_only,
            environment: server.environment.clone(),
            max_connections: server
                .max_connections
                .map_or(plain.max_connections, NonZeroUsize::get),
            max_websockets: server.max_websockets.unwrap_or(plain.max_websockets),
            max_event_streams: server.max_event_streams.unwrap_or(plain.max_event_streams),
            max_connections_per_client: server.max_connections_per_client.map(NonZeroUsize::get),
            body_timeout: server.body_timeout.map_or(plain.body_timeout, |span| span.0),
            ..plain
        };
        settings.check().context("server")?;
        Ok(settings)
    }

    /// Maximum number of running subtasks.
    pub(super) fn slots(&self) -> usize {
        self.settings(Path::new("")).slots
    }

    /// The tenants of a server with this number of slots.
    pub(super) fn tenants(&self, slots: usize) -> anyhow::Result<Tenants> {
        tenant_table::tenants(&self.tenants, self.server.unknown_tenants, slots)
    }

    /// The kinds of jobs.
    pub(super) fn kinds(&self) -> anyhow::Result<Vec<(String, KindTable, Kind)>> {
        if self.kinds.is_empty() {
            bail!(
                "there is no kind of job: add a table such as [kinds.hello] with command = [\"cat\"]"
            );
        }
        let kind = |(name, table): (&'_ String, &KindTable)| {
            let kind = table.kind().with_context(|| format!("kinds.{name}"));
            kind.map(|kind| (name.clone(), table.clone(), kind))
        };
        self.kinds.iter().map(kind).collect()
    }

    /// All commands and workers.
    pub(super) fn commands(&self) -> Vec<CommandLine<'_>> {
        let mut all = Vec::new();
        for (name, table) in &self.kinds {
            let place = format!("kinds.{name}");
            all.extend(words_of(place.clone(), table.command.as_deref(), false));
            all.extend(words_of(place.clone(), table.worker.as_deref(), true));
            for (step, handler) in [("split", &table.split), ("fan_in", &table.fan_in)] {
                let Some(handler) = handler else { continue };
                let place = format!("{place}.{step}");
                all.extend(words_of(place.clone(), handler.command.as_deref(), false));
                all.extend(words_of(place, handler.worker.as_deref(), true));
            }
        }
        all
    }

    /// The settings in `[server]` in which another configuration differs and that a running server cannot change.
    pub(super) fn other_settings(&self, other: &Config) -> Vec<&'static str> {
        // All fields, so that a new one is not forgotten; a reload changes the last four.
        let ServerTable {
            listen,
            store,
            slots,
            order,
            priority_ageing,
            hosts,
            read_only,
            environment,
            retention,
            audit_retention,
            max_audit_entries,
            max_connections,
            max_websockets,
            max_event_streams,
            max_connections_per_client,
            max_body_bytes,
            body_timeout,
            max_payload_bytes,
            max_subtasks_per_job,
            max_waiting_subtasks,
            max_key_bytes,
            max_store_bytes,
            backup_folder,
            backup_interval,
            max_backups,
            unknown_tenants: _,
            tokens: _,
            tls_certificates: _,
            tls_key: _,
        } = &self.server;
        let other = &other.server;
        let all = [
            ("listen", *listen != other.listen),
            ("store", *store != other.store),
            ("slots", *slots != other.slots),
            ("order", *order != other.order),
            ("priority_ageing", *priority_ageing != other.priority_ageing),
            ("hosts", *hosts != other.hosts),
            ("read_only", *read_only != other.read_only),
            ("environment", *environment != other.environment),
            ("retention", *retention != other.retention),
            ("audit_retention", *audit_retention != other.audit_retention),
            ("max_audit_entries", *max_audit_entries != other.max_audit_entries),
            ("max_connections", *max_connections != other.max_connections),
            ("max_websockets", *max_websockets != other.max_websockets),
            ("max_event_streams", *max_event_streams != other.max_event_streams),
            (
                "max_connections_per_client",
                *max_connections_per_client != other.max_connections_per_client,
            ),
            ("max_body_bytes", *max_body_bytes != other.max_body_bytes),
            ("body_timeout", *body_timeout != other.body_timeout),
            ("max_payload_bytes", *max_payload_bytes != other.max_payload_bytes),
            ("max_subtasks_per_job", *max_subtasks_per_job != other.max_subtasks_per_job),
            ("max_waiting_subtasks", *max_waiting_subtasks != other.max_waiting_subtasks),
            ("max_key_bytes", *max_key_bytes != other.max_key_bytes),
            ("max_store_bytes", *max_store_bytes != other.max_store_bytes),
            ("backup_folder", *backup_folder != other.backup_folder),
            ("backup_interval", *backup_interval != other.backup_interval),
            ("max_backups", *max_backups != other.max_backups),
        ];
        all.into_iter().filter(|(_, differs)| *differs).map(|(name, _)| name).collect()
    }
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
    fn kind(&self) -> anyhow::Result<Kind> {
        let handler = HandlerConfig {
            command: self.command.clone(),
            worker: self.worker.clone(),
            workers: self.workers,
            max_tasks_per_worker: self.max_tasks_per_worker,
            http: self.http.clone(),
            env: self.env.clone(),
            limits: self.limits,
        };
        handler.check_one(self.lease.is_some())?;
        let work = match (self.lease, handler.handler(self.concurrency.map(SlotCount::get))?) {
            (Some(lasts), None) => {
                handler.refuse_meaningless("what takes the lease is elsewhere")?;
                KindExecutor::Lease { lasts: lasts.0 }
            }
            (None, Some(handler)) => KindExecutor::Handler(handler),
            (None, None) => {
                bail!("nothing does its work; set `command`, `worker`, `http` or `lease`")
            }
            (Some(_), Some(_)) => unreachable!("one was found to be set"),
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

    /// Maximum number of running subtasks: at most the number of workers, because more would only
    /// hold slots.
    fn concurrency(&self) -> Option<usize> {
        let concurrency = self.concurrency.map(SlotCount::get);
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
        self.check_one(false)?;
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
    fn check_one(&self, lease: bool) -> anyhow::Result<()> {
        let all = [
            (self.command.is_some(), "`command`"),
            (self.worker.is_some(), "`worker`"),
            (self.http.is_some(), "`http`"),
            (lease, "`lease`"),
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

/// The path of the store, for commands that need no kinds.
pub(super) fn store_path(config: Option<&Path>, store: &Path) -> anyhow::Result<PathBuf> {
    Ok(match config {
        Some(config) => Config::read(config)?.settings(store).path,
        None => store.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Fuzz target: a configuration that is read is TOML, and a key that is not known is refused by its name.
    fn settings_of(input: &[u8]) {
        let Ok(text) = std::str::from_utf8(input) else { return };
        // A byte order mark counts only at the begin.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        match file::parse::<Config>(text, old_names::TABLES) {
            Ok(_) => {
                assert!(toml::from_str::<toml::Table>(text).is_ok());
                let wrong = format!("zz_unknown = 1\n{text}");
                let refused =
                    file::parse::<Config>(&wrong, old_names::TABLES).expect_err("an unknown key");
                assert!(refused.to_string().contains("zz_unknown"), "{refused}");
            }
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }

    #[test]
    fn mutated_files_are_read_or_refused() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus/serve_config");
        keylane_testkit::fuzz::run(folder, settings_of);
    }

    fn config(text: &str) -> Result<Config, String> {
        toml::from_str(text).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_with_everything_is_read() {
        let config = config(
            r#"
            [server]
            listen = "127.0.0.1:0"
            store = "tasks.db"
            slots = 8
            order = "balanced"
            retention = "30d"
            audit_retention = "forever"
            max_audit_entries = 5000
            max_payload_bytes = "64K"

            [kinds.resize]
            command = ["./resize", "--fast"]
            attempts = 3
            backoff = "100ms..10s"
            timeout = "5m"
            concurrency = 4
            rate = "30/m"
            on_fail = "stop_key"
            max_log_bytes = "64K"
            limits = { memory = "512M", cpu = "60s", files = 256 }
            env = ["PATH"]
            split = { command = ["./split"] }
            fan_in = { http = "http://localhost:1/sum" }

            [kinds.remote]
            lease = "30s"
            "#,
        )
        .unwrap();
        let settings = config.settings(Path::new("other"));
        assert_eq!((settings.slots, settings.bounds.payload_bytes), (8, 64 * 1024));
        assert_eq!(settings.path, Path::new("tasks.db"));
        assert_eq!(settings.keep, Some(Duration::from_secs(30 * 24 * 3600)));
        assert_eq!((settings.keep_audit, settings.max_audit), (None, 5000));
        assert!(settings.build.features.contains(&"service".to_owned()));
        let kinds = config.kinds().unwrap();
        let names: Vec<_> =
            kinds.iter().map(|(name, _, kind)| (name.as_str(), kind.sort())).collect();
        assert_eq!(names, [("remote", "lease"), ("resize", "command")]);
        let resize = &kinds[1].2;
        assert!(resize.split.is_some() && resize.fan_in.is_some());
        assert_eq!(resize.rate.unwrap().per_second, 0.5);
        assert_eq!(resize.backoff.max, Duration::from_secs(10));
        assert_eq!((resize.log_bytes, kinds[0].2.log_bytes), (64 * 1024, 8 * 1024));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let of_file = |text: &str| config(text).unwrap_err();
        assert!(of_file("[server]\nslot = 3").contains("slot"));
        assert!(of_file("[kinds.a]\nrate = \"fast\"").contains("100/s"));
        assert!(of_file("[kinds.a]\nbackoff = \"1m..1s\"").contains("longer than the longest"));
        assert!(of_file("[server]\nretention = \"a while\"").contains("forever"));
        for line in ["[server]\nslots = 0", "[kinds.a]\nattempts = 0", "[kinds.a]\nconcurrency = 0"]
        {
            let refused = of_file(line);
            let rule = ["nonzero", "a number from 1 on"].iter().any(|rule| refused.contains(rule));
            assert!(refused.contains("line 2") && rule, "{refused}");
        }
        let of_kinds = |text: &str| format!("{:#}", config(text).unwrap().kinds().unwrap_err());
        assert!(of_kinds("").contains("there is no kind"));
        assert!(of_kinds("[kinds.a]").contains("kinds.a: nothing does its work"));
        let two = of_kinds("[kinds.a]\ncommand = [\"a\"]\nlease = \"1s\"");
        assert!(two.contains("`command` and `lease` are set; keep one"), "{two}");
        assert!(of_kinds("[kinds.a]\ncommand = []").contains("a program"));
        assert!(of_kinds("[kinds.a]\nhttp = \"ftp://a\"").contains("not http"));
        assert!(of_kinds("[kinds.a]\ncommand = [\"a\"]\nsplit = {}").contains("split"));
        let large = of_kinds("[kinds.a]\ncommand = [\"a\"]\nmax_log_bytes = \"257K\"");
        assert!(large.contains("262144"), "{large}");
    }

    #[test]
    fn settings_without_effect_are_refused_with_their_place() {
        let of_kinds = |text: &str| {
            let kinds = config(&format!("[kinds.a]\n{text}\n")).unwrap();
            kinds.kinds().map(drop).map_err(|error| format!("{error:#}"))
        };
        let (lease, http) = ("lease = \"1s\"", "http = \"http://localhost:1/\"");
        let (command, worker) = ("command = [\"a\"]", "worker = [\"a\"]");
        for (text, said) in [
            (format!("{command}\nburst = 5"), ["kinds.a: `burst`", "add `rate`"]),
            (format!("{lease}\nburst = 5"), ["kinds.a: `burst`", "add `rate`"]),
            (
                format!("{lease}\nburst_per_key = 5"),
                ["kinds.a: `burst_per_key`", "add `rate_per_key`"],
            ),
            (format!("{lease}\nmax_per_key = 257"), ["kinds.a: `max_per_key`", "from 1 to 256"]),
            (format!("{command}\nmax_lease = \"1h\""), ["kinds.a: `max_lease`", "add `lease`"]),
            ("lease = \"30s\"\nmax_lease = \"9s\"".into(), ["kinds.a: `max_lease`", "12h"]),
            (format!("{command}\ntimeout = \"0s\""), ["kinds.a: `timeout`", "such as 5m"]),
            ("lease = \"0s\"".to_owned(), ["kinds.a: `lease`", "such as 30s"]),
            (format!("{lease}\nenv = [\"PATH\"]"), ["kinds.a: `env`", "elsewhere"]),
            (format!("{lease}\nlimits = {{ files = 9 }}"), ["kinds.a: `limits`", "leave it out"]),
            (format!("{http}\nenv = []"), ["kinds.a: `env`", "leave it out"]),
            (format!("{http}\nlimits = {{ cpu = \"1s\" }}"), ["kinds.a: `limits`", "no process"]),
            (format!("{command}\nworkers = 2"), ["kinds.a: `workers`", "for a `worker`"]),
            (
                format!("{http}\nmax_log_bytes = \"8K\""),
                ["kinds.a: `max_log_bytes`", "leave it out"],
            ),
            (
                format!("{worker}\nmax_log_bytes = \"8K\""),
                ["kinds.a: `max_log_bytes`", "leave it out"],
            ),
            (
                format!("{http}\nmax_tasks_per_worker = 2"),
                ["kinds.a: `max_tasks_per_worker`", "leave"],
            ),
            (
                format!("{lease}\nfan_in = {{ http = \"http://a/\", env = [] }}"),
                ["kinds.a: fan_in: `env`", "leave it out"],
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
            format!(
                "{lease}\nmax_log_bytes = \"0\"\nconcurrency = 3\ntimeout = \"1s\"\nfan_in = {{ command = [\"a\"], env = [] }}"
            ),
        ] {
            assert_eq!(of_kinds(&text), Ok(()), "{text}");
        }
    }

    #[test]
    fn no_more_tasks_run_at_once_than_there_are_workers() {
        let concurrency = |text: &str| {
            let kinds = config(&format!("[kinds.a]\n{text}\n")).unwrap();
            kinds.kinds().unwrap()[0].2.concurrency
        };
        let worker = "worker = [\"a\"]";
        for (text, wanted) in [
            (worker.to_owned(), Some(1)),
            (format!("{worker}\nworkers = 2"), Some(2)),
            (format!("{worker}\nconcurrency = 3"), Some(3)),
            (format!("{worker}\nworkers = 2\nconcurrency = 8"), Some(2)),
            (format!("{worker}\nworkers = 8\nconcurrency = 2"), Some(2)),
            ("command = [\"a\"]".to_owned(), None),
        ] {
            assert_eq!(concurrency(&text), wanted, "{text}");
        }
    }

    #[test]
    fn a_body_may_pause_for_as_long_as_is_said() {
        let pause = |text: &str| {
            let serving = config(&format!("[server]\n{text}\n")).unwrap().serving();
            serving.map(|settings| settings.body_timeout).map_err(|error| error.to_string())
        };
        assert_eq!(pause(""), Ok(http::HttpSettings::default().body_timeout));
        assert_eq!(pause("body_timeout = \"30s\""), Ok(Duration::from_secs(30)));
        assert!(pause("body_timeout = \"0s\"").unwrap_err().contains("maximum pause"));
    }
}
