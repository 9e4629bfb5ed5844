//! Judges a history: order by key, overlap, loss, repetition, fences, backoffs, pauses and liveness.
//!
//! It knows the promises and nothing of the product's code. Where a client cannot know whether a
//! request took effect, it permits both.

mod after;
mod effects;
mod followers;
mod rated_limits;
mod schedules;
mod starts;
mod state;
mod superseded;
mod webhooks;

use super::history::{Entry, Event, Seen};
use state::State;

/// Returns the promises that the history breaks.
pub(super) fn judge(entries: &[Entry]) -> Vec<String> {
    let mut state = State::default();
    for (place, entry) in entries.iter().enumerate() {
        state.begin_entry(place, entry);
        match &entry.event {
            Event::Submitting { spec, .. } => state.submitting(spec),
            Event::Accepted { job, id, run_at, expires_at } => {
                state.accepted(*job, id, *run_at, *expires_at);
            }
            Event::Refused { job, waiting } => state.refused(*job, *waiting),
            Event::Started(run) => state.started(*run),
            Event::Ended(run, end) => state.ended(*run, *end),
            Event::Reported { fence, status, sent } => state.reported(*fence, *status, *sent),
            Event::Held { fence, until } => state.held(*fence, *until),
            Event::Vanished { .. } | Event::Stopping => {}
            Event::Opened { keep } => state.keep = *keep,
            Event::NotOpened { why } => state.fail(format!("the service does not start: {why}")),
            Event::FannedIn { job, results } => state.fanned_in(*job, results),
            Event::Scheduling { schedule, change } => state.scheduling(*schedule, *change),
            Event::Scheduled { schedule, change, status } => {
                state.scheduled(*schedule, *change, *status);
            }
            Event::ScheduledRun { schedule, id, begins } => {
                state.scheduled_run(*schedule, id, *begins);
            }
            Event::Fired { schedule, jobs, fired } => state.fired(*schedule, jobs, *fired),
            Event::Following { follower, after } => state.following(*follower, *after),
            Event::Followed(followed) => state.followed(followed),
            Event::Delivered { job, id, state: ended, accepted } => {
                state.delivered(*job, id, ended, *accepted);
            }
            Event::Set { ms } => state.set_by(*ms),
            Event::Commanding { number, command } => state.commanding(*number, *command),
            Event::Commanded { number, command, status } => {
                state.commanded(*number, *command, *status);
            }
            Event::Read(seen) => read(&mut state, seen),
            Event::Superseded { job, number, by } => state.superseded((*job, *number), by),
            Event::NotFound { job, status } => not_found(&mut state, *job, *status),
            Event::Crashed { .. } => state.process_ended(),
            Event::Stopped { is_closed } => {
                state.process_ended();
                if !is_closed {
                    state.fail("the store is open after the stop".into());
                }
            }
            Event::Slept { ms } => {
                (state.slept, state.woke_at) = (state.slept + ms, Some(state.at));
            }
            Event::Full(is_full) => state.full(*is_full),
            Event::Healed => (state.is_healed, state.healed_at) = (true, state.wall),
            Event::Checked { damage } if damage.is_empty() => {}
            Event::Checked { damage } => state.fail(format!("damage: {}", damage.join("; "))),
        }
    }
    end(&mut state);
    state.followers_end();
    state.broken
}

/// An ended job is found until its time is over, or an operator removes it.
fn not_found(state: &mut State, number: usize, status: u16) {
    let keep = state.keep;
    let job = &mut state.jobs[number];
    let keep = job.spec.kind.keep(keep);
    let (lowest, highest) = job.walls;
    if matches!(status, 404 | 410) && (job.is_removed || highest - lowest >= keep) {
        job.is_gone = true;
        return;
    }
    state.fail(format!("job {number} was accepted, and is answered {status}"));
}

/// An ended job stays as it is until it is retried, its version never falls, and its counts are
/// those of its subtasks.
fn read(state: &mut State, seen: &Seen) {
    let job = &mut state.jobs[seen.job];
    let is_over = ["succeeded", "failed", "cancelled"].contains(&&*seen.state);
    let mut wrong = Vec::new();
    let is_split = !job.spec.has_steps() || seen.total > 0;
    if is_split && seen.total != job.spec.subtasks.len() as u64 {
        wrong.push(format!("has {} subtasks", job.spec.subtasks.len()));
    }
    let ended = seen.succeeded + seen.failed + seen.cancelled + seen.superseded;
    if is_over && ended != seen.total {
        wrong.push("is over, with subtasks that are not".to_owned());
    }
    // Of two reads at the same time the later answer may be the older one.
    if let Some((at, before)) = job.last_read.as_ref().filter(|(at, _)| *at < seen.asked) {
        if seen.version < before.version {
            wrong.push(format!("had version {} at {at}", before.version));
        }
        let shown = |seen: &Seen| {
            let Seen { succeeded, failed, cancelled, superseded, total, .. } = *seen;
            (seen.state.clone(), succeeded, failed, cancelled, superseded, total)
        };
        if seen.version == before.version && shown(seen) != shown(before) {
            wrong.push(format!("had the same version at {at}: {before:?}"));
        }
        if job.is_over && !job.is_retried && seen.state != before.state {
            wrong.push(format!("was {} at {at}", before.state));
        }
    }
    if job.last_read.as_ref().is_none_or(|(at, _)| *at < seen.asked) {
        job.last_read = Some((state.at, seen.clone()));
        job.is_over = is_over;
    }
    if job.is_gone {
        wrong.push("was gone before".to_owned());
    }
    if job.spec.has_steps() && seen.state == "succeeded" && seen.result != job.fanned_in {
        wrong.push("has another result than its fan-in".to_owned());
    }
    // An operator may resume, cancel or retry it before its time.
    let place = state.place;
    if is_split && !["scheduled", "paused"].contains(&&*seen.state) && !is_over {
        job.entered = job.entered.or(Some(place));
    }
    if is_over {
        state.settle(seen.job);
    }
    wrong.into_iter().for_each(|why| state.fail(format!("job {} {why}: {seen:?}", seen.job)));
}

/// Everything that was accepted has ended, and with the outcomes of its attempts.
fn end(state: &mut State) {
    if !state.is_healed {
        state.fail("the history has no end".into());
    }
    let mut wrong = state.undelivered();
    for (number, job) in state.jobs.iter().enumerate() {
        if job.is_refused {
            continue;
        }
        let Some(accepted) = job.accepted else {
            wrong.push(format!("job {number} was never accepted"));
            continue;
        };
        if job.is_gone {
            continue;
        }
        let last = job.last_read.as_ref().filter(|(at, _)| *at > accepted.at);
        let Some((_, last)) = last.filter(|_| job.is_over) else {
            wrong.push(format!("job {number} has not ended: {:?}", job.last_read));
            continue;
        };
        let tasks = &job.tasks[..job.spec.subtasks.len()];
        let is_steered = job.is_cancelled || job.is_retried || tasks.iter().any(|it| it.may_skip);
        let succeeded = tasks.iter().filter(|task| task.has_succeeded).count() as u64;
        // A report without an answer may have counted.
        let unknown = tasks.iter().filter(|task| task.is_unknown && !task.has_succeeded).count();
        let range = succeeded..=succeeded + unknown as u64;
        if !job.is_retried && !range.contains(&last.succeeded) {
            wrong.push(format!("job {number}: {succeeded} attempts succeeded: {last:?}"));
        }
        let superseded = tasks.iter().filter(|task| task.superseded_by.is_some()).count() as u64;
        if superseded != last.superseded {
            wrong.push(format!("job {number}: {superseded} subtasks are superseded: {last:?}"));
        }
        let is_split = last.total > 0;
        for (place, task) in tasks.iter().enumerate() {
            let may_have_run = task.starts > 0 || task.unseen >= job.spec.kind.attempts();
            if is_split && !is_steered && !may_have_run && task.superseded_by.is_none() {
                wrong.push(format!("subtask {place} of job {number} never ran: {last:?}"));
            }
        }
    }
    state.broken.extend(wrong);
}
