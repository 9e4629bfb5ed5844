//! Progress of a run on standard error, with a list of failures at its end.

use std::io::{self, IsTerminal};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use clap::ValueEnum;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::exit::ExitOutcome;
use crate::hot_keys::HottestKey;
use crate::key::RecordKey;
use crate::run::RecordPool;
use crate::run_stats::{RecordCounts, RunStats, records};

/// Interval of a bar's updates: short enough to look alive.
const BAR_EVERY: Duration = Duration::from_millis(200);

/// Interval of progress lines: long enough for a log.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// Steps of the bar; the input's length in bytes is scaled to it.
const STEPS: u64 = 1000;

/// Form of the progress on standard error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum ProgressMode {
    /// A bar on a terminal. Elsewhere `run` prints failures only, and other commands print occasional lines.
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
pub(crate) struct ProgressDisplay {
    mode: ProgressMode,
    bar: ProgressBar,
    /// The input's length in bytes, if it is known.
    length: Option<u64>,
    /// Number of input bytes read.
    meter: Arc<AtomicU64>,
}

impl ProgressDisplay {
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
    ///
    /// `per_key` records of a key may run at the same time.
    pub(crate) fn show(
        self,
        stats: &Arc<RunStats>,
        pool: &Arc<RecordPool>,
        per_key: u16,
    ) -> ActiveProgress {
        let (mode, bar) = (self.mode, self.bar.clone());
        let period = match mode {
            ProgressMode::Bar => BAR_EVERY,
            ProgressMode::Plain => LINE_EVERY,
            ProgressMode::Auto | ProgressMode::None => {
                return ActiveProgress { mode, bar, updater: None };
            }
        };
        stats.hot_keys.start();
        let (stop, stopped) = mpsc::channel();
        let (stats, pool) = (Arc::clone(stats), Arc::clone(pool));
        let updater = thread::spawn(move || {
            let mut busy = BusyTime::default();
            let mut last = Instant::now();
            while stopped.recv_timeout(period) == Err(RecvTimeoutError::Timeout) {
                let now = Instant::now();
                busy.add(stats.counts().running, now - std::mem::replace(&mut last, now));
                self.update(&stats, &pool, busy.of_each(stats.counts().done) / f64::from(per_key));
            }
        });
        ActiveProgress { mode, bar, updater: Some((stop, updater)) }
    }

    /// Shows the state of a run in which a record of a key follows another after `pace` seconds.
    fn update(&self, stats: &RunStats, pool: &RecordPool, pace: f64) {
        let (counts, elapsed) = (stats.counts(), stats.elapsed());
        let share = self.share(&counts);
        let lanes = pool.open_keys();
        let open_keys = lanes.iter().map(|(key, len)| (key, *len));
        let hottest = stats.hot_keys.hottest(open_keys, counts.read, self.unread(&counts));
        let chain = hottest.as_ref().map_or(0.0, |hottest| pace * hottest.left());
        let left = left(share, elapsed, chain);
        let ended = format!("{}{left}", ended(&counts, elapsed));
        let open = open(&counts, &lanes, hottest.as_ref());
        if self.mode == ProgressMode::Bar {
            self.bar.set_position((share.unwrap_or(0.0) * STEPS as f64) as u64);
            self.bar.set_prefix(ended);
            self.bar.set_message(open);
        } else {
            stats.output.say(format_args!("{ended}; {open}"));
        }
    }

    /// Estimated number of records that are not read yet.
    fn unread(&self, counts: &RecordCounts) -> f64 {
        let (bytes, length) = (self.meter.load(Relaxed), self.length.unwrap_or(0));
        if bytes == 0 {
            return 0.0;
        }
        counts.read as f64 * length.saturating_sub(bytes) as f64 / bytes as f64
    }

    /// Finished fraction of the run, by bytes read and records ended.
    fn share(&self, counts: &RecordCounts) -> Option<f64> {
        let length = self.length.filter(|length| *length > 0)?;
        let read = self.meter.load(Relaxed).min(length) as f64 / length as f64;
        Some(read * counts.done as f64 / counts.read.max(1) as f64)
    }
}

/// A progress report under way.
#[derive(Debug)]
pub(crate) struct ActiveProgress {
    mode: ProgressMode,
    bar: ProgressBar,
    updater: Option<(Sender<()>, JoinHandle<()>)>,
}

impl ActiveProgress {
    /// Ends the display with the final counts and failures. `remedy` is the way to run records that
    /// were read and not run, or empty.
    pub(crate) fn finish(self, stats: &RunStats, ending: ExitOutcome, remedy: &str) {
        if let Some((stop, updater)) = self.updater {
            drop(stop);
            // A report that failed must not fail the run.
            let _ = updater.join();
        }
        self.bar.finish_and_clear();
        if ending.is_quiet() {
            return;
        }
        let counts = stats.counts();
        match counts.read {
            read if counts.keyless < read || read == 0 => {}
            1 => stats.output.say("note: the only record had no key; check --key"),
            read => {
                stats
                    .output
                    .say(format_args!("note: none of the {read} records had a key; check --key"));
            }
        }
        if counts.held > 0 {
            stats.output.say(format_args!(
                "not run: {} behind a failed one of a key",
                records(counts.held)
            ));
        }
        if counts.not_run > counts.held {
            let given_up = records(counts.not_run - counts.held);
            stats.output.say(format_args!("not run: {given_up} that had been read ahead{remedy}"));
        }
        if counts.replaced > 0 {
            stats.output.say(format_args!(
                "replaced: {} by a later one of the key",
                records(counts.replaced)
            ));
        }
        let reported = self.mode == ProgressMode::Bar || self.mode == ProgressMode::Plain;
        if counts.failed > 0 || reported {
            let seconds = stats.elapsed().as_secs_f64();
            stats.output.say(format_args!(
                "{} of {} failed, {} succeeded, in {seconds:.1} s",
                counts.failed,
                records(counts.read),
                counts.done - counts.failed - counts.replaced
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

fn ended(counts: &RecordCounts, elapsed: Duration) -> String {
    let rate = counts.done as f64 / elapsed.as_secs_f64().max(0.001);
    match counts.failed {
        0 => format!("{} done, {rate:.0}/s", counts.done),
        failed => format!("{} done ({failed} failed), {rate:.0}/s", counts.done),
    }
}

fn open(
    counts: &RecordCounts,
    lanes: &[(RecordKey, usize)],
    hottest: Option<&HottestKey>,
) -> String {
    let blocked: usize = lanes.iter().map(|(_, len)| len - 1).sum();
    let open = format!(
        "{} running, {} waiting ({blocked} for their key)",
        counts.running,
        counts.waiting()
    );
    match hottest {
        Some(HottestKey { key, open: now, to_come }) if *to_come >= 1.0 => {
            format!("{open}; hottest: {key} with {now}, ~{to_come:.0} to come")
        }
        Some(HottestKey { key, open: now, .. }) if *now > 1 => {
            format!("{open}; hottest: {key} with {now}")
        }
        _ => open,
    }
}

/// Time left: at least what the records of the hottest key take, of which one runs at a time.
fn left(share: Option<f64>, elapsed: Duration, hottest_seconds: f64) -> String {
    match share {
        Some(share) if share > 0.0 => {
            let left = elapsed.as_secs_f64() * (1.0 - share) / share;
            format!(", {} left", clock(left.max(hottest_seconds) as u64))
        }
        _ => String::new(),
    }
}

/// Sum of the durations of all records so far, in seconds: the number of running records, over time.
#[derive(Debug, Default, Clone, Copy)]
struct BusyTime(f64);

impl BusyTime {
    fn add(&mut self, running: u64, time: Duration) {
        self.0 += running as f64 * time.as_secs_f64();
    }

    /// Mean duration of a record, in seconds, after `done` records.
    fn of_each(self, done: u64) -> f64 {
        if done == 0 { 0.0 } else { self.0 / done as f64 }
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
        assert_eq!(left(Some(0.25), Duration::from_secs(10), 0.0), ", 30 s left");
        assert_eq!(left(None, Duration::from_secs(10), 0.0), "");
    }

    /// 4 records run at a time for 10 seconds, 40 of 80 are done, and 30 of the rest have a key in common.
    #[test]
    fn the_hottest_key_takes_its_records_one_after_another() {
        let mut busy = BusyTime::default();
        (0..10).for_each(|_| busy.add(4, Duration::from_secs(1)));
        let each = busy.of_each(40);
        assert_eq!(left(Some(0.5), Duration::from_secs(10), each * 30.0), ", 30 s left");
        assert_eq!(left(Some(0.5), Duration::from_secs(10), each * 3.0), ", 10 s left");
        assert_eq!(BusyTime::default().of_each(0), 0.0);
    }
}
