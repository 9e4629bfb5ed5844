//! Where the engine runs: tasks on a runtime, and blocking work and the dispatcher where [`Threads`]
//! decides. Both are passed in.

use std::fmt;
use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::thread::Builder;
use std::time::Duration;

use keylane_storage::ThreadNotify;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::task::{JoinError, JoinHandle};

/// Starts tasks and blocking work of the engine.
#[derive(Clone)]
pub(crate) struct Executor {
    runtime: Handle,
    threads: Arc<dyn Threads>,
}

/// Starts work that blocks a thread.
pub(crate) trait Threads: Send + Sync {
    /// Runs work that ends soon.
    fn blocking(&self, runtime: &Handle, work: Box<dyn FnOnce() + Send>) -> JoinHandle<()>;

    /// Runs the dispatcher until it has stopped.
    ///
    /// # Errors
    /// Returns an error if it cannot be started.
    fn dispatcher(
        &self,
        runtime: &Handle,
        dispatcher: Box<dyn Dispatcher>,
    ) -> io::Result<JoinDispatcher>;
}

/// Loop that starts subtasks.
pub(crate) trait Dispatcher: Send {
    /// Starts what can start. Returns the longest wait until the next step, or `None` when the
    /// service has stopped.
    fn step(&mut self) -> Option<Duration>;

    /// Returns the notification that ends the wait.
    fn notify(&self) -> &ThreadNotify;
}

/// Waits until the dispatcher has ended, which it does when the service has stopped.
pub(crate) type JoinDispatcher = Box<dyn FnOnce() + Send + Sync>;

/// Threads of the operating system.
#[derive(Debug)]
pub(crate) struct SystemThreads;

impl Threads for SystemThreads {
    fn blocking(&self, runtime: &Handle, work: Box<dyn FnOnce() + Send>) -> JoinHandle<()> {
        runtime.spawn_blocking(work)
    }

    fn dispatcher(
        &self,
        _: &Handle,
        mut dispatcher: Box<dyn Dispatcher>,
    ) -> io::Result<JoinDispatcher> {
        let thread = Builder::new().name("keylane-dispatch".into()).spawn(move || {
            while let Some(wait) = dispatcher.step() {
                if !wait.is_zero() {
                    dispatcher.notify().wait(wait);
                }
            }
        })?;
        Ok(Box::new(move || thread.join().expect("the dispatcher does not panic")))
    }
}

impl Executor {
    pub(crate) fn new(runtime: Handle, threads: impl Threads + 'static) -> Self {
        Executor { runtime, threads: Arc::new(threads) }
    }

    pub(super) fn spawn<T: Send + 'static>(
        &self,
        work: impl Future<Output = T> + Send + 'static,
    ) -> JoinHandle<T> {
        self.runtime.spawn(work)
    }

    /// Returns the runtime, for a task tracker.
    pub(super) fn handle(&self) -> &Handle {
        &self.runtime
    }

    /// Starts the dispatcher.
    pub(super) fn dispatcher(
        &self,
        dispatcher: impl Dispatcher + 'static,
    ) -> io::Result<JoinDispatcher> {
        self.threads.dispatcher(&self.runtime, Box::new(dispatcher))
    }

    /// Runs work that may block, such as a read of the store.
    ///
    /// # Errors
    /// Returns an error if the work panics.
    pub(crate) async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, JoinError> {
        let (give, take) = oneshot::channel();
        let work = Box::new(move || drop(give.send(work())));
        self.threads.blocking(&self.runtime, work).await?;
        Ok(take.await.expect("work that did not panic has sent its result"))
    }

    /// Like [`blocking`](Self::blocking), and passes a panic on.
    pub(super) async fn blocking_or_panic<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> T {
        self.blocking(work).await.unwrap_or_else(|panic| resume_unwind(panic.into_panic()))
    }
}

impl fmt::Debug for Executor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Executor").field("runtime", &self.runtime).finish_non_exhaustive()
    }
}
