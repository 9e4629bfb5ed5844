//! Decides when a worker looks at the clock, so that tiny tasks do not pay for it and long ones are
//! noticed at once.

use std::time::{Duration, Instant};

/// About how long a worker serves one shard, or runs between two looks at the clock. Long against
/// the 30 to 60 ns of a look, short against what anybody would notice.
const SLICE: Duration = Duration::from_micros(20);

/// The most tasks between two looks, however short they are: a task that takes long after a row of
/// short ones is noticed when it and at most so many more have ended.
const MOST_TASKS: u32 = 64;

/// A worker's sense of time.
#[derive(Debug)]
pub(crate) struct Pace {
    /// Tasks until the next look.
    left: u32,
    /// Tasks from the last look to the next.
    slice: u32,
    /// When the worker last looked.
    last: Instant,
}

impl Pace {
    pub(crate) fn new(now: Instant) -> Self {
        Pace { left: 1, slice: 1, last: now }
    }

    /// Counts a task, and says whether its end is the end of a slice.
    #[inline]
    pub(crate) fn tick(&mut self) -> bool {
        self.left -= 1;
        self.left == 0 && {
            self.look(Instant::now());
            true
        }
    }

    /// Chooses the next slice by what the last one took.
    fn look(&mut self, now: Instant) {
        let took = now.saturating_duration_since(self.last).as_nanos().max(1);
        let fits = SLICE.as_nanos() * u128::from(self.slice) / took;
        // Twice as many at the most: one short task does not make the next sixty short.
        self.slice = (fits as u32).clamp(1, MOST_TASKS.min(self.slice * 2));
        self.left = self.slice;
        self.last = now;
    }

    /// Whether tasks are so short that one more microsecond between them is the larger part.
    #[inline]
    pub(crate) fn is_fast(&self) -> bool {
        self.slice == MOST_TASKS
    }

    /// The last look at the clock: at most a slice ago.
    pub(crate) fn now(&self) -> Instant {
        self.last
    }

    /// The worker has been idle: what it remembers says nothing about what comes.
    pub(crate) fn restart(&mut self) {
        *self = Pace::new(Instant::now());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(pace: &mut Pace, task: Duration, tasks: usize) -> usize {
        let mut now = pace.last;
        let mut looks = 0;
        for _ in 0..tasks {
            now += task;
            pace.left -= 1;
            if pace.left == 0 {
                pace.look(now);
                looks += 1;
            }
        }
        looks
    }

    #[test]
    fn short_tasks_share_a_look_and_long_ones_have_one_each() {
        let mut pace = Pace::new(Instant::now());
        assert!(run(&mut pace, Duration::from_nanos(30), 6400) < 110);
        run(&mut pace, Duration::from_millis(1), 64);
        assert_eq!(run(&mut pace, Duration::from_millis(1), 100), 100);
    }
}
