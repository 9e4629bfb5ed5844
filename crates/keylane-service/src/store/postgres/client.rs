//! Connections to a PostgreSQL server, and its errors.

use std::error::Error as _;
use std::fmt::{self, Write as _};
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

use keylane_storage::sqlite::SqliteError;
use tokio::runtime::{Builder, Handle};
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::timeout;
use tokio_postgres::error::SqlState;
use tokio_postgres::{AsyncMessage, Client, Error, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::settings::PostgresSettings;
use super::tls;
use crate::store::error::{ReadError, StoreDamage};
use crate::store::store_dependencies::Outside;

/// SQLSTATE of the error with which the database refuses a transaction of a node that does not own the store.
pub(super) const NOT_OWNER: &str = "KL001";

/// Oldest version of the server that is supported.
const MIN_VERSION: i32 = 13_00_00;

/// Time after which a peer that does not answer counts as gone.
const PEER_TIMEOUT: Duration = Duration::from_secs(5);

/// Number of addresses of a host that may be silent before one answers.
const MAX_ADDRESSES: u32 = 4;

/// Remedy for a refused connection, at the end of its cause.
const TOO_MANY: &str = "; a server needs at least 3 connections and uses up to 10: raise `max_connections`, or the limit of the \
                        role or of the database";

/// Error of a database, by its consequence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum DatabaseError {
    /// Nothing was written, and another attempt may succeed: the server cannot be reached, ends, or writes nothing now.
    Unavailable(Arc<str>),
    /// Nothing was written: the server has no room.
    Full,
    /// Another node owns the store.
    NotOwner,
    /// Rows or pages are damaged.
    Damaged(Arc<str>),
    /// Something else, which another attempt does not mend.
    Other(Arc<str>),
}

impl DatabaseError {
    /// Returns the cause, for messages.
    pub(super) fn why(&self) -> Arc<str> {
        match self {
            DatabaseError::Full => "the database is full".into(),
            DatabaseError::NotOwner => "another node has taken the store over".into(),
            DatabaseError::Unavailable(why)
            | DatabaseError::Damaged(why)
            | DatabaseError::Other(why) => Arc::clone(why),
        }
    }

    /// Returns whether the database has refused one connection more.
    pub(super) fn is_too_many_connections(&self) -> bool {
        matches!(self, DatabaseError::Unavailable(why) if why.ends_with(TOO_MANY))
    }
}

impl From<Error> for DatabaseError {
    fn from(error: Error) -> Self {
        let why: Arc<str> = text_of(&error).into();
        let Some(refused) = error.as_db_error() else {
            // Of the client itself: the connection has ended, or could not be made.
            let is_ours = error.to_string().contains("serializing");
            return if is_ours {
                DatabaseError::Other(why)
            } else {
                DatabaseError::Unavailable(why)
            };
        };
        let code = refused.code();
        match code.code() {
            NOT_OWNER => DatabaseError::NotOwner,
            "53100" => DatabaseError::Full,
            "XX001" | "XX002" => DatabaseError::Damaged(why),
            "53300" => DatabaseError::Unavailable(format!("{why}{TOO_MANY}").into()),
            // A limit of the server's configuration, which another attempt reaches too.
            "53400" => DatabaseError::Other(why),
            // The session has ended, because this node stood still in a transaction.
            "25P03" | "25P04" => DatabaseError::Unavailable(why),
            // The server stops, starts, has too many connections, or was told to end; or it waited too long.
            other if ["08", "53", "57"].contains(&&other[..2]) => DatabaseError::Unavailable(why),
            _ if [
                SqlState::READ_ONLY_SQL_TRANSACTION,
                SqlState::LOCK_NOT_AVAILABLE,
                SqlState::T_R_DEADLOCK_DETECTED,
                SqlState::T_R_SERIALIZATION_FAILURE,
            ]
            .contains(code) =>
            {
                DatabaseError::Unavailable(why)
            }
            _ => DatabaseError::Other(why),
        }
    }
}

/// Returns an error with its causes, of which the first often says little.
fn text_of(error: &Error) -> String {
    if let Some(refused) = error.as_db_error() {
        return format!("{} (SQLSTATE {})", refused.message(), refused.code().code());
    }
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text = format!("{text}: {cause}");
        source = cause.source();
    }
    text
}

impl fmt::Display for DatabaseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why())
    }
}

impl From<DatabaseError> for SqliteError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::Unavailable(_) => SqliteError::Busy,
            DatabaseError::Full => SqliteError::Full,
            other => SqliteError::Broken(other.why()),
        }
    }
}

impl From<DatabaseError> for ReadError {
    fn from(error: DatabaseError) -> Self {
        match error {
            DatabaseError::Unavailable(why) => ReadError::Unavailable { why },
            DatabaseError::Damaged(why) => {
                ReadError::Damaged(StoreDamage::File { why: why.to_string() })
            }
            other => ReadError::Sqlite { why: other.why() },
        }
    }
}

/// History of a server: what changes when a standby is promoted, or when another server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ServerHistory {
    /// Identifier of the cluster of databases, which its standbys share.
    system: String,
    /// Number of its timeline, which a promotion raises.
    timeline: String,
}

impl fmt::Display for ServerHistory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.system, self.timeline)
    }
}

/// Source of connections to one database. They run on a thread of their own, until it is dropped.
pub(super) struct Clients {
    settings: PostgresSettings,
    tls: MakeRustlsConnect,
    runtime: Handle,
    _end: DropGuard,
}

impl Clients {
    /// Starts the thread of the connections.
    ///
    /// # Errors
    /// If it cannot run, or the settings of TLS are wrong.
    pub(super) fn new(
        settings: &PostgresSettings,
        outside: &Outside,
    ) -> Result<Self, DatabaseError> {
        let other = |why: String| DatabaseError::Other(why.into());
        let root = settings.root_certificate.as_deref();
        let tls = tls::connector(settings.verification, root).map_err(other)?;
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| other(error.to_string()))?;
        let (handle, ended) = (runtime.handle().clone(), CancellationToken::new());
        let end = ended.clone().drop_guard();
        let body = Box::new(move || runtime.block_on(ended.cancelled()));
        // It ends by itself, because a connection may be dropped on it.
        let started = outside.writers.thread("keylane-postgres", body);
        drop(started.map_err(|error| other(error.to_string()))?);
        Ok(Clients { settings: settings.clone(), tls, runtime: handle, _end: end })
    }

    /// Opens a connection, whose statements see the tables of the store and wait for the disk.
    ///
    /// # Errors
    /// If the server cannot be reached or refuses the connection, or is one that no store can be in.
    pub(super) fn connect(&self) -> Result<Session, DatabaseError> {
        let opened = self.open_connection();
        self.run(async move { prepare(opened.await?).await })
    }

    /// Checks that each connection has a session of its own at the server.
    ///
    /// # Errors
    /// If a pooler gives each transaction another session, or the server cannot be reached.
    pub(super) fn check_sessions(&self) -> Result<(), DatabaseError> {
        let (first, second) = (self.open_connection(), self.open_connection());
        self.run(async move { check_sessions(&first.await?.client, &second.await?.client).await })
    }

    /// Returns whether a session executes a statement; `None` if that cannot be found out.
    pub(super) fn is_executing(&self, process: &ServerProcess) -> Option<bool> {
        let opened = self.open_connection();
        let mut is_process = format!("pid = {}", process.number);
        // A server that was promoted can have another process of this number.
        if let Some(since) = &process.since {
            let _ = write!(is_process, " AND backend_start = '{since}'");
        }
        let asked = self.run(async move {
            // The state of a session of another role is not shown.
            let sql = format!(
                "SELECT coalesce((SELECT coalesce(state, 'hidden') FROM pg_stat_activity WHERE {is_process}), 'ended')"
            );
            value_of(&opened.await?.client, &sql).await
        });
        match asked.ok()?.as_deref() {
            Some("active") => Some(true),
            Some("ended" | "idle" | "idle in transaction" | "idle in transaction (aborted)") => {
                Some(false)
            }
            // Hidden, or not tracked, with `track_activities = off`.
            _ => None,
        }
    }

    /// Opens a connection.
    fn open_connection(
        &self,
    ) -> impl Future<Output = Result<OpenConnection, DatabaseError>> + Send + use<> {
        let (mut config, tls) = (self.settings.config.clone(), self.tls.clone());
        config.tcp_user_timeout(PEER_TIMEOUT).keepalives_idle(PEER_TIMEOUT);
        let runtime = self.runtime.clone();
        async move {
            let (client, mut connection) = config.connect(tls).await?;
            let notified = Arc::new(Notify::new());
            let notifier = Arc::clone(&notified);
            // It ends with the client, or with an error that the client's next statement gets.
            let task = runtime.spawn(async move {
                while let Some(Ok(message)) =
                    poll_fn(|context| connection.poll_message(context)).await
                {
                    if let AsyncMessage::Notification(_) = message {
                        notifier.notify_one();
                    }
                }
            });
            Ok(OpenConnection { client, task: task.abort_handle(), notified })
        }
    }

    /// Runs a future on the thread of the connections, and waits for it, at most as long as a server may take to answer on each of
    /// its addresses.
    fn run<T: Send + 'static>(
        &self,
        future: impl Future<Output = Result<T, DatabaseError>> + Send + 'static,
    ) -> Result<T, DatabaseError> {
        let config = &self.settings.config;
        let of_each = config.get_connect_timeout().copied().unwrap_or(PEER_TIMEOUT);
        let addresses = config.get_hosts().len().max(1) as u32 * MAX_ADDRESSES;
        let limit = of_each * addresses;
        let done = wait(self.runtime.spawn(async move { timeout(limit, future).await }));
        let done = done.map_err(|error| DatabaseError::Other(error.to_string().into()))?;
        done.unwrap_or_else(|_| {
            Err(DatabaseError::Unavailable("the server does not answer".into()))
        })
    }
}

impl fmt::Debug for Clients {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Clients").field(&self.settings).finish()
    }
}

/// A connection, and the task that sends and receives for it.
struct OpenConnection {
    client: Client,
    task: AbortHandle,
    notified: Arc<Notify>,
}

/// A connection, and what the server has told of it.
pub(super) struct Session {
    pub(super) client: Client,
    /// Task of the connection. It ends by itself with the client, unless an answer is missing.
    pub(super) task: AbortHandle,
    /// Notified of each notification of the server.
    pub(super) notified: Arc<Notify>,
    pub(super) process: ServerProcess,
    pub(super) history: ServerHistory,
}

/// Process of the server that executes the statements of a connection.
#[derive(Clone, Debug)]
pub(super) struct ServerProcess {
    pub(super) number: i32,
    /// Time of its start, because numbers are used again. Unknown if this role may not see it.
    pub(super) since: Option<String>,
}

/// Prepares a connection, and checks that its server can have a store.
async fn prepare(opened: OpenConnection) -> Result<Session, DatabaseError> {
    let OpenConnection { client, task, notified } = opened;
    let facts = "SELECT current_setting('server_version_num')::int, pg_is_in_recovery(),
                        current_setting('transaction_read_only')::bool,
                        current_setting('synchronous_commit'),
                        (SELECT system_identifier::text FROM pg_control_system()), pg_backend_pid(),
                        (SELECT backend_start::text FROM pg_stat_activity WHERE pid = pg_backend_pid())";
    let row = client.query_one(facts, &[]).await?;
    let (version, is_standby, is_read_only): (i32, bool, bool) =
        (row.get(0), row.get(1), row.get(2));
    let unavailable = |why: &str| Err(DatabaseError::Unavailable(why.into()));
    if version < MIN_VERSION {
        let why = format!(
            "the server is PostgreSQL {}, and a store needs {} or later",
            version / 10_000,
            MIN_VERSION / 10_000
        );
        return Err(DatabaseError::Other(why.into()));
    }
    if is_standby {
        return unavailable("the server is a standby, which writes nothing until it is promoted");
    }
    if is_read_only {
        return unavailable("the database, or the role, is set to read-only transactions");
    }
    let (commit, system): (String, String) = (row.get(3), row.get(4));
    // A server that does not know that its client is gone would keep its locks for hours.
    // Each statement of a transaction sees what was committed before it: the functions of the tables rely on that.
    let mut settings =
        "SET search_path TO keylane; SET default_transaction_isolation TO 'read committed'; \
                        SET tcp_keepalives_idle TO 5; \
                        SET tcp_keepalives_interval TO 5; SET tcp_keepalives_count TO 3"
            .to_owned();
    if ["off", "local"].contains(&&*commit) {
        // Otherwise an acknowledged job could be lost.
        settings.push_str("; SET synchronous_commit TO on");
    }
    // Those of the role are meant for requests of an application. A server reads for minutes when it starts, and a standby
    // waits for months. Later versions of PostgreSQL have more of them than earlier ones.
    settings.push_str(
        "; SELECT set_config(name, '0', false) FROM pg_settings \
         WHERE name IN ('statement_timeout', 'transaction_timeout', 'idle_session_timeout')",
    );
    client.batch_execute(&settings).await?;
    // Its first eight characters are the number of the timeline.
    let timeline = "SELECT substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)";
    let timeline = client.query_one(timeline, &[]).await?.get(0);
    let process = ServerProcess { number: row.get(5), since: row.get(6) };
    Ok(Session { client, task, notified, process, history: ServerHistory { system, timeline } })
}

/// Checks that two open connections have sessions of their own at the server. With a pooler that gives each transaction a free
/// session, prepared statements and settings would be in the session of another client.
async fn check_sessions(first: &Client, second: &Client) -> Result<(), DatabaseError> {
    // Without a prepared statement, which such a pooler does not know.
    let process = "SELECT pg_backend_pid()";
    let of_first = value_of(first, process).await?;
    // The session that the first one has used is free now, and the second one holds it until the end of a transaction.
    let is_pooled = match second.batch_execute("BEGIN").await {
        // It gives each statement another session, and says so with a code that also stands for a server that is away.
        Err(error) if text_of(&error).contains("statement pooling") => true,
        begun => {
            begun?;
            let of_second = value_of(second, process).await?;
            let is_pooled = of_first == of_second || value_of(first, process).await? != of_first;
            second.batch_execute("ROLLBACK").await?;
            is_pooled
        }
    };
    if !is_pooled {
        return Ok(());
    }
    let why = "a connection pooler gives each transaction another session of the server, and a store needs a session \
               for each connection: give the address of the server itself, or set `pool_mode = session` in pgbouncer";
    Err(DatabaseError::Other(why.into()))
}

/// Returns the first value that a statement finds, as text.
async fn value_of(client: &Client, sql: &str) -> Result<Option<String>, DatabaseError> {
    let messages = client.simple_query(sql).await?;
    Ok(messages.iter().find_map(|message| match message {
        SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
        _ => None,
    }))
}

/// Waits for a future on this thread, whatever else runs on it.
fn wait<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    loop {
        if let Some(value) = wait_for(future.as_mut(), Duration::MAX) {
            return value;
        }
    }
}

/// Waits for a future on this thread, at most for `time`.
pub(super) fn wait_for<T>(
    mut future: Pin<&mut impl Future<Output = T>>,
    time: Duration,
) -> Option<T> {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let begin = Instant::now();
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut context = Context::from_waker(&waker);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return Some(value);
        }
        match time.saturating_sub(begin.elapsed()) {
            Duration::ZERO => return None,
            left => thread::park_timeout(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use keylane_testkit::{PostgresServer, or_skip};

    use super::*;
    use crate::store::connection::StoreConnection;
    use crate::store::postgres::connection::PostgresConnection;

    #[test]
    fn commits_wait_for_the_disk_whatever_the_settings_of_the_role_are() {
        let Some(server) = or_skip(PostgresServer::start()) else { return };
        for (setting, found) in [("off", "on"), ("local", "on"), ("remote_apply", "remote_apply")] {
            let _ = server.query(&format!("ALTER ROLE keylane SET synchronous_commit = {setting}"));
            let settings = server.address().parse().unwrap();
            let clients = Arc::new(Clients::new(&settings, &Outside::system()).unwrap());
            let (connection, _) = PostgresConnection::open(&clients).unwrap();
            let tables: &dyn StoreConnection = &connection;
            let sql = "SELECT convert_to(current_setting('synchronous_commit'), 'UTF8')";
            let now = tables.first(sql, &[], |row| row.text(0)).unwrap();
            assert_eq!(now.as_deref(), Some(found), "{setting}");
        }
    }

    /// A heartbeat and a takeover rely on it.
    #[test]
    fn each_statement_sees_what_was_committed_before_it_whatever_the_settings_of_the_role_are() {
        let Some(server) = or_skip(PostgresServer::start()) else { return };
        let role = "ALTER ROLE keylane SET default_transaction_isolation = 'repeatable read'";
        let _ = server.query(role);
        let settings = server.address().parse().unwrap();
        let clients = Arc::new(Clients::new(&settings, &Outside::system()).unwrap());
        let (connection, _) = PostgresConnection::open(&clients).unwrap();
        let tables: &dyn StoreConnection = &connection;
        let sql = "SELECT convert_to(current_setting('transaction_isolation'), 'UTF8')";
        let now = tables.first(sql, &[], |row| row.text(0)).unwrap();
        assert_eq!(now.as_deref(), Some("read committed"));
    }

    #[test]
    fn timeouts_of_the_role_do_not_apply() {
        let Some(server) = or_skip(PostgresServer::start()) else { return };
        let names = ["statement_timeout", "transaction_timeout", "idle_session_timeout"];
        let known = names.map(|name| {
            // A server before version 14 or 17 lacks one or two of them.
            server.try_query(&format!("ALTER ROLE keylane SET {name} = '10s'")).is_ok()
        });
        assert!(known[0]);
        let settings = server.address().parse().unwrap();
        let clients = Arc::new(Clients::new(&settings, &Outside::system()).unwrap());
        let (connection, _) = PostgresConnection::open(&clients).unwrap();
        let tables: &dyn StoreConnection = &connection;
        for (name, _) in names.into_iter().zip(known).filter(|(_, is_known)| *is_known) {
            let sql = format!("SELECT convert_to(current_setting('{name}'), 'UTF8')");
            let now = tables.first(&sql, &[], |row| row.text(0)).unwrap();
            assert_eq!(now.as_deref(), Some("0"), "{name}");
        }
    }
}
