//! Schedules: create jobs repeatedly, at the times of a cron pattern.
//!
//! **Each time creates at most one job, across restarts and crashes, and is skipped only for a
//! reason that the schedule reports.** The stored schedule has the time up to which everything was
//! *decided*. The decision about a time is written in the transaction that accepts its job, and
//! only if the stored schedule has not changed in the meantime ([`Changes::schedule`]). So there is
//! no job without its decision and no such decision without its job; after a crash, every undecided
//! time is due.
//!
//! A change of a schedule holds the lock of its name from the read until the change is on the disk.
//! The schedule in memory changes on the writer's thread, in commit order. A request whose client
//! has disconnected runs to its end, so the lock is not released early.
//!
//! `when.rs` computes the times and the next decision, `fire.rs` carries it out, and `command.rs`
//! has the client commands.

mod command;
mod fire;
mod when;

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::hash::BuildHasher;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::audit::Act;
use super::{Core, Refused};
use crate::store::{Changes, ScheduleRow};
use crate::wire::{MissedChoice, OverlapChoice, PassedOver, Schedule, Timestamp};
use when::{Span, Times};

/// Number of locks that the names of schedules share. Several schedules can be written in one
/// transaction.
const LOCKS: usize = 64;

/// Number of upcoming times that a schedule shows.
const SHOWN: usize = 5;

/// All schedules.
#[derive(Debug, Default)]
pub(crate) struct Schedules {
    /// Schedules by name, as they are on the disk. No code panics or waits while it holds this
    /// lock.
    all: Mutex<BTreeMap<String, Arc<ScheduleEntry>>>,
    /// Notified when a time may be due earlier than known.
    changed: Notify,
    /// Locks by name: only their holder changes the schedules with that name.
    turns: ScheduleLocks,
    fired: AtomicU64,
    /// Number of times that created no job, by [`SkipReason`].
    passed: [AtomicU64; SkipReason::ALL.len()],
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
struct ScheduleEntry {
    version: u64,
    kept: Arc<StoredSchedule>,
    /// The stored schedule cannot be read: it can only be replaced or deleted.
    is_damaged: bool,
    /// Times of the schedule, or the reason why they are unknown.
    times: Result<Times, String>,
    /// First undecided time. `None` if there is none or the schedule is paused.
    next: Option<u64>,
    /// Reason why a due time has not created its job, and the time of the next attempt, on a steady
    /// clock.
    held_up: Option<(String, Instant)>,
}

/// The stored form of a schedule.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct StoredSchedule {
    cron: String,
    time_zone: String,
    job: Box<RawValue>,
    overlap: OverlapChoice,
    missed: MissedChoice,
    paused: bool,
    created: Timestamp,
    changed: Timestamp,
    /// All times up to this one have their job or will never have one.
    decided: Timestamp,
    fired: u64,
    passed: u64,
    #[serde(default)]
    last_job: Option<String>,
    #[serde(default)]
    last_fired: Option<Timestamp>,
    #[serde(default)]
    last_passed: Option<PassedOver>,
}

/// Reason why a time creates no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SkipReason {
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
    const ALL: [SkipReason; 5] = [
        SkipReason::Overlap,
        SkipReason::Missed,
        SkipReason::Refused,
        SkipReason::Changed,
        SkipReason::Paused,
    ];

    fn word(self) -> &'static str {
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
struct SkippedTimes {
    times: Span,
    reason: SkipReason,
    text: String,
}

impl SkippedTimes {
    fn one(at: u64, reason: SkipReason, text: String) -> Self {
        SkippedTimes { times: Span { count: 1, last: at }, reason, text }
    }

    fn missed(times: Span) -> Self {
        let text = "the server could not make its job within a minute".to_owned();
        SkippedTimes { times, reason: SkipReason::Missed, text }
    }
}

impl StoredSchedule {
    /// Records that these times create no job.
    fn pass(&mut self, passing: &SkippedTimes) {
        let SkippedTimes { times: Span { count, last }, reason, text } = passing;
        let (at, reason) = (Timestamp(*last), reason.word().to_owned());
        self.decided = self.decided.max(at);
        self.passed += count;
        self.last_passed = Some(PassedOver { at, reason, text: text.clone() });
    }
}

/// A change on its way to the disk, with the entry to publish after the commit.
#[derive(Debug)]
struct ScheduleUpdate {
    name: String,
    then: Option<ScheduleEntry>,
}

impl ScheduleEntry {
    fn new(version: u64, kept: StoredSchedule) -> Self {
        let times = Times::read(&kept.cron, &kept.time_zone).map_err(|(_, why)| why);
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
            job: crate::engine::made::null(),
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

    fn view(&self, name: &str) -> Schedule {
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
    fn done(self, core: &Core) {
        let mut all = core.schedules.all();
        match self.then {
            Some(entry) => _ = all.insert(self.name, Arc::new(entry)),
            None => _ = all.remove(&self.name),
        }
        drop(all);
        core.schedules.changed.notify_one();
    }
}

impl Schedules {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<ScheduleEntry>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, name: &str) -> Option<Arc<ScheduleEntry>> {
        self.all().get(name).cloned()
    }

    /// Locks the schedules that share a lock with `name`.
    async fn turn(&self, name: &str) -> tokio::sync::MutexGuard<'_, ()> {
        let hash = foldhash::quality::FixedState::default().hash_one(name);
        #[expect(clippy::cast_possible_truncation, reason = "it is below the number of turns")]
        let turn = (hash % LOCKS as u64) as usize;
        self.turns.0[turn].lock().await
    }

    /// Loads the schedules of a store that was opened. A damaged one does not stop the others.
    pub(super) fn recover(&self, rows: Vec<ScheduleRow>, now: Timestamp) {
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
    pub(super) fn write_metrics(&self, to: &mut String) -> fmt::Result {
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

impl Core {
    /// Returns the changes that store `kept`, or delete the schedule if it is `None`, provided that
    /// the stored version is `was`; and the entry to publish after the commit.
    fn changing(
        &self,
        name: &str,
        was: Option<u64>,
        kept: Option<StoredSchedule>,
    ) -> (Changes, ScheduleUpdate) {
        let version =
            super::engine_state::first_version(self.calendar.now()).max(was.unwrap_or(0) + 1);
        let mut changes = Changes::new();
        let body = |kept| serde_json::to_vec(kept).expect("a schedule can be written as JSON");
        changes.schedule(name, was, kept.as_ref().map(|kept| (version, body(kept))));
        let then = kept.map(|kept| ScheduleEntry::new(version, kept));
        (changes, ScheduleUpdate { name: name.to_owned(), then })
    }

    /// Changes a schedule, with the audit entry of `act` if a client requested it. Returns when the
    /// change is on the disk. The caller holds the schedule's lock.
    async fn change_schedule(
        self: &Arc<Self>,
        name: &str,
        was: Option<u64>,
        kept: Option<StoredSchedule>,
        act: Option<&Act>,
    ) -> Result<(), Refused> {
        let (mut changes, changing) = self.changing(name, was, kept);
        if let Some(act) = act {
            self.log(act, &mut changes);
        }
        let (reply, replied) = oneshot::channel();
        let core = Arc::clone(self);
        self.store.submit_with(changes, move |written| {
            let answer = written.map(|_| changing.done(&core));
            // The receiver waits for this unless the runtime ends.
            let _ = reply.send(answer.map_err(|error| core.write_refused(error)));
        });
        replied.await.map_err(|_| Refused::StoreFailed("the writer has ended".into()))??;
        if let Some(act) = act {
            self.was_done(act);
        }
        Ok(())
    }
}
