//! Schedule: result of a simulation with the runs of each worker and the latency of each job.

use keylane_allocate::Rule;

use super::jobs::SimulatedJob;

/// A subtask on its worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScheduledSubtask {
    pub(super) worker: usize,
    pub(super) job: usize,
    /// Which of the job's subtasks, from 1 on.
    pub(super) subtask: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    /// Why, if the policy has reasons.
    pub(super) rule: Option<Rule>,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct SimulatedSchedule {
    pub(super) policy: &'static str,
    /// In the order in which they began.
    pub(super) bars: Vec<ScheduledSubtask>,
    /// When each job was over.
    pub(super) finished: Vec<u64>,
}

/// Latency figures over all jobs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct LatencyFigures {
    /// Mean time from arrival to end, in milliseconds.
    pub(super) mean_flow: f64,
    /// The 99th percentile of that.
    pub(super) p99_flow: u64,
    /// Mean ratio of a job's latency to its latency with all workers to itself.
    pub(super) mean_slowdown: f64,
    pub(super) worst_slowdown: f64,
    /// When the last job was over.
    pub(super) end: u64,
}

impl SimulatedSchedule {
    pub(super) fn flow(&self, job: usize, jobs: &[SimulatedJob]) -> u64 {
        self.finished[job] - jobs[job].arrival
    }

    pub(super) fn end(&self) -> u64 {
        self.finished.iter().copied().max().unwrap_or(0)
    }

    pub(super) fn figures(&self, jobs: &[SimulatedJob], workers: usize) -> LatencyFigures {
        let mut flows: Vec<u64> = (0..jobs.len()).map(|job| self.flow(job, jobs)).collect();
        let slowdown = |(job, flow): (&SimulatedJob, &u64)| match job.least_time(workers) {
            // A job without work is not slowed down.
            0 => 1.0,
            least => *flow as f64 / least as f64,
        };
        let slowdowns: Vec<f64> = jobs.iter().zip(&flows).map(slowdown).collect();
        let count = jobs.len() as f64;
        let mean_flow = flows.iter().sum::<u64>() as f64 / count;
        flows.sort_unstable();
        LatencyFigures {
            mean_flow,
            p99_flow: flows[(flows.len() * 99).div_ceil(100) - 1],
            mean_slowdown: slowdowns.iter().sum::<f64>() / count,
            worst_slowdown: slowdowns.into_iter().fold(0.0, f64::max),
            end: self.end(),
        }
    }
}
