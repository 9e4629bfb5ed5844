//! The longest chain of a job is the one that a count of all its lanes finds.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::{job, scheduler, start_all};
use crate::JobNumber;
use crate::scheduler::{KeyChain, RunEnd, Scheduler};

fn chain_of(scheduler: &Scheduler, job: u64) -> Option<(Vec<u8>, u64)> {
    let KeyChain { key, subtasks } = scheduler.longest_chain(JobNumber(job))?;
    Some((key.0.to_vec(), subtasks))
}

#[test]
fn a_chain_reaches_to_the_last_subtask_of_the_job() {
    let mut scheduler = scheduler(1);
    scheduler.accept(job(1, &["a", "a", "a"]), 0);
    scheduler.accept(job(2, &["b", "a", "b"]), 0);
    scheduler.accept(job(3, &["a", "a", ""]), 0);
    assert_eq!(chain_of(&scheduler, 1), Some((b"a".to_vec(), 3)));
    assert_eq!(chain_of(&scheduler, 2), Some((b"a".to_vec(), 4)));
    assert_eq!(chain_of(&scheduler, 3), Some((b"a".to_vec(), 6)));
    assert_eq!(scheduler.longest_key().unwrap().subtasks, 6);
    scheduler.accept(job(4, &["", ""]), 0);
    assert_eq!(chain_of(&scheduler, 4), None);
    assert_eq!(chain_of(&scheduler, 5), None);
}

#[test]
fn one_long_key_among_many_short_ones_is_found() {
    let mut scheduler = scheduler(1);
    let mut subtasks = vec![""; 5000];
    // A tenth of the subtasks, at equal distances, has one key.
    subtasks.iter_mut().step_by(10).for_each(|keys| *keys = "h");
    scheduler.accept(job(1, &subtasks), 0);
    while scheduler.work_off(0).is_some() {}
    assert_eq!(chain_of(&scheduler, 1), Some((b"h".to_vec(), 500)));
}

#[test]
fn the_end_of_a_very_long_lane_is_examined_up_to_a_bound() {
    let mut scheduler = scheduler(1);
    scheduler.accept(job(1, &["a", "a"]), 0);
    scheduler.accept(job(2, &["a"; 5000]), 0);
    while scheduler.work_off(0).is_some() {}
    // The others may run after the job's last one; how many is not counted.
    assert_eq!(chain_of(&scheduler, 1), Some((b"a".to_vec(), 4002)));
    assert_eq!(chain_of(&scheduler, 2), Some((b"a".to_vec(), 5002)));
}

proptest! {
    #[test]
    fn it_is_what_a_count_of_all_places_finds(
        jobs in prop::collection::vec(prop::collection::vec(0..8_usize, 1..8), 1..5),
        ends in 0..10_usize,
    ) {
        const KEYS: [&str; 8] = ["", "a", "b", "c", "ab", "bc", "ac", "abc"];
        let mut scheduler = scheduler(2);
        let mut left: Vec<(u64, u32, &str)> = Vec::new();
        for (number, subtasks) in (1..).zip(&jobs) {
            let keys: Vec<&str> = subtasks.iter().map(|keys| KEYS[*keys]).collect();
            scheduler.accept(job(number, &keys), 0);
            left.extend((0..).zip(keys).map(|(subtask, keys)| (number, subtask, keys)));
        }
        let mut running = start_all(&mut scheduler, 0);
        for _ in 0..ends {
            let Some(start) = running.pop() else { break };
            scheduler.ended(start.job, start.step, start.fence, RunEnd::Succeeded, 0).unwrap();
            let ended = super::names(&[start])[0];
            left.retain(|(job, subtask, _)| (*job, *subtask) != ended);
            running.extend(start_all(&mut scheduler, 0));
        }
        for number in (1..).take(jobs.len()) {
            let mut chains: BTreeMap<char, u64> = BTreeMap::new();
            for key in "abc".chars() {
                let lane = left.iter().filter(|(.., keys)| keys.contains(key));
                let last = lane.clone().enumerate().filter(|(_, (job, ..))| *job == number).last();
                chains.extend(last.map(|(place, _)| (key, place as u64 + 1)));
            }
            let found = scheduler.longest_chain(JobNumber(number));
            prop_assert_eq!(found.as_ref().map(|chain| chain.subtasks), chains.values().max().copied());
            if let Some(KeyChain { key, subtasks }) = found {
                prop_assert_eq!(chains[&char::from(key.0[0])], subtasks);
            }
        }
    }
}
