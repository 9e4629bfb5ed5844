//! Schedules: jobs that are made again and again, at times that a pattern names.
//!
//! **Each time makes at most one job, over restarts and crashes, and is passed over only for a reason that the
//! schedule names.** What is kept of a schedule says up to which time everything was *decided*. The word that a time
//! was decided goes to the disk in the transaction that accepts its job, and only if the schedule is there as it was
//! looked at ([`Changes::schedule`]). So there is no job without that word and no such word without the job; and after a
//! crash, what was not decided is due.
//!
//! Who changes a schedule has its *turn*, from looking at it until the change is on the disk. What is in memory
//! changes on the writer's thread, in the order of the commits. A request whose client is gone goes on to its end,
//! so that nobody has the turn before that.
//!
//! `when.rs` says which times there are and what is decided next, `fire.rs` does it, `command.rs` is what people ask.

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

/// How many names have a turn of their own, so that many schedules are written in one transaction.
const TURNS: usize = 64;

/// How many times of a schedule are shown.
const SHOWN: usize = 5;

/// All schedules.
#[derive(Debug, Default)]
pub(crate) struct Schedules {
    /// By name, as they are on the disk. Nothing unwinds while it is locked, and nobody waits.
    all: Mutex<BTreeMap<String, Arc<Entry>>>,
    /// Told when something may be due earlier than was known.
    changed: Notify,
    /// Who has one of them is the only one who changes the schedules whose names fall to it.
    turns: Turns,
    fired: AtomicU64,
    /// Times that have made no job, by their [`Reason`].
    passed: [AtomicU64; Reason::ALL.len()],
}

#[derive(Debug)]
struct Turns([tokio::sync::Mutex<()>; TURNS]);

impl Default for Turns {
    fn default() -> Self {
        Turns(std::array::from_fn(|_| tokio::sync::Mutex::default()))
    }
}

/// A schedule in memory.
#[derive(Clone, Debug)]
struct Entry {
    version: u64,
    kept: Arc<Kept>,
    /// What is kept of it cannot be read: it can be replaced or removed, and nothing else.
    is_damaged: bool,
    /// Its times; or why they are not known any more.
    times: Result<Times, String>,
    /// The first time that is not decided. None if there is none, or it is paused.
    next: Option<u64>,
    /// Why that has made no job although it is due, and when it is tried again: by a steady clock.
    held_up: Option<(String, Instant)>,
}

/// What is kept of a schedule.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Kept {
    cron: String,
    time_zone: String,
    job: Box<RawValue>,
    overlap: OverlapChoice,
    missed: MissedChoice,
    paused: bool,
    created: Timestamp,
    changed: Timestamp,
    /// All its times up to this one have their job, or will never have one.
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

/// Why a time makes no job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reason {
    /// The job before is not over.
    Overlap,
    /// The server could not make its job in time.
    Missed,
    /// Its job was refused for good.
    Refused,
    /// It was due, and somebody set other times before it had its job.
    Changed,
    /// It was due, and somebody paused the schedule before it had its job.
    Paused,
}

impl Reason {
    const ALL: [Reason; 5] =
        [Reason::Overlap, Reason::Missed, Reason::Refused, Reason::Changed, Reason::Paused];

    fn word(self) -> &'static str {
        match self {
            Reason::Overlap => "overlap",
            Reason::Missed => "missed",
            Reason::Refused => "refused",
            Reason::Changed => "changed",
            Reason::Paused => "paused",
        }
    }
}

/// Times that make no job.
#[derive(Clone, Debug)]
struct Passing {
    times: Span,
    reason: Reason,
    text: String,
}

impl Passing {
    fn one(at: u64, reason: Reason, text: String) -> Self {
        Passing { times: Span { count: 1, last: at }, reason, text }
    }

    fn missed(times: Span) -> Self {
        let text = "the server could not make its job within a minute".to_owned();
        Passing { times, reason: Reason::Missed, text }
    }
}

impl Kept {
    /// These make no job.
    fn pass(&mut self, passing: &Passing) {
        let Passing { times: Span { count, last }, reason, text } = passing;
        let (at, reason) = (Timestamp(*last), reason.word().to_owned());
        self.decided = self.decided.max(at);
        self.passed += count;
        self.last_passed = Some(PassedOver { at, reason, text: text.clone() });
    }
}

/// A change that is on its way to the disk, as it is to be known when it is there.
#[derive(Debug)]
struct Changing {
    name: String,
    then: Option<Entry>,
}

impl Entry {
    fn new(version: u64, kept: Kept) -> Self {
        let times = Times::read(&kept.cron, &kept.time_zone).map_err(|(_, why)| why);
        let after = times.as_ref().ok().and_then(|times| times.after(kept.decided.0));
        let next = after.filter(|_| !kept.paused);
        Entry { version, kept: Arc::new(kept), times, next, held_up: None, is_damaged: false }
    }

    /// One whose row is there and says nothing that can be used.
    fn damaged(version: u64, why: String, now: Timestamp) -> Self {
        let kept = Kept {
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
        Entry { times: Err(why), is_damaged: true, ..Entry::new(version, kept) }
    }

    fn of(row: ScheduleRow, now: Timestamp) -> Self {
        let ScheduleRow { record, is_whole } = row;
        let kept = match is_whole {
            true => serde_json::from_slice(&record.body).map_err(|error| error.to_string()),
            false => Err("it is not what was written".to_owned()),
        };
        match kept {
            Ok(kept) => Entry::new(record.version, kept),
            Err(why) => {
                let why = format!("what is kept of it is damaged: {why}; set or delete it");
                Entry::damaged(record.version, why, now)
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

impl Changing {
    /// It is on the disk.
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
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Arc<Entry>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn get(&self, name: &str) -> Option<Arc<Entry>> {
        self.all().get(name).cloned()
    }

    /// Waits for the turn to change the schedule of this name.
    async fn turn(&self, name: &str) -> tokio::sync::MutexGuard<'_, ()> {
        let hash = foldhash::quality::FixedState::default().hash_one(name);
        #[expect(clippy::cast_possible_truncation, reason = "it is below the number of turns")]
        let turn = (hash % TURNS as u64) as usize;
        self.turns.0[turn].lock().await
    }

    /// What there is, from a store that was opened. One that is damaged keeps nothing else from going on.
    pub(super) fn recover(&self, rows: Vec<ScheduleRow>, now: Timestamp) {
        let mut all = self.all();
        for row in rows {
            let name = row.record.name.clone();
            let entry = Entry::of(row, now);
            if let Err(why) = &entry.times {
                tracing::error!(schedule = name, why, "the schedule makes no jobs");
            }
            all.insert(name, Arc::new(entry));
        }
    }

    /// In the text format of Prometheus.
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
        writeln!(to, "# HELP keylane_schedule_fired_total Times that have made a job.")?;
        writeln!(to, "# TYPE keylane_schedule_fired_total counter")?;
        writeln!(to, "keylane_schedule_fired_total {}", self.fired.load(Relaxed))?;
        writeln!(to, "# HELP keylane_schedule_passed_total Times that have made no job.")?;
        writeln!(to, "# TYPE keylane_schedule_passed_total counter")?;
        for reason in Reason::ALL {
            let (count, reason) = (self.passed[reason as usize].load(Relaxed), reason.word());
            writeln!(to, "keylane_schedule_passed_total{{reason=\"{reason}\"}} {count}")?;
        }
        Ok(())
    }
}

impl Core {
    /// What is to be written so that a schedule, which is as `was` says, is kept like this or goes; and what is
    /// to be known then.
    fn changing(&self, name: &str, was: Option<u64>, kept: Option<Kept>) -> (Changes, Changing) {
        let version = super::books::first_version(self.calendar.now()).max(was.unwrap_or(0) + 1);
        let mut changes = Changes::new();
        let body = |kept| serde_json::to_vec(kept).expect("what is kept can be written as JSON");
        changes.schedule(name, was, kept.as_ref().map(|kept| (version, body(kept))));
        let then = kept.map(|kept| Entry::new(version, kept));
        (changes, Changing { name: name.to_owned(), then })
    }

    /// Changes a schedule, because of `act` if somebody has asked, and returns when that is on the disk. The caller has
    /// its turn.
    async fn change_schedule(
        self: &Arc<Self>,
        name: &str,
        was: Option<u64>,
        kept: Option<Kept>,
        act: Option<&Act>,
    ) -> Result<(), Refused> {
        let (mut changes, changing) = self.changing(name, was, kept);
        if let Some(act) = act {
            self.log(act, &mut changes);
        }
        let (tell, told) = oneshot::channel();
        let core = Arc::clone(self);
        self.store.submit_with(changes, move |written| {
            let answer = written.map(|_| changing.done(&core));
            // Whoever has asked waits for it, unless the runtime ends.
            let _ = tell.send(answer.map_err(|error| core.write_refused(error)));
        });
        told.await.map_err(|_| Refused::StoreFailed("the writer has ended".into()))??;
        if let Some(act) = act {
            self.was_done(act);
        }
        Ok(())
    }
}
