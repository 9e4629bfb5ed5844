//! Decides when a worker reads the clock, and which tasks it measures, so that short tasks do not
//! pay for it and long ones are noticed at once.

use crate::observe::{Statistics, XorShift};

/// Target time of a slice, in nanoseconds: the time that a worker serves one shard, or runs between
/// two clock reads. Long against the 30 to 60 ns of a read, short against noticeable delays.
const SLICE_NANOS: u64 = 20_000;

/// Maximum of tasks in a slice: after a series of short tasks, a long one is noticed when at most
/// this many have ended.
const MAX_TASKS: u32 = 64;

/// Of slices with [`MAX_TASKS`] tasks, one in this many has a measured task, chosen at random.
const SLICES_PER_SAMPLE: u32 = 4;

/// Slices the tasks of a worker, and chooses the measured ones.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// Tasks until the next stop: the end of the slice, or the start or the end of the measured
    /// task.
    until_stop: u32,
    /// Tasks of the slice after that stop.
    after_stop: u32,
    /// Tasks of the slice.
    slice: u32,
    /// Start of the slice, in nanoseconds since the pool was built.
    last: u64,
    /// Progress of the slice.
    phase: SamplePhase,
    /// Selection of the measured tasks in this slice.
    statistics: Statistics,
    /// Selection in further slices, unless `every` is set.
    usual: Statistics,
    /// Set while every task is measured.
    every: bool,
    chance: XorShift,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SamplePhase {
    /// Before the measured task. Exit: `Timing`.
    Ahead,
    /// The next task is measured. `began` is its start, once that is known; `None` if it continues
    /// elsewhere after its body. Exits: `Through`, or the end of the slice.
    Timing { began: Option<u64> },
    /// No further task of the slice is measured. Exit: its end.
    Through,
}

/// Result of a clock read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SampleEvent {
    /// Run time of the measured task, in nanoseconds, and the number of tasks that it stands for.
    pub(crate) measured: Option<(u64, u64)>,
    /// Whether the slice has ended.
    pub(crate) slice_ended: bool,
}

impl Sampler {
    pub(crate) fn new(now: u64, statistics: Statistics, seed: u32) -> Self {
        let mut sampler = Sampler {
            until_stop: 1,
            after_stop: 0,
            slice: 1,
            last: now,
            phase: SamplePhase::Through,
            statistics,
            usual: statistics,
            every: false,
            chance: XorShift::new(seed),
        };
        sampler.begin_slice();
        sampler
    }

    /// Counts a task. Returns whether to read the clock now.
    #[inline(always)]
    pub(crate) fn should_check(&mut self) -> bool {
        self.until_stop -= 1;
        self.until_stop == 0
    }

    /// Reads the clock where the phase requires it, and advances the phase.
    #[cold]
    pub(crate) fn check(&mut self, clock: impl FnOnce() -> u64) -> SampleEvent {
        match self.phase {
            // The measured task starts later, when the worker has found it, so no clock read here.
            SamplePhase::Ahead => {
                self.time_next();
                SampleEvent { measured: None, slice_ended: false }
            }
            SamplePhase::Timing { began } => {
                let now = clock();
                let measured = began.map(|began| (now.saturating_sub(began), self.weight()));
                let slice_ended = self.after_stop == 0;
                match (self.after_stop, self.statistics) {
                    (0, _) => self.end_slice(now),
                    (_, Statistics::Every) => self.time_next(),
                    (after_stop, _) => {
                        self.phase = SamplePhase::Through;
                        (self.until_stop, self.after_stop) = (after_stop, 0);
                    }
                }
                SampleEvent { measured, slice_ended }
            }
            SamplePhase::Through => {
                self.end_slice(clock());
                SampleEvent { measured: None, slice_ended: true }
            }
        }
    }

    /// Returns whether the next task is measured; the worker then reports its start.
    #[inline]
    pub(crate) fn is_timing(&self) -> bool {
        matches!(self.phase, SamplePhase::Timing { .. })
    }

    /// Records the start of the measured task.
    pub(crate) fn task_started(&mut self, now: u64) {
        if let SamplePhase::Timing { began } = &mut self.phase {
            *began = Some(now);
        }
    }

    /// Discards the sample of a task that continues elsewhere, because its end is not known yet.
    #[cold]
    pub(crate) fn skip_sample(&mut self) {
        if let SamplePhase::Timing { began } = &mut self.phase {
            *began = None;
        }
    }

    fn time_next(&mut self) {
        self.phase = SamplePhase::Timing { began: None };
        self.until_stop = 1;
        self.after_stop -= 1;
    }

    fn weight(&self) -> u64 {
        match (self.statistics, self.slice) {
            (Statistics::Every, _) => 1,
            (_, MAX_TASKS) => u64::from(MAX_TASKS * SLICES_PER_SAMPLE),
            (_, slice) => u64::from(slice),
        }
    }

    /// Chooses the length of the next slice from the time of the last one.
    fn end_slice(&mut self, now: u64) {
        let took = now.saturating_sub(self.last).max(1);
        let fits = SLICE_NANOS * u64::from(self.slice) / took;
        // At most double: after a long slice, one short task does not prove that the next sixty are
        // short.
        let most = MAX_TASKS.min(self.slice * 2);
        self.slice = fits.clamp(1, u64::from(most)) as u32;
        self.last = now;
        self.begin_slice();
    }

    /// Measures every task from the next slice on, or returns to the configured selection.
    pub(crate) fn set_every(&mut self, every: bool) {
        self.every = every;
    }

    /// Chooses the measured task of the slice, if any.
    fn begin_slice(&mut self) {
        self.statistics = if self.every { Statistics::Every } else { self.usual };
        let index = match self.statistics {
            Statistics::Off => None,
            Statistics::Every => Some(0),
            Statistics::Sampled if self.slice == MAX_TASKS => {
                Some(self.chance.below(MAX_TASKS * SLICES_PER_SAMPLE))
                    .filter(|index| *index < MAX_TASKS)
            }
            Statistics::Sampled => Some(self.chance.below(self.slice)),
        };
        (self.until_stop, self.after_stop) = match index {
            None => (self.slice, 0),
            Some(index) => (index, self.slice - index),
        };
        self.phase = if index.is_some() { SamplePhase::Ahead } else { SamplePhase::Through };
        if index == Some(0) {
            self.time_next();
        }
    }

    /// Returns whether tasks are so short that a microsecond between them would dominate.
    #[inline]
    pub(crate) fn is_fast(&self) -> bool {
        self.slice == MAX_TASKS
    }

    /// Start of the slice, at most one slice ago, in nanoseconds since the pool was built.
    pub(crate) fn now(&self) -> u64 {
        self.last
    }

    /// Restarts with a slice of one task after an idle time, which says nothing about the next
    /// tasks.
    pub(crate) fn restart(&mut self, now: u64) {
        (self.slice, self.last) = (1, now);
        self.begin_slice();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs `tasks` tasks of length `task`. Returns the number of slices, the measured times, and
    /// the number of tasks that these stand for.
    fn run(sampler: &mut Sampler, task: u64, tasks: usize) -> (usize, Vec<u64>, u64) {
        let mut now = sampler.last;
        let (mut slices, mut measured, mut total) = (0, Vec::new(), 0);
        for _ in 0..tasks {
            if sampler.is_timing() {
                sampler.task_started(now);
            }
            now += task;
            if sampler.should_check() {
                let stop = sampler.check(|| now);
                slices += usize::from(stop.slice_ended);
                if let Some((took, weight)) = stop.measured {
                    measured.push(took);
                    total += weight;
                }
            }
        }
        (slices, measured, total)
    }

    #[test]
    fn short_tasks_share_a_clock_read_and_long_ones_have_one_each() {
        for statistics in [Statistics::Off, Statistics::Sampled, Statistics::Every] {
            let mut sampler = Sampler::new(0, statistics, 7);
            assert!(run(&mut sampler, 30, 6400).0 < 110, "{statistics:?}");
            run(&mut sampler, 1_000_000, 64);
            assert_eq!(run(&mut sampler, 1_000_000, 100).0, 100, "{statistics:?}");
        }
    }

    #[test]
    fn a_sample_is_one_task_and_stands_for_its_slice() {
        let mut sampler = Sampler::new(0, Statistics::Sampled, 7);
        let (_, measured, total) = run(&mut sampler, 30, 640_000);
        assert!((2000..3000).contains(&measured.len()), "{} of 640,000", measured.len());
        assert!(measured.iter().all(|took| *took == 30), "one task takes 30 ns");
        assert!(total.abs_diff(640_000) < 50_000, "they stand for {total}");
        run(&mut sampler, 50_000, 64);
        let (_, measured, total) = run(&mut sampler, 50_000, 1000);
        assert_eq!((measured.len(), total), (1000, 1000), "long tasks are all measured");
    }

    #[test]
    fn every_means_every_and_off_means_none() {
        for task in [30, 5_000, 1_000_000] {
            let (_, measured, total) = run(&mut Sampler::new(0, Statistics::Every, 7), task, 1000);
            assert_eq!((measured.len(), total), (1000, 1000));
            assert!(measured.iter().all(|took| *took == task));
            assert!(run(&mut Sampler::new(0, Statistics::Off, 7), task, 1000).1.is_empty());
        }
    }

    #[test]
    fn a_mix_of_long_and_short_tasks_is_measured_as_it_is() {
        // One task in eight takes a hundred times as long, always at the same position of the
        // period.
        let mut sampler = Sampler::new(0, Statistics::Sampled, 7);
        let (mut now, mut long, mut all) = (0, 0.0, 0.0);
        for task in 0..800_000 {
            if sampler.is_timing() {
                sampler.task_started(now);
            }
            now += if task % 8 == 0 { 10_000 } else { 100 };
            if sampler.should_check()
                && let Some((took, weight)) = sampler.check(|| now).measured
            {
                all += weight as f64;
                long += if took > 1000 { weight as f64 } else { 0.0 };
            }
        }
        let share = long / all;
        assert!((share - 0.125).abs() < 0.01, "an eighth is long, and not {share}");
    }
}
