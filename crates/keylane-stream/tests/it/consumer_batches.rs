//! Mixed batches: their limits of size and time, and the handling of a failed batch.

use std::sync::Arc;
use std::time::Duration;

use crate::consuming::{Book, Dice, Watched, keyed, number, quick};
use keylane_stream::consumer::{
    Attempt, AttemptFailure, BatchBy, BatchConfig, BatchFailure, Consumer, ConsumerBuilder,
    StopReason,
};
use keylane_stream::memory::MemoryStream;
use keylane_stream::retry::{OnExhausted, RetryPolicy};

const HOUR: Duration = Duration::from_secs(3600);

fn builder(stream: &MemoryStream) -> ConsumerBuilder {
    let policy = RetryPolicy::new(quick(3, OnExhausted::Skip)).unwrap();
    Consumer::builder(stream.source()).threads(3).retry(policy, |_| ())
}

fn stream(records: impl IntoIterator<Item = (u64, u64)>) -> MemoryStream {
    let stream = MemoryStream::new("t", 1);
    stream.push_all(0, records.into_iter().map(|(key, number)| keyed(key, number)));
    stream.exhaust();
    stream
}

type Seen = Watched<Vec<Vec<u64>>>;

fn notes(seen: &Arc<Seen>) -> impl Fn(&[Attempt]) + Send + Sync + 'static {
    let seen = seen.clone();
    move |attempts: &[Attempt]| {
        seen.change(|seen| seen.push(attempts.iter().map(number).collect()));
    }
}

#[test]
fn a_batch_waits_until_it_is_full() {
    let stream = stream((0..100).map(|number| (number, number)));
    let seen = Watched::new(Vec::new());
    let note = notes(&seen);
    let batch = BatchConfig { max_records: 10, linger: HOUR, split: false, by: BatchBy::Mixed };
    let consumer = builder(&stream).start_batches(batch, move |attempts: &[Attempt]| {
        note(attempts);
        Ok::<_, AttemptFailure>(())
    });
    assert_eq!(consumer.unwrap().wait().counts.handled, 100);
    let seen = seen.get();
    assert_eq!(seen.len(), 10);
    assert!(seen.iter().all(|batch| batch.len() == 10));
}

#[test]
fn a_batch_does_not_wait_for_ever() {
    let stream = stream((0..7).map(|number| (number % 2, number)));
    let batch = BatchConfig {
        max_records: 1_000,
        linger: Duration::from_millis(2),
        split: false,
        by: BatchBy::Mixed,
    };
    let consumer =
        builder(&stream).start_batches(batch, |_: &[Attempt]| Ok::<_, AttemptFailure>(()));
    assert_eq!(consumer.unwrap().wait().counts.handled, 7);
}

#[test]
fn a_batch_has_no_two_of_a_key_and_keeps_the_order_of_each() {
    let mut dice = Dice(3);
    let stream = stream((0..2_000).map(|number| (dice.roll_skewed(60), number)));
    let book = Book::shared();
    let books = book.clone();
    let batch = BatchConfig {
        max_records: 16,
        linger: Duration::from_micros(200),
        split: false,
        by: BatchBy::Mixed,
    };
    let policy = RetryPolicy::new(quick(99, OnExhausted::Stop)).unwrap();
    let consumer = builder(&stream).retry(policy, |_| ());
    let consumer = consumer.start_batches(batch, move |attempts: &[Attempt]| {
        assert!(!attempts.is_empty() && attempts.len() <= 16);
        books.change(|book| attempts.iter().for_each(|attempt| book.begin(attempt)));
        let sum: u64 =
            attempts.iter().map(|attempt| number(attempt) + u64::from(attempt.number())).sum();
        let fails = Dice(sum).roll(5) == 0;
        books.change(|book| attempts.iter().for_each(|attempt| book.end(attempt, !fails)));
        if fails { Err(std::io::Error::other("not today")) } else { Ok(()) }
    });
    let ended = consumer.unwrap().wait();
    assert!(matches!(ended.reason, StopReason::Exhausted), "{}", ended.reason);
    book.change(|book| book.check(2_000));
}

/// Handles a batch of ten with one bad record, with three attempts for each record.
fn with_a_bad_one(split: bool) -> (Vec<Vec<u64>>, u64, u64) {
    let stream = stream((0..10).map(|number| (number, number)));
    let seen = Watched::new(Vec::new());
    let note = notes(&seen);
    let batch =
        BatchConfig { max_records: 10, linger: Duration::from_secs(1), split, by: BatchBy::Mixed };
    let consumer = builder(&stream).start_batches(batch, move |attempts: &[Attempt]| {
        note(attempts);
        match attempts.iter().any(|attempt| number(attempt) == 4) {
            true if attempts[0].number() == 2 => panic!("a panic is a failure, too"),
            true => Err(std::io::Error::other("number 4 is bad")),
            false => Ok(()),
        }
    });
    let counts = consumer.unwrap().wait().counts;
    (seen.get(), counts.handled, counts.skipped)
}

#[test]
fn a_failed_batch_fails_all_of_its_records() {
    let (seen, handled, skipped) = with_a_bad_one(false);
    assert_eq!(seen[0].len(), 10);
    assert_eq!(handled + skipped, 10);
    // The bad record exhausts the attempts of those that shared its batches three times.
    assert!(skipped >= 1);
    let bad = seen.iter().filter(|batch| batch.contains(&4)).count();
    assert_eq!(bad, 3);
}

#[test]
fn a_batch_that_is_split_fails_the_bad_one_alone() {
    let (seen, handled, skipped) = with_a_bad_one(true);
    assert_eq!((handled, skipped), (9, 1));
    assert_eq!(seen[0].len(), 10);
    let mut alone = seen[1..11].to_vec();
    alone.sort_unstable();
    assert_eq!(alone, (0..10).map(|number| vec![number]).collect::<Vec<_>>());
    // The third batch holds the bad record alone.
    assert_eq!(seen[11..], [vec![4], vec![4]]);
}

#[test]
fn a_handler_can_name_the_one_that_failed_and_nothing_is_handled_twice() {
    let stream = stream((0..10).map(|number| (number, number)));
    let seen = Watched::new(Vec::new());
    let note = notes(&seen);
    let linger = Duration::from_millis(200);
    let batch = BatchConfig { max_records: 10, linger, split: true, by: BatchBy::Mixed };
    let consumer = builder(&stream).threads(1).start_batches(batch, move |batch: &[Attempt]| {
        note(batch);
        match batch.iter().position(|attempt| number(attempt) == 4) {
            Some(index) => Err(BatchFailure::new(index, "number 4 is bad")),
            None => Ok(()),
        }
    });
    let counts = consumer.unwrap().wait().counts;
    assert_eq!((counts.handled, counts.skipped, counts.failed_attempts), (9, 1, 3));
    let seen = seen.get();
    let times = |number: u64| seen.iter().filter(|batch| batch.contains(&number)).count();
    let first = seen.iter().find(|batch| batch.contains(&4)).unwrap();
    let (before, behind) = first.split_at(first.iter().position(|number| *number == 4).unwrap());
    assert!(before.iter().all(|number| times(*number) == 1), "{seen:?}");
    // The records behind it were in the failed batch, so they are handled twice.
    assert!(behind[1..].iter().all(|number| times(*number) == 2), "{seen:?}");
}
