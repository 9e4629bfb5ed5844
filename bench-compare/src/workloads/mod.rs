//! The workloads: what a run submits, what it measures, and which peers can run it.

pub(crate) mod jobs_mix;
pub(crate) mod jobs_start;
pub(crate) mod jobs_tiny;
pub(crate) mod w1_tiny;
pub(crate) mod w2_sleeps;
pub(crate) mod w3_rollups;
pub(crate) mod w4_gate;
pub(crate) mod w4_queue;
pub(crate) mod w5_memory;
pub(crate) mod w6_predicate;

use std::time::Duration;

use crate::Result;
use crate::args::Args;
use crate::record::Record;

/// What every run is told.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) peer: String,
    pub(crate) keys: usize,
    pub(crate) producers: usize,
    pub(crate) workers: usize,
    pub(crate) tasks: usize,
    /// Tasks that a bounded pool may hold, in all.
    pub(crate) capacity: usize,
}

/// The bound of all bounded pools, unless a workload needs another.
pub(crate) const CAPACITY: usize = 65_536;

/// A run that takes longer is broken or hopeless.
const TIME_LIMIT: Duration = Duration::from_secs(90);

impl Setting {
    fn from_args(args: &mut Args, defaults: Setting) -> Result<Setting> {
        Ok(Setting {
            peer: args.require("peer")?,
            keys: args.take("keys", defaults.keys)?,
            producers: args.take("producers", defaults.producers)?,
            workers: args.take("workers", defaults.workers)?,
            tasks: args.take("tasks", defaults.tasks)?,
            capacity: args.take("capacity", defaults.capacity)?,
        })
    }

    pub(crate) fn defaults() -> Setting {
        Setting {
            peer: String::new(),
            keys: 1000,
            producers: 1,
            workers: 2,
            tasks: 5_000_000,
            capacity: CAPACITY,
        }
    }

    pub(crate) fn record(&self, workload: &str) -> Record {
        Record {
            workload: workload.to_owned(),
            peer: self.peer.clone(),
            allocator: String::new(),
            keys: self.keys,
            producers: self.producers,
            workers: self.workers,
            tasks: self.tasks,
            order_errors: 0,
            all_done: false,
            others_cores: None,
            stolen_cores: None,
            figures: Default::default(),
        }
    }

    pub(crate) fn unknown_peer(&self) -> Box<dyn std::error::Error> {
        format!("this workload has no peer `{}` in this build", self.peer).into()
    }
}

/// Lets the threads of a new pool start and fall asleep before the clock starts.
fn settle() {
    std::thread::sleep(Duration::from_millis(100));
}

#[cfg(test)]
mod tests {
    use super::*;

    type Run = fn(Args) -> Result<Record>;

    /// Each rival must keep the order, or its speed says nothing.
    fn every_rival_is_right(run: Run, rivals: &[&str], flags: &[&str]) {
        for rival in rivals.iter().filter(|rival| !rival.contains('+')) {
            let words =
                ["--peer", rival].into_iter().chain(flags.iter().copied()).map(str::to_owned);
            let record = run(Args::parse(words).unwrap()).unwrap();
            assert!(record.is_right(), "{record:?}");
        }
    }

    #[test]
    fn rivals_run_tiny_tasks_of_two_producers_in_order() {
        let flags = ["--tasks", "20000", "--keys", "50", "--producers", "2"];
        every_rival_is_right(w1_tiny::run, w1_tiny::RIVALS, &flags);
    }

    #[test]
    fn rivals_sleep_one_at_a_time_in_each_key() {
        let flags = ["--tasks", "500", "--keys", "50", "--workers", "24"];
        every_rival_is_right(w2_sleeps::run, w2_sleeps::RIVALS, &flags);
    }

    #[test]
    fn rivals_hold_all_four_keys_of_a_rollup() {
        let flags = ["--tasks", "20000", "--keys", "20", "--every", "5", "--workers", "4"];
        every_rival_is_right(w3_rollups::run, w3_rollups::RIVALS, &flags);
    }

    #[test]
    fn rivals_pass_every_item_once_and_in_order() {
        let rivals: Vec<&str> =
            w4_queue::RIVALS.iter().copied().filter(|rival| !rival.starts_with("java-")).collect();
        let flags = ["--producers", "3", "--millis", "30"];
        every_rival_is_right(w4_queue::run, &rivals, &flags);
        every_rival_is_right(w4_queue::run, &rivals, &[&flags[..], &["--slow", "true"]].concat());
        let shared: Vec<&str> =
            rivals.into_iter().filter(|rival| !w4_queue::ONE_CONSUMER.contains(rival)).collect();
        every_rival_is_right(w4_queue::run, &shared, &[&flags[..], &["--workers", "3"]].concat());
    }

    #[test]
    fn rivals_keep_apart_what_a_predicate_says() {
        let flags = ["--tasks", "2000", "--keys", "20", "--every", "5", "--unfinished", "200"];
        every_rival_is_right(w6_predicate::run, w6_predicate::RIVALS, &flags);
        every_rival_is_right(w6_predicate::run, crate::ours::W6, &flags);
    }

    #[test]
    fn rivals_run_each_subtask_of_a_mix_of_jobs() {
        let flags = ["--tasks", "50", "--load", "0.9"];
        every_rival_is_right(jobs_mix::run, jobs_mix::RIVALS, &flags);
    }

    #[test]
    fn rivals_hold_a_backlog_and_then_run_it_in_order() {
        let flags = ["--what", "queued-tasks", "--tasks", "20000", "--keys", "50"];
        every_rival_is_right(w5_memory::run, w5_memory::RIVALS, &flags);
    }
}
