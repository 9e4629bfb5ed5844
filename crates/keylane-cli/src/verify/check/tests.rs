//! The check against a direct reading of its rules, on random histories.

use super::*;

/// Random numbers from a seed (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}

fn run(lane: u32, place: u64, start: i64, end: impl Into<Option<i64>>) -> TaskRun {
    let (end, access) = (end.into(), Access::Exclusive);
    let (batch, attempt, fence) = (None, 1, None);
    TaskRun { lane, place, batch, access, attempt, fence, start, end, file: 0, line: 0 }
}

fn broken(runs: &[TaskRun]) -> Vec<(BrokenRule, u64, u64)> {
    let violations = check(runs).violations;
    violations.iter().map(|found| (found.rule, found.run.place, found.other.place)).collect()
}

/// A history that keeps the order: tasks of two lanes, some shared, some with several attempts.
fn ordered_history(random: &mut Random) -> Vec<TaskRun> {
    let mut runs = Vec::new();
    let mut fence = 0;
    for lane in 0..2 {
        let (mut exclusive_end, mut all_end) = (0, 0);
        for place in 1..=2 + random.below(8) {
            let shared = random.below(3) == 0;
            let mut now: i64 = if shared { exclusive_end } else { all_end };
            let attempts = 1 + random.below(3) as u32;
            for attempt in 1..=attempts {
                now += random.below(3) as i64;
                let end = now + random.below(4) as i64;
                fence += 1;
                let cut_off = attempt < attempts && random.below(4) == 0;
                runs.push(TaskRun {
                    access: if shared { Access::Shared } else { Access::Exclusive },
                    attempt,
                    fence: (!shared).then_some(fence),
                    end: (!cut_off).then_some(end),
                    ..run(lane, place, now, None)
                });
                now = if cut_off { now } else { end };
            }
            all_end = all_end.max(now);
            exclusive_end = if shared { exclusive_end } else { all_end };
        }
    }
    runs
}

/// Whether any two runs break rule 1 or 2, pair by pair.
fn breaks_order(runs: &[TaskRun]) -> bool {
    let mut runs = runs.to_vec();
    runs.sort_by_key(|run| (run.start, run.attempt, end_of(run)));
    let is_same_task = |a: &TaskRun, b: &TaskRun| (a.lane, a.place) == (b.lane, b.place);
    let is_exclusive = |task: &TaskRun| {
        runs.iter().any(|run| is_same_task(run, task) && run.access == Access::Exclusive)
    };
    let pairs = (0..runs.len()).flat_map(|a| (0..runs.len()).map(move |b| (a, b)));
    pairs.into_iter().any(|(a, b)| {
        let (first, second) = (&runs[a], &runs[b]);
        let has_later_attempt = || runs[a + 1..].iter().any(|run| is_same_task(run, first));
        let is_late = || first.end.map_or_else(|| !has_later_attempt(), |end| second.start < end);
        let must_follow = if is_same_task(first, second) {
            a < b
        } else {
            first.lane == second.lane
                && first.place < second.place
                && (is_exclusive(first) || is_exclusive(second))
        };
        must_follow && is_late()
    })
}

#[test]
fn ordered_histories_have_no_violation() {
    for seed in 0..2000 {
        let runs = ordered_history(&mut Random(seed));
        assert_eq!(broken(&runs), [], "seed {seed}: {runs:?}");
    }
}

#[test]
fn changed_histories_are_judged_as_a_comparison_of_all_pairs_judges_them() {
    let mut found = 0;
    for seed in 0..5000 {
        let mut random = Random(seed);
        let mut runs = ordered_history(&mut random);
        for _ in 0..1 + random.below(2) {
            let index = random.below(runs.len() as u64) as usize;
            let by = 1 + random.below(3) as i64;
            match random.below(3) {
                0 => runs[index].start -= by,
                1 => runs[index].end = runs[index].end.map(|end| end + by),
                _ => runs[index].place += 1,
            }
        }
        let order = broken(&runs).iter().any(|(rule, ..)| *rule != BrokenRule::Fence);
        assert_eq!(order, breaks_order(&runs), "seed {seed}: {runs:?}");
        found += u32::from(order);
    }
    assert!((1000..4500).contains(&found), "{found} of 5000 histories broke the order");
}

#[test]
fn a_task_that_overtakes_is_named_with_the_one_it_overtook() {
    let runs = [run(0, 2, 0, 1), run(0, 1, 1, 2), run(1, 3, 0, 9)];
    assert_eq!(broken(&runs), [(BrokenRule::Order, 2, 1)]);
}

#[test]
fn tasks_of_a_batch_run_at_the_same_time_and_no_other_task_between_them() {
    let of =
        |batch, place, start| TaskRun { batch: Some(batch), ..run(0, place, start, start + 2) };
    let whole = [of(1, 1, 0), of(1, 2, 0), of(1, 4, 0), of(5, 5, 2), of(5, 6, 2), run(0, 7, 4, 5)];
    assert_eq!(broken(&whole), []);
    // A task before, behind and between them.
    let early = [of(1, 1, 0), of(1, 2, 0), run(0, 3, 1, 2)];
    assert_eq!(broken(&early), [(BrokenRule::Order, 3, 1)]);
    let late = [run(0, 1, 0, 3), of(2, 2, 1), of(2, 3, 1)];
    assert_eq!(broken(&late), [(BrokenRule::Order, 2, 1), (BrokenRule::Order, 3, 1)]);
    let between = [of(1, 1, 0), run(0, 2, 2, 3), of(1, 3, 0)];
    assert_eq!(broken(&between).first(), Some(&(BrokenRule::Order, 3, 2)));
    // Two batches that overlap.
    let overlapping = [of(1, 1, 0), of(1, 2, 0), of(3, 3, 1)];
    assert_eq!(broken(&overlapping), [(BrokenRule::Order, 3, 1)]);
}

#[test]
fn equal_times_are_in_order() {
    assert_eq!(broken(&[run(0, 1, 5, 5), run(0, 2, 5, 5)]), []);
}

#[test]
fn a_task_after_one_without_an_end_is_a_violation() {
    let runs = [run(0, 1, 0, None), run(0, 2, 9, 10)];
    assert_eq!(broken(&runs), [(BrokenRule::Order, 2, 1)]);
    let retried = [run(0, 1, 0, None), TaskRun { attempt: 2, ..run(0, 1, 5, 6) }, run(0, 2, 6, 7)];
    assert_eq!(broken(&retried), []);
    assert_eq!(check(&retried).cut_off, 1);
}

#[test]
fn a_fence_that_repeats_or_falls_is_a_violation() {
    let fenced =
        |place, start, fence| TaskRun { fence: Some(fence), ..run(0, place, start, start + 1) };
    let rule = BrokenRule::Fence;
    assert_eq!(broken(&[fenced(1, 0, 7), fenced(2, 1, 7)]), [(rule, 2, 1)]);
    assert_eq!(broken(&[fenced(1, 0, 7), fenced(2, 1, 6), fenced(3, 2, 8)]), [(rule, 2, 1)]);
    assert_eq!(broken(&[fenced(1, 0, 6), fenced(2, 1, 7)]), []);
}
