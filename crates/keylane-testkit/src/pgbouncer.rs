//! Connection pooler of one test, in front of a PostgreSQL server.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::guarded_process::{GuardedProcess, StartOutcome, StartTexts};
use crate::postgres::{free_port, own_directory, unprivileged};
use crate::{Missing, PostgresServer};

/// Maximum time from the start of the pooler until it is ready.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Maximum number of starts: another process can take a chosen port before the pooler binds it.
const MAX_STARTS: usize = 3;

const START_TEXTS: StartTexts = StartTexts { ready: "process up", taken: &["cannot listen"] };

/// Path of Debian's package, which is not in the path of every user.
const DEBIAN: &str = "/usr/sbin/pgbouncer";

/// A pgbouncer, which ends when the value is dropped.
#[derive(Debug)]
pub struct PgBouncer {
    port: u16,
    _process: GuardedProcess,
    /// Removed on drop; by the guard, if the test process is killed.
    _directory: TempDir,
}

impl PgBouncer {
    /// Starts a pooler for the database `postgres` of a server, with a `pool_mode` such as `transaction`.
    ///
    /// # Errors
    /// If pgbouncer is missing.
    ///
    /// # Panics
    /// If it does not start. The message contains the last lines of its log.
    pub fn start(server: &PostgresServer, pool_mode: &str) -> Result<Self, Missing> {
        let program = PathBuf::from(DEBIAN);
        if !program.exists() {
            return Err(Missing::new("there is no pgbouncer: install the package `pgbouncer`"));
        }
        for _ in 0..MAX_STARTS {
            let (port, directory) = (free_port(), own_directory());
            let database = server.port();
            let settings = format!(
                "[databases]\npostgres = host=127.0.0.1 port={database} user=keylane\n\
                 [pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\n\
                 auth_type = any\npool_mode = {pool_mode}\n"
            );
            let path = directory.path().join("pgbouncer.ini");
            fs::write(&path, settings).expect("its settings can be written");
            let mut command = Command::new(&program);
            command.arg(path);
            let command = unprivileged(&command);
            let (process, outcome) =
                GuardedProcess::start(&command, directory.path(), START_TEXTS, START_TIMEOUT);
            match outcome {
                StartOutcome::Ready => {
                    return Ok(PgBouncer { port, _process: process, _directory: directory });
                }
                StartOutcome::Taken => process.kill(),
                StartOutcome::Failed(log) => panic!("pgbouncer did not start:\n{log}"),
            }
        }
        panic!("another process took each port that was chosen for pgbouncer");
    }

    /// Returns the address of the database.
    #[must_use]
    pub fn address(&self) -> String {
        format!("postgres://keylane@127.0.0.1:{}/postgres?sslmode=disable", self.port)
    }
}
