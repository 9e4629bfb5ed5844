//! Decides which key, and which place within its key, each task of a run has.
//!
//! Plans are made before the clock starts and depend on fixed seeds only, so every pool gets the
//! same tasks in the same order.

use crate::rng::Rng;

/// A key and the place of a task among the tasks of that key, from 0.
pub(crate) type Step = (u32, u32);

/// What one producer submits, in order.
pub(crate) type Steps = Vec<Step>;

/// `producers` lists of steps over disjoint sets of keys, and the number of tasks of each key.
///
/// Disjoint, because the order of two producers that share a key is not defined by anything.
pub(crate) fn uniform(keys: usize, tasks: usize, producers: usize) -> (Vec<Steps>, Vec<u32>) {
    let keys_each = (keys / producers).max(1);
    let mut totals = vec![0; keys_each * producers];
    let lists = (0..producers)
        .map(|producer| {
            let mut rng = Rng::new(42 + producer as u64 * 7919);
            (0..tasks / producers)
                .map(|_| next_step(&mut totals, rng.below(keys_each) * producers + producer))
                .collect()
        })
        .collect();
    (lists, totals)
}

/// Keys drawn by Zipf's law with exponent `s`: key `i` has weight `1 / (i + 1)^s`.
pub(crate) fn zipf(keys: usize, tasks: usize, s: f64) -> (Steps, Vec<u32>) {
    let mut sum = 0.0;
    let up_to: Vec<f64> = (1..=keys)
        .map(|rank| {
            sum += 1.0 / (rank as f64).powf(s);
            sum
        })
        .collect();
    let mut rng = Rng::new(7);
    let mut totals = vec![0; keys];
    let steps = (0..tasks)
        .map(|_| {
            let point = rng.unit() * sum;
            next_step(&mut totals, up_to.partition_point(|&c| c < point).min(keys - 1))
        })
        .collect();
    (steps, totals)
}

/// One submission of a plan with rollups.
pub(crate) enum Op {
    One(Step),
    /// A task over four different keys, next in order on each of them.
    Rollup([Step; 4]),
}

/// Uniform keys; every `every`-th task is a rollup (0: none is).
pub(crate) fn rollups(keys: usize, tasks: usize, every: usize) -> (Vec<Op>, Vec<u32>) {
    assert!(keys >= 4, "a rollup needs four different keys");
    let mut totals = vec![0; keys];
    let mut rng = Rng::new(42);
    let ops = (1..=tasks)
        .map(|nth| {
            if every > 0 && nth.is_multiple_of(every) {
                Op::Rollup(four_different(&mut rng, keys).map(|key| next_step(&mut totals, key)))
            } else {
                Op::One(next_step(&mut totals, rng.below(keys)))
            }
        })
        .collect();
    (ops, totals)
}

fn four_different(rng: &mut Rng, keys: usize) -> [usize; 4] {
    let mut chosen = [0; 4];
    let mut count = 0;
    while count < 4 {
        let key = rng.below(keys);
        if !chosen[..count].contains(&key) {
            chosen[count] = key;
            count += 1;
        }
    }
    chosen
}

fn next_step(totals: &mut [u32], key: usize) -> Step {
    let place = totals[key];
    totals[key] += 1;
    (key as u32, place)
}
