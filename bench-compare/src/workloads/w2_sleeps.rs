//! W2: tasks of a millisecond on skewed keys, 64 at a time, which measure how well a pool keeps its
//! workers busy while one key is hot.
//!
//! `ratio` is the makespan over a bound that no ordered pool can beat: the longest chain of one key,
//! or all tasks spread over the workers, times the sleep as measured in this run.

use std::time::Instant;

use super::{Setting, TIME_LIMIT, settle};
use crate::args::Args;
use crate::job::Sleep;
use crate::plan;
use crate::pool::{Pool, Submit};
use crate::record::Record;
use crate::rivals::{
    kae::{self, Kae},
    shard::Shard,
    strand_dashmap, strand_rayon,
    tokio_form::Naps,
    tokio_mpsc::TokioMpsc,
    tokio_mutex::TokioMutex,
};
use crate::world::World;
use crate::{Result, ours, probe};

pub(crate) const RIVALS: &[&str] = &[
    "shard",
    "strand-dashmap",
    "strand-rayon",
    "kae",
    "kae-queue100",
    "tokio-mpsc",
    "tokio-mutex-fair",
];

/// Threads of the tokio rivals, whose sleeps hold a permit instead of a thread.
const TOKIO_THREADS: usize = 2;

pub(crate) fn run(mut args: Args) -> Result<Record> {
    let defaults = Setting { keys: 10_000, workers: 64, tasks: 20_000, ..Setting::defaults() };
    let setting = Setting::from_args(&mut args, defaults)?;
    let zipf = args.take("zipf", 1.0)?;
    args.finish()?;
    let (workers, capacity) = (setting.workers, setting.capacity);
    let naps = || Naps::at_most(workers);
    let mut record = match setting.peer.as_str() {
        "shard" => measure(&setting, zipf, |_| Shard::new(workers, capacity)),
        "strand-dashmap" => measure(&setting, zipf, |_| strand_dashmap::pool(workers)),
        "strand-rayon" => measure(&setting, zipf, |_| strand_rayon::pool(workers)),
        "kae" => measure(&setting, zipf, |_| Kae::new(workers, capacity / workers)),
        "kae-queue100" => measure(&setting, zipf, |_| Kae::new(workers, kae::DEFAULT_QUEUE)),
        "tokio-mpsc" => {
            measure(&setting, zipf, |_| TokioMpsc::new(TOKIO_THREADS, capacity, naps()))
        }
        "tokio-mutex-fair" => measure(&setting, zipf, |_| TokioMutex::new(TOKIO_THREADS, naps())),
        _ => ours::w2(&setting, zipf)?,
    };
    record.figure("zipf", zipf);
    Ok(record)
}

/// `make` gets the world, for pools that are built around the handler of their messages.
pub(crate) fn measure<P>(
    setting: &Setting,
    zipf: f64,
    make: impl FnOnce(&'static World) -> P,
) -> Record
where
    P: Pool,
    P::Submitter: Submit<Sleep>,
{
    let (steps, totals) = plan::zipf(setting.keys, setting.tasks, zipf);
    let longest_chain = *totals.iter().max().expect("there are keys");
    let world = World::new(&totals);
    let pool = make(world);
    settle();
    let (cpu, start) = (probe::own_cpu(), Instant::now());
    let mut submitter = pool.submitter();
    for &step in &steps {
        submitter.submit(u64::from(step.0), Sleep { world, step });
    }
    submitter.flush();
    world.wait(TIME_LIMIT);
    let wall = start.elapsed();
    let mut record = setting.record("w2");
    record.times(wall, probe::own_cpu() - cpu);
    record.all_done = world.all_done();
    record.order_errors = world.order_errors();
    let mean_sleep = world.slept().as_secs_f64() / setting.tasks as f64;
    let sleeps_in_a_row =
        (setting.tasks as f64 / setting.workers as f64).max(f64::from(longest_chain));
    record.figure("mean_sleep_us", mean_sleep * 1e6);
    record.figure("longest_chain", f64::from(longest_chain));
    record.figure("bound_secs", sleeps_in_a_row * mean_sleep);
    record.figure("ratio", wall.as_secs_f64() / (sleeps_in_a_row * mean_sleep));
    std::mem::forget((pool, submitter));
    record
}
