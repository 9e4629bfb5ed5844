//! Stores of tests in databases of one PostgreSQL server, in the place of files.
//!
//! With `KEYLANE_TEST_STORE=postgres` each place of a store has a database, so that the tests of files are those of databases too.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use keylane_service::store::PostgresSettings;
use keylane_testkit::PostgresServer;

static SERVER: OnceLock<PostgresServer> = OnceLock::new();

/// Number of the next database.
static NEXT: AtomicU32 = AtomicU32::new(1);

fn server() -> &'static PostgresServer {
    SERVER.get_or_init(|| PostgresServer::start().unwrap_or_else(|missing| panic!("{missing}")))
}

/// Whether the stores of tests are in databases.
pub(super) fn is_wanted() -> bool {
    std::env::var_os("KEYLANE_TEST_STORE").is_some_and(|place| place == "postgres")
}

/// File that names the database of a store.
fn note(path: &Path) -> PathBuf {
    PathBuf::from(format!("{}.postgres", path.display()))
}

/// Creates a database for the store at a path, empty or as a copy of another one's.
pub(super) fn create(path: &Path, copied: Option<&Path>) {
    let name = format!("store_{}", NEXT.fetch_add(1, Ordering::Relaxed));
    let _ = server().query(&format!("CREATE DATABASE {name}"));
    if let Some(from) = copied {
        server().copy(&std::fs::read_to_string(note(from)).unwrap(), &name);
        // As if the process that wrote it had been gone for long.
        let _ = server().query_in(&name, "UPDATE keylane.term SET node = NULL");
    }
    std::fs::write(note(path), name).unwrap();
}

/// Executes statements on the tables of a store.
pub(super) fn query(path: &Path, sql: &str) -> String {
    let name = std::fs::read_to_string(note(path)).unwrap();
    server().query_in(&name, &format!("SET search_path TO keylane; {sql}"))
}

/// Returns the database of the store at a path, if it has one.
pub(super) fn of(path: &Path) -> Option<PostgresSettings> {
    let name = std::fs::read_to_string(note(path)).ok()?;
    Some(server().address_of(&name).parse().unwrap())
}
