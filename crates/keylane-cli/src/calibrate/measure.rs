//! Measurement of one point: a number of workers for a duration, with the light task beside them.

use std::fs;
use std::io;
use std::sync::RwLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{Builder, Scope, ScopedJoinHandle, scope};
use std::time::{Duration, Instant};

use anyhow::Context;
use rustix::time::{ClockId, clock_gettime};

use super::curve::CurvePoint;
use super::probe::{self, ProbeDelays};
use super::workload::Workload;

/// State shared by all threads of a measurement.
struct MeasurementState<'a> {
    workload: &'a Workload,
    /// Held for writing until all threads are there, so that none begins before the clock runs.
    gate: RwLock<()>,
    /// Set when the time is over, or when one has failed.
    stop: AtomicBool,
}

/// A worker's pieces of work, or why it could not go on.
type WorkerThread<'scope> = ScopedJoinHandle<'scope, anyhow::Result<u64>>;

/// Runs the workload. Each worker finishes the piece that it is at, so this takes a little longer than
/// `time`, and each has done at least one.
pub(super) fn measure(
    workload: &Workload,
    workers: usize,
    time: Duration,
) -> anyhow::Result<CurvePoint> {
    let shared = MeasurementState { workload, gate: RwLock::new(()), stop: AtomicBool::new(false) };
    let shared = &shared;
    scope(|scope| {
        let (failed, failures) = channel();
        let gate = shared.gate.write().expect("no thread panics while it holds the lock");
        let threads = start(scope, shared, workers, &failed);
        if threads.is_err() {
            // Threads that have started are released, and stop.
            shared.stop.store(true, Ordering::Relaxed);
        }
        let cpu_before = cpu_time();
        let start = Instant::now();
        drop(gate);
        let (work, light) = threads.context("cannot start a thread for each worker")?;
        wait(time, &failures);
        shared.stop.store(true, Ordering::Relaxed);
        let units = work.into_iter().map(|worker| worker.join().expect("workers don't panic"));
        let units = units.sum::<anyhow::Result<u64>>()?;
        let seconds = start.elapsed().as_secs_f64();
        let cpu_seconds = (cpu_time() - cpu_before).as_secs_f64();
        let light = light.join().expect("the light task does not panic");
        Ok(CurvePoint {
            workers,
            seconds,
            units,
            cpu_seconds,
            light_p50_ms: light.percentile(50),
            light_p99_ms: light.percentile(99),
        })
    })
}

fn start<'scope, 'env: 'scope>(
    scope: &'scope Scope<'scope, 'env>,
    shared: &'env MeasurementState<'env>,
    workers: usize,
    failed: &Sender<()>,
) -> io::Result<(Vec<WorkerThread<'scope>>, ScopedJoinHandle<'scope, ProbeDelays>)> {
    let work = (0..workers).map(|number| {
        let failed = failed.clone();
        Builder::new().spawn_scoped(scope, move || {
            let result = work(shared, number as u64);
            if result.is_err() {
                // The receiver is gone if the time is over.
                let _ = failed.send(());
            }
            result
        })
    });
    let work = work.collect::<io::Result<_>>()?;
    let light = Builder::new().spawn_scoped(scope, || {
        drop(shared.gate.read());
        probe::run(&shared.stop)
    })?;
    Ok((work, light))
}

fn work(shared: &MeasurementState<'_>, number: u64) -> anyhow::Result<u64> {
    drop(shared.gate.read());
    let (mut state, mut units) = (number, 0);
    loop {
        shared.workload.unit(&mut state)?;
        units += 1;
        if shared.stop.load(Ordering::Relaxed) {
            return Ok(units);
        }
    }
}

/// Until the time is over, or one has failed.
fn wait(time: Duration, failures: &Receiver<()>) {
    let _ = failures.recv_timeout(time);
}

/// CPU time of this process and of its children that have ended.
pub(super) fn cpu_time() -> Duration {
    let own = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(own.tv_sec as u64, own.tv_nsec as u32) + children_cpu_time().unwrap_or_default()
}

/// Known on Linux only. In ticks of 10 ms, which is little beside a measurement.
fn children_cpu_time() -> Option<Duration> {
    let stat = fs::read_to_string("/proc/self/stat").ok()?;
    let ticks = children_ticks(&stat)?;
    Some(Duration::from_secs(ticks) / u32::try_from(rustix::param::clock_ticks_per_second()).ok()?)
}

/// The fields cutime and cstime. The second field is a name in parentheses that may contain anything,
/// so it is counted from its end.
fn children_ticks(stat: &str) -> Option<u64> {
    let (_, after_name) = stat.rsplit_once(')')?;
    let mut fields = after_name.split_whitespace().skip(13);
    let (user, system): (u64, u64) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
    Some(user + system)
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;
    use std::path::PathBuf;
    use std::sync::Arc;

    use keylane_process::Registry;

    use super::*;
    use crate::process::ChildProcesses;

    fn shell(script: &str) -> Workload {
        let words = ["sh", "-c", script].map(OsString::from).to_vec();
        let children = Arc::new(ChildProcesses::new(Registry::default()).unwrap());
        Workload::Command { program: PathBuf::from("/bin/sh"), words, children }
    }

    #[test]
    fn each_worker_does_at_least_one_piece() {
        let point = measure(&Workload::Cpu, 3, Duration::ZERO).unwrap();
        assert_eq!(point.workers, 3);
        assert!(point.units >= 3 && point.cpu_seconds > 0.0, "{point:?}");
        assert!(point.light_p50_ms > 0.0 && point.light_p50_ms <= point.light_p99_ms);
    }

    #[test]
    fn a_command_that_fails_ends_the_measurement_at_once() {
        // It would take an hour if the failure did not end it.
        let hour = Duration::from_secs(3600);
        let error = measure(&shell("exit 3"), 2, hour).unwrap_err();
        assert_eq!(error.to_string(), "the command failed: exit status 3");
    }

    #[test]
    fn a_commands_cpu_time_is_found_behind_any_name() {
        let stat = "12 (a) b) (c) S 1 2 3 4 5 6 7 8 9 10 11 12 130 17 20 0";
        assert_eq!(children_ticks(stat), Some(147));
        assert_eq!(children_ticks("nonsense"), None);
    }
}
