//! Curve on a terminal: a line for each number of workers, with a bar for its throughput.

use super::curve::{CurvePoint, ScalingCurve};

/// Length of the longest bar, in characters.
const BAR: f64 = 30.0;

pub(super) fn header() -> String {
    format!(
        "{:>7}  {:>10}  {:>8}  {:>10}  {:>11}  {:>9}  {:>9}",
        "workers", "units/s", "speed-up", "efficiency", "CPU ms/unit", "light p50", "light p99"
    )
}

/// Row of a point; a full bar is `full` times the throughput of one worker.
pub(super) fn row(curve: &ScalingCurve, point: &CurvePoint, full: f64) -> String {
    let speed_up = curve.speed_up(point);
    let length = (speed_up / full * BAR).round().clamp(0.0, BAR) as usize;
    let row = format!(
        "{:>7}  {:>10.1}  {speed_up:>8.2}  {:>10.2}  {:>11.3}  {:>6.2} ms  {:>6.2} ms  {}",
        point.workers,
        point.rate(),
        curve.efficiency(point),
        point.cost() * 1000.0,
        point.light_p50_ms,
        point.light_p99_ms,
        "█".repeat(length)
    );
    row.trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_figure_under_each_heading() {
        let point = |workers, units| CurvePoint {
            workers,
            seconds: 1.0,
            units,
            cpu_seconds: 0.5,
            light_p50_ms: 0.25,
            light_p99_ms: 1.5,
        };
        let curve =
            ScalingCurve { workload: "x".into(), points: vec![point(1, 100), point(2, 150)] };
        let row = row(&curve, &curve.points[1], 3.0);
        assert_eq!(
            row,
            "      2       150.0      1.50        0.75        3.333    0.25 ms    1.50 ms  ███████████████"
        );
        assert_eq!(header().len() + 2, row.find('█').unwrap());
    }
}
