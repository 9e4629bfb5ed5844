//! Advice: number of workers that a curve supports, and the reason not to use more.
//!
//! From one worker on, each larger number is compared with the best so far. It is better if it adds
//! notable throughput, if the CPU time per piece of work does not grow out of proportion, and if a
//! light task beside it is not late. So on the i3 of the article, two cores with two threads each,
//! the third worker is worth it (13 % faster for 10 % more CPU time) and the fourth is not (7 % for
//! 53 %).

use std::fmt;

use super::curve::{CurvePoint, ScalingCurve};

/// Less than this can be noise.
const LEAST_GAIN: f64 = 0.03;

/// The part of a worker's share that another worker must add at least. Below it, it mostly waits.
const LEAST_SHARE: f64 = 0.2;

/// Maximum ratio of an extra worker's cost to its gain, both in percent. Two workers that wait for
/// the same memory cost more each, and are still faster; two threads of a core cost far more than
/// this.
const MAX_COST: f64 = 2.0;

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Advice {
    pub(super) workers: usize,
    pub(super) why_not_more: AdviceReason,
}

/// Why the next larger number of workers is not better.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum AdviceReason {
    /// No larger number was measured.
    Largest,
    /// It is hardly faster, or slower.
    LittleGain { next: usize, gain: f64 },
    /// The cost is out of proportion to the gain.
    Cost { next: usize, gain: f64, cost: f64 },
    /// It makes the light task late.
    Late { next: usize, p99_ms: f64, limit_ms: f64 },
}

/// Advice for a curve, with the maximum lateness of a light task.
pub(super) fn advise(curve: &ScalingCurve, latency_ms: f64) -> Advice {
    let mut best = &curve.points[0];
    let mut why_not_more = AdviceReason::Largest;
    for next in &curve.points[1..] {
        match refusal(best, next, latency_ms) {
            None => (best, why_not_more) = (next, AdviceReason::Largest),
            // The first after the best is the one that people ask about.
            Some(why) if why_not_more == AdviceReason::Largest => why_not_more = why,
            Some(_) => {}
        }
    }
    Advice { workers: best.workers, why_not_more }
}

fn refusal(best: &CurvePoint, next: &CurvePoint, limit_ms: f64) -> Option<AdviceReason> {
    let gain = next.rate() / best.rate() - 1.0;
    let cost = next.cost() / best.cost() - 1.0;
    let share = next.workers as f64 / best.workers as f64 - 1.0;
    let p99_ms = next.light_p99_ms;
    let next = next.workers;
    if gain < LEAST_GAIN.max(share * LEAST_SHARE) {
        return Some(AdviceReason::LittleGain { next, gain });
    }
    // Lateness that fewer workers cause too is not caused by more of them.
    if p99_ms > limit_ms && p99_ms > 2.0 * best.light_p99_ms {
        return Some(AdviceReason::Late { next, p99_ms, limit_ms });
    }
    (cost > MAX_COST * gain).then_some(AdviceReason::Cost { next, gain, cost })
}

impl fmt::Display for Advice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.workers == 1 { "" } else { "s" };
        write!(f, "{} worker{plural}: ", self.workers)?;
        let percent = |part: f64| format!("{:.0} %", 100.0 * part);
        match self.why_not_more {
            AdviceReason::Largest => write!(f, "the most that were measured, and still worth it"),
            AdviceReason::LittleGain { next, gain } if gain <= 0.0 => {
                write!(f, "with {next} it is no faster")
            }
            AdviceReason::LittleGain { next, gain } => {
                write!(f, "with {next} it is only {} faster", percent(gain))
            }
            AdviceReason::Cost { next, gain, cost } => write!(
                f,
                "with {next} it is {} faster, for {} more CPU time",
                percent(gain),
                percent(cost)
            ),
            AdviceReason::Late { next, p99_ms, limit_ms } => write!(
                f,
                "with {next} a light task beside it is {p99_ms:.1} ms late, above {limit_ms} ms"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// For each number of workers: units a second, CPU seconds for each thousand, and how late the
    /// light task is.
    fn curve(points: &[(u64, f64, f64)]) -> ScalingCurve {
        let point = |(index, (units, cpu, light)): (usize, &(u64, f64, f64))| CurvePoint {
            workers: index + 1,
            seconds: 1.0,
            units: *units,
            cpu_seconds: cpu * *units as f64 / 1000.0,
            light_p50_ms: 0.1,
            light_p99_ms: *light,
        };
        ScalingCurve {
            workload: "x".into(),
            points: points.iter().enumerate().map(point).collect(),
        }
    }

    fn advice(points: &[(u64, f64, f64)]) -> Advice {
        advise(&curve(points), 10.0)
    }

    #[test]
    fn the_articles_i3_gets_three_and_not_four() {
        // 22.4, 12.6, 11.2 and 10.5 seconds; 22.2, 24.8, 27.2 and 41.5 CPU seconds.
        let points = [(22.4, 22.2), (12.6, 24.8), (11.2, 27.2), (10.5, 41.5)];
        let points = points.map(|(time, cpu)| ((1e6 / time) as u64, cpu, 0.5));
        let advice = advice(&points);
        assert_eq!(advice.workers, 3);
        assert!(matches!(advice.why_not_more, AdviceReason::Cost { next: 4, .. }));
        let text = advice.to_string();
        assert_eq!(text, "3 workers: with 4 it is 7 % faster, for 53 % more CPU time");
    }

    #[test]
    fn workers_that_wait_for_the_same_memory_are_worth_it_while_they_are_faster() {
        // Measured on two cores of an EPYC: 34 % faster for 45 % more CPU time, then flat.
        let points = [(22_285, 46.0, 0.3), (29_816, 66.4, 0.2), (30_708, 64.9, 2.8)];
        assert_eq!(advice(&points).workers, 2);
    }

    #[test]
    fn a_curve_that_rises_to_its_end_speaks_for_the_most_that_was_measured() {
        let advice = advice(&[(100, 1.0, 0.1), (200, 1.0, 0.1), (300, 1.0, 0.1)]);
        assert_eq!((advice.workers, advice.why_not_more), (3, AdviceReason::Largest));
    }

    #[test]
    fn a_curve_that_goes_flat_or_falls_speaks_for_where_it_did() {
        let flat = advice(&[(100, 1.0, 0.1), (195, 1.0, 0.1), (199, 1.0, 0.1), (201, 1.0, 0.1)]);
        assert_eq!(
            (flat.workers, flat.to_string()),
            (2, "2 workers: with 3 it is only 2 % faster".into())
        );
        let falls = advice(&[(100, 1.0, 0.1), (90, 1.1, 0.1)]);
        assert_eq!(falls.to_string(), "1 worker: with 2 it is no faster");
    }

    #[test]
    fn one_dip_does_not_end_the_climb() {
        let dip = [(100, 1.0, 0.1), (200, 1.0, 0.1), (190, 1.1, 0.1), (400, 1.0, 0.1)];
        assert_eq!(advice(&dip).workers, 4);
        // But many workers for little more than few had are not worth it.
        let crawl = [(100, 1.0, 0.1), (200, 1.0, 0.1), (203, 1.0, 0.1), (210, 1.0, 0.1)];
        assert_eq!(advice(&crawl).workers, 2);
    }

    #[test]
    fn a_light_task_that_is_made_late_is_a_reason() {
        let late = advice(&[(100, 1.0, 0.1), (200, 1.0, 40.0)]);
        assert_eq!(late.workers, 1);
        assert!(late.to_string().ends_with("is 40.0 ms late, above 10 ms"), "{late}");
        // It was late before.
        assert_eq!(advice(&[(100, 1.0, 30.0), (200, 1.0, 40.0)]).workers, 2);
    }

    #[test]
    fn one_point_is_advice_enough() {
        assert_eq!(advice(&[(100, 1.0, 0.1)]).workers, 1);
    }
}
