//! Window of a child: limits the records in its pipe to those that keep it busy for [`TARGET`], so
//! that a fast child never waits and no record waits long behind another while a different child is
//! free.

use std::time::Duration;

/// Work that may wait in front of a child: enough to hide the time that a
/// thread takes to wake up, little enough to go unnoticed.
const TARGET: Duration = Duration::from_millis(1);

/// Maximum window: larger batches had no measurable benefit.
const MOST: usize = 1024;

/// Weight of a new measurement in the estimate. A child or thread that was not scheduled makes a
/// measurement too long, and no effect makes one too short; so a shorter one has more weight. With
/// equal weights, a busy machine kept the window of a fast child at one record.
const WEIGHT_IF_SHORTER: f64 = 0.5;
const WEIGHT_IF_LONGER: f64 = 0.05;

/// The window of one child.
#[derive(Debug)]
pub(super) struct FlowWindow {
    size: usize,
    /// Estimated seconds per record.
    cost: Option<f64>,
}

impl FlowWindow {
    /// A child without measurements gets one record.
    pub(super) fn new() -> Self {
        Self { size: 1, cost: None }
    }

    /// Records that may be in the pipe, at least one.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Takes into account that `count` records took the child `busy` long.
    pub(super) fn measured(&mut self, count: usize, busy: Duration) {
        let measured = busy.as_secs_f64() / count as f64;
        let cost = self.cost.map_or(measured, |cost| {
            let weight = if measured < cost { WEIGHT_IF_SHORTER } else { WEIGHT_IF_LONGER };
            cost + weight * (measured - cost)
        });
        self.cost = Some(cost);
        let fitting = (TARGET.as_secs_f64() / cost.max(1e-9)) as usize;
        self.size = fitting.clamp(1, MOST).min(2 * self.size);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fast_child_gets_many_and_a_slow_one_gets_one() {
        let mut window = FlowWindow::new();
        for _ in 0..100 {
            window.measured(window.size(), Duration::from_nanos(500) * window.size() as u32);
        }
        assert_eq!(window.size(), MOST);
        for _ in 0..20 {
            window.measured(1, Duration::from_millis(5));
        }
        assert_eq!(window.size(), 1);
    }

    #[test]
    fn one_quick_answer_opens_the_window_no_further_than_twice() {
        let mut window = FlowWindow::new();
        window.measured(1, Duration::ZERO);
        assert_eq!(window.size(), 2);
    }
}
