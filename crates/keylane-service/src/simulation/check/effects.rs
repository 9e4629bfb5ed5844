//! Effects of submissions, ends of attempts and commands on the state of a history.

use std::collections::BTreeMap;

use serde_json::Value;

use super::state::{Edition, Job, Moment, Pause, State, Task, TaskEnd};
use crate::simulation::history::{Command, Run};
use crate::simulation::work::{JobSpec, RunEnd, result_of};

impl State {
    pub(super) fn submitting(&mut self, spec: &JobSpec) {
        let steps = if spec.has_steps() { 2 } else { 0 };
        let mut tasks = vec![Task::default(); spec.subtasks.len() + steps];
        for (task, keys) in tasks.iter_mut().zip(&spec.subtasks) {
            // A command without an answer may still be executed.
            for (command, _) in self.open.values() {
                match command {
                    Command::SkipHead { key } => task.may_skip |= keys.all.contains(key),
                    Command::RetryHead { key } => task.has_more |= keys.all.contains(key),
                    _ => {}
                }
            }
            task.may_retry = task.has_more;
        }
        let wall = self.counted_wall();
        // One that waits for another job enters later than it is sent.
        let may_enter = !spec.has_steps() && spec.delay.is_none();
        self.jobs.push(Job {
            webhooks: BTreeMap::new(),
            tasks,
            spec: spec.clone(),
            submitted_in: self.process,
            submitted: self.place,
            accepted: None,
            run_at: None,
            expires_at: None,
            expired_since: None,
            highest: wall,
            walls: (self.wall, wall),
            enters: may_enter.then_some(self.place),
            entered: None,
            is_removed: false,
            is_gone: false,
            fanned_in: None,
            id: String::new(),
            pause: Pause::default(),
            // It is cancelled if the one that must succeed before does not.
            is_cancelled: spec.after.as_ref().is_some_and(|after| after.must_succeed),
            is_refused: false,
            cancelled_since: None,
            is_retried: false,
            is_over: false,
            last_read: None,
        });
    }

    pub(super) fn accepted(
        &mut self,
        job: usize,
        id: &str,
        run_at: Option<u64>,
        expires_at: Option<u64>,
    ) {
        if let Some(other) = self.jobs.iter().position(|job| job.id == id) {
            self.fail(format!("jobs {job} and {other} have the same id"));
        }
        let (place, at) = (self.place, self.at);
        let job = &mut self.jobs[job];
        job.accepted = Some(Moment { place, at });
        if run_at.is_some_and(|at| at <= job.highest) && !job.spec.has_steps() {
            job.may_enter(place);
        }
        (job.run_at, job.expires_at) = (run_at, expires_at);
        if job.enters_at_once() {
            job.entered = job.entered.or(Some(place));
        }
        id.clone_into(&mut job.id);
    }

    /// The results are those of all subtasks, in their order. A superseded one has none.
    pub(super) fn fanned_in(&mut self, number: usize, results: &Value) {
        let all = (0..self.jobs[number].spec.subtasks.len() as u32).map(|of| {
            match results[of as usize].is_null() && self.may_be_superseded((number, of as usize)) {
                true => Value::Null,
                false => result_of(number, of),
            }
        });
        let all: Value = all.collect();
        self.jobs[number].fanned_in = Some(results.clone());
        if *results != all {
            self.fail(format!("the fan-in of job {number} gets {results} instead of {all}"));
        }
    }

    /// Ends an attempt in the service, or the work on a lease, which is to be reported.
    pub(super) fn ended(&mut self, run: Run, end: RunEnd) {
        let (at, awake, process) = (self.at, self.awake(), self.process);
        let task = self.task(run);
        // A worker that goes on after its lease has expired.
        if task.last.is_some_and(|last| last.fence != run.fence) {
            return;
        }
        task.running = None;
        task.releases += u32::from(end == RunEnd::Released);
        let is_known = !run.is_lease;
        task.end = Some(TaskEnd { end, at, awake, process, is_durable: false, is_known });
        task.has_succeeded |= is_known && end == RunEnd::Succeeded;
        // Until its answer, a report may have counted or not.
        task.is_unknown = run.is_lease;
    }

    pub(super) fn reported(&mut self, fence: u64, status: u16, sent: u64) {
        let mut tasks = self.jobs.iter_mut().flat_map(|job| &mut job.tasks);
        let found = tasks.find(|task| task.last.is_some_and(|run| run.fence == fence));
        let Some(task) = found else {
            // The next attempt can begin before the answer, which may wait for a claim.
            let followed = self.followed_at.get(&fence).copied().unwrap_or(u64::MAX);
            if status == 204 && followed < sent {
                self.fail(format!("the report of fence {fence} counts after a later attempt"));
            }
            return;
        };
        let Some(end) = &mut task.end else { return };
        if status == 204 {
            (end.is_known, end.is_durable, task.is_unknown) = (true, true, false);
            task.has_succeeded |= end.end == RunEnd::Succeeded;
            task.held_until = 0;
        } else {
            // The lease was lost, or an earlier report counted whose answer was lost.
            task.is_unknown = true;
        }
    }

    pub(super) fn held(&mut self, fence: u64, until: u64) {
        // A kill on its way may take effect at any time, also right after this heartbeat.
        let killed = |(command, _): &(Command, _)| match *command {
            Command::Cancel { job, kill: true } => Some(job),
            _ => None,
        };
        let killed: Vec<_> = self.open.values().filter_map(killed).collect();
        let jobs = self.jobs.iter_mut().enumerate().filter(|(job, _)| !killed.contains(job));
        let tasks = jobs.flat_map(|(_, job)| &mut job.tasks);
        let of_fence = |task: &&mut Task| task.last.is_some_and(|run| run.fence == fence);
        if let Some(task) = tasks.filter(of_fence).find(|task| task.running.is_some()) {
            task.held_until = until;
        }
    }

    pub(super) fn commanding(&mut self, number: u64, command: Command) {
        let place = self.place;
        self.open.insert(number, (command, place));
        match command {
            Command::Cancel { job, kill } => {
                self.jobs[job].is_cancelled = true;
                for task in self.jobs[job].tasks.iter_mut().filter(|_| kill) {
                    task.held_until = 0;
                    task.is_unknown = true;
                }
            }
            Command::ResumeJob { job } => resume(&mut self.jobs[job].pause, place),
            Command::ResumeKey { key } => resume(self.keys.entry(key).or_default(), place),
            Command::ResumeKind { kind } => resume(self.kinds.entry(kind).or_default(), place),
            Command::RetryJob { job } => {
                // A job that has ended is no longer paused when it runs again.
                resume(&mut self.jobs[job].pause, place);
                self.jobs[job].is_retried = true;
            }
            Command::RetrySubtask { job, number: subtask, edits } => {
                resume(&mut self.jobs[job].pause, place);
                self.jobs[job].is_retried = true;
                if let Some(task) = self.jobs[job].subtask(subtask).filter(|_| edits) {
                    task.editions.push(Edition { command: number, answered: None });
                }
            }
            Command::RetryHead { key } => {
                for (job, task) in self.with_key(key) {
                    let task = &mut self.jobs[job].tasks[task];
                    (task.may_retry, task.has_more) = (true, true);
                }
            }
            Command::SkipHead { key } => {
                for (job, task) in self.with_key(key) {
                    self.jobs[job].tasks[task].may_skip = true;
                }
            }
            Command::Remove { job } => self.jobs[job].is_removed = true,
            Command::LimitRated { at_once } => self.rated_limits.sent(number, at_once as usize),
            Command::PauseJob { .. }
            | Command::PauseKey { .. }
            | Command::PauseKind { .. }
            | Command::SetWeight { .. } => {}
        }
    }

    pub(super) fn commanded(&mut self, number: u64, command: Command, status: u16) {
        let sent = self.open.remove(&number).map_or(0, |(_, sent)| sent);
        let awake = self.awake();
        if !(200..300).contains(&status) {
            return;
        }
        // A request to resume that has no answer yet may come after this one.
        let is_undone = self.open.values().any(|(open, _)| match (command, *open) {
            (Command::PauseJob { job }, Command::ResumeJob { job: other }) => job == other,
            (Command::PauseKey { key }, Command::ResumeKey { key: other }) => key == other,
            (Command::PauseKind { kind }, Command::ResumeKind { kind: other }) => kind == other,
            _ => false,
        });
        let since = Some(awake).filter(|_| !is_undone);
        match command {
            Command::Cancel { job, .. } => {
                let job = &mut self.jobs[job];
                job.cancelled_since = job.cancelled_since.or(Some(awake));
            }
            Command::PauseJob { job } => pause(&mut self.jobs[job].pause, sent, since),
            Command::PauseKey { key } => {
                pause(self.keys.entry(key).or_default(), sent, since);
            }
            Command::PauseKind { kind } => {
                pause(self.kinds.entry(kind).or_default(), sent, since);
            }
            // A pause sent before this answer may have been executed before the request to resume.
            Command::ResumeJob { job } | Command::RetryJob { job } => {
                resume(&mut self.jobs[job].pause, self.place);
            }
            Command::RetrySubtask { job, number: subtask, edits } => {
                resume(&mut self.jobs[job].pause, self.place);
                if edits {
                    self.edited(job, subtask, number, sent);
                }
            }
            Command::LimitRated { .. } => {
                self.rated_limits.answered(number, self.place, sent, awake)
            }
            Command::ResumeKey { key } => resume(self.keys.entry(key).or_default(), self.place),
            Command::ResumeKind { kind } => {
                resume(self.kinds.entry(kind).or_default(), self.place);
            }
            _ => {}
        }
    }

    /// A command, sent at this place, has replaced a payload: no earlier one comes back.
    fn edited(&mut self, job: usize, subtask: u32, command: u64, sent: usize) {
        let place = self.place;
        let Some(task) = self.jobs[job].subtask(subtask) else { return };
        task.is_edited = true;
        task.editions.retain(|one| one.answered.is_none_or(|answered| answered > sent));
        if let Some(this) = task.editions.iter_mut().find(|one| one.command == command) {
            this.answered = Some(place);
        }
    }
}

fn resume(pause: &mut Pause, place: usize) {
    *pause = Pause { since: None, resumed: place };
}

fn pause(pause: &mut Pause, sent: usize, since: Option<u64>) {
    // A pause that was sent before a request to resume may have been executed before it.
    if pause.resumed < sent {
        pause.since = pause.since.or(since);
    }
}
