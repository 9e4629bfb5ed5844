//! Who starts next, and the limits that a kind has.

use keylane::allocate::{Claimant, Rule, Take};

use super::job::StepState;
use super::kinds::Room;
use super::scheduler::{Run, Scheduler};
use super::task::{Phase, Task};
use super::timers::Due;
use super::{DecisionView, KindId, KindLimits, Start, Step};

impl Scheduler {
    /// Something that is to be run now, if a slot is free and something could start.
    ///
    /// Nothing while a slot is free means that nothing could start, but for what the bound on active jobs
    /// keeps out.
    pub fn poll_start(&mut self, now: u64) -> Option<Start> {
        let now = self.at(now);
        if self.draining || self.allocator.busy() >= self.allocator.workers() {
            return None;
        }
        if !self.kinds.is_empty() {
            self.hold_who_has_no_place(now);
        }
        let decision = self.allocator.next(now)?;
        let Claimant::Job(share) = decision.to else { unreachable!("there is no loose work") };
        let slot = self.by_share[&share.serial()];
        let task = match decision.take {
            Take::Split => self.take_split(slot, now),
            Take::Ready => self.take_ready(slot),
        };
        Some(self.start(slot, task, decision.rule, now))
    }

    /// Puts into `starts` all that is to be run now, at most `most`, and says how much that is.
    pub fn poll_starts(&mut self, most: usize, starts: &mut Vec<Start>, now: u64) -> usize {
        let before = starts.len();
        starts.extend(std::iter::from_fn(|| self.poll_start(now)).take(most));
        starts.len() - before
    }

    /// Asks the allocator until it names a job of a kind that has room, or nobody and nobody is held for
    /// nothing. Each turn of the loop holds a job that was not, or lets one go that has room.
    fn hold_who_has_no_place(&mut self, now: u64) {
        loop {
            match self.allocator.peek(now) {
                Some(Claimant::Job(share)) => {
                    let slot = self.by_share[&share.serial()];
                    if !self.is_held_back(slot, now) {
                        return;
                    }
                }
                _ => match self.kinds.with_room(now) {
                    Some(kind) => self.let_go(kind, now),
                    None => return,
                },
            }
        }
    }

    /// Holds the job if its kind has no room.
    fn is_held_back(&mut self, slot: u32, now: u64) -> bool {
        let id = self.jobs[slot].kind;
        let next_is_step = self.next_is_step(slot);
        let Some(kind) = self.kinds.get(id) else { return false };
        if kind.limits.subtasks_only && next_is_step {
            return false;
        }
        if let Room::Places(_) = kind.room(now) {
            return false;
        }
        self.hold(slot, now);
        self.set_token_timer(id, now);
        true
    }

    /// Whether the split or the fan-in is what the job starts next.
    fn next_is_step(&self, slot: u32) -> bool {
        matches!(self.jobs[slot].split, StepState::Pending(_)) || self.ready_step(slot).is_some()
    }

    /// The split or the fan-in of the job, if it has begun before, or all else is done, and it is ready.
    pub(super) fn ready_step(&self, slot: u32) -> Option<u32> {
        let job = &self.jobs[slot];
        let step = match (job.split, job.fan_in) {
            (StepState::Task, _) => Step::Split,
            (_, StepState::Task) => Step::FanIn,
            _ => return None,
        };
        let task = job.roll.find(&self.tasks, slot, step.number())?;
        (self.tasks[task].phase == Phase::Ready).then_some(task)
    }

    /// A step of the job is ready that needs no place of its kind: it does not wait with the job's subtasks.
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
        let turn = self.kinds.hold(job.kind, slot, job.turn);
        (job.held, job.turn) = (Some(turn), Some(turn));
        self.allocator.pause(share, now);
    }

    /// Lets jobs of the kind go, one that offers something for each place that there is.
    fn let_go(&mut self, id: KindId, now: u64) {
        let Some(kind) = self.kinds.get(id) else { return };
        let Room::Places(mut places) = kind.room(now) else { return };
        while places > 0
            && let Some(slot) = self.kinds.let_go(id)
        {
            let share = self.share(slot);
            let job = &mut self.jobs[slot];
            job.held = None;
            if job.paused {
                continue;
            }
            places -= u64::from(job.counts.ready > 0 || job.split != StepState::Over);
            self.allocator.resume(share, now);
        }
        self.kinds.forget_if_free(id);
    }

    /// A kind that holds jobs for want of a token is looked at again when it has one.
    fn set_token_timer(&mut self, id: KindId, now: u64) {
        let Some(kind) = self.kinds.get(id) else { return };
        if let Room::Rate(Some(at)) = kind.room(now)
            && kind.has_held()
            && kind.timer != Some(at)
        {
            let earlier = kind.timer.replace(at);
            if let Some(earlier) = earlier {
                self.timers.call_off(earlier, Due::Token(id.0));
            }
            self.timers.set(at, Due::Token(id.0));
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

    /// A place of the kind is free. Of the jobs that wait for it the first is let go; the one that had it, if
    /// it is not over, goes behind them.
    pub(super) fn end_of_kind(&mut self, id: KindId, step: Step, had_it: Option<u32>, now: u64) {
        if self.kinds.is_empty() || !self.kinds.end(id, step) {
            return;
        }
        let Some(kind) = self.kinds.get(id) else { return };
        if !kind.has_held() {
            return;
        }
        // A step that needs no place does not go behind the jobs that wait for one.
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

    /// The fence that the next start gets.
    #[must_use]
    pub fn next_fence(&self) -> u64 {
        self.next_fence
    }

    /// Limits a kind from now on. What runs is not stopped.
    pub fn set_kind(&mut self, id: KindId, limits: KindLimits, now: u64) {
        let now = self.at(now);
        let frees_steps = limits.subtasks_only
            && self.kinds.look(id).is_some_and(|kind| !kind.limits.subtasks_only);
        self.kinds.set(id, limits, now);
        if frees_steps {
            // They need no place from now on.
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
        let task = self.tasks.insert(Task::new(slot, Step::Split.number(), made));
        job.roll.begin(Step::Split.number(), task);
        let share = self.share(slot);
        self.allocator.hold_splitter(share, true, now);
        task
    }

    /// What is ready as a task goes first: others may wait behind it. A step goes before all, for it may be the only
    /// one that its kind lets start.
    fn take_ready(&mut self, slot: u32) -> u32 {
        let step = self.ready_step(slot);
        let job = &mut self.jobs[slot];
        if let Some(task) = step.or(job.ready.first()) {
            self.leave_phase(slot, task);
            return task;
        }
        let (number, made) = job.fresh.pop().expect("the allocator knows what is ready");
        job.counts.ready -= 1;
        let task = self.tasks.insert(Task::new(slot, number, made));
        job.roll.begin(number, task);
        task
    }

    fn start(&mut self, slot: u32, task: u32, rule: Rule, now: u64) -> Start {
        let fence = self.next_fence;
        self.next_fence += 1;
        self.runs.insert(fence, Run { task, since: now, rule, is_restored: false });
        let begun = &mut self.tasks[task];
        begun.attempts += 1;
        begun.at = fence;
        let (step, attempt) = (Step::of(begun.number), begun.attempts);
        self.enter_phase(slot, task, Phase::Running);
        let job = &mut self.jobs[slot];
        job.turn = None;
        let start = Start { job: job.number, step, attempt, fence, kind: job.kind, rule };
        self.kinds.note_start(start.kind, step);
        self.kinds.start(start.kind, step, now);
        // Who is held may have nobody left before them who would find that this was the last token.
        self.set_token_timer(start.kind, now);
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
