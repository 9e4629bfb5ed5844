//! Comparison of the policies, side by side for equal jobs.

use std::fmt::Write as _;

use keylane_allocate::{JobPolicy, JobScheduler};

use super::SimulateArgs;
use super::jobs::SimulatedJob;
use super::policy::{AssignmentPolicy, FifoPolicy, KeylanePolicy, RoundRobin, ShortestFirst};
use super::schedule::SimulatedSchedule;
use super::{event_loop, time};

/// The four rules first.
pub(super) fn schedules(
    jobs: &[SimulatedJob],
    workers: usize,
    args: &SimulateArgs,
) -> Vec<SimulatedSchedule> {
    let allocator = || match args.max_hold {
        Some(patience) => JobScheduler::new(workers).with_patience(patience),
        None => JobScheduler::new(workers),
    };
    let rules = allocator().with_max_active(args.max_active.map(usize::from));
    let mut policies: [Box<dyn AssignmentPolicy>; 6] = [
        Box::new(KeylanePolicy::new("four rules", rules)),
        Box::new(KeylanePolicy::new("balanced", allocator().with_policy(JobPolicy::Balanced))),
        Box::new(KeylanePolicy::new(
            "shortest first",
            allocator().with_policy(JobPolicy::Shortest),
        )),
        Box::<FifoPolicy>::default(),
        Box::<RoundRobin>::default(),
        Box::<ShortestFirst>::default(),
    ];
    policies.iter_mut().map(|policy| event_loop::run(jobs, workers, policy.as_mut())).collect()
}

/// Latency of each job under each policy.
pub(super) fn latencies(jobs: &[SimulatedJob], schedules: &[SimulatedSchedule]) -> String {
    let names: Vec<_> = jobs.iter().map(|job| job.name.clone()).collect();
    let width = names.iter().map(|name| name.chars().count()).max().unwrap_or(0).max("job".len());
    let mut table = format!("{:width$}  {:>9}", "job", "arrival");
    for schedule in schedules {
        write!(table, "  {:>14}", schedule.policy).expect("a string takes everything");
    }
    for (number, job) in jobs.iter().enumerate() {
        let (name, arrival) = (&names[number], time::show(job.arrival));
        write!(table, "\n{name:width$}  {arrival:>9}").expect("a string takes everything");
        for schedule in schedules {
            let flow = time::show(schedule.flow(number, jobs));
            write!(table, "  {flow:>14}").expect("a string takes everything");
        }
    }
    table
}

/// The figures of each policy over all jobs.
pub(super) fn figures(
    jobs: &[SimulatedJob],
    schedules: &[SimulatedSchedule],
    workers: usize,
) -> String {
    let mut table = format!(
        "{:14}  {:>11}  {:>11}  {:>8}  {:>8}  {:>11}",
        "policy", "mean time", "p99 time", "slowdown", "worst", "all done"
    );
    for schedule in schedules {
        let figures = schedule.figures(jobs, workers);
        write!(
            table,
            "\n{:14}  {:>11}  {:>11}  {:>8.2}  {:>8.1}  {:>11}",
            schedule.policy,
            time::show(figures.mean_flow.round() as u64),
            time::show(figures.p99_flow),
            figures.mean_slowdown,
            figures.worst_slowdown,
            time::show(figures.end),
        )
        .expect("a string takes everything");
    }
    table
}
