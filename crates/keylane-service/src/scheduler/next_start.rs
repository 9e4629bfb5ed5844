//! Choice of the next start, and the limits of kinds.

use keylane_allocate::{Rule, Take};

use super::job::StepState;
use super::kinds::KindCapacity;
use super::state::{RunningTask, Scheduler};
use super::task::{ScheduledTask, TaskPhase};
use super::timers::TimerEvent;
use super::{DecisionView, KindId, KindLimits, RunStart, Step};

impl Scheduler {
    /// Returns the next step to run, if a slot is free and a step can start.
    ///
    /// `None` while a slot is free means that no step can start, except those of jobs beyond the
    /// bound on active jobs.
    pub fn poll_start(&mut self, now: u64) -> Option<RunStart> {
        let now = self.at(now);
        if self.draining || self.allocator.busy() >= self.allocator.workers() {
            return None;
        }
        let (share, decision) = loop {
            if !self.kinds.is_empty() {
                self.hold_who_has_no_place(now);
            }
            if let Some(decision) = self.allocator.next(now) {
                break decision;
            }
            if !self.release_until_offered(now) {
                return None;
            }
        };
        let slot = self.by_share[&share];
        let task = match decision.take {
            Take::Ready if self.may_only_split(slot, now) => {
                // The allocator has counted a subtask, which stays ready, instead of the split.
                self.allocator.came(share, 1, 0, now);
                self.take_split(slot, now)
            }
            Take::Split => self.take_split(slot, now),
            Take::Ready => self.take_ready(slot),
        };
        Some(self.start(slot, task, decision.rule, now))
    }

    /// Adds at most `most` starts to `starts` and returns their number.
    pub fn poll_starts(&mut self, most: usize, starts: &mut Vec<RunStart>, now: u64) -> usize {
        let before = starts.len();
        starts.extend(std::iter::from_fn(|| self.poll_start(now)).take(most));
        starts.len() - before
    }

    /// Asks the allocator until it names a job of a kind with free capacity, or no job, while no
    /// job is held without need. Each iteration holds a job that was not held, or releases one
    /// whose kind has free capacity.
    fn hold_who_has_no_place(&mut self, now: u64) {
        loop {
            match self.allocator.peek(now) {
                Some(share) => {
                    let slot = self.by_share[&share];
                    if !self.is_held_back(slot, now) && !self.is_held_by_key(slot, now) {
                        return;
                    }
                }
                None => match self.kinds.with_room(now) {
                    Some(kind) => self.let_go(kind, now),
                    None => return,
                },
            }
        }
    }

    /// Holds the job if its kind has no free capacity.
    fn is_held_back(&mut self, slot: u32, now: u64) -> bool {
        let id = self.jobs[slot].kind;
        let next_is_step = self.next_is_step(slot);
        let Some(kind) = self.kinds.get(id) else { return false };
        if kind.limits.subtasks_only && next_is_step {
            return false;
        }
        if let KindCapacity::Places(_) = kind.room(now) {
            return false;
        }
        self.hold(slot, now);
        self.set_token_timer(id, now);
        true
    }

    /// Whether the job can start its split or fan-in next.
    fn next_is_step(&self, slot: u32) -> bool {
        matches!(self.jobs[slot].split, StepState::Pending(_)) || self.ready_step(slot).is_some()
    }

    /// Whether the job has ready subtasks, for which its kind has no free capacity, and a split that has not begun, which needs none.
    /// A crash during a split can leave both.
    fn may_only_split(&mut self, slot: u32, now: u64) -> bool {
        let job = &self.jobs[slot];
        let id = job.kind;
        if !matches!(job.split, StepState::Pending(_)) {
            return false;
        }
        let Some(kind) = self.kinds.get(id) else { return false };
        kind.limits.subtasks_only && !matches!(kind.room(now), KindCapacity::Places(_))
    }

    /// The job's split or fan-in, if it is ready: it was started before, or every other subtask has
    /// finished.
    pub(super) fn ready_step(&self, slot: u32) -> Option<u32> {
        let job = &self.jobs[slot];
        let step = match (job.split, job.fan_in) {
            (StepState::Task, _) => Step::Split,
            (_, StepState::Task) => Step::FanIn,
            _ => return None,
        };
        let task = job.roll.find(&self.tasks, slot, step.number())?;
        (self.tasks[task].phase == TaskPhase::Ready).then_some(task)
    }

    /// Releases a job with a ready step that needs no capacity of its kind: it does not wait with
    /// the job's subtasks.
    pub(super) fn let_step_go(&mut self, slot: u32, now: u64) {
        let id = self.jobs[slot].kind;
        if !self.kinds.look(id).is_some_and(|kind| kind.limits.subtasks_only) {
            return;
        }
        if let Some(turn) = self.jobs[slot].held.take() {
            self.kinds.forget(id, turn);
            if !self.jobs[slot].paused {
                let share = self.share(slot);
                self.allocator.resume(share, now);
            }
        }
    }

    fn hold(&mut self, slot: u32, now: u64) {
        let share = self.share(slot);
        let job = &mut self.jobs[slot];
        let turn = self.kinds.hold(job.kind, slot, job.priority, job.turn, now);
        (job.held, job.turn) = (Some(turn), Some(turn));
        self.allocator.pause(share, now);
    }

    /// Releases jobs of the kind, one with an offer for each free place.
    pub(super) fn let_go(&mut self, id: KindId, now: u64) {
        let Some(kind) = self.kinds.get(id) else { return };
        let KindCapacity::Places(mut places) = kind.room(now) else { return };
        while places > 0
            && let Some(slot) = self.kinds.let_go(id, now)
        {
            let share = self.share(slot);
            let job = &mut self.jobs[slot];
            job.held = None;
            if job.paused {
                continue;
            }
            let offers = job.counts.ready > 0 || job.split != StepState::Over;
            // A job whose tenant starts nothing now leaves the place to others.
            places -= u64::from(offers && !self.allocator.is_stopped(job.tenant));
            self.allocator.resume(share, now);
        }
        self.kinds.forget_if_free(id);
    }

    /// Sets a timer for the next token of a kind that holds jobs because its bucket is empty.
    fn set_token_timer(&mut self, id: KindId, now: u64) {
        let Some(kind) = self.kinds.get(id) else { return };
        if let KindCapacity::Rate(Some(at)) = kind.room(now)
            && kind.has_held()
            && kind.timer != Some(at)
        {
            let earlier = kind.timer.replace(at);
            if let Some(earlier) = earlier {
                self.timers.call_off(earlier, TimerEvent::Token(id.0));
            }
            self.timers.set(at, TimerEvent::Token(id.0));
        }
    }

    pub(super) fn handle_token(&mut self, kind: u32, now: u64) {
        let id = KindId(kind);
        if let Some(kind) = self.kinds.get(id) {
            kind.timer = None;
        }
        self.let_go(id, now);
        self.set_token_timer(id, now);
    }

    /// Frees capacity of the kind. The first job that waits for it is released; the job that had
    /// it, unless finished, goes behind the waiting ones.
    pub(super) fn end_of_kind(&mut self, id: KindId, step: Step, had_it: Option<u32>, now: u64) {
        if self.kinds.is_empty() || !self.kinds.end(id, step) {
            return;
        }
        let Some(kind) = self.kinds.get(id) else { return };
        if !kind.has_held() {
            return;
        }
        // A step that needs no capacity does not go behind jobs that wait for it.
        let needs_place = !kind.limits.subtasks_only;
        let goes_behind = |slot: &u32| {
            self.jobs[*slot].held.is_none() && (needs_place || !self.next_is_step(*slot))
        };
        if let Some(slot) = had_it.filter(goes_behind) {
            self.hold(slot, now);
        }
        self.let_go(id, now);
        self.set_token_timer(id, now);
    }

    /// Fence of the next start.
    #[must_use]
    pub fn next_fence(&self) -> u64 {
        self.next_fence
    }

    /// Sets the limits of a kind. Running subtasks are not stopped.
    pub fn set_kind(&mut self, id: KindId, limits: KindLimits, now: u64) {
        let now = self.at(now);
        let frees_steps = limits.subtasks_only
            && self.kinds.look(id).is_some_and(|kind| !kind.limits.subtasks_only);
        let old_rate = self.kinds.look(id).and_then(|kind| kind.limits.rate_per_key);
        if old_rate != limits.rate_per_key {
            self.key_rates.retire(id.0);
        }
        self.kinds.set(id, limits, now);
        if frees_steps {
            // Steps need no capacity from now on.
            for slot in self.kinds.held_of(id) {
                if self.next_is_step(slot) {
                    self.let_step_go(slot, now);
                }
            }
        }
        self.let_go(id, now);
        self.kinds.forget_if_free(id);
        self.set_token_timer(id, now);
    }

    pub(super) fn take_split(&mut self, slot: u32, now: u64) -> u32 {
        let job = &mut self.jobs[slot];
        let StepState::Pending(made) = job.split else { unreachable!("a split begins once") };
        job.split = StepState::Task;
        let task = self.tasks.insert(ScheduledTask::new(slot, Step::Split.number(), made, now));
        job.roll.begin(Step::Split.number(), task);
        let share = self.share(slot);
        self.allocator.hold_splitter(share, true, now);
        task
    }

    /// Takes a ready task. A retried subtask goes first: others may wait behind it. A step goes
    /// before all, because it may be the only one that its kind lets start.
    fn take_ready(&mut self, slot: u32) -> u32 {
        let step = self.ready_step(slot);
        let job = &mut self.jobs[slot];
        if let Some(task) = step.or(job.ready.first()) {
            self.leave_phase(slot, task);
            return task;
        }
        let (number, made) = job.fresh.pop().expect("the allocator knows what is ready");
        job.counts.ready -= 1;
        let task = self.tasks.insert(ScheduledTask::new(slot, number, made, job.fresh_since));
        job.roll.begin(number, task);
        task
    }

    fn start(&mut self, slot: u32, task: u32, rule: Rule, now: u64) -> RunStart {
        let fence = self.next_fence;
        self.next_fence += 1;
        self.runs.insert(fence, RunningTask { task, since: now, rule, is_restored: false });
        self.lanes.keep_from_replacement(&self.tasks, task);
        self.take_key_tokens(slot, task, now);
        self.note_slot_wait(task, now);
        let begun = &mut self.tasks[task];
        begun.attempts += 1;
        begun.at = fence;
        let (step, attempt) = (Step::of(begun.number), begun.attempts);
        self.enter_phase(slot, task, TaskPhase::Running);
        let job = &mut self.jobs[slot];
        job.turn = None;
        let (tenant, priority) = (job.tenant, job.priority);
        let start = RunStart { job: job.number, step, attempt, fence, kind: job.kind, rule };
        self.kinds.note_start(start.kind, step);
        self.kinds.start(start.kind, step, priority, now);
        // The last token is gone: without a timer, no later call would release the held jobs.
        self.set_token_timer(start.kind, now);
        self.note_start_of_tenant(tenant, now);
        self.note_decision(DecisionView { at: self.shown(now), start });
        start
    }

    fn note_decision(&mut self, decision: DecisionView) {
        if self.decisions_kept == 0 {
            return;
        }
        if self.decisions.len() >= self.decisions_kept {
            self.decisions.pop_front();
        }
        self.decisions.push_back(decision);
    }
}
