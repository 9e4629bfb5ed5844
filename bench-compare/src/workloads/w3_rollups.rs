//! W3: W1 with one task in a hundred over four keys. `--every 0` leaves the rollups out, and so
//! shows what they cost. One producer, as the rivals' rollups allow no more.

use std::time::Instant;

use super::{Setting, TIME_LIMIT, settle};
use crate::args::Args;
use crate::job::{Rollup, Tiny};
use crate::plan::{self, Op};
use crate::pool::{Pool, Submit, SubmitGroup};
use crate::record::Record;
use crate::rivals::{grouped::Grouped, shard_meet::ShardMeet, strand_dashmap, strand_rayon};
use crate::world::World;
use crate::{Result, ours, probe};

pub(crate) const RIVALS: &[&str] =
    &["strand-dashmap", "strand-rayon", "shard-meet", "grouped", "grouped-window64"];

/// Tasks in flight of the form of `grouped` that a careful user would run.
const WINDOW: usize = 64;

pub(crate) fn run(mut args: Args) -> Result<Record> {
    let setting = Setting::from_args(&mut args, Setting::defaults())?;
    let every = args.take("every", 100)?;
    args.finish()?;
    let (workers, capacity) = (setting.workers, setting.capacity);
    if setting.producers != 1 {
        return Err("w3 has one producer".into());
    }
    let mut record = match setting.peer.as_str() {
        "strand-dashmap" => measure(&setting, every, strand_dashmap::pool(workers)),
        "strand-rayon" => measure(&setting, every, strand_rayon::pool(workers)),
        "shard-meet" => measure(&setting, every, ShardMeet::new(workers, capacity)),
        "grouped" => measure(&setting, every, Grouped::new(workers, None)),
        "grouped-window64" => measure(&setting, every, Grouped::new(workers, Some(WINDOW))),
        _ => ours::w3(&setting, every)?,
    };
    record.figure("every", every as f64);
    Ok(record)
}

pub(crate) fn measure<P>(setting: &Setting, every: usize, pool: P) -> Record
where
    P: Pool,
    P::Submitter: Submit<Tiny> + SubmitGroup<Rollup>,
{
    let (ops, totals) = plan::rollups(setting.keys, setting.tasks, every);
    let world = World::new(&totals);
    settle();
    let (cpu, start) = (probe::own_cpu(), Instant::now());
    let mut submitter = pool.submitter();
    for op in &ops {
        match *op {
            Op::One(step) => submitter.submit(u64::from(step.0), Tiny { world, step }),
            Op::Rollup(steps) => {
                let rollup = Rollup { world, steps };
                submitter.submit_group(rollup.keys(), rollup);
            }
        }
    }
    submitter.flush();
    world.wait(TIME_LIMIT);
    let wall = start.elapsed();
    let mut record = setting.record("w3");
    record.times(wall, probe::own_cpu() - cpu);
    record.all_done = world.all_done();
    record.order_errors = world.order_errors();
    std::mem::forget((pool, submitter));
    record
}
