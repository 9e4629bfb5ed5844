//! Address of a PostgreSQL database, in the form that its own tools accept.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use reqwest::Url;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use super::password_file;
use super::tls::Verification;
use crate::node::Node;

/// Port without another one in the address.
const PORT: u16 = 5432;

/// Time for one attempt to connect, unless the address has `connect_timeout`.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// Database of a store, with the credentials for it.
///
/// It is read from an address such as `postgres://user@host:5432/database?sslmode=verify-full`. The parameters are
/// those of libpq; `sslmode` and `sslrootcert` decide about TLS as there. Of several hosts, `postgres://user@host1,host2:5433/database`, the
/// first one is used that can be written, so a standby may be named that is promoted later. Without a password in the address, the variable
/// `PGPASSWORD` has it, or the file that `passfile`, or the variable `PGPASSFILE`, names: by default `~/.pgpass`.
///
/// # Examples
/// ```
/// use keylane_service::store::PostgresSettings;
///
/// let settings: PostgresSettings = "postgres://ann:secret@db.example/jobs?sslmode=require".parse()?;
/// // Without the password.
/// assert_eq!(settings.to_string(), "postgres://ann@db.example/jobs");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct PostgresSettings {
    pub(super) config: Config,
    pub(super) verification: Verification,
    /// File with the authorities that sign the certificate of the server.
    pub(super) root_certificate: Option<PathBuf>,
    /// Whether opening the store waits for a server that does not answer, and for the end of another owner.
    pub(super) waits: bool,
    /// Node that opens the store, if the others shall reach it.
    pub(super) node: Option<Node>,
    /// Address without a password.
    shown: String,
}

/// Error in the address of a database.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct PostgresUrlError {
    why: String,
}

impl PostgresSettings {
    /// Returns whether a text is the address of a database, and not a path.
    #[must_use]
    pub fn is_address(text: &str) -> bool {
        text.starts_with("postgres://") || text.starts_with("postgresql://")
    }

    /// Makes opening the store fail if the server does not answer, or another node owns the store. By default it waits
    /// for the one and the other.
    #[must_use]
    pub fn without_waits(self) -> Self {
        PostgresSettings { waits: false, ..self }
    }

    /// Announces this server to the others that share the store, so that they forward requests to it while it owns the store,
    /// and it to them.
    #[must_use]
    pub fn of_node(self, node: Node) -> Self {
        PostgresSettings { node: Some(node), ..self }
    }

    /// Returns the host and port of each server that is reached by TCP, in the order of the address.
    #[must_use]
    pub fn hosts(&self) -> Vec<(String, u16)> {
        let by_tcp = |(host, port): (&Host, u16)| match host {
            Host::Tcp(name) => Some((name.clone(), port)),
            Host::Unix(_) => None,
        };
        hosts_of(&self.config).into_iter().filter_map(by_tcp).collect()
    }
}

impl FromStr for PostgresSettings {
    type Err = PostgresUrlError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if !PostgresSettings::is_address(text) {
            return Err(wrong("the address of a database begins with `postgres://`".into()));
        }
        // The URL library knows only one host.
        let (base, query) = text.split_once('?').unwrap_or((text, ""));
        let mut rest = Url::parse("postgres://host").expect("it is an address");
        let pairs = Url::parse(&format!("postgres://host?{query}"))
            .map_err(|error| wrong(format!("the address: {error}")))?;
        let (mut mode, mut root, mut file) = (variable("PGSSLMODE"), None, None);
        root = root.or_else(|| variable("PGSSLROOTCERT"));
        for (name, value) in pairs.query_pairs() {
            match &*name {
                "sslmode" => mode = Some(value.into_owned()),
                "sslrootcert" => root = Some(value.into_owned()),
                "passfile" => file = Some(value.into_owned()),
                "target_session_attrs" => check_session(&value)?,
                // Its reader takes a list of hosts only in front of the database.
                "host" => {
                    let hosts = value.split(',').map(|host| ("host", host));
                    rest.query_pairs_mut().extend_pairs(hosts);
                }
                _ => drop(rest.query_pairs_mut().append_pair(&name, &value)),
            }
        }
        let rest = format!("{base}?{}", rest.query().unwrap_or_default());
        let mut config: Config = rest.parse().map_err(|error| {
            // Its source names the parameter.
            let source = std::error::Error::source(&error).map(|source| format!(": {source}"));
            wrong(format!("the address: {error}{}", source.unwrap_or_default()))
        })?;
        if config.get_hosts().is_empty() {
            return Err(wrong("the address names no host: postgres://HOST/DATABASE".into()));
        }
        if config.get_hosts().len() > 1 {
            config.target_session_attrs(TargetSessionAttrs::ReadWrite);
        }
        let (ssl_mode, verification) = tls_of(mode.as_deref(), root.is_some())?;
        config.ssl_mode(ssl_mode);
        if config.get_connect_timeout().is_none() {
            config.connect_timeout(CONNECT_TIMEOUT);
        }
        if config.get_application_name().is_none() {
            config.application_name("keylane");
        }
        if config.get_password().is_none()
            && let Some(password) = password(&config, file.map(PathBuf::from))?
        {
            config.password(password);
        }
        Ok(PostgresSettings {
            config,
            verification,
            root_certificate: root.map(PathBuf::from),
            waits: true,
            node: None,
            shown: without_password(base),
        })
    }
}

/// Returns the hosts with their ports. A single port is that of all hosts.
fn hosts_of(config: &Config) -> Vec<(&Host, u16)> {
    let ports = config.get_ports();
    let port = |at: usize| ports.get(at).or(ports.first()).copied().unwrap_or(PORT);
    config.get_hosts().iter().enumerate().map(|(at, host)| (host, port(at))).collect()
}

/// Returns an error if libpq's `target_session_attrs` asks for a server that cannot be written.
fn check_session(wanted: &str) -> Result<(), PostgresUrlError> {
    match wanted {
        "any" | "read-write" | "primary" => Ok(()),
        other => Err(wrong(format!(
            "target_session_attrs={other}: must be read-write, primary or any, because a store is written"
        ))),
    }
}

/// Returns an address, which has no parameters, without its password, also if that has characters that it may not have.
fn without_password(address: &str) -> String {
    match address.split_once("://").map(|(scheme, rest)| (scheme, rest.rsplit_once('@'))) {
        Some((scheme, Some((user, hosts)))) => {
            format!("{scheme}://{}@{hosts}", user.split(':').next().unwrap_or_default())
        }
        _ => address.to_owned(),
    }
}

/// Returns the meaning of libpq's `sslmode`.
fn tls_of(mode: Option<&str>, has_root: bool) -> Result<(SslMode, Verification), PostgresUrlError> {
    // As in libpq, `require` checks the authority if a file names it.
    let of_require = if has_root { Verification::Authority } else { Verification::None };
    Ok(match mode.unwrap_or("prefer") {
        "disable" => (SslMode::Disable, Verification::None),
        "allow" | "prefer" => (SslMode::Prefer, Verification::None),
        "require" => (SslMode::Require, of_require),
        "verify-ca" => (SslMode::Require, Verification::Authority),
        "verify-full" => (SslMode::Require, Verification::Full),
        other => {
            return Err(wrong(format!(
                "sslmode={other}: must be disable, allow, prefer, require, verify-ca or verify-full"
            )));
        }
    })
}

/// Returns the password for the database from the environment or the password file.
fn password(config: &Config, file: Option<PathBuf>) -> Result<Option<String>, PostgresUrlError> {
    if let Some(password) = variable("PGPASSWORD") {
        return Ok(Some(password));
    }
    let is_named = file.is_some();
    let file = file.or_else(|| variable("PGPASSFILE").map(PathBuf::from));
    let home = || variable("HOME").map(|home| PathBuf::from(home).join(".pgpass"));
    let Some(path) = file.or_else(home) else { return Ok(None) };
    match password_file::find(&path, config, &hosts_of(config)) {
        Ok(found) => Ok(found),
        Err(why) if is_named => Err(wrong(why)),
        Err(_) => Ok(None),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn wrong(why: String) -> PostgresUrlError {
    PostgresUrlError { why }
}

impl fmt::Display for PostgresSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for PostgresSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("PostgresSettings").field(&self.shown).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<PostgresSettings, String> {
        text.parse().map_err(|error: PostgresUrlError| error.to_string())
    }

    #[test]
    fn the_modes_of_tls_are_those_of_libpq() {
        let of = |query: &str| {
            let read = read(&format!("postgres://ann:x@db/jobs{query}")).unwrap();
            (read.config.get_ssl_mode(), read.verification)
        };
        assert_eq!(of("?sslmode=disable"), (SslMode::Disable, Verification::None));
        assert_eq!(of(""), (SslMode::Prefer, Verification::None));
        assert_eq!(of("?sslmode=require"), (SslMode::Require, Verification::None));
        let with_root = "?sslmode=require&sslrootcert=/tmp/root.pem";
        assert_eq!(of(with_root), (SslMode::Require, Verification::Authority));
        assert_eq!(of("?sslmode=verify-full"), (SslMode::Require, Verification::Full));
        let refused = read("postgres://db/jobs?sslmode=always").unwrap_err();
        assert!(refused.contains("verify-full"), "{refused}");
    }

    #[test]
    fn an_address_is_shown_without_its_password() {
        let settings = read("postgresql://ann:secret@db:5433/jobs?connect_timeout=2").unwrap();
        assert_eq!(settings.to_string(), "postgresql://ann@db:5433/jobs");
        assert!(!format!("{settings:?}").contains("secret"));
        assert_eq!(settings.config.get_password(), Some(&b"secret"[..]));
        assert_eq!(settings.config.get_connect_timeout(), Some(&Duration::from_secs(2)));
        let settings = read("postgres://ann:sec/ret@[::1],db/jobs").unwrap();
        assert_eq!(settings.to_string(), "postgres://ann@[::1],db/jobs");
    }

    #[test]
    fn of_several_hosts_one_that_can_be_written_is_used() {
        for query in ["", "?target_session_attrs=any", "?target_session_attrs=primary"] {
            let settings = read(&format!("postgres://ann:x@db1:5433,db2/jobs{query}")).unwrap();
            assert_eq!(settings.to_string(), "postgres://ann@db1:5433,db2/jobs");
            assert_eq!(settings.config.get_ports(), [5433, 5432]);
            let hosts = ["db1", "db2"].map(|host| Host::Tcp(host.into()));
            assert_eq!(settings.config.get_hosts(), hosts);
            let session = settings.config.get_target_session_attrs();
            assert_eq!(session, TargetSessionAttrs::ReadWrite);
            assert_eq!(settings.hosts(), [("db1".into(), 5433), ("db2".into(), 5432)]);
        }
    }

    #[test]
    fn one_port_is_that_of_all_hosts() {
        let settings = read("postgres:///jobs?host=db1,db2&port=5433").unwrap();
        assert_eq!(settings.hosts(), [("db1".into(), 5433), ("db2".into(), 5433)]);
    }

    #[test]
    fn a_wrong_address_is_refused_with_the_reason() {
        for (text, named) in [
            ("jobs.db", "postgres://"),
            ("postgres://db/jobs?colour=red", "colour"),
            ("postgres://db:70000/jobs", "port"),
            ("postgres://db,other/jobs?target_session_attrs=standby", "read-write"),
            ("postgres:///jobs", "host"),
        ] {
            let refused = read(text).unwrap_err();
            assert!(refused.contains(named), "{text}: {refused}");
        }
    }
}
