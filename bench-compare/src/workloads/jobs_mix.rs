//! `jobs-mix`: how long jobs take where several share two workers. They come at random (Poisson), their
//! sizes follow a bounded Pareto distribution (shape 1.1, 1 to 1,000 subtasks), and a subtask burns CPU
//! for an exponentially distributed time with a mean of 200 µs, by counted steps, not by the clock: a
//! preempted thread burns no less.
//!
//! A job's time runs from when it was due until its last subtask has ended. Each run computes from the
//! same jobs what SRPT, which knows all lengths, would reach without any cost of its own: the bound.
//! `--csv FILE` writes the jobs for `keylane simulate`, a second there for a millisecond here.

use std::cmp::Reverse;
use std::collections::{BTreeSet, BinaryHeap};
use std::fmt::Write;
use std::hint::black_box;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::{Setting, settle};
use crate::args::Args;
use crate::record::Record;
use crate::rivals::job_queues::{Fifo, RoundRobin, Srpt};
use crate::rivals::rayon_scope::RayonScope;
use crate::rng::Rng;
use crate::{Result, ours, probe};

pub(crate) const RIVALS: &[&str] = &["srpt", "fifo", "round-robin", "rayon-scope"];

const SHAPE: f64 = 1.1;
const LARGEST: f64 = 1000.0;
pub(crate) const MEAN_NANOS: f64 = 200_000.0;

pub(crate) fn run(mut args: Args) -> Result<Record> {
    let defaults = Setting { tasks: 5000, ..Setting::defaults() };
    let setting = Setting::from_args(&mut args, defaults)?;
    let load: f64 = args.take("load", 0.8)?;
    let seed: u64 = args.take("seed", 1)?;
    let csv = args.take("csv", String::new())?;
    args.finish()?;
    let mix = Mix::new(setting.tasks, load, setting.workers, seed);
    if !csv.is_empty() {
        std::fs::write(&csv, mix.csv())?;
    }
    let workers = setting.workers;
    Ok(match setting.peer.as_str() {
        "srpt" => measure(&setting, mix, Srpt::new(workers)),
        "fifo" => measure(&setting, mix, Fifo::new(workers)),
        "round-robin" => measure(&setting, mix, RoundRobin::new(workers)),
        "rayon-scope" => measure(&setting, mix, RayonScope::new(workers)),
        _ => ours::jobs_mix(&setting, mix)?,
    })
}

/// What runs jobs, by their numbers.
pub(crate) trait JobPool {
    fn submit(&self, world: &'static JobWorld, job: u32);
}

/// The jobs of a run, by arrival.
pub(crate) struct Mix {
    jobs: Vec<Job>,
}

struct Job {
    due: Duration,
    /// How long its subtasks take, in nanoseconds.
    lengths: Vec<u64>,
}

impl Mix {
    pub(crate) fn new(jobs: usize, load: f64, workers: usize, seed: u64) -> Mix {
        let mut rng = Rng::new(seed);
        let mut exponential = {
            let mut rng = Rng::new(seed ^ 0x5DEE_CE66);
            move |mean: f64| -mean * (1.0 - rng.unit()).ln()
        };
        let scale = SHAPE / (SHAPE - 1.0) / (1.0 - LARGEST.powf(-SHAPE));
        let mean_subtasks = scale * (1.0 - LARGEST.powf(1.0 - SHAPE));
        let gap = mean_subtasks * MEAN_NANOS / (load * workers as f64);
        let mut now = 0.0;
        let job = |_| {
            now += exponential(gap);
            let tail = 1.0 - rng.unit() * (1.0 - LARGEST.powf(-SHAPE));
            let subtasks = tail.powf(-1.0 / SHAPE).round() as usize;
            let lengths = (0..subtasks).map(|_| exponential(MEAN_NANOS) as u64 + 1).collect();
            Job { due: Duration::from_nanos(now as u64), lengths }
        };
        Mix { jobs: (0..jobs).map(job).collect() }
    }

    fn csv(&self) -> String {
        let mut text = String::from("name,arrival,subtasks,length\n");
        let seconds = |nanos: u128| nanos as f64 / 1e6;
        for (number, job) in self.jobs.iter().enumerate() {
            let lengths: Vec<_> =
                job.lengths.iter().map(|&l| format!("{:.3}", seconds(l.into()))).collect();
            let (due, count) = (seconds(job.due.as_nanos()), job.lengths.len());
            writeln!(text, "{number},{due:.3},{count},{}", lengths.join(";"))
                .expect("writing to a string");
        }
        text
    }

    /// The mean time of a job under SRPT over subtasks, in virtual time, in nanoseconds.
    fn srpt(&self, workers: usize) -> f64 {
        // Jobs with subtasks that have not begun, by the work that has not ended.
        let mut queue = BTreeSet::new();
        let mut left: Vec<(u64, usize)> =
            self.jobs.iter().map(|job| (job.lengths.iter().sum(), 0)).collect();
        let mut running: BinaryHeap<(Reverse<u64>, usize, u64)> = BinaryHeap::new();
        let (mut idle, mut next, mut total) = (workers, 0, 0.0);
        loop {
            let due = self.jobs.get(next).map(|job| job.due.as_nanos() as u64);
            let end = running.peek().map(|&(Reverse(end), _, _)| end);
            let now = match (due, end) {
                (None, None) => return total / self.jobs.len() as f64,
                (due, Some(end)) if due.is_none_or(|due| end <= due) => {
                    let (_, job, length) = running.pop().expect("just peeked");
                    idle += 1;
                    let (work, _) = &mut left[job];
                    let was_queued = queue.remove(&(*work, job));
                    *work -= length;
                    if was_queued {
                        queue.insert((*work, job));
                    }
                    if *work == 0 {
                        total += end as f64 - self.jobs[job].due.as_nanos() as f64;
                    }
                    end
                }
                (due, _) => {
                    queue.insert((left[next].0, next));
                    next += 1;
                    due.expect("there is one or the other")
                }
            };
            while idle > 0
                && let Some(&(work, job)) = queue.first()
            {
                idle -= 1;
                let begun = &mut left[job].1;
                let length = self.jobs[job].lengths[*begun];
                *begun += 1;
                if *begun == self.jobs[job].lengths.len() {
                    queue.remove(&(work, job));
                }
                running.push((Reverse(now + length), job, length));
            }
        }
    }
}

/// What the subtasks of a run share.
pub(crate) struct JobWorld {
    mix: Mix,
    start: Instant,
    steps_per_micro: f64,
    /// Subtasks that have not ended, of each job.
    left: Vec<AtomicU32>,
    /// When it was over, in nanoseconds since the start.
    over: Vec<AtomicU64>,
    unfinished: AtomicUsize,
}

impl JobWorld {
    pub(crate) fn subtasks(&self, job: u32) -> usize {
        self.mix.jobs[job as usize].lengths.len()
    }

    /// How long a subtask will take, in nanoseconds: what only an oracle can ask.
    pub(crate) fn length(&self, job: u32, subtask: usize) -> u64 {
        self.mix.jobs[job as usize].lengths[subtask]
    }

    /// A subtask: burns its time, and is counted.
    pub(crate) fn run(&self, job: u32, subtask: usize) {
        burn(self.mix.jobs[job as usize].lengths[subtask], self.steps_per_micro);
        let job = job as usize;
        if self.left[job].fetch_sub(1, Ordering::AcqRel) == 1 {
            self.over[job].store(self.start.elapsed().as_nanos() as u64, Ordering::Relaxed);
            self.unfinished.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

/// Burns CPU for so long, if the CPU is not taken away.
pub(crate) fn burn(nanos: u64, steps_per_micro: f64) {
    let steps = (nanos as f64 / 1000.0 * steps_per_micro) as u64;
    let mut value = 1_u64;
    for _ in 0..steps {
        value = black_box(value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

/// How many steps take a microsecond, by the quickest of some tries.
pub(crate) fn calibrate() -> f64 {
    const STEPS: f64 = 200_000.0;
    let once = |_| {
        let start = Instant::now();
        burn(1000, STEPS);
        start.elapsed().as_nanos()
    };
    let best = (0..200).map(once).min().expect("some tries");
    STEPS / (best as f64 / 1000.0)
}

pub(crate) fn measure(setting: &Setting, mix: Mix, pool: impl JobPool) -> Record {
    let count = mix.jobs.len();
    let srpt = mix.srpt(setting.workers);
    let steps_per_micro = calibrate();
    settle();
    let world: &'static JobWorld = Box::leak(Box::new(JobWorld {
        left: mix.jobs.iter().map(|job| AtomicU32::new(job.lengths.len() as u32)).collect(),
        over: mix.jobs.iter().map(|_| AtomicU64::new(0)).collect(),
        unfinished: AtomicUsize::new(count),
        start: Instant::now(),
        steps_per_micro,
        mix,
    }));
    let cpu = probe::own_cpu();
    for (number, job) in world.mix.jobs.iter().enumerate() {
        if let Some(early) = job.due.checked_sub(world.start.elapsed()) {
            std::thread::sleep(early);
        }
        pool.submit(world, number as u32);
    }
    while world.unfinished.load(Ordering::Acquire) != 0
        && world.start.elapsed() < Duration::from_secs(90)
    {
        std::thread::sleep(Duration::from_millis(5));
    }
    let wall = world.start.elapsed();
    let mut record = setting.record("jobs-mix");
    record.times(wall, probe::own_cpu() - cpu);
    record.all_done = world.unfinished.load(Ordering::Acquire) == 0;
    figures(&mut record, world, srpt);
    std::mem::forget(pool);
    record
}

fn figures(record: &mut Record, world: &JobWorld, srpt: f64) {
    let jobs = world.mix.jobs.iter().zip(&world.over);
    let times = jobs.map(|(job, over)| {
        let took = over.load(Ordering::Relaxed) as f64 - job.due.as_nanos() as f64;
        let work: u64 = job.lengths.iter().sum();
        let longest = job.lengths.iter().max().expect("a job has subtasks");
        let least = (work as f64 / record.workers as f64).max(*longest as f64);
        (took, took / least)
    });
    let (mut times, slowdowns): (Vec<f64>, Vec<f64>) = times.unzip();
    times.sort_by(f64::total_cmp);
    let mean = times.iter().sum::<f64>() / times.len() as f64;
    record.figure("mean_ms", mean / 1e6);
    record.figure("p99_ms", times[(times.len() * 99).div_ceil(100) - 1] / 1e6);
    record.figure("longest_ms", times[times.len() - 1] / 1e6);
    record.figure("worst_slowdown", slowdowns.into_iter().fold(0.0, f64::max));
    record.figure("srpt_ms", srpt / 1e6);
    record.figure("over_srpt", mean / srpt);
}
