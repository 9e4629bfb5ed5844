//! Decides due times: each one creates its job or is skipped. One task does it for all schedules.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::StreamExt;

use super::super::audit::AuditedRequest;
use super::super::submission::ExtraWrites;
use super::super::submit_reply::SubmitResult;
use super::Schedules;
use super::firing_times::{NextFiring, TimeSpan};
use super::table::{ScheduleEntry, SkipReason, SkippedTimes, StoredSchedule};
use crate::JobId;
use crate::request_error::RequestError;
use crate::wire::{Event, EventKind, Object, OverlapChoice, SubmitJob, Timestamp};

/// Maximum number of schedules handled concurrently, so that their jobs share disk syncs.
const AT_ONCE: usize = 64;

/// Interval between attempts for a due time that is held up.
const AGAIN: Duration = Duration::from_secs(1);

/// Labels of a scheduled job: the schedule's name and the scheduled time.
const LABEL: &str = "schedule";
const LABEL_AT: &str = "scheduled_for";

impl Schedules {
    /// Decides due times until the service stops.
    pub(in crate::engine) async fn run(self: Arc<Self>) {
        loop {
            let WakeupTimes { calendar, again } = self.wakes();
            tokio::select! {
                biased;
                () = self.stopped.cancelled() => return,
                () = self.table.changed.notified() => {}
                () = self.wall.reached(calendar) => {}
                () = self.reached_steady(again) => {}
            }
            let due = self.due();
            let decided = futures_util::stream::iter(due)
                .for_each_concurrent(AT_ONCE, |name| self.decide(name));
            tokio::select! {
                biased;
                () = self.stopped.cancelled() => return,
                () = decided => {}
            }
        }
    }

    /// Waits until the steady clock shows `moment`, or forever if there is none.
    async fn reached_steady(&self, moment: Option<Duration>) {
        match moment {
            Some(moment) => self.clock.reached_steady(moment).await,
            None => std::future::pending().await,
        }
    }

    /// Returns the next wake-up times.
    fn wakes(&self) -> WakeupTimes {
        let mut wakes = WakeupTimes::default();
        for entry in self.table.all().values() {
            match &entry.held_up {
                None => wakes.calendar = earlier(wakes.calendar, entry.next),
                Some((_, again)) => wakes.again = earlier(wakes.again, Some(*again)),
            }
        }
        wakes
    }

    /// Returns the schedules with a due time, except those that are held up until a later attempt.
    fn due(&self) -> Vec<String> {
        let (now, steady) = (self.wall.now().0, self.clock.steady());
        let mut due = Vec::new();
        for (name, entry) in self.table.all().iter_mut() {
            if entry.held_up.as_ref().is_some_and(|(_, again)| *again > steady) {
                continue;
            }
            if entry.next.is_some_and(|next| next <= now) {
                due.push(name.clone());
            } else if entry.held_up.is_some() {
                // The clock was set back, and the time is no longer due.
                Arc::make_mut(entry).held_up = None;
            }
        }
        due
    }

    /// Decides all due times of a schedule.
    async fn decide(self: &Arc<Self>, name: String) {
        let _turn = self.table.turn(&name).await;
        self.decide_due(&name).await;
    }

    /// Decides the due times of a schedule, as far as possible now. The caller holds its lock.
    pub(super) async fn decide_due(self: &Arc<Self>, name: &str) {
        while let Some(entry) = self.table.get(name) {
            match self.decide_next(name, &entry).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(refused) => return self.hold_up(name, entry.version, &refused),
            }
        }
    }

    /// Decides the next due time, or the missed ones. Returns true if there was one.
    async fn decide_next(
        self: &Arc<Self>,
        name: &str,
        entry: &ScheduleEntry,
    ) -> Result<bool, RequestError> {
        let kept = &*entry.kept;
        let (Ok(times), false) = (&entry.times, kept.paused) else { return Ok(false) };
        match times.next(kept.decided.0, self.wall.now().0, kept.missed) {
            NextFiring::Wait(_) => return Ok(false),
            NextFiring::PassOver(missed) => {
                self.pass_over(name, entry, SkippedTimes::missed(missed)).await?
            }
            NextFiring::Fire { at, missed } => match (self.overlapped(kept), missed) {
                (None, _) => self.fire(name, entry, at, missed).await?,
                (Some(_), Some(missed)) => {
                    // The missed times are skipped for their own reason first. Then this time is
                    // checked again.
                    self.pass_over(name, entry, SkippedTimes::missed(missed)).await?;
                }
                (Some(before), None) => {
                    let text = format!("{before}, the job before, is not over");
                    self.pass_over(name, entry, SkippedTimes::one(at, SkipReason::Overlap, text))
                        .await?;
                }
            },
        }
        Ok(true)
    }

    /// Returns the unfinished job of a schedule that allows only one at a time.
    fn overlapped<'a>(&self, kept: &'a StoredSchedule) -> Option<&'a str> {
        let last = kept.last_job.as_deref().filter(|_| kept.overlap == OverlapChoice::Skip)?;
        let id = JobId::parse(last)?;
        let is_live = self.state.lock().live.get(&id.number()).is_some_and(|live| live.id == id);
        is_live.then_some(last)
    }

    async fn fire(
        self: &Arc<Self>,
        name: &str,
        entry: &ScheduleEntry,
        at: u64,
        missed: Option<TimeSpan>,
    ) -> Result<(), RequestError> {
        let missed = missed.map(SkippedTimes::missed);
        match self.make_scheduled(name, entry, Some((at, missed.clone())), None, None).await {
            Ok(_) => {
                self.table.fired.fetch_add(1, Relaxed);
                Ok(())
            }
            // A later attempt would be refused too.
            Err(refused @ (RequestError::Invalid(_) | RequestError::TooLarge(_))) => {
                let text = format!("its job was refused: {refused}");
                let refused = SkippedTimes::one(at, SkipReason::Refused, text);
                // The missed times are skipped for their own reason first, and then this time is
                // tried again.
                self.pass_over(name, entry, missed.unwrap_or(refused)).await
            }
            Err(refused) => Err(refused),
        }
    }

    /// Creates a job of a schedule, for a time (and the missed ones before it) or by hand, with the
    /// stored decision that it was created. The caller holds the schedule's lock.
    pub(super) async fn make_scheduled(
        self: &Arc<Self>,
        name: &str,
        entry: &ScheduleEntry,
        time: Option<(u64, Option<SkippedTimes>)>,
        scope: Option<(String, String)>,
        act: Option<&AuditedRequest>,
    ) -> Result<SubmitResult, RequestError> {
        let (at, missed) = time.map_or((None, None), |(at, missed)| (Some(Timestamp(at)), missed));
        let job = job_of(name, entry.kept.job.get(), at)?;
        let mut intake = self.submission.begin_intake(job, false)?;
        // Request text of a run by hand, compared under its idempotency key.
        intake.hash(format!("run {name}").as_bytes());
        intake.flush().await?;
        let mut kept = (*entry.kept).clone();
        kept.last_job = Some(intake.id().to_string());
        if let Some(at) = at {
            missed.iter().for_each(|missed| kept.pass(missed));
            (kept.decided, kept.last_fired) = (at, Some(at));
            kept.fired += 1;
        }
        let (mut changes, changing) = self.changing(name, Some(entry.version), Some(kept));
        if let Some(act) = act {
            act.on_job(intake.id());
            self.audit.add(act, &mut changes);
        }
        let table = Arc::clone(&self.table);
        let also = ExtraWrites::new(changes, move || changing.done(&table));
        let submitted = match intake.submit(scope, also).await {
            Ok(ticket) => ticket.outcome().await,
            Err(refused) => Err(refused),
        };
        if let Some(act) = act {
            self.made(act, &submitted);
        }
        let submitted = submitted?;
        missed.iter().for_each(|missed| self.publish_skipped(name, missed));
        if !submitted.replayed {
            let job = submitted.job.clone();
            self.events.publish(|id| Event {
                schedule: Some(name.to_owned()),
                job: Some(Box::new(job)),
                ..crate::engine::event(id, EventKind::ScheduleFired, self.clock.now())
            });
        }
        Ok(submitted)
    }

    /// Records the result of a run by hand. A repeated request is not another action.
    fn made(&self, act: &AuditedRequest, submitted: &Result<SubmitResult, RequestError>) {
        match submitted {
            Ok(submitted) if submitted.replayed => act.settle(),
            Ok(_) => self.audit.committed(act),
            Err(_) => act.on_no_job(),
        }
    }

    /// Decides that these times create no job.
    async fn pass_over(
        self: &Arc<Self>,
        name: &str,
        entry: &ScheduleEntry,
        passing: SkippedTimes,
    ) -> Result<(), RequestError> {
        let mut kept = (*entry.kept).clone();
        kept.pass(&passing);
        self.change_schedule(name, Some(entry.version), Some(kept), None).await?;
        self.publish_skipped(name, &passing);
        Ok(())
    }

    /// Publishes skipped times, once the decision is on the disk.
    pub(super) fn publish_skipped(&self, name: &str, passing: &SkippedTimes) {
        let SkippedTimes { times: TimeSpan { count, last }, reason, text } = passing;
        let (at, reason) = (Timestamp(*last), *reason);
        let word = reason.word();
        tracing::warn!(schedule = name, %at, count, reason = word, text, "a time has passed without a job");
        self.table.passed[reason as usize].fetch_add(*count, Relaxed);
        self.events.publish(|id| Event {
            schedule: Some(name.to_owned()),
            error: Some(text.clone()),
            ..crate::engine::event(id, EventKind::SchedulePassed, self.clock.now())
        });
    }

    /// Records that a due time cannot be decided now: it stays due.
    fn hold_up(&self, name: &str, version: u64, refused: &RequestError) {
        let again = self.clock.steady() + AGAIN;
        let why = refused.to_string();
        let mut all = self.table.all();
        let Some(entry) = all.get_mut(name).filter(|entry| entry.version == version) else {
            return;
        };
        if entry.held_up.as_ref().is_none_or(|(known, _)| *known != why) {
            tracing::warn!(schedule = name, why, "a time is due and cannot make its job yet");
        }
        Arc::make_mut(entry).held_up = Some((why, again));
    }
}

/// Wake-up times of the schedule task: the next due time on the wall clock, and the next attempt of
/// a time that is held up on a steady clock, because the wall clock may be set meanwhile.
#[derive(Default)]
struct WakeupTimes {
    calendar: Option<u64>,
    again: Option<Duration>,
}

fn earlier<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}

/// Returns the job of a schedule, with the labels by which it is found.
pub(super) fn job_of(
    name: &str,
    text: &str,
    at: Option<Timestamp>,
) -> Result<SubmitJob, RequestError> {
    let Object(mut job): Object<SubmitJob> = serde_json::from_str(text)
        .map_err(|error| RequestError::Invalid(vec![(String::new(), error.to_string())]))?;
    job.labels.entry(LABEL.to_owned()).or_insert_with(|| name.to_owned());
    if let Some(at) = at {
        job.labels.entry(LABEL_AT.to_owned()).or_insert_with(|| at.to_string());
    }
    Ok(job)
}
