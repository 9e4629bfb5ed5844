//! Connections that read, and the moment in which none does.

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rusqlite::Connection;

use super::connection::reader;

/// How many connections are kept for later; each has a cache of pages and an open file.
const MAX_IDLE: usize = 8;

/// How long a reader waits for a log that is being reset. Longer than that takes, so that it only ends a wait for a
/// writer that is gone.
const MAX_WAIT: Duration = Duration::from_secs(1);

/// Connections that read one database. Each reader has one for itself, so readers do not wait for each other.
///
/// A log of SQLite's begins anew only in a moment without readers of it. Many short readers, one after another, leave
/// none. So the writer [pauses](Self::pause) them: a reader that has begun goes on, and a new one waits until the pause
/// ends.
#[derive(Debug)]
pub struct ReaderPool {
    path: PathBuf,
    state: Mutex<ReaderPoolState>,
    /// Told when a pause ends.
    resumed: Condvar,
}

#[derive(Debug, Default)]
struct ReaderPoolState {
    /// Connections that are not in use.
    idle: Vec<Connection>,
    is_paused: bool,
}

/// As long as it lives, no reader begins.
#[derive(Debug)]
pub struct ReaderPause<'a>(&'a ReaderPool);

impl ReaderPool {
    /// Of this database.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        ReaderPool { path: path.to_owned(), state: Mutex::default(), resumed: Condvar::new() }
    }

    /// Nothing unwinds while it is locked.
    fn state(&self) -> MutexGuard<'_, ReaderPoolState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads with a connection that no other reader has meanwhile.
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

    /// Keeps readers from beginning.
    pub fn pause(&self) -> ReaderPause<'_> {
        self.state().is_paused = true;
        ReaderPause(self)
    }

    /// Closes the connections that are not in use.
    pub fn close(&self) {
        let idle = std::mem::take(&mut self.state().idle);
        drop(idle);
    }

    /// How many connections are kept for later.
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
