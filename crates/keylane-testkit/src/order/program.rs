//! Random programs: which tasks are submitted, how they end, and what happens to their keys.

use crate::random::Random;

/// Number of keys of a program. Few, so that tasks meet.
pub(super) const KEYS: u8 = 4;

/// Features of an executor. Programs use no others.
#[derive(Clone, Copy, Debug)]
pub struct Features {
    /// Tasks that share a key.
    pub shared: bool,
    /// Tasks that limit the users of a key.
    pub limited: bool,
    /// Tasks that conflict with all others.
    pub barriers: bool,
    /// Whether a cancelled task that waits leaves its keys at once. Otherwise it keeps its position
    /// until its turn has come.
    pub cancelled_leave_at_once: bool,
    /// Whether a failed task keeps its keys until one of them is released. Otherwise it ends, and its
    /// keys are paused.
    pub failed_keep_keys: bool,
    /// Whether a task with several keys may run although one of them was paused while it waited for
    /// another. Programs then pause and stop no key of such a task.
    pub pause_spares_rollups: bool,
}

/// How a task uses a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// Alone.
    Exclusive,
    /// With others that share it.
    Shared,
    /// With others that limit it, at most this number together.
    Limited(u16),
}

/// Keys of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claims {
    /// Some keys, each once.
    Keys(Vec<(u8, Use)>),
    /// All keys there are.
    Barrier,
}

/// Step of a program. `which` chooses among the tasks to which the step applies, modulo their number.
#[derive(Clone, Debug)]
pub enum Step {
    /// A task is submitted.
    Submit(Claims),
    /// A running task ends; if it fails, its keys are stopped.
    End {
        /// Choice of the task.
        which: usize,
        /// Whether it fails.
        fails: bool,
    },
    /// A waiting task is cancelled.
    Cancel {
        /// Choice of the task.
        which: usize,
    },
    /// A key is paused.
    Pause(u8),
    /// A key is resumed, and a failed task that keeps it is given up.
    Resume(u8),
    /// The number of tasks that may run at a time changes.
    Resize(usize),
}

/// Steps, and the number of tasks that may run at a time in the beginning.
#[derive(Clone, Debug)]
pub struct Program {
    /// Number of slots.
    pub slots: usize,
    /// Steps, in order.
    pub steps: Vec<Step>,
}

impl Program {
    /// Returns the program of a seed.
    #[must_use]
    pub fn random(seed: u64, features: Features) -> Self {
        let mut random = Random::new(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let slots = 1 + random.below(4);
        let count = 5 + random.below(60);
        let steps = (0..count).map(|_| step(&mut random, features)).collect();
        Program { slots, steps }
    }
}

fn step(random: &mut Random, features: Features) -> Step {
    match random.below(28) {
        0..=11 => Step::Submit(claims(random, features)),
        12..=20 => Step::End { which: random.below(1000), fails: random.below(8) == 0 },
        21 => Step::Cancel { which: random.below(1000) },
        22 | 23 => Step::Pause(random.below(KEYS.into()) as u8),
        24..=26 => Step::Resume(random.below(KEYS.into()) as u8),
        _ => Step::Resize(1 + random.below(4)),
    }
}

fn claims(random: &mut Random, features: Features) -> Claims {
    if features.barriers && random.below(15) == 0 {
        return Claims::Barrier;
    }
    let count = [0, 1, 1, 1, 1, 1, 2, 2, 3][random.below(9)];
    let mut keys: Vec<(u8, Use)> = Vec::new();
    for _ in 0..count {
        let key = random.below(KEYS.into()) as u8;
        if keys.iter().all(|(other, _)| *other != key) {
            keys.push((key, some_use(random, features)));
        }
    }
    Claims::Keys(keys)
}

fn some_use(random: &mut Random, features: Features) -> Use {
    match random.below(6) {
        0 | 1 if features.shared => Use::Shared,
        2 if features.limited => Use::Limited(1 + random.below(3) as u16),
        _ => Use::Exclusive,
    }
}

impl Claims {
    /// Returns how the keys of the claims are used. A barrier has no keys.
    #[must_use]
    pub fn uses(&self) -> &[(u8, Use)] {
        match self {
            Claims::Keys(keys) => keys,
            Claims::Barrier => &[],
        }
    }
}
