//! Jobs of a recorded pool: arrivals, number of subtasks and their durations.
//!
//! A worker that was given to a job and came back has run a subtask; if it reported several, they
//! share its time. A worker whose subtask had to wait, or that got none, has run no subtask. Runs
//! at the end of the record are taken to end there, and jobs present at its start to arrive then.
//! Work outside of jobs is a job of its own for each assignment of a worker.

use std::collections::{BTreeMap, VecDeque};

use anyhow::ensure;
use keylane_allocate::{Claimant, Decision, End, Event, Record, Rule};

use super::jobs::SimulatedJob;
use super::schedule::{ScheduledSubtask, SimulatedSchedule};

/// Start of the first line of a record; a CSV file starts with its header.
pub(super) const MARK: &str = "keylane record ";

/// Recorded schedule, and the jobs derived from it.
pub(super) struct RecordedTrace {
    /// By arrival.
    pub(super) jobs: Vec<SimulatedJob>,
    /// Assignments of workers to jobs over time.
    pub(super) schedule: SimulatedSchedule,
    pub(super) workers: usize,
}

/// Assignment of a worker that has not ended yet.
struct OpenAssignment {
    worker: usize,
    start: u64,
    /// None if the worker came upon the subtask by itself.
    rule: Option<Rule>,
    /// Subtasks that it has run beyond the one that it was given for.
    more: u64,
}

#[derive(Default)]
struct TraceReader {
    /// Jobs by their numbers in the record; assignments without a job have higher numbers.
    jobs: BTreeMap<u64, SimulatedJob>,
    finished: BTreeMap<u64, u64>,
    open: BTreeMap<Option<u64>, VecDeque<OpenAssignment>>,
    bars: Vec<(u64, ScheduledSubtask)>,
    /// Idle workers by number, without those that were never used.
    idle: Vec<usize>,
    max_open: usize,
    loose: u64,
}

pub(super) fn read(text: &str) -> anyhow::Result<RecordedTrace> {
    let record: Record = text.parse()?;
    record.replay()?;
    let first = record.entries().next().map_or(0, |entry| entry.at);
    let last = record.entries().next_back().map_or(0, |entry| entry.at);
    let mut reading = TraceReader::default();
    for entry in record.entries() {
        reading.note(entry.at - first, &entry.event);
    }
    for (job, assignments) in std::mem::take(&mut reading.open) {
        assignments.into_iter().for_each(|assignment| reading.end(job, assignment, last - first));
    }
    ensure!(!reading.jobs.is_empty(), "the record has no jobs");
    Ok(reading.finish(record.workers()))
}

impl TraceReader {
    fn note(&mut self, now: u64, event: &Event) {
        match *event {
            Event::Submitted { job, weight, .. } => {
                let number = job.serial();
                self.finished.insert(number, now);
                self.jobs.insert(number, named(format!("{number}"), now, weight));
            }
            Event::Decided(Decision { to, rule, .. }) => self.begin(number(to), Some(rule), now),
            Event::Taken(job) => self.begin(Some(job.serial()), None, now),
            Event::RanMore { job, done, failed, .. } => {
                if let Some(assignment) =
                    self.open.entry(Some(job.serial())).or_default().front_mut()
                {
                    assignment.more += done + failed;
                }
            }
            Event::Ended(job, end) => {
                // Of several, that which began first.
                let Some(assignment) = self.open.entry(number(job)).or_default().pop_front() else {
                    // It began before the record.
                    return;
                };
                match end {
                    End::Done | End::Failed => self.end(number(job), assignment, now),
                    End::Waits | End::Nothing => self.idle.push(assignment.worker),
                }
            }
            _ => {}
        }
        self.idle.sort_unstable_by(|one, other| other.cmp(one));
    }

    fn begin(&mut self, job: Option<u64>, rule: Option<Rule>, now: u64) {
        let worker = self.idle.pop().unwrap_or_else(|| {
            self.max_open += 1;
            self.max_open - 1
        });
        let assignment = OpenAssignment { worker, start: now, rule, more: 0 };
        self.open.entry(job).or_default().push_back(assignment);
    }

    fn end(&mut self, job: Option<u64>, assignment: OpenAssignment, now: u64) {
        let OpenAssignment { worker, start, rule, more } = assignment;
        self.idle.push(worker);
        let number = job.unwrap_or_else(|| {
            self.loose += 1;
            u64::MAX - self.loose
        });
        let (took, subtasks) = (now - start, more + 1);
        let outside = job.is_none();
        let job = self.jobs.entry(number).or_insert_with(|| {
            let name = if outside { "outside".to_owned() } else { format!("{number}") };
            named(name, if outside { start } else { 0 }, 1)
        });
        for one in 0..subtasks {
            let part = |n: u64| (u128::from(took) * u128::from(n) / u128::from(subtasks)) as u64;
            job.lengths.push(part(one + 1) - part(one));
            let subtask = job.lengths.len() as u64;
            let (start, end) = (start + part(one), start + part(one + 1));
            let bar = ScheduledSubtask { worker, job: 0, subtask, start, end, rule };
            self.bars.push((number, bar));
        }
        self.finished.insert(number, now);
    }

    fn finish(mut self, workers: usize) -> RecordedTrace {
        let mut order: Vec<u64> = self.jobs.keys().copied().collect();
        order.sort_by_key(|number| (self.jobs[number].arrival, *number));
        let place: BTreeMap<u64, usize> =
            order.iter().enumerate().map(|(place, number)| (*number, place)).collect();
        let mut bars: Vec<ScheduledSubtask> = self
            .bars
            .iter()
            .map(|(number, bar)| ScheduledSubtask { job: place[number], ..*bar })
            .collect();
        bars.sort_by_key(|bar| (bar.start, bar.worker));
        let finished = order.iter().map(|number| self.finished[number]).collect();
        let jobs =
            order.iter().map(|number| self.jobs.remove(number).expect("once each")).collect();
        let schedule = SimulatedSchedule { policy: "recorded", bars, finished };
        RecordedTrace { jobs, schedule, workers: workers.max(self.max_open) }
    }
}

fn named(name: String, arrival: u64, weight: u32) -> SimulatedJob {
    SimulatedJob { name, arrival, lengths: Vec::new(), weight }
}

fn number(job: Claimant) -> Option<u64> {
    match job {
        Claimant::Job(job) => Some(job.serial()),
        Claimant::Loose => None,
    }
}
