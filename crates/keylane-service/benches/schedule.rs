//! What deciding costs: accepting, starting and ending a subtask, in nanoseconds each.
//!
//! `cargo bench -p keylane-service --bench schedule`; with a word after `--`, only rows that have it in their name.
//! A million subtasks, 64 slots that are always full, the median of five rounds with the range.

use std::collections::VecDeque;
use std::time::Instant;

use keylane_service::JobNumber;
use keylane_service::scheduler::{
    KindId, KindLimits, NewJob, NewSubtask, RunEnd, RunStart, Scheduler, SchedulerSettings,
};

const SUBTASKS: u32 = 1_000_000;
const SLOTS: usize = 64;
const ROUNDS: usize = 5;

/// A row: how many jobs, and which key each subtask has.
struct Case {
    name: &'static str,
    jobs: u32,
    key: fn(u32) -> Option<u32>,
    with_limit: bool,
}

/// Spreads numbers as chance would (the finalizer of splitmix64: Steele et al., 2014).
fn spread(number: u32) -> u32 {
    let mut z = u64::from(number).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)) as u32
}

fn main() {
    let case = |name, jobs, key| Case { name, jobs, key, with_limit: false };
    let cases = [
        case("without keys", 1, |_| None),
        case("each its own key", 1, Some),
        case("a million keys at random", 1, |n| Some(spread(n) % 1_000_000)),
        case("a thousand keys at random", 1, |n| Some(spread(n) % 1000)),
        case("one key", 1, |_| Some(0)),
        case("without keys, 10,000 jobs", 10_000, |_| None),
        case("a thousand keys, 10,000 jobs", 10_000, |n| Some(spread(n) % 1000)),
        Case {
            with_limit: true,
            ..case("without keys, at the kind's bound, 1,000 jobs", 1000, |_| None)
        },
    ];
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    println!("| | accept, ns | start and end, ns |\n|---|---|---|");
    for case in cases.iter().filter(|case| case.name.contains(&wanted)) {
        let mut rounds: Vec<(f64, f64)> = (0..ROUNDS).map(|_| round(case)).collect();
        let accept = show(rounds.iter().map(|it| it.0));
        let run = show(rounds.drain(..).map(|it| it.1));
        println!("| {} | {accept} | {run} |", case.name);
    }
}

/// The median, and the range.
fn show(times: impl Iterator<Item = f64>) -> String {
    let mut times: Vec<f64> = times.collect();
    times.sort_by(f64::total_cmp);
    format!("{:.0} ({:.0}-{:.0})", times[times.len() / 2], times[0], times[times.len() - 1])
}

/// Accepting, and then starting and ending, each per subtask.
fn round(case: &Case) -> (f64, f64) {
    let keys: Vec<Option<[u8; 16]>> = (0..SUBTASKS)
        .map(|n| {
            (case.key)(n).map(|key| *format!("customer-{key:07}").as_bytes().first_chunk().unwrap())
        })
        .collect();
    let mut scheduler = Scheduler::new(SchedulerSettings::new(SLOTS));
    if case.with_limit {
        let limits =
            KindLimits { concurrency: Some(SLOTS as u32 / 2), rate: None, ..KindLimits::default() };
        scheduler.set_kind(KindId(0), limits, 0);
    }
    let begin = Instant::now();
    let each = SUBTASKS / case.jobs;
    for (job, keys) in keys.chunks(each as usize).enumerate() {
        let subtasks = keys.iter().enumerate().map(|(number, key)| {
            let keys = key.iter().map(|key| &key[..]);
            NewSubtask { number: number as u32, keys, attempts_made: 0 }
        });
        scheduler.accept(NewJob::new(JobNumber(job as u64), subtasks), 0);
    }
    // Large jobs enter in slices.
    while scheduler.work_off(0).is_some() {}
    let accepted = begin.elapsed();

    let begin = Instant::now();
    let mut out: VecDeque<RunStart> = VecDeque::new();
    let mut ended = 0;
    while ended < SUBTASKS {
        out.extend(std::iter::from_fn(|| scheduler.poll_start(0)));
        let start = out.pop_front().expect("while something is unfinished, something runs");
        let end = scheduler.ended(start.job, start.step, start.fence, RunEnd::Succeeded, 0);
        end.expect("it ends once");
        ended += 1;
    }
    let ran = begin.elapsed();
    assert_eq!((scheduler.slots().unfinished_jobs, scheduler.slots().keys), (0, 0));
    let per_subtask = |time: std::time::Duration| time.as_nanos() as f64 / f64::from(SUBTASKS);
    (per_subtask(accepted), per_subtask(ran))
}
