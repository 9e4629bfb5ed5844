//! CPU use of other processes during a measurement: results beside them are valid only for a
//! machine that is shared in this way.
//!
//! The kernel counts the processors' busy time since boot, of all processes; the use of this
//! process and its children is subtracted. Time that a host of virtual machines gave to others
//! (steal) counts as theirs. Known on Linux only.

use std::fs;
use std::time::{Duration, Instant};

use super::measure::cpu_time;

/// The part of the machine's processors from which other processes are worth a warning.
const BUSY_SHARE: f64 = 0.1;

/// Counters at the start of the measurement.
#[derive(Debug)]
pub(super) struct CpuUsageMeter {
    busy: Option<Duration>,
    own: Duration,
    begun: Instant,
}

impl CpuUsageMeter {
    pub(super) fn start() -> Self {
        CpuUsageMeter { busy: busy_time(), own: cpu_time(), begun: Instant::now() }
    }

    /// Processors that others used on average since the start, if that is known.
    pub(super) fn others(&self) -> Option<f64> {
        let busy = busy_time()?.checked_sub(self.busy?)?;
        let others = busy.saturating_sub(cpu_time().saturating_sub(self.own));
        Some(others.as_secs_f64() / self.begun.elapsed().as_secs_f64())
    }
}

/// Returns a warning if others used a part of the processors that changes a measurement.
pub(super) fn warning(others: f64, processors: usize) -> Option<String> {
    let is_busy = others > BUSY_SHARE * processors as f64;
    is_busy.then(|| {
        format!(
            "the machine is busy: other processes used {others:.1} of its {processors} CPUs meanwhile, so these figures \
             are about what they left; measure again without them"
        )
    })
}

fn busy_time() -> Option<Duration> {
    let ticks = busy_ticks(&fs::read_to_string("/proc/stat").ok()?)?;
    let per_second = rustix::param::clock_ticks_per_second();
    Some(Duration::from_secs_f64(ticks as f64 / per_second as f64))
}

/// The fields user, nice, system, irq, softirq and steal of the line about all processors; idle and iowait are none.
fn busy_ticks(stat: &str) -> Option<u64> {
    let line = stat.lines().next()?.strip_prefix("cpu ")?;
    let fields: Vec<u64> =
        line.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
    let busy = [0, 1, 2, 5, 6, 7].map(|at| fields.get(at).copied().unwrap_or(0));
    Some(busy.iter().sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idle_time_is_not_busy() {
        let stat = "cpu  100 20 3 5000 600 7 8 9 90 0\ncpu0 1 1 1 1 1 1 1 1 0 0\n";
        assert_eq!(busy_ticks(stat), Some(147));
        assert_eq!(busy_ticks("cpu  1 2 3 4"), Some(6));
        assert_eq!(busy_ticks("nonsense"), None);
    }

    #[test]
    fn a_tenth_of_the_machine_is_worth_a_warning() {
        assert_eq!(warning(0.2, 2), None);
        let said = warning(1.24, 2).unwrap();
        assert!(said.contains("1.2 of its 2 CPUs"), "{said}");
    }
}
