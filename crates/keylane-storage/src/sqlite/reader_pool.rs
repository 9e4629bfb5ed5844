//! Pool of reading connections, which the writer can pause to let the log restart.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
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
/// wait until the pause ends. A reader that takes too long is [ended](Self::end_active).
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
    idle: Vec<PooledReader>,
    /// Flags of all connections, idle ones included.
    flags: Vec<Weak<AtomicBool>>,
    is_paused: bool,
}

#[derive(Debug)]
struct PooledReader {
    connection: Connection,
    /// Whether the reader is to end. Relaxed: it passes no data.
    must_end: Arc<AtomicBool>,
}

/// Number of SQLite's instructions between two looks at the flag of a reader: well below a millisecond.
const INSTRUCTIONS: i32 = 10_000;

impl PooledReader {
    fn open(path: &Path) -> rusqlite::Result<Self> {
        let mut connection = reader(path)?;
        let must_end = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&must_end);
        connection.progress_handler(INSTRUCTIONS, Some(move || flag.load(Ordering::Relaxed)))?;
        Ok(PooledReader { connection, must_end })
    }
}

/// Request to end a read.
#[derive(Clone, Copy, Debug)]
pub struct EndRequest<'a>(&'a AtomicBool);

impl EndRequest<'_> {
    /// Returns whether the read is to end.
    #[must_use]
    pub fn is_set(self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
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

    /// Calls `read` with a connection that no other reader uses meanwhile. If the read is to
    /// [end](Self::end_active), its statements fail with `SQLITE_INTERRUPT`.
    ///
    /// # Errors
    /// If the database cannot be opened, or `read` fails.
    pub fn read<T, E: From<rusqlite::Error>>(
        &self,
        read: impl FnOnce(&Connection) -> Result<T, E>,
    ) -> Result<T, E> {
        self.read_until_ended(|connection, _| read(connection))
    }

    /// Reads like [`read`](Self::read). `read` also ends soon after the request is set, for what it
    /// does between statements.
    ///
    /// # Errors
    /// If the database cannot be opened, or `read` fails.
    pub fn read_until_ended<T, E: From<rusqlite::Error>>(
        &self,
        read: impl FnOnce(&Connection, EndRequest<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        let idle = {
            let state = self.resumed.wait_timeout_while(self.state(), MAX_WAIT, |s| s.is_paused);
            let idle = state.unwrap_or_else(PoisonError::into_inner).0.idle.pop();
            // Under the lock, so that a later request to end is not lost.
            idle.inspect(|reader| reader.must_end.store(false, Ordering::Relaxed))
        };
        let reader = match idle {
            Some(reader) => reader,
            None => {
                let reader = PooledReader::open(&self.path)?;
                self.state().flags.push(Arc::downgrade(&reader.must_end));
                reader
            }
        };
        let result = read(&reader.connection, EndRequest(&reader.must_end));
        let mut state = self.state();
        if state.idle.len() < MAX_IDLE {
            state.idle.push(reader);
        }
        result
    }

    /// Ends the active readers: their statements fail.
    pub fn end_active(&self) {
        self.state().flags.retain(|flag| {
            let flag = flag.upgrade();
            flag.inspect(|flag| flag.store(true, Ordering::Relaxed)).is_some()
        });
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

    /// A statement that never ends.
    const ENDLESS: &str =
        "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n";

    #[test]
    fn a_reader_that_never_ends_is_ended_and_the_log_restarts() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let writer = super::super::writer(&path, None).unwrap();
        writer.execute_batch("CREATE TABLE a (x)").unwrap();
        let readers = ReaderPool::new(&path);
        let begun = Barrier::new(2);
        thread::scope(|scope| {
            let reader = scope.spawn(|| {
                readers.read_until_ended(|connection, must_end| {
                    let snapshot = connection.unchecked_transaction()?;
                    snapshot.query_row("SELECT count(*) FROM a", [], |_| Ok(()))?;
                    begun.wait();
                    let ended = snapshot.query_row(ENDLESS, [], |_| Ok(()));
                    assert!(must_end.is_set());
                    ended
                })
            });
            begun.wait();
            writer.execute_batch("INSERT INTO a VALUES (1)").unwrap();
            let _pause = readers.pause();
            readers.end_active();
            super::super::checkpoint(&writer, super::super::Checkpoint::EndReaders).unwrap();
            assert_eq!(super::super::log_bytes(&writer).unwrap(), 0);
            let error = reader.join().unwrap().unwrap_err();
            let code = error.sqlite_error_code();
            assert_eq!(code, Some(rusqlite::ErrorCode::OperationInterrupted), "{error}");
        });
        // The connection is used again.
        let count = readers.read(|reader| {
            let mut count = reader.prepare("SELECT count(*) FROM a")?;
            count.query_row([], |row| row.get::<_, i64>(0))
        });
        assert_eq!((count, readers.idle()), (Ok(1), 1));
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
