//! Primitives of shuttle, which runs all threads of a test on one thread of the system, and chooses
//! the next one at each access to a lock, an atomic or a thread.

use std::cell::{Cell, RefCell};
use std::io;

pub(crate) use shuttle::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, fence};
pub(crate) use shuttle::sync::{Condvar, Mutex as RawMutex, MutexGuard};
pub(crate) use shuttle::thread::{JoinHandle, Thread, ThreadId, current, park, yield_now};
pub(crate) use shuttle::thread_local;

std::thread_local! {
    /// Whether further threads of pools are refused. All threads of a test are on one of the
    /// system's.
    pub(crate) static REFUSES_THREADS: Cell<bool> = const { Cell::new(false) };
}

/// Starts a thread, unless the test refuses it.
pub(crate) fn spawn(
    name: String,
    _: Option<usize>,
    run: impl FnOnce() + Send + 'static,
) -> io::Result<JoinHandle<()>> {
    match REFUSES_THREADS.get() {
        true => Err(io::Error::from(io::ErrorKind::WouldBlock)),
        false => shuttle::thread::Builder::new().name(name).spawn(run),
    }
}

/// Returns the identity of the calling thread.
pub(crate) fn this_thread() -> ThreadId {
    current().id()
}

/// Returns 0: what a pool does must depend on the schedule alone, so that a seed repeats it.
pub(crate) fn nanos_since(_: std::time::Instant) -> u64 {
    0
}

/// Parks without a timeout: there is no time. Tests choose deadlines in the past, or none.
pub(crate) fn park_timeout(_: std::time::Duration) {
    park();
}

/// Yields: there is no time.
pub(super) fn sleep(_: std::time::Duration) {
    yield_now();
}

/// Returns the identity and the name of a thread.
pub(crate) fn identity(thread: &Thread) -> (Option<ThreadId>, Option<String>) {
    (Some(thread.id()), thread.name().map(str::to_owned))
}

pub(crate) fn spin_hint() {
    yield_now();
}

/// Returns 0: the number of attempts affects only speed.
pub(crate) fn rounds(_: u32) -> u32 {
    0
}

/// The methods that `std` gives a thread's own cell.
pub(crate) trait LocalCell<T> {
    fn set(&'static self, value: T);
    fn replace(&'static self, value: T) -> T;
    fn get(&'static self) -> T
    where
        T: Copy;
    fn take(&'static self) -> T
    where
        T: Default;
}

impl<T> LocalCell<T> for shuttle::thread::LocalKey<Cell<T>> {
    fn set(&'static self, value: T) {
        self.with(|cell| cell.set(value));
    }

    fn replace(&'static self, value: T) -> T {
        self.with(|cell| cell.replace(value))
    }

    fn get(&'static self) -> T
    where
        T: Copy,
    {
        self.with(Cell::get)
    }

    fn take(&'static self) -> T
    where
        T: Default,
    {
        self.with(Cell::take)
    }
}

/// The method that `std` gives a thread's own `RefCell`.
pub(crate) trait LocalRefCell<T> {
    fn set(&'static self, value: T);
}

impl<T> LocalRefCell<T> for shuttle::thread::LocalKey<RefCell<T>> {
    fn set(&'static self, value: T) {
        self.with(|cell| *cell.borrow_mut() = value);
    }
}
