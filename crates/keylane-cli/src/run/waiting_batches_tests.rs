use std::collections::VecDeque;

use super::*;

const LINGER: Duration = Duration::from_millis(10);

fn key(name: &str) -> RecordKey {
    RecordKey::Named(name.as_bytes().into())
}

fn numbers(ready: impl IntoIterator<Item = ReadyBatch>) -> Vec<BatchNumber> {
    ready.into_iter().map(|batch| batch.number).collect()
}

#[test]
fn a_batch_is_ready_when_it_is_full_or_its_first_record_has_waited() {
    let (mut batches, now) = (WaitingBatches::new(3, LINGER), Instant::now());
    let [a, b] = ["a", "b"].map(key);
    assert_eq!(batches.add(&a, 1, now), None);
    assert_eq!(batches.add(&b, 2, now + LINGER / 2), None);
    assert_eq!(batches.add(&a, 3, now + LINGER / 2), None);
    assert_eq!(batches.next_due(), Some(now + LINGER));
    assert_eq!(batches.due(now + LINGER / 2), []);
    assert_eq!(numbers(batches.due(now + LINGER)), [1]);
    assert_eq!(batches.take(1), [1, 3]);
    assert_eq!(batches.add(&b, 4, now + LINGER), None);
    assert_eq!(numbers(batches.add(&b, 5, now + LINGER)), [2]);
    assert_eq!(batches.take(2), [2, 4, 5]);
    assert_eq!((batches.next_due(), batches.take(2)), (None, Vec::new()));
    assert!(batches.batches.is_empty() && batches.open.is_empty());
}

#[test]
fn a_ready_batch_takes_records_until_it_is_full_or_starts() {
    let (mut batches, now) = (WaitingBatches::new(3, LINGER), Instant::now());
    let a = key("a");
    batches.add(&a, 1, now);
    assert_eq!(numbers(batches.all_lingering()), [1]);
    assert_eq!(batches.add(&a, 2, now), None);
    assert_eq!(batches.take(1), [1, 2]);
    // The next one lingers again.
    assert_eq!(batches.add(&a, 3, now), None);
    assert_eq!(batches.next_due(), Some(now + LINGER));
    assert_eq!(numbers(batches.due(now + LINGER)), [2]);
    assert_eq!([4, 5].map(|record| batches.add(&a, record, now)), [None, None]);
    // That one is full, so this record begins another.
    assert_eq!(batches.add(&a, 6, now), None);
    assert_eq!((batches.take(2), batches.take_all()), (vec![3, 4, 5], vec![6]));
}

#[test]
fn no_record_lingers_that_is_alone_or_has_no_time_to() {
    let now = Instant::now();
    let mut batches = WaitingBatches::new(3, LINGER);
    assert_eq!(numbers(batches.add(&RecordKey::Unkeyed(7), 7, now)), [1]);
    assert_eq!(batches.take(1), [7]);
    assert!(batches.open.is_empty());
    let mut batches = WaitingBatches::new(3, Duration::ZERO);
    assert_eq!(numbers(batches.add(&key("a"), 1, now)), [1]);
    assert_eq!(batches.add(&key("a"), 2, now), None);
    assert_eq!(batches.take(1), [1, 2]);
    let mut batches = WaitingBatches::new(1, Duration::MAX);
    assert_eq!(numbers(batches.add(&key("a"), 1, now)), [1]);
}

/// Random additions, starts and steps of time: each record is in one batch, and the batches of a key
/// start in order if they start as they become ready.
#[test]
fn random_batches_have_each_record_once_in_order() {
    let mut state = 7_u64;
    let mut roll = |sides: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % sides
    };
    for max in 1..5 {
        let mut batches = WaitingBatches::new(max, LINGER);
        let mut now = Instant::now();
        let mut ready = VecDeque::new();
        let mut seen = vec![Vec::new(); 3];
        let mut begin = |batches: &mut WaitingBatches<(usize, u32)>, next: ReadyBatch| {
            let records = batches.take(next.number);
            assert!((1..=max).contains(&records.len()), "{records:?}");
            for (key_number, record) in records {
                assert_eq!(next.key, key(&key_number.to_string()));
                seen[key_number].push(record);
            }
        };
        let mut expected = vec![Vec::new(); 3];
        for record in 0..2_000 {
            let number = roll(3) as usize;
            expected[number].push(record);
            ready.extend(batches.add(&key(&number.to_string()), (number, record), now));
            now += LINGER / 4 * roll(3) as u32;
            ready.extend(batches.due(now));
            assert!(batches.next_due().is_none_or(|due| due > now));
            if roll(2) == 0
                && let Some(next) = ready.pop_front()
            {
                begin(&mut batches, next);
            }
        }
        ready.extend(batches.all_lingering());
        ready.into_iter().for_each(|next| begin(&mut batches, next));
        assert_eq!(seen, expected);
        assert!(batches.batches.is_empty() && batches.open.is_empty());
    }
}
