use std::sync::Arc;

use super::*;

/// A record from a text: `a` has a key, `~a` shares it, `!` is a barrier.
fn keys(text: &str) -> RecordKeys {
    let named = |text: &str| RecordKey::Named(Arc::from(text.as_bytes()));
    let words = || text.split_whitespace().filter(|word| *word != "!");
    let exclusive: Vec<_> = words().filter(|word| !word.starts_with('~')).map(named).collect();
    let shared: Vec<_> = words().filter_map(|word| word.strip_prefix('~').map(named)).collect();
    RecordKeys::new(exclusive, shared, text.contains('!'))
}

fn figures(jobs: u64, limit: u16, records: &[&str]) -> Figures {
    let mut chains = Chains::new(jobs, NonZeroU16::new(limit));
    records.iter().for_each(|record| chains.add(&keys(record)));
    chains.finish().0
}

fn chain(records: &[&str]) -> u64 {
    figures(100, 0, records).chain
}

#[test]
fn a_chain_follows_all_keys_of_a_record() {
    assert_eq!(chain(&[]), 0);
    assert_eq!(chain(&["a", "b", "a", "c", "a"]), 3);
    // a waits for nothing, a+b for a, b+c for a+b, c for b+c.
    assert_eq!(chain(&["a", "a b", "b c", "c", "d"]), 4);
    assert_eq!(chain(&["", "", ""]), 1);
    assert_eq!(chain(&["a a", "a"]), 2);
}

#[test]
fn records_that_share_a_key_wait_for_exclusive_ones_only() {
    assert_eq!(chain(&["~a", "~a", "~a"]), 1);
    assert_eq!(chain(&["~a", "~a", "a", "~a", "~a", "a"]), 4);
    assert_eq!(chain(&["a", "a", "~a b", "b"]), 4);
}

#[test]
fn sections_between_barriers_add_up() {
    let found = figures(2, 0, &["a", "a", "b", "!", "a", "b", "c", "d", "e"]);
    assert_eq!((found.records, found.barriers, found.chain), (9, 1, 4));
    // Two records' times, one for the barrier, and five records in two slots.
    assert_eq!((found.rounds, found.useful_jobs), (6, 5));
    assert_eq!(found.chain_key, Some(RecordKey::Named(Arc::from(&b"a"[..]))));
}

#[test]
fn slots_or_the_longest_chain_set_the_least_time() {
    let hot: Vec<&str> = (0..100).map(|place| if place % 2 == 0 { "hot" } else { "" }).collect();
    assert_eq!(figures(8, 0, &hot).rounds, 50);
    assert_eq!(figures(1, 0, &hot).rounds, 100);
    assert_eq!((figures(8, 0, &hot).useful_jobs, figures(8, 0, &hot).keyless), (2, 50));
}

#[test]
fn a_limit_lets_records_of_a_key_run_together() {
    assert_eq!(figures(100, 4, &["a"; 10]).chain, 3);
    assert_eq!(figures(100, 1, &["a"; 10]).chain, 10);
}

/// Least possible number of rounds by a simulation with unlimited slots: in each round all records run that no
/// unfinished earlier one holds up.
fn rounds_of_a_run(records: &[RecordKeys]) -> u64 {
    let conflict = |a: &RecordKeys, b: &RecordKeys| {
        a.is_barrier
            || b.is_barrier
            || a.exclusive().iter().any(|key| b.all().any(|other| other == key))
            || b.exclusive().iter().any(|key| a.all().any(|other| other == key))
    };
    let mut left: Vec<usize> = (0..records.len()).collect();
    let mut rounds = 0;
    while !left.is_empty() {
        let is_held = |place: usize| {
            left.iter()
                .take_while(|&&other| other < place)
                .any(|&other| conflict(&records[other], &records[place]))
        };
        let held: Vec<usize> = left.iter().copied().filter(|&place| is_held(place)).collect();
        left = held;
        rounds += 1;
    }
    rounds
}

/// Random records with up to three keys of five, shared or not, and some barriers.
#[test]
fn the_longest_chain_is_the_length_of_a_run_with_unlimited_slots() {
    let mut seed = 7_u64;
    let mut random = move |below: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    for _ in 0..300 {
        let records: Vec<RecordKeys> = (0..random(60))
            .map(|_| {
                let words: Vec<_> = (0..random(4))
                    .map(|_| format!("{}{}", ["", "~"][random(2) as usize], random(5)))
                    .collect();
                let barrier = if random(15) == 0 { "! " } else { "" };
                keys(&format!("{barrier}{}", words.join(" ")))
            })
            .collect();
        let mut chains = Chains::new(1_000, None);
        records.iter().for_each(|record| chains.add(record));
        let found = chains.finish().0;
        assert_eq!(found.chain, rounds_of_a_run(&records), "{records:?}");
        assert_eq!(found.rounds, found.chain);
    }
}

#[test]
fn beyond_the_limit_of_keys_the_chain_of_a_hot_one_stays() {
    let mut chains = Chains::with_limits(4, None, KeyLimits { keys: 50, bytes: 1 << 20 });
    for place in 0..5_000 {
        chains.add(&keys(&if place % 2 == 0 { "hot".into() } else { format!("cold{place}") }));
    }
    let (figures, counts) = chains.finish();
    assert_eq!((figures.chain, figures.useful_jobs), (2_500, 2));
    assert!(counts.dropped() > 0 && counts.len() <= 50);
    assert_eq!(counts.hottest(1)[0].1.records, 2_500);
}
