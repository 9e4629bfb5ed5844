//! The article's example: four slots; 20 subtasks of a minute at 0:00, and 4 at 2:01.

use std::collections::BTreeMap;

use super::{job, scheduler, start_all};
use crate::scheduler::{RunEnd, RunStart};

const MINUTE: u64 = 60_000;

#[test]
fn the_second_job_runs_from_three_to_five_and_the_first_ends_at_six() {
    let mut scheduler = scheduler(4);
    let mut arrivals = vec![(2 * MINUTE + 1000, 2, 4), (0, 1, 20)];
    let mut ends: BTreeMap<(u64, u64), RunStart> = BTreeMap::new();
    let (mut first_start, mut over) = (BTreeMap::new(), BTreeMap::new());
    loop {
        let end = ends.keys().next().map(|(at, _)| *at);
        let arrival = arrivals.last().map(|(at, ..)| *at);
        let Some(now) = end.into_iter().chain(arrival).min() else { break };
        while let Some(entry) = ends.first_entry().filter(|entry| entry.key().0 == now) {
            let start = entry.remove();
            let ended = scheduler.ended(start.job, start.step, start.fence, RunEnd::Succeeded, now);
            if ended.unwrap().over.is_some() {
                over.insert(start.job.0, now);
            }
        }
        if arrival == Some(now) {
            let (_, number, subtasks) = arrivals.pop().unwrap();
            scheduler.accept(job(number, &vec![""; subtasks]), now);
        }
        for start in start_all(&mut scheduler, now) {
            first_start.entry(start.job.0).or_insert(now);
            ends.insert((now + MINUTE, start.fence), start);
        }
    }
    assert_eq!(first_start, BTreeMap::from([(1, 0), (2, 3 * MINUTE)]));
    assert_eq!(over, BTreeMap::from([(1, 6 * MINUTE), (2, 5 * MINUTE)]));
    scheduler.check_empty();
}
