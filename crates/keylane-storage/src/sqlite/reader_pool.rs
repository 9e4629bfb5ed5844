//! Pool of reading connections, which the writer can pause, for a bounded time, to let the log
//! restart.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};

use rusqlite::Connection;

use super::connection::reader;

/// Maximum number of idle connections. Each has a page cache and open files.
const MAX_IDLE: usize = 8;

/// Maximum duration of a pause. It is beyond what short readers take, and new readers wait for no
/// more than this beside one that takes minutes.
const MAX_PAUSE: Duration = Duration::from_millis(500);

/// Pool of reading connections of one database. Each reader has its own connection, so readers do
/// not wait for each other.
///
/// SQLite's log restarts only in a moment without readers. A continuous sequence of short readers
/// leaves none, so the writer [pauses](Self::pause) the pool: active readers continue, and new ones
/// wait until the pause ends. The writer need not wait for the active ones: a callback reports when
/// [the last has left](Self::is_active). A reader that takes too long is [ended](Self::end_active).
pub struct ReaderPool {
    path: PathBuf,
    state: Mutex<ReaderPoolState>,
    /// Notified when a pause ends.
    resumed: Condvar,
    /// Called when awaited readers have left.
    after_last: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

impl std::fmt::Debug for ReaderPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ReaderPool").field("path", &self.path).finish_non_exhaustive()
    }
}

#[derive(Debug, Default)]
struct ReaderPoolState {
    /// Idle connections.
    idle: Vec<PooledReader>,
    /// Flags of all connections, idle ones included.
    flags: Vec<Weak<AtomicBool>>,
    /// Number of active readers.
    active: usize,
    /// Whether the writer awaits the end of the active readers.
    is_awaited: bool,
    /// End of the pause, if there is one.
    paused_until: Option<Instant>,
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

/// Place of an active reader, which it leaves also by a panic.
struct ActiveReader<'a>(&'a ReaderPool);

impl ReaderPool {
    /// Creates a pool for this database.
    #[must_use]
    pub fn new(path: &Path) -> Self {
        ReaderPool {
            path: path.to_owned(),
            state: Mutex::default(),
            resumed: Condvar::new(),
            after_last: OnceLock::new(),
        }
    }

    /// Sets the callback for the end of awaited readers. It runs on a reader's thread. Only the
    /// first call counts.
    pub fn after_last(&self, call: impl Fn() + Send + Sync + 'static) {
        let _ = self.after_last.set(Box::new(call));
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
        let (_place, idle) = self.enter();
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

    /// Waits for the end of a pause, and counts as active from then on.
    fn enter(&self) -> (ActiveReader<'_>, Option<PooledReader>) {
        let mut state = self.state();
        while let Some(until) = state.paused_until {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                state.paused_until = None;
                break;
            }
            let waited = self.resumed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        state.active += 1;
        let idle = state.idle.pop();
        // Under the lock, so that a later request to end is not lost.
        let idle = idle.inspect(|reader| reader.must_end.store(false, Ordering::Relaxed));
        drop(state);
        (ActiveReader(self), idle)
    }

    /// Keeps new readers from starting until [`resume`](Self::resume), and for at most half a
    /// second from the first of successive calls.
    pub fn pause(&self) {
        let (mut state, now) = (self.state(), Instant::now());
        if state.paused_until.is_none_or(|until| until <= now) {
            state.paused_until = Some(now + MAX_PAUSE);
        }
    }

    /// Ends a pause.
    pub fn resume(&self) {
        self.state().paused_until = None;
        self.resumed.notify_all();
    }

    /// Returns whether there are active readers. If so, the callback is called once they have left.
    pub fn is_active(&self) -> bool {
        let mut state = self.state();
        state.is_awaited = state.active > 0;
        state.is_awaited
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

impl Drop for ActiveReader<'_> {
    fn drop(&mut self) {
        let must_call = {
            let mut state = self.0.state();
            state.active -= 1;
            state.active == 0 && std::mem::take(&mut state.is_awaited)
        };
        if let Some(call) = self.0.after_last.get().filter(|_| must_call) {
            call();
        }
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
            readers.end_active();
            let error = reader.join().unwrap().unwrap_err();
            let reset = super::super::Checkpoint::Reset;
            assert!(super::super::checkpoint(&writer, reset).unwrap());
            assert_eq!(super::super::log_bytes(&writer).unwrap(), 0);
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
            readers.pause();
            let reader = scope.spawn(|| {
                let seen = readers.read(|_| Ok::<_, rusqlite::Error>(is_over.load(order)));
                seen.unwrap()
            });
            is_over.store(true, order);
            readers.resume();
            assert!(reader.join().unwrap());
        });
    }

    #[test]
    fn the_writer_learns_when_the_readers_that_it_awaits_have_left() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        super::super::writer(&path, None).unwrap().execute_batch("CREATE TABLE a (x)").unwrap();
        let readers = ReaderPool::new(&path);
        let (tell, told) = std::sync::mpsc::channel();
        readers.after_last(move || tell.send(()).unwrap());
        let read = |inner: &dyn Fn()| {
            readers.read(|_| {
                inner();
                Ok::<_, rusqlite::Error>(())
            })
        };
        read(&|| ()).unwrap();
        assert!(!readers.is_active());
        read(&|| read(&|| assert!(readers.is_active())).unwrap()).unwrap();
        let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            read(&|| {
                assert!(readers.is_active());
                panic!("a reader");
            })
        }));
        assert!(panicked.is_err() && !readers.is_active());
        drop(readers);
        assert_eq!(told.iter().count(), 2, "once for each time that it has asked");
    }
}
