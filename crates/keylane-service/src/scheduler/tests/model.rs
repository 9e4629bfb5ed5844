//! The scheduler against a slow obvious model, under random programs.
//!
//! The model is a list of subtasks in the order of acceptance. A latest subtask that enters removes the newest one of
//! its key that has not started. One may start if no unfinished one before it
//! shares a key with it, or if both limit the key and are not too many, none of its keys is paused, its job goes on and its kind
//! has room, and each key has a token. After each step:
//! what starts may start, nothing that may start is left beside a free slot, ends have the fates, drops and
//! outcomes that the model says, counts are those of the model, fences rise. At the end nothing stays.

use std::collections::{BTreeMap, BTreeSet};

use keylane_allocate::{JobPolicy, Priority};
use proptest::prelude::*;

use crate::scheduler::{
    AcceptResult, AddError, EndedCounts, JobFailurePolicy, JobOutcome, JobStep, KeyFailurePolicy,
    KeyHeadError, KeySort, KeyView, KindId, KindLimits, NewJob, NewSubtask, RateLimit,
    RestoredState, RunEnd, RunStart, Scheduler, SchedulerSettings, SliceResult, StaleFence, Step,
    SubtaskCounts, SubtaskFate, SupersededSubtask, UnfinishedState, WaitReason,
};
use crate::{JobNumber, Key, KeyClaim, SubtaskId};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Was dropped, and has yet to leave its lanes.
    Dropped,
    Waits,
    Runs(u64),
    BacksOff(u64),
    Stopped,
}

#[derive(Clone, Debug)]
struct Sub {
    job: u64,
    step: Step,
    /// All keys.
    keys: BTreeSet<u8>,
    /// Those of `keys` that it shares.
    shared: BTreeSet<u8>,
    is_barrier: bool,
    /// How many subtasks may have one of its exclusive keys at a time; 0: one, in order.
    limit: u16,
    /// Whether it replaces the latest one of its only key, and may be replaced.
    is_latest: bool,
    /// Whether the next latest one of its key replaces it, if it still waits.
    is_newest: bool,
    phase: Phase,
    attempts: u32,
    /// Whether it stands in its lanes. Steps of jobs have none, and are there at once.
    entered: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Course {
    Open,
    Failing,
    Cancelled,
    Finishing,
}

impl Course {
    fn is_dropped(self) -> bool {
        matches!(self, Course::Failing | Course::Cancelled)
    }
}

#[derive(Clone, Debug)]
struct Job {
    number: u64,
    kind: u32,
    on_error: JobFailurePolicy,
    on_fail: KeyFailurePolicy,
    allowed: u32,
    paused: bool,
    starts_at: Option<u64>,
    /// Its time has come, and it was not told to begin.
    is_due: bool,
    /// Its subtasks and its steps, while it is scheduled.
    parked: Vec<Sub>,
    parked_rest: Vec<Sub>,
    fan_in: bool,
    barriers: bool,
    limit: u16,
    course: Course,
    ended: EndedCounts,
    step_failed: bool,
    failed_numbers: BTreeSet<u32>,
    next_number: u32,
}

#[derive(Clone, Debug, Default)]
struct Kind {
    limits: KindLimits,
    /// In parts of a token: `period_ms` make one.
    level: u64,
    /// The same for keys with a rate per key; one that is not here is full.
    keys: BTreeMap<u8, u64>,
}

#[derive(Clone, Debug)]
struct NewOne {
    subtasks: Vec<Vec<u8>>,
    kind: u32,
    fail_fast: bool,
    stop_key: bool,
    allowed: u32,
    paused: bool,
    delay: u64,
    split: bool,
    fan_in: bool,
    barriers: bool,
    limit: u16,
}

#[derive(Clone, Debug)]
enum Op {
    Accept(NewOne),
    End {
        which: usize,
        how: u8,
    },
    Stale {
        which: usize,
    },
    Add {
        which: usize,
        subtasks: Vec<Vec<u8>>,
    },
    Reopen {
        which: usize,
    },
    Pause {
        which: usize,
        paused: bool,
    },
    Cancel {
        which: usize,
        fails: bool,
    },
    Expire {
        which: usize,
    },
    PauseKey {
        key: u8,
        paused: bool,
    },
    Retry {
        key: u8,
    },
    Skip {
        key: u8,
    },
    Resize {
        slots: usize,
    },
    SetKind {
        kind: u32,
        concurrency: Option<u32>,
        rate: Option<(u32, u32, u32)>,
        rate_per_key: Option<(u32, u32, u32)>,
        subtasks_only: bool,
    },
    Weigh {
        which: usize,
        weight: u32,
    },
    Pass {
        time: u64,
    },
    Timeout,
    Begin {
        which: usize,
    },
    WorkOff,
    Shift {
        by: i64,
    },
    Restart {
        restores: bool,
    },
}

fn subtasks() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let keys = prop_oneof![
        3 => prop::collection::vec(0..=BARRIER, 0..4),
        1 => (0..6_u8).prop_map(|key| vec![key, LATEST]),
    ];
    prop::collection::vec(keys, 0..9)
}

fn ops() -> impl Strategy<Value = Op> {
    let job = (
        (subtasks(), 0..3_u32, prop::bool::weighted(0.3), prop::bool::weighted(0.3), 1..4_u32),
        (prop::bool::weighted(0.1), prop_oneof![4 => Just(0), 1 => 1..40_u64]),
        (prop::bool::weighted(0.2), prop::bool::weighted(0.2), prop::bool::weighted(0.4)),
        prop_oneof![3 => Just(0), 2 => 1..4_u16],
    );
    let job = job.prop_map(
        |(
            (subtasks, kind, fail_fast, stop_key, allowed),
            (paused, delay),
            (split, fan_in, barriers),
            limit,
        )| {
            NewOne {
                subtasks,
                kind,
                fail_fast,
                stop_key,
                allowed,
                paused,
                delay,
                split,
                fan_in,
                barriers,
                limit,
            }
        },
    );
    let which = || 0..64_usize;
    let rate = || prop::option::weighted(0.3, (0..4_u32, 1..20_u32, 1..4_u32));
    let limits = (prop::option::of(0..4_u32), rate(), rate());
    prop_oneof![
        6 => job.prop_map(Op::Accept),
        25 => (which(), any::<u8>()).prop_map(|(which, how)| Op::End { which, how }),
        1 => which().prop_map(|which| Op::Stale { which }),
        3 => (which(), subtasks()).prop_map(|(which, subtasks)| Op::Add { which, subtasks }),
        2 => which().prop_map(|which| Op::Reopen { which }),
        2 => (which(), any::<bool>()).prop_map(|(which, paused)| Op::Pause { which, paused }),
        1 => (which(), any::<bool>()).prop_map(|(which, fails)| Op::Cancel { which, fails }),
        2 => which().prop_map(|which| Op::Expire { which }),
        3 => (0..6_u8, any::<bool>()).prop_map(|(key, paused)| Op::PauseKey { key, paused }),
        3 => (0..6_u8).prop_map(|key| Op::Retry { key }),
        2 => (0..6_u8).prop_map(|key| Op::Skip { key }),
        1 => (0..6_usize).prop_map(|slots| Op::Resize { slots }),
        2 => (0..3_u32, limits, prop::bool::weighted(0.3)).prop_map(
            |(kind, (concurrency, rate, rate_per_key), subtasks_only)| Op::SetKind {
                kind, concurrency, rate, rate_per_key, subtasks_only,
            },
        ),
        1 => (which(), 0..5_u32).prop_map(|(which, weight)| Op::Weigh { which, weight }),
        4 => (0..25_u64).prop_map(|time| Op::Pass { time }),
        4 => Just(Op::Timeout),
        3 => any::<usize>().prop_map(|which| Op::Begin { which }),
        8 => Just(Op::WorkOff),
        1 => (-30..60_i64).prop_map(|by| Op::Shift { by }),
        1 => any::<bool>().prop_map(|restores| Op::Restart { restores }),
    ]
}

/// The kind whose limits may be for subtasks alone. Its jobs with a split have no subtasks but those that the split
/// adds while it runs.
const STEPS_APART: u32 = 2;

struct Pair {
    scheduler: Scheduler,
    settings: SchedulerSettings,
    now: u64,
    slots: usize,
    jobs: Vec<Job>,
    /// Unfinished subtasks and steps of jobs that have begun, by acceptance.
    subs: Vec<Sub>,
    paused_keys: BTreeSet<u8>,
    kinds: BTreeMap<u32, Kind>,
    next_job: u64,
    last_fence: u64,
    starts: Vec<RunStart>,
}

/// Keys of a program as all keys and the shared ones: from 6 on they are shared. A key that is
/// both is exclusive. [`BARRIER`] and [`LATEST`] are none.
fn keys_of(of_program: &[u8]) -> (BTreeSet<u8>, BTreeSet<u8>) {
    let of_program = of_program.iter().filter(|key| **key < BARRIER);
    let (exclusive, shared): (BTreeSet<u8>, BTreeSet<u8>) = of_program.partition(|key| **key < 6);
    let shared: BTreeSet<u8> = shared.iter().map(|key| key - 6).collect();
    (&exclusive | &shared, &shared - &exclusive)
}

/// Key of a program that makes a subtask a barrier, in jobs that have some.
const BARRIER: u8 = 12;

/// Key of a program that makes a subtask with one exclusive key replace the latest one.
const LATEST: u8 = 13;

fn is_latest(of_program: &[u8]) -> bool {
    of_program.contains(&LATEST)
}

type Claims = Vec<(Vec<u8>, bool)>;

fn new_subtasks(subs: &[Sub]) -> Vec<NewSubtask<Claims>> {
    let new = |sub: &Sub| {
        let Step::Subtask(number) = sub.step else { panic!("a subtask") };
        // Each key several times, also as a shared one: they are told apart by the scheduler.
        let keys = sub.keys.iter().flat_map(|letter| {
            let is_shared = sub.shared.contains(letter);
            [true, is_shared, true].map(|is_shared| (key(*letter), is_shared))
        });
        let barrier = sub.is_barrier.then(|| (KeyClaim::BARRIER.key.to_vec(), false));
        let latest = sub.is_latest.then(|| (KeyClaim::LATEST.key.to_vec(), false));
        let keys = keys.chain(barrier).chain(latest);
        NewSubtask { number, keys: keys.collect(), attempts_made: sub.attempts }
    };
    subs.iter().map(new).collect()
}

fn key(key: u8) -> Vec<u8> {
    vec![b'k'; 1 + key as usize * 6]
}

fn borrowed(
    subtasks: &[NewSubtask<Claims>],
) -> impl Iterator<Item = NewSubtask<impl Iterator<Item = KeyClaim<'_>>>> {
    subtasks.iter().map(|NewSubtask { number, keys, attempts_made }| NewSubtask {
        number: *number,
        keys: keys.iter().map(|(key, is_shared)| KeyClaim { key, is_shared: *is_shared }),
        attempts_made: *attempts_made,
    })
}

impl Pair {
    fn new(slots: usize, order: JobPolicy, slice: u32) -> Self {
        let ageing = Some(5);
        let settings = SchedulerSettings { order, slice, ageing, ..SchedulerSettings::new(slots) };
        Pair {
            scheduler: Scheduler::new(settings.clone()),
            settings,
            // Late enough to be shifted back by every step of a program.
            now: 10_000,
            slots,
            jobs: Vec::new(),
            subs: Vec::new(),
            paused_keys: BTreeSet::new(),
            kinds: BTreeMap::new(),
            next_job: 1,
            last_fence: 0,
            starts: Vec::new(),
        }
    }

    fn job(&self, number: u64) -> &Job {
        self.jobs.iter().find(|job| job.number == number).unwrap()
    }

    fn job_mut(&mut self, number: u64) -> &mut Job {
        self.jobs.iter_mut().find(|job| job.number == number).unwrap()
    }

    fn pick(&self, which: usize) -> Option<u64> {
        (!self.jobs.is_empty()).then(|| self.jobs[which % self.jobs.len()].number)
    }

    fn is_free(&self, at: usize) -> bool {
        is_free(&self.subs, &self.paused_keys, at)
    }

    fn may_start(&self, at: usize) -> bool {
        may_start(&self.subs, &self.jobs, &self.kinds, &self.paused_keys, at)
    }

    /// Has everything start that can, and checks it.
    fn start_all(&mut self) {
        while let Some(start) = self.scheduler.poll_start(self.now) {
            let is_it = |sub: &Sub| sub.job == start.job.0 && sub.step == start.step;
            let at = self.subs.iter().position(is_it).expect("what starts is unfinished");
            assert!(self.may_start(at), "{start:?} {:#?}", self.subs);
            assert!(self.running() < self.slots);
            assert!(start.fence > self.last_fence);
            self.last_fence = start.fence;
            let kind = self.job(start.job.0).kind;
            assert_eq!(start.kind, KindId(kind));
            if let Some(kind) = self.kinds.get_mut(&kind)
                && let Some(rate) = kind.limits.rate
                && kind.counts(start.step)
            {
                kind.level -= u64::from(rate.period_ms);
            }
            let own = own_keys(&self.subs[at]);
            if let Some(kind) = self.kinds.get_mut(&kind)
                && let Some(rate) = kind.limits.rate_per_key
            {
                own.into_iter().for_each(|key| {
                    *kind.keys.entry(key).or_insert(full(rate)) -= u64::from(rate.period_ms);
                });
            }
            let sub = &mut self.subs[at];
            sub.phase = Phase::Runs(start.fence);
            sub.attempts += 1;
            sub.is_newest = false;
            assert_eq!(start.attempt, sub.attempts);
            self.starts.push(start);
            self.scheduler.check();
        }
        if self.running() < self.slots {
            let left = (0..self.subs.len()).find(|at| self.may_start(*at));
            assert_eq!(
                left.map(|at| &self.subs[at]).map(|it| (it.job, it.step)),
                None,
                "could start"
            );
            self.check_token_timers();
        }
    }

    /// A slot is free and something waits for nothing but a token: a timer is set for that.
    fn check_token_timers(&self) {
        for at in 0..self.subs.len() {
            let job = self.job(self.subs[at].job);
            let Some(kind) = self.kinds.get(&job.kind) else { continue };
            let Some(rate) = kind.limits.rate.filter(|rate| rate.tokens > 0) else { continue };
            let mut with_token = self.kinds.clone();
            with_token.get_mut(&job.kind).unwrap().level = u64::from(rate.period_ms);
            if may_start(&self.subs, &self.jobs, &with_token, &self.paused_keys, at) {
                let missing = u64::from(rate.period_ms) - kind.level;
                let due = self.now + missing.div_ceil(u64::from(rate.tokens));
                assert!(self.scheduler.next_timeout().is_some_and(|next| next <= due));
            }
        }
        for at in 0..self.subs.len() {
            let kind = self.job(self.subs[at].job).kind;
            let Some(state) = self.kinds.get(&kind) else { continue };
            let rate = state.limits.rate_per_key.filter(|rate| rate.tokens > 0);
            let (Some(rate), own) = (rate, own_keys(&self.subs[at])) else { continue };
            let mut with_tokens = self.kinds.clone();
            let keys = &mut with_tokens.get_mut(&kind).unwrap().keys;
            let mut missing = 0;
            for key in own {
                let level = keys.entry(key).or_insert(full(rate));
                missing = missing.max(u64::from(rate.period_ms).saturating_sub(*level));
                *level = full(rate);
            }
            if may_start(&self.subs, &self.jobs, &with_tokens, &self.paused_keys, at) {
                let due = self.now + missing.div_ceil(u64::from(rate.tokens));
                assert!(self.scheduler.next_timeout().is_some_and(|next| next <= due));
            }
        }
    }

    /// Whether a subtask needs tokens of keys. It may then be held back though none is missing any more, or be
    /// ready though they are taken: both end when a slot is free.
    fn has_rate_of_key(&self, at: usize) -> bool {
        let sub = &self.subs[at];
        let kind = self.kinds.get(&self.job(sub.job).kind);
        kind.is_some_and(|kind| kind.limits.rate_per_key.is_some()) && !own_keys(sub).is_empty()
    }

    fn running(&self) -> usize {
        self.subs.iter().filter(|sub| matches!(sub.phase, Phase::Runs(_))).count()
    }

    fn check(&self) {
        self.scheduler.check();
        for job in &self.jobs {
            let EndedCounts { succeeded, failed, cancelled, superseded } = job.ended;
            let scheduled = job.parked.len() as u64;
            let mut counts = SubtaskCounts {
                scheduled,
                succeeded,
                failed,
                cancelled,
                superseded,
                ..SubtaskCounts::default()
            };
            for at in 0..self.subs.len() {
                let sub = &self.subs[at];
                if sub.job != job.number || !matches!(sub.step, Step::Subtask(_)) {
                    continue;
                }
                if !sub.entered {
                    counts.entering += 1;
                    let explained = self.scheduler.explain(JobNumber(job.number), sub.step);
                    let reasons = explained.unwrap().reasons;
                    assert!(matches!(reasons[..], [WaitReason::Entering { .. }]), "{reasons:?}");
                    continue;
                }
                let mut held_or_ready = 0;
                *match sub.phase {
                    Phase::Dropped => {
                        let explained = self.scheduler.explain(JobNumber(job.number), sub.step);
                        assert_eq!(explained, None);
                        continue;
                    }
                    Phase::Waits if self.is_free(at) && self.has_rate_of_key(at) => {
                        &mut held_or_ready
                    }
                    Phase::Waits if self.is_free(at) => &mut counts.ready,
                    Phase::Waits => &mut counts.waiting,
                    Phase::Runs(_) => &mut counts.running,
                    Phase::BacksOff(_) => &mut counts.backing_off,
                    Phase::Stopped => &mut counts.stopped,
                } += 1;
                let explained = self.scheduler.explain(JobNumber(job.number), sub.step).unwrap();
                assert_eq!(explained.attempts, sub.attempts);
                match (sub.phase, explained.state) {
                    (Phase::Waits, UnfinishedState::Ready) => {
                        assert!(self.is_free(at));
                        counts.ready += held_or_ready;
                    }
                    (Phase::Waits, UnfinishedState::Waiting) => {
                        assert!(!self.is_free(at) || held_or_ready == 1);
                        counts.waiting += held_or_ready;
                    }
                    (Phase::Runs(one), UnfinishedState::Running { fence, .. }) => {
                        assert_eq!(one, fence)
                    }
                    (Phase::BacksOff(one), UnfinishedState::BackingOff { until }) => {
                        assert_eq!(one, until)
                    }
                    (Phase::Stopped, UnfinishedState::Stopped) => {}
                    other => panic!("{other:?}"),
                }
                assert_eq!(explained.reasons.is_empty(), matches!(sub.phase, Phase::Runs(_)));
                self.check_reasons(at, &explained.reasons);
            }
            assert_eq!(self.scheduler.counts(JobNumber(job.number)), Some(counts));
            self.scheduler.waiting_because(JobNumber(job.number)).unwrap();
        }
        self.check_keys();
    }

    /// Checks the answers about keys: each key that blocks the subtask is named, with its
    /// predecessors.
    fn check_reasons(&self, at: usize, reasons: &[WaitReason]) {
        let sub = &self.subs[at];
        let mut named = 0;
        for reason in reasons {
            let (key, ahead, behind, head) = match reason {
                WaitReason::KeyOrder { key, is_shared, ahead, behind, head } => {
                    assert_eq!(*is_shared, sub.shared.contains(&letter_of(key)));
                    (key, Some(*ahead), Some(*behind), *head)
                }
                WaitReason::KeyStopped { key, head } => (key, None, None, *head),
                WaitReason::KeyLimit { key, limit, ahead, head } => {
                    named += 1;
                    let letter = letter_of(key);
                    let before: Vec<&Sub> =
                        self.subs[..at].iter().filter(|it| it.keys.contains(&letter)).collect();
                    assert_eq!((sub.limit, before.len()), (*limit, *ahead as usize));
                    assert_eq!((head.of.job.0, head.of.step), (before[0].job, before[0].step));
                    assert!(!before.iter().any(|it| conflict_on(it, sub, letter)));
                    assert!(!has_room(&self.subs[..at], sub, letter));
                    continue;
                }
                WaitReason::KeyPaused { key } => {
                    assert!(self.paused_keys.contains(&letter_of(key)));
                    named += 1;
                    continue;
                }
                _ => continue,
            };
            named += 1;
            let letter = letter_of(key);
            let name = |sub: &Sub| JobStep { job: JobNumber(sub.job), step: sub.step };
            let before: Vec<&Sub> =
                self.subs[..at].iter().filter(|it| it.keys.contains(&letter)).collect();
            assert_eq!(head.of, name(before[0]));
            assert_eq!(head.attempts, before[0].attempts);
            assert!(ahead.is_none_or(|ahead| ahead as usize == before.len()));
            let conflicts = |it: &&&Sub| conflict_on(it, sub, letter);
            let last = before.iter().rfind(conflicts).expect("it waits for one that conflicts");
            assert!(behind.is_none_or(|behind| behind == name(last)));
            let is_stopped = before[0].phase == Phase::Stopped;
            assert_eq!(is_stopped, matches!(reason, WaitReason::KeyStopped { .. }));
        }
        let keeps = |letter: &&u8| {
            self.subs[..at].iter().any(|it| conflict_on(it, sub, **letter))
                || !has_room(&self.subs[..at], sub, **letter)
                || self.paused_keys.contains(letter)
        };
        if sub.phase == Phase::Waits && matches!(sub.step, Step::Subtask(_)) {
            assert_eq!(named, sub.keys.iter().filter(keeps).count());
        }
    }

    fn check_keys(&self) {
        let oldest = self.scheduler.keys(KeySort::HeadAge, 4);
        let longest = self.scheduler.keys(KeySort::Length, 4);
        let entered = || self.subs.iter().filter(|sub| sub.entered);
        let in_use: BTreeSet<u8> = entered().flat_map(|sub| sub.keys.clone()).collect();
        assert_eq!((oldest.len(), longest.len()), (in_use.len().min(4), in_use.len().min(4)));
        let since = |view: &KeyView| view.head.map(|head| head.since);
        assert!(oldest.windows(2).all(|pair| since(&pair[0]) <= since(&pair[1])));
        assert!(longest.windows(2).all(|pair| pair[0].length >= pair[1].length));
        let least = (oldest.last().and_then(since), longest.last().map(|view| view.length));
        let lengths = |key: u8| entered().filter(|sub| sub.keys.contains(&key)).count();
        for letter in 0..6 {
            let view = self.scheduler.key(&key(letter));
            let is_paused = self.paused_keys.contains(&letter);
            let length = lengths(letter);
            assert_eq!(view.is_some(), length > 0 || is_paused);
            let Some(view) = view else { continue };
            assert_eq!((view.length as usize, view.paused), (length, is_paused));
            let is_listed = |views: &[KeyView]| views.iter().any(|it| it.key == view.key);
            assert!(length == 0 || is_listed(&oldest) || since(&view) >= least.0);
            assert!(length == 0 || is_listed(&longest) || Some(view.length) <= least.1);
            let first = entered().find(|sub| sub.keys.contains(&letter));
            assert_eq!(
                view.head.map(|it| (it.of.job.0, it.of.step, it.is_shared)),
                first.map(|it| (it.job, it.step, it.shared.contains(&letter)))
            );
        }
    }

    /// The subtasks of a job that do not run go, and its steps. Returns how many subtasks.
    fn drop_rest(&mut self, number: u64) -> u64 {
        let mut dropped = 0;
        let is_subtask = |sub: &Sub| u64::from(matches!(sub.step, Step::Subtask(_)));
        for sub in self.subs.iter_mut().filter(|sub| sub.job == number) {
            if !matches!(sub.phase, Phase::Runs(_) | Phase::Dropped) {
                sub.phase = Phase::Dropped;
                dropped += is_subtask(sub);
            }
        }
        self.see_swept();
        let job = self.job_mut(number);
        dropped += job.parked.drain(..).map(|sub| is_subtask(&sub)).sum::<u64>();
        (job.fan_in, job.starts_at, job.is_due) = (false, None, false);
        job.ended.cancelled += dropped;
        dropped
    }

    /// Those that were dropped, and stand in no lane any more, are gone.
    fn see_swept(&mut self) {
        let scheduler = &self.scheduler;
        let is_there = |sub: &Sub| scheduler.has_task(JobNumber(sub.job), sub.step);
        self.subs.retain(|sub| sub.phase != Phase::Dropped || is_there(sub));
    }

    /// Something has failed for good.
    fn fail_fast(&mut self, number: u64) -> u64 {
        let job = self.job_mut(number);
        if job.on_error == JobFailurePolicy::FinishAll || job.course.is_dropped() {
            return 0;
        }
        job.course = Course::Failing;
        self.drop_rest(number)
    }

    /// Whether a job is over, and how; its fan-in comes to be if it is its turn.
    fn conclude(&mut self, number: u64) -> Option<JobOutcome> {
        let job = self.job(number).clone();
        let is_left = |sub: &&Sub| {
            sub.job == number && (sub.step != Step::FanIn || sub.phase == Phase::Dropped)
        };
        if self.scheduler.is_swept(JobNumber(number)) {
            return None;
        }
        if job.starts_at.is_some() || self.subs.iter().any(|sub| is_left(&sub)) {
            return None;
        }
        let outcome = match job.course {
            Course::Cancelled => JobOutcome::Cancelled,
            Course::Failing => JobOutcome::Failed,
            _ if job.ended.failed > 0 || job.step_failed => JobOutcome::Failed,
            _ if job.ended.cancelled > 0 => JobOutcome::Cancelled,
            _ => JobOutcome::Succeeded,
        };
        let fan_in = self.subs.iter().position(|sub| sub.job == number);
        if let Some(fan_in) = fan_in {
            let made = self.subs[fan_in].attempts;
            let runs = matches!(self.subs[fan_in].phase, Phase::Runs(_));
            if runs || outcome == JobOutcome::Succeeded && made < job.allowed {
                return None;
            }
            if self.subs[fan_in].phase != Phase::Waits {
                return None;
            }
            self.subs.remove(fan_in);
            if outcome == JobOutcome::Succeeded {
                self.jobs.retain(|job| job.number != number);
                return Some(JobOutcome::Failed);
            }
        }
        self.jobs.retain(|job| job.number != number);
        Some(outcome)
    }

    /// Puts a job's subtasks behind all others. Of them `accepted` says how many have entered; and what it must say.
    fn begin(&mut self, number: u64, subs: Vec<Sub>, accepted: &AcceptResult) {
        let new: BTreeSet<Step> = subs.iter().map(|sub| sub.step).collect();
        self.subs.extend(
            subs.into_iter()
                .map(|sub| Sub { entered: !matches!(sub.step, Step::Subtask(_)), ..sub }),
        );
        let (mut failed, mut dropped) = (Vec::new(), 0);
        let allowed = self.job(number).allowed;
        let is_exhausted =
            |sub: &Sub| sub.job == number && sub.step == Step::Split && sub.attempts >= allowed;
        if let Some(at) = self.subs.iter().position(is_exhausted)
            && self.subs[at].phase == Phase::Waits
        {
            failed.push(Step::Split);
            self.subs.remove(at);
            self.note_fate(number, Step::Split, SubtaskFate::Failed);
            dropped += self.fail_fast(number);
        }
        // An entry without keys passes one of its job that is in the line.
        self.enter(number, accepted, |step| new.contains(&step), failed, dropped);
    }

    /// Some of a job's subtasks have entered; those among them that are exhausted fail.
    fn enter(
        &mut self,
        number: u64,
        accepted: &AcceptResult,
        is_of_entry: impl Fn(Step) -> bool,
        mut failed: Vec<Step>,
        mut dropped: u64,
    ) {
        let allowed = self.job(number).allowed;
        let (mut exhausted, mut superseded) = (Vec::new(), Vec::new());
        for _ in 0..accepted.entered {
            let is_next = |sub: &Sub| sub.job == number && !sub.entered && is_of_entry(sub.step);
            let at = self.subs.iter().position(is_next).expect("it has entered");
            self.subs[at].entered = true;
            if self.subs[at].attempts >= allowed {
                exhausted.push(self.subs[at].clone());
            }
            superseded.extend(self.replace_latest(at));
        }
        assert_eq!(accepted.superseded, superseded);
        for sub in exhausted {
            let job = self.job(number);
            if job.course != Course::Open {
                break;
            }
            let stops = job.on_fail == KeyFailurePolicy::StopKey && !sub.keys.is_empty();
            let at =
                self.subs.iter().position(|it| it.job == number && it.step == sub.step).unwrap();
            if stops {
                self.stop(at);
                continue;
            }
            failed.push(sub.step);
            self.subs.remove(at);
            self.note_fate(number, sub.step, SubtaskFate::Failed);
            dropped += self.fail_fast(number);
        }
        let over = self.conclude(number);
        assert_eq!((&accepted.failed, accepted.dropped, accepted.over), (&failed, dropped, over));
    }

    /// A subtask that has entered replaces the newest of its key, if that waits.
    fn replace_latest(&mut self, at: usize) -> Option<SupersededSubtask> {
        let new = self.subs[at].clone();
        if !new.is_latest || new.attempts > 0 {
            return None;
        }
        let is_newest = |sub: &Sub| sub.is_newest && sub.keys == new.keys;
        let old = self.subs.iter().position(is_newest);
        self.subs[at].is_newest = true;
        let old = old?;
        self.subs[old].is_newest = false;
        if self.subs[old].phase == Phase::Dropped {
            return None;
        }
        assert_eq!((self.subs[old].phase, self.subs[old].attempts), (Phase::Waits, 0));
        let old = self.subs.remove(old);
        self.job_mut(old.job).ended.superseded += 1;
        let over = self.conclude(old.job);
        let [subtask, by] = [old, new].map(|sub| {
            let Step::Subtask(number) = sub.step else { panic!("a subtask") };
            SubtaskId { job: JobNumber(sub.job), number }
        });
        Some(SupersededSubtask { subtask, by, over })
    }

    /// A slice enters or leaves.
    fn work_off(&mut self) {
        let has_work = self.scheduler.has_work();
        let Some(SliceResult { job, accepted }) = self.scheduler.work_off(self.now) else {
            return assert!(!has_work);
        };
        assert!(has_work);
        drop(self.scheduler.take_trash());
        self.see_swept();
        self.enter(job.0, &accepted, |_| true, Vec::new(), 0);
    }

    fn note_fate(&mut self, number: u64, step: Step, fate: SubtaskFate) {
        let job = self.job_mut(number);
        match (step, fate) {
            (Step::Subtask(_), SubtaskFate::Succeeded) => job.ended.succeeded += 1,
            (Step::Subtask(number), SubtaskFate::Failed) => {
                job.ended.failed += 1;
                job.failed_numbers.insert(number);
            }
            (Step::Subtask(_), _) => job.ended.cancelled += 1,
            (_, SubtaskFate::Failed) => job.step_failed = true,
            (Step::FanIn, SubtaskFate::Cancelled) if job.course == Course::Finishing => {
                job.course = Course::Cancelled;
            }
            _ => {}
        }
        if step == Step::FanIn {
            job.fan_in = false;
        }
    }

    fn accept(&mut self, new: &NewOne) {
        let mut new = new.clone();
        if new.kind == STEPS_APART && new.split {
            new.subtasks.clear();
        }
        let number = self.next_job;
        self.next_job += 1;
        let sub = |step, keys: &[u8]| Sub {
            job: number,
            step,
            keys: keys_of(keys).0,
            shared: keys_of(keys).1,
            is_barrier: new.barriers && keys.contains(&BARRIER),
            limit: limit_of(new.limit),
            is_latest: is_latest(keys),
            is_newest: false,
            phase: Phase::Waits,
            attempts: 0,
            entered: false,
        };
        let subs: Vec<Sub> = new
            .subtasks
            .iter()
            .enumerate()
            .map(|(n, keys)| sub(Step::Subtask(n as u32), keys))
            .collect();
        let starts_at = (new.delay > 0).then_some(self.now + new.delay);
        self.jobs.push(Job {
            number,
            kind: new.kind,
            on_error: if new.fail_fast {
                JobFailurePolicy::FailFast
            } else {
                JobFailurePolicy::FinishAll
            },
            on_fail: if new.stop_key {
                KeyFailurePolicy::StopKey
            } else {
                KeyFailurePolicy::Continue
            },
            allowed: new.allowed,
            paused: new.paused,
            starts_at,
            is_due: false,
            parked: Vec::new(),
            parked_rest: Vec::new(),
            fan_in: new.fan_in,
            barriers: new.barriers,
            limit: new.limit,
            course: Course::Open,
            ended: EndedCounts::default(),
            step_failed: false,
            failed_numbers: BTreeSet::new(),
            next_number: subs.len() as u32,
        });
        let mut steps = Vec::new();
        steps.extend(new.split.then(|| sub(Step::Split, &[])));
        steps.extend(new.fan_in.then(|| sub(Step::FanIn, &[])));
        self.tell_job(number, subs, steps);
    }

    /// Has the scheduler accept a job of the model with what is left of it.
    fn tell_job(&mut self, number: u64, subs: Vec<Sub>, steps: Vec<Sub>) {
        let job = self.job(number).clone();
        let new = new_subtasks(&subs);
        let made = |step| steps.iter().find(|it| it.step == step).map(|it| it.attempts);
        let accepted = self.scheduler.accept(
            NewJob {
                kind: KindId(job.kind),
                priority: Priority::ALL[number as usize % Priority::ALL.len()],
                on_error: job.on_error,
                on_fail: job.on_fail,
                attempts_allowed: job.allowed,
                paused: job.paused,
                start_at: job.starts_at,
                split: made(Step::Split),
                fan_in: made(Step::FanIn),
                ended: job.ended,
                has_barriers: job.barriers,
                max_per_key: (job.limit > 0).then_some(job.limit),
                ..NewJob::new(JobNumber(number), borrowed(&new))
            },
            self.now,
        );
        if job.starts_at.is_some() {
            let job = self.job_mut(number);
            (job.parked, job.parked_rest) = (subs, steps);
            job.is_due = false;
            assert_eq!(accepted, AcceptResult::default());
        } else {
            self.begin(number, subs.into_iter().chain(steps).collect(), &accepted);
        }
    }

    fn end(&mut self, which: usize, how: u8) {
        let runs: Vec<usize> = (0..self.subs.len())
            .filter(|at| matches!(self.subs[*at].phase, Phase::Runs(_)))
            .collect();
        if runs.is_empty() {
            return;
        }
        let at = runs[which % runs.len()];
        let sub = self.subs[at].clone();
        let Phase::Runs(fence) = sub.phase else { unreachable!() };
        let retry_at = self.now + u64::from(how % 16);
        let end = match how % 9 {
            0..4 => RunEnd::Succeeded,
            4 => RunEnd::Failed { retry_at: None },
            5 | 6 => RunEnd::Failed { retry_at: Some(retry_at) },
            7 => RunEnd::Lost,
            _ => RunEnd::Withdrawn,
        };
        let job = self.job(sub.job).clone();
        let has_more = sub.attempts < job.allowed && job.course == Course::Open;
        let stops = job.on_fail == KeyFailurePolicy::StopKey && !sub.keys.is_empty();
        let fate = match end {
            RunEnd::Succeeded => SubtaskFate::Succeeded,
            RunEnd::Failed { retry_at: Some(at) } if has_more => {
                SubtaskFate::Again { at: (at > self.now).then_some(at) }
            }
            RunEnd::Lost if has_more => SubtaskFate::Again { at: None },
            RunEnd::Withdrawn if job.course == Course::Open => SubtaskFate::Again { at: None },
            RunEnd::Failed { retry_at: Some(_) } | RunEnd::Lost | RunEnd::Withdrawn
                if job.course != Course::Open =>
            {
                SubtaskFate::Cancelled
            }
            _ if stops && !job.course.is_dropped() => SubtaskFate::Stopped,
            _ => SubtaskFate::Failed,
        };
        let number = JobNumber(sub.job);
        let ended = self.scheduler.ended(number, sub.step, fence, end, self.now).unwrap();
        assert_eq!(ended.fate, fate);
        assert_eq!(self.scheduler.ended(number, sub.step, fence, end, self.now), Err(StaleFence));
        let (mut dropped, mut over) = (0, None);
        self.subs[at].attempts -= u32::from(end == RunEnd::Withdrawn);
        match fate {
            SubtaskFate::Again { at: Some(until) } => self.subs[at].phase = Phase::BacksOff(until),
            SubtaskFate::Again { at: None } => self.subs[at].phase = Phase::Waits,
            SubtaskFate::Stopped => self.stop(at),
            _ => {
                self.subs.remove(at);
                self.note_fate(sub.job, sub.step, fate);
                if fate == SubtaskFate::Failed {
                    dropped = self.fail_fast(sub.job);
                }
                over = self.conclude(sub.job);
            }
        }
        assert_eq!((ended.dropped, ended.over), (dropped, over));
    }

    /// A subtask stops its keys. If it waits for no other, it becomes the first of them.
    fn stop(&mut self, at: usize) {
        self.subs[at].phase = Phase::Stopped;
        if is_in_front(&self.subs, at) {
            self.subs[..=at].rotate_right(1);
        }
    }

    fn add(&mut self, which: usize, keys: &[Vec<u8>]) {
        let Some(number) = self.pick(which) else { return };
        let job = self.job(number).clone();
        let split = self.subs.iter().find(|sub| sub.job == number && sub.step == Step::Split);
        let has_split = split.is_some();
        let has_begun = split.is_none_or(|split| split.attempts > 0);
        if job.kind == STEPS_APART && !has_begun {
            return;
        }
        let sub = |n: usize, keys: &Vec<u8>| Sub {
            job: number,
            step: Step::Subtask(job.next_number + n as u32),
            keys: keys_of(keys).0,
            shared: keys_of(keys).1,
            is_barrier: job.barriers && keys.contains(&BARRIER),
            limit: limit_of(job.limit),
            is_latest: is_latest(keys),
            is_newest: false,
            phase: Phase::Waits,
            attempts: 0,
            entered: false,
        };
        let subs: Vec<Sub> = keys.iter().enumerate().map(|(n, keys)| sub(n, keys)).collect();
        let new = new_subtasks(&subs);
        let added = self.scheduler.add_subtasks(JobNumber(number), borrowed(&new), self.now);
        if !has_split || job.course != Course::Open {
            assert_eq!(added, Err(AddError::Closed));
            return;
        }
        self.job_mut(number).next_number += subs.len() as u32;
        self.begin(number, subs, &added.unwrap());
    }

    fn reopen(&mut self, which: usize) {
        let Some(number) = self.pick(which) else { return };
        let job = self.job(number).clone();
        let has_fan_in_begun = {
            let mut all = self.subs.iter().filter(|sub| sub.job == number);
            all.clone().count() == 1 && all.all(|sub| sub.step == Step::FanIn)
        };
        let subs: Vec<Sub> = job
            .failed_numbers
            .iter()
            .take(3)
            .map(|n| Sub {
                job: number,
                step: Step::Subtask(*n),
                keys: BTreeSet::from([(*n % 6) as u8]),
                shared: BTreeSet::new(),
                is_barrier: job.barriers && n % 5 == 1,
                limit: limit_of(job.limit),
                is_latest: n % 3 == 1 && n % 5 != 1,
                is_newest: false,
                phase: Phase::Waits,
                attempts: 0,
                entered: false,
            })
            .collect();
        let new = new_subtasks(&subs);
        let reopened = self.scheduler.reopen(JobNumber(number), borrowed(&new), self.now);
        if job.starts_at.is_some() || job.course != Course::Open || has_fan_in_begun {
            assert_eq!(reopened, Err(AddError::Closed));
            return;
        }
        let changed = self.job_mut(number);
        changed.ended.failed -= subs.len() as u64;
        subs.iter().for_each(|sub| {
            let Step::Subtask(n) = sub.step else { unreachable!() };
            changed.failed_numbers.remove(&n);
        });
        self.begin(number, subs, &reopened.unwrap());
    }

    /// The time of a job has come: it is cancelled, unless everything of it has started.
    fn expire(&mut self, number: u64) {
        let job = self.job(number);
        let has_started = |sub: &Sub| {
            matches!(sub.phase, Phase::Runs(_) | Phase::Stopped) && sub.step != Step::Split
        };
        let is_whole = job.starts_at.is_none()
            && self.subs.iter().filter(|sub| sub.job == number).all(has_started);
        let (is_open, finishes) =
            (job.course == Course::Open, job.course != Course::Open || is_whole);
        assert_eq!(self.scheduler.let_finish(JobNumber(number)), finishes);
        match finishes {
            false => self.cancel(number, false),
            true if is_open => self.job_mut(number).course = Course::Finishing,
            true => {}
        }
    }

    /// A job is cancelled, or fails at once.
    fn cancel(&mut self, number: u64, fails: bool) {
        let cancelled = match fails {
            true => self.scheduler.fail_job(JobNumber(number), self.now),
            false => self.scheduler.cancel_job(JobNumber(number), self.now),
        };
        let cancelled = cancelled.unwrap();
        let job = self.job_mut(number);
        if !job.course.is_dropped() {
            job.course = if fails { Course::Failing } else { Course::Cancelled };
        }
        let dropped = self.drop_rest(number);
        let mut running: Vec<_> = self
            .subs
            .iter()
            .filter(|sub| sub.job == number && sub.phase != Phase::Dropped)
            .map(|sub| match sub.phase {
                Phase::Runs(fence) => (sub.step, fence),
                other => panic!("{other:?}"),
            })
            .collect();
        running.sort_by_key(|(_, fence)| *fence);
        let over = self.conclude(number);
        assert_eq!((cancelled.dropped, cancelled.running), (dropped, running));
        assert_eq!(cancelled.over, over);
        assert_eq!(self.scheduler.counts(JobNumber(number)).is_none(), over.is_some());
    }

    fn skip(&mut self, letter: u8) {
        let skipped = self.scheduler.skip_head(&key(letter), self.now);
        let is_head = |sub: &Sub| sub.entered && sub.keys.contains(&letter);
        let at = self.subs.iter().position(is_head);
        let Some(at) = at else { return assert_eq!(skipped, Err(KeyHeadError::NoHead)) };
        if self.subs[at].phase == Phase::Dropped {
            return assert_eq!(skipped, Err(KeyHeadError::Dropped));
        }
        if matches!(self.subs[at].phase, Phase::Runs(_)) {
            return assert_eq!(skipped, Err(KeyHeadError::Running));
        }
        let skipped = skipped.unwrap();
        let sub = self.subs.remove(at);
        assert_eq!((skipped.job.0, Step::Subtask(skipped.subtask)), (sub.job, sub.step));
        self.note_fate(sub.job, sub.step, SubtaskFate::Failed);
        let expected = (self.fail_fast(sub.job), self.conclude(sub.job));
        assert_eq!((skipped.ended.dropped, skipped.ended.over), expected);
    }

    fn retry(&mut self, letter: u8) {
        let retried = self.scheduler.retry_head(&key(letter), self.now);
        let is_head = |sub: &&mut Sub| sub.entered && sub.keys.contains(&letter);
        let head = self.subs.iter_mut().find(is_head);
        let Some(head) = head else { return assert_eq!(retried, Err(KeyHeadError::NoHead)) };
        let had_stopped = match head.phase {
            Phase::Dropped => return assert_eq!(retried, Err(KeyHeadError::Dropped)),
            Phase::Waits => return assert_eq!(retried, Err(KeyHeadError::NotFailed)),
            Phase::Runs(_) => return assert_eq!(retried, Err(KeyHeadError::Running)),
            Phase::BacksOff(_) => false,
            Phase::Stopped => true,
        };
        let retried = retried.unwrap();
        assert_eq!((retried.job.0, Step::Subtask(retried.subtask)), (head.job, head.step));
        assert_eq!(retried.had_stopped, had_stopped);
        head.phase = Phase::Waits;
        let jobs = &self.jobs;
        let allowed = jobs.iter().find(|job| job.number == head.job).unwrap().allowed;
        head.attempts = head.attempts.min(allowed.saturating_sub(1));
    }

    fn timeout(&mut self) {
        let next = self.scheduler.next_timeout();
        let mut jobs = self.scheduler.handle_timeout(self.now);
        while self.scheduler.next_timeout().is_some_and(|next| next <= self.now) {
            jobs.extend(self.scheduler.handle_timeout(self.now));
        }
        let attempts = self.subs.iter().filter_map(|sub| match sub.phase {
            Phase::BacksOff(until) => Some(until),
            _ => None,
        });
        let begins = self.jobs.iter().filter(|job| !job.is_due).filter_map(|job| job.starts_at);
        if let Some(due) = attempts.chain(begins).min() {
            assert!(next.is_some_and(|next| next <= due), "a timer is missing");
        }
        for sub in &mut self.subs {
            if matches!(sub.phase, Phase::BacksOff(until) if until <= self.now) {
                sub.phase = Phase::Waits;
            }
        }
        let now = self.now;
        let mut due = BTreeSet::new();
        for job in &mut self.jobs {
            if !job.is_due && job.starts_at.is_some_and(|at| at <= now) {
                job.is_due = true;
                due.insert(job.number);
            }
        }
        assert_eq!(jobs.iter().map(|job| job.0).collect::<BTreeSet<_>>(), due);
    }

    /// A job that is scheduled begins, if it is.
    fn begin_scheduled(&mut self, which: usize) {
        let Some(number) = self.pick(which) else { return };
        let begun = self.scheduler.begin(JobNumber(number), self.now);
        let job = self.job_mut(number);
        if job.starts_at.take().is_none() {
            return assert_eq!(begun, None);
        }
        job.is_due = false;
        let subs = job.unpark();
        self.begin(number, subs, &begun.unwrap());
    }

    fn set_kind(&mut self, kind: u32, limits: KindLimits) {
        self.scheduler.set_kind(KindId(kind), limits, self.now);
        let state = self.kinds.entry(kind).or_default();
        let most = limits.rate.map_or(0, full);
        state.level = match (state.limits.rate, limits.rate) {
            (Some(old), Some(new)) => {
                (state.level * u64::from(new.period_ms) / u64::from(old.period_ms)).min(most)
            }
            _ => most,
        };
        if state.limits.rate_per_key != limits.rate_per_key {
            state.keys.clear();
        }
        state.limits = limits;
        // Those that were held back by the old rate are released in slices.
        self.timeout();
    }

    fn pass(&mut self, time: u64) {
        self.now += time;
        for kind in self.kinds.values_mut() {
            if let Some(rate) = kind.limits.rate {
                kind.level = (kind.level + time * u64::from(rate.tokens)).min(full(rate));
            }
            if let Some(rate) = kind.limits.rate_per_key {
                for level in kind.keys.values_mut() {
                    *level = (*level + time * u64::from(rate.tokens)).min(full(rate));
                }
            }
        }
    }

    /// Sets the clock: delays keep their length, except for the start times of scheduled jobs.
    fn shift(&mut self, by: i64) {
        self.scheduler.shift(by);
        self.now = self.now.saturating_add_signed(by);
        for sub in &mut self.subs {
            if let Phase::BacksOff(until) = &mut sub.phase {
                *until = until.saturating_add_signed(by);
            }
        }
    }

    /// Has what was under way before a restart go on, wherever that can be.
    fn restore(&mut self, was: &Sub) {
        let Step::Subtask(number) = was.step else { return self.restore_step(was) };
        let restored = match was.phase {
            Phase::Waits | Phase::Dropped => return,
            Phase::Runs(fence) => RestoredState::Running { fence, since: self.now },
            Phase::BacksOff(until) => RestoredState::BackingOff { until },
            Phase::Stopped => RestoredState::Stopped,
        };
        let is_it = |sub: &Sub| sub.job == was.job && sub.step == was.step;
        let at = self.subs.iter().position(is_it);
        let stands_behind = |at: usize| !is_in_front(&self.subs, at);
        let can_be = at.filter(|at| match was.phase {
            _ if self.subs[*at].phase != Phase::Waits => false,
            Phase::Stopped => !was.keys.is_empty(),
            _ => !stands_behind(*at),
        });
        let job = JobNumber(was.job);
        assert_eq!(self.scheduler.restore(job, number, restored, self.now), can_be.is_some());
        if let Some(at) = can_be {
            self.subs[at].phase = was.phase;
            if was.phase == Phase::Stopped {
                return self.stop(at);
            }
            self.subs[at].attempts += u32::from(matches!(was.phase, Phase::Runs(_)));
        }
    }

    /// A split or a fan-in that was to wait does, wherever that can be.
    fn restore_step(&mut self, was: &Sub) {
        let Phase::BacksOff(until) = was.phase else { return };
        let mine = |sub: &Sub| sub.job == was.job;
        let is_last =
            was.step == Step::Split || self.subs.iter().filter(|sub| mine(sub)).count() == 1;
        let at = self.subs.iter().position(|sub| mine(sub) && sub.step == was.step);
        let can_be = at.filter(|at| is_last && self.subs[*at].phase == Phase::Waits);
        let job = JobNumber(was.job);
        let is_restored = self.scheduler.restore_backoff(job, was.step, until, self.now);
        assert_eq!(is_restored, can_be.is_some());
        if let Some(at) = can_be {
            self.subs[at].phase = was.phase;
        }
    }

    /// The process dies and another recovers the unfinished jobs.
    fn restart(&mut self, restores: bool) {
        let settings = SchedulerSettings {
            slots: self.slots,
            first_fence: self.last_fence + 1000,
            ..self.settings.clone()
        };
        self.scheduler = Scheduler::new(settings);
        for (kind, state) in &mut self.kinds {
            self.scheduler.set_kind(KindId(*kind), state.limits, self.now);
            state.level =
                state.limits.rate.map_or(0, |rate| u64::from(rate.period_ms * rate.burst));
            state.keys.clear();
        }
        for letter in &self.paused_keys {
            assert!(self.scheduler.pause_key(&key(*letter), self.now));
        }
        // Cancelled and failed subtasks are on disk as finished.
        let is_open = |job: &Job| job.course == Course::Open;
        let open: BTreeSet<u64> =
            self.jobs.iter().filter(|job| is_open(job)).map(|job| job.number).collect();
        self.jobs.retain(is_open);
        let mut subs = std::mem::take(&mut self.subs);
        subs.retain(|sub| open.contains(&sub.job));
        debug_assert!(subs.iter().all(|sub| sub.phase != Phase::Dropped));
        let before = subs.clone();
        for number in open {
            let mut mine: Vec<Sub> = subs.iter().filter(|sub| sub.job == number).cloned().collect();
            for sub in &mut mine {
                let is_subtask = matches!(sub.step, Step::Subtask(_));
                let runs = matches!(sub.phase, Phase::Runs(_));
                sub.attempts -= u32::from(restores && is_subtask && runs);
                // The owner accepts one that has started as one that replaces none.
                sub.is_latest &= sub.phase == Phase::Waits && sub.attempts == 0;
                sub.is_newest = false;
                sub.phase = Phase::Waits;
            }
            let job = self.job_mut(number);
            if job.starts_at.is_some() {
                mine = job.unpark();
            }
            mine.sort_by_key(|sub| sub.step);
            let has_subtasks = mine.iter().any(|sub| matches!(sub.step, Step::Subtask(_)));
            if self.job(number).kind == STEPS_APART && has_subtasks {
                // That these were added has ended the split.
                mine.retain(|sub| sub.step != Step::Split);
            }
            let (subs, steps) =
                mine.into_iter().partition(|sub| matches!(sub.step, Step::Subtask(_)));
            self.job_mut(number).step_failed = false;
            self.tell_job(number, subs, steps);
            if restores {
                // As the engine does: what was under way heads its lanes when all of the job has entered.
                while self.scheduler.has_work() {
                    self.work_off();
                }
                before.iter().filter(|sub| sub.job == number).for_each(|sub| self.restore(sub));
            }
        }
    }

    fn apply(&mut self, op: &Op) {
        match op {
            Op::Accept(new) => self.accept(new),
            Op::End { which, how } => self.end(*which, *how),
            Op::Stale { which } if !self.starts.is_empty() => {
                let RunStart { job, step, fence, .. } = self.starts[which % self.starts.len()];
                let is_it = |sub: &Sub| sub.phase == Phase::Runs(fence);
                if !self.subs.iter().any(is_it) {
                    let ended = self.scheduler.ended(job, step, fence, RunEnd::Succeeded, self.now);
                    assert_eq!(ended, Err(StaleFence));
                }
                let other = JobNumber(job.0 + 1);
                let ended = self.scheduler.ended(other, step, fence, RunEnd::Succeeded, self.now);
                assert_eq!(ended, Err(StaleFence));
            }
            Op::Stale { .. } => {}
            Op::Add { which, subtasks } => self.add(*which, subtasks),
            Op::Reopen { which } => self.reopen(*which),
            Op::Pause { which, paused } => {
                let Some(number) = self.pick(*which) else { return };
                let was = std::mem::replace(&mut self.job_mut(number).paused, *paused);
                let number = JobNumber(number);
                let changed = match paused {
                    true => self.scheduler.pause_job(number, self.now),
                    false => self.scheduler.resume_job(number, self.now),
                };
                assert_eq!(changed, was != *paused);
            }
            Op::Cancel { which, fails } => {
                if let Some(number) = self.pick(*which) {
                    self.cancel(number, *fails);
                }
            }
            Op::Expire { which } => {
                if let Some(number) = self.pick(*which) {
                    self.expire(number);
                }
            }
            Op::PauseKey { key: letter, paused: true } => {
                let is_new = self.paused_keys.insert(*letter);
                assert_eq!(self.scheduler.pause_key(&key(*letter), self.now), is_new);
            }
            Op::PauseKey { key: letter, paused: false } => {
                let was = self.paused_keys.remove(letter);
                assert_eq!(self.scheduler.resume_key(&key(*letter), self.now), was);
            }
            Op::Retry { key } => self.retry(*key),
            Op::Skip { key } => self.skip(*key),
            Op::Resize { slots } => {
                self.slots = *slots;
                self.scheduler.resize(*slots, self.now);
            }
            Op::SetKind { kind, concurrency, rate, rate_per_key, subtasks_only } => {
                let [rate, rate_per_key] = [rate, rate_per_key].map(|rate| {
                    rate.map(|(tokens, period_ms, burst)| RateLimit { tokens, period_ms, burst })
                });
                let concurrency = *concurrency;
                let subtasks_only = *subtasks_only && *kind == STEPS_APART;
                self.set_kind(*kind, KindLimits { concurrency, rate, rate_per_key, subtasks_only });
            }
            Op::Weigh { which, weight } => {
                if let Some(number) = self.pick(*which) {
                    assert!(self.scheduler.set_weight(JobNumber(number), *weight, self.now));
                }
            }
            Op::Pass { time } => self.pass(*time),
            Op::Timeout => self.timeout(),
            Op::Begin { which } => self.begin_scheduled(*which),
            Op::WorkOff => self.work_off(),
            Op::Shift { by } => self.shift(*by),
            Op::Restart { restores } => self.restart(*restores),
        }
    }

    fn step(&mut self, op: &Op) {
        self.apply(op);
        self.scheduler.advance_all();
        self.check();
        self.start_all();
        self.check();
    }

    /// Lets everything go, and sees it all end.
    fn finish(&mut self) {
        self.step(&Op::Resize { slots: 3 });
        for kind in 0..3 {
            let (concurrency, rate, rate_per_key, subtasks_only) = (None, None, None, false);
            self.step(&Op::SetKind { kind, concurrency, rate, rate_per_key, subtasks_only });
        }
        for key in 0..6 {
            self.step(&Op::PauseKey { key, paused: false });
        }
        for which in 0..self.jobs.len() {
            let number = self.jobs[which].number;
            if self.job(number).paused {
                self.step(&Op::Pause { which, paused: false });
            }
        }
        while !self.jobs.is_empty() {
            self.step(&Op::Pass { time: 50 });
            self.step(&Op::Timeout);
            (0..self.jobs.len()).for_each(|which| self.step(&Op::Begin { which }));
            while self.scheduler.has_work() {
                self.step(&Op::WorkOff);
            }
            (0..6).for_each(|key| self.step(&Op::Retry { key }));
            while self.running() > 0 {
                self.step(&Op::End { which: 0, how: 0 });
            }
        }
        assert!(self.subs.is_empty());
        self.scheduler.check_empty();
    }
}

/// Whether two subtasks have the key, and not both share it.
fn conflict_on(one: &Sub, other: &Sub, letter: u8) -> bool {
    let both = |of: fn(&Sub) -> &BTreeSet<u8>| [one, other].map(|sub| of(sub).contains(&letter));
    let both_limit = [one, other].iter().all(|sub| sub.limit > 0 && !sub.shared.contains(&letter));
    both(|sub| &sub.keys) == [true; 2] && both(|sub| &sub.shared) != [true; 2] && !both_limit
}

fn limit_of(max_per_key: u16) -> u16 {
    if max_per_key > 1 { max_per_key } else { 0 }
}

/// Whether nothing before a subtask keeps it from running: no conflict, and no key with as many as its limit.
fn is_in_front(subs: &[Sub], at: usize) -> bool {
    let sub = &subs[at];
    let has_room = |letter: &u8| has_room(&subs[..at], sub, *letter);
    !subs[..at].iter().any(|other| conflict(other, sub)) && sub.keys.iter().all(has_room)
}

/// Whether a key has room for one more, behind these.
fn has_room(before: &[Sub], sub: &Sub, letter: u8) -> bool {
    if sub.limit == 0 || sub.shared.contains(&letter) {
        return true;
    }
    let limits = before.iter().filter(|it| it.keys.contains(&letter)).map(|it| it.limit);
    let least = limits.clone().chain([sub.limit]).min().unwrap();
    limits.count() < usize::from(least)
}

fn conflict(one: &Sub, other: &Sub) -> bool {
    let are_subtasks = [one, other].iter().all(|sub| matches!(sub.step, Step::Subtask(_)));
    let is_barrier = one.job == other.job && are_subtasks && (one.is_barrier || other.is_barrier);
    is_barrier || one.keys.iter().any(|letter| conflict_on(one, other, *letter))
}

/// Whether keys and the other subtasks of its job let it run.
fn is_free(subs: &[Sub], paused: &BTreeSet<u8>, at: usize) -> bool {
    let sub = &subs[at];
    match sub.step {
        Step::FanIn => subs.iter().all(|other| other.job != sub.job || other.step == Step::FanIn),
        _ => is_in_front(subs, at) && sub.keys.is_disjoint(paused),
    }
}

fn may_start(
    subs: &[Sub],
    jobs: &[Job],
    kinds: &BTreeMap<u32, Kind>,
    paused: &BTreeSet<u8>,
    at: usize,
) -> bool {
    let sub = &subs[at];
    let job = |number| jobs.iter().find(|job| job.number == number).unwrap();
    let mine = job(sub.job);
    let runs = |sub: &&Sub| matches!(sub.phase, Phase::Runs(_)) && job(sub.job).kind == mine.kind;
    let has_room = kinds.get(&mine.kind).is_none_or(|kind| {
        let runs = subs.iter().filter(runs).filter(|sub| kind.counts(sub.step));
        let running = runs.count() as u32;
        !kind.counts(sub.step)
            || kind.limits.concurrency.is_none_or(|bound| running < bound)
                && kind.limits.rate.is_none_or(|rate| kind.level >= u64::from(rate.period_ms))
    });
    let rate_per_key = kinds.get(&mine.kind).and_then(|kind| kind.limits.rate_per_key);
    let has_tokens = rate_per_key.is_none_or(|rate| {
        let level = |key| kinds[&mine.kind].keys.get(key).copied().unwrap_or(full(rate));
        own_keys(sub).iter().all(|key| level(key) >= u64::from(rate.period_ms))
    });
    sub.phase == Phase::Waits
        && has_tokens
        && sub.entered
        && is_free(subs, paused, at)
        && !mine.course.is_dropped()
        && !mine.paused
        && has_room
}

/// Keys that a subtask does not share.
fn own_keys(sub: &Sub) -> BTreeSet<u8> {
    &sub.keys - &sub.shared
}

/// Level of a full bucket.
fn full(rate: RateLimit) -> u64 {
    u64::from(rate.period_ms * rate.burst)
}

fn letter_of(key: &Key) -> u8 {
    (key.0.len() / 6) as u8
}

impl Kind {
    /// Whether its limits are for this step.
    fn counts(&self, step: Step) -> bool {
        !self.limits.subtasks_only || matches!(step, Step::Subtask(_))
    }
}

impl Job {
    fn unpark(&mut self) -> Vec<Sub> {
        let steps = std::mem::take(&mut self.parked_rest);
        std::mem::take(&mut self.parked).into_iter().chain(steps).collect()
    }
}

/// Number of programs: `KEYLANE_EFFORT` multiplies it.
fn programs() -> u32 {
    let effort = std::env::var("KEYLANE_EFFORT");
    150 * effort.map_or(1, |text| text.parse().expect("KEYLANE_EFFORT is a number"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(programs()))]

    #[test]
    fn the_scheduler_does_what_the_model_does(
        slots in 1..5_usize,
        slice in prop_oneof![Just(1024), 1..8_u32],
        order in prop::sample::select(&[JobPolicy::Arrival, JobPolicy::Balanced, JobPolicy::Shortest][..]),
        program in prop::collection::vec(ops(), 1..120),
    ) {
        let mut pair = Pair::new(slots, order, slice);
        program.iter().for_each(|op| pair.step(op));
        pair.finish();
    }
}
