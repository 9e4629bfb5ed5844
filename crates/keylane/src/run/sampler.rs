//! Decides when a worker looks at the clock, so that tiny tasks do not pay for it and long ones are
//! noticed at once; and which tasks it measures meanwhile.

use crate::observe::{Chance, Statistics};

/// About how long a worker serves one shard, or runs between two looks at the clock. Long against
/// the 30 to 60 ns of a look, short against what anybody would notice.
const SLICE_NANOS: u64 = 20_000;

/// The most tasks between two looks, however short they are: a task that takes long after a row of
/// short ones is noticed when it and at most so many more have ended.
const MAX_TASKS: u32 = 64;

/// Of slices of so many tasks one in so many has a task that is measured, left to chance.
const SPARED: u32 = 4;

/// A worker's sense of time: its tasks in slices, and in each slice one that is measured.
#[derive(Debug)]
pub(crate) struct Sampler {
    /// Tasks until the next stop: the end of the slice, or the beginning or the end of the task that
    /// is measured.
    left: u32,
    /// Tasks of the slice behind that stop.
    rest: u32,
    /// Tasks of the slice.
    slice: u32,
    /// When the slice began, in nanoseconds since the pool was built.
    last: u64,
    /// How far the slice is.
    phase: SamplePhase,
    /// Which tasks of the slice are measured,
    statistics: Statistics,
    /// of those that follow, unless every one is,
    usual: Statistics,
    /// for a while.
    every: bool,
    chance: Chance,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SamplePhase {
    /// Before the task that is measured. Exits: `Timing`.
    Ahead,
    /// The next task is measured. It has begun at this time, once that was said, unless its end is not
    /// that of its body. Exits: `Through`, or the end of the slice.
    Timing { began: Option<u64> },
    /// Nothing more is measured in the slice. Exit: its end.
    Through,
}

/// Why a worker looks at the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SampleEvent {
    /// What a task has taken that was measured, in nanoseconds, and for how many it stands.
    pub(crate) measured: Option<(u64, u64)>,
    /// The slice has ended.
    pub(crate) slice_ended: bool,
}

impl Sampler {
    pub(crate) fn new(now: u64, statistics: Statistics, seed: u32) -> Self {
        let mut sampler = Sampler {
            left: 1,
            rest: 0,
            slice: 1,
            last: now,
            phase: SamplePhase::Through,
            statistics,
            usual: statistics,
            every: false,
            chance: Chance::new(seed),
        };
        sampler.begin_slice();
        sampler
    }

    /// Counts a task, and says whether it is time for a look at the clock.
    #[inline(always)]
    pub(crate) fn should_check(&mut self) -> bool {
        self.left -= 1;
        self.left == 0
    }

    /// Looks at the clock.
    #[cold]
    pub(crate) fn check(&mut self, clock: impl FnOnce() -> u64) -> SampleEvent {
        match self.phase {
            // What the clock says here, before the worker has found the task, would not do.
            SamplePhase::Ahead => {
                self.time_next();
                SampleEvent { measured: None, slice_ended: false }
            }
            SamplePhase::Timing { began } => {
                let now = clock();
                let measured = began.map(|began| (now.saturating_sub(began), self.stands_for()));
                let slice_ended = self.rest == 0;
                match (self.rest, self.statistics) {
                    (0, _) => self.end_slice(now),
                    (_, Statistics::Every) => self.time_next(),
                    (rest, _) => {
                        self.phase = SamplePhase::Through;
                        (self.left, self.rest) = (rest, 0);
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

    /// Whether the next task is measured, and the worker is to say when it begins.
    #[inline]
    pub(crate) fn is_timing(&self) -> bool {
        matches!(self.phase, SamplePhase::Timing { .. })
    }

    /// The task that is measured begins.
    pub(crate) fn begins(&mut self, now: u64) {
        if let SamplePhase::Timing { began } = &mut self.phase {
            *began = Some(now);
        }
    }

    /// The task that has just run goes on elsewhere, so its end is not known yet.
    #[cold]
    pub(crate) fn skip_sample(&mut self) {
        if let SamplePhase::Timing { began } = &mut self.phase {
            *began = None;
        }
    }

    fn time_next(&mut self) {
        self.phase = SamplePhase::Timing { began: None };
        self.left = 1;
        self.rest -= 1;
    }

    fn stands_for(&self) -> u64 {
        match (self.statistics, self.slice) {
            (Statistics::Every, _) => 1,
            (_, MAX_TASKS) => u64::from(MAX_TASKS * SPARED),
            (_, slice) => u64::from(slice),
        }
    }

    /// Chooses the next slice by what the last one took.
    fn end_slice(&mut self, now: u64) {
        let took = now.saturating_sub(self.last).max(1);
        let fits = SLICE_NANOS * u64::from(self.slice) / took;
        // Twice as many at the most: one short task does not make the next sixty short.
        let most = MAX_TASKS.min(self.slice * 2);
        self.slice = fits.clamp(1, u64::from(most)) as u32;
        self.last = now;
        self.begin_slice();
    }

    /// From the next slice on every task is measured, or the usual ones are.
    pub(crate) fn set_every(&mut self, every: bool) {
        self.every = every;
    }

    /// Chooses the task of the slice that is measured, if one is.
    fn begin_slice(&mut self) {
        self.statistics = if self.every { Statistics::Every } else { self.usual };
        let place = match self.statistics {
            Statistics::Off => None,
            Statistics::Every => Some(0),
            Statistics::Sampled if self.slice == MAX_TASKS => {
                Some(self.chance.below(MAX_TASKS * SPARED)).filter(|place| *place < MAX_TASKS)
            }
            Statistics::Sampled => Some(self.chance.below(self.slice)),
        };
        (self.left, self.rest) = match place {
            None => (self.slice, 0),
            Some(place) => (place, self.slice - place),
        };
        self.phase = if place.is_some() { SamplePhase::Ahead } else { SamplePhase::Through };
        if place == Some(0) {
            self.time_next();
        }
    }

    /// Whether tasks are so short that one more microsecond between them is the larger part.
    #[inline]
    pub(crate) fn is_fast(&self) -> bool {
        self.slice == MAX_TASKS
    }

    /// When the slice began: at most a slice ago.
    pub(crate) fn now(&self) -> u64 {
        self.last
    }

    /// The worker has been idle: what it remembers says nothing about what comes.
    pub(crate) fn restart(&mut self, now: u64) {
        (self.slice, self.last) = (1, now);
        self.begin_slice();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Runs tasks of this length. Returns how many slices ended, what was measured, and for how many
    /// tasks that stands.
    fn run(sampler: &mut Sampler, task: u64, tasks: usize) -> (usize, Vec<u64>, u64) {
        let mut now = sampler.last;
        let (mut slices, mut measured, mut total) = (0, Vec::new(), 0);
        for _ in 0..tasks {
            if sampler.is_timing() {
                sampler.begins(now);
            }
            now += task;
            if sampler.should_check() {
                let stop = sampler.check(|| now);
                slices += usize::from(stop.slice_ended);
                if let Some((took, stands_for)) = stop.measured {
                    measured.push(took);
                    total += stands_for;
                }
            }
        }
        (slices, measured, total)
    }

    #[test]
    fn short_tasks_share_a_look_and_long_ones_have_one_each() {
        for statistics in [Statistics::Off, Statistics::Sampled, Statistics::Every] {
            let mut sampler = Sampler::new(0, statistics, 7);
            assert!(run(&mut sampler, 30, 6400).0 < 110, "{statistics:?}");
            run(&mut sampler, 1_000_000, 64);
            assert_eq!(run(&mut sampler, 1_000_000, 100).0, 100, "{statistics:?}");
        }
    }

    #[test]
    fn what_is_measured_is_one_task_and_stands_for_its_slice() {
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
        // One in eight takes a hundred times as long, always at the same place in a rhythm.
        let mut sampler = Sampler::new(0, Statistics::Sampled, 7);
        let (mut now, mut long, mut all) = (0, 0.0, 0.0);
        for task in 0..800_000 {
            if sampler.is_timing() {
                sampler.begins(now);
            }
            now += if task % 8 == 0 { 10_000 } else { 100 };
            if sampler.should_check()
                && let Some((took, stands_for)) = sampler.check(|| now).measured
            {
                all += stands_for as f64;
                long += if took > 1000 { stands_for as f64 } else { 0.0 };
            }
        }
        let share = long / all;
        assert!((share - 0.125).abs() < 0.01, "an eighth is long, and not {share}");
    }
}
