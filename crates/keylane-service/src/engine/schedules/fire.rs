//! What is due is decided: its job is made, or it is passed over. One task does it for all schedules.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use futures_util::StreamExt;
use tokio::time::Instant;

use super::super::audit::Act;
use super::super::intake::{Also, Submitted};
use super::when::{Next, Span};
use super::{Entry, Kept, Passing, Reason};
use crate::JobId;
use crate::engine::{Core, Refused};
use crate::wire::{Event, EventKind, Object, OverlapChoice, SubmitJob, Timestamp};

/// How many schedules are looked after at once, so that their jobs share the syncs of the disk.
const AT_ONCE: usize = 64;

/// After how long a time that is held up is tried again.
const AGAIN: Duration = Duration::from_secs(1);

/// The labels that say of which schedule a job is, and of which of its times.
const LABEL: &str = "schedule";
const LABEL_AT: &str = "scheduled_for";

impl Core {
    /// Decides what is due, whenever something is, until the service stops.
    pub(in crate::engine) async fn keep_schedules(self: Arc<Self>) {
        loop {
            let Wakes { calendar, again } = self.wakes();
            tokio::select! {
                () = self.stopped.cancelled() => return,
                () = self.schedules.changed.notified() => {}
                () = self.calendar.reached(calendar) => {}
                () = at(again) => {}
            }
            let due = self.due();
            let decided = futures_util::stream::iter(due)
                .for_each_concurrent(AT_ONCE, |name| self.decide(name));
            tokio::select! {
                () = self.stopped.cancelled() => return,
                () = decided => {}
            }
        }
    }

    /// When something is to be done next.
    fn wakes(&self) -> Wakes {
        let mut wakes = Wakes::default();
        for entry in self.schedules.all().values() {
            match &entry.held_up {
                None => wakes.calendar = earlier(wakes.calendar, entry.next),
                Some((_, again)) => wakes.again = earlier(wakes.again, Some(*again)),
            }
        }
        wakes
    }

    /// What is due now, but for what is held up and not to be tried yet.
    fn due(&self) -> Vec<String> {
        let (now, steady) = (self.calendar.now().0, Instant::now());
        let mut due = Vec::new();
        for (name, entry) in self.schedules.all().iter_mut() {
            if entry.held_up.as_ref().is_some_and(|(_, again)| *again > steady) {
                continue;
            }
            if entry.next.is_some_and(|next| next <= now) {
                due.push(name.clone());
            } else if entry.held_up.is_some() {
                // The calendar was put back, and it is not due any more.
                Arc::make_mut(entry).held_up = None;
            }
        }
        due
    }

    /// Decides all times of a schedule that are due.
    async fn decide(self: &Arc<Self>, name: String) {
        let _turn = self.schedules.turn(&name).await;
        self.decide_due(&name).await;
    }

    /// Decides all times of a schedule that are due, as far as it can be done now. The caller has its turn.
    pub(super) async fn decide_due(self: &Arc<Self>, name: &str) {
        while let Some(entry) = self.schedules.get(name) {
            match self.decide_next(name, &entry).await {
                Ok(true) => {}
                Ok(false) => return,
                Err(refused) => return self.hold_up(name, entry.version, &refused),
            }
        }
    }

    /// Decides the next time, or those that were missed. Whether there was one.
    async fn decide_next(self: &Arc<Self>, name: &str, entry: &Entry) -> Result<bool, Refused> {
        let kept = &*entry.kept;
        let (Ok(times), false) = (&entry.times, kept.paused) else { return Ok(false) };
        match times.next(kept.decided.0, self.calendar.now().0, kept.missed) {
            Next::Wait(_) => return Ok(false),
            Next::PassOver(missed) => self.pass_over(name, entry, Passing::missed(missed)).await?,
            Next::Fire { at, missed } => match (self.overlapped(kept), missed) {
                (None, _) => self.fire(name, entry, at, missed).await?,
                (Some(_), Some(missed)) => {
                    // Not for this reason. After that, this one is looked at again.
                    self.pass_over(name, entry, Passing::missed(missed)).await?;
                }
                (Some(before), None) => {
                    let text = format!("{before}, the job before, is not over");
                    self.pass_over(name, entry, Passing::one(at, Reason::Overlap, text)).await?;
                }
            },
        }
        Ok(true)
    }

    /// The job that is not over, if there may be no other beside it.
    fn overlapped<'a>(&self, kept: &'a Kept) -> Option<&'a str> {
        let last = kept.last_job.as_deref().filter(|_| kept.overlap == OverlapChoice::Skip)?;
        let id = JobId::parse(last)?;
        let is_live = self.books().live.get(&id.number()).is_some_and(|live| live.id == id);
        is_live.then_some(last)
    }

    async fn fire(
        self: &Arc<Self>,
        name: &str,
        entry: &Entry,
        at: u64,
        missed: Option<Span>,
    ) -> Result<(), Refused> {
        let missed = missed.map(Passing::missed);
        match self.make_scheduled(name, entry, Some((at, missed.clone())), None, None).await {
            Ok(_) => {
                self.schedules.fired.fetch_add(1, Relaxed);
                Ok(())
            }
            // It will not be better the next time.
            Err(refused @ (Refused::Invalid(_) | Refused::TooLarge(_))) => {
                let text = format!("its job was refused: {refused}");
                let refused = Passing::one(at, Reason::Refused, text);
                // What was missed is passed over for that reason, and then this one is tried again.
                self.pass_over(name, entry, missed.unwrap_or(refused)).await
            }
            Err(refused) => Err(refused),
        }
    }

    /// Makes a job of a schedule, for a time (and those before it that were missed) or by hand; with the word that it
    /// was made. The caller has the schedule's turn.
    pub(super) async fn make_scheduled(
        self: &Arc<Self>,
        name: &str,
        entry: &Entry,
        time: Option<(u64, Option<Passing>)>,
        scope: Option<(String, String)>,
        act: Option<&Act>,
    ) -> Result<Submitted, Refused> {
        let (at, missed) = time.map_or((None, None), |(at, missed)| (Some(Timestamp(at)), missed));
        let job = job_of(name, entry.kept.job.get(), at)?;
        let mut intake = self.begin_intake(job, false)?;
        // What an idempotency key of a run by hand stands for.
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
            self.log(act, &mut changes);
        }
        let also = Also::new(changes, move |core| changing.done(core));
        let submitted = intake.finish_with(scope, also).await;
        if let Some(act) = act {
            self.made(act, &submitted);
        }
        let submitted = submitted?;
        missed.iter().for_each(|missed| self.tell_passed(name, missed));
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

    /// What came of a run by hand: one that had been asked for before is no other action.
    fn made(&self, act: &Act, submitted: &Result<Submitted, Refused>) {
        match submitted {
            Ok(submitted) if submitted.replayed => act.settle(),
            Ok(_) => self.was_done(act),
            Err(_) => act.on_no_job(),
        }
    }

    /// These times make no job.
    async fn pass_over(
        self: &Arc<Self>,
        name: &str,
        entry: &Entry,
        passing: Passing,
    ) -> Result<(), Refused> {
        let mut kept = (*entry.kept).clone();
        kept.pass(&passing);
        self.change_schedule(name, Some(entry.version), Some(kept), None).await?;
        self.tell_passed(name, &passing);
        Ok(())
    }

    /// That these make no job is on the disk.
    pub(super) fn tell_passed(&self, name: &str, passing: &Passing) {
        let Passing { times: Span { count, last }, reason, text } = passing;
        let (at, reason) = (Timestamp(*last), *reason);
        let word = reason.word();
        tracing::warn!(schedule = name, %at, count, reason = word, text, "a time has passed without a job");
        self.schedules.passed[reason as usize].fetch_add(*count, Relaxed);
        self.events.publish(|id| Event {
            schedule: Some(name.to_owned()),
            error: Some(text.clone()),
            ..crate::engine::event(id, EventKind::SchedulePassed, self.clock.now())
        });
    }

    /// What is due cannot be decided now: it stays due.
    fn hold_up(&self, name: &str, version: u64, refused: &Refused) {
        let again = Instant::now() + AGAIN;
        let why = refused.to_string();
        let mut all = self.schedules.all();
        let Some(entry) = all.get_mut(name).filter(|entry| entry.version == version) else {
            return;
        };
        if entry.held_up.as_ref().is_none_or(|(known, _)| *known != why) {
            tracing::warn!(schedule = name, why, "a time is due and cannot make its job yet");
        }
        Arc::make_mut(entry).held_up = Some((why, again));
    }
}

/// When the next time is due by the calendar, and when one that is held up is tried again: by a steady clock, for the
/// calendar may be set meanwhile.
#[derive(Default)]
struct Wakes {
    calendar: Option<u64>,
    again: Option<Instant>,
}

fn earlier<T: Ord>(one: Option<T>, other: Option<T>) -> Option<T> {
    one.into_iter().chain(other).min()
}

/// Waits until then, if there is such a moment; otherwise for ever.
async fn at(moment: Option<Instant>) {
    match moment {
        Some(moment) => tokio::time::sleep_until(moment).await,
        None => std::future::pending().await,
    }
}

/// The job of a schedule, with labels by which it is found.
pub(super) fn job_of(name: &str, text: &str, at: Option<Timestamp>) -> Result<SubmitJob, Refused> {
    let Object(mut job): Object<SubmitJob> = serde_json::from_str(text)
        .map_err(|error| Refused::Invalid(vec![(String::new(), error.to_string())]))?;
    job.labels.entry(LABEL.to_owned()).or_insert_with(|| name.to_owned());
    if let Some(at) = at {
        job.labels.entry(LABEL_AT.to_owned()).or_insert_with(|| at.to_string());
    }
    Ok(job)
}
