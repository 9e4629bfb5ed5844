//! Passive checkpoint on a thread and a connection of its own, so that the writer continues
//! meanwhile.
//!
//! SQLite permits one checkpoint at a time, beside one writer. So the writer waits for this one
//! before it makes one itself, and before it closes the file.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Acquire, Release};
use std::thread::{self, JoinHandle};

use rusqlite::Connection;

use super::connection::{SqliteError, checkpoint_passively, checkpointer};

/// Passive checkpoints of one database, one at a time, each on its own thread.
#[derive(Debug)]
pub struct BackgroundCheckpoint {
    path: PathBuf,
    /// Connection between two checkpoints. `None` before the first one, during one, and after a
    /// failure.
    idle: Option<Connection>,
    running: Option<RunningCheckpoint>,
}

#[derive(Debug)]
struct RunningCheckpoint {
    thread: JoinHandle<(Connection, Result<u64, SqliteError>)>,
    /// Whether the pages are copied, so that the thread ends at once. Set by the thread.
    has_ended: Arc<AtomicBool>,
}

/// State of a background checkpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckpointState {
    /// None was started since the last result.
    None,
    /// It copies pages.
    Running,
    /// It has ended. Returned once. The value is the size of the log's part that is in the database
    /// file now, in bytes.
    Ended(Result<u64, SqliteError>),
}

impl BackgroundCheckpoint {
    /// Prepares checkpoints of this database.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        BackgroundCheckpoint { path: path.to_owned(), idle: None, running: None }
    }

    /// Starts a checkpoint. `at_end` is called on its thread when it has ended. Returns whether it
    /// runs: not if one runs already, or if its connection or thread cannot be created.
    pub fn begin(&mut self, at_end: impl FnOnce() + Send + 'static) -> bool {
        if self.running.is_some() {
            return false;
        }
        let connection = match self.idle.take() {
            Some(connection) => connection,
            None => match checkpointer(&self.path) {
                Ok(connection) => connection,
                Err(_) => return false,
            },
        };
        let has_ended = Arc::new(AtomicBool::new(false));
        let tell = Arc::clone(&has_ended);
        let work = move || {
            let copied = checkpoint_passively(&connection);
            tell.store(true, Release);
            at_end();
            (connection, copied)
        };
        let thread = thread::Builder::new().name("keylane-checkpoint".into()).spawn(work);
        self.running = thread.ok().map(|thread| RunningCheckpoint { thread, has_ended });
        self.running.is_some()
    }

    /// Returns the state, without waiting. After [`CheckpointState::Ended`], none runs.
    pub fn poll(&mut self) -> CheckpointState {
        match &self.running {
            None => CheckpointState::None,
            Some(running) if !running.is_over() => CheckpointState::Running,
            Some(_) => self.wait(),
        }
    }

    /// Waits for the end of a running checkpoint.
    pub fn wait(&mut self) -> CheckpointState {
        let Some(running) = self.running.take() else { return CheckpointState::None };
        match running.thread.join() {
            Ok((connection, result)) => {
                self.idle = Some(connection);
                CheckpointState::Ended(result)
            }
            Err(_) => {
                let cause = "the thread of the checkpoint has panicked".into();
                CheckpointState::Ended(Err(SqliteError::Broken(cause)))
            }
        }
    }
}

impl RunningCheckpoint {
    fn is_over(&self) -> bool {
        // A thread that panicked has ended without a word.
        self.has_ended.load(Acquire) || self.thread.is_finished()
    }
}

impl Drop for BackgroundCheckpoint {
    fn drop(&mut self) {
        // The connection must be closed before the lock of the store is released.
        self.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::super::{begin, log_bytes, writer};
    use super::*;

    #[test]
    fn the_log_restarts_after_a_checkpoint_beside_the_writer() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let connection = writer(&path, None).unwrap();
        connection.execute_batch("CREATE TABLE a (x)").unwrap();
        let add = || connection.execute_batch("INSERT INTO a VALUES (randomblob(100000))").unwrap();
        add();
        let before = log_bytes(&connection).unwrap();
        let mut background = BackgroundCheckpoint::new(&path);
        assert_eq!(background.poll(), CheckpointState::None);
        // A transaction that is open meanwhile neither waits nor fails.
        begin(&connection).unwrap();
        let (tell, told) = channel();
        assert!(background.begin(move || tell.send(()).unwrap()));
        assert!(!background.begin(|| ()), "one at a time");
        told.recv().unwrap();
        connection.execute_batch("INSERT INTO a VALUES (1); COMMIT").unwrap();
        assert_eq!(background.wait(), CheckpointState::Ended(Ok(before)));
        assert_eq!(background.poll(), CheckpointState::None);

        assert!(background.begin(|| ()));
        let all = log_bytes(&connection).unwrap();
        assert_eq!(background.wait(), CheckpointState::Ended(Ok(all)));
        add();
        assert!(log_bytes(&connection).unwrap() <= before, "the log has restarted");
        let rows: i64 =
            connection.query_row("SELECT count(*) FROM a", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 3);
    }

    #[test]
    fn a_database_that_cannot_be_opened_has_no_background_checkpoint() {
        let folder = tempfile::tempdir().unwrap();
        let mut background = BackgroundCheckpoint::new(&folder.path().join("missing"));
        assert!(!background.begin(|| ()));
        assert_eq!(background.wait(), CheckpointState::None);
    }
}
