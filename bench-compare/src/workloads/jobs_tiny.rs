//! `jobs`: what a subtask costs. Some millions of subtasks that only count themselves, as one job or
//! as tasks of their own; and the same with the keys and the bodies of W1.
//!
//! The clock runs from the first submission until all have run. Beside it the peak of the memory that
//! the run has added: that of a job must not depend on how many subtasks it has.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{Setting, settle};
use crate::args::Args;
use crate::record::Record;
use crate::{Result, ours, probe};

pub(crate) fn run(mut args: Args) -> Result<Record> {
    let setting = Setting::from_args(&mut args, Setting::defaults())?;
    args.finish()?;
    ours::jobs(&setting)
}

/// Counts on a line of its own for each thread, so that counting costs a load and a store.
static COUNTS: [Padded; 64] = [const { Padded(AtomicU64::new(0)) }; 64];
static THREADS: AtomicUsize = AtomicUsize::new(0);
thread_local!(static MINE: Cell<usize> = const { Cell::new(usize::MAX) });

#[repr(align(128))]
struct Padded(AtomicU64);

/// The body of a subtask.
#[inline]
pub(crate) fn count_one() {
    let mine = match MINE.get() {
        usize::MAX => first_of_thread(),
        mine => mine,
    };
    let count = &COUNTS[mine].0;
    count.store(count.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
}

#[cold]
fn first_of_thread() -> usize {
    MINE.set(THREADS.fetch_add(1, Ordering::Relaxed));
    MINE.get()
}

fn counted() -> u64 {
    COUNTS.iter().map(|count| count.0.load(Ordering::Relaxed)).sum()
}

/// `submit_and_wait` returns when all tasks have ended.
pub(crate) fn measure(setting: &Setting, submit_and_wait: impl FnOnce()) -> Record {
    settle();
    let before = probe::rss_bytes();
    let (cpu, start) = (probe::own_cpu(), Instant::now());
    submit_and_wait();
    let wall = start.elapsed();
    let mut record = setting.record("jobs");
    record.times(wall, probe::own_cpu() - cpu);
    record.figure("peak_mib", (probe::peak_rss_bytes() - before) / f64::from(1 << 20));
    record.all_done = counted() == setting.tasks as u64;
    record
}

/// The same, where the world of W1 counts: its tasks know their places.
pub(crate) fn measure_keyed(
    setting: &Setting,
    world: &crate::world::World,
    submit: impl FnOnce(),
) -> Record {
    settle();
    let before = probe::rss_bytes();
    let (cpu, start) = (probe::own_cpu(), Instant::now());
    submit();
    world.wait(Duration::from_secs(90));
    let wall = start.elapsed();
    let mut record = setting.record("jobs");
    record.times(wall, probe::own_cpu() - cpu);
    record.figure("peak_mib", (probe::peak_rss_bytes() - before) / f64::from(1 << 20));
    record.all_done = world.all_done();
    record.order_errors = world.order_errors();
    record
}
