//! A table of a PostgreSQL server that a client has locked.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Stdio};

use crate::PostgresServer;

/// A table that can be neither read nor written by others until the value is released or dropped, or the server ends.
#[derive(Debug)]
pub struct LockedTable {
    psql: Child,
    statements: ChildStdin,
}

impl LockedTable {
    /// Locks a table.
    ///
    /// # Panics
    /// Panics if the table cannot be locked.
    #[must_use]
    pub fn new(server: &PostgresServer, name: &str) -> Self {
        let mut psql = server.psql();
        psql.args(["-XAtq", "-v", "ON_ERROR_STOP=1"]).arg(server.address());
        let psql = psql.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut psql = psql.spawn().expect("psql runs");
        let mut statements = psql.stdin.take().expect("it is piped");
        writeln!(statements, "BEGIN; LOCK TABLE {name}; SELECT 'locked';").expect("psql reads");
        let output = psql.stdout.take().expect("it is piped");
        let first = BufReader::new(output).lines().next();
        assert_eq!(first.and_then(Result::ok).as_deref(), Some("locked"), "{name} is not locked");
        LockedTable { psql, statements }
    }

    /// Releases the table.
    ///
    /// # Panics
    /// Panics if the client that has locked it has failed meanwhile.
    pub fn release(mut self) {
        writeln!(self.statements, "COMMIT; \\q").expect("psql reads");
        assert!(self.psql.wait().expect("it is a child").success(), "psql has failed");
    }
}

impl Drop for LockedTable {
    fn drop(&mut self) {
        let _ = self.psql.kill();
        let _ = self.psql.wait();
    }
}
