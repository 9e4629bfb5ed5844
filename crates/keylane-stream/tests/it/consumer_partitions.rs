//! G2, G9 and G10: partitions are assigned, revoked and lost; a consumer stops in time; and a late
//! answer does not count.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use crate::consuming::{
    Book, Dice, Door, PATIENCE, Watched, eventually, keyed, number, partition_status, quick, status,
};
use keylane::Rate;
use keylane_stream::Position;
use keylane_stream::consumer::{
    Ack, Attempt, AttemptFailure, Consumer, ConsumerBuilder, PartitionStatus, PauseReason,
    RecordClaims, StopReason,
};
use keylane_stream::memory::MemoryStream;
use keylane_stream::retry::{Backoff, Jitter, OnExhausted, RetryLimit, RetryPolicy, RetryRule};
use keylane_stream::source::CommitError;

fn builder(stream: &MemoryStream) -> ConsumerBuilder {
    Consumer::builder(stream.source()).threads(4)
}

/// Returns a handler that reports its start, and waits at a door for the records of one key.
fn waits_at(
    door: &Door,
    began: &Arc<Watched<u32>>,
) -> impl Fn(&Attempt) -> Result<(), AttemptFailure> + Send + Sync + 'static {
    let (door, began) = (door.clone(), began.clone());
    move |attempt: &Attempt| {
        if attempt.key() == Some(b"slow") {
            began.change(|began| *began += 1);
            door.pass();
        }
        Ok(())
    }
}

#[test]
fn running_attempts_are_awaited_before_a_partition_is_released() {
    let stream = MemoryStream::new("t", 2);
    stream.push(0, keyed("slow", 0));
    stream.push(0, keyed("slow", 1));
    let (door, began) = (Door::closed(), Watched::new(0));
    let first = builder(&stream).start(waits_at(&door, &began)).unwrap();
    began.until(|began| *began == 1);

    let second = Book::shared();
    let books = second.clone();
    let next = builder(&stream).start(move |attempt: &Attempt| {
        books.change(|book| {
            book.begin(attempt);
            book.end(attempt, true);
        });
        Ok::<_, AttemptFailure>(())
    });
    let next = next.unwrap();
    stream.move_to(0, 1);
    // The other partition continues meanwhile.
    stream.push(1, keyed("quick", 0));
    eventually(|| status(&first).counts.handled == 1);
    eventually(|| status(&first).partitions.len() == 2);
    assert_eq!(stream.owner(0), Some(0));
    assert_eq!(second.change(|book| book.attempts), 0);

    door.open();
    second.until(|book| book.done.len() == 1);
    // The running record was completed, and the one behind it was not begun.
    assert_eq!(began.get(), 1);
    assert_eq!(status(&first).counts.handled, 2);
    assert_eq!(first.stop(PATIENCE).counts.fenced, 0);
    let ended = next.stop(PATIENCE);
    assert_eq!((ended.counts.handled, ended.counts.repeated), (1, 0));
    assert_eq!(stream.committed(0).watermark(), Position::new(2));
}

#[test]
fn progress_is_stored_while_a_partition_waits_to_be_given_back() {
    let stream = MemoryStream::new("t", 1);
    stream.push(0, keyed("one", 0));
    stream.push(0, keyed("slow", 0));
    let (door, one, began) = (Door::closed(), Door::closed(), Watched::new(0));
    let (passes, first, counted) = (door.clone(), one.clone(), began.clone());
    let builder = builder(&stream).commit(Duration::from_millis(1), 1);
    let owner = builder.start(move |attempt: &Attempt| {
        counted.change(|began| *began += 1);
        if attempt.key() == Some(b"slow") {
            passes.pass()
        } else {
            first.pass()
        }
        Ok::<_, AttemptFailure>(())
    });
    let owner = owner.unwrap();
    began.until(|began| *began == 2);
    let next = self::builder(&stream).start(|_: &Attempt| Ok::<_, AttemptFailure>(())).unwrap();
    stream.move_to(0, 1);
    eventually(|| partition_status(&owner, 0).paused_by == Some(PauseReason::Closing));
    // It ends after the revocation began, while another record of the partition runs.
    one.open();
    eventually(|| stream.committed(0).watermark() == Position::new(1));
    assert_eq!(stream.owner(0), Some(0));
    door.open();
    eventually(|| stream.owner(0) == Some(1));
    owner.stop(PATIENCE);
    assert_eq!(next.stop(PATIENCE).counts.repeated, 0);
}

#[test]
fn attempts_beyond_the_revocation_deadline_are_fenced() {
    let stream = MemoryStream::new("t", 1);
    stream.push(0, keyed("slow", 0));
    let (door, current) = (Door::closed(), Watched::new(None));
    let (doors, says) = (door.clone(), current.clone());
    let first = builder(&stream).shutdown_timeout(Duration::from_millis(30));
    let first = first.start_with_acks(move |attempt: Attempt, ack: Ack| {
        let (door, says) = (doors.clone(), says.clone());
        thread::spawn(move || {
            says.change(|says| *says = Some(attempt.is_current()));
            door.pass();
            says.change(|says| *says = Some(attempt.is_current()));
            ack.done();
        });
    });
    let first = first.unwrap();
    current.until(|current| *current == Some(true));
    let taken = Watched::new(0);
    let takes = taken.clone();
    let second = builder(&stream).start(move |_: &Attempt| {
        takes.change(|taken| *taken += 1);
        Ok::<_, AttemptFailure>(())
    });
    let second = second.unwrap();
    stream.move_to(0, 1);
    taken.until(|taken| *taken == 1);
    // The answer of the fenced member has no effect.
    door.open();
    current.until(|current| *current == Some(false));
    eventually(|| status(&first).counts.fenced == 1);
    assert_eq!(first.stop(PATIENCE).counts.handled, 0);
    assert_eq!(second.stop(PATIENCE).counts.handled, 1);
    assert_eq!(stream.committed(0).watermark(), Position::new(1));
}

#[test]
fn a_lost_partition_commits_nothing_more() {
    let stream = MemoryStream::new("t", 1);
    stream.push(0, keyed("slow", 0));
    stream.push(0, keyed("quick", 1));
    let (door, began) = (Door::closed(), Watched::new(0));
    let hour = Duration::from_secs(3600);
    let first = builder(&stream).commit(hour, u64::MAX).start(waits_at(&door, &began)).unwrap();
    began.until(|began| *began == 1);
    eventually(|| status(&first).counts.handled == 1);
    stream.steal_for(0, 1);
    eventually(|| status(&first).partitions.is_empty());
    door.open();
    eventually(|| status(&first).counts.fenced == 1);
    assert_eq!(stream.committed(0).end(), Position::ZERO);
    // Both records are delivered again to the new member.
    let second = builder(&stream).start(|_: &Attempt| Ok::<_, AttemptFailure>(())).unwrap();
    eventually(|| status(&second).counts.handled == 2);
    drop((first, second));
}

#[test]
fn a_partition_that_comes_back_begins_anew() {
    let stream = MemoryStream::new("t", 1);
    stream.push(0, keyed("slow", 0));
    stream.push(0, keyed("slow", 1));
    let first = Arc::new(AtomicBool::new(true));
    let (door, began) = (Door::closed(), Watched::new(Vec::new()));
    let (doors, begins) = (door.clone(), began.clone());
    let consumer = builder(&stream).start(move |attempt: &Attempt| {
        begins.change(|began| began.push((number(attempt), attempt.epoch())));
        if first.swap(false, Ordering::SeqCst) {
            doors.pass();
        }
        Ok::<_, AttemptFailure>(())
    });
    let consumer = consumer.unwrap();
    began.until(|began| began.len() == 1);
    stream.steal_for(0, 0);
    eventually(|| status(&consumer).partitions.iter().any(|held| held.epoch == 2));
    // A record that still runs from the first assignment holds its key during the second.
    assert_eq!(began.get(), [(0, 1)]);
    door.open();
    began.until(|began| began.len() == 3);
    assert_eq!(began.get(), [(0, 1), (0, 2), (1, 2)]);
    let ended = consumer.stop(PATIENCE);
    assert_eq!((ended.counts.handled, ended.counts.fenced), (2, 1));
}

/// Records that share a key or have none hold up no other, but their own repetition.
#[test]
fn a_record_in_no_order_does_not_run_twice_at_a_time_in_a_reassigned_partition() {
    let orders: [fn(ConsumerBuilder) -> ConsumerBuilder; 2] =
        [ConsumerBuilder::unordered, |builder| {
            let shared = vec![b"a".to_vec()];
            builder.by_keys(move |_| RecordClaims { shared: shared.clone(), ..Default::default() })
        }];
    for order in orders {
        let stream = MemoryStream::new("t", 1);
        stream.push(0, keyed("a", 0));
        let (door, began) = (Door::closed(), Watched::new(Vec::new()));
        let (passes, begins) = (door.clone(), began.clone());
        let consumer = order(builder(&stream).threads(2)).start(move |attempt: &Attempt| {
            begins.change(|began| began.push((number(attempt), attempt.epoch())));
            if attempt.epoch() == 1 {
                passes.pass();
            }
            Ok::<_, AttemptFailure>(())
        });
        let consumer = consumer.unwrap();
        began.until(|began| began.len() == 1);
        stream.steal_for(0, 0);
        eventually(|| partition_status(&consumer, 0).epoch == 2);
        // The free worker gets it after the first record.
        stream.push(0, keyed("b", 1));
        began.until(|began| began.len() == 2);
        door.open();
        began.until(|began| began.len() == 3);
        assert_eq!(began.get(), [(0, 1), (1, 2), (0, 2)]);
        consumer.stop(PATIENCE);
    }
}

/// Lets the first of two partitions go while its records wait for their turns, and expects that they
/// take no start of the rate from those of the other partition.
fn expect_no_start_taken(
    order: fn(ConsumerBuilder) -> ConsumerBuilder,
    go: fn(&MemoryStream, usize),
    has_gone: fn(&[PartitionStatus]) -> bool,
) {
    let stream = MemoryStream::new("t", 2);
    let (door, began) = (Door::closed(), Watched::new(Vec::new()));
    let (passes, begins) = (door.clone(), began.clone());
    // The first record takes one of the two starts of an hour.
    let rate = Rate::per_hour(1).burst(2);
    let consumer = Consumer::builder(stream.source()).threads(1).rate(rate);
    let consumer = order(consumer).shutdown_timeout(PATIENCE).start(move |attempt: &Attempt| {
        begins.change(|began| began.push(number(attempt)));
        passes.pass();
        Ok::<_, AttemptFailure>(())
    });
    let consumer = consumer.unwrap();
    partition_status(&consumer, 1);
    stream.push_all(0, [keyed("a", 0), keyed("b", 1), keyed("c", 2)]);
    began.until(|began| began.len() == 1);
    eventually(|| partition_status(&consumer, 0).in_flight == 3);
    let other = stream.source();
    go(&stream, other.member());
    eventually(|| has_gone(&status(&consumer).partitions));
    stream.push(1, keyed("d", 3));
    eventually(|| partition_status(&consumer, 1).in_flight == 1);
    door.open();
    began.until(|began| began.len() == 2);
    assert_eq!(began.get(), [0, 3]);
    consumer.stop(PATIENCE);
}

/// Orders whose records wait in lanes of different kinds.
const ORDERS: [fn(ConsumerBuilder) -> ConsumerBuilder; 3] = [
    |builder| builder,
    |builder| builder.limit_per_key(NonZeroU16::new(2).unwrap()),
    ConsumerBuilder::unordered,
];

#[test]
fn records_of_a_revoked_partition_take_no_start_of_the_rate_from_others() {
    for order in ORDERS {
        let is_closing = |held: &[PartitionStatus]| held[0].paused_by == Some(PauseReason::Closing);
        expect_no_start_taken(order, |stream, member| stream.move_to(0, member), is_closing);
    }
}

#[test]
fn records_of_a_lost_partition_take_no_start_of_the_rate_from_others() {
    for order in ORDERS {
        let is_lost = |held: &[PartitionStatus]| held.len() == 1;
        expect_no_start_taken(order, |stream, member| stream.steal_for(0, member), is_lost);
    }
}

#[test]
fn a_waiting_retry_does_not_block_its_key_in_a_reassigned_partition() {
    let stream = MemoryStream::new("t", 1);
    stream.push(0, keyed("a", 0));
    let hour = Duration::from_secs(3600);
    let backoff = Backoff { first: hour, factor: 1, max: hour, jitter: Jitter::None };
    let rule = RetryRule { limit: RetryLimit::FOREVER, backoff, on_exhausted: OnExhausted::Stop };
    let consumer = builder(&stream).retry(RetryPolicy::new(rule).unwrap(), |_| ());
    let consumer = consumer.start(|attempt: &Attempt| match attempt.epoch() {
        1 => Err(std::io::Error::other("in an hour")),
        _ => Ok(()),
    });
    let consumer = consumer.unwrap();
    eventually(|| status(&consumer).partitions.iter().any(|held| held.blocked_count == 1));
    stream.steal_for(0, 0);
    eventually(|| status(&consumer).counts.handled == 1);
    assert_eq!(consumer.stop(PATIENCE).counts.handled, 1);
}

#[test]
fn a_consumer_stops_in_time_and_says_what_it_left() {
    let stream = MemoryStream::new("t", 1);
    stream.push_all(0, [keyed("slow", 0), keyed("quick", 1), keyed("slow", 2)]);
    let (door, began) = (Door::closed(), Watched::new(0));
    let consumer = builder(&stream).start(waits_at(&door, &began)).unwrap();
    began.until(|began| *began == 1);
    eventually(|| status(&consumer).counts.handled == 1);
    let start = Instant::now();
    let ended = consumer.stop(Duration::from_millis(50));
    assert!(start.elapsed() < Duration::from_secs(20), "the handler never ends");
    assert!(matches!(ended.reason, StopReason::Asked));
    assert_eq!((ended.abandoned, ended.counts.handled), (1, 1));
    assert!(stream.committed(0).is_done(Position::new(1)));
    assert_eq!(stream.committed(0).watermark(), Position::ZERO);
    door.open();
}

#[test]
fn a_clean_stop_repeats_nothing() {
    let stream = MemoryStream::new("t", 2);
    let mut dice = Dice(7);
    for number in 0..2_000 {
        stream.push(dice.roll(2) as u32, keyed(dice.roll(50), number));
    }
    let book = Book::shared();
    for round in 0..20 {
        let books = book.clone();
        let consumer = builder(&stream).commit(Duration::from_secs(3600), u64::MAX);
        let consumer =
            consumer.retry(RetryPolicy::new(quick(99, OnExhausted::Stop)).unwrap(), |_| ());
        let consumer = consumer.start(move |attempt: &Attempt| {
            books.change(|book| book.begin(attempt));
            let fails = number(attempt).is_multiple_of(5) && attempt.number() < 3;
            books.change(|book| book.end(attempt, !fails));
            if fails { Err(std::io::Error::other("not yet")) } else { Ok(()) }
        });
        let consumer = consumer.unwrap();
        book.until(|book| book.done.len() >= round * 100);
        let ended = consumer.stop(PATIENCE);
        assert_eq!((ended.abandoned, ended.counts.fenced), (0, 0));
    }
    stream.exhaust();
    let books = book.clone();
    let last = builder(&stream).start(move |attempt: &Attempt| {
        books.change(|book| {
            book.begin(attempt);
            book.end(attempt, true);
        });
        Ok::<_, AttemptFailure>(())
    });
    last.unwrap().wait();
    book.change(|book| book.check(2_000));
}

#[test]
fn a_second_request_to_stop_hurries_the_first() {
    let stream = MemoryStream::new("t", 1);
    stream.push(0, keyed("slow", 0));
    let (door, began) = (Door::closed(), Watched::new(0));
    let consumer = builder(&stream).start(waits_at(&door, &began)).unwrap();
    began.until(|began| *began == 1);
    let handle = consumer.handle();
    handle.stop(Duration::from_secs(3600));
    eventually(|| handle.status(PATIENCE).is_some_and(|status| status.stopping));
    handle.stop(Duration::ZERO);
    assert_eq!(consumer.wait().abandoned, 1);
    assert!(handle.status(PATIENCE).is_none());
    door.open();
}

/// Regression: a consumer that was stopping released a revoked partition at once, though its last
/// record still ran.
#[test]
fn a_partition_that_is_wanted_back_while_its_consumer_stops_is_awaited_too() {
    let stream = MemoryStream::new("t", 1);
    stream.push(0, keyed("slow", 0));
    let (door, began) = (Door::closed(), Watched::new(0));
    let consumer = builder(&stream).start(waits_at(&door, &began)).unwrap();
    began.until(|began| *began == 1);
    consumer.handle().stop(Duration::from_secs(3600));
    stream.move_to(0, 1);
    // Since then the source has been polled several times.
    let idle = || partition_status(&consumer, 0).without_progress;
    let since = idle();
    eventually(|| idle() > since + Duration::from_millis(200));
    assert_eq!(stream.owner(0), Some(0));
    door.open();
    let ended = consumer.wait();
    assert_eq!((ended.counts.handled, ended.counts.fenced), (1, 0));
    assert_eq!(stream.committed(0).watermark(), Position::new(1));
}

#[test]
fn commits_that_are_refused_for_now_are_tried_again() {
    let stream = MemoryStream::new("t", 1);
    stream.refuse_commits(Some(CommitError::Later("no coordinator".to_owned())));
    stream.push_all(0, (0..10).map(|number| keyed(number, number)));
    let consumer = builder(&stream).commit(Duration::ZERO, 1);
    let consumer = consumer.start(|_: &Attempt| Ok::<_, AttemptFailure>(())).unwrap();
    eventually(|| status(&consumer).counts.failed_commits >= 3);
    // Handling continues.
    eventually(|| status(&consumer).counts.handled == 10);
    stream.refuse_commits(None);
    eventually(|| stream.committed(0).watermark() == Position::new(10));
    assert_eq!(consumer.stop(PATIENCE).abandoned, 0);
}

/// Partitions move between three members at random, with or without a revocation, while they work.
/// The side effects are recorded in one place, so that order and overlap are checked across
/// members.
#[test]
fn a_storm_of_rebalances_keeps_the_order_and_loses_nothing() {
    const RECORDS: u64 = 3_000;
    const PARTITIONS: u32 = 4;
    for graceful in [true, false] {
        let stream = MemoryStream::new("t", PARTITIONS);
        let book = Book::shared();
        let consumers: Vec<_> = (0..3)
            .map(|_| {
                let books = book.clone();
                let policy = RetryPolicy::new(quick(99, OnExhausted::Stop)).unwrap();
                let consumer = builder(&stream).retry(policy, |_| ());
                let consumer = consumer.commit(Duration::from_millis(1), 50);
                let consumer = consumer.start(move |attempt: &Attempt| {
                    if graceful {
                        books.change(|book| book.begin(attempt));
                    }
                    let fails = number(attempt).is_multiple_of(9) && attempt.number() == 1;
                    books.change(|book| match graceful {
                        true => book.end(attempt, !fails),
                        false if fails => {}
                        false => note_done(book, attempt),
                    });
                    if fails { Err(std::io::Error::other("not yet")) } else { Ok(()) }
                });
                consumer.unwrap()
            })
            .collect();
        let mut dice = Dice(3);
        let mut pushed = 0;
        while book.change(|book| book.done.len() as u64) < RECORDS {
            for _ in 0..50.min(RECORDS - pushed) {
                stream.push(dice.roll(u64::from(PARTITIONS)) as u32, keyed(dice.roll(40), pushed));
                pushed += 1;
            }
            let (partition, member) =
                (dice.roll(u64::from(PARTITIONS)) as u32, dice.roll(3) as usize);
            let before = book.change(|book| book.done.len() as u64);
            match graceful {
                true => stream.move_to(partition, member),
                false => stream.steal_for(partition, member),
            }
            thread::sleep(Duration::from_micros(dice.roll(3_000)));
            // On a busy machine the members would otherwise only fetch again what was taken from them.
            book.until(|book| {
                let done = book.done.len() as u64;
                done > before || done == pushed
            });
        }
        let mut counts = Vec::new();
        for consumer in consumers {
            counts.push(consumer.stop(PATIENCE).counts);
        }
        if graceful {
            book.change(|book| book.check(RECORDS as usize));
            assert!(counts.iter().all(|counts| counts.fenced == 0), "{counts:?}");
        }
        assert_eq!(book.change(|book| book.done.len() as u64), RECORDS);
        if !graceful {
            // The last commit of a member may have been fenced: then the record is delivered once
            // more.
            (0..PARTITIONS).for_each(|partition| stream.move_to(partition, 3));
            stream.exhaust();
            builder(&stream).start(|_: &Attempt| Ok::<_, AttemptFailure>(())).unwrap().wait();
        }
        for partition in 0..PARTITIONS {
            let progress = stream.committed(partition);
            assert_eq!(progress.watermark(), progress.end());
        }
    }
}

fn note_done(book: &mut Book, attempt: &Attempt) {
    *book.done.entry((attempt.partition().clone(), attempt.position())).or_default() += 1;
}
