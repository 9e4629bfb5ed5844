//! Counters and current task of a worker: written by that worker alone, read by any thread.

use std::any::Any;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::detached_turns::StartRange;
use super::histogram::{Histogram, HistogramRecorder};
use super::statistics_setting::Statistics;
use crate::sync::{AtomicBool, AtomicU64, Mutex, Ordering, nanos_since};

/// Counters of one worker. Each atomic has one writer, so it is updated with plain loads and
/// stores.
#[derive(Debug)]
pub(crate) struct WorkerCounters {
    fields: CachePadded<WorkerFields>,
    /// Running rollup, if any. Written by the worker, under the lock.
    rollup: Mutex<Option<Arc<dyn Any + Send + Sync>>>,
    /// Wait and run times of tasks; `None` if measurements are off.
    times: Option<Box<WorkerTimes>>,
    /// Time at which the pool was built. Never changes.
    epoch: Instant,
    /// Number of the task that was last observed here, and the time of its first observation, in
    /// nanoseconds.
    noticed: Mutex<Option<(u64, u64)>>,
}

#[derive(Debug)]
struct WorkerTimes {
    wait: HistogramRecorder,
    run: HistogramRecorder,
}

#[derive(Debug)]
struct WorkerFields {
    /// Number of tasks run.
    ran: AtomicU64,
    /// Whether the worker has tasks; otherwise it searches, or sleeps.
    busy: AtomicBool,
    /// Time of its last clock read while busy, or of its change to idle, in nanoseconds since
    /// `epoch`.
    looked: AtomicU64,
    /// Value of `ran` at that time.
    ran_then: AtomicU64,
    /// Packed position of its task: see [`WorkerPosition`]. Meaningful while it has one.
    place: AtomicU64,
    /// Total time with tasks up to the last clock read, in nanoseconds.
    worked: AtomicU64,
    /// Total time asleep up to the last wake-up, in nanoseconds.
    slept: AtomicU64,
}

/// Position of the task of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WorkerPosition {
    /// The task has no key.
    Free,
    /// The task holds the lane in this slot of this shard.
    Lane { shard: usize, slot: usize },
    /// The task holds several lanes.
    Rollup,
}

const FREE: u64 = u64::MAX;
const ROLLUP: u64 = u64::MAX - 1;

/// Running task of a worker.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RunningTask {
    pub(crate) place: WorkerPosition,
    /// Number of tasks that the worker had run before it.
    pub(crate) number: u64,
    /// Upper bound of its run time.
    pub(crate) at_most: Duration,
    /// Lower bound of its run time.
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
        let times = || {
            Box::new(WorkerTimes { wait: HistogramRecorder::new(), run: HistogramRecorder::new() })
        };
        WorkerCounters {
            fields: CachePadded::new(fields),
            rollup: Mutex::new(None),
            times: (statistics.is_on()).then(times),
            epoch,
            noticed: Mutex::new(None),
        }
    }

    #[inline]
    pub(crate) fn ran_one(&self) {
        let ran = self.fields.ran.load(Ordering::Relaxed);
        // Release: a reader that sees the end of the task also sees its position.
        self.fields.ran.store(ran + 1, Ordering::Release);
    }

    /// Current time, in nanoseconds since the pool was built.
    pub(crate) fn now(&self) -> u64 {
        nanos_since(self.epoch)
    }

    /// Records a clock read between two tasks.
    pub(crate) fn looked(&self, now: u64) {
        if self.fields.busy.load(Ordering::Relaxed) {
            let before = self.fields.looked.load(Ordering::Relaxed);
            add(&self.fields.worked, now.saturating_sub(before));
        }
        self.fields.looked.store(now, Ordering::Release);
        let ran = self.fields.ran.load(Ordering::Relaxed);
        // Stored last: a reader that sees this number sees the time of the read. See `present`.
        self.fields.ran_then.store(ran, Ordering::Release);
    }

    /// Records that the worker has found a task and is about to run it.
    pub(crate) fn fell_busy(&self, now: u64) {
        self.looked(now);
        self.fields.busy.store(true, Ordering::Release);
    }

    /// Records that the worker has found no task.
    pub(crate) fn fell_idle(&self, now: u64) {
        self.looked(now);
        self.fields.busy.store(false, Ordering::Release);
    }

    pub(crate) fn has_slept(&self, nanos: u64) {
        add(&self.fields.slept, nanos);
    }

    /// Publishes that the worker's task holds a lane.
    #[inline]
    pub(crate) fn set_position_lane(&self, shard: usize, slot: usize) {
        // 16 bits for the shard and 48 for the slot exceed any real number of either.
        self.fields.place.store((shard as u64) << 48 | slot as u64, Ordering::Relaxed);
    }

    /// Publishes that the worker's task has no key.
    #[inline]
    pub(crate) fn set_position_free(&self) {
        self.fields.place.store(FREE, Ordering::Relaxed);
    }

    /// Publishes that the worker's task is a rollup.
    pub(crate) fn set_position_rollup(&self, rollup: Arc<dyn Any + Send + Sync>) {
        *self.rollup.lock() = Some(rollup);
        self.fields.place.store(ROLLUP, Ordering::Relaxed);
    }

    pub(crate) fn clear_rollup(&self) {
        let left = self.rollup.lock().take();
        drop(left);
    }

    /// Records the wait time of a task, which counts for `weight` tasks.
    pub(crate) fn waited(&self, nanos: u64, weight: u64) {
        if let Some(times) = &self.times {
            times.wait.record(nanos, weight);
        }
    }

    /// Records the run time of a task, which counts for `weight` tasks.
    pub(crate) fn took(&self, nanos: u64, weight: u64) {
        if let Some(times) = &self.times {
            times.run.record(nanos, weight);
        }
    }
}

/// Methods for other threads.
impl WorkerCounters {
    pub(crate) fn ran(&self) -> u64 {
        self.fields.ran.load(Ordering::Acquire)
    }

    pub(crate) fn is_busy(&self) -> bool {
        self.fields.busy.load(Ordering::Acquire)
    }

    /// Time since the last clock read of the worker.
    pub(crate) fn since_look(&self) -> Duration {
        let looked = Duration::from_nanos(self.fields.looked.load(Ordering::Acquire));
        self.epoch.elapsed().saturating_sub(looked)
    }

    /// Total time with tasks.
    pub(crate) fn worked(&self) -> Duration {
        let worked = Duration::from_nanos(self.fields.worked.load(Ordering::Relaxed));
        worked + if self.is_busy() { self.since_look() } else { Duration::ZERO }
    }

    /// Total time asleep, up to the last wake-up.
    pub(crate) fn slept(&self) -> Duration {
        Duration::from_nanos(self.fields.slept.load(Ordering::Relaxed))
    }

    /// Running task of the worker, if it has one.
    pub(crate) fn present(&self) -> Option<RunningTask> {
        if !self.is_busy() {
            return None;
        }
        // The order of the reads matters: if `ran_then` equals `ran`, the last clock read was at
        // the start of this task. A later clock read, seen here, would imply a larger `ran`.
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

    /// Start of the running task. For its own worker.
    pub(crate) fn began(&self) -> StartRange {
        let earliest = self.fields.looked.load(Ordering::Relaxed);
        let number = self.ran();
        let latest = match self.fields.ran_then.load(Ordering::Relaxed) == number {
            true => earliest,
            false => self.notice(number, self.now()),
        };
        StartRange { earliest, latest }
    }

    /// Time at which any thread first observed this task.
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

    /// Running rollup of the worker.
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

/// Adds to a counter that only the caller writes.
fn add(to: &AtomicU64, more: u64) {
    to.store(to.load(Ordering::Relaxed).wrapping_add(more), Ordering::Relaxed);
}
