//! Everything that a store takes from outside of the process, except for its files: the time, random
//! numbers, and the place where its writer runs.

use std::fmt;
use std::io;
use std::sync::Arc;
use std::thread::Builder;
use std::time::{SystemTime, UNIX_EPOCH};

use tokio_util::sync::CancellationToken;

use super::writer::StoreWriter;

/// Clock, random numbers and writer thread of a store.
#[derive(Clone)]
pub(crate) struct Outside {
    pub(super) now_ms: Arc<dyn Fn() -> u64 + Send + Sync>,
    pub(super) random: Arc<dyn Fn() -> u64 + Send + Sync>,
    pub(super) writers: Arc<dyn WriterHost>,
    /// Cancelled when the opening is no longer waited for. It ends the wait for a database.
    pub(crate) given_up: CancellationToken,
}

/// Runs the writer of a store.
pub(super) trait WriterHost: Send + Sync {
    /// Starts the writer.
    ///
    /// # Errors
    /// Returns an error if it cannot run.
    fn start(&self, writer: StoreWriter) -> io::Result<JoinWriter>;

    /// Starts a thread of a database that is not simulated.
    ///
    /// # Errors
    /// Returns an error if it cannot run.
    #[cfg(feature = "postgres")]
    fn thread(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinWriter>;

    /// Reports a refusal after the end of the writer, outside of the caller's locks. If that is
    /// impossible, `report` is dropped, which reports it too.
    fn report(&self, report: Box<dyn FnOnce() + Send>);
}

/// Waits until the writer has written all requests of a closed queue, and has closed the file.
pub(super) type JoinWriter = Box<dyn FnOnce() + Send + Sync>;

/// Runs the writer on a thread of its own.
#[derive(Debug)]
struct WriterThread;

impl WriterHost for WriterThread {
    fn start(&self, writer: StoreWriter) -> io::Result<JoinWriter> {
        let thread = Builder::new().name("keylane-store".into()).spawn(move || writer.run())?;
        // After a panic of the writer, its dropped requests have reported the failure already.
        Ok(Box::new(move || drop(thread.join())))
    }

    #[cfg(feature = "postgres")]
    fn thread(&self, name: &str, body: Box<dyn FnOnce() + Send>) -> io::Result<JoinWriter> {
        let thread = Builder::new().name(name.to_owned()).spawn(body)?;
        Ok(Box::new(move || drop(thread.join())))
    }

    fn report(&self, report: Box<dyn FnOnce() + Send>) {
        let _ = Builder::new().name("keylane-store-ended".into()).spawn(report);
    }
}

impl Outside {
    /// Returns the clock, the random numbers and the threads of the system.
    pub(crate) fn system() -> Self {
        Outside {
            now_ms: Arc::new(system_ms),
            // All uses are sound without randomness; it makes identifiers hard to guess, and keeps
            // copies of a store apart.
            random: Arc::new(|| getrandom::u64().unwrap_or(0)),
            writers: Arc::new(WriterThread),
            given_up: CancellationToken::new(),
        }
    }

    /// Returns the time in milliseconds since 1970.
    pub(super) fn now_ms(&self) -> u64 {
        (self.now_ms)()
    }

    /// Returns a random number.
    pub(super) fn random(&self) -> u64 {
        (self.random)()
    }
}

/// Returns the system time in milliseconds since 1970; 0 if the clock is before that.
fn system_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl fmt::Debug for Outside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outside").field("now_ms", &self.now_ms()).finish_non_exhaustive()
    }
}
