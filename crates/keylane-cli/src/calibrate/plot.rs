//! Drawing of curves: speed-up above, lateness of the light task below.

use super::curve::{CurvePoint, ScalingCurve};
use crate::svg::{COLOURS, SvgDrawing, TextAnchor};

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 600.0;
const LEFT: f64 = 70.0;
const RIGHT: f64 = 690.0;

/// One of the two diagrams: its position, and the ranges of its axes.
struct DiagramPanel {
    top: f64,
    bottom: f64,
    max_workers: usize,
    most: f64,
}

impl DiagramPanel {
    fn at(&self, workers: f64, value: f64) -> (f64, f64) {
        let x = LEFT + (RIGHT - LEFT) * workers / self.max_workers as f64;
        (x, self.bottom - (self.bottom - self.top) * value / self.most)
    }

    fn axes(&self, svg: &mut SvgDrawing, title: &str) {
        svg.text(LEFT, self.top - 14.0, TextAnchor::Start, title);
        let step = pleasant_step(self.most);
        for count in 0..=(self.most / step).floor() as u32 {
            let value = f64::from(count) * step;
            let (x, y) = self.at(0.0, value);
            svg.rule((x, y), (RIGHT, y));
            // No more digits than the steps have.
            svg.text(x - 8.0, y + 4.0, TextAnchor::End, (value * 1e6).round() / 1e6);
        }
        let step = pleasant_step(self.max_workers as f64).max(1.0) as usize;
        for workers in (0..=self.max_workers).step_by(step) {
            let (x, y) = self.at(workers as f64, 0.0);
            svg.rule((x, y), (x, y + 4.0));
            svg.text(x, y + 18.0, TextAnchor::Middle, workers);
        }
    }
}

/// The least of 1, 2 and 5 times a power of ten that leaves no more than ten steps.
fn pleasant_step(most: f64) -> f64 {
    let power = 10_f64.powf((most / 10.0).log10().floor());
    [1.0, 2.0, 5.0]
        .map(|times| times * power)
        .into_iter()
        .find(|step| most / step <= 10.0)
        .unwrap_or(10.0 * power)
}

/// All curves, each with the number of workers that it speaks for.
pub(super) fn draw(curves: &[(ScalingCurve, usize)]) -> String {
    let mut svg = SvgDrawing::new(WIDTH as u32, HEIGHT as u32);
    let points = || curves.iter().flat_map(|(curve, _)| &curve.points);
    let max_workers = points().map(|point| point.workers).max().unwrap_or(1);
    let fastest =
        curves.iter().flat_map(|(curve, _)| curve.points.iter().map(|point| curve.speed_up(point)));
    let speed = DiagramPanel {
        top: 60.0,
        bottom: 320.0,
        max_workers,
        most: fastest.fold(1.0, f64::max) * 1.1,
    };
    let latest = points().map(|point| point.light_p99_ms).fold(0.1, f64::max);
    let late = DiagramPanel { top: 400.0, bottom: 540.0, max_workers, most: latest * 1.1 };

    speed.axes(
        &mut svg,
        "times as fast as one worker (dashed: a worker more is a worker's work more)",
    );
    late.axes(&mut svg, "a light task beside the workers: 99 % are at most so late (ms)");
    let ideal = speed.most.min(max_workers as f64);
    svg.curve(&[speed.at(1.0, 1.0), speed.at(ideal, ideal)], "#8a9099", true);
    for (number, (curve, advised)) in curves.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let line = |panel: &DiagramPanel, value: &dyn Fn(&CurvePoint) -> f64| -> Vec<_> {
            curve.points.iter().map(|p| panel.at(p.workers as f64, value(p))).collect()
        };
        svg.curve(&line(&speed, &|point| curve.speed_up(point)), colour, false);
        svg.curve(&line(&late, &|point| point.light_p99_ms), colour, false);
        legend(&mut svg, number, colour, &curve.workload, *advised);
    }
    svg.text((LEFT + RIGHT) / 2.0, late.bottom + 40.0, TextAnchor::Middle, "workers");
    svg.finish()
}

fn legend(svg: &mut SvgDrawing, number: usize, colour: &str, workload: &str, advised: usize) {
    let x = LEFT + 300.0 * number as f64;
    svg.bar((x, 10.0), (12.0, 12.0), colour, workload);
    let name: String = workload.chars().take(24).collect();
    svg.text(x + 18.0, 20.0, TextAnchor::Start, format_args!("{name}: {advised} recommended"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn axes_have_pleasant_steps() {
        assert_eq!([1.1, 2.2, 8.8, 70.0, 0.11].map(pleasant_step), [0.2, 0.5, 1.0, 10.0, 0.02]);
    }

    #[test]
    fn there_is_a_dot_for_each_figure_and_all_are_within_the_page() {
        let point = |workers, units, light_p99_ms| CurvePoint {
            workers,
            seconds: 1.0,
            units,
            cpu_seconds: 1.0,
            light_p50_ms: 0.1,
            light_p99_ms,
        };
        let curve = |name: &str| ScalingCurve {
            workload: name.into(),
            points: vec![point(1, 100, 0.2), point(2, 180, 0.4), point(4, 170, 900.0)],
        };
        let svg = draw(&[(curve("cpu"), 2), (curve("a <b>"), 2)]);
        // Three for each curve in both diagrams, and the two ends of the ideal.
        assert_eq!(svg.matches("<circle").count(), 2 * 3 * 2 + 2);
        assert!(svg.contains("a &lt;b&gt;: 2 recommended"));
        for name in ["cx=\"", "cy=\""] {
            for value in svg.split(name).skip(1) {
                let value: f64 = value.split('"').next().unwrap().parse().unwrap();
                assert!((0.0..=WIDTH).contains(&value), "{value}");
            }
        }
    }
}
