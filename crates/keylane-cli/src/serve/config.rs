//! Configuration file of `keylane serve`: every setting, its default, and errors by the setting's
//! name.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::{NonZeroU32, NonZeroU64, NonZeroUsize};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, bail};
use keylane_service::http::{TlsIdentity, Tokens};
use keylane_service::{
    BackupSchedule, BuildInfo, Kind, NodeAddress, ServiceSettings, SubmissionLimits, Tenants,
    TraceSettings, WebhookSettings, http,
};
use serde::Deserialize;

use super::check::{self, CommandLine};
use super::data_folder::data_folder;
use super::kind_arg::KindArg;
use super::kind_table::KindTable;
use super::old_names;
use super::slot_count::SlotCount;
use super::store_place::StorePlace;
use super::tenant_table::{self, TenantTables, UnknownTenants};
use super::trace_table::TraceTable;
use super::value_types::{BackupInterval, ByteSize, RetentionTime};
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
    traces: TraceTable,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ServerTable {
    listen: Option<SocketAddr>,
    store: Option<PathBuf>,
    data_folder: Option<PathBuf>,
    node_address: Option<String>,
    slots: Option<SlotCount>,
    slots_per_server: Option<SlotCount>,
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
    history: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum JobOrder {
    Arrival,
    Balanced,
    Shortest,
}

/// Time between two backups, and their number, if only the folder is set.
const BACKUP_INTERVAL: Duration = Duration::from_secs(24 * 3600);
const MAX_BACKUPS: NonZeroUsize = NonZeroUsize::new(7).unwrap();

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
        let table = KindTable::of_command(kind.command.clone());
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

    /// Address at which the other servers of the database reach this one, if it is given.
    ///
    /// # Errors
    /// If it is none.
    pub(super) fn node_address(&self) -> anyhow::Result<Option<NodeAddress>> {
        let address = self.server.node_address.as_deref().map(str::parse).transpose();
        address.context("server: node_address")
    }

    /// Folder of the server's own files, if the configuration has one, or else `given`.
    pub(super) fn data_folder<'a>(&'a self, given: Option<&'a Path>) -> Option<&'a Path> {
        self.server.data_folder.as_deref().or(given)
    }

    /// Settings of the service with a store at this place.
    pub(super) fn settings(&self, store: &StorePlace) -> ServiceSettings {
        let server = &self.server;
        let plain = ServiceSettings::new(store.path.clone());
        let bounds = SubmissionLimits::default();
        let size = |size: Option<ByteSize>, default: usize| {
            size.map_or(default, |size| usize::try_from(size.0).unwrap_or(usize::MAX))
        };
        ServiceSettings {
            slots: self.slots(),
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
            keeps_history: server.history.unwrap_or(true),
            store: store.settings(keylane_service::store::StoreSettings {
                max_bytes: server.max_store_bytes.map(|size| size.0),
                ..plain.store.clone()
            }),
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

    /// Warns of programs that are missing now, and of settings that are allowed and dangerous.
    pub(super) fn warn(&self) {
        use std::os::unix::fs::PermissionsExt;
        let secrets = [
            ("the key of `tls_key`", &self.server.tls_key),
            ("the secrets of `secret_file`", &self.webhooks.secret_file),
            ("the headers of `header_file`", &self.traces.header_file),
        ];
        for (name, path) in secrets {
            let Some(path) = path else { continue };
            let mode = std::fs::metadata(path).map(|file| file.permissions().mode());
            if mode.is_ok_and(|mode| mode & 0o007 != 0) {
                tracing::warn!("other users may read {name}; run `chmod o= {}`", path.display());
            }
        }
        for text in check::all_unrunnable(&self.commands()) {
            tracing::warn!("{text}; attempts fail until the program is there");
        }
    }

    /// Settings of spans, if there is a collector.
    pub(super) fn traces(&self) -> anyhow::Result<Option<TraceSettings>> {
        self.traces.settings()
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
        let slots = self.server.slots.map(|slots| slots.get().get());
        slots.unwrap_or_else(|| ServiceSettings::new("").slots)
    }

    /// Maximum number of leased subtasks that this server runs at the same time.
    pub(super) fn slots_per_server(&self) -> usize {
        self.server.slots_per_server.map_or_else(|| self.slots(), |slots| slots.get().get())
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
        self.kinds.iter().flat_map(|(name, table)| table.commands(name)).collect()
    }

    /// The settings in which another configuration differs and that a running server cannot change.
    pub(super) fn other_settings(&self, other: &Config) -> Vec<String> {
        // All fields, so that a new one is not forgotten; a reload changes the last four.
        let ServerTable {
            listen,
            store,
            data_folder,
            node_address,
            slots,
            slots_per_server,
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
            history,
            unknown_tenants: _,
            tokens: _,
            tls_certificates: _,
            tls_key: _,
        } = &self.server;
        let has_other_traces = self.traces != other.traces;
        let other = &other.server;
        let all = [
            ("listen", *listen != other.listen),
            ("store", *store != other.store),
            ("data_folder", *data_folder != other.data_folder),
            ("node_address", *node_address != other.node_address),
            ("slots", *slots != other.slots),
            ("slots_per_server", *slots_per_server != other.slots_per_server),
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
            ("history", *history != other.history),
        ];
        let differing = all.into_iter().filter(|(_, differs)| *differs);
        let names = differing.map(|(name, _)| format!("`{name}` in [server]"));
        names.chain(has_other_traces.then(|| "[traces]".to_owned())).collect()
    }
}

/// Place of the store in a configuration, or the given one without it.
pub(super) fn place_of_store(config: Option<&Path>, store: &Path) -> anyhow::Result<StorePlace> {
    let config = config.map(Config::read).transpose()?;
    let store = config.as_ref().and_then(Config::store).unwrap_or(store);
    StorePlace::read(store, || {
        let folder = config.as_ref().and_then(|config| config.data_folder(None));
        folder.map_or_else(data_folder, |folder| Ok(folder.to_owned()))
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
        let place = StorePlace::read(config.store().unwrap(), || unreachable!()).unwrap();
        let settings = config.settings(&place);
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
        let two = of_kinds("[kinds.a]\ncommand = [\"a\"]\nhttp = \"http://a/\"");
        assert!(two.contains("`command` and `http` are set; keep one"), "{two}");
        assert!(of_kinds("[kinds.a]\ncommand = []").contains("a program"));
        let step = "[kinds.a]\nlease = \"1s\"\nfan_in = { http = \"http://a/\", env = [] }";
        assert!(of_kinds(step).contains("kinds.a: fan_in: `env`"));
        assert!(of_kinds("[kinds.a]\nhttp = \"ftp://a\"").contains("not http"));
        assert!(of_kinds("[kinds.a]\ncommand = [\"a\"]\nsplit = {}").contains("split"));
        let large = of_kinds("[kinds.a]\ncommand = [\"a\"]\nmax_log_bytes = \"257K\"");
        assert!(large.contains("262144"), "{large}");
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
