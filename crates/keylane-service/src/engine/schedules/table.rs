//! Schedules in memory.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::Notify;

use super::firing_times::{CronTimes, TimeSpan};
use crate::store::ScheduleRow;
use crate::wire::{MissedChoice, OverlapChoice, PassedOver, Schedule, Timestamp};

/// Number of locks that the names of schedules share. Several schedules can be written in one
/// transaction.
const LOCKS: usize = 64;

/// Number of upcoming times that a schedule shows.
const SHOWN: usize = 5;

/// All schedules.
#[derive(Debug, Default)]
pub(in crate::engine) struct ScheduleTable {
    /// Schedules by name, as they are on the disk. No code panics or waits while it holds this
    /// lock.
    pub(super) all: Mutex<BTreeMap<String, Arc<ScheduleEntry>>>,
    /// Notified when a time may be due earlier than known.
    pub(super) changed: Notify,
    /// Locks by name: only their holder changes the schedules with that name.
    turns: ScheduleLocks,
    pub(super) fired: AtomicU64,
    /// Number of times that created no job, by [`SkipReason`].
    pub(super) passed: [AtomicU64; SkipReason::ALL.len()],
}

#[derive(Debug)]
struct ScheduleLocks([tokio::sync::Mutex<()>; LOCKS]);

impl Default for ScheduleLocks {
    fn default() -> Self {
        ScheduleLocks(std::array::from_fn(|_| tokio::sync::Mutex::default()))
    }
}

/// A schedule in memory.
#[derive(Clone, Debug)]
pub(super) struct ScheduleEntry {
    pub(super) version: u64,
    pub(super) kept: Arc<StoredSchedule>,
    /// The stored schedule cannot be read: it can only be replaced or deleted.
    pub(super) is_damaged: bool,
    /// Times of the schedule, or the reason why they are unknown.
    pub(super) times: Result<CronTimes, String>,
    /// First undecided time. `None` if there is none or the schedule is paused.
    pub(super) next: Option<u64>,
    /// Reason why a due time has not created its job, and the time of the next attempt on the
    /// steady clock.
    pub(super) held_up: Option<(String, Duration)>,
}

/// The stored form of a schedule.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct StoredSchedule {
    pub(super) cron: String,
    pub(super) time_zone: String,
    pub(super) job: Box<RawValue>,
    pub(super) overlap: OverlapChoice,
    pub(super) missed: MissedChoice,
    pub(super) paused: bool,
    pub(super) created: Timestamp,
    pub(super) changed: Timestamp,
    /// All times up to this one have their job or will never have one.
    pub(super) decided: Timestamp,
    pub(super) fired: u64,
    pub(super) passed: u64,
    #[serde(default)]
    pub(super) last_job: Option<String>,
    #[serde(default)]
    pub(super) last_fired: Option<Timestamp>,
    #[serde(default)]
    pub(super) last_passed: Option<PassedOver>,
}

/// Reason why a time creates no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SkipReason {
    /// The previous job is not over.
    Overlap,
    /// The server could not create the job in time.
    Missed,
    /// The job was refused permanently.
    Refused,
    /// The time was due, and the schedule's times were changed before it created its job.
    Changed,
    /// The time was due, and the schedule was paused before it created its job.
    Paused,
}

impl SkipReason {
    pub(super) const ALL: [SkipReason; 5] = [
        SkipReason::Overlap,
        SkipReason::Missed,
        SkipReason::Refused,
        SkipReason::Changed,
        SkipReason::Paused,
    ];

    pub(super) fn word(self) -> &'static str {
        match self {
            SkipReason::Overlap => "overlap",
            SkipReason::Missed => "missed",
            SkipReason::Refused => "refused",
            SkipReason::Changed => "changed",
            SkipReason::Paused => "paused",
        }
    }
}

/// Times that create no job.
#[derive(Clone, Debug)]
pub(super) struct SkippedTimes {
    pub(super) times: TimeSpan,
    pub(super) reason: SkipReason,
    pub(super) text: String,
}

impl SkippedTimes {
    pub(super) fn one(at: u64, reason: SkipReason, text: String) -> Self {
        SkippedTimes { times: TimeSpan { count: 1, last: at }, reason, text }
    }

    pub(super) fn missed(times: TimeSpan) -> Self {
        let text = "the server could not make its job within a minute".to_owned();
        SkippedTimes { times, reason: SkipReason::Missed, text }
    }
}

impl StoredSchedule {
    /// Records that these times create no job.
    pub(super) fn pass(&mut self, passing: &SkippedTimes) {
        let SkippedTimes { times: TimeSpan { count, last }, reason, text } = passing;
        let (at, reason) = (Timestamp(*last), reason.word().to_owned());
        self.decided = self.decided.max(at);
        self.passed += count;
        self.last_passed = Some(PassedOver { at, reason, text: text.clone() });
    }
}

/// A change on its way to the disk, with the entry to publish after the commit.
#[derive(Debug)]
pub(super) struct ScheduleUpdate {
    pub(super) name: String,
    pub(super) then: Option<ScheduleEntry>,
}

impl ScheduleEntry {
    pub(super) fn new(version: u64, kept: StoredSchedule) -> Self {
        let times = CronTimes::read(&kept.cron, &kept.time_zone).map_err(|(_, why)| why);
        let after = times.as_ref().ok().and_then(|times| times.after(kept.decided.0));
        let next = after.filter(|_| !kept.paused);
        ScheduleEntry {
            version,
            kept: Arc::new(kept),
            times,
            next,
            held_up: None,
            is_damaged: false,
        }
    }

    /// Creates an entry for a stored schedule that cannot be read.
    fn damaged(version: u64, why: String, now: Timestamp) -> Self {
        let kept = StoredSchedule {
            cron: String::new(),
            time_zone: "UTC".to_owned(),
            job: crate::engine::split_result::null(),
            overlap: OverlapChoice::default(),
            missed: MissedChoice::default(),
            paused: false,
            created: now,
            changed: now,
            decided: now,
            fired: 0,
            passed: 0,
            last_job: None,
            last_fired: None,
            last_passed: None,
        };
        ScheduleEntry { times: Err(why), is_damaged: true, ..ScheduleEntry::new(version, kept) }
    }

    fn of(row: ScheduleRow, now: Timestamp) -> Self {
        let ScheduleRow { record, is_whole } = row;
        let kept = match is_whole {
            true => serde_json::from_slice(&record.body).map_err(|error| error.to_string()),
            false => Err("its checksum does not match".to_owned()),
        };
        match kept {
            Ok(kept) => ScheduleEntry::new(record.version, kept),
            Err(why) => {
                let why = format!("the stored schedule is damaged: {why}; replace or delete it");
                ScheduleEntry::damaged(record.version, why, now)
            }
        }
    }

    pub(super) fn view(&self, name: &str) -> Schedule {
        let kept = &*self.kept;
        let times = self.times.as_ref().ok();
        let following = |at: &u64| times.and_then(|times| times.after(*at));
        let next = std::iter::successors(self.next, following).take(SHOWN).map(Timestamp);
        let held_up = self.held_up.as_ref().map(|(why, _)| why);
        Schedule {
            name: name.to_owned(),
            cron: kept.cron.clone(),
            time_zone: kept.time_zone.clone(),
            job: kept.job.clone(),
            overlap: kept.overlap,
            missed: kept.missed,
            paused: kept.paused,
            created_at: kept.created,
            changed_at: kept.changed,
            next: next.collect(),
            last_job: kept.last_job.clone(),
            last_fired: kept.last_fired,
            last_passed: kept.last_passed.clone(),
            held_up: held_up.or(self.times.as_ref().err()).cloned(),
            fired: kept.fired,
            passed: kept.passed,
            version: self.version,
        }
    }
}

impl ScheduleUpdate {
    /// Publishes the change, once it is on the disk.
    pub(super) fn done(self, schedules: &ScheduleTable) {
        let mut all = schedules.all();
        match self.then {
            Some(entry) => _ = all.insert(self.name, Arc::new(entry)),
            None => _ = all.remove(&self.name),
        }
        drop(all);
        schedules.changed.notify_one();
    }
}

impl ScheduleTable {
    pub(super) fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<ScheduleEntry>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn get(&self, name: &str) -> Option<Arc<ScheduleEntry>> {
        self.all().get(name).cloned()
    }

    /// Locks the schedules that share a lock with `name`.
    pub(super) async fn turn(&self, name: &str) -> tokio::sync::MutexGuard<'_, ()> {
        let hash = foldhash::quality::FixedState::default().hash_one(name);
        #[expect(clippy::cast_possible_truncation, reason = "it is below the number of turns")]
        let turn = (hash % LOCKS as u64) as usize;
        self.turns.0[turn].lock().await
    }

    /// Loads the schedules of a store that was opened. A damaged one does not stop the others.
    pub(in crate::engine) fn recover(&self, rows: Vec<ScheduleRow>, now: Timestamp) {
        let mut all = self.all();
        for row in rows {
            let name = row.record.name.clone();
            let entry = ScheduleEntry::of(row, now);
            if let Err(why) = &entry.times {
                tracing::error!(schedule = name, why, "the schedule makes no jobs");
            }
            all.insert(name, Arc::new(entry));
        }
    }

    /// Writes the metrics in the text format of Prometheus.
    pub(in crate::engine) fn write_metrics(&self, to: &mut String) -> fmt::Result {
        let (mut active, mut paused, mut held_up) = (0, 0, 0);
        for entry in self.all().values() {
            let count = match (entry.kept.paused, entry.times.is_err() || entry.held_up.is_some()) {
                (true, _) => &mut paused,
                (false, true) => &mut held_up,
                (false, false) => &mut active,
            };
            *count += 1;
        }
        writeln!(to, "# HELP keylane_schedules Schedules.")?;
        writeln!(to, "# TYPE keylane_schedules gauge")?;
        for (state, count) in [("active", active), ("paused", paused), ("held_up", held_up)] {
            writeln!(to, "keylane_schedules{{state=\"{state}\"}} {count}")?;
        }
        writeln!(to, "# HELP keylane_schedule_fired_total Scheduled times that created a job.")?;
        writeln!(to, "# TYPE keylane_schedule_fired_total counter")?;
        writeln!(to, "keylane_schedule_fired_total {}", self.fired.load(Relaxed))?;
        writeln!(
            to,
            "# HELP keylane_schedule_passed_total Scheduled times that created no job, by reason."
        )?;
        writeln!(to, "# TYPE keylane_schedule_passed_total counter")?;
        for reason in SkipReason::ALL {
            let (count, reason) = (self.passed[reason as usize].load(Relaxed), reason.word());
            writeln!(to, "keylane_schedule_passed_total{{reason=\"{reason}\"}} {count}")?;
        }
        Ok(())
    }
}
