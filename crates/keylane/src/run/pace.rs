//! Decides when a worker looks at the clock, so that tiny tasks do not pay for it and long ones are
//! noticed at once.

/// About how long a worker serves one shard, or runs between two looks at the clock. Long against
/// the 30 to 60 ns of a look, short against what anybody would notice.
const SLICE_NANOS: u64 = 20_000;

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
    /// When the worker last looked, in nanoseconds since it was started.
    last: u64,
}

impl Pace {
    pub(crate) fn new(now: u64) -> Self {
        Pace { left: 1, slice: 1, last: now }
    }

    /// Counts a task, and says whether its end is the end of a slice.
    #[inline(always)]
    pub(crate) fn tick(&mut self, clock: impl FnOnce() -> u64) -> bool {
        self.left -= 1;
        self.left == 0 && {
            self.look(clock());
            true
        }
    }

    /// Chooses the next slice by what the last one took.
    #[cold]
    fn look(&mut self, now: u64) {
        let took = now.saturating_sub(self.last).max(1);
        let fits = SLICE_NANOS * u64::from(self.slice) / took;
        // Twice as many at the most: one short task does not make the next sixty short.
        let most = MOST_TASKS.min(self.slice * 2);
        self.slice = fits.clamp(1, u64::from(most)) as u32;
        self.left = self.slice;
        self.last = now;
    }

    /// Whether tasks are so short that one more microsecond between them is the larger part.
    #[inline]
    pub(crate) fn is_fast(&self) -> bool {
        self.slice == MOST_TASKS
    }

    /// The last look at the clock: at most a slice ago.
    pub(crate) fn now(&self) -> u64 {
        self.last
    }

    /// The worker has been idle: what it remembers says nothing about what comes.
    pub(crate) fn restart(&mut self, now: u64) {
        *self = Pace::new(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(pace: &mut Pace, task: u64, tasks: usize) -> usize {
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
        let mut pace = Pace::new(0);
        assert!(run(&mut pace, 30, 6400) < 110);
        run(&mut pace, 1_000_000, 64);
        assert_eq!(run(&mut pace, 1_000_000, 100), 100);
    }
}
