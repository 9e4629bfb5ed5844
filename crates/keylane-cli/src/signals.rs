//! Turns the signals that ask for an end into events; those that the parent
//! has set to be ignored, as `nohup` does, stay ignored.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::Sender;
use std::thread;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGXFSZ};
use signal_hook::iterator::Signals;

use crate::run::{CoordinatorEvent, StopCause};

/// Sends an event for each signal from now on.
pub(crate) fn watch(events: Sender<CoordinatorEvent>) -> anyhow::Result<()> {
    each(move |signal| events.send(CoordinatorEvent::Stop(StopCause::Signal(signal))).is_ok())
}

/// Calls this with each signal from now on, until it returns false.
pub(crate) fn each(mut tell: impl FnMut(i32) -> bool + Send + 'static) -> anyhow::Result<()> {
    let ignored = ignored_signals();
    let wanted = [SIGINT, SIGTERM, SIGHUP].into_iter().filter(|signal| ignored & bit(*signal) == 0);
    let mut signals = Signals::new(wanted).context("cannot watch for signals")?;
    thread::Builder::new().name("keylane-signals".into()).spawn(move || {
        for signal in signals.forever() {
            if !tell(signal) {
                return;
            }
        }
    })?;
    Ok(())
}

/// Makes a write beyond the limit on the size of files (`ulimit -f`) an error, which is reported,
/// instead of a signal that ends this process. Children get the signal's default back.
pub(crate) fn fail_beyond_file_size_limit() -> anyhow::Result<()> {
    if ignored_signals() & bit(SIGXFSZ) == 0 {
        let heard = Arc::new(AtomicBool::new(false));
        signal_hook::flag::register(SIGXFSZ, heard).context("cannot watch for signals")?;
    }
    Ok(())
}

fn bit(signal: i32) -> u64 {
    1 << (signal - 1)
}

/// Set of ignored signals, where the system reports it; else empty.
fn ignored_signals() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
