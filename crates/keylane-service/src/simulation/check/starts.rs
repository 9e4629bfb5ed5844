//! Rules for the start of an attempt.

use super::state::{FOLLOWS, Job, State, Task, WRITTEN};
use crate::simulation::history::{Command, Run};
use crate::simulation::work::{
    BURST, FAN_IN, JobKind, KEY_INTERVAL, RATE, RunEnd, SLOTS, SMALL, SMALL_AT_ONCE, SPLIT,
    SubtaskKeys,
};

/// Time for which an attempt that was on its way may still begin, in milliseconds: a handler, and a
/// lease whose claim waits for further leases.
const ON_ITS_WAY: u64 = 50;
const LEASE_ON_ITS_WAY: u64 = 8_000;

/// Difference in the delays of two starts, from the decision to the handler, in milliseconds.
const KEY_DELAY: u64 = 50;

/// Difference of two clocks in whole milliseconds.
const ROUNDING: u64 = 5;

impl State {
    pub(super) fn started(&mut self, run: Run) {
        let mut wrong: Vec<String> = self.fence(run).into_iter().collect();
        wrong.extend(self.overlap(run));
        wrong.extend(self.order(run));
        wrong.extend(self.repetition(run));
        wrong.extend(self.backoff(run));
        wrong.extend(self.hold(run));
        wrong.extend(self.time(run));
        wrong.extend(self.steps(run));
        wrong.extend(self.limits(run));
        wrong.extend(self.replacement(run));
        wrong.extend(self.payload(run));
        wrong.extend(self.after(run));
        for why in wrong {
            self.fail(format!("{run:?} {why}"));
        }
        let process = self.process;
        let keys = self.keys_of(run);
        for key in &keys.all {
            // Starts of subtasks that share or limit a key may be seen in another order.
            let highest = self.fences.entry(*key).or_default();
            *highest = (*highest).max(run.fence);
            if !keys.shared.contains(key) && keys.limit.is_none() {
                self.exclusive_fences.insert(*key, run.fence);
            }
        }
        self.all_fences.insert(run.fence);
        self.enter(run);
        let at = self.at;
        if let Some(last) = self.both(run).1.last {
            self.followed_at.insert(last.fence, at);
        }
        // A command without an answer may be executed after this start.
        let mut open = self.open.values();
        let may_retry = open.any(
            |(command, _)| matches!(command, Command::RetryHead { key } if keys.all.contains(key)),
        );
        let task = self.task(run);
        task.starts += 1;
        (task.running, task.last, task.end) = (Some(run), Some(run), None);
        (task.started_in, task.is_unknown) = (process, run.is_lease);
        // A success that a crash has undone counts no more.
        (task.may_retry, task.held_until, task.has_succeeded) = (may_retry, 0, false);
        task.unseen = 0;
        if run.is_lease {
            task.leased_in = Some(process);
        }
    }

    /// An attempt has the submitted payload, or one from a command; not an earlier one than that of an answered command.
    fn payload(&mut self, run: Run) -> Option<String> {
        let task = self.task(run);
        let is_known = match run.edition {
            None => !task.is_edited,
            Some(edition) => task.editions.iter().any(|one| one.command == edition),
        };
        (!is_known).then(|| format!("has another payload than those of {:?}", task.editions))
    }

    /// Fences rise for each key, except among subtasks that share or limit it, and are given once.
    fn fence(&self, run: Run) -> Option<String> {
        let keys = self.keys_of(run);
        let highest_of = |key: &u8| match keys.shared.contains(key) || keys.limit.is_some() {
            true => self.exclusive_fences.get(key),
            false => self.fences.get(key),
        };
        let highest = keys.all.iter().filter_map(highest_of).max().copied();
        if highest.is_some_and(|highest| highest >= run.fence) {
            return highest.map(|highest| format!("has a fence below {highest}"));
        }
        self.all_fences.contains(&run.fence).then(|| "has the fence of another start".into())
    }

    /// Subtasks with a common key that not both share do not run at the same time.
    fn overlap(&self, run: Run) -> Vec<String> {
        let mut wrong = Vec::new();
        for (job, number) in self.conflicting_with(run) {
            let task = &self.jobs[job].tasks[number];
            let Some(other) = task.running else { continue };
            let runs = !other.is_lease || self.at + ROUNDING < task.held_until;
            if runs && other.fence != run.fence {
                wrong.push(format!("overlaps {other:?}"));
            }
        }
        wrong.extend(self.too_many(run));
        let (_, task) = self.both(run);
        if let Some(other) = task.running {
            let until = task.held_until;
            if !other.is_lease || self.at + ROUNDING < until {
                wrong.push(format!("overlaps its attempt {other:?}"));
            }
        }
        wrong
    }

    /// Of the subtasks that limit a key, at most as many run as the least limit of them.
    fn too_many(&self, run: Run) -> Option<String> {
        let keys = self.keys_of(run);
        let limit = keys.limit?;
        keys.all.iter().filter(|key| !keys.shared.contains(key)).find_map(|key| {
            let (mut running, mut least) = (1, limit);
            let all = self.jobs.iter().flat_map(|job| job.spec.subtasks.iter().zip(&job.tasks));
            for (others, task) in all {
                let Some(other) = task.running.filter(|other| other.fence != run.fence) else {
                    continue;
                };
                let has_key = others.all.contains(key) && !others.shared.contains(key);
                let runs = !other.is_lease || self.at + ROUNDING < task.held_until;
                let is_itself = (other.job, other.number) == (run.job, run.number);
                if let Some(limit) = others.limit.filter(|_| has_key && runs && !is_itself) {
                    (running, least) = (running + 1, least.min(limit));
                }
            }
            (running > least)
                .then(|| format!("is one of {running} with key {key}, and {least} may run"))
        })
    }

    /// Of two subtasks with a common key that not both share, the one that entered first has ended
    /// for good before the other begins.
    fn order(&self, run: Run) -> Vec<String> {
        let mut wrong = Vec::new();
        let this = (run.job, self.jobs[run.job].spec.place(run.number));
        for other in self.conflicting_with(run) {
            let task = &self.jobs[other.0].tasks[other.1];
            if self.is_before(other, this) && !self.may_be_over(other) {
                wrong.push(format!("begins before subtask {} of job {} ends", other.1, other.0));
            }
            // An end that was not on the disk may be undone by a crash, unless a remote worker has
            // begun behind it.
            let was_behind = task.started_in == self.process || task.leased_in.is_some();
            if self.is_before(this, other) && task.starts > 0 && was_behind {
                wrong.push(format!("begins after subtask {} of job {}", other.1, other.0));
            }
        }
        wrong
    }

    /// A subtask that has ended for good does not run again, and each attempt has a higher number.
    fn repetition(&self, run: Run) -> Option<String> {
        let (job, task) = self.both(run);
        if job.is_retried {
            return None;
        }
        if job.spec.kind.attempts() < run.attempt && !task.has_more {
            return Some("is more than the maximum".into());
        }
        let last = task.last?;
        // A released attempt does not count.
        let counts = task.end.is_none_or(|end| end.end != RunEnd::Released);
        let least = last.attempt + u32::from(counts);
        if task.started_in == self.process && run.attempt < least && !task.may_retry {
            return Some(format!("follows attempt {}", last.attempt));
        }
        let end = task.end.filter(|end| end.is_known)?;
        let survives = end.process == self.process || end.is_durable;
        (survives && is_final(job, last, end.end) && !task.may_retry)
            .then(|| format!("runs again after {:?}", end.end))
    }

    /// The next attempt does not begin before its backoff is over.
    fn backoff(&self, run: Run) -> Option<String> {
        let (job, task) = self.both(run);
        let end = task.end.filter(|end| end.is_known && !task.may_retry && !job.is_retried)?;
        let wait = match end.end {
            RunEnd::Failed { after: Some(after) } => after,
            RunEnd::Failed { after: None } | RunEnd::GaveUp => job.spec.kind.backoff(),
            RunEnd::Succeeded | RunEnd::FailedForGood | RunEnd::Released => return None,
        };
        // A restart knows only the wall clock, so a step before it may shorten the wait. The end of the
        // wait may have been stored before the service followed the step.
        let was_set = self.set_at.is_some_and(|set| set + FOLLOWS >= end.at);
        let survives = end.process == self.process || (end.is_durable && !was_set);
        let passed = self.at - end.at;
        (survives && passed + ROUNDING < wait)
            .then(|| format!("begins {passed} ms after {:?}, and not {wait}", end.end))
    }

    /// Nothing begins that is cancelled or paused for certain.
    fn hold(&self, run: Run) -> Vec<String> {
        let (job, _) = self.both(run);
        let grace = if run.is_lease { LEASE_ON_ITS_WAY } else { ON_ITS_WAY };
        let holds = |since: Option<u64>| since.is_some_and(|since| since + grace < self.awake());
        let mut wrong = Vec::new();
        if holds(job.cancelled_since) && !job.is_retried {
            wrong.push("begins in a cancelled job".to_owned());
        }
        // An attempt chosen before may begin only when its start mark is on the disk.
        let is_written = |since: u64| since.max(self.full_until) + WRITTEN < self.awake();
        let is_late = holds(job.expired_since) && job.expired_since.is_some_and(is_written);
        if is_late && !self.is_full && !job.is_retried {
            wrong.push("begins in an expired job".to_owned());
        }
        if holds(job.pause.since) {
            wrong.push("begins in a paused job".to_owned());
        }
        let kind = JobKind::ALL.iter().position(|kind| *kind == job.spec.kind).unwrap() as u8;
        if self.kinds.get(&kind).is_some_and(|pause| holds(pause.since)) {
            wrong.push("begins in a paused kind".to_owned());
        }
        for key in self.keys_of(run).all {
            if self.keys.get(&key).is_some_and(|pause| holds(pause.since)) {
                wrong.push(format!("begins behind the paused key {key}"));
            }
        }
        wrong
    }

    /// Notes that a subtask is in the order: it has begun.
    fn enter(&mut self, run: Run) {
        let place = self.place;
        let job = &mut self.jobs[run.job];
        job.walls = (self.wall, self.wall);
        match run.number {
            // The subtasks enter after it.
            SPLIT => job.may_enter(place),
            FAN_IN => {}
            _ => {
                job.may_enter(place);
                job.entered = job.entered.or(Some(place));
            }
        }
        let begins_at_once = job.begins_at_once(self.process);
        if job.spec.kind == JobKind::Rated && begins_at_once {
            self.rated.push(self.at);
            let at = self.at;
            let keys = self.keys_of(run);
            let own = keys.all.into_iter().filter(|key| !keys.shared.contains(key));
            self.rated_keys.extend(own.map(|key| (key, at)));
        }
    }

    /// Nothing begins before the job's time. A retry begins at once.
    fn time(&self, run: Run) -> Option<String> {
        let (job, _) = self.both(run);
        let at = job.run_at.filter(|at| !job.is_retried && job.highest + ROUNDING < *at)?;
        Some(format!("begins at wall time {} and not {at}", job.highest))
    }

    /// The split comes before the subtasks, and the fan-in after they have succeeded.
    fn steps(&self, run: Run) -> Option<String> {
        let (job, _) = self.both(run);
        if !job.spec.has_steps() || job.is_retried {
            return None;
        }
        let may_have_succeeded = |task: &Task| task.has_succeeded || task.is_unknown;
        match run.number {
            SPLIT => {
                let mut tasks = job.tasks[..job.spec.subtasks.len()].iter();
                let survives = |task: &Task| task.starts > 0 && task.started_in == self.process;
                tasks.any(survives).then(|| "begins after a subtask".into())
            }
            FAN_IN => {
                let mut tasks = job.tasks[..job.spec.subtasks.len()].iter().enumerate();
                let is_missing = |(number, task): (usize, &Task)| {
                    !may_have_succeeded(task)
                        && task.unseen == 0
                        && !self.may_be_superseded((run.job, number))
                };
                tasks.any(is_missing).then(|| "begins before all subtasks have succeeded".into())
            }
            _ => {
                let split = &job.tasks[job.spec.place(SPLIT)];
                (!may_have_succeeded(split) && split.unseen == 0)
                    .then(|| "begins before the split has succeeded".into())
            }
        }
    }

    /// The slots, and the limits of a tenant and of a kind.
    fn limits(&self, run: Run) -> Vec<String> {
        let mut wrong = Vec::new();
        let running_of = |is_counted: &dyn Fn(&Job) -> bool| {
            let jobs = self.jobs.iter().filter(|job| is_counted(job));
            let tasks = jobs.flat_map(|job| &job.tasks);
            tasks.filter(|task| task.running.is_some_and(|run| !run.is_lease)).count()
        };
        let is_small = |job: &Job| job.spec.tenant == Some(SMALL);
        if !run.is_lease && running_of(&|_| true) >= SLOTS {
            wrong.push("has no slot".into());
        }
        if is_small(&self.jobs[run.job]) && !run.is_lease && running_of(&is_small) >= SMALL_AT_ONCE
        {
            wrong.push("is one more than its tenant may run".into());
        }
        if self.jobs[run.job].spec.kind != JobKind::Rated {
            return wrong;
        }
        let begins_at_once = self.jobs[run.job].begins_at_once(self.process);
        // An attempt chosen before may begin only when its start mark is on the disk.
        let written =
            |since: u64| !self.is_full && since.max(self.full_until) + WRITTEN < self.awake();
        let most = self.rated_limits.most(written);
        if running_of(&|job| job.spec.kind == JobKind::Rated) >= most {
            wrong.push("is one more than its kind may run".into());
        }
        if !begins_at_once {
            return wrong;
        }
        let keys = self.keys_of(run);
        for key in keys.all.iter().filter(|key| !keys.shared.contains(key)) {
            let last = self.rated_keys.get(key);
            if let Some(last) = last.filter(|last| *last + KEY_INTERVAL > self.at + KEY_DELAY) {
                wrong.push(format!("follows a start with key {key} by {} ms", self.at - last));
            }
        }
        for (before, first) in self.rated.iter().enumerate() {
            let starts = (self.rated.len() - before) as u64 + 1;
            let passed = self.at - first + ON_ITS_WAY;
            if starts > BURST + (RATE * passed).div_ceil(1000) {
                wrong.push(format!("is the start {starts} in {passed} ms"));
            }
        }
        wrong
    }

    pub(super) fn both(&self, run: Run) -> (&Job, &Task) {
        let job = &self.jobs[run.job];
        (job, &job.tasks[job.spec.place(run.number)])
    }

    /// Returns the other subtasks that conflict with this one: by a key, or in a job with barriers.
    fn conflicting_with(&self, run: Run) -> Vec<(usize, usize)> {
        let keys = self.keys_of(run);
        let mut found = self.conflicting(&keys);
        let subtasks = &self.jobs[run.job].spec.subtasks;
        if (run.number as usize) < subtasks.len() {
            let is_apart = |other: &SubtaskKeys| keys.is_barrier || other.is_barrier;
            let apart = subtasks.iter().enumerate().filter(|(_, other)| is_apart(other));
            found.extend(apart.map(|(number, _)| (run.job, number)));
        }
        found.retain(|other| *other != (run.job, run.number as usize));
        found
    }

    /// Returns whether a subtask certainly entered before another one.
    pub(super) fn is_before(&self, one: (usize, usize), other: (usize, usize)) -> bool {
        let (first, second) = (&self.jobs[one.0], &self.jobs[other.0]);
        if first.is_retried || second.is_retried {
            return false;
        }
        match one.0 == other.0 {
            true => one.1 < other.1,
            false => {
                let is_in = |job: &Job| job.accepted.is_some() && job.enters_at_once();
                let is_batch = first.spec.batch.is_some() && first.spec.batch == second.spec.batch;
                // The jobs of a batch are accepted in their order.
                (is_batch && one.0 < other.0 && is_in(first) && is_in(second))
                    || first.entered.zip(second.enters).is_some_and(|(one, other)| one < other)
            }
        }
    }

    /// Returns whether a subtask has possibly ended for good.
    pub(super) fn may_be_over(&self, (number_of_job, number): (usize, usize)) -> bool {
        let job = &self.jobs[number_of_job];
        let task = &job.tasks[number];
        if job.is_cancelled || task.may_skip || self.may_be_superseded((number_of_job, number)) {
            return true;
        }
        let attempts = task.last.map_or(0, |last| last.attempt) + task.unseen;
        let has_no_more = attempts >= job.spec.kind.attempts();
        let has_keys = job.spec.subtasks.get(number).is_some_and(|keys| !keys.all.is_empty());
        match task.end.filter(|end| end.is_known || job.spec.kind == JobKind::Lease) {
            Some(end) => match end.end {
                RunEnd::Succeeded => true,
                // One without a key stops none, and fails.
                _ if job.spec.kind == JobKind::Stop && has_keys => false,
                RunEnd::FailedForGood => true,
                // A release may have come when the lease was already lost.
                RunEnd::Failed { .. } | RunEnd::GaveUp | RunEnd::Released => has_no_more,
            },
            // A crash or an expiry has ended its last attempt.
            None => (task.is_unknown || task.unseen > 0) && has_no_more,
        }
    }
}

/// Returns whether a subtask is over after an attempt that ended so.
fn is_final(job: &Job, run: Run, end: RunEnd) -> bool {
    match end {
        RunEnd::Succeeded | RunEnd::FailedForGood => true,
        RunEnd::Failed { .. } | RunEnd::GaveUp => run.attempt >= job.spec.kind.attempts(),
        RunEnd::Released => false,
    }
}
