//! Measurements, as plain data.

/// Measurement of one number of workers.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct CurvePoint {
    pub(super) workers: usize,
    pub(super) seconds: f64,
    /// Pieces of work that were finished.
    pub(super) units: u64,
    /// CPU time of the whole process and its children, in seconds.
    pub(super) cpu_seconds: f64,
    /// How late the light task beside the workers was, in milliseconds.
    pub(super) light_p50_ms: f64,
    pub(super) light_p99_ms: f64,
}

impl CurvePoint {
    /// Pieces of work a second.
    pub(super) fn rate(&self) -> f64 {
        self.units as f64 / self.seconds
    }

    /// CPU time for a piece of work, in seconds.
    pub(super) fn cost(&self) -> f64 {
        self.cpu_seconds / self.units as f64
    }
}

/// One kind of work with more and more workers. It has at least one point, the first with one worker.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct ScalingCurve {
    pub(super) workload: String,
    pub(super) points: Vec<CurvePoint>,
}

impl ScalingCurve {
    /// Ratio of the throughput to that of one worker.
    pub(super) fn speed_up(&self, point: &CurvePoint) -> f64 {
        point.rate() / self.points[0].rate()
    }

    /// The part of each worker that is not lost: 1 if twice the workers are twice as fast.
    pub(super) fn efficiency(&self, point: &CurvePoint) -> f64 {
        self.speed_up(point) / point.workers as f64
    }
}

/// Which numbers of workers to measure, up to `most`: all of the first sixteen, then fewer and fewer,
/// but always one less than, as many as, and twice the physical and logical CPUs.
pub(super) fn sizes(physical: usize, logical: usize, most: usize) -> Vec<usize> {
    let steps = std::iter::successors(Some(16_usize), |size| Some(size + size / 4));
    let near = [physical, logical].into_iter().flat_map(|cpus| [cpus - 1, cpus, 2 * cpus]);
    let mut sizes: Vec<usize> = (1..=16).chain(steps.take_while(|size| *size < most)).collect();
    sizes.extend(near);
    sizes.push(most);
    sizes.retain(|size| (1..=most).contains(size));
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_machines_are_measured_at_each_size_and_large_ones_where_it_matters() {
        assert_eq!(sizes(1, 1, 2), [1, 2]);
        assert_eq!(sizes(2, 4, 8), [1, 2, 3, 4, 5, 6, 7, 8]);
        let large = sizes(64, 128, 256);
        assert!(large.len() < 40, "{large:?}");
        assert!([1, 16, 63, 64, 127, 128, 256].iter().all(|size| large.contains(size)));
        assert_eq!(sizes(8, 16, 3), [1, 2, 3]);
    }

    #[test]
    fn figures_are_relative_to_one_worker() {
        let point = |workers, units, cpu_seconds| CurvePoint {
            workers,
            seconds: 2.0,
            units,
            cpu_seconds,
            light_p50_ms: 0.1,
            light_p99_ms: 0.2,
        };
        let curve = ScalingCurve {
            workload: "x".into(),
            points: vec![point(1, 100, 2.0), point(4, 300, 7.5)],
        };
        let last = &curve.points[1];
        assert_eq!((curve.speed_up(last), curve.efficiency(last)), (3.0, 0.75));
        assert_eq!((last.rate(), last.cost()), (150.0, 0.025));
    }
}
