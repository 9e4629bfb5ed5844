//! Draws mutants by a seed, so that no two change the same code.

use std::collections::BTreeMap;

use crate::find::{Edit, Mutant};

/// Draws up to `count` of the mutants that are `wanted`.
pub(crate) fn draw(
    mut all: Vec<Mutant>,
    seed: u64,
    count: usize,
    wanted: impl Fn(&Mutant) -> bool,
) -> Vec<Mutant> {
    let mut random = SplitMix(seed);
    for at in (1..all.len()).rev() {
        all.swap(at, (random.next() % (at as u64 + 1)) as usize);
    }
    let mut taken: BTreeMap<_, Vec<Edit>> = BTreeMap::new();
    all.retain(|mutant| {
        let of_file = taken.entry(mutant.file.clone()).or_default();
        let is_drawn = wanted(mutant) && !of_file.iter().any(|edit| overlaps(edit, &mutant.edit));
        if is_drawn {
            of_file.push(mutant.edit.clone());
        }
        is_drawn
    });
    all.truncate(count);
    all
}

fn overlaps(one: &Edit, other: &Edit) -> bool {
    match (one, other) {
        (Edit::Replace { range: one, .. }, Edit::Replace { range: other, .. }) => {
            one.start < other.end && other.start < one.end
        }
        // A function inside of an expression that is there twice.
        (Edit::Replace { range, .. }, Edit::Return { at, .. })
        | (Edit::Return { at, .. }, Edit::Replace { range, .. }) => range.contains(at),
        (Edit::Return { .. }, Edit::Return { .. }) => false,
    }
}

/// Steele, Lea and Flood: Fast Splittable Pseudorandom Number Generators (2014).
struct SplitMix(u64);

impl SplitMix {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}
