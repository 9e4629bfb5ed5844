//! Effects of submissions, ends of attempts and commands on the state of a history.

use super::state::{Job, Moment, Pause, State, Task, TaskEnd};
use crate::simulation::history::{Command, Run};
use crate::simulation::work::{JobSpec, RunEnd};

impl State {
    pub(super) fn submitting(&mut self, spec: &JobSpec) {
        let mut tasks = vec![Task::default(); spec.subtasks.len()];
        for (task, keys) in tasks.iter_mut().zip(&spec.subtasks) {
            // A command without an answer may still be executed.
            for (command, _) in self.open.values() {
                match command {
                    Command::SkipHead { key } => task.may_skip |= keys.contains(key),
                    Command::RetryHead { key } => task.has_more |= keys.contains(key),
                    _ => {}
                }
            }
            task.may_retry = task.has_more;
        }
        self.jobs.push(Job {
            tasks,
            spec: spec.clone(),
            submitting: self.place,
            accepted: None,
            id: String::new(),
            pause: Pause::default(),
            is_cancelled: false,
            cancelled_since: None,
            is_retried: false,
            is_over: false,
            last_read: None,
        });
    }

    pub(super) fn accepted(&mut self, job: usize, id: &str) {
        if let Some(other) = self.jobs.iter().position(|job| job.id == id) {
            self.fail(format!("jobs {job} and {other} have the same id"));
        }
        self.jobs[job].accepted = Some(Moment { place: self.place, at: self.at });
        id.clone_into(&mut self.jobs[job].id);
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
        let is_known = !run.is_lease;
        task.end = Some(TaskEnd { end, at, awake, process, is_durable: false, is_known });
        task.has_succeeded |= is_known && end == RunEnd::Succeeded;
        // Until its answer, a report may have counted or not.
        task.is_unknown = run.is_lease;
    }

    pub(super) fn reported(&mut self, fence: u64, status: u16) {
        let mut tasks = self.jobs.iter_mut().flat_map(|job| &mut job.tasks);
        let found = tasks.find(|task| task.last.is_some_and(|run| run.fence == fence));
        let Some(task) = found else {
            if status == 204 {
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
        let tasks = self.jobs.iter_mut().flat_map(|job| &mut job.tasks);
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
            Command::RetryJob { job } => self.jobs[job].is_retried = true,
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
            Command::PauseJob { .. } | Command::PauseKey { .. } => {}
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
            _ => {}
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
