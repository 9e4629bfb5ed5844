//! Opening of a store in PostgreSQL: the tables, the ownership, and the start of the writer.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use keylane_storage::sqlite::SqliteError;

use super::client::{Clients, DatabaseError, ServerHistory};
use super::connection::{PostgresConnection, failure};
use super::database::{PostgresDatabase, nonce};
use super::heartbeat::{Beats, Heartbeats};
use super::layout::{self, LayoutError, Migration};
use super::node_file::NodeFile;
use super::nodes::{NodeRow, Nonce};
use super::ownership;
use super::readers::PostgresReaders;
use super::settings::PostgresSettings;
use crate::ids::JobNumber;
use crate::store::boot_number;
use crate::store::connection::StoreConnection;
use crate::store::error::{ReadError, StoreDamage, StoreOpenError};
use crate::store::handle::{OpenedStore, Store, StoreDatabase};
use crate::store::read;
use crate::store::recover::RecoveredJobs;
use crate::store::settings::StoreSettings;
use crate::store::shared::StoreShared;
use crate::store::store_dependencies::Outside;
use crate::store::tables::MetaRow;
use crate::store::writer::StoreWriter;
use crate::store::writer_database::WriterDatabase;
use crate::store::writer_state::{OpeningValues, WriterState};

/// Interval between two attempts to reach a server that does not answer.
const RETRY: Duration = Duration::from_secs(1);

/// Opens the store in a database, which it creates there if there is none. Waits for the server, and for the end of
/// another node that owns the store. `path` is that of the node's own files.
pub(in crate::store) fn open(
    postgres: &PostgresSettings,
    path: &Path,
    settings: &StoreSettings,
    outside: &Outside,
) -> Result<(Store, RecoveredJobs), StoreOpenError> {
    let failed = |error: DatabaseError| StoreOpenError::Database {
        address: postgres.to_string(),
        why: error.why(),
    };
    let clients = Arc::new(Clients::new(postgres, outside).map_err(failed)?);
    let node_file = NodeFile::open(path, nonce(outside)).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock => {
            let why = format!(
                "a server that runs has its files at {}; stop that, or give this one a data folder of its own",
                path.display()
            );
            failed(DatabaseError::Other(why.into()))
        }
        _ => StoreOpenError::io("open the file of the node", path)(error),
    })?;
    let opening =
        Opening { clients, node_file: Arc::new(node_file), postgres, path, settings, outside };
    let mut last = None;
    loop {
        let why = match opening.attempt() {
            Ok(opened) => return Ok(opened),
            Err(OpeningError::Database(
                error @ (DatabaseError::Unavailable(_) | DatabaseError::NotOwner),
            )) if postgres.waits && !outside.given_up.is_cancelled() => error.why(),
            Err(OpeningError::Database(error)) => return Err(failed(error)),
            Err(OpeningError::Store(error)) => return Err(error),
        };
        if last.as_ref() != Some(&why) {
            tracing::error!(%why, "the database cannot be used yet; it is tried again each second");
        }
        last = Some(why);
        thread::sleep(RETRY);
    }
}

/// Cause for which an attempt to open a store has failed.
enum OpeningError {
    Database(DatabaseError),
    Store(StoreOpenError),
}

impl From<DatabaseError> for OpeningError {
    fn from(error: DatabaseError) -> Self {
        OpeningError::Database(error)
    }
}

impl From<ReadError> for OpeningError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Damaged(damage) => OpeningError::Store(StoreOpenError::Damaged(damage)),
            ReadError::Unavailable { why } => DatabaseError::Unavailable(why).into(),
            other => DatabaseError::Other(other.to_string().into()).into(),
        }
    }
}

/// What all attempts to open a store have in common.
struct Opening<'a> {
    clients: Arc<Clients>,
    node_file: Arc<NodeFile>,
    postgres: &'a PostgresSettings,
    path: &'a Path,
    settings: &'a StoreSettings,
    outside: &'a Outside,
}

impl Opening<'_> {
    /// Opens the store. After a failure, the store may have this node as its owner, which the next attempt takes it from at once.
    fn attempt(&self) -> Result<(Store, RecoveredJobs), OpeningError> {
        let Opening { clients, node_file, postgres, path, settings, outside } = self;
        clients.check_sessions()?;
        let (connection, history) = PostgresConnection::open(clients)?;
        layout::prepare(&connection, &history).map_err(DatabaseError::from)?;
        let (node, writer) = (node_file.name, nonce(outside));
        let on = (&connection, &history);
        let epoch = ownership::acquire(clients, on, &node, &writer, postgres, outside)?;
        let mut beats = Beats::of_owner(Arc::clone(clients), node, epoch, &history);
        beats.row = postgres.node.clone().map(|of_name| NodeRow { name: node, node: of_name });
        let lease = Arc::clone(&beats.lease);
        let heartbeats = Heartbeats::start(beats, outside)?;
        let (was, is_copy) = recorded(&connection, &history, &writer, outside)?;
        let mut database = PostgresDatabase {
            heartbeats: Some(heartbeats),
            _node_file: Arc::clone(node_file),
            clients: Arc::clone(clients),
            connection,
            history,
            node,
            epoch,
            writer,
            commits: was.commits,
            outside: (*outside).clone(),
            is_away: false,
        };
        let (unfinished, count) = unfinished(database.connection(), &was)?;
        let beside = Some(was.boot).filter(|_| !is_copy);
        let boot = boot_number::next(was.boot, beside, outside.now_ms() / 1000, outside.random());
        let commits = was.commits + 1;
        let meta = MetaRow { boot, clean: false, unfinished: Some(count), commits, ..was.clone() };
        record_opening(&mut database, &meta)?;
        let opened = OpeningValues { boot, unfinished: count };
        let state = WriterState::load(database.connection(), opened)?;
        let loose = loose(database.connection())?;
        let marks = state.marks.all();
        let was_clean = was.clean || was.boot == 0;
        let shared = Arc::new(StoreShared::new(settings.max_waiting_bytes, &meta, was_clean));
        let writer = StoreWriter {
            database: Box::new(database),
            state,
            is_state_old: false,
            shared: Arc::clone(&shared),
            loose,
            resting: false,
            opened,
        };
        let outside = (*outside).clone();
        let opened = OpenedStore { path: path.to_path_buf(), boot, opened_full: false, outside };
        let join = opened.outside.writers.start(writer);
        let join = join.map_err(|error| {
            OpeningError::Store(StoreOpenError::io("start the writer of the store", path)(error))
        })?;
        let readers = StoreDatabase::Postgres(PostgresReaders::new(Arc::clone(clients)), lease);
        let store = Store::new(opened, shared, readers, join, settings.max_cache_bytes);
        let recovered = RecoveredJobs::new(store.clone(), was_clean, unfinished, marks, settings)?;
        Ok((store, recovered))
    }
}

impl PostgresSettings {
    /// Creates the tables of a store, or brings them to this version, as opening the store does. Returns the steps that were
    /// made.
    ///
    /// # Errors
    /// If the server cannot be reached, its tables are of a later version, or the role may not change them.
    pub fn migrate(&self) -> Result<Vec<Migration>, StoreOpenError> {
        self.with_tables(layout::prepare)
    }

    /// Returns the steps that [`migrate`](Self::migrate) would make.
    ///
    /// # Errors
    /// As for [`migrate`](Self::migrate).
    pub fn migration_plan(&self) -> Result<Vec<Migration>, StoreOpenError> {
        self.with_tables(|connection, _| layout::plan(connection))
    }

    fn with_tables<T>(
        &self,
        work: impl FnOnce(&PostgresConnection, &ServerHistory) -> Result<T, LayoutError>,
    ) -> Result<T, StoreOpenError> {
        let outside = Outside::system();
        let done = Clients::new(self, &outside).map(Arc::new).and_then(|clients| {
            clients.check_sessions()?;
            let (connection, history) = PostgresConnection::open(&clients)?;
            work(&connection, &history).map_err(DatabaseError::from)
        });
        done.map_err(|error| StoreOpenError::Database {
            address: self.to_string(),
            why: error.why(),
        })
    }
}

/// Returns the counters of the store, new ones if it is new, and whether it may be a copy of another one: the server, or its
/// timeline, is another one than at the last opening.
fn recorded(
    connection: &PostgresConnection,
    history: &ServerHistory,
    writer: &Nonce,
    outside: &Outside,
) -> Result<(MetaRow, bool), DatabaseError> {
    let tables: &dyn StoreConnection = connection;
    let named = history.to_string();
    let last = tables.first("SELECT history FROM term", &[], |row| {
        Ok(row.optional_bytes(0)?.map(<[u8]>::to_vec))
    });
    let last = last.map_err(|error| failure(connection, error))?.flatten();
    let is_copy = last.is_some_and(|last| last != named.as_bytes());
    // One transaction, which keeps another node from taking the store over before its end.
    connection.run("BEGIN")?;
    let sql = "UPDATE term SET history = ?1 WHERE writer = ?2";
    if connection.change(sql, &[named.as_str().into(), writer.into()])? == 0 {
        return Err(DatabaseError::NotOwner);
    }
    if let Some(meta) = MetaRow::load(tables).map_err(|error| failure(connection, error))? {
        connection.run("COMMIT")?;
        return Ok((meta, is_copy));
    }
    let id = nonce(outside);
    let (boot, commits, numbers, entered) = (0, 0, 1, 1);
    let meta = MetaRow { id, boot, clean: true, commits, numbers, entered, unfinished: Some(0) };
    // The first transaction finds the counters that it expects.
    let put = meta.put(tables).map_err(|error| format!("{error:?}"));
    put.map_err(|why| DatabaseError::Other(why.into()))?;
    connection.run("COMMIT")?;
    Ok((meta, is_copy))
}

/// Records the opening, as the first transaction of this node.
fn record_opening(database: &mut PostgresDatabase, meta: &MetaRow) -> Result<(), DatabaseError> {
    let recorded = database
        .begin()
        .and_then(|()| meta.put(database.connection()))
        .and_then(|()| database.commit());
    recorded.map_err(|error| match database.cause(error) {
        SqliteError::Busy => {
            DatabaseError::Unavailable("the database cannot be written now".into())
        }
        SqliteError::Full => DatabaseError::Full,
        error => DatabaseError::Other(format!("{error:?}").into()),
    })
}

/// Returns the unfinished jobs in their order, and their number.
fn unfinished(
    connection: &dyn StoreConnection,
    was: &MetaRow,
) -> Result<(Vec<(u64, JobNumber)>, u64), ReadError> {
    let listed = read::unfinished(connection)?;
    let count = listed.len() as u64;
    match was.unfinished.and_then(|known| known.checked_sub(count)) {
        Some(missing) if missing > 0 => {
            Err(ReadError::Damaged(StoreDamage::MissingJobs { count: missing }))
        }
        _ => Ok((listed, count)),
    }
}

/// Returns the jobs with chunks but no main row: unfinished uploads.
fn loose(connection: &dyn StoreConnection) -> Result<VecDeque<JobNumber>, ReadError> {
    let all =
        connection.all("SELECT job FROM loose", &[], |row| Ok(JobNumber(row.unsigned(0)?)))?;
    Ok(all.into())
}
