//! What one worker has done and does, written by it and read by anybody.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::detached_turns::StartRange;
use super::histogram::{Histogram, Recorder};
use super::statistics::Statistics;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering};

/// Every atomic is written by its worker alone, so plain loads and stores count.
#[derive(Debug)]
pub(crate) struct WorkerCounters {
    fields: CachePadded<WorkerFields>,
    /// The rollup that it runs, if it does. Written by the worker, under the lock.
    rollup: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
    /// How long tasks waited before they began here, and how long they ran; unless nothing is measured.
    times: Option<Box<WorkerTimes>>,
    /// When the pool was built; never changed.
    epoch: Instant,
    /// A task that an onlooker has seen here, by its number, and when the first saw it.
    noticed: Mutex<Option<(u64, u64)>>,
}

#[derive(Debug)]
struct WorkerTimes {
    wait: Recorder,
    run: Recorder,
}

#[derive(Debug)]
struct WorkerFields {
    /// Tasks that it has run.
    ran: AtomicU64,
    /// It has tasks; else it looks for some, or sleeps.
    busy: AtomicBool,
    /// When it last looked at the clock while busy, or fell idle: nanoseconds since `epoch`.
    looked: AtomicU64,
    /// What `ran` was then.
    ran_then: AtomicU64,
    /// Where its task stands: see [`WorkerPosition`]. Means something while it has one.
    place: AtomicU64,
    /// How long it has had tasks, up to when it last looked at the clock, in nanoseconds,
    worked: AtomicU64,
    /// and how long it has slept, up to when it last woke.
    slept: AtomicU64,
}

/// Where the task of a worker stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerPosition {
    /// It has no key.
    Free,
    /// It holds the lane in this slot of this shard.
    Lane { shard: usize, slot: usize },
    /// It holds several lanes.
    Rollup,
}

const FREE: u64 = u64::MAX;
const ROLLUP: u64 = u64::MAX - 1;

/// A worker's task, as far as it is known.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunningTask {
    pub(crate) place: WorkerPosition,
    /// How many tasks the worker had run before it.
    pub(crate) number: u64,
    /// It has run for no longer than this,
    pub(crate) at_most: Duration,
    /// and for no less than this.
    pub(crate) at_least: Duration,
}

impl WorkerCounters {
    pub(crate) fn new(epoch: Instant, statistics: Statistics) -> Self {
        let zero = || AtomicU64::new(0);
        let born = epoch.elapsed().as_nanos() as u64;
        let fields = WorkerFields {
            ran: zero(),
            busy: AtomicBool::new(false),
            looked: AtomicU64::new(born),
            ran_then: zero(),
            place: AtomicU64::new(FREE),
            worked: zero(),
            slept: zero(),
        };
        let times = || Box::new(WorkerTimes { wait: Recorder::new(), run: Recorder::new() });
        WorkerCounters {
            fields: CachePadded::new(fields),
            rollup: Mutex::new(None),
            times: (statistics != Statistics::Off).then(times),
            epoch,
            noticed: Mutex::new(None),
        }
    }

    #[inline]
    pub(crate) fn ran_one(&self) {
        let ran = self.fields.ran.load(Ordering::Relaxed);
        // Who sees that it has ended sees where it stood as well.
        self.fields.ran.store(ran + 1, Ordering::Release);
    }

    /// The time as its worker counts it: nanoseconds since the pool was built.
    pub(crate) fn now(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// The worker has looked at the clock, between two tasks.
    pub(crate) fn looked(&self, now: u64) {
        if self.fields.busy.load(Ordering::Relaxed) {
            let before = self.fields.looked.load(Ordering::Relaxed);
            add(&self.fields.worked, now.saturating_sub(before));
        }
        self.fields.looked.store(now, Ordering::Release);
        let ran = self.fields.ran.load(Ordering::Relaxed);
        // Last: who sees this number sees when that was. See `present`.
        self.fields.ran_then.store(ran, Ordering::Release);
    }

    /// It has found a task, and is about to run it.
    pub(crate) fn fell_busy(&self, now: u64) {
        self.looked(now);
        self.fields.busy.store(true, Ordering::Release);
    }

    /// It has found none.
    pub(crate) fn fell_idle(&self, now: u64) {
        self.looked(now);
        self.fields.busy.store(false, Ordering::Release);
    }

    pub(crate) fn has_slept(&self, nanos: u64) {
        add(&self.fields.slept, nanos);
    }

    /// Its task stands in a lane.
    #[inline]
    pub(crate) fn stand_in_lane(&self, shard: usize, slot: usize) {
        // Shards are few, and a slot for each task of a pool would still fit.
        self.fields.place.store((shard as u64) << 48 | slot as u64, Ordering::Relaxed);
    }

    /// Its task has no key.
    #[inline]
    pub(crate) fn stand_free(&self) {
        self.fields.place.store(FREE, Ordering::Relaxed);
    }

    /// Its task is a rollup.
    pub(crate) fn stand_in_rollup(&self, rollup: Arc<dyn Any + Send + Sync>) {
        *self.rollup.lock() = Some(rollup);
        self.fields.place.store(ROLLUP, Ordering::Relaxed);
    }

    pub(crate) fn leave_rollup(&self) {
        let left = self.rollup.lock().take();
        drop(left);
    }

    /// A task begins that has waited for so long, and stands for so many.
    pub(crate) fn waited(&self, nanos: u64, stands_for: u64) {
        if let Some(times) = &self.times {
            times.wait.record(nanos, stands_for);
        }
    }

    /// A task has ended that has run for so long, and stands for so many.
    pub(crate) fn took(&self, nanos: u64, stands_for: u64) {
        if let Some(times) = &self.times {
            times.run.record(nanos, stands_for);
        }
    }
}

/// What others see.
impl WorkerCounters {
    pub(crate) fn ran(&self) -> u64 {
        self.fields.ran.load(Ordering::Acquire)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.fields.busy.load(Ordering::Acquire)
    }

    /// How long ago the worker last looked at the clock.
    pub(crate) fn since_look(&self) -> Duration {
        let looked = Duration::from_nanos(self.fields.looked.load(Ordering::Acquire));
        self.epoch.elapsed().saturating_sub(looked)
    }

    /// How long it has had tasks, in all.
    pub(crate) fn worked(&self) -> Duration {
        let worked = Duration::from_nanos(self.fields.worked.load(Ordering::Relaxed));
        worked + if self.is_busy() { self.since_look() } else { Duration::ZERO }
    }

    /// How long it has slept, up to when it last woke.
    pub(crate) fn slept(&self) -> Duration {
        Duration::from_nanos(self.fields.slept.load(Ordering::Relaxed))
    }

    /// Its task, if it has one.
    pub(crate) fn present(&self) -> Option<RunningTask> {
        if !self.is_busy() {
            return None;
        }
        // In this order: if the last look was after as many tasks as have run, then it was when this one
        // began. Had there been another look since, and read here, then more tasks would have run.
        let ran_then = self.fields.ran_then.load(Ordering::Acquire);
        let looked = self.fields.looked.load(Ordering::Acquire);
        let number = self.ran();
        let now = self.now();
        let at_most = Duration::from_nanos(now.saturating_sub(looked));
        let at_least = match ran_then == number {
            true => at_most,
            false => Duration::from_nanos(now.saturating_sub(self.notice(number, now))),
        };
        let place = match self.fields.place.load(Ordering::Relaxed) {
            FREE => WorkerPosition::Free,
            ROLLUP => WorkerPosition::Rollup,
            place => WorkerPosition::Lane {
                shard: (place >> 48) as usize,
                slot: (place & 0xffff_ffff_ffff) as usize,
            },
        };
        Some(RunningTask { place, number, at_most, at_least })
    }

    /// When the task began that its worker runs, which is who asks.
    pub(crate) fn began(&self) -> StartRange {
        let earliest = self.fields.looked.load(Ordering::Relaxed);
        let number = self.ran();
        let latest = match self.fields.ran_then.load(Ordering::Relaxed) == number {
            true => earliest,
            false => self.notice(number, self.now()),
        };
        StartRange { earliest, latest }
    }

    /// When somebody first saw this task run.
    fn notice(&self, number: u64, now: u64) -> u64 {
        let mut noticed = self.noticed.lock();
        match *noticed {
            Some((it, since)) if it == number => since,
            _ => {
                *noticed = Some((number, now));
                now
            }
        }
    }

    /// The rollup that it runs.
    pub(crate) fn rollup(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.rollup.lock().clone()
    }

    pub(crate) fn add_times_to(&self, wait: &mut Histogram, run: &mut Histogram) {
        if let Some(times) = &self.times {
            times.wait.add_to(wait);
            times.run.add_to(run);
        }
    }
}

/// Adds to what only the caller writes.
fn add(to: &AtomicU64, more: u64) {
    to.store(to.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}
