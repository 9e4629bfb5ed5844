//! G1: handlers of one partition and key never overlap and begin in the order of positions; through
//! retries, failures and panics, with threads, futures and asynchronous answers.

use std::sync::Arc;
use std::sync::mpsc;
use std::thread;

use crate::consuming::{Book, Dice, Watched, keyed, number, quick};
use keylane_stream::consumer::{
    Ack, Attempt, AttemptFailure, Consumer, ConsumerBuilder, StopReason, UnkeyedPolicy,
};
use keylane_stream::memory::MemoryStream;
use keylane_stream::retry::{OnExhausted, RetryPolicy};
use keylane_stream::{Position, Record};

const PARTITIONS: u32 = 3;
const RECORDS: u64 = 3_000;
const KEYS: u64 = 200;

/// Returns a stream with many keys, some of them hot, and a builder of its consumer.
fn many_records(seed: u64) -> (MemoryStream, ConsumerBuilder) {
    let stream = MemoryStream::new("t", PARTITIONS);
    let mut dice = Dice(seed);
    for number in 0..RECORDS {
        let partition = dice.roll(u64::from(PARTITIONS)) as u32;
        stream.push(partition, keyed(dice.roll_skewed(KEYS), number));
        if dice.roll(10) == 0 {
            stream.skip(partition, dice.roll(3));
        }
    }
    stream.exhaust();
    let policy = RetryPolicy::new(quick(20, OnExhausted::Stop)).unwrap();
    let builder = Consumer::builder(stream.source()).retry(policy, |_| ());
    (stream, builder)
}

/// Returns whether this attempt fails: always the same for the same attempt.
fn fails(attempt: &Attempt) -> bool {
    let seed = number(attempt) * 31 + u64::from(attempt.number());
    Dice(seed).roll(4) == 0
}

fn check_all(stream: &MemoryStream, consumer: Consumer, book: &Watched<Book>) {
    let ended = consumer.wait();
    assert!(matches!(ended.reason, StopReason::Exhausted), "{:?}", ended.reason);
    assert_eq!(ended.counts.handled, RECORDS);
    book.change(|book| {
        book.check(RECORDS as usize);
        assert_eq!(book.attempts, RECORDS + ended.counts.failed_attempts);
        assert!(ended.counts.failed_attempts > RECORDS / 5);
    });
    for partition in 0..PARTITIONS {
        let progress = stream.committed(partition);
        assert_eq!(progress.watermark(), progress.end());
    }
}

#[test]
fn threads_keep_the_order_of_each_key() {
    for seed in 0..5 {
        let (stream, builder) = many_records(seed);
        let book = Book::shared();
        let books = book.clone();
        let handle = move |attempt: &Attempt| {
            books.change(|book| book.begin(attempt));
            if number(attempt).is_multiple_of(7) {
                thread::yield_now();
            }
            let fails = fails(attempt);
            books.change(|book| book.end(attempt, !fails));
            match fails {
                true if number(attempt).is_multiple_of(2) => panic!("so it goes"),
                true => Err(AttemptFailure::from(std::io::Error::other("not today"))),
                false => Ok(()),
            }
        };
        let consumer = builder.threads(8).start(handle).unwrap();
        check_all(&stream, consumer, &book);
    }
}

#[test]
fn answers_from_elsewhere_keep_the_order_of_each_key() {
    let (stream, builder) = many_records(11);
    let book = Book::shared();
    let (give, given) = mpsc::channel::<(Attempt, Ack)>();
    let given = Arc::new(std::sync::Mutex::new(given));
    for _ in 0..4 {
        let (book, given) = (book.clone(), given.clone());
        thread::spawn(move || {
            loop {
                let Ok((attempt, ack)) = given.lock().unwrap().recv() else { return };
                let fails = fails(&attempt);
                book.change(|book| book.end(&attempt, !fails));
                match fails {
                    // An acknowledgement that is dropped counts as a failure.
                    true => drop(ack),
                    false => ack.done(),
                }
            }
        });
    }
    let books = book.clone();
    let begin = move |attempt: Attempt, ack: Ack| {
        books.change(|book| book.begin(&attempt));
        give.send((attempt, ack)).unwrap();
    };
    let consumer = builder.start_with_acks(begin).unwrap();
    check_all(&stream, consumer, &book);
}

#[cfg(feature = "tokio")]
#[test]
fn futures_keep_the_order_of_each_key() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let (stream, builder) = many_records(12);
    let book = Book::shared();
    let books = book.clone();
    let handle = move |attempt: Attempt| {
        let book = books.clone();
        async move {
            book.change(|book| book.begin(&attempt));
            tokio::task::yield_now().await;
            let fails = fails(&attempt);
            book.change(|book| book.end(&attempt, !fails));
            match fails {
                true if number(&attempt).is_multiple_of(2) => panic!("so it goes"),
                true => Err(std::io::Error::other("not today")),
                false => Ok(()),
            }
        }
    };
    let consumer = builder.start_async(runtime.handle().clone(), 100, handle).unwrap();
    check_all(&stream, consumer, &book);
    book.change(|book| assert!(book.max_running <= 100 && book.max_running > 1));
}

/// Handles all of a stream with two keys and records without a key; a record ends once `together`
/// records have run at the same time. Returns the order of their ends, and the maximum that ran at
/// the same time.
fn handled(
    together: usize,
    choose: impl FnOnce(ConsumerBuilder) -> ConsumerBuilder,
) -> (Vec<String>, usize) {
    let stream = MemoryStream::new("t", 1);
    for number in 0..40 {
        let record = match number % 4 {
            0 => Record::new("a", number.to_string()),
            1 => Record::new("b", number.to_string()),
            _ => Record::without_key(number.to_string()),
        };
        stream.push(0, record);
    }
    stream.exhaust();
    let seen = Watched::new((Vec::new(), 0_usize, 0_usize));
    let sees = seen.clone();
    let builder = choose(Consumer::builder(stream.source()).threads(8));
    let consumer = builder.start(move |attempt: &Attempt| {
        sees.change(|(_, running, most)| {
            *running += 1;
            *most = (*most).max(*running);
        });
        sees.until(|(.., most)| *most >= together);
        sees.change(|(order, running, _)| {
            *running -= 1;
            order.push(String::from_utf8(attempt.payload().to_vec()).unwrap());
        });
        Ok::<_, AttemptFailure>(())
    });
    let ended = consumer.unwrap().wait();
    assert_eq!(ended.counts.handled, 40);
    let (order, _, most) = seen.get();
    (order, most)
}

#[test]
fn a_partition_can_be_one_line() {
    let (order, most) = handled(1, ConsumerBuilder::by_partition);
    assert_eq!(order, (0..40).map(|number| number.to_string()).collect::<Vec<_>>());
    assert_eq!(most, 1);
}

#[test]
fn without_order_as_many_run_as_there_are_threads() {
    let (_, most) = handled(8, ConsumerBuilder::unordered);
    assert_eq!(most, 8);
}

#[test]
fn order_can_be_kept_for_what_a_function_says() {
    // All records share this key, so there is one queue.
    let (order, most) = handled(1, |builder| builder.by(|_| Some(b"all".to_vec())));
    assert_eq!((order.len(), most), (40, 1));
    assert!(order.is_sorted_by_key(|number| number.parse::<u32>().unwrap()));
}

#[test]
fn records_without_a_key_are_one_line_or_none() {
    let without = |order: &[String]| {
        let numbers = order.iter().map(|number| number.parse::<u32>().unwrap());
        numbers.filter(|number| number % 4 >= 2).collect::<Vec<_>>()
    };
    let (order, most) = handled(3, |builder| builder);
    assert!(without(&order).is_sorted());
    assert_eq!(most, 3, "two keys, and those without");
    let (_, most) = handled(8, |builder| builder.unkeyed(UnkeyedPolicy::Unordered));
    assert_eq!(most, 8);
}

#[test]
fn records_without_a_key_can_be_refused() {
    let stream = MemoryStream::new("t", 1);
    stream.push(0, Record::new("a", "1"));
    stream.push(0, Record::without_key("2"));
    stream.push(0, Record::new("a", "3"));
    stream.exhaust();
    let policy = RetryPolicy::new(quick(5, OnExhausted::Skip)).unwrap();
    let consumer = Consumer::builder(stream.source())
        .unkeyed(UnkeyedPolicy::Reject)
        .retry(policy, |failure| assert!(matches!(failure, AttemptFailure::NoKey)))
        .start(|attempt: &Attempt| {
            assert!(attempt.key().is_some());
            Ok::<_, AttemptFailure>(())
        });
    let ended = consumer.unwrap().wait();
    assert_eq!((ended.counts.handled, ended.counts.skipped), (2, 1));
    assert_eq!(stream.committed(0).watermark(), Position::new(3));
}
