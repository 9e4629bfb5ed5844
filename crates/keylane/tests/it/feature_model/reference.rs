//! Reference: a list of tasks in order of submission, and the rules by which they may or must run.
//!
//! Where the pool is free to choose (which task gets the worker, when a cancelled task leaves its
//! place, where a job's subtask has its place), a rule for "may" assumes what permits most, and a
//! rule for "must" what permits least.

use super::program::{Bound, Claim, Kind, Mode, Result, Role};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// Its delay ends at this time.
    Delayed(u64),
    Waiting,
    Running,
    /// Between two attempts: the next one is due at this time.
    Backoff(u64),
    Ended,
    /// Cancelled before it began. It keeps its place until its turn.
    Cancelled,
    /// It has no place any more: replaced, taken, withdrawn, or not run by a stopped pool.
    Gone,
}

#[derive(Clone, Debug)]
pub(super) struct Task {
    pub(super) claim: Claim,
    pub(super) role: Role,
    pub(super) kind: Kind,
    pub(super) result: Result,
    pub(super) state: State,
    /// Place in the order. Absent while it is delayed, and for subtasks of a job, whose places are
    /// unknown.
    pub(super) place: Option<u64>,
    pub(super) job: Option<usize>,
    /// Number of attempts that have begun.
    pub(super) attempts: u32,
    /// Whether it was cancelled while it ran.
    pub(super) told: bool,
    /// Keys that it may have had before they were paused. A task with several keys or a descriptor
    /// keeps them.
    pub(super) had: Vec<u32>,
    /// Whether it may have lost its place after it was cancelled: it was replaced or taken.
    pub(super) displaced: bool,
    /// Other end of its key, because of which it may be cancelled when its delay is over.
    pub(super) doubted: Option<(usize, bool)>,
    /// Whether a later latest task has replaced it.
    pub(super) superseded: bool,
}

impl Task {
    fn keys(&self) -> &[(u32, Mode)] {
        match &self.claim {
            Claim::Some { keys, .. } => keys,
            Claim::All => &[],
        }
    }

    pub(super) fn uses(&self, key: u32) -> Option<Mode> {
        self.keys().iter().find(|(own, _)| *own == key).map(|(_, mode)| *mode)
    }

    /// Returns whether its only claim is this key.
    pub(super) fn is_alone(&self, key: u32) -> bool {
        matches!(&self.claim, Claim::Some { keys, span: None } if keys.len() == 1 && keys[0].0 == key)
    }

    /// Returns whether it waits for several things, so that it may have one of its keys already.
    fn is_rollup(&self) -> bool {
        self.keys().len() > 1 || self.span().is_some()
    }

    pub(super) fn is_barrier(&self) -> bool {
        self.claim == Claim::All
    }

    fn span(&self) -> Option<(u8, u8)> {
        match &self.claim {
            Claim::Some { span, .. } => *span,
            Claim::All => None,
        }
    }

    /// Returns whether two tasks conflict, apart from limits.
    fn conflicts(&self, other: &Task) -> bool {
        let meets = |a: (u8, u8), b: (u8, u8)| a.0 < b.1 && b.0 < a.1;
        let described = self.span().zip(other.span()).is_some_and(|(a, b)| meets(a, b));
        let keys = self.keys().iter().any(|(key, own)| match (own, other.uses(*key)) {
            (_, None)
            | (Mode::Shared, Some(Mode::Shared))
            | (Mode::Limited(_), Some(Mode::Limited(_))) => false,
            (_, Some(_)) => true,
        });
        self.is_barrier() || other.is_barrier() || described || keys
    }

    /// Returns whether it was accepted and has not ended.
    pub(super) fn is_open(&self) -> bool {
        matches!(
            self.state,
            State::Delayed(_) | State::Waiting | State::Running | State::Backoff(_)
        )
    }

    /// Returns whether it may have a place in the order.
    pub(super) fn is_there(&self) -> bool {
        self.is_open() || self.state == State::Cancelled
    }

    /// Returns whether it holds its keys.
    fn is_active(&self) -> bool {
        matches!(self.state, State::Running | State::Backoff(_))
    }
}

/// What is known of a key.
#[derive(Clone, Debug, Default)]
pub(super) struct Key {
    pub(super) paused: bool,
    pub(super) stopped: bool,
    pub(super) failures: u32,
    pub(super) rate: Option<Bound>,
    /// Time at which the rate was set.
    pub(super) since: u64,
    /// Number of starts since then that may not exceed the rate.
    pub(super) begun: u64,
    /// Latest time at which its bucket is full if no token is taken, as far as starts are known.
    pub(super) full: u64,
    /// Time of the last event that may have taken tokens unseen, or changed their number.
    pub(super) blurred: Option<u64>,
    /// Its newest latest task that is in the order.
    pub(super) latest: Option<usize>,
    /// Its end, and whether that refuses later tasks.
    pub(super) end: Option<(usize, bool)>,
}

/// Longest time for which starts under an earlier rate can matter.
const FORGOTTEN: u64 = 200;

impl Key {
    fn is_held(&self) -> bool {
        self.paused || self.stopped
    }

    /// Returns whether the rate permits a start, if it was not used more than is known.
    fn may_have_token(&self, now: u64) -> bool {
        let earned = |rate: Bound| u64::from(rate.burst) + (now - self.since) / rate.interval;
        self.rate.is_none_or(|rate| self.begun < earned(rate))
    }

    /// Returns whether the rate certainly permits a start.
    fn has_token(&self, now: u64) -> bool {
        let Some(rate) = self.rate else { return true };
        let is_known = self.blurred.is_none_or(|blurred| now >= blurred + FORGOTTEN);
        is_known && self.full <= now + (u64::from(rate.burst) - 1) * rate.interval
    }

    /// A task takes a token now, or has taken it before.
    fn charge(&mut self, now: u64) {
        if let Some(rate) = self.rate {
            self.full = self.full.max(now) + rate.interval;
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct Reference {
    pub(super) tasks: Vec<Task>,
    pub(super) keys: Vec<Key>,
    /// Whether each job is paused.
    pub(super) paused_jobs: Vec<bool>,
    pub(super) now: u64,
    /// Last place that was given.
    pub(super) places: u64,
}

impl Reference {
    /// Returns the next place in the order.
    pub(super) fn place(&mut self) -> u64 {
        self.places += 1;
        self.places
    }

    pub(super) fn count(&self, is: impl Fn(&Task) -> bool) -> usize {
        self.tasks.iter().filter(|task| is(task)).count()
    }

    fn is_held(&self, task: &Task) -> bool {
        task.keys().iter().any(|(key, _)| self.keys[*key as usize].is_held())
    }

    /// Returns the tasks with an earlier place that are not certainly over.
    fn before(&self, n: usize) -> impl Iterator<Item = usize> + '_ {
        let place = self.tasks[n].place;
        (0..self.tasks.len()).filter(move |&other| {
            let task = &self.tasks[other];
            task.is_there() && task.place.is_some_and(|its| place.is_some_and(|own| its < own))
        })
    }

    /// Returns the first rule that forbids the start of a body now.
    pub(super) fn forbids(&self, n: usize) -> Option<String> {
        let task = &self.tasks[n];
        match task.state {
            State::Waiting => {}
            State::Backoff(due) if due <= self.now => {}
            state => return Some(format!("task {n} begins, and is {state:?}")),
        }
        for &(key, mode) in task.keys() {
            let known = &self.keys[key as usize];
            let had = task.state == State::Waiting && task.had.contains(&key);
            if known.is_held() && !had {
                return Some(format!("task {n} begins, and key {key} is paused or stopped"));
            }
            // It may have had the key before another task took the token, or the rate was changed.
            let is_granted =
                task.is_rollup() && (mode != Mode::Exclusive || known.blurred.is_some());
            let is_charged = task.state == State::Waiting && !is_granted;
            if is_charged && !known.may_have_token(self.now) {
                return Some(format!("task {n} begins without a token of key {key}"));
            }
        }
        let beside = (0..self.tasks.len())
            .find(|&m| m != n && self.tasks[m].is_active() && self.overlaps(n, m));
        if let Some(other) = beside {
            return Some(format!("task {n} begins beside {other}"));
        }
        let early =
            self.before(n).find(|&m| task.conflicts(&self.tasks[m]) && !self.may_be_over(m));
        if let Some(other) = early {
            return Some(format!("task {n} overtakes {other}"));
        }
        self.exceeds_limit(n, true).then(|| format!("task {n} begins beyond a limit"))
    }

    /// Returns whether two tasks must not run at the same time. A barrier is not ordered with the
    /// subtasks of jobs that enter later.
    fn overlaps(&self, n: usize, m: usize) -> bool {
        self.tasks[n].conflicts(&self.tasks[m])
    }

    /// Returns whether a limit of one of its keys is reached by earlier tasks; `known` counts only
    /// those that certainly have their keys or come before.
    fn exceeds_limit(&self, n: usize, known: bool) -> bool {
        self.tasks[n].keys().iter().any(|&(key, mode)| {
            let Mode::Limited(own) = mode else { return false };
            let (mut count, mut least) = (0, own);
            let earlier: Vec<usize> = self.before(n).collect();
            for m in (0..self.tasks.len()).filter(|&m| m != n) {
                let other = &self.tasks[m];
                let Some(Mode::Limited(its)) = other.uses(key) else { continue };
                let counts = match known {
                    true => {
                        other.is_active() || (other.state == State::Waiting && earlier.contains(&m))
                    }
                    false => {
                        other.is_active()
                            || earlier.contains(&m)
                            || (other.job.is_some() && other.is_there())
                    }
                };
                if counts {
                    count += 1;
                    least = least.min(its);
                }
            }
            count >= least
        })
    }

    /// Returns whether a task is over, or a cancelled one that could have left its place.
    fn may_be_over(&self, n: usize) -> bool {
        match self.tasks[n].state {
            State::Cancelled if self.tasks[n].displaced => true,
            State::Cancelled => self
                .before(n)
                .filter(|&m| self.tasks[n].conflicts(&self.tasks[m]))
                .all(|m| self.may_be_over(m)),
            _ => !self.tasks[n].is_open(),
        }
    }

    /// Returns whether a body must run, if a worker is idle.
    pub(super) fn must_begin(&self, n: usize) -> bool {
        let task = &self.tasks[n];
        match task.state {
            State::Waiting if task.job.is_none() => self.must_pass(n, true),
            State::Waiting => self.must_begin_subtask(n),
            State::Backoff(due) => due <= self.now && !self.is_held(task),
            _ => false,
        }
    }

    /// Returns whether a waiting or cancelled task must have reached its turn.
    fn must_pass(&self, n: usize, has_worker: bool) -> bool {
        let task = &self.tasks[n];
        // A rollup that waits for another key may have a token of this one.
        let is_reserved = |key: u32| {
            let is_waiting = |other: &Task| other.is_rollup() && other.state == State::Waiting;
            self.keys[key as usize].rate.is_some()
                && self
                    .before(n)
                    .any(|m| is_waiting(&self.tasks[m]) && self.tasks[m].uses(key).is_some())
        };
        let has_token = |key: u32| self.keys[key as usize].has_token(self.now);
        let has_tokens = task.keys().iter().all(|&(key, _)| has_token(key) && !is_reserved(key));
        let is_over = |m: usize| {
            let rated = |key: &u32| self.keys[*key as usize].rate.is_some();
            let other = &self.tasks[m];
            let is_rated = other.keys().iter().any(|(key, _)| rated(key));
            other.state == State::Cancelled && !is_rated && self.must_pass(m, has_worker)
        };
        has_worker
            && has_tokens
            && !self.is_held(task)
            && self.before(n).all(|m| !task.conflicts(&self.tasks[m]) || is_over(m))
            && !self.subtasks().any(|m| task.conflicts(&self.tasks[m]))
            && !self.exceeds_limit(n, false)
    }

    /// Returns the unfinished subtasks of jobs.
    fn subtasks(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.tasks.len()).filter(|&m| self.tasks[m].job.is_some() && self.tasks[m].is_there())
    }

    /// Returns whether a subtask must run: its job is the only one, and it conflicts with no other
    /// task.
    fn must_begin_subtask(&self, n: usize) -> bool {
        let task = &self.tasks[n];
        let job = task.job.expect("it is a subtask");
        let is_there = |m: &usize| *m != n && self.tasks[*m].is_there();
        let others = || (0..self.tasks.len()).filter(is_there);
        !self.paused_jobs[job]
            && !self.is_held(task)
            && task.keys().iter().all(|(key, _)| self.keys[*key as usize].has_token(self.now))
            && others().all(|m| match self.tasks[m].job {
                Some(other) => other == job && m > n,
                None => {
                    !task.conflicts(&self.tasks[m])
                        && task.keys().iter().all(|(key, _)| self.tasks[m].uses(*key).is_none())
                }
            })
    }

    /// A key is paused or stopped: tasks that may have it are noted.
    pub(super) fn hold(&mut self, key: u32) {
        let may_have = |&n: &usize| {
            let task = &self.tasks[n];
            let conflicts = |m: usize| {
                let other = &self.tasks[m];
                let modes = task.uses(key).zip(other.uses(key));
                let on_key = modes.is_some_and(|modes| {
                    !matches!(
                        modes,
                        (Mode::Shared, Mode::Shared) | (Mode::Limited(_), Mode::Limited(_))
                    )
                });
                other.is_barrier() || on_key
            };
            let is_free = || self.before(n).all(|m| !conflicts(m) || self.may_be_over(m));
            task.is_rollup()
                && task.state == State::Waiting
                && task.uses(key).is_some()
                && is_free()
        };
        if self.keys[key as usize].is_held() {
            return;
        }
        let noted: Vec<usize> = (0..self.tasks.len()).filter(may_have).collect();
        for n in noted {
            self.tasks[n].had.push(key);
        }
    }

    /// A key is resumed.
    pub(super) fn release(&mut self, key: u32) {
        let known = &mut self.keys[key as usize];
        (known.paused, known.stopped, known.failures) = (false, false, 0);
        for task in &mut self.tasks {
            task.had.retain(|had| *had != key);
        }
    }

    /// A body has begun.
    pub(super) fn begin(&mut self, n: usize) {
        let keys = self.tasks[n].keys().to_vec();
        let (is_rollup, is_subtask) = (self.tasks[n].is_rollup(), self.tasks[n].job.is_some());
        if self.tasks[n].state == State::Waiting {
            for (key, mode) in keys {
                let key = &mut self.keys[key as usize];
                // A rollup may begin beyond the rate; then the next token comes later. A subtask
                // may have taken its token before the rate was changed.
                let may_exceed = is_rollup && mode != Mode::Exclusive || is_subtask;
                key.begun += u64::from(!may_exceed);
                key.charge(self.now);
            }
        }
        self.tasks[n].state = State::Running;
        self.tasks[n].attempts += 1;
    }

    /// A task with this rate may take a token unseen: from here on, only time proves that there is
    /// one.
    pub(super) fn charge_unseen(&mut self) {
        for n in 0..self.tasks.len() {
            if self.tasks[n].state == State::Cancelled {
                for (key, _) in self.tasks[n].keys().to_vec() {
                    self.keys[key as usize].blurred = Some(self.now);
                }
            }
        }
    }

    /// Something with these claims takes a place behind the tasks of its keys.
    pub(super) fn pass(&mut self, n: usize) {
        let keys = self.tasks[n].keys().to_vec();
        for (key, _) in keys {
            // An end that refuses stays; the other one begins a new life.
            self.keys[key as usize].end = self.keys[key as usize].end.filter(|end| end.1);
        }
    }

    /// Returns whether a task is the newest latest one of its key.
    pub(super) fn is_latest(&self, n: usize) -> bool {
        self.keys.iter().any(|key| key.latest == Some(n))
    }

    /// Returns whether a key of the claims refuses tasks.
    pub(super) fn refuses(&self, claim: &Claim) -> bool {
        let Claim::Some { keys, .. } = claim else { return false };
        keys.iter().any(|(key, _)| self.keys[*key as usize].end.is_some_and(|end| end.1))
    }

    /// A body has ended with this result.
    pub(super) fn count_result(&mut self, n: usize, failed: bool, stop_after: u32) {
        if self.tasks[n].job.is_some() {
            return;
        }
        for (key, _) in self.tasks[n].keys().to_vec() {
            let known = &mut self.keys[key as usize];
            known.failures = if failed { known.failures + 1 } else { 0 };
            if known.failures >= stop_after {
                known.failures = 0;
                self.hold(key);
                self.keys[key as usize].stopped = true;
            }
        }
    }
}
