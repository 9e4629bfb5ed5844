//! Reference model of order: a list of tasks in the order of submission, slow and plain.

use std::collections::BTreeSet;

use super::program::{Claims, Features, Use};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    /// Failed, and keeps its keys.
    Stopped,
    Cancelled,
    Ended,
}

#[derive(Clone, Debug)]
struct Task {
    claims: Claims,
    state: State,
}

/// State of an executor, as its promises describe it.
#[derive(Clone, Debug)]
pub struct Model {
    features: Features,
    slots: usize,
    /// Tasks in the order of submission.
    tasks: Vec<Task>,
    paused: BTreeSet<u8>,
}

impl Model {
    pub(super) fn new(slots: usize, features: Features) -> Self {
        Model { features, slots, tasks: Vec::new(), paused: BTreeSet::new() }
    }

    pub(super) fn submit(&mut self, claims: Claims) -> usize {
        self.tasks.push(Task { claims, state: State::Waiting });
        self.tasks.len() - 1
    }

    /// Records that a task has started, if it is allowed to.
    pub(super) fn start(&mut self, task: usize) -> Result<(), String> {
        let state = self.tasks.get(task).map(|it| it.state);
        if state != Some(State::Waiting) {
            return Err(format!("task {task} starts, but is {state:?}"));
        }
        if !self.may_start(task, &self.over()) {
            return Err(format!("task {task} starts too early"));
        }
        if self.running().len() >= self.slots {
            return Err(format!("task {task} starts without a slot"));
        }
        self.tasks[task].state = State::Running;
        Ok(())
    }

    pub(super) fn end(&mut self, task: usize, fails: bool) {
        let keys: Vec<u8> = self.tasks[task].claims.uses().iter().map(|(key, _)| *key).collect();
        self.tasks[task].state = match fails && !keys.is_empty() {
            true if self.features.failed_keep_keys => State::Stopped,
            true => {
                self.paused.extend(keys);
                State::Ended
            }
            false => State::Ended,
        };
    }

    pub(super) fn cancel(&mut self, task: usize) {
        self.tasks[task].state = State::Cancelled;
    }

    pub(super) fn pause(&mut self, key: u8) {
        self.paused.insert(key);
    }

    pub(super) fn resume(&mut self, key: u8, given_up: Option<usize>) {
        self.paused.remove(&key);
        if let Some(task) = given_up {
            assert!(self.is_stopped_on(task, key), "task {task} does not keep key {key}");
        }
        if let Some(task) = given_up.or_else(|| self.stopped_head(key)) {
            self.tasks[task].state = State::Ended;
        }
    }

    pub(super) fn resize(&mut self, slots: usize) {
        self.slots = slots;
    }

    /// Whether the effect of a pause of this key is certain: not if a rollup may have been granted the
    /// key, nor if a cancelled task may or may not have left it.
    pub(super) fn may_pause(&self, key: u8) -> bool {
        let has = |task: &Task| task.claims.uses().iter().any(|(its, _)| *its == key);
        let is_uncertain = |task: &Task| match task.state {
            State::Waiting => {
                self.features.pause_spares_rollups && task.claims.uses().len() > 1 && has(task)
            }
            State::Cancelled => !self.features.cancelled_leave_at_once && has(task),
            State::Running | State::Stopped | State::Ended => false,
        };
        !self.tasks.iter().any(is_uncertain)
    }

    /// Whether a failure of this task has a certain effect on all its keys.
    pub(super) fn may_fail(&self, task: usize) -> bool {
        self.tasks[task].claims.uses().iter().all(|(key, _)| self.may_pause(*key))
    }

    /// First failed task that keeps this key.
    pub(super) fn stopped_head(&self, key: u8) -> Option<usize> {
        (0..self.tasks.len()).find(|task| self.is_stopped_on(*task, key))
    }

    fn is_stopped_on(&self, task: usize, key: u8) -> bool {
        let Task { claims, state } = &self.tasks[task];
        *state == State::Stopped && claims.uses().iter().any(|(its, _)| *its == key)
    }

    pub(super) fn running(&self) -> Vec<usize> {
        self.in_state(State::Running)
    }

    pub(super) fn waiting(&self) -> Vec<usize> {
        self.in_state(State::Waiting)
    }

    fn in_state(&self, state: State) -> Vec<usize> {
        (0..self.tasks.len()).filter(|&task| self.tasks[task].state == state).collect()
    }

    /// Number of tasks that must run: as many as there are slots, or all that may.
    pub(super) fn expected_running(&self) -> usize {
        let (running, over) = (self.running().len(), self.over());
        let ready = self.waiting().into_iter().filter(|&task| self.may_start(task, &over)).count();
        running.max(self.slots.min(running + ready))
    }

    /// For each task, whether it has left its keys.
    fn over(&self) -> Vec<bool> {
        let mut over = Vec::new();
        for (number, task) in self.tasks.iter().enumerate() {
            over.push(match task.state {
                State::Ended => true,
                State::Cancelled => {
                    self.features.cancelled_leave_at_once || self.may_start(number, &over)
                }
                State::Waiting | State::Running | State::Stopped => false,
            });
        }
        over
    }

    /// Whether none of its keys is paused, and no earlier task that has its keys stands in its way.
    /// `over` has an entry for each earlier task, at least.
    fn may_start(&self, number: usize, over: &[bool]) -> bool {
        let claims = &self.tasks[number].claims;
        let before = || {
            let earlier = self.tasks[..number].iter().zip(over);
            earlier.filter(|(_, over)| !**over).map(|(task, _)| &task.claims)
        };
        claims.uses().iter().all(|(key, how)| {
            let limits = |other: &Claims| limit_of(other, *key);
            let fits = |most: u16| {
                // Limits hold in order: a lower one before it counts as well.
                let least = before().filter_map(limits).fold(most, u16::min);
                before().filter_map(limits).count() < least.into()
            };
            let is_limit_kept = match how {
                Use::Limited(most) => fits(*most),
                Use::Exclusive | Use::Shared => true,
            };
            !self.paused.contains(key) && is_limit_kept
        }) && before().all(|other| !conflict(claims, other))
    }
}

fn limit_of(claims: &Claims, key: u8) -> Option<u16> {
    claims.uses().iter().find_map(|(its, how)| match how {
        Use::Limited(most) if *its == key => Some(*most),
        _ => None,
    })
}

fn conflict(one: &Claims, other: &Claims) -> bool {
    if [one, other].contains(&&Claims::Barrier) {
        return true;
    }
    let meet = |(key, how): &(u8, Use)| {
        other.uses().iter().any(|(its, others)| key == its && !runs_beside(*how, *others))
    };
    one.uses().iter().any(meet)
}

/// Whether two uses of a key need not wait for each other, apart from a limit.
fn runs_beside(one: Use, other: Use) -> bool {
    matches!((one, other), (Use::Shared, Use::Shared) | (Use::Limited(_), Use::Limited(_)))
}
