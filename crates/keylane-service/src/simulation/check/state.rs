//! What a history says about each job, subtask and key so far.

use std::collections::{BTreeMap, BTreeSet};

use super::rated_limits::RatedLimits;
use crate::simulation::history::{Command, Entry, Event, Run, Seen};
use crate::simulation::work::{JobKind, JobSpec, RunEnd, SubtaskKeys};

/// Time after which an end is on the disk for certain, in milliseconds without full disk: some slow
/// writes.
pub(super) const WRITTEN: u64 = 6_000;

/// Forward step of the wall clock that is trusted at once, and the time for which it is not trusted
/// after a larger one, both in milliseconds.
const BELIEVED: i64 = 60_000;
const DOUBTED: u64 = 3_600_000 - FOLLOWS;

/// Time after which the service has followed a step of the wall clock, in milliseconds.
pub(super) const FOLLOWS: u64 = 5_000;

#[derive(Default)]
pub(super) struct State {
    pub(super) at: u64,
    pub(super) wall: u64,
    pub(super) place: usize,
    pub(super) process: u32,
    /// Time for which ended jobs are kept, in milliseconds.
    pub(super) keep: u64,
    /// Wall time up to which the service may have counted before the clock was set back, and the
    /// steady time of that.
    pub(super) counted: Option<(u64, u64)>,
    pub(super) rated_limits: RatedLimits,
    /// Starts of subtasks with a rate in this process, in steady time.
    pub(super) rated: Vec<u64>,
    /// Last start of a subtask with a rate that does not share the key, in this process, in steady time.
    pub(super) rated_keys: BTreeMap<u8, u64>,
    /// Steady time until which the service may not remove old jobs, because the wall clock was set
    /// far forward.
    pub(super) doubted_until: u64,
    pub(super) schedules: BTreeMap<u8, ScheduleState>,
    pub(super) followers: BTreeMap<u64, FollowerState>,
    /// Wall time of the end of the faults.
    pub(super) healed_at: u64,
    pub(super) jobs: Vec<Job>,
    /// Highest fence of each key.
    pub(super) fences: BTreeMap<u8, u64>,
    /// Highest fence of each key, of subtasks that do not share it.
    pub(super) exclusive_fences: BTreeMap<u8, u64>,
    pub(super) all_fences: BTreeSet<u64>,
    /// Steady time at which an attempt was followed by the next one, by its fence.
    pub(super) followed_at: BTreeMap<u64, u64>,
    /// Commands without an answer, and the places at which they were sent.
    pub(super) open: BTreeMap<u64, (Command, usize)>,
    pub(super) keys: BTreeMap<u8, Pause>,
    /// Pauses of kinds, by their places in [`JobKind::ALL`](crate::simulation::work::JobKind::ALL).
    pub(super) kinds: BTreeMap<u8, Pause>,
    /// Total sleep of the machine, in milliseconds.
    pub(super) slept: u64,
    pub(super) is_full: bool,
    /// Time without sleep at which the disk had room again.
    pub(super) full_until: u64,
    /// Steady time at which the wall clock was set last.
    pub(super) set_at: Option<u64>,
    /// Steady time at which the machine woke last.
    pub(super) woke_at: Option<u64>,
    pub(super) is_healed: bool,
    pub(super) broken: Vec<String>,
}

/// Pause of a key or of a job.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Pause {
    /// Time without sleep since which it is certain.
    pub(super) since: Option<u64>,
    /// Place of the last request to resume.
    pub(super) resumed: usize,
}

/// Place and time of an event.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) place: usize,
    pub(super) at: u64,
}

impl Job {
    /// Returns a subtask, if there is one with this number: no step.
    pub(super) fn subtask(&mut self, number: u32) -> Option<&mut Task> {
        self.tasks[..self.spec.subtasks.len()].get_mut(number as usize)
    }

    /// Returns whether its attempts begin at once, and not when their start marks are on the disk.
    pub(super) fn begins_at_once(&self, process: u32) -> bool {
        let is_latest = |keys: &SubtaskKeys| keys.is_latest;
        self.submitted_in == process && !self.spec.subtasks.iter().any(is_latest)
    }

    /// Notes that its subtasks may be in the order from here on. A delayed job whose first answer was
    /// lost may have entered at any time since it was sent.
    pub(super) fn may_enter(&mut self, place: usize) {
        let is_unanswered = self.spec.delay.is_some() && self.run_at.is_none();
        let place = if is_unanswered { self.submitted } else { place };
        self.enters = self.enters.or(Some(place));
    }

    /// Returns whether its subtasks are in the order when it is accepted.
    pub(super) fn enters_at_once(&self) -> bool {
        self.spec.kind != JobKind::Split && self.spec.delay.is_none() && self.spec.after.is_none()
    }
}

pub(super) struct Job {
    /// Webhooks of its ends, by their ids: the state that they report, and whether the receiver has accepted them.
    pub(super) webhooks: BTreeMap<String, (String, bool)>,
    pub(super) spec: JobSpec,
    /// Process in which it was sent first.
    pub(super) submitted_in: u32,
    /// Place in the history at which it was sent first.
    pub(super) submitted: usize,
    pub(super) accepted: Option<Moment>,
    /// Earliest wall time of its start.
    pub(super) run_at: Option<u64>,
    /// Wall time from which nothing of it starts.
    pub(super) expires_at: Option<u64>,
    /// Time without sleep since which the service certainly sees this time.
    pub(super) expired_since: Option<u64>,
    /// Highest wall time since its submission.
    pub(super) highest: u64,
    /// Lowest and highest wall time since its last start, while old jobs may be removed.
    pub(super) walls: (u64, u64),
    /// Place in the history from which on its subtasks may be in the order.
    pub(super) enters: Option<usize>,
    /// Place in the history at which they certainly are.
    pub(super) entered: Option<usize>,
    pub(super) is_removed: bool,
    /// It was not accepted.
    pub(super) is_refused: bool,
    /// A client was told that there is no such job.
    pub(super) is_gone: bool,
    /// Results that its last fan-in has got.
    pub(super) fanned_in: Option<serde_json::Value>,
    pub(super) id: String,
    pub(super) tasks: Vec<Task>,
    pub(super) pause: Pause,
    /// A cancellation was sent.
    pub(super) is_cancelled: bool,
    /// Time without sleep since which a cancellation is certain.
    pub(super) cancelled_since: Option<u64>,
    /// A retry was sent: its subtasks may run again, at another place in the order.
    pub(super) is_retried: bool,
    /// It was over when it was last read.
    pub(super) is_over: bool,
    pub(super) last_read: Option<(u64, Seen)>,
}

/// Subtask.
#[derive(Clone, Debug, Default)]
pub(super) struct Task {
    pub(super) starts: u32,
    /// Number of them that a worker gave back and had not begun.
    pub(super) releases: u32,
    /// Running attempt in the service, or lease whose work goes on.
    pub(super) running: Option<Run>,
    /// Steady time until which the last lease holds, unless it is reported or lost before.
    pub(super) held_until: u64,
    pub(super) last: Option<Run>,
    /// Process of the last start.
    pub(super) started_in: u32,
    /// Process of the last start on a remote worker.
    pub(super) leased_in: Option<u32>,
    pub(super) end: Option<TaskEnd>,
    pub(super) has_succeeded: bool,
    /// Whether it has possibly ended for good: a report without an answer, an attempt that a crash
    /// or an expiry has ended.
    pub(super) is_unknown: bool,
    /// Payloads that it may have besides the submitted one.
    pub(super) editions: Vec<Edition>,
    /// Whether it has another payload than the submitted one for certain.
    pub(super) is_edited: bool,
    /// It may have been skipped.
    pub(super) may_skip: bool,
    /// It may have been told to run again at once.
    pub(super) may_retry: bool,
    /// Maximum number of attempts since the last seen one: a start may be on the disk that no worker
    /// or handler saw before the process ended.
    pub(super) unseen: u32,
    /// It may have got an attempt beyond the maximum.
    pub(super) has_more: bool,
    /// Identifier of the job and number of the subtask that has replaced it, as a client has read it.
    pub(super) superseded_by: Option<(String, u32)>,
}

/// Payload that a command may have given to a subtask.
#[derive(Clone, Copy, Debug)]
pub(super) struct Edition {
    /// Number of the command.
    pub(super) command: u64,
    /// Place of its answer.
    pub(super) answered: Option<usize>,
}

/// End of the last attempt.
#[derive(Clone, Copy, Debug)]
pub(super) struct TaskEnd {
    pub(super) end: RunEnd,
    pub(super) at: u64,
    /// Time without sleep.
    pub(super) awake: u64,
    pub(super) process: u32,
    /// Whether it survives a crash for certain.
    pub(super) is_durable: bool,
    /// Whether the service has it for certain: a report may be lost.
    pub(super) is_known: bool,
}

impl State {
    pub(super) fn begin_entry(&mut self, place: usize, entry: &Entry) {
        if matches!(entry.event, Event::Set { ms } if ms > BELIEVED) {
            self.clock_goes_on_until(entry.at);
        }
        (self.place, self.at, self.process) = (place, entry.at, entry.process);
        self.wall = entry.wall;
        match entry.event {
            Event::Set { ms } if ms > BELIEVED => self.doubted_until = entry.at + DOUBTED,
            Event::Opened { .. } => self.doubted_until = 0,
            _ => {}
        }
        let (wall, certain, awake) = (self.counted_wall(), self.certain_wall(), self.awake());
        let removes = self.doubted_until <= self.at;
        for job in &mut self.jobs {
            job.highest = job.highest.max(wall);
            let (lowest, highest) = job.walls;
            if removes {
                job.walls = (lowest.min(entry.wall), highest.max(wall));
            }
            let may_expire = |job: &Job| job.expires_at.is_none_or(|at| at <= job.highest);
            job.is_cancelled |= job.spec.expires.is_some() && may_expire(job);
            let is_expired = job.expires_at.is_some_and(|at| at <= certain);
            job.expired_since = job.expired_since.or(Some(awake)).filter(|_| is_expired);
            let is_due = job.spec.delay.is_some() && job.run_at.is_some_and(|at| at <= job.highest);
            if is_due && !job.spec.has_steps() {
                job.may_enter(place);
            }
        }
    }

    /// Notes the time that the clock shows before it is set far forward. The service removes jobs by it
    /// until it follows the clock.
    fn clock_goes_on_until(&mut self, at: u64) {
        if self.doubted_until <= at {
            let wall = self.wall + (at - self.at) + FOLLOWS;
            self.jobs.iter_mut().for_each(|job| job.walls.1 = job.walls.1.max(wall));
        }
    }

    /// Returns the highest wall time that the service may see now: it follows a clock that was set
    /// back after some seconds.
    pub(super) fn counted_wall(&self) -> u64 {
        match self.counted {
            Some((wall, at)) if self.at < at + FOLLOWS => self.wall.max(wall + (self.at - at)),
            _ => self.wall,
        }
    }

    /// Returns a wall time that the service certainly sees or is past: none while it may not have followed
    /// the clock.
    fn certain_wall(&self) -> u64 {
        let changed = self.set_at.into_iter().chain(self.woke_at).max();
        if changed.is_some_and(|at| self.at <= at + FOLLOWS) { 0 } else { self.wall }
    }

    /// Returns the time without the sleep of the machine.
    pub(super) fn awake(&self) -> u64 {
        self.at - self.slept
    }

    pub(super) fn fail(&mut self, why: String) {
        self.broken.push(format!("{:5}.{:03} {why}", self.at / 1000, self.at % 1000));
    }

    pub(super) fn task(&mut self, run: Run) -> &mut Task {
        let job = &mut self.jobs[run.job];
        &mut job.tasks[job.spec.place(run.number)]
    }

    pub(super) fn keys_of(&self, run: Run) -> SubtaskKeys {
        let subtasks = &self.jobs[run.job].spec.subtasks;
        // A split and a fan-in have none.
        subtasks.get(run.number as usize).cloned().unwrap_or_default()
    }

    /// Returns the tasks with a key, with their jobs' numbers and their own.
    pub(super) fn with_key(&self, key: u8) -> Vec<(usize, usize)> {
        self.conflicting(&SubtaskKeys { all: vec![key], ..SubtaskKeys::default() })
    }

    /// Returns the tasks that conflict with one with these keys, with their jobs' numbers and their
    /// own.
    pub(super) fn conflicting(&self, with: &SubtaskKeys) -> Vec<(usize, usize)> {
        let mut found = Vec::new();
        for (number, job) in self.jobs.iter().enumerate() {
            for (place, keys) in job.spec.subtasks.iter().enumerate() {
                if keys.conflicts(with) {
                    found.push((number, place));
                }
            }
        }
        found
    }

    /// Notes that the ends of a job's subtasks are on the disk.
    pub(super) fn settle(&mut self, job: usize) {
        for task in &mut self.jobs[job].tasks {
            task.end.iter_mut().filter(|end| end.is_known).for_each(|end| end.is_durable = true);
        }
    }

    /// Notes that the process has ended: its attempts, and which ends survive.
    pub(super) fn process_ended(&mut self) {
        let (awake, is_full, full_until) = (self.awake(), self.is_full, self.full_until);
        let process = self.process;
        let is_written = |since: u64| !is_full && since.max(full_until) + WRITTEN < awake;
        for task in self.jobs.iter_mut().flat_map(|job| &mut job.tasks) {
            task.unseen += 1;
            // An earlier process has ended already, and with it what it had not written.
            if let Some(end) = task.end.as_mut().filter(|end| end.process == process) {
                end.is_durable |= end.is_known && is_written(end.awake);
                // The crash may have undone a success.
                if end.is_known && !end.is_durable && task.has_succeeded {
                    (task.has_succeeded, task.is_unknown) = (false, true);
                }
            }
            if task.running.take_if(|run| !run.is_lease).is_some() {
                (task.is_unknown, task.end) = (true, None);
            }
        }
        self.full(false);
        self.rated.clear();
        self.rated_keys.clear();
        self.schedules.values_mut().for_each(ScheduleState::process_ended);
    }

    pub(super) fn set_by(&mut self, ms: i64) {
        self.set_at = Some(self.at);
        if ms < 0 {
            let wall = self.wall.saturating_add_signed(-ms);
            self.counted = Some((wall.max(self.counted_wall()), self.at));
        }
    }

    pub(super) fn full(&mut self, is_full: bool) {
        if self.is_full {
            self.full_until = self.awake();
        }
        self.is_full = is_full;
    }
}

/// What a history says about a schedule.
#[derive(Debug, Default)]
pub(super) struct ScheduleState {
    /// Settings that were sent, each with its answer's wall time.
    pub(super) settings: Vec<Settings>,
    /// It was removed or may have been, so a moment may come again.
    pub(super) is_removed: bool,
    /// Wall time since which it certainly fires.
    pub(super) active_since: Option<u64>,
    /// Jobs of it that run.
    pub(super) running: BTreeSet<String>,
}

/// Settings of a schedule, as an operator sent them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Settings {
    pub(super) period: u64,
    pub(super) skips_overlap: bool,
}

impl ScheduleState {
    pub(super) fn process_ended(&mut self) {
        self.running.clear();
    }
}

/// What a history says about a follower.
#[derive(Debug, Default)]
pub(super) struct FollowerState {
    pub(super) last: Option<(u64, u64)>,
    /// It follows from the present on.
    pub(super) begins: bool,
    /// Place in the history since which nothing is missing.
    pub(super) since: usize,
    pub(super) accepted: BTreeSet<String>,
    pub(super) ended: BTreeSet<String>,
}
