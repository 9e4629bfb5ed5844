//! `start_in_order`: a worker that becomes free takes the earliest task that may run.

use std::collections::BTreeSet;
use std::sync::mpsc::{self, Receiver, Sender};

use crate::common::soon;
use keylane::{Claims, Pool};

const WORKERS: usize = 3;

/// Key of a task, and whether the task shares it.
type OneClaim = (u32, bool);

/// Tasks with up to three keys each, from a seed.
fn random_tasks(seed: u64, count: usize) -> Vec<Vec<OneClaim>> {
    let mut state = seed;
    let mut roll = |sides: u64| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % sides
    };
    let mut task = || {
        let count = [1, 1, 1, 0, 2, 3][roll(6) as usize];
        (0..count).map(|_| (roll(12) as u32, roll(4) == 0)).collect()
    };
    (0..count).map(|_| task()).collect()
}

fn conflict(one: &[OneClaim], other: &[OneClaim]) -> bool {
    one.iter().any(|a| other.iter().any(|b| a.0 == b.0 && !(a.1 && b.1)))
}

/// Runs the tasks, one more each time that a running one ends. Returns the number of tasks that began
/// although an earlier one could have.
fn inversions(pool: &Pool<u32>, tasks: &[Vec<OneClaim>], seed: u64) -> usize {
    let (begun, begins) = mpsc::channel();
    let ends: Vec<Sender<()>> = tasks
        .iter()
        .enumerate()
        .map(|(number, keys)| {
            let (end, ended): (_, Receiver<()>) = mpsc::channel();
            let begun = begun.clone();
            let claims = keys.iter().fold(Claims::none(), |claims, (key, is_shared)| {
                if *is_shared { claims.and_shared(*key) } else { claims.and_exclusive(*key) }
            });
            let work = move || {
                begun.send(number).unwrap();
                let _ = ended.recv();
            };
            pool.task(claims).execute(work).unwrap();
            end
        })
        .collect();
    let mut unfinished: BTreeSet<usize> = (0..tasks.len()).collect();
    let mut begun_before: BTreeSet<usize> = BTreeSet::new();
    let mut running: Vec<usize> = Vec::new();
    let mut inversions = 0;
    let may_begin = |number: usize, unfinished: &BTreeSet<usize>| {
        !unfinished.range(..number).any(|earlier| conflict(&tasks[*earlier], &tasks[number]))
    };
    while !unfinished.is_empty() {
        let ready = |begun_before: &BTreeSet<usize>| {
            let waiting = unfinished.iter().filter(|number| !begun_before.contains(number));
            waiting.copied().filter(|number| may_begin(*number, &unfinished)).collect::<Vec<_>>()
        };
        // Several free workers begin in any order among themselves.
        let earliest = ready(&begun_before);
        let starts = (WORKERS - running.len()).min(earliest.len());
        for _ in 0..starts {
            let number = begins.recv().unwrap();
            inversions += usize::from(!earliest[..starts].contains(&number));
            begun_before.insert(number);
            running.push(number);
        }
        let chosen = (seed as usize + unfinished.len()) % running.len();
        let number = running.swap_remove(chosen);
        unfinished.remove(&number);
        ends[number].send(()).unwrap();
    }
    inversions
}

#[test]
fn a_free_worker_takes_the_earliest_task_that_may_run() {
    soon(|| {
        for seed in 0..20 {
            let pool = Pool::<u32>::builder().workers(WORKERS).start_in_order();
            let pool = pool.capacity(400).build().unwrap();
            let tasks = random_tasks(seed, 300);
            assert_eq!(inversions(&pool, &tasks, seed), 0, "seed {seed}");
            pool.shutdown().unwrap();
        }
    });
}

/// Short tasks, which end before the next one is submitted or after it.
#[test]
fn one_worker_runs_short_tasks_of_different_keys_in_their_order() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(1).start_in_order().capacity(50).build().unwrap();
        let (sender, order) = mpsc::channel();
        for number in 0..20_000_u32 {
            let sender = sender.clone();
            let claims = match number % 7 {
                0 => Claims::none().and_exclusive(number % 11).and_exclusive(number % 13),
                3 => Claims::none(),
                _ => Claims::exclusive(number * number % 17),
            };
            pool.task(claims).execute(move || sender.send(number).unwrap()).unwrap();
        }
        pool.shutdown().unwrap();
        drop(sender);
        assert!(order.iter().eq(0..20_000));
    });
}
