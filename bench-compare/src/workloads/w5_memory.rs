//! W5: what a pool keeps in memory, per idle key and per queued task.
//!
//! `heap_bytes` is what glibc's allocator has handed out, `rss_bytes` the growth of resident memory, each
//! divided by the number of keys or tasks. Both start when the pool exists and is idle, so that
//! what it allocates at once for its capacity is apart, in `fixed_mib`.

use super::{Setting, TIME_LIMIT, settle};
use crate::args::Args;
use crate::job::{Gate, Tiny};
use crate::plan;
use crate::pool::{Pool, Submit};
use crate::record::Record;
use crate::rivals::{
    kae::Kae, shard::Shard, strand_dashmap, strand_rayon, tokio_form::Closures,
    tokio_mpsc::TokioMpsc, tokio_mutex::TokioMutex,
};
use crate::world::World;
use crate::{Result, ours, probe};

pub(crate) const RIVALS: &[&str] =
    &["shard", "strand-dashmap", "strand-rayon", "kae", "tokio-mpsc", "tokio-mutex-fair"];

/// Tasks that hold the workers while others are queued: more than there are workers, so that a
/// pool which chooses workers by hash has all of them held.
pub(crate) const GATES: usize = 64;

/// The first key of a gate task; above all keys of plans.
const GATE_KEYS: u64 = 1 << 40;

#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Question {
    /// Touch each key once, let all go idle.
    IdleKeys,
    /// Hold the workers and queue all tasks.
    QueuedTasks,
}

pub(crate) fn run(mut args: Args) -> Result<Record> {
    probe::use_one_arena();
    let question = match args.take("what", "idle-keys".to_owned())?.as_str() {
        "idle-keys" => Question::IdleKeys,
        "queued-tasks" => Question::QueuedTasks,
        other => return Err(format!("--what cannot be `{other}`").into()),
    };
    let defaults = Setting { tasks: 1_000_000, ..Setting::defaults() };
    let mut setting = Setting::from_args(&mut args, defaults)?;
    if question == Question::IdleKeys {
        setting.keys = setting.tasks;
    } else {
        // All tasks must find room, whatever worker their key belongs to.
        setting.capacity = setting.tasks + GATES;
    }
    args.finish()?;
    let (workers, capacity) = (setting.workers, setting.capacity);
    Ok(match setting.peer.as_str() {
        "shard" => {
            let all = room_at_each_worker(&setting, question);
            measure(&setting, question, |_| Shard::new(workers, all))
        }
        "strand-dashmap" => measure(&setting, question, |_| strand_dashmap::pool(workers)),
        "strand-rayon" => measure(&setting, question, |_| strand_rayon::pool(workers)),
        "kae" => {
            let all = room_at_each_worker(&setting, question);
            measure(&setting, question, |_| Kae::new(workers, all / workers))
        }
        "tokio-mpsc" => {
            // An actor's channel takes memory as it is used, so a large bound costs nothing.
            measure(&setting, question, |_| TokioMpsc::new(workers, capacity, Closures))
        }
        "tokio-mutex-fair" => measure(&setting, question, |_| TokioMutex::new(workers, Closures)),
        _ => ours::w5(&setting, question)?,
    })
}

/// Where workers have a queue each, any one of them may get almost all tasks.
fn room_at_each_worker(setting: &Setting, question: Question) -> usize {
    match question {
        Question::IdleKeys => setting.capacity,
        Question::QueuedTasks => setting.capacity * setting.workers,
    }
}

/// `make` gets the world, for pools that are built around the handler of their messages.
pub(crate) fn measure<P>(
    setting: &Setting,
    question: Question,
    make: impl FnOnce(&'static World) -> P,
) -> Record
where
    P: Pool,
    P::Submitter: Submit<Tiny> + Submit<Gate>,
{
    let (steps, totals) = match question {
        Question::IdleKeys => {
            ((0..setting.keys as u32).map(|key| (key, 0)).collect(), vec![1; setting.keys])
        }
        Question::QueuedTasks => {
            let (mut lists, totals) = plan::uniform(setting.keys, setting.tasks, 1);
            (lists.remove(0), totals)
        }
    };
    let world = World::new(&totals);
    let before_pool = Memory::now();
    let pool = make(world);
    let mut submitter = pool.submitter();
    if question == Question::QueuedTasks {
        hold_workers(&mut submitter, world);
    }
    settle();
    settle();
    let before = Memory::now();
    for &step in &steps {
        submitter.submit(u64::from(step.0), Tiny { world, step });
    }
    if question == Question::IdleKeys {
        world.wait(TIME_LIMIT);
        settle();
        settle();
    }
    let after = Memory::now();
    world.open_gate();
    world.wait(TIME_LIMIT);
    let mut record = setting.record("w5");
    record.figure("heap_bytes", (after.heap - before.heap) / setting.tasks as f64);
    record.figure("rss_bytes", (after.rss - before.rss) / setting.tasks as f64);
    record.figure("fixed_mib", (before.heap - before_pool.heap) / (1 << 20) as f64);
    record.all_done = world.all_done();
    record.order_errors = world.order_errors();
    std::mem::forget((pool, submitter));
    record
}

fn hold_workers(submitter: &mut impl Submit<Gate>, world: &'static World) {
    for nth in 0..GATES as u64 {
        submitter.submit(GATE_KEYS + nth, Gate { world });
    }
}

#[derive(Clone, Copy)]
struct Memory {
    heap: f64,
    rss: f64,
}

impl Memory {
    fn now() -> Memory {
        Memory { heap: probe::heap_bytes(), rss: probe::rss_bytes() }
    }
}
