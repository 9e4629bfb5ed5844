//! Counts of records by outcome, and messages for those that failed.

use std::fmt::{self, Display};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::hot_keys::FrequentKeys;
use crate::key::RecordKey;
use crate::output::StandardOutput;

/// Where a record was, for messages about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RecordLocation {
    /// The record's number, counted from one.
    pub(crate) number: u64,
    /// The line of its file on which it begins.
    pub(crate) line: u64,
    /// Name of its file, if there are several.
    pub(crate) file: Option<Arc<str>>,
    /// Hash of its bytes, if the run has a log.
    pub(crate) hash: u64,
}

/// "line 3", or "b.txt:3" if there are several files.
impl Display for RecordLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.file {
            Some(file) => write!(f, "{file}:{}", self.line),
            None => write!(f, "line {}", self.line),
        }
    }
}

/// Counters of the run. Each only grows but for `running`; readers accept that
/// they are a moment apart.
#[derive(Debug)]
pub(crate) struct RunStats {
    pub(crate) output: StandardOutput,
    pub(crate) hot_keys: FrequentKeys,
    started: Instant,
    read: AtomicU64,
    keyless: AtomicU64,
    running: AtomicU64,
    done: AtomicU64,
    failed: AtomicU64,
    replaced: AtomicU64,
    dead_letters: AtomicU64,
    held: AtomicU64,
    not_run: AtomicU64,
    /// True once no new record may start.
    stopping: AtomicBool,
}

/// The counters at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordCounts {
    /// Records read.
    pub(crate) read: u64,
    /// Number of these records without a key.
    pub(crate) keyless: u64,
    pub(crate) running: u64,
    /// Records that ended, failed ones included.
    pub(crate) done: u64,
    pub(crate) failed: u64,
    /// Records that ended because a later one replaced them.
    pub(crate) replaced: u64,
    /// Records that ended in the dead letters.
    pub(crate) dead_letters: u64,
    /// Records that were not run because an earlier one of a key has failed, of those given up.
    pub(crate) held: u64,
    /// Records that were read and given up.
    pub(crate) not_run: u64,
}

/// "1 record", "2 records".
pub(crate) fn records(count: u64) -> String {
    format!("{count} record{}", if count == 1 { "" } else { "s" })
}

impl RecordCounts {
    /// Records read that neither run nor ended.
    pub(crate) fn waiting(&self) -> u64 {
        self.read.saturating_sub(self.running + self.done + self.not_run)
    }
}

impl RunStats {
    pub(crate) fn new(output: StandardOutput) -> Self {
        Self {
            output,
            hot_keys: FrequentKeys::new(),
            started: Instant::now(),
            read: AtomicU64::new(0),
            keyless: AtomicU64::new(0),
            running: AtomicU64::new(0),
            done: AtomicU64::new(0),
            failed: AtomicU64::new(0),
            replaced: AtomicU64::new(0),
            dead_letters: AtomicU64::new(0),
            held: AtomicU64::new(0),
            not_run: AtomicU64::new(0),
            stopping: AtomicBool::new(false),
        }
    }

    pub(crate) fn read(&self, key: &RecordKey) {
        self.read.fetch_add(1, Relaxed);
        if !matches!(key, RecordKey::Named(_)) {
            self.keyless.fetch_add(1, Relaxed);
        }
    }

    pub(crate) fn started(&self) {
        self.running.fetch_add(1, Relaxed);
    }

    pub(crate) fn succeeded(&self, count: u64) {
        self.running.fetch_sub(count, Relaxed);
        self.done.fetch_add(count, Relaxed);
    }

    /// A record that had started failed.
    pub(crate) fn failed(&self, place: &RecordLocation, key: &RecordKey, why: impl Display) {
        self.running.fetch_sub(1, Relaxed);
        self.refused(place, key, why);
    }

    /// A record failed before it could start.
    pub(crate) fn refused(&self, place: &RecordLocation, key: &RecordKey, why: impl Display) {
        self.done.fetch_add(1, Relaxed);
        self.failed.fetch_add(1, Relaxed);
        let number = place.number;
        self.output.say(format_args!("record {number} ({place}, {key}): {why}"));
    }

    /// A record that had started failed, and does not count as a failure.
    pub(crate) fn skipped(&self, place: &RecordLocation, key: &RecordKey, why: impl Display) {
        self.succeeded(1);
        let number = place.number;
        self.output.say(format_args!("record {number} ({place}, {key}): {why}; skipped"));
    }

    /// A record that had started failed, and is in the dead letters.
    pub(crate) fn buried(&self, place: &RecordLocation, key: &RecordKey, why: impl Display) {
        self.succeeded(1);
        self.dead_letters.fetch_add(1, Relaxed);
        let number = place.number;
        self.output
            .say(format_args!("record {number} ({place}, {key}): {why}; in the dead letters"));
    }

    /// An attempt failed, and another one follows.
    pub(crate) fn will_retry(
        &self,
        place: &RecordLocation,
        key: &RecordKey,
        attempt: impl Display,
        why: impl Display,
    ) {
        self.running.fetch_sub(1, Relaxed);
        let number = place.number;
        self.output.say(format_args!("record {number} ({place}, {key}): {attempt} failed: {why}"));
    }

    /// A record ended because a later one replaced it.
    pub(crate) fn replaced(&self) {
        self.replaced.fetch_add(1, Relaxed);
        self.done.fetch_add(1, Relaxed);
    }

    /// A record is not run because an earlier one of a key has failed.
    pub(crate) fn held(&self) {
        self.held.fetch_add(1, Relaxed);
        self.not_run(1);
    }

    pub(crate) fn not_run(&self, count: u64) {
        self.not_run.fetch_add(count, Relaxed);
    }

    /// Records that had started in name only were given up.
    pub(crate) fn withdrawn(&self, count: u64) {
        self.running.fetch_sub(count, Relaxed);
        self.not_run(count);
    }

    pub(crate) fn stop(&self) {
        self.stopping.store(true, Relaxed);
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping.load(Relaxed)
    }

    pub(crate) fn counts(&self) -> RecordCounts {
        // `done` before `read`, so that a record between the two loads seems
        // to wait rather than to have ended before it was read.
        let done = self.done.load(Relaxed);
        let running = self.running.load(Relaxed);
        RecordCounts {
            done,
            running,
            failed: self.failed.load(Relaxed),
            replaced: self.replaced.load(Relaxed),
            dead_letters: self.dead_letters.load(Relaxed),
            held: self.held.load(Relaxed),
            not_run: self.not_run.load(Relaxed),
            keyless: self.keyless.load(Relaxed),
            read: self.read.load(Relaxed),
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }
}
