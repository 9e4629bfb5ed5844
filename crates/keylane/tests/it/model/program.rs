//! Steps of the tests on a pool.

use keylane::Placement;
use proptest::prelude::*;

use super::keys::{Keys, some_keys};

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Submit {
        keys: Keys,
        how: u8,
        fails: bool,
    },
    Batch {
        keys: Vec<Keys>,
        handles: bool,
    },
    /// Lets a running body go on; it first submits these.
    Finish {
        which: usize,
        inside: Vec<Keys>,
    },
    Cancel(usize),
    Detach(usize),
    Workers(usize),
    Capacity(usize),
    Close,
}

pub(crate) fn some_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (some_keys(), any::<u8>(), prop::bool::weighted(0.1))
            .prop_map(|(keys, how, fails)| Step::Submit { keys, how, fails }),
        2 => (prop::collection::vec(some_keys(), 0..5), any::<bool>())
            .prop_map(|(keys, handles)| Step::Batch { keys, handles }),
        10 => (any::<usize>(), prop::collection::vec(some_keys(), 0..3), prop::bool::weighted(0.2))
            .prop_map(|(which, inside, submits)| Step::Finish {
                which,
                inside: if submits { inside } else { Vec::new() },
            }),
        2 => any::<usize>().prop_map(Step::Cancel),
        1 => any::<usize>().prop_map(Step::Detach),
        1 => (1..5_usize).prop_map(Step::Workers),
        1 => (1..14_usize).prop_map(Step::Capacity),
        1 => prop::bool::weighted(0.1).prop_map(|closes| match closes {
            true => Step::Close,
            false => Step::Detach(0),
        }),
    ]
}

/// How a program ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Drain,
    Stop,
    Drop,
}

#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) workers: usize,
    pub(crate) capacity: usize,
    pub(crate) placement: Placement,
    pub(crate) steps: Vec<Step>,
    pub(crate) end: End,
}

pub(crate) fn some_program() -> impl Strategy<Value = Program> {
    let end = prop_oneof![Just(End::Drain), Just(End::Stop), Just(End::Drop)];
    let placement = prop_oneof![Just(Placement::Any), Just(Placement::Sticky)];
    (1..4_usize, 1..14_usize, placement, prop::collection::vec(some_step(), 1..50), end).prop_map(
        |(workers, capacity, placement, steps, end)| Program {
            workers,
            capacity,
            placement,
            steps,
            end,
        },
    )
}
