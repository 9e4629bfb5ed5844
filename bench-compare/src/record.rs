//! The JSON line that one run prints and the tables read.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) workload: String,
    pub(crate) peer: String,
    #[serde(default)]
    pub(crate) allocator: String,
    pub(crate) keys: usize,
    pub(crate) producers: usize,
    pub(crate) workers: usize,
    pub(crate) tasks: usize,
    /// Tasks that found themselves out of place, or not alone in their key. Must be 0.
    pub(crate) order_errors: usize,
    /// Whether every key ran all its tasks before the time limit. Must be true.
    pub(crate) all_done: bool,
    /// Cores that other processes kept busy during the run. Set by the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) others_cores: Option<f64>,
    /// Cores that the hypervisor took away during the run. Set by the table.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) stolen_cores: Option<f64>,
    /// What the workload measures: `secs`, `ns_per_task`, `ratio`, ...
    #[serde(flatten)]
    pub(crate) figures: BTreeMap<String, f64>,
}

impl Record {
    pub(crate) fn figure(&mut self, name: &str, value: f64) {
        self.figures.insert(name.to_owned(), value);
    }

    /// Adds what every timed run reports.
    pub(crate) fn times(&mut self, wall: Duration, cpu: Duration) {
        self.figure("secs", wall.as_secs_f64());
        self.figure("ns_per_task", wall.as_secs_f64() * 1e9 / self.tasks as f64);
        self.figure("cpu_ns_per_task", cpu.as_secs_f64() * 1e9 / self.tasks as f64);
        self.figure("tasks_per_sec", self.tasks as f64 / wall.as_secs_f64());
    }

    pub(crate) fn is_right(&self) -> bool {
        self.all_done && self.order_errors == 0
    }
}
