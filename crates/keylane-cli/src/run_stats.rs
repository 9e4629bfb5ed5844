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

/// Records whose attempts start and end together: one, or those of a batch.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RecordGroup<'r> {
    pub(crate) first: &'r RecordLocation,
    /// The last one, and the number of records, of a batch with more than one record.
    pub(crate) batch: Option<(&'r RecordLocation, u64)>,
    pub(crate) key: &'r RecordKey,
}

impl<'r> RecordGroup<'r> {
    pub(crate) fn one(place: &'r RecordLocation, key: &'r RecordKey) -> Self {
        RecordGroup { first: place, batch: None, key }
    }

    /// Number of records.
    fn count(&self) -> u64 {
        self.batch.map_or(1, |(_, count)| count)
    }
}

/// "record 5 (line 5, key a)", or "batch of 3 records, 5 to 9 (line 5 to line 9, key a)".
impl Display for RecordGroup<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RecordGroup { first, batch, key } = self;
        match batch {
            None => write!(f, "record {} ({first}, {key})", first.number),
            Some((last, count)) => write!(
                f,
                "batch of {}, {} to {} ({first} to {last}, {key})",
                records(*count),
                first.number,
                last.number
            ),
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

    pub(crate) fn started(&self, count: u64) {
        self.running.fetch_add(count, Relaxed);
    }

    pub(crate) fn succeeded(&self, count: u64) {
        self.running.fetch_sub(count, Relaxed);
        self.done.fetch_add(count, Relaxed);
    }

    /// Records that had started failed.
    pub(crate) fn failed(&self, records: &RecordGroup<'_>, why: impl Display) {
        self.running.fetch_sub(records.count(), Relaxed);
        self.refused(records, why);
    }

    /// Records failed before they could start.
    pub(crate) fn refused(&self, records: &RecordGroup<'_>, why: impl Display) {
        self.done.fetch_add(records.count(), Relaxed);
        self.failed.fetch_add(records.count(), Relaxed);
        self.output.say(format_args!("{records}: {why}"));
    }

    /// Records that had started failed, and do not count as failures.
    pub(crate) fn skipped(&self, records: &RecordGroup<'_>, why: impl Display) {
        self.succeeded(records.count());
        self.output.say(format_args!("{records}: {why}; skipped"));
    }

    /// Records that had started failed, and are in the dead letters.
    pub(crate) fn buried(&self, records: &RecordGroup<'_>, why: impl Display) {
        self.succeeded(records.count());
        self.dead_letters.fetch_add(records.count(), Relaxed);
        self.output.say(format_args!("{records}: {why}; in the dead letters"));
    }

    /// An attempt failed, and another one follows.
    pub(crate) fn will_retry(
        &self,
        records: &RecordGroup<'_>,
        attempt: impl Display,
        why: impl Display,
    ) {
        self.running.fetch_sub(records.count(), Relaxed);
        self.output.say(format_args!("{records}: {attempt} failed: {why}"));
    }

    /// A record ended because a later one replaced it.
    pub(crate) fn replaced(&self) {
        self.replaced.fetch_add(1, Relaxed);
        self.done.fetch_add(1, Relaxed);
    }

    /// Records are not run because an earlier one of a key has failed.
    pub(crate) fn held(&self, count: u64) {
        self.held.fetch_add(count, Relaxed);
        self.not_run(count);
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
