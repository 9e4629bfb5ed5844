//! Queries: state of jobs and keys, and reasons why subtasks wait.

use std::mem::discriminant;

use keylane_allocate::{JobProgress, TenantIndex};

use super::job::{ScheduledJob, ScheduledStart, StepState};
use super::kinds::KindCapacity;
use super::lanes::LanePosition;
use super::state::Scheduler;
use super::task::TaskPhase;
use super::{
    DecisionView, JobStep, JobWaitReason, KeySort, KeyView, LaneHead, RunStart, RunningStep,
    SlotUsage, Step, SubtaskCounts, SubtaskExplanation, UnfinishedState, WaitReason,
};
use crate::{JobNumber, Key, KeyClaim};

/// Ranks are computed up to this number of jobs.
const RANKED: usize = 1000;

/// Maximum number of tasks that are examined to find some that wait for keys.
const LOOKED_AT: usize = 256;

/// Maximum number of subtasks that are followed from the head of one key to the head of another.
const CHAIN: usize = 16;

/// Maximum number of lanes of similar length that are compared.
const COMPARED: usize = 10_000;

impl Scheduler {
    /// Number of the job's subtasks in each state; `None` if it is finished. O(1).
    #[must_use]
    pub fn counts(&self, job: JobNumber) -> Option<SubtaskCounts> {
        self.find(job).map(|slot| self.jobs[slot].counts)
    }

    /// Reasons for which the unfinished subtasks of a job wait, the most frequent one of each state
    /// once; `None` if the job is finished. Computed from counters and a sample: the cost grows
    /// neither with the job nor with the length of a lane. At most 64 tasks with up to 16 blocking
    /// keys each are examined, and one lane is counted, up to 1000 places.
    #[must_use]
    pub fn waiting_because(&self, job: JobNumber) -> Option<Vec<JobWaitReason>> {
        let slot = self.find(job)?;
        let job = &self.jobs[slot];
        let counts = &job.counts;
        let mut because = Vec::new();
        let mut say =
            |reason, subtasks, example| because.push(JobWaitReason { reason, subtasks, example });
        if let Some(scheduled) = &job.scheduled {
            let until = scheduled.at;
            say(WaitReason::Scheduled { until }, counts.scheduled, None);
            return Some(because);
        }
        if counts.entering > 0 {
            let ahead = self.entering_behind(slot);
            say(WaitReason::Entering { ahead }, counts.entering, None);
        }
        if counts.ready > 0 {
            say(self.reason_of_ready(slot), counts.ready, None);
        }
        if let StepState::Pending(_) = job.split {
            say(self.reason_of_ready(slot), 0, Some(Step::Split));
        }
        self.say_of_tasks(slot, &mut because);
        if let StepState::Pending(_) = job.fan_in {
            let reason = reason_of_fan_in(job);
            because.push(JobWaitReason { reason, subtasks: 0, example: Some(Step::FanIn) });
        }
        Some(because)
    }

    /// Adds the reasons of tasks that are not ready.
    fn say_of_tasks(&self, slot: u32, because: &mut Vec<JobWaitReason>) {
        let job = &self.jobs[slot];
        let example = |task: u32| Some(Step::of(self.tasks[task].number));
        let backing_off =
            job.backing_off.iter(&self.tasks, |task| &task.link).take(JobWaitReason::SAMPLE);
        if let Some(first) = backing_off.min_by_key(|task| self.tasks[*task].at) {
            let reason = WaitReason::BackingOff { until: self.shown(self.tasks[first].at) };
            let (subtasks, example) = (job.counts.backing_off, example(first));
            because.push(JobWaitReason { reason, subtasks, example });
        }
        if let Some(first) = job.stopped.first() {
            let (subtasks, example) = (job.counts.stopped, example(first));
            because.push(JobWaitReason { reason: WaitReason::Stopped, subtasks, example });
        }
        if job.counts.waiting > 0 {
            because.extend(self.sample_waiting(slot));
        }
    }

    /// First reasons of a sample of the tasks that wait for keys.
    fn sample_waiting(&self, slot: u32) -> Vec<JobWaitReason> {
        let job = &self.jobs[slot];
        let all = job.roll.spread(&self.tasks, slot, LOOKED_AT);
        let all = all.filter(|task| self.tasks[*task].phase == TaskPhase::Waiting);
        let mut found: Vec<JobWaitReason> = Vec::new();
        let mut sampled = 0;
        for task in all.take(JobWaitReason::SAMPLE) {
            sampled += 1;
            // The type of a reason costs a look at each key; places are counted for one example of
            // each type.
            let Some(reason) = self.first_reason(task, 0) else { continue };
            let is_like =
                |it: &&mut JobWaitReason| discriminant(&it.reason) == discriminant(&reason);
            match found.iter_mut().find(is_like) {
                Some(same) => same.subtasks += 1,
                None => {
                    let counted = self.first_reason(task, WaitReason::COUNTED);
                    let reason = counted.unwrap_or(reason);
                    let example = Some(Step::of(self.tasks[task].number));
                    found.push(JobWaitReason { reason, subtasks: 1, example });
                }
            }
        }
        if found.is_empty() {
            found.push(JobWaitReason { reason: WaitReason::Keys, subtasks: 1, example: None });
            sampled = 1;
        }
        found.iter_mut().for_each(|it| it.subtasks = it.subtasks * job.counts.waiting / sampled);
        found
    }

    /// State of a subtask or step, and all reasons for which it waits; `None` if it is finished or
    /// unknown. The cost grows with its keys, each with up to [`WaitReason::COUNTED`] places.
    #[must_use]
    pub fn explain(&self, job: JobNumber, step: Step) -> Option<SubtaskExplanation> {
        let slot = self.find(job)?;
        let job = &self.jobs[slot];
        if let Some(ScheduledStart { at, parked, .. }) = &job.scheduled {
            let is_there = match step {
                Step::Subtask(number) => parked.has(number),
                Step::Split => job.split != StepState::Over,
                Step::FanIn => job.fan_in != StepState::Over,
            };
            let (state, until) = (UnfinishedState::Scheduled { at: *at }, *at);
            let reasons = vec![WaitReason::Scheduled { until }];
            return is_there.then_some(SubtaskExplanation { state, attempts: 0, reasons });
        }
        if let Some(task) = job.roll.find(&self.tasks, slot, step.number()) {
            let attempts = self.tasks[task].attempts;
            return Some(SubtaskExplanation {
                state: self.state(task),
                attempts,
                reasons: self.reasons(task),
            });
        }
        let (state, attempts, reason) = match (step, job.split, job.fan_in) {
            (Step::Subtask(number), ..) if self.is_entering(slot, number) => (
                UnfinishedState::Waiting,
                0,
                WaitReason::Entering { ahead: self.entering_behind(slot) },
            ),
            (Step::Subtask(number), ..) => {
                (UnfinishedState::Ready, job.fresh.find(number)?, self.reason_of_ready(slot))
            }
            (Step::Split, StepState::Pending(made), _) => {
                (UnfinishedState::Ready, made, self.reason_of_ready(slot))
            }
            (Step::FanIn, _, StepState::Pending(made)) => {
                (UnfinishedState::Waiting, made, reason_of_fan_in(job))
            }
            _ => return None,
        };
        Some(SubtaskExplanation { state, attempts, reasons: vec![reason] })
    }

    fn state(&self, task: u32) -> UnfinishedState {
        if self.is_dropped(task) {
            return UnfinishedState::Waiting;
        }
        let task = &self.tasks[task];
        match task.phase {
            TaskPhase::Waiting => UnfinishedState::Waiting,
            TaskPhase::Ready => UnfinishedState::Ready,
            TaskPhase::Running => UnfinishedState::Running {
                fence: task.at,
                since: self.shown(self.runs[&task.at].since),
            },
            TaskPhase::BackingOff => UnfinishedState::BackingOff { until: self.shown(task.at) },
            TaskPhase::Stopped => UnfinishedState::Stopped,
        }
    }

    fn reasons(&self, task: u32) -> Vec<WaitReason> {
        self.reasons_within(task, WaitReason::COUNTED)
    }

    /// Returns the reasons, those that last until an operator acts first. Predecessors are counted up to `counted`.
    fn reasons_within(&self, task: u32, counted: u32) -> Vec<WaitReason> {
        let Some(it) = self.tasks.get(task) else { return Vec::new() };
        match it.phase {
            TaskPhase::Running => Vec::new(),
            TaskPhase::Ready => vec![self.reason_of_ready(it.job)],
            TaskPhase::BackingOff => vec![WaitReason::BackingOff { until: self.shown(it.at) }],
            TaskPhase::Stopped => vec![WaitReason::Stopped],
            TaskPhase::Waiting => {
                let all = self.lanes.standings(&self.tasks, task, counted);
                let all = all.filter_map(|standing| self.reason_of_key(standing));
                let all = all.chain(self.reason_of_rate(task));
                let mut all: Vec<_> = all.take(SubtaskExplanation::KEYS).collect();
                all.sort_by_key(is_order);
                all
            }
        }
    }

    /// Returns the first reason for which a lane blocks the task, preferring reasons that last
    /// until an operator acts. Examines at most [`SubtaskExplanation::KEYS`] blocking lanes, and counts at
    /// most `counted` places in one of them.
    fn first_reason(&self, task: u32, counted: u32) -> Option<WaitReason> {
        let looked_at = self.lanes.standings(&self.tasks, task, 0);
        let mut looked_at = looked_at
            .filter_map(|standing| self.reason_of_key(standing))
            .take(SubtaskExplanation::KEYS);
        if let Some(lasting) = looked_at.find(|reason| !is_order(reason)) {
            return Some(lasting);
        }
        // Lanes are counted one at a time, up to the first that blocks the task; the task heads
        // those before.
        let mut all = self.lanes.standings(&self.tasks, task, counted);
        let reason = all.find_map(|standing| self.reason_of_key(standing));
        reason.or_else(|| self.reason_of_rate(task))
    }

    /// Returns the reason for which a rate keeps the task from starting.
    fn reason_of_rate(&self, task: u32) -> Option<WaitReason> {
        let (key, until) = self.key_rates.wait_of(task)?;
        let until = until.map(|until| self.shown(until));
        Some(WaitReason::KeyRate { key: Key::new(key), until })
    }

    /// Returns the reason for which the lane blocks the task. A pause comes first: until it ends no
    /// subtask of the key starts, whatever is before the task.
    fn reason_of_key(
        &self,
        LanePosition { lane, ahead, behind, is_shared, limit, .. }: LanePosition,
    ) -> Option<WaitReason> {
        if self.lanes.lane(lane).is_of_job() {
            let (behind, head) = (self.step_of(behind?), self.head_of(lane)?);
            return Some(WaitReason::Barrier { is_barrier: !is_shared, ahead, behind, head });
        }
        let key = Key::new(self.lanes.lane(lane).key());
        if self.lanes.lane(lane).paused {
            return Some(WaitReason::KeyPaused { key });
        }
        let behind = behind?;
        let head = self.head_of(lane).expect("a lane with a predecessor has a head");
        Some(match (limit, head.state) {
            (Some(limit), _) => WaitReason::KeyLimit { key, limit, ahead, head },
            (None, UnfinishedState::Stopped) => WaitReason::KeyStopped { key, head },
            _ => WaitReason::KeyOrder { key, is_shared, ahead, behind: self.step_of(behind), head },
        })
    }

    /// Returns the final reason of a chain of heads, in which each subtask waits for the head of
    /// another key, and the job at the end of the chain. `None` if the end of the chain runs or is
    /// too far away. Examines at most `CHAIN` subtasks with their keys; their lanes are not
    /// counted.
    #[must_use]
    pub fn root_of(&self, head: &LaneHead) -> Option<(JobNumber, WaitReason)> {
        let mut next = head.of;
        for _ in 0..CHAIN {
            let slot = self.find(next.job)?;
            let task = self.jobs[slot].roll.find(&self.tasks, slot, next.step.number())?;
            match self.reasons_within(task, 0).into_iter().next()? {
                WaitReason::KeyOrder { head, .. }
                | WaitReason::KeyLimit { head, .. }
                | WaitReason::Barrier { head, .. } => next = head.of,
                reason => return Some((next.job, reason)),
            }
        }
        None
    }

    fn head_of(&self, lane: u32) -> Option<LaneHead> {
        let task = self.lanes.head(lane)?;
        let since = self.shown(self.lanes.lane(lane).since);
        let attempts = self.tasks[task].attempts;
        let is_shared = self.lanes.is_head_shared(lane);
        Some(LaneHead {
            is_shared,
            of: self.step_of(task),
            state: self.state(task),
            since,
            attempts,
        })
    }

    fn step_of(&self, task: u32) -> JobStep {
        let task = &self.tasks[task];
        JobStep { job: self.jobs[task.job].number, step: Step::of(task.number) }
    }

    /// Reason for which the ready subtasks of a job do not run: the condition that must change
    /// first.
    fn reason_of_ready(&self, slot: u32) -> WaitReason {
        let job = &self.jobs[slot];
        if self.draining {
            return WaitReason::Draining;
        }
        if job.paused {
            return WaitReason::JobPaused;
        }
        if let Some(kind) = self.kinds.look(job.kind) {
            match kind.room_seen(self.now) {
                KindCapacity::Bound => {
                    return WaitReason::KindBound { kind: job.kind, running: kind.running };
                }
                KindCapacity::Rate(until) => {
                    return WaitReason::KindRate { until: until.map(|until| self.shown(until)) };
                }
                KindCapacity::Places(_) => {}
            }
        }
        if let Some(reason) = self.reason_of_tenant(job.tenant) {
            return reason;
        }
        let progress = job.share.and_then(|share| self.allocator.progress(share));
        let Some(mine) = progress else { return WaitReason::Draining };
        if self.has_room_for(job, &mine) {
            return WaitReason::Starting;
        }
        if job.share.is_some_and(|share| self.allocator.is_behind(share)) {
            let comes_first = |_: &JobProgress, other: &ScheduledJob| other.priority < job.priority;
            return WaitReason::Priority { ahead: self.count_jobs(job.tenant, comes_first) };
        }
        if mine.admitted {
            let comes_first = |other: &JobProgress, job_other: &ScheduledJob| {
                other.admitted
                    && job_other.priority == job.priority
                    && needs_less(other, job_other, &mine, job)
            };
            let ahead = self.count_jobs(job.tenant, comes_first);
            let slots = self.slots;
            return WaitReason::NoSlot { running: mine.running, slots, ahead };
        }
        let comes_first = |other: &JobProgress, job_other: &ScheduledJob| {
            !other.admitted
                && !other.paused
                && job_other.priority == job.priority
                && job_other.share < job.share
        };
        let ahead = self.count_jobs(job.tenant, comes_first);
        let active = self.allocator.active_of(job.tenant, job.priority);
        WaitReason::NotAdmitted { active, ahead }
    }

    /// Whether the next decision may give the job a slot.
    fn has_room_for(&self, job: &ScheduledJob, progress: &JobProgress) -> bool {
        let is_below = |most: usize| self.allocator.active_of(job.tenant, job.priority) < most;
        let may_be_admitted = progress.admitted || self.max_active.is_none_or(is_below);
        self.allocator.busy() < self.allocator.workers() && may_be_admitted
    }

    /// Number of a tenant's jobs with an offer that satisfy the condition, if there are few enough
    /// jobs to check them all.
    fn count_jobs(
        &self,
        tenant: TenantIndex,
        is_so: impl Fn(&JobProgress, &ScheduledJob) -> bool,
    ) -> Option<usize> {
        if self.jobs.len() > RANKED {
            return None;
        }
        let offers =
            |job: &ScheduledJob| job.share.and_then(|share| self.allocator.progress(share));
        let others = self.by_number.values().map(|slot| &self.jobs[*slot]);
        let others = others.filter(|job| job.tenant == tenant);
        let others = others.filter_map(|job| offers(job).map(|progress| (progress, job)));
        Some(others.filter(|(progress, job)| progress.ready > 0 && is_so(progress, job)).count())
    }

    /// At most `limit` keys with unfinished subtasks, sorted. Costs O(limit); sorting by length
    /// also compares up to 10,000 lanes.
    #[must_use]
    pub fn keys(&self, sort: KeySort, limit: usize) -> Vec<KeyView> {
        match sort {
            KeySort::HeadAge => {
                self.lanes.by_age().take(limit).map(|lane| self.view(lane)).collect()
            }
            KeySort::Length => {
                let mut longest: Vec<u32> =
                    self.lanes.by_digits().take(limit.max(COMPARED)).collect();
                longest.sort_by_key(|lane| std::cmp::Reverse(self.lanes.lane(*lane).len));
                longest.truncate(limit);
                let missing = limit - longest.len();
                let single = self.lanes.by_age().filter(|lane| self.lanes.lane(*lane).len == 1);
                longest.extend(single.take(missing));
                longest.into_iter().map(|lane| self.view(lane)).collect()
            }
        }
    }

    /// Keys of the run with this fence; none if there is no such run. O(keys).
    pub fn keys_of(&self, fence: u64) -> impl Iterator<Item = KeyClaim<'_>> {
        let task = self.runs.get(&fence).map(|run| run.task);
        // Positions are not needed, so no place is counted.
        let standings =
            task.into_iter().flat_map(|task| self.lanes.standings(&self.tasks, task, 0));
        standings.map(|LanePosition { lane, is_shared, .. }| KeyClaim {
            key: self.lanes.lane(lane).key(),
            is_shared,
        })
    }

    /// State of a key; `None` if no unfinished subtask has it and it is not paused. O(1).
    #[must_use]
    pub fn key(&self, key: &[u8]) -> Option<KeyView> {
        self.lanes.find(key).map(|lane| self.view(lane))
    }

    fn view(&self, lane: u32) -> KeyView {
        let it = self.lanes.lane(lane);
        let (key, head) = (Key::new(it.key()), self.head_of(lane));
        KeyView { key, length: it.len, paused: it.paused, head }
    }

    /// Runs that have a slot, by fence. O(slots).
    #[must_use]
    pub fn running(&self) -> Vec<RunningStep> {
        let mut all: Vec<RunningStep> = self
            .runs
            .iter()
            .map(|(fence, run)| {
                let task = &self.tasks[run.task];
                let job = &self.jobs[task.job];
                let (step, attempt) = (Step::of(task.number), task.attempts);
                let (fence, rule) = (*fence, run.rule);
                let start =
                    RunStart { job: job.number, step, attempt, fence, kind: job.kind, rule };
                RunningStep { start, since: self.shown(run.since) }
            })
            .collect();
        all.sort_unstable_by_key(|running| running.start.fence);
        all
    }

    /// The last decisions, at most `most`, newest last.
    pub fn decisions(&self, most: usize) -> impl Iterator<Item = &DecisionView> {
        self.decisions.iter().skip(self.decisions.len().saturating_sub(most))
    }

    /// State of the slots and of the competition for them. O(1).
    #[must_use]
    pub fn slots(&self) -> SlotUsage {
        SlotUsage {
            total: self.slots,
            busy: self.allocator.busy() + self.restored,
            active_jobs: self.allocator.active(),
            unfinished_jobs: self.jobs.len(),
            keys: self.lanes.len(),
            held_jobs: self.kinds.held(),
            draining: self.draining,
        }
    }
}

fn reason_of_fan_in(job: &ScheduledJob) -> WaitReason {
    match job.split {
        StepState::Over => WaitReason::Others { left: job.counts.unfinished() },
        _ => WaitReason::Split,
    }
}

/// Whether a job comes before another by the lowest need for its weight.
fn needs_less(
    one: &JobProgress,
    one_job: &ScheduledJob,
    other: &JobProgress,
    other_job: &ScheduledJob,
) -> bool {
    match (one.requirement(), other.requirement()) {
        (Some(one), Some(other)) => {
            let one = u128::from(one) * u128::from(other_job.weight);
            let other = u128::from(other) * u128::from(one_job.weight);
            (one, one_job.share) < (other, other_job.share)
        }
        (one, other) => one.is_some() && other.is_none(),
    }
}

/// Whether a reason ends without an operator: by the ends of other subtasks.
fn is_order(reason: &WaitReason) -> bool {
    matches!(
        reason,
        WaitReason::KeyOrder { .. } | WaitReason::KeyLimit { .. } | WaitReason::Barrier { .. }
    )
}
