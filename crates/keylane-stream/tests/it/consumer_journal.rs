//! The journal as a source: groups, many producers and consumers in one process, and G14: the same
//! handling whatever the source.

use std::collections::BTreeMap;
use std::thread;
use std::time::Duration;

use crate::common::place;
use crate::consuming::{Book, Dice, PATIENCE, Watched, eventually, keyed, number, quick, status};
use keylane_stream::consumer::{Attempt, AttemptFailure, Consumer, ConsumerBuilder, StopReason};
use keylane_stream::journal::{Journal, JournalSource, RetentionPolicy};
use keylane_stream::memory::MemoryStream;
use keylane_stream::retry::{OnExhausted, RetryPolicy};
use keylane_stream::{Position, Record};

#[test]
fn many_producers_and_groups_share_a_journal() {
    const PRODUCERS: u64 = 4;
    const EACH: u64 = 250;
    let (_folder, path) = place();
    let journal = Journal::open(path).unwrap();
    let books: Vec<_> = (0..3).map(|_| Book::shared()).collect();
    let consumers: Vec<_> = books
        .iter()
        .zip(["a", "b", "c"])
        .map(|(book, group)| {
            let book = book.clone();
            let source = JournalSource::new(journal.clone(), group);
            let consumer = Consumer::builder(source).threads(4).start(move |attempt: &Attempt| {
                book.change(|book| book.begin(attempt));
                thread::yield_now();
                book.change(|book| book.end(attempt, true));
                Ok::<_, AttemptFailure>(())
            });
            consumer.unwrap()
        })
        .collect();
    thread::scope(|scope| {
        for producer in 0..PRODUCERS {
            let journal = &journal;
            scope.spawn(move || {
                for call in 0..EACH / 5 {
                    let numbers = (0..5).map(|number| producer * EACH + call * 5 + number);
                    let records: Vec<_> =
                        numbers.map(|number| keyed(number % 17, number)).collect();
                    journal.append_all(&records).unwrap();
                }
            });
        }
    });
    for (book, consumer) in books.iter().zip(consumers) {
        book.until(|book| book.done.len() as u64 == PRODUCERS * EACH);
        let ended = consumer.stop(PATIENCE);
        assert_eq!(ended.abandoned, 0);
        book.change(|book| book.check((PRODUCERS * EACH) as usize));
    }
    for group in ["a", "b", "c"] {
        assert_eq!(journal.committed(group).unwrap().unwrap().watermark(), journal.end());
    }
}

#[test]
fn a_second_consumer_of_a_group_takes_over_when_the_first_ends() {
    let (_folder, path) = place();
    let journal = Journal::open(path).unwrap();
    journal.append_all(&(0..10).map(|number| keyed(number, number)).collect::<Vec<_>>()).unwrap();
    let seen = Watched::new(Vec::new());
    let start = |name: &'static str| {
        let seen = seen.clone();
        let source = JournalSource::new(journal.clone(), "g");
        let consumer = Consumer::builder(source).start(move |attempt: &Attempt| {
            seen.change(|seen: &mut Vec<_>| seen.push((name, number(attempt))));
            Ok::<_, AttemptFailure>(())
        });
        consumer.unwrap()
    };
    let first = start("first");
    seen.until(|seen| seen.len() == 10);
    let second = start("second");
    journal.append(&keyed(10, 10)).unwrap();
    seen.until(|seen| seen.len() == 11);
    assert!(seen.get().iter().all(|(name, _)| *name == "first"));
    assert!(status(&second).partitions.is_empty());
    first.stop(PATIENCE);
    journal.append(&keyed(11, 11)).unwrap();
    seen.until(|seen| seen.len() == 12);
    assert_eq!(seen.get().last(), Some(&("second", 11)));
    second.stop(PATIENCE);
}

#[test]
fn several_journals_are_partitions_of_one_consumer() {
    let (_folders, journals): (Vec<_>, Vec<_>) = (0..3)
        .map(|_| {
            let (folder, path) = place();
            (folder, Journal::open(path).unwrap())
        })
        .unzip();
    for (number, journal) in (0..).zip(&journals) {
        let records: Vec<_> = (0..2_000).map(|i| keyed(i % 20, number * 10_000 + i)).collect();
        journal.append_all(&records).unwrap();
    }
    let mut all = journals.iter().cloned();
    let source = JournalSource::new(all.next().unwrap(), "g");
    let source = all.fold(source, JournalSource::and).to_the_end();
    let book = Book::shared();
    let books = book.clone();
    let consumer = Consumer::builder(source).threads(4).start(move |attempt: &Attempt| {
        books.change(|book| book.begin(attempt));
        books.change(|book| book.end(attempt, true));
        Ok::<_, AttemptFailure>(())
    });
    let ended = consumer.unwrap().wait();
    assert_eq!(ended.counts.handled, 6_000);
    book.change(|book| book.check(6_000));
}

#[test]
fn records_that_retention_removed_are_passed() {
    let (_folder, path) = place();
    let journal = Journal::open(path).unwrap();
    for _ in 0..3 {
        journal.append_all(&(0..1_024).map(|i| keyed(i, i)).collect::<Vec<_>>()).unwrap();
    }
    let handle = |_: &Attempt| Ok::<_, AttemptFailure>(());
    let source = || JournalSource::new(journal.clone(), "g").to_the_end();
    Consumer::builder(source()).start(handle).unwrap().wait();
    journal.append_all(&(0..4_096).map(|i| keyed(i, i)).collect::<Vec<_>>()).unwrap();
    let head = journal.retain(RetentionPolicy::Newest(1_024)).unwrap();
    assert!(head > Position::new(3 * 1_024));
    let ended = Consumer::builder(source()).start(handle).unwrap().wait();
    assert_eq!(ended.counts.handled, journal.end().get() - head.get());
    assert_eq!(journal.committed("g").unwrap().unwrap().watermark(), journal.end());
}

#[test]
fn a_damaged_journal_ends_its_consumer_with_what_was_done() {
    let (_folder, path) = place();
    let journal = Journal::open(&path).unwrap();
    for _ in 0..3 {
        journal.append_all(&(0..1_024).map(|i| keyed(i, i)).collect::<Vec<_>>()).unwrap();
    }
    drop(journal);
    // A chunk in the middle, as opening checks the first and the last.
    let file = rusqlite::Connection::open(&path).unwrap();
    let damaged = "UPDATE chunk SET crc = crc + 1 WHERE first = 1024";
    assert_eq!(file.execute(damaged, []).unwrap(), 1);
    drop(file);
    let journal = Journal::open(&path).unwrap();
    let source = JournalSource::new(journal.clone(), "g").to_the_end();
    // Few in flight, so that most good records are complete when the damaged chunk is read.
    let consumer = Consumer::builder(source).max_in_flight(10, usize::MAX);
    let consumer = consumer.start(|_: &Attempt| Ok::<_, AttemptFailure>(()));
    let ended = consumer.unwrap().wait();
    let StopReason::Source(_) = &ended.reason else { panic!("{:?}", ended.reason) };
    assert!(ended.reason.to_string().contains("1024"), "{}", ended.reason);
    // Records that had not begun by then are incomplete.
    let progress = journal.committed("g").unwrap().unwrap();
    let done = (0..1_024).filter(|at| progress.is_done(Position::new(*at))).count();
    assert_eq!(done as u64, ended.counts.handled);
    assert!(done >= 1_000, "{done}");
}

/// Returns the positions of each key with their attempts, for a scenario that is the same for every
/// source.
fn scenario(builder: ConsumerBuilder) -> BTreeMap<Option<Vec<u8>>, Vec<(u64, u32)>> {
    let seen = Watched::new(BTreeMap::<_, Vec<_>>::new());
    let sees = seen.clone();
    let policy = RetryPolicy::new(quick(4, OnExhausted::Skip)).unwrap();
    let consumer = builder.threads(4).retry(policy, |_| ()).start(move |attempt: &Attempt| {
        let seen = (number(attempt), attempt.number());
        sees.change(|all| all.entry(attempt.key().map(<[u8]>::to_vec)).or_default().push(seen));
        match Dice(seen.0 * 7 + u64::from(seen.1)).roll(3) {
            0 => Err(std::io::Error::other("not today")),
            _ => Ok(()),
        }
    });
    assert!(matches!(consumer.unwrap().wait().reason, StopReason::Exhausted));
    seen.get()
}

#[test]
fn the_same_records_are_handled_alike_from_memory_and_from_a_journal() {
    let mut dice = Dice(5);
    let records: Vec<Record> = (0..1_000)
        .map(|number| match dice.roll(10) {
            0 => Record::without_key(number.to_string()),
            _ => keyed(dice.roll_skewed(80), number),
        })
        .collect();
    let stream = MemoryStream::new("t", 1);
    stream.push_all(0, records.clone());
    stream.exhaust();
    let (_folder, path) = place();
    let journal = Journal::open(path).unwrap();
    for some in records.chunks(70) {
        journal.append_all(some).unwrap();
    }
    let source = JournalSource::new(journal.clone(), "g").to_the_end();
    assert_eq!(scenario(Consumer::builder(stream.source())), scenario(Consumer::builder(source)));
}

#[test]
fn progress_is_stored_while_it_goes_on() {
    let (_folder, path) = place();
    let journal = Journal::open(path).unwrap();
    let source = JournalSource::new(journal.clone(), "g");
    let consumer = Consumer::builder(source).commit(Duration::from_millis(1), u64::MAX);
    let consumer = consumer.start(|_: &Attempt| Ok::<_, AttemptFailure>(())).unwrap();
    for number in 0..20 {
        journal.append(&keyed(number, number)).unwrap();
        let done = || journal.committed("g").unwrap().map(|progress| progress.watermark());
        eventually(|| done() == Some(Position::new(number + 1)));
    }
    drop(consumer);
}
