//! Random jobs: arrivals are random, most jobs are small, and a few are as large as all others
//! together.
//!
//! The number of a job's subtasks follows a bounded Pareto distribution, which is what sizes of files,
//! requests and batch jobs look like; arrivals are a Poisson process; subtasks take exponentially
//! distributed times. The same seed gives the same jobs.

use super::jobs::SimulatedJob;

/// The shape of the Pareto distribution: the smaller, the more of the work is in a few jobs.
const SHAPE: f64 = 1.1;

/// The most subtasks of a job.
const LARGEST: f64 = 1000.0;

/// The mean length of a subtask, in milliseconds.
const MEAN_LENGTH: f64 = 1000.0;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct JobMix {
    pub(super) jobs: usize,
    /// The part of the workers' time that the jobs need, between 0 and 1.
    pub(super) load: f64,
    pub(super) workers: usize,
    pub(super) seed: u64,
}

impl JobMix {
    pub(super) fn jobs(&self) -> Vec<SimulatedJob> {
        let mut random = SplitMix64(self.seed);
        let mean_work = mean_subtasks() * MEAN_LENGTH;
        let mean_gap = mean_work / (self.load * self.workers as f64);
        let mut now = 0.0;
        let job = |number| {
            now += random.exponential(mean_gap);
            let subtasks = random.pareto().round() as usize;
            let length = |_| (random.exponential(MEAN_LENGTH).round() as u64).max(1);
            SimulatedJob {
                name: number_name(number),
                arrival: now as u64,
                lengths: (0..subtasks).map(length).collect(),
                weight: 1,
            }
        };
        (0..self.jobs).map(job).collect()
    }
}

fn number_name(number: usize) -> String {
    format!("{}", number + 1)
}

/// The mean of the bounded Pareto distribution between 1 and `LARGEST`.
fn mean_subtasks() -> f64 {
    let scale = SHAPE / (SHAPE - 1.0) / (1.0 - LARGEST.powf(-SHAPE));
    scale * (1.0 - LARGEST.powf(1.0 - SHAPE))
}

/// SplitMix64 (Steele, Lea and Flood, 2014): small, and good enough for drawing jobs.
struct SplitMix64(u64);

impl SplitMix64 {
    /// Between 0 and 1, and never 1.
    fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut bits = self.0;
        bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        bits ^= bits >> 31;
        (bits >> 11) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -mean * (1.0 - self.unit()).ln()
    }

    /// By the inverse of the distribution function.
    fn pareto(&mut self) -> f64 {
        let tail = 1.0 - self.unit() * (1.0 - LARGEST.powf(-SHAPE));
        tail.powf(-1.0 / SHAPE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_jobs_and_the_load_that_was_asked_for() {
        let mix = JobMix { jobs: 20_000, load: 0.8, workers: 8, seed: 1 };
        let jobs = mix.jobs();
        assert_eq!(jobs, mix.jobs());
        assert_ne!(jobs, JobMix { seed: 2, ..mix }.jobs());
        let work: u64 = jobs.iter().map(SimulatedJob::work).sum();
        let span = jobs.last().unwrap().arrival * 8;
        let load = work as f64 / span as f64;
        assert!((0.7..0.9).contains(&load), "{load}");
        let small = jobs.iter().filter(|job| job.lengths.len() <= 3).count();
        assert!(small > 10_000, "most are small: {small}");
        let large: u64 =
            jobs.iter().filter(|job| job.lengths.len() > 50).map(SimulatedJob::work).sum();
        assert!(large > work / 4, "and much of the work is in few: {large} of {work}");
    }
}
