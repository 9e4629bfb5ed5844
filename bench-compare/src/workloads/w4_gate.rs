//! W4's small figures: what a fair gate of one slot costs while no thread waits, against a lock; and how
//! long it takes to hand a slot to a thread that waits for it, against waking that thread and nothing
//! else.
//!
//! For the hand-off two threads wait for each other in turn, each at a gate of its own. A round is two
//! hand-offs; the figure is for one.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;

use super::Setting;
use crate::args::Args;
use crate::record::Record;
use crate::{Result, ours};

pub(crate) const RIVALS: &[&str] = &["std-mutex", "park-unpark", "tokio-semaphore"];

pub(crate) fn run(mut args: Args) -> Result<Record> {
    let setting = Setting::from_args(&mut args, Setting::defaults())?;
    let is_handed = args.take("handed", false)?;
    args.finish()?;
    Ok(match (setting.peer.as_str(), is_handed) {
        ("std-mutex", false) => {
            let mutex = Mutex::new(0_u64);
            alone(&setting, || *black_box(&mutex).lock().expect("no holder panics") += 1)
        }
        ("tokio-semaphore", false) => {
            let semaphore = tokio::sync::Semaphore::new(1);
            alone(&setting, || drop(black_box(&semaphore).try_acquire()))
        }
        ("tokio-semaphore", true) => semaphore(&setting),
        ("park-unpark", true) => park(&setting),
        _ => ours::w4_gate(&setting, is_handed)?,
    })
}

/// One thread takes and gives back.
pub(crate) fn alone(setting: &Setting, mut once: impl FnMut()) -> Record {
    let start = Instant::now();
    (0..setting.tasks).for_each(|_| once());
    record(setting, start, setting.tasks)
}

/// Two threads, each of which takes at its own side, then gives at the other's.
pub(crate) fn handed(
    setting: &Setting,
    take: impl Fn(usize) + Sync,
    give: impl Fn(usize) + Sync,
) -> Record {
    let alternating = AtomicUsize::new(0);
    let start = Instant::now();
    thread::scope(|scope| {
        for side in [0, 1] {
            let (take, give, alternating) = (&take, &give, &alternating);
            scope.spawn(move || {
                for _ in 0..setting.tasks {
                    take(side);
                    let turn = alternating.load(Ordering::Relaxed);
                    assert_eq!(turn % 2, side, "each waits for the other");
                    alternating.store(turn + 1, Ordering::Relaxed);
                    give(1 - side);
                }
            });
        }
        give(0);
    });
    record(setting, start, 2 * setting.tasks)
}

fn record(setting: &Setting, start: Instant, steps: usize) -> Record {
    let mut record = setting.record("w4-gate");
    record.figure("ns", start.elapsed().as_secs_f64() * 1e9 / steps as f64);
    record.all_done = true;
    record
}

/// Tokio's has no blocking form of its own.
fn semaphore(setting: &Setting) -> Record {
    let sides = [0, 0].map(tokio::sync::Semaphore::new);
    let take = |side: usize| block_on(sides[side].acquire()).expect("it is open").forget();
    handed(setting, take, |side| sides[side].add_permits(1))
}

/// Parks this thread until the future is ready: what the smallest of executors does.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    thread_local!(static WAKER: Waker = Waker::from(Arc::new(Unpark(thread::current()))));
    let mut future = std::pin::pin!(future);
    WAKER.with(|waker| {
        loop {
            match future.as_mut().poll(&mut Context::from_waker(waker)) {
                Poll::Ready(output) => return output,
                Poll::Pending => thread::park(),
            }
        }
    })
}

/// A flag, and `park` until it is up: no less would be a hand-off.
fn park(setting: &Setting) -> Record {
    let flags = [false, false].map(AtomicBool::new);
    let threads: [OnceLock<Thread>; 2] = Default::default();
    let take = |side: usize| {
        threads[side].get_or_init(thread::current);
        while !flags[side].swap(false, Ordering::AcqRel) {
            thread::park();
        }
    };
    let give = |side: usize| {
        flags[side].store(true, Ordering::SeqCst);
        if let Some(thread) = threads[side].get() {
            thread.unpark();
        }
    };
    handed(setting, take, give)
}
