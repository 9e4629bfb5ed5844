//! Tools of several tests: gates, logs, counted values, wakers, a watchdog.
//!
//! Tests wait for signals. Where the pool gives none (a worker has gone to sleep, a permit was
//! collected) they check again and again, with [`eventually`], and never wait for a length of time.
//! A condition that never holds fails the test after [`LONG`].
#![allow(dead_code, reason = "each test file uses a part of this")]

use std::future::Future;
use std::hash::{BuildHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::thread;
use std::time::{Duration, Instant};

use keylane::{Handler, IntoClaims, Pool, TaskContext, Turn, handler};

/// Longer than any test takes on the slowest machine: one that is not over by then hangs.
pub(crate) const LONG: Duration = Duration::from_secs(120);

/// Factor by which a randomized test does more than in each run of all tests: `KEYLANE_EFFORT`, or 1.
pub(crate) fn effort() -> u64 {
    let text = std::env::var("KEYLANE_EFFORT");
    text.map_or(1, |text| text.parse().expect("KEYLANE_EFFORT is a number"))
}

/// Locks, whatever became of others that did.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

/// Runs a test, and fails it if it hangs.
#[track_caller]
pub(crate) fn soon<T: Send + 'static>(test: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, finished) = mpsc::channel();
    thread::spawn(move || {
        let _ = done.send(catch_unwind(AssertUnwindSafe(test)));
    });
    match finished.recv_timeout(LONG) {
        Ok(Ok(value)) => value,
        Ok(Err(panic)) => resume_unwind(panic),
        Err(_) => panic!("the test hangs"),
    }
}

/// Asks until the answer is yes, for what gives no signal.
#[track_caller]
pub(crate) fn eventually(mut question: impl FnMut() -> bool) {
    let start = Instant::now();
    while !question() {
        assert!(start.elapsed() < LONG, "it never happens");
        thread::yield_now();
    }
}

/// Closed until it is opened, then open forever.
#[derive(Clone, Default)]
pub(crate) struct Gate(Arc<(Mutex<bool>, Condvar)>);

impl Gate {
    pub(crate) fn new() -> Self {
        Gate::default()
    }

    pub(crate) fn open(&self) {
        *lock(&self.0.0) = true;
        self.0.1.notify_all();
    }

    pub(crate) fn is_open(&self) -> bool {
        *lock(&self.0.0)
    }

    /// Waits until it is open.
    #[track_caller]
    pub(crate) fn pass(&self) {
        let open = lock(&self.0.0);
        let waited = self.0.1.wait_timeout_while(open, LONG, |open| !*open);
        let (open, _) = waited.unwrap_or_else(|poisoned| poisoned.into_inner());
        assert!(*open, "nobody opened the gate");
    }
}

/// Opens a gate when it goes out of scope, so that a failed test does not hang its pool.
pub(crate) struct OpenAtLast(pub(crate) Gate);

impl Drop for OpenAtLast {
    fn drop(&mut self) {
        self.0.open();
    }
}

/// A list that tasks write.
pub(crate) struct Log<T>(Arc<Mutex<Vec<T>>>);

impl<T> Clone for Log<T> {
    fn clone(&self) -> Self {
        Log(self.0.clone())
    }
}

impl<T> Log<T> {
    pub(crate) fn new() -> Self {
        Log(Arc::default())
    }

    pub(crate) fn push(&self, value: T) {
        lock(&self.0).push(value);
    }

    pub(crate) fn take(&self) -> Vec<T> {
        std::mem::take(&mut *lock(&self.0))
    }

    pub(crate) fn len(&self) -> usize {
        lock(&self.0).len()
    }
}

/// Counts how many of its copies live.
#[derive(Clone, Default)]
pub(crate) struct Live(Arc<AtomicUsize>);

impl Live {
    pub(crate) fn new() -> Self {
        Live::default()
    }

    pub(crate) fn one(&self) -> One {
        self.0.fetch_add(1, Ordering::SeqCst);
        One(self.0.clone())
    }

    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }

    pub(crate) fn watch(&self) -> LiveWatch {
        LiveWatch(self.0.clone())
    }
}

/// Looks at a [`Live`] from elsewhere.
pub(crate) struct LiveWatch(Arc<AtomicUsize>);

impl LiveWatch {
    pub(crate) fn now(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

/// One copy that [`Live`] counts.
pub(crate) struct One(Arc<AtomicUsize>);

impl One {
    /// How many live, this one among them.
    pub(crate) fn count(&self) -> usize {
        self.0.load(Ordering::SeqCst)
    }
}

impl Clone for One {
    fn clone(&self) -> Self {
        self.0.fetch_add(1, Ordering::SeqCst);
        One(self.0.clone())
    }
}

impl Drop for One {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A key that is counted until its last copy is dropped.
#[derive(Clone)]
pub(crate) struct CountedKey(
    u32,
    #[expect(dead_code, reason = "it is dropped with the key")] Arc<One>,
);

impl CountedKey {
    pub(crate) fn new(number: u32, live: &Live) -> Self {
        CountedKey(number, Arc::new(live.one()))
    }
}

impl PartialEq for CountedKey {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl Eq for CountedKey {}

impl Hash for CountedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// The worst hasher there is: all keys collide, so all lanes are in one shard and one bucket.
#[derive(Clone, Default)]
pub(crate) struct Collide;

impl BuildHasher for Collide {
    type Hasher = Collided;

    fn build_hasher(&self) -> Collided {
        Collided
    }
}

pub(crate) struct Collided;

impl Hasher for Collided {
    fn finish(&self) -> u64 {
        0
    }

    fn write(&mut self, _: &[u8]) {}
}

/// A hasher that a test can be run with.
pub(crate) trait AnyHasher: BuildHasher + Default + Send + Sync + 'static {}
impl<S: BuildHasher + Default + Send + Sync + 'static> AnyHasher for S {}

/// Makes two tests of each function that is generic over the pool's hasher.
#[allow(unused_macros, reason = "each test file uses a part of this")]
macro_rules! with_every_hasher {
    ($($test:ident),* $(,)?) => {
        mod keys_are_spread {
            $(#[test] fn $test() { crate::common::soon(super::$test::<keylane::KeyBuildHasher>); })*
        }
        mod all_keys_collide {
            $(#[test] fn $test() { crate::common::soon(super::$test::<crate::common::Collide>); })*
        }
    };
}
#[allow(unused_imports, reason = "each test file uses a part of this")]
pub(crate) use with_every_hasher;

/// A pool with this many workers.
pub(crate) fn pool_of<S: AnyHasher>(workers: usize) -> Pool<u32, S> {
    Pool::<u32>::builder().workers(workers).hasher(S::default()).build().expect("it can be built")
}

pub(crate) fn pool(workers: usize) -> Pool<u32> {
    Pool::builder().workers(workers).build().expect("it can be built")
}

/// Keys on which a task runs until it is let go.
pub(crate) struct HeldKey {
    gate: Gate,
}

/// Submits a task that runs until its `HeldKey` is let go, or dropped. Returns when it runs.
pub(crate) fn hold<S: AnyHasher>(pool: &Pool<u32, S>, keys: impl IntoClaims<u32>) -> HeldKey {
    let hold = hold_soon(pool, keys);
    hold.1.pass();
    hold.0
}

/// The same, but returns at once. The gate opens when the task runs.
pub(crate) fn hold_soon<S: AnyHasher>(
    pool: &Pool<u32, S>,
    keys: impl IntoClaims<u32>,
) -> (HeldKey, Gate) {
    let (gate, begun) = (Gate::new(), Gate::new());
    let (wait, runs) = (gate.clone(), begun.clone());
    pool.execute(keys, move || {
        runs.open();
        wait.pass();
    })
    .expect("the pool is open");
    (HeldKey { gate }, begun)
}

impl HeldKey {
    pub(crate) fn let_go(self) {}
}

impl Drop for HeldKey {
    fn drop(&mut self) {
        self.gate.open();
    }
}

/// A waker that counts.
#[derive(Default)]
pub(crate) struct Wakes {
    count: AtomicUsize,
    first: Gate,
}

impl Wakes {
    pub(crate) fn new() -> Arc<Self> {
        Arc::default()
    }

    pub(crate) fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    /// Waits for the first wake-up.
    #[track_caller]
    pub(crate) fn wait(&self) {
        self.first.pass();
    }
}

impl Wake for Wakes {
    fn wake(self: Arc<Self>) {
        self.count.fetch_add(1, Ordering::SeqCst);
        self.first.open();
    }
}

/// Polls once, with a waker that records into `wakes`.
pub(crate) fn poll<F: Future + ?Sized>(future: Pin<&mut F>, wakes: &Arc<Wakes>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(&Waker::from(wakes.clone())))
}

/// Runs a future on this thread.
pub(crate) fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    loop {
        let wakes = Wakes::new();
        if let Poll::Ready(output) = poll(future.as_mut(), &wakes) {
            return output;
        }
        wakes.wait();
    }
}

/// A small generator of random numbers (SplitMix64).
pub(crate) struct Rng(pub(crate) u64);

impl Rng {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}

/// Key that panics when it is compared while it is armed. All of them have the same hash.
#[derive(Clone)]
pub(crate) struct Fragile(pub(crate) u32, pub(crate) Arc<AtomicBool>);

impl Hash for Fragile {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

impl PartialEq for Fragile {
    fn eq(&self, other: &Self) -> bool {
        assert!(!self.1.load(Ordering::SeqCst), "as expected");
        self.0 == other.0
    }
}

impl Eq for Fragile {}

/// Handler that gets the turn of each message.
pub(crate) fn with_turns<K, M>(
    handle: impl Fn(&K, M, Turn) + Send + Sync + 'static,
) -> impl Handler<K, M> {
    handler::with_context(move |key: &K, message: M, task: TaskContext<'_>| {
        handle(key, message, task.keep());
    })
}
