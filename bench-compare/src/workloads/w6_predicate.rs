//! W6: cost of a submission while about a given number of tasks are unfinished, where a predicate says what
//! conflicts; and what it then costs to run them. The predicate is "no key in common".
//!
//! In each round the workers are held, tasks are submitted until there are nearly as many as wanted,
//! then the measured ones are submitted; then the workers are let go, and everything runs.

use std::time::{Duration, Instant};

use super::{Setting, TIME_LIMIT, settle};
use crate::args::Args;
use crate::job::{Gate, Rollup, Tiny};
use crate::plan::{self, Op};
use crate::pool::{Pool, Submit, SubmitGroup};
use crate::record::Record;
use crate::rivals::grouped::Grouped;
use crate::world::World;
use crate::{Result, ours, probe};

pub(crate) const RIVALS: &[&str] = &["grouped"];

/// The first key of a gate task; above all keys of plans.
const GATE_KEYS: u64 = 1 << 40;

/// Measured submissions in a round: a quarter of the tasks that are unfinished, half of them before that
/// number is reached.
fn measured_in(unfinished: usize) -> usize {
    (unfinished / 4).max(1)
}

/// How a run is shaped.
pub(crate) struct Shape {
    /// Approximate number of unfinished tasks.
    unfinished: usize,
    /// Each so-manieth task has four keys.
    every: usize,
}

pub(crate) fn run(mut args: Args) -> Result<Record> {
    let unfinished = args.take("unfinished", 1000)?;
    let every = args.take("every", 100)?;
    let defaults = Setting { tasks: 10_000, keys: 100, ..Setting::defaults() };
    let setting = Setting::from_args(&mut args, defaults)?;
    args.finish()?;
    let shape = Shape { unfinished, every };
    match setting.peer.as_str() {
        "grouped" => Ok(measure(&setting, &shape, Grouped::new(setting.workers, None))),
        _ => ours::w6(&setting, &shape),
    }
}

pub(crate) fn measure<P>(setting: &Setting, shape: &Shape, pool: P) -> Record
where
    P: Pool,
    P::Submitter: Submit<Tiny> + Submit<Gate> + SubmitGroup<Rollup>,
{
    let measured = measured_in(shape.unfinished);
    let rounds = setting.tasks.div_ceil(measured);
    let fill = shape.unfinished - measured / 2;
    let (mut submitting, mut running) = (Duration::ZERO, Duration::ZERO);
    let mut record = setting.record("w6");
    record.all_done = true;
    let mut submitter = pool.submitter();
    settle();
    let cpu = probe::own_cpu();
    for _ in 0..rounds {
        let (ops, totals) = plan::rollups(setting.keys, fill + measured, shape.every);
        let world = World::new(&totals);
        for nth in 0..setting.workers as u64 {
            Submit::<Gate>::submit(&mut submitter, GATE_KEYS + nth, Gate { world });
        }
        submit(&mut submitter, world, &ops[..fill]);
        let start = Instant::now();
        submit(&mut submitter, world, &ops[fill..]);
        submitting += start.elapsed();
        let start = Instant::now();
        world.open_gate();
        record.all_done &= world.wait(TIME_LIMIT);
        running += start.elapsed();
        record.order_errors += world.order_errors();
    }
    let per = |time: Duration, tasks: usize| time.as_secs_f64() * 1e9 / (rounds * tasks) as f64;
    let (submit_ns, run_ns) = (per(submitting, measured), per(running, fill + measured));
    record.figure("submit_ns", submit_ns);
    record.figure("run_ns", run_ns);
    record.figure("ns_per_task", submit_ns + run_ns);
    let all = rounds * (fill + measured);
    record.figure("cpu_ns_per_task", (probe::own_cpu() - cpu).as_secs_f64() * 1e9 / all as f64);
    std::mem::forget((pool, submitter));
    record
}

fn submit<S>(submitter: &mut S, world: &'static World, ops: &[Op])
where
    S: Submit<Tiny> + SubmitGroup<Rollup>,
{
    for op in ops {
        match *op {
            Op::One(step) => submitter.submit(u64::from(step.0), Tiny { world, step }),
            Op::Rollup(steps) => {
                let rollup = Rollup { world, steps };
                submitter.submit_group(rollup.keys(), rollup);
            }
        }
    }
}
