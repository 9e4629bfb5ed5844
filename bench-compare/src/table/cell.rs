//! The runs of one peer in one column, and what they come to.

use crate::record::Record;

/// A run is disturbed when others, or the hypervisor, took more than this many cores.
const DISTURBED_CORES: f64 = 0.12;

/// Disturbed runs are left out where this many clean ones remain; else all are kept.
const ENOUGH_CLEAN: usize = 3;

#[derive(Default)]
pub(super) struct Cell {
    runs: Vec<Record>,
    failures: Vec<String>,
}

pub(super) struct Summary {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
    /// Too few clean runs: all were kept, disturbed ones too.
    pub(super) is_disturbed: bool,
}

impl Cell {
    pub(super) fn add(&mut self, record: Record) {
        self.runs.push(record);
    }

    pub(super) fn fail(&mut self, why: String) {
        self.failures.push(why);
    }

    /// No run failed, broke the order, or left tasks undone.
    pub(super) fn is_right(&self) -> bool {
        self.failures.is_empty() && self.runs.iter().all(Record::is_right)
    }

    /// What is wrong with the runs; `None` when nothing is.
    pub(super) fn complaint(&self) -> Option<String> {
        if let Some(why) = self.failures.first() {
            return Some(format!("failed: {why}"));
        }
        let wrong = self.runs.iter().find(|run| !run.is_right())?;
        Some(match wrong.order_errors {
            0 => "unfinished".to_owned(),
            count => format!("{count} of {} out of order", wrong.tasks),
        })
    }

    /// The figure `name` over the clean runs; `None` when no run has it.
    pub(super) fn summary(&self, name: &str) -> Option<Summary> {
        let clean: Vec<&Record> = self.runs.iter().filter(|run| is_clean(run)).collect();
        let is_disturbed = clean.len() < self.runs.len().min(ENOUGH_CLEAN);
        let kept = if is_disturbed { self.runs.iter().collect() } else { clean };
        let mut values: Vec<f64> =
            kept.iter().filter_map(|run| run.figures.get(name).copied()).collect();
        values.sort_by(f64::total_cmp);
        let (&min, &max) = (values.first()?, values.last()?);
        Some(Summary { median: median(&values), min, max, is_disturbed })
    }
}

fn is_clean(run: &Record) -> bool {
    let took = |cores: Option<f64>| cores.unwrap_or(0.0);
    took(run.others_cores) < DISTURBED_CORES && took(run.stolen_cores) < DISTURBED_CORES
}

fn median(sorted: &[f64]) -> f64 {
    let middle = sorted.len() / 2;
    if sorted.len() % 2 == 1 { sorted[middle] } else { (sorted[middle - 1] + sorted[middle]) / 2.0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::Setting;

    fn run(ns: f64, others: f64) -> Record {
        let mut record = Setting::defaults().record("w1");
        record.figure("ns_per_task", ns);
        record.all_done = true;
        record.others_cores = Some(others);
        record
    }

    fn cell(runs: &[(f64, f64)]) -> Cell {
        Cell { runs: runs.iter().map(|&(ns, others)| run(ns, others)).collect(), failures: vec![] }
    }

    #[test]
    fn disturbed_runs_are_left_out_where_three_clean_ones_remain() {
        let summary = cell(&[(1.0, 0.0), (2.0, 0.0), (3.0, 0.1), (99.0, 0.5)]);
        let summary = summary.summary("ns_per_task").unwrap();
        assert_eq!((summary.median, summary.max, summary.is_disturbed), (2.0, 3.0, false));
    }

    #[test]
    fn all_runs_are_kept_and_marked_where_fewer_are_clean() {
        let summary = cell(&[(1.0, 0.0), (2.0, 0.0), (4.0, 0.5), (9.0, 0.5)]);
        let summary = summary.summary("ns_per_task").unwrap();
        assert_eq!((summary.median, summary.max, summary.is_disturbed), (3.0, 9.0, true));
    }

    #[test]
    fn a_run_out_of_order_spoils_its_cell() {
        let mut bad = run(1.0, 0.0);
        bad.order_errors = 7;
        let mut cell = cell(&[(1.0, 0.0)]);
        assert!(cell.is_right() && cell.complaint().is_none());
        cell.add(bad);
        assert!(!cell.is_right());
        assert_eq!(cell.complaint().unwrap(), "7 of 5000000 out of order");
    }
}
