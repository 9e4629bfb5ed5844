//! `jobs-start`: how long a small job waits that comes while a huge one has all workers.
//!
//! The huge job's subtasks burn a fixed time, or are tiny (`--micros 0`). A job of one subtask comes every
//! few milliseconds, at random, and its time runs from before it is submitted until that subtask begins.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use super::jobs_mix::{burn, calibrate};
use super::{Setting, settle};
use crate::args::Args;
use crate::record::Record;
use crate::rng::Rng;
use crate::{Result, ours};

pub(crate) fn run(mut args: Args) -> Result<Record> {
    let setting = Setting::from_args(&mut args, Setting { tasks: 500, ..Setting::defaults() })?;
    let micros: u64 = args.take("micros", 200)?;
    args.finish()?;
    ours::jobs_start(&setting, micros)
}

/// What both kinds of jobs are submitted to.
pub(crate) trait Starter {
    /// A job with as many subtasks as are asked for, each of which calls this.
    fn huge(&self, goes_on: Arc<AtomicBool>, subtask: impl Fn() + Clone + Send + Sync + 'static);

    /// A job of one subtask.
    fn small(&self, subtask: impl FnOnce() + Send + 'static);
}

pub(crate) fn measure(setting: &Setting, micros: u64, pool: impl Starter) -> Record {
    let steps = calibrate();
    settle();
    let goes_on = Arc::new(AtomicBool::new(true));
    pool.huge(goes_on.clone(), move || burn(micros * 1000, steps));
    std::thread::sleep(Duration::from_millis(50));
    let mut rng = Rng::new(3);
    let (begin, begun) = mpsc::channel();
    let waits = (0..setting.tasks).map(|_| {
        std::thread::sleep(Duration::from_micros(1000 + rng.below(2000) as u64));
        let start = Instant::now();
        let begin = begin.clone();
        pool.small(move || begin.send(start.elapsed()).expect("the run goes on"));
        begun.recv().expect("the subtask begins").as_nanos() as f64 / 1000.0
    });
    let mut waits: Vec<f64> = waits.collect();
    goes_on.store(false, Ordering::Relaxed);
    waits.sort_by(f64::total_cmp);
    let at = |percent: usize| waits[(waits.len() * percent).div_ceil(100) - 1];
    let mut record = setting.record("jobs-start");
    for (name, percent) in [("p50_us", 50), ("p90_us", 90), ("p99_us", 99), ("max_us", 100)] {
        record.figure(name, at(percent));
    }
    record.all_done = true;
    std::mem::forget(pool);
    record
}
