//! Keylane's jobs, and what they are compared with of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use keylane::JobPolicy;
use keylane::{Claims, Pool};

use super::{BATCH, ClosurePool, closures};
use crate::Result;
use crate::job::{Job as _, Tiny};
use crate::plan;
use crate::record::Record;
use crate::workloads::jobs_mix::{JobPool, JobWorld, Mix};
use crate::workloads::jobs_start::Starter;
use crate::workloads::jobs_tiny::count_one;
use crate::workloads::{Setting, jobs_mix as mixes, jobs_start as starts, jobs_tiny as tiny};
use crate::world::World;

pub(crate) const JOBS: &[&str] = &[
    "keylane-job",
    "keylane-job-fold",
    "keylane-job-unsized",
    "keylane-job-unsized-ahead",
    "keylane-submit-many",
    "keylane-execute-many",
    "keylane-job-keyed",
    "keylane-execute-many-keyed",
];
pub(crate) const JOBS_MIX: &[&str] = &["keylane", "keylane-balanced", "keylane-shortest"];
pub(crate) const JOBS_START: &[&str] = &["keylane"];

pub(crate) fn jobs(setting: &Setting) -> Result<Record> {
    let (pool, tasks) = (closures(setting), setting.tasks);
    let bodies = (0..tasks).map(|_| count_one);
    let finish = || pool.shutdown().expect("nothing stops it");
    Ok(match setting.peer.as_str() {
        "keylane-job" => tiny::measure(setting, || {
            let job = pool.job("tiny").each(bodies).run().expect("the pool is open");
            job.wait().expect("this is no worker");
        }),
        "keylane-job-fold" => tiny::measure(setting, || {
            let job = pool.job("tiny").each(bodies.map(|body| {
                move || {
                    body();
                    1_u64
                }
            }));
            let job = job.fold(0, |sum, one| sum + one).expect("the pool is open");
            assert_eq!(job.wait().expect("this is no worker").unwrap(), tasks as u64);
        }),
        // An iterator that does not know how many it has.
        "keylane-job-unsized" => tiny::measure(setting, || {
            let bodies = bodies.filter(|_| true);
            let job = pool.job("tiny").each(bodies).run().expect("the pool is open");
            job.wait().expect("this is no worker");
        }),
        "keylane-job-unsized-ahead" => tiny::measure(setting, || {
            let bodies = bodies.filter(|_| true);
            let job = pool.job("tiny").prefetch(64).each(bodies).run().expect("the pool is open");
            job.wait().expect("this is no worker");
        }),
        "keylane-submit-many" => tiny::measure(setting, || {
            let mut left = tasks;
            while left > 0 {
                let some = left.min(BATCH);
                let batch = (0..some).map(|_| (Claims::none(), count_one));
                drop(pool.submit_many(batch).expect("the pool is open"));
                left -= some;
            }
            finish();
        }),
        "keylane-execute-many" => tiny::measure(setting, || {
            let bodies = bodies.map(|body| (Claims::none(), body));
            pool.execute_many(bodies).expect("the pool is open");
            finish();
        }),
        "keylane-job-keyed" => keyed(setting, |world, steps| {
            let pieces =
                steps.map(move |step| (u64::from(step.0), move || Tiny { world, step }.run()));
            drop(pool.job("keyed").each_keyed(pieces).run().expect("the pool is open"));
        }),
        "keylane-execute-many-keyed" => keyed(setting, |world, steps| {
            let pieces =
                steps.map(move |step| (u64::from(step.0), move || Tiny { world, step }.run()));
            pool.execute_many(pieces).expect("the pool is open");
        }),
        _ => return Err(setting.unknown_peer()),
    })
}

type Steps = std::vec::IntoIter<plan::Step>;

fn keyed(setting: &Setting, submit: impl FnOnce(&'static World, Steps)) -> Record {
    let (lists, totals) = plan::uniform(setting.keys, setting.tasks, 1);
    let steps = lists.into_iter().next().expect("there is one producer").into_iter();
    let world = World::new(&totals);
    tiny::measure_keyed(setting, world, || submit(world, steps))
}

pub(crate) fn jobs_mix(setting: &Setting, mix: Mix) -> Result<Record> {
    let order = match setting.peer.as_str() {
        "keylane" => JobPolicy::Arrival,
        "keylane-balanced" => JobPolicy::Balanced,
        "keylane-shortest" => JobPolicy::Shortest,
        _ => return Err(setting.unknown_peer()),
    };
    let pool = Pool::<u64>::builder().workers(setting.workers).job_policy(order).build()?;
    Ok(mixes::measure(setting, mix, Jobs(Box::leak(Box::new(pool)))))
}

#[derive(Clone, Copy)]
struct Jobs(ClosurePool);

impl JobPool for Jobs {
    fn submit(&self, world: &'static JobWorld, job: u32) {
        let pieces = (0..world.subtasks(job)).map(move |subtask| move || world.run(job, subtask));
        drop(self.0.job("mix").each(pieces).run().expect("the pool is open"));
    }
}

pub(crate) fn jobs_start(setting: &Setting, micros: u64) -> Result<Record> {
    if setting.peer != "keylane" {
        return Err(setting.unknown_peer());
    }
    Ok(starts::measure(setting, micros, Jobs(closures(setting))))
}

impl Starter for Jobs {
    fn huge(&self, goes_on: Arc<AtomicBool>, subtask: impl Fn() + Clone + Send + Sync + 'static) {
        // It knows how many it has, as most do; and has enough for any run.
        let pieces = (0..usize::MAX).map(move |_| {
            let (subtask, goes_on) = (subtask.clone(), goes_on.clone());
            move || match goes_on.load(Ordering::Relaxed) {
                true => subtask(),
                false => std::thread::park(),
            }
        });
        drop(self.0.job("huge").each(pieces).run().expect("the pool is open"));
    }

    fn small(&self, subtask: impl FnOnce() + Send + 'static) {
        drop(self.0.job("small").each([subtask]).run().expect("the pool is open"));
    }
}
