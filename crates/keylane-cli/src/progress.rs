//! Progress of a run on standard error, with a list of failures at its end.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::exit::Ending;
use crate::ledger::{Counts, Ledger, records};
use crate::run::Pool;

/// Interval of a bar's updates: short enough to look alive.
const BAR_EVERY: Duration = Duration::from_millis(200);

/// Interval of progress lines: long enough for a log.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Steps of the bar; the input's length in bytes is scaled to it.
const STEPS: u64 = 1000;

/// Form of the progress on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressMode {
    /// A bar if standard error is a terminal, else nothing but failures.
    Auto,
    /// A bar.
    Bar,
    /// A line every ten seconds.
    Plain,
    /// Failures only.
    None,
}

/// Progress display before its start.
#[derive(Debug)]
pub(crate) struct Progress {
    mode: ProgressMode,
    bar: ProgressBar,
    /// The input's length in bytes, if it is known.
    length: Option<u64>,
    /// Number of input bytes read.
    meter: Arc<AtomicU64>,
}

impl Progress {
    pub(crate) fn new(mode: ProgressMode, length: Option<u64>, meter: Arc<AtomicU64>) -> Self {
        let mode = match mode {
            ProgressMode::Auto if io::stderr().is_terminal() => ProgressMode::Bar,
            ProgressMode::Auto => ProgressMode::None,
            chosen => chosen,
        };
        let bar = if mode == ProgressMode::Bar {
            visible_bar(length.is_some())
        } else {
            ProgressBar::hidden()
        };
        Self { mode, bar, length, meter }
    }

    /// The bar, for writers that print above it.
    pub(crate) fn bar(&self) -> ProgressBar {
        self.bar.clone()
    }

    /// Shows the progress until `finish`.
    pub(crate) fn show(self, ledger: &Arc<Ledger>, pool: &Arc<Pool>) -> Shown {
        let (mode, bar) = (self.mode, self.bar.clone());
        let period = match mode {
            ProgressMode::Bar => BAR_EVERY,
            ProgressMode::Plain => LINE_EVERY,
            ProgressMode::Auto | ProgressMode::None => return Shown { mode, bar, updater: None },
        };
        let (stop, stopped) = mpsc::channel();
        let (ledger, pool) = (Arc::clone(ledger), Arc::clone(pool));
        let updater = thread::spawn(move || {
            while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                self.update(&ledger, &pool);
            }
        });
        Shown { mode, bar, updater: Some((stop, updater)) }
    }

    fn update(&self, ledger: &Ledger, pool: &Pool) {
        let (counts, elapsed) = (ledger.counts(), ledger.elapsed());
        let share = self.share(&counts);
        let ended = format!("{}{}", ended(&counts, elapsed), left(share, elapsed));
        let open = open(&counts, pool);
        if self.mode == ProgressMode::Bar {
            self.bar.set_position((share.unwrap_or(0.0) * STEPS as f64) as u64);
            self.bar.set_prefix(ended);
            self.bar.set_message(open);
        } else {
            ledger.output.say(format_args!("{ended}; {open}"));
        }
    }

    /// Finished fraction of the run, by bytes read and records ended.
    fn share(&self, counts: &Counts) -> Option<f64> {
        let length = self.length.filter(|length| *length > 0)?;
        let read = self.meter.load(Relaxed).min(length) as f64 / length as f64;
        Some(read * counts.done as f64 / counts.read.max(1) as f64)
    }
}

/// A progress report under way.
#[derive(Debug)]
pub(crate) struct Shown {
    mode: ProgressMode,
    bar: ProgressBar,
    updater: Option<(Sender<()>, JoinHandle<()>)>,
}

impl Shown {
    /// Ends the display with the final counts and failures.
    pub(crate) fn finish(self, ledger: &Ledger, ending: Ending) {
        if let Some((stop, updater)) = self.updater {
            drop(stop);
            // A report that failed must not fail the run.
            let _ = updater.join();
        }
        self.bar.finish_and_clear();
        if ending.is_quiet() {
            return;
        }
        let counts = ledger.counts();
        if counts.keyless == counts.read && counts.read > 1 {
            ledger.output.say(format_args!(
                "note: none of the {} records had a key; check --key",
                counts.read
            ));
        }
        if counts.not_run > 0 {
            ledger.output.say(format_args!("not run: {} already read", records(counts.not_run)));
        }
        let reported = self.mode == ProgressMode::Bar || self.mode == ProgressMode::Plain;
        if counts.failed > 0 || reported {
            let seconds = ledger.elapsed().as_secs_f64();
            ledger.output.say(format_args!(
                "{} of {} failed, {} succeeded, in {seconds:.1} s",
                counts.failed,
                records(counts.read),
                counts.done - counts.failed
            ));
        }
    }
}

/// Two lines: ended records, which fit on any terminal, and unfinished ones.
fn visible_bar(end_known: bool) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(STEPS), ProgressDrawTarget::stderr());
    let template = if end_known {
        "{bar:20} {percent:>3}% {prefix}\n{wide_msg}"
    } else {
        "{spinner} {prefix}\n{wide_msg}"
    };
    bar.set_style(ProgressStyle::with_template(template).expect("the template is a constant"));
    bar
}

fn ended(counts: &Counts, elapsed: Duration) -> String {
    let rate = counts.done as f64 / elapsed.as_secs_f64().max(0.001);
    match counts.failed {
        0 => format!("{} done, {rate:.0}/s", counts.done),
        failed => format!("{} done ({failed} failed), {rate:.0}/s", counts.done),
    }
}

fn open(counts: &Counts, pool: &Pool) -> String {
    // All lanes, because of each all but the first record wait for their key.
    let lanes = pool.inspect().snapshot(usize::MAX).hottest;
    let blocked: usize = lanes.iter().map(|lane| lane.len - 1).sum();
    let open = format!(
        "{} running, {} waiting, {blocked} of them for their key",
        counts.running,
        counts.waiting()
    );
    match lanes.first() {
        Some(lane) if lane.len > 1 => format!("{open}; hottest: {} with {}", lane.key, lane.len),
        _ => open,
    }
}

fn left(share: Option<f64>, elapsed: Duration) -> String {
    match share {
        Some(share) if share > 0.0 => {
            let left = elapsed.as_secs_f64() * (1.0 - share) / share;
            format!(", {} left", clock(left as u64))
        }
        _ => String::new(),
    }
}

/// A number of seconds in two units at most.
pub(crate) fn clock(seconds: u64) -> String {
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        _ => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_left_is_shown_in_two_units_at_most() {
        assert_eq!([59, 61, 3_660].map(clock), ["59 s", "1 min 1 s", "1 h 1 min"]);
        assert_eq!(left(Some(0.25), Duration::from_secs(10)), ", 30 s left");
        assert_eq!(left(None, Duration::from_secs(10)), "");
    }
}
