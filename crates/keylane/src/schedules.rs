//! A whole pool under shuttle's scheduler: workers, timer, jobs, waiting futures, stops, with panics
//! of the user's values and with threads that cannot be started.
//!
//! Everything that runs is production code: `sync.rs` names shuttle's primitives in place of those
//! of `std`. The scheduler chooses the next thread at each access to a lock, an atomic or a thread,
//! from a seed; memory is sequentially consistent. A schedule fails if a thread panics, if all
//! threads wait, or if it takes too many steps. `schedules/README.md` has the commands and the limits.

#[path = "../tests/it/linearizability/checker.rs"]
mod checker;
mod faults;
mod features;
mod order;

use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};

use shuttle::scheduler::{PctScheduler, RandomScheduler, Scheduler};
use shuttle::{Config, Runner};

use crate::sync::{Mutex, Thread, current, park};
use crate::{Builder, Pool};

/// Schedules of each kind and test without `KEYLANE_SCHEDULES`.
const SCHEDULES: usize = 200;
/// Number of forced changes of the running thread in a schedule of the second kind.
const DEPTH: usize = 4;

/// Runs a test in random schedules, and in schedules with few changes of the running thread.
fn check(test: impl Fn() + Send + Sync + 'static) {
    let number = |name: &str| std::env::var(name).ok().map(|text| text.parse().expect("a number"));
    let schedules = number("KEYLANE_SCHEDULES").unwrap_or(SCHEDULES as u64) as usize;
    let seed = number("KEYLANE_SEED").unwrap_or(0);
    let test = Arc::new(test);
    println!("seed {seed}, {schedules} random schedules, {schedules} with {DEPTH} changes");
    run(RandomScheduler::new_from_seed(seed, schedules), test.clone());
    run(PctScheduler::new_from_seed(seed, DEPTH, schedules), test);
}

fn run(scheduler: impl Scheduler + 'static, test: Arc<impl Fn() + Send + Sync + 'static>) {
    let mut config = Config::new();
    config.stack_size = 1 << 18;
    config.silence_warnings = true;
    Runner::new(scheduler, config).run(move || test());
}

/// Hasher without random keys: each key has the same shard in each run.
#[derive(Default)]
struct SameHasher(u64);

impl Hasher for SameHasher {
    fn finish(&self) -> u64 {
        // Spreads small keys over all bits.
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.0 = self.0 << 8 | u64::from(*byte));
    }

    fn write_u32(&mut self, key: u32) {
        self.0 = key.into();
    }
}

type SameHash = BuildHasherDefault<SameHasher>;
type TestPool = Pool<u32, SameHash>;

fn builder(workers: usize) -> Builder<u32, SameHash> {
    Pool::<u32>::builder().workers(workers).hasher(SameHash::default())
}

fn pool(workers: usize) -> TestPool {
    builder(workers).build().expect("the settings are valid")
}

/// Log of numbers.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u32>>>);

impl Log {
    /// Returns work that writes a number.
    fn write(&self, number: u32) -> impl FnOnce() + Send + use<> {
        let log = self.clone();
        move || log.0.lock().push(number)
    }

    fn numbers(&self) -> Vec<u32> {
        self.0.lock().clone()
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let mut future = std::pin::pin!(future);
    let waker = Waker::from(Arc::new(Unpark(current())));
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        park();
    }
}
