//! Recorder: reads the state of the service once a second, and makes samples of it.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tokio_util::sync::CancellationToken;

use super::History;
use super::resolution::Resolution;
use super::sample::{
    MAX_NAME_BYTES, MAX_SLICES, StoredSample, busiest, cut, longest, number, rounded, waits_of,
};
use crate::JobId;
use crate::engine::clock::Clock;
use crate::engine::cut_text::cut_text;
use crate::engine::engine_state::{ServiceTotals, SharedState, visit_jobs};
use crate::engine::executor::Executor;
use crate::engine::timeline::TimelineRecorder;
use crate::engine::timer::sleep;
use crate::scheduler::WaitCounts;
use crate::wire::{HistorySample, HistoryShare, Slice, Timestamp};

/// Interval between two readings.
const READING: Duration = Duration::from_secs(1);

/// Records the past of the service until it stops.
#[derive(Debug)]
pub(in crate::engine) struct HistoryRecorder {
    pub(in crate::engine) state: Arc<SharedState>,
    pub(in crate::engine) clock: Arc<Clock>,
    pub(in crate::engine) timeline: Arc<TimelineRecorder>,
    pub(in crate::engine) executor: Executor,
    pub(in crate::engine) history: Arc<History>,
    /// Cancelled when the service has stopped.
    pub(in crate::engine) stopped: CancellationToken,
}

/// State of the service at a moment.
#[derive(Debug, Default)]
struct Reading {
    at: u64,
    slots: u64,
    /// Jobs with running subtasks.
    running: HashMap<JobId, RunningJob>,
    totals: ServiceTotals,
}

/// Running subtasks of a job, at a moment or added over an interval.
#[derive(Clone, Debug, Default)]
struct RunningJob {
    count: u64,
    kind: String,
    name: Option<String>,
}

/// Readings of an interval.
#[derive(Debug)]
struct OpenInterval {
    begin: u64,
    /// Counters at the end of the interval before.
    base: ServiceTotals,
    last: Reading,
    readings: u64,
    busy: HashMap<JobId, RunningJob>,
    /// Longest attempts that have ended.
    slices: Vec<Slice>,
}

/// Last count of the waiting subtasks.
#[derive(Debug, Default)]
struct CountedWaits {
    counts: WaitCounts,
    counted: Duration,
    took: Duration,
}

impl HistoryRecorder {
    /// Records until the service stops.
    pub(in crate::engine) async fn run(self) {
        if !self.history.is_kept() {
            return;
        }
        let mut waits = CountedWaits::default();
        let mut place = 0;
        let mut open = OpenInterval::new(self.read());
        let mut minute = Resolution::ALL[1].begin(open.begin);
        while !self.stopped.is_cancelled() {
            tokio::select! {
                biased;
                () = self.stopped.cancelled() => {}
                () = sleep(READING) => {}
            }
            let reading = self.read();
            let (slices, next) = self.timeline.longest_after(place, MAX_SLICES);
            place = next;
            if Resolution::FINEST.begin(reading.at) != open.begin {
                self.count_waits(&mut waits);
                let ended = open.next(reading);
                self.history.add(ended.sample(&waits.counts));
            } else {
                open.add(reading);
            }
            open.add_slices(slices);
            let now = Resolution::ALL[1].begin(open.begin);
            if std::mem::replace(&mut minute, now) != now {
                self.flush().await;
            }
        }
        self.count_waits(&mut waits);
        self.history.add(open.sample(&waits.counts));
        self.flush().await;
    }

    async fn flush(&self) {
        let history = Arc::clone(&self.history);
        self.executor.blocking_or_panic(move || history.flush()).await;
    }

    fn read(&self) -> Reading {
        let engine = self.state.lock();
        let mut running: HashMap<JobId, RunningJob> = HashMap::new();
        for attempt in engine.running.values() {
            if let Some(live) = engine.live.get(&attempt.job) {
                let of_job = |_: &JobId| RunningJob {
                    count: 0,
                    kind: live.head.kind.clone(),
                    name: live.head.name.as_deref().map(|name| cut_text(name, MAX_NAME_BYTES)),
                };
                running.entry(live.id).or_insert_with_key(of_job).count += 1;
            }
        }
        Reading {
            at: self.clock.now().0,
            slots: engine.scheduler.slots().total as u64,
            running,
            totals: engine.totals,
        }
    }

    /// Counts the waiting subtasks, unless the last count was a short time ago compared with its duration: it reads every
    /// unfinished job under the lock.
    fn count_waits(&self, waits: &mut CountedWaits) {
        let began = self.clock.steady();
        if began.saturating_sub(waits.counted) < waits.took * 20 {
            return;
        }
        let mut counts = WaitCounts::default();
        visit_jobs(&mut self.state.lock(), |engine, number, _| {
            engine.scheduler.count_waits(number, &mut counts);
        });
        let took = self.clock.steady().saturating_sub(began);
        *waits = CountedWaits { counts, counted: began, took };
    }
}

impl OpenInterval {
    /// Begins the interval of a reading.
    fn new(reading: Reading) -> Self {
        let begin = Resolution::FINEST.begin(reading.at);
        let busy = reading.running.clone();
        let base = reading.totals;
        OpenInterval { begin, base, last: reading, readings: 1, busy, slices: Vec::new() }
    }

    fn add(&mut self, reading: Reading) {
        for (job, running) in &reading.running {
            let none = || RunningJob { count: 0, ..running.clone() };
            self.busy.entry(*job).or_insert_with(none).count += running.count;
        }
        self.readings += 1;
        self.last = reading;
    }

    fn add_slices(&mut self, slices: Vec<Slice>) {
        self.slices.extend(slices.into_iter().map(cut));
        if self.slices.len() > 2 * MAX_SLICES {
            self.slices = longest(std::mem::take(&mut self.slices), MAX_SLICES);
        }
    }

    /// Ends the interval, and begins the one of this reading.
    fn next(&mut self, reading: Reading) -> OpenInterval {
        let mut next = OpenInterval::new(reading);
        // What has ended since the last reading counts for the new interval.
        next.base = self.last.totals;
        std::mem::replace(self, next)
    }

    fn sample(self, waits: &WaitCounts) -> StoredSample {
        let OpenInterval { begin, base, last, readings, busy, slices } = self;
        let mean = |sum: u64| number(sum) / number(readings);
        let ServiceTotals { succeeded, failed, cancelled, superseded, retried, .. } = last.totals;
        let sample = HistorySample {
            at: Timestamp(begin),
            slots: last.slots,
            busy: rounded(mean(busy.values().map(|job| job.count).sum())),
            succeeded: succeeded - base.succeeded,
            failed: failed - base.failed,
            cancelled: cancelled + superseded - base.cancelled - base.superseded,
            retried: retried - base.retried,
            waiting: waits_of(waits),
            jobs: busiest(busy.into_iter().map(|(job, RunningJob { count, kind, name })| {
                HistoryShare { job: job.to_string(), kind, name, busy: mean(count) }
            })),
        };
        StoredSample { sample, slices: longest(slices, MAX_SLICES) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at: u64, running: &[(u128, u64)], succeeded: u64) -> Reading {
        let job = |(job, count): &(u128, u64)| {
            let running = RunningJob { count: *count, ..RunningJob::default() };
            (JobId(job.to_be_bytes()), running)
        };
        let running = running.iter().map(job).collect();
        let totals = ServiceTotals { succeeded, ..ServiceTotals::default() };
        Reading { at, slots: 4, running, totals }
    }

    #[test]
    fn an_interval_has_the_average_of_its_readings_and_what_has_ended_in_it() {
        let mut open = OpenInterval::new(reading(20_500, &[(1, 4)], 100));
        open.add(reading(21_500, &[(1, 1), (2, 1)], 130));
        let ended = open.next(reading(30_100, &[], 150)).sample(&WaitCounts::default()).sample;
        assert_eq!((ended.at.0, ended.busy, ended.succeeded), (20_000, 3.0, 30));
        assert_eq!(ended.jobs.iter().map(|it| it.busy).collect::<Vec<_>>(), [2.5, 0.5]);
        // Nothing is counted twice or left out.
        let next = open.next(reading(40_000, &[], 150)).sample(&WaitCounts::default()).sample;
        assert_eq!((next.at.0, next.busy, next.succeeded), (30_000, 0.0, 20));
    }
}
