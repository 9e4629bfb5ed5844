//! Random programs: settings of a pool, steps, and the end.

use proptest::prelude::*;

/// Number of keys that programs use.
pub(super) const KEYS: u32 = 3;
/// Bound of the number of steps of a program.
const MAX_STEPS: usize = 50;

/// Use of a key by a task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    Exclusive,
    Shared,
    Limited(u16),
}

/// Claims of a task.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Claim {
    /// Keys, none twice, and the range of a descriptor.
    Some {
        keys: Vec<(u32, Mode)>,
        span: Option<(u8, u8)>,
    },
    All,
}

/// Work of a task.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    Closure,
    Future,
    /// Closure whose first attempts fail, with the maximum number of attempts.
    Retry {
        failures: u32,
        attempts: u32,
    },
}

/// End of a closure or a future.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Result {
    Value,
    Error,
    Panic,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Role {
    Ordinary,
    Latest,
    /// End of its key, and whether later tasks are refused.
    Last {
        refuses: bool,
    },
}

/// A submission.
#[derive(Clone, Debug)]
pub(super) struct Submission {
    pub(super) claim: Claim,
    pub(super) role: Role,
    pub(super) kind: Kind,
    pub(super) result: Result,
    /// Delay, in nanoseconds of the test's clock.
    pub(super) delay: Option<u64>,
}

/// Rate: at most `burst` tasks at once, and one more after each `interval`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bound {
    pub(super) interval: u64,
    pub(super) burst: u32,
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    Submit(Submission),
    /// Several tasks in one batch.
    Batch(Vec<Submission>),
    Job {
        subtasks: Vec<(u32, Mode)>,
    },
    /// Lets one of the running bodies end.
    Finish(usize),
    Cancel(usize),
    Pause(u32),
    Resume(u32),
    Take(u32),
    Reopen(u32),
    Rate(u32, Option<Bound>),
    PauseJob(usize),
    ResumeJob(usize),
    CancelJob(usize),
    Pass(u64),
    Workers(usize),
}

/// End of a program.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    /// All keys are resumed, and all tasks end.
    Finish,
    /// The pool is stopped.
    Stop,
    /// The pool is dropped.
    Drop,
}

#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) workers: usize,
    pub(super) rates: Vec<Option<Bound>>,
    pub(super) steps: Vec<Step>,
    pub(super) end: End,
}

fn bound() -> impl Strategy<Value = Bound> {
    (3..12_u64, 1..3_u32).prop_map(|(interval, burst)| Bound { interval, burst })
}

fn mode() -> impl Strategy<Value = Mode> {
    prop_oneof![
        3 => Just(Mode::Exclusive),
        3 => Just(Mode::Shared),
        3 => (1..4_u16).prop_map(Mode::Limited),
    ]
}

/// The keys are not equally frequent, so that several features meet in one.
fn key() -> impl Strategy<Value = u32> {
    prop_oneof![4 => Just(0), 3 => 0..KEYS]
}

fn claim() -> impl Strategy<Value = Claim> {
    let span = (0..6_u8, 1..4_u8).prop_map(|(from, length)| (from, from + length));
    let some = |keys| prop::collection::btree_map(key(), mode(), keys);
    let keys = prop_oneof![6 => some(1..2), 4 => some(2..4)];
    let keys = keys.prop_map(|keys| keys.into_iter().collect::<Vec<_>>());
    prop_oneof![
        12 => keys.clone().prop_map(|keys| Claim::Some { keys, span: None }),
        2 => span.clone().prop_map(|span| Claim::Some { keys: Vec::new(), span: Some(span) }),
        2 => (keys, span).prop_map(|(keys, span)| Claim::Some { keys, span: Some(span) }),
        1 => Just(Claim::All),
        1 => Just(Claim::Some { keys: Vec::new(), span: None }),
    ]
}

fn submission() -> impl Strategy<Value = Submission> {
    let kind = prop_oneof![
        6 => Just(Kind::Closure),
        2 => Just(Kind::Future),
        2 => (1..3_u32, 1..4_u32).prop_map(|(failures, attempts)| Kind::Retry { failures, attempts }),
    ];
    let result =
        prop_oneof![6 => Just(Result::Value), 1 => Just(Result::Error), 1 => Just(Result::Panic)];
    let role = prop_oneof![
        10 => Just(Role::Ordinary),
        4 => Just(Role::Latest),
        1 => any::<bool>().prop_map(|refuses| Role::Last { refuses }),
    ];
    let delay = prop_oneof![5 => Just(None), 1 => (1..20_u64).prop_map(Some)];
    (claim(), key(), role, kind, result, delay).prop_map(
        |(claim, key, role, kind, result, delay)| {
            let alone = Claim::Some { keys: vec![(key, Mode::Exclusive)], span: None };
            let claim = if role == Role::Ordinary { claim } else { alone };
            Submission { claim, role, kind, result, delay }
        },
    )
}

/// A submission without options, as batches have them.
fn plain() -> impl Strategy<Value = Submission> {
    claim().prop_map(|claim| Submission {
        claim,
        role: Role::Ordinary,
        kind: Kind::Closure,
        result: Result::Value,
        delay: None,
    })
}

fn step() -> impl Strategy<Value = Step> {
    let subtasks = prop::collection::vec((key(), mode()), 1..4);
    let number = any::<usize>;
    prop_oneof![
        20 => submission().prop_map(Step::Submit),
        1 => prop::collection::vec(plain(), 1..4).prop_map(Step::Batch),
        2 => subtasks.prop_map(|subtasks| Step::Job { subtasks }),
        18 => number().prop_map(Step::Finish),
        3 => number().prop_map(Step::Cancel),
        4 => key().prop_map(Step::Pause),
        6 => key().prop_map(Step::Resume),
        2 => key().prop_map(Step::Take),
        2 => key().prop_map(Step::Reopen),
        1 => (key(), prop::option::of(bound())).prop_map(|(key, rate)| Step::Rate(key, rate)),
        1 => number().prop_map(Step::PauseJob),
        1 => number().prop_map(Step::ResumeJob),
        1 => number().prop_map(Step::CancelJob),
        9 => (1..20_u64).prop_map(Step::Pass),
        2 => (1..5_usize).prop_map(Step::Workers),
    ]
}

/// Strategy of random programs.
pub(super) fn programs() -> impl Strategy<Value = Program> {
    let rates = prop::collection::vec(prop::option::weighted(0.4, bound()), KEYS as usize);
    let steps = prop::collection::vec(step(), 1..MAX_STEPS);
    let end = prop_oneof![4 => Just(End::Finish), 2 => Just(End::Stop), 1 => Just(End::Drop)];
    (1..4_usize, rates, steps, end).prop_map(|(workers, rates, steps, end)| Program {
        workers,
        rates,
        steps,
        end,
    })
}
