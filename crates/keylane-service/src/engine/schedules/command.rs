//! Client commands on schedules, each looked up, applied, and answered only after its change is on
//! the disk.

use std::ops::Bound;
use std::sync::Arc;

use super::Schedules;
use super::fire::job_of;
use super::firing_times::CronTimes;
use super::table::{ScheduleEntry, SkipReason, SkippedTimes, StoredSchedule};
use crate::engine::audit::AuditedRequest;
use crate::engine::executor::Executor;
use crate::engine::submit_reply::SubmitResult;
use crate::engine::webhooks;
use crate::job_definition;
use crate::request_error::RequestError;
use crate::wire::{Event, EventKind, Page, Schedule, SetSchedule, Timestamp};

/// Maximum length of a name, in bytes: it is also a label of its jobs.
const MAX_NAME_BYTES: usize = 128;

/// Maximum number of schedules: all of them are in memory.
const MAX_SCHEDULES: usize = 10_000;

/// Maximum size of the jobs on a page, in bytes, unless a single one is larger.
const MAX_PAGE_BYTES: usize = 4 * 1024 * 1024;

impl Schedules {
    /// Returns a schedule.
    pub(crate) fn get(&self, name: &str) -> Result<Schedule, RequestError> {
        Ok(self.known(name)?.view(name))
    }

    fn known(&self, name: &str) -> Result<Arc<ScheduleEntry>, RequestError> {
        let unknown = || RequestError::Unknown { what: format!("schedule {name}") };
        self.table.get(name).ok_or_else(unknown)
    }

    /// Returns the entry of a schedule that is not damaged.
    fn usable(&self, name: &str) -> Result<Arc<ScheduleEntry>, RequestError> {
        let entry = self.known(name)?;
        match &entry.times {
            Err(why) if entry.is_damaged => Err(RequestError::Conflict(format!("{name}: {why}"))),
            _ => Ok(entry),
        }
    }

    /// Returns schedules by name, starting after the name `after` if it is given: at most `limit`,
    /// and fewer if they are large.
    pub(crate) fn page(&self, after: Option<&str>, limit: usize) -> Page<Schedule> {
        let (entries, has_more) = self.entries(after, limit);
        let items: Vec<_> = entries.iter().map(|(name, entry)| entry.view(name)).collect();
        let last = items.last().map(|last| last.name.clone());
        Page::new(items, last.filter(|_| has_more))
    }

    /// Returns the entries of a page, and true if there are more. Nothing is copied or computed
    /// under the lock, because the writer may wait for it.
    fn entries(
        &self,
        after: Option<&str>,
        limit: usize,
    ) -> (Vec<(String, Arc<ScheduleEntry>)>, bool) {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let all = self.table.all();
        let (mut found, mut bytes) = (Vec::new(), 0);
        for (name, entry) in all.range::<str, _>((from, Bound::Unbounded)) {
            bytes += entry.kept.job.get().len();
            if found.len() == limit || (bytes > MAX_PAGE_BYTES && !found.is_empty()) {
                return (found, true);
            }
            found.push((name.clone(), Arc::clone(entry)));
        }
        (found, false)
    }

    /// Creates a schedule or replaces the one with this name. Returns true if it is new.
    pub(crate) async fn set(
        self: &Arc<Self>,
        name: String,
        asked: SetSchedule,
        act: Arc<AuditedRequest>,
    ) -> Result<(Schedule, bool), RequestError> {
        let this = Arc::clone(self);
        to_its_end(&self.executor, async move {
            this.check_schedule(&name, &asked)?;
            let _turn = this.table.turn(&name).await;
            // Times that were due before the change follow the old settings.
            this.decide_due(&name).await;
            let before = this.table.get(&name);
            let is_new = before.is_none();
            if is_new && this.table.all().len() >= MAX_SCHEDULES {
                let why = format!(
                    "there are already {MAX_SCHEDULES} schedules, the maximum; delete one first"
                );
                return Err(RequestError::Conflict(why));
            }
            let now = this.wall.now();
            let kept = StoredSchedule::set(asked, before.as_deref(), now);
            if before.as_ref().is_none_or(|before| kept.differs(&before.kept)) {
                this.change_by_hand(&name, before.as_deref(), kept, now, &act).await?;
            }
            Ok((this.get(&name)?, is_new))
        })
        .await
    }

    /// Applies a client's change, and reports the due times that create no job because of it.
    async fn change_by_hand(
        self: &Arc<Self>,
        name: &str,
        before: Option<&ScheduleEntry>,
        mut kept: StoredSchedule,
        now: Timestamp,
        act: &AuditedRequest,
    ) -> Result<(), RequestError> {
        let left = before.and_then(|before| before.left_by(&kept, now));
        left.iter().for_each(|left| kept.pass(left));
        let was = before.map(|before| before.version);
        self.change_schedule(name, was, Some(kept), Some(act)).await?;
        left.iter().for_each(|left| self.publish_skipped(name, left));
        self.publish_changed(name);
        Ok(())
    }

    fn check_schedule(&self, name: &str, asked: &SetSchedule) -> Result<(), RequestError> {
        let mut wrong = Vec::new();
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
        if name.is_empty() || name.len() > MAX_NAME_BYTES || !name.bytes().all(is_plain) {
            let why = format!(
                "the name must have 1 to {MAX_NAME_BYTES} characters out of letters, digits, `.`, `_`, `-`"
            );
            wrong.push(("name".to_owned(), why));
        }
        let now = self.wall.now();
        match CronTimes::read(&asked.cron, asked.zone()) {
            Err((at, why)) => wrong.push((at.to_owned(), why)),
            Ok(times) if times.after(now.0).is_none() => {
                wrong.push(("/cron".to_owned(), "the pattern has no future time".to_owned()));
            }
            Ok(_) => {}
        }
        let checked = self.check_job(name, asked, now);
        if let Err(RequestError::Invalid(places)) = checked {
            wrong.extend(places.into_iter().map(|(at, why)| (format!("/job{at}"), why)));
        } else if wrong.is_empty() {
            return checked;
        }
        if wrong.is_empty() { Ok(()) } else { Err(RequestError::Invalid(wrong)) }
    }

    fn check_job(
        &self,
        name: &str,
        asked: &SetSchedule,
        now: Timestamp,
    ) -> Result<(), RequestError> {
        let job = job_of(name, asked.job.get(), Some(now))?;
        if job.run_at.is_some() {
            let why = "the schedule says when: a job may have `delay_ms`";
            return Err(RequestError::Invalid(vec![("/run_at".to_owned(), why.to_owned())]));
        }
        if job.expires_at.is_some() {
            let why =
                "it is the same moment for each job of the schedule: a job may have `expires_ms`";
            return Err(RequestError::Invalid(vec![("/expires_at".to_owned(), why.to_owned())]));
        }
        if job.unique_ms.is_some() {
            let why = "each run of a schedule is a new job: leave it out, and see `overlap`";
            return Err(RequestError::Invalid(vec![("/unique_ms".to_owned(), why.to_owned())]));
        }
        if job.after.is_some() {
            let why =
                "it is the same job for each run of the schedule: leave it out, and see `overlap`";
            return Err(RequestError::Invalid(vec![("/after".to_owned(), why.to_owned())]));
        }
        if job.webhook.is_some() && !self.state.lock().deliveries.is_enabled {
            return Err(webhooks::not_configured());
        }
        job_definition::check(job, false, &self.kinds, &self.tenants, &self.bounds, now).map(drop)
    }

    /// Pauses or resumes a schedule. Times that pass while it is paused create no job.
    pub(crate) async fn pause(
        self: &Arc<Self>,
        name: String,
        paused: bool,
        act: Arc<AuditedRequest>,
    ) -> Result<Schedule, RequestError> {
        let this = Arc::clone(self);
        to_its_end(&self.executor, async move {
            let _turn = this.table.turn(&name).await;
            this.decide_due(&name).await;
            let entry = this.usable(&name)?;
            if entry.kept.paused != paused {
                let now = this.wall.now();
                let mut kept = (*entry.kept).clone();
                kept.pause(paused, now);
                kept.changed = now;
                this.change_by_hand(&name, Some(&entry), kept, now, &act).await?;
            }
            this.get(&name)
        })
        .await
    }

    /// Deletes a schedule. Its jobs stay.
    pub(crate) async fn remove(
        self: &Arc<Self>,
        name: String,
        act: Arc<AuditedRequest>,
    ) -> Result<(), RequestError> {
        let this = Arc::clone(self);
        to_its_end(&self.executor, async move {
            let _turn = this.table.turn(&name).await;
            let entry = this.known(&name)?;
            this.change_schedule(&name, Some(entry.version), None, Some(&act)).await?;
            this.publish_changed(&name);
            Ok(())
        })
        .await
    }

    /// Creates a job of a schedule now, regardless of its times and of a pause.
    pub(crate) async fn run_now(
        self: &Arc<Self>,
        name: String,
        scope: Option<(String, String)>,
        act: Arc<AuditedRequest>,
    ) -> Result<SubmitResult, RequestError> {
        let this = Arc::clone(self);
        to_its_end(&self.executor, async move {
            let _turn = this.table.turn(&name).await;
            let entry = this.usable(&name)?;
            this.make_scheduled(&name, &entry, None, scope, Some(&act)).await
        })
        .await
    }

    fn publish_changed(&self, name: &str) {
        self.events.publish(|id| Event {
            schedule: Some(name.to_owned()),
            ..crate::engine::event(id, EventKind::ScheduleChanged, self.clock.now())
        });
    }
}

impl SetSchedule {
    fn zone(&self) -> &str {
        self.time_zone.as_deref().unwrap_or("UTC")
    }
}

impl ScheduleEntry {
    /// Returns the due times for which this change prevents a job: they are held up, or became due
    /// just now.
    fn left_by(&self, then: &StoredSchedule, now: Timestamp) -> Option<SkippedTimes> {
        let (Ok(times), false) = (&self.times, self.kept.paused) else { return None };
        let (reason, what) = match then.has_times_of(&self.kept) {
            false => (SkipReason::Changed, "other times were set"),
            true if then.paused => (SkipReason::Paused, "the schedule was paused"),
            true => return None,
        };
        let times = times.due(self.kept.decided.0, now.0)?;
        let held_up = self.held_up.as_ref().map(|(why, _)| format!("; it was held up: {why}"));
        let text = format!("{what} before it had its job{}", held_up.unwrap_or_default());
        Some(SkippedTimes { times, reason, text })
    }
}

impl StoredSchedule {
    fn has_times_of(&self, other: &StoredSchedule) -> bool {
        self.cron == other.cron && self.time_zone == other.time_zone
    }

    /// Returns the requested settings, which replace the previous ones.
    fn set(asked: SetSchedule, before: Option<&ScheduleEntry>, now: Timestamp) -> Self {
        let time_zone = asked.zone().to_owned();
        let SetSchedule { cron, job, overlap, missed, paused, .. } = asked;
        let Some(before) = before.map(|before| &*before.kept) else {
            let (created, changed, decided) = (now, now, now);
            let (paused, fired, passed) = (paused.unwrap_or(false), 0, 0);
            let (last_job, last_fired, last_passed) = (None, None, None);
            return StoredSchedule {
                cron,
                time_zone,
                job,
                overlap,
                missed,
                paused,
                created,
                changed,
                decided,
                fired,
                passed,
                last_job,
                last_fired,
                last_passed,
            };
        };
        let same_times = cron == before.cron && time_zone == before.time_zone;
        // New times begin now; unchanged times continue where they are. Neither repeats a time if
        // the clock was set back.
        let decided = if same_times { before.decided } else { before.decided.max(now) };
        let changed = now;
        let mut kept = StoredSchedule {
            cron,
            time_zone,
            job,
            overlap,
            missed,
            changed,
            decided,
            ..before.clone()
        };
        kept.pause(paused.unwrap_or(before.paused), now);
        kept
    }

    fn pause(&mut self, paused: bool, now: Timestamp) {
        if self.paused && !paused {
            // No job was wanted for times that passed during the pause.
            self.decided = self.decided.max(now);
        }
        self.paused = paused;
    }

    /// Returns true if the settings differ.
    fn differs(&self, before: &StoredSchedule) -> bool {
        let plain = |kept: &StoredSchedule| (kept.overlap, kept.missed, kept.paused);
        let texts = |kept: &StoredSchedule| {
            [kept.cron.clone(), kept.time_zone.clone(), kept.job.get().to_owned()]
        };
        plain(self) != plain(before) || texts(self) != texts(before)
    }
}

/// Runs a request to its end even if the client disconnects: a schedule's lock may be released only
/// when its change is on the disk.
async fn to_its_end<T: Send + 'static>(
    executor: &Executor,
    work: impl Future<Output = Result<T, RequestError>> + Send + 'static,
) -> Result<T, RequestError> {
    let done = executor.spawn(work).await;
    done.unwrap_or_else(|panic| Err(RequestError::StoreFailed(panic.to_string())))
}
