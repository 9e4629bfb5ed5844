//! Pool of reading connections, which the writer can pause to let the log restart.

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

use super::connection::reader;

/// Maximum number of idle connections. Each has a page cache and open files.
const MAX_IDLE: usize = 8;

/// Maximum time that a reader waits for a pause. Pauses are shorter, so this matters only if the
/// writer is gone.
const MAX_WAIT: Duration = Duration::from_secs(10);

/// Pool of reading connections of one database. Each reader has its own connection, so readers do
/// not wait for each other.
///
/// SQLite's log restarts only in a moment without readers. A continuous sequence of short readers
/// leaves none, so the writer [pauses](Self::pause) the pool: active readers continue, and new ones
/// wait until the pause ends.
#[derive(Debug)]
pub struct ReaderPool {
    path: PathBuf,
    state: Mutex<ReaderPoolState>,
    /// Notified when a pause ends.
    resumed: Condvar,
}

#[derive(Debug, Default)]
struct ReaderPoolState {
    /// Idle connections.
    idle: Vec<Connection>,
    is_paused: bool,
}

/// While it lives, no reader starts.
#[derive(Debug)]
pub struct ReaderPause<'a>(&'a ReaderPool);

impl ReaderPool {
    /// Creates a pool for this database.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        ReaderPool { path: path.to_owned(), state: Mutex::default(), resumed: Condvar::new() }
    }

    /// No code that holds this lock unwinds.
    fn state(&self) -> MutexGuard<'_, ReaderPoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Calls `read` with a connection that no other reader uses meanwhile.
    ///
    /// # Errors
    /// If the database cannot be opened, or `read` fails.
    pub fn read<T, E: From<rusqlite::Error>>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        let idle = {
            let state = self.resumed.wait_timeout_while(self.state(), MAX_WAIT, |s| s.is_paused);
            state.unwrap_or_else(PoisonError::into_inner).0.idle.pop()
        };
        let connection = match idle {
            Some(connection) => connection,
            None => reader(&self.path)?,
        };
        let result = read(&connection);
        let mut state = self.state();
        if state.idle.len() < MAX_IDLE {
            state.idle.push(connection);
        }
        result
    }

    /// Keeps new readers from starting while the guard lives.
    pub fn pause(&self) -> ReaderPause<'_> {
        self.state().is_paused = true;
        ReaderPause(self)
    }

    /// Closes the idle connections.
    pub fn close(&self) {
        let idle = std::mem::take(&mut self.state().idle);
        drop(idle);
    }

    /// Returns the number of idle connections.
    #[cfg(test)]
    fn idle(&self) -> usize {
        self.state().idle.len()
    }
}

impl Drop for ReaderPause<'_> {
    fn drop(&mut self) {
        self.0.state().is_paused = false;
        self.0.resumed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Barrier};
    use std::thread;

    use super::*;

    #[test]
    fn few_connections_are_kept_of_many_readers() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        super::super::writer(&path, None).unwrap().execute_batch("CREATE TABLE a (x)").unwrap();
        let readers = Arc::new(ReaderPool::new(&path));
        let all = Arc::new(Barrier::new(20));
        let threads: Vec<_> = (0..20)
            .map(|_| {
                let (readers, all) = (Arc::clone(&readers), Arc::clone(&all));
                thread::spawn(move || {
                    readers.read(|_| -> rusqlite::Result<()> {
                        all.wait();
                        Ok(())
                    })
                })
            })
            .collect();
        threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        assert_eq!(readers.idle(), MAX_IDLE);
        readers.close();
        assert_eq!(readers.idle(), 0);
    }

    #[test]
    fn a_reader_that_comes_in_a_pause_reads_when_it_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        super::super::writer(&path, None).unwrap().execute_batch("CREATE TABLE a (x)").unwrap();
        let readers = ReaderPool::new(&path);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        let order = std::sync::atomic::Ordering::SeqCst;
        thread::scope(|scope| {
            let pause = readers.pause();
            let reader = scope.spawn(|| {
                let seen = readers.read(|_| Ok::<_, rusqlite::Error>(is_over.load(order)));
                seen.unwrap()
            });
            is_over.store(true, order);
            drop(pause);
            assert!(reader.join().unwrap());
        });
    }
}
