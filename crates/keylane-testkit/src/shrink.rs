//! Makes a failing run shorter.

use std::collections::BTreeSet;

/// Leaves out as many parts of a failing run as possible, some at a time and then fewer, with at most `max_runs` runs. `fails` says
/// whether the run fails without these parts. Returns the parts that it fails without.
///
/// The parts that stay have to do the same as before; otherwise fewer can be left out.
///
/// After Zeller and Hildebrandt: Simplifying and Isolating Failure-Inducing Input (2002).
pub fn shrink<P: Copy + Ord>(
    parts: &[P],
    max_runs: usize,
    mut fails: impl FnMut(&BTreeSet<P>) -> bool,
) -> BTreeSet<P> {
    let (mut parts, mut cut) = (parts.to_vec(), BTreeSet::new());
    let (mut size, mut left) = (parts.len().div_ceil(2), max_runs);
    while size > 0 {
        let mut kept = Vec::new();
        for some in parts.chunks(size) {
            let more = cut.iter().chain(some).copied().collect();
            if left > 0 && fails(&more) {
                cut = more;
            } else {
                kept.extend(some);
            }
            left = left.saturating_sub(1);
        }
        // Without a part, others may have become needless.
        size = if kept.len() < parts.len() { size.min(kept.len()) } else { size / 2 };
        parts = kept;
    }
    cut
}

#[test]
fn a_run_that_needs_three_of_its_parts_keeps_these() {
    let parts: Vec<u32> = (0..100).collect();
    let cut = shrink(&parts, 400, |cut| [3, 40, 41].iter().all(|part| !cut.contains(part)));
    assert_eq!(cut.len(), 97);
    assert_eq!(shrink(&parts, 0, |_| true).len(), 0);
}
