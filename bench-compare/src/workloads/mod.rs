//! The workloads: what a run submits, what it measures, and which peers can run it.

pub(crate) mod w1_tiny;
pub(crate) mod w2_sleeps;
pub(crate) mod w3_rollups;
pub(crate) mod w5_memory;

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
