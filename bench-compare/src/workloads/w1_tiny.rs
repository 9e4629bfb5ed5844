//! W1: tiny keyed tasks, which measure nothing but the pool.
//!
//! Uniform keys; with several producers each has its own keys. The clock runs from the first
//! submission until every key has run all its tasks.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::{Setting, TIME_LIMIT, settle};
use crate::args::Args;
use crate::job::Tiny;
use crate::plan::{self, Step};
use crate::pool::{Pool, Submit};
use crate::record::Record;
use crate::rivals::{
    kae::Kae,
    shard::{Shard, ShardOneshot},
    shard_batch::ShardBatch,
    strand_dashmap, strand_rayon,
    tokio_form::Closures,
    tokio_mpsc::TokioMpsc,
    tokio_mutex::TokioMutex,
};
use crate::world::World;
use crate::{Result, ours, probe};

pub(crate) const RIVALS: &[&str] = &[
    "shard",
    "shard+mimalloc",
    "shard-oneshot",
    "shard-batch64",
    "shard-batch64+mimalloc",
    "strand-dashmap",
    "strand-rayon",
    "tokio-mpsc",
    "tokio-mutex-fair",
    "kae",
];

pub(crate) fn run(mut args: Args) -> Result<Record> {
    let setting = Setting::from_args(&mut args, Setting::defaults())?;
    args.finish()?;
    let (workers, capacity) = (setting.workers, setting.capacity);
    Ok(match setting.peer.as_str() {
        "shard" => measure(&setting, |_| Shard::new(workers, capacity)),
        "shard-oneshot" => measure(&setting, |_| ShardOneshot(Shard::new(workers, capacity))),
        "shard-batch64" => measure(&setting, |_| ShardBatch::new(workers, capacity)),
        "strand-dashmap" => measure(&setting, |_| strand_dashmap::pool(workers)),
        "strand-rayon" => measure(&setting, |_| strand_rayon::pool(workers)),
        "tokio-mpsc" => {
            let room = (capacity / setting.keys).max(4);
            measure(&setting, |_| TokioMpsc::new(workers, room, Closures))
        }
        "tokio-mutex-fair" => measure(&setting, |_| TokioMutex::new(workers, Closures)),
        "kae" => measure(&setting, |_| Kae::new(workers, capacity / workers)),
        _ => ours::w1(&setting)?,
    })
}

/// `make` gets the world, for pools that are built around the handler of their messages.
pub(crate) fn measure<P>(setting: &Setting, make: impl FnOnce(&'static World) -> P) -> Record
where
    P: Pool,
    P::Submitter: Submit<Tiny>,
{
    let (lists, totals) = plan::uniform(setting.keys, setting.tasks, setting.producers);
    let world = World::new(&totals);
    let pool = make(world);
    settle();
    let submitted_ns = AtomicU64::new(0);
    let (cpu, start) = (probe::own_cpu(), Instant::now());
    let wall = std::thread::scope(|scope| {
        for steps in &lists {
            scope.spawn(|| {
                submit_all(&pool, world, steps);
                submitted_ns.fetch_max(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
            });
        }
        world.wait(TIME_LIMIT);
        start.elapsed()
    });
    let mut record = setting.record("w1");
    record.times(wall, probe::own_cpu() - cpu);
    record.figure("submit_secs", submitted_ns.into_inner() as f64 / 1e9);
    record.figure("rss_mib", probe::rss_bytes() / (1 << 20) as f64);
    record.all_done = world.all_done();
    record.order_errors = world.order_errors();
    std::mem::forget(pool);
    record
}

fn submit_all<P>(pool: &P, world: &'static World, steps: &[Step])
where
    P: Pool,
    P::Submitter: Submit<Tiny>,
{
    let mut submitter = pool.submitter();
    for &step in steps {
        submitter.submit(u64::from(step.0), Tiny { world, step });
    }
    submitter.flush();
    // Maps per key live in submitters; freeing a million entries is not what is measured.
    std::mem::forget(submitter);
}
