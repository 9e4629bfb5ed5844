//! Light task beside the workers, as a model of a front end: a short piece of work that is due
//! every two milliseconds, as a request would be.
//!
//! It is due by the clock, not some time after the previous one, so that a late one delays the next
//! ones too, as waiting requests do.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Interval of the light task.
const PERIOD: Duration = Duration::from_millis(2);

/// Its steps: about 20 µs.
const STEPS: u64 = 20_000;

/// More is not kept; it is hours.
const MAX_SAMPLES: usize = 10_000_000;

/// From when each was due until it was done, in milliseconds, in ascending order.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ProbeDelays(Vec<f64>);

/// Runs until `stop` is set, and at least once.
pub(super) fn run(stop: &AtomicBool) -> ProbeDelays {
    let mut due = Instant::now();
    let mut late = Vec::new();
    loop {
        thread::sleep(due.saturating_duration_since(Instant::now()));
        black_box((0..STEPS).fold(0_u64, |sum, step| black_box(sum.rotate_left(5) ^ step)));
        late.push(due.elapsed().as_secs_f64() * 1000.0);
        if stop.load(Ordering::Relaxed) || late.len() == MAX_SAMPLES {
            late.sort_unstable_by(f64::total_cmp);
            return ProbeDelays(late);
        }
        due += PERIOD;
    }
}

impl ProbeDelays {
    /// Lateness at this percentile, in milliseconds.
    pub(super) fn percentile(&self, percent: usize) -> f64 {
        let rank = (self.0.len() * percent).div_ceil(100).max(1);
        self.0[rank - 1]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_by_rank() {
        let late = ProbeDelays((1..=200).map(f64::from).collect());
        assert_eq!((late.percentile(50), late.percentile(99)), (100.0, 198.0));
        assert_eq!(ProbeDelays(vec![7.0]).percentile(99), 7.0);
    }

    #[test]
    fn it_runs_once_even_if_it_is_to_stop_at_once() {
        assert_eq!(run(&AtomicBool::new(true)).0.len(), 1);
    }
}
