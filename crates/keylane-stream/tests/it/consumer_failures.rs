//! G7 and G8: the handling of records that fail, and its cost for the other records.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::consuming::{Watched, eventually, keyed, number, partition_status, quick, status};
use keylane_stream::consumer::{
    Ack, Attempt, AttemptFailure, Consumer, ConsumerBuilder, PartitionStatus, StartError,
    StopReason, WaitReason,
};
use keylane_stream::dead_letters::{
    DeadLetter, DeadLetterError, DeadLetters, FileDeadLetters, JournalDeadLetters,
};
use keylane_stream::journal::Journal;
use keylane_stream::memory::MemoryStream;
use keylane_stream::retry::{Backoff, Jitter, OnExhausted, RetryLimit, RetryPolicy, RetryRule};
use keylane_stream::{Partition, Position, Record};

const BAD: u64 = 13;

/// Returns a stream of 40 records with 4 keys in one partition, one of which always fails.
fn stream() -> MemoryStream {
    let stream = MemoryStream::new("t", 1);
    stream.push_all(0, (0..40).map(|number| keyed(number % 4, number)));
    stream.exhaust();
    stream
}

fn builder(stream: &MemoryStream, on_exhausted: OnExhausted) -> ConsumerBuilder {
    let policy = RetryPolicy::new(quick(3, on_exhausted)).unwrap();
    Consumer::builder(stream.source()).threads(4).retry(policy, |_| ())
}

type Seen = Watched<Vec<(u64, u32)>>;

/// Handles all but the bad record, and records each attempt.
fn handler(
    seen: &Arc<Seen>,
) -> impl Fn(&Attempt) -> Result<(), AttemptFailure> + Send + Sync + 'static {
    let seen = seen.clone();
    move |attempt: &Attempt| {
        seen.change(|seen| seen.push((number(attempt), attempt.number())));
        match number(attempt) {
            BAD => Err(std::io::Error::other("a bad record").into()),
            _ => Ok(()),
        }
    }
}

fn attempts_at(seen: &Seen, wanted: u64) -> Vec<u32> {
    let all = seen.get();
    all.iter().filter(|(number, _)| *number == wanted).map(|(_, attempt)| *attempt).collect()
}

#[test]
fn a_record_is_skipped_after_its_last_attempt() {
    let (stream, seen) = (stream(), Watched::new(Vec::new()));
    let ended = builder(&stream, OnExhausted::Skip).start(handler(&seen)).unwrap().wait();
    assert!(matches!(ended.reason, StopReason::Exhausted));
    assert_eq!((ended.counts.handled, ended.counts.skipped), (39, 1));
    assert_eq!(ended.counts.failed_attempts, 3);
    assert_eq!(attempts_at(&seen, BAD), [1, 2, 3]);
    assert_eq!(stream.committed(0).watermark(), Position::new(40));
}

#[test]
fn a_key_stops_with_its_record_and_the_others_go_on() {
    let (stream, seen) = (stream(), Watched::new(Vec::new()));
    let ended = builder(&stream, OnExhausted::StopKey).start(handler(&seen)).unwrap().wait();
    assert!(matches!(ended.reason, StopReason::Exhausted));
    // Three records of its key came before it; the other seven of the key are incomplete.
    assert_eq!(ended.counts.handled, 33);
    let [stopped] = &ended.stopped[..] else { panic!("{:?}", ended.stopped) };
    assert_eq!(stopped.record.position, Position::new(BAD));
    assert_eq!(stopped.record.key.as_deref(), Some(&b"1"[..]));
    assert_eq!(stopped.record.failure.as_deref(), Some("a bad record"));
    let progress = stream.committed(0);
    assert_eq!(progress.watermark(), Position::new(BAD));
    assert_eq!(progress.incomplete().len(), 6, "the records of its key behind it");

    // The next consumer continues there, and handles only the incomplete records.
    seen.change(Vec::clear);
    let sees = seen.clone();
    let again = builder(&stream, OnExhausted::Stop).start(move |attempt: &Attempt| {
        sees.change(|seen| seen.push((number(attempt), attempt.number())));
        Ok::<_, AttemptFailure>(())
    });
    assert_eq!(again.unwrap().wait().counts.handled, 7);
    assert_eq!(seen.get(), [13, 17, 21, 25, 29, 33, 37].map(|number| (number, 1)));
}

#[test]
fn everything_stops_with_a_record_and_nothing_is_lost() {
    let (stream, seen) = (stream(), Watched::new(Vec::new()));
    let ended = builder(&stream, OnExhausted::Stop).start(handler(&seen)).unwrap().wait();
    let StopReason::Failed { partition, position, failure } = &ended.reason else {
        panic!("{:?}", ended.reason)
    };
    assert_eq!((partition, *position), (&Partition::new("t", 0), Position::new(BAD)));
    assert_eq!(failure.to_string(), "a bad record");
    let progress = stream.committed(0);
    // Records that had not begun by then stay incomplete, also earlier ones of other keys.
    assert!(progress.watermark() <= Position::new(BAD) && !progress.is_done(Position::new(BAD)));
    assert!(!seen.get().iter().any(|(number, _)| *number > BAD && number % 4 == BAD % 4));
    let done = (0..40).filter(|number| progress.is_done(Position::new(*number))).count();
    assert_eq!(done as u64, ended.counts.handled);
}

#[test]
fn panics_are_failed_attempts() {
    let stream = stream();
    let consumer = builder(&stream, OnExhausted::Skip).start(|attempt: &Attempt| {
        match number(attempt) {
            BAD => panic!("number {BAD}"),
            7 if attempt.number() == 1 => std::panic::panic_any(7),
            _ => {}
        }
        Ok::<_, AttemptFailure>(())
    });
    let ended = consumer.unwrap().wait();
    assert_eq!((ended.counts.handled, ended.counts.skipped), (39, 1));
    assert_eq!(ended.counts.failed_attempts, 4);
}

#[test]
fn a_key_function_that_panics_fails_its_record_alone() {
    let stream = stream();
    let key_of = |record: &Record| {
        assert_ne!(record.payload(), b"13");
        record.key.as_deref().map(Vec::from)
    };
    let failures = Watched::new(Vec::new());
    let notes = failures.clone();
    let policy = RetryPolicy::new(quick(3, OnExhausted::Skip)).unwrap();
    let consumer = Consumer::builder(stream.source())
        .by(key_of)
        .retry(policy, move |failure| notes.change(|all| all.push(failure.to_string())))
        .start(|_: &Attempt| Ok::<_, AttemptFailure>(()));
    let ended = consumer.unwrap().wait();
    assert_eq!((ended.counts.handled, ended.counts.skipped), (39, 1));
    assert!(failures.get()[0].contains("panicked"));
}

#[test]
fn each_class_of_errors_has_its_rule() {
    let stream = stream();
    #[derive(Debug, thiserror::Error)]
    #[error("code {0}")]
    struct Code(u32);
    let policy = RetryPolicy::new(quick(5, OnExhausted::Stop)).unwrap();
    let policy = policy.with(404, quick(1, OnExhausted::Skip)).unwrap();
    let policy = policy.with(503, quick(3, OnExhausted::Skip)).unwrap();
    let classify =
        |failure: &AttemptFailure| failure.downcast_ref::<Code>().map_or(0, |code| code.0);
    let seen = Watched::new(Vec::new());
    let sees = seen.clone();
    let consumer = Consumer::builder(stream.source()).retry(policy, classify);
    let consumer = consumer.start(move |attempt: &Attempt| {
        sees.change(|seen: &mut Vec<_>| seen.push((number(attempt), attempt.number())));
        match number(attempt) {
            4 => Err(Code(404)),
            5 => Err(Code(503)),
            _ => Ok(()),
        }
    });
    assert_eq!(consumer.unwrap().wait().counts.skipped, 2);
    assert_eq!((attempts_at(&seen, 4).len(), attempts_at(&seen, 5).len()), (1, 3));
}

#[test]
fn a_record_that_waits_for_its_next_attempt_holds_its_key_and_no_worker() {
    let stream = MemoryStream::new("t", 1);
    stream.push(0, keyed("bad", 0));
    stream.push(0, keyed("bad", 1));
    stream.push_all(0, (2..100).map(|number| keyed(number, number)));
    stream.exhaust();
    let hour = Duration::from_secs(3600);
    let backoff = Backoff { first: hour, factor: 1, max: hour, jitter: Jitter::None };
    let rule = RetryRule { limit: RetryLimit::FOREVER, backoff, on_exhausted: OnExhausted::Stop };
    let others = Watched::new(0);
    let count = others.clone();
    let consumer = Consumer::builder(stream.source()).threads(1);
    let consumer = consumer.retry(RetryPolicy::new(rule).unwrap(), |_| ());
    let consumer = consumer.start(move |attempt: &Attempt| {
        assert_ne!(number(attempt), 1, "it is behind the one that waits");
        if number(attempt) == 0 {
            return Err(std::io::Error::other("later"));
        }
        count.change(|others| *others += 1);
        Ok(())
    });
    let consumer = consumer.unwrap();
    others.until(|others| *others == 98);
    eventually(|| partition_status(&consumer, 0).in_flight == 2);
    let [PartitionStatus { blocked, oldest, watermark, .. }] = &status(&consumer).partitions[..]
    else {
        panic!("there is one")
    };
    assert_eq!(*watermark, Position::ZERO);
    assert!(matches!(blocked[0].reason, WaitReason::Retry { within } if within > hour / 2));
    assert_eq!((blocked[0].failed_attempts, oldest.as_ref()), (1, Some(&blocked[0])));
    // The shutdown does not wait for the end of the hour.
    let ended = consumer.stop(Duration::from_secs(30));
    assert_eq!((ended.abandoned, ended.counts.handled), (0, 98));
    assert_eq!(stream.committed(0).watermark(), Position::ZERO);
    assert!(stream.committed(0).is_done(Position::new(99)));
}

#[test]
fn a_hundred_thousand_keys_can_wait_for_their_next_attempts() {
    const KEYS: u64 = 100_000;
    let stream = MemoryStream::new("t", 1);
    stream.set_limit(keylane_stream::tracker::OffsetMapLimit::JOURNAL);
    stream.push_all(0, (0..KEYS).map(|number| keyed(number, number)));
    stream.exhaust();
    let wait = Duration::from_millis(300);
    let backoff = Backoff { first: wait, factor: 1, max: wait, jitter: Jitter::None };
    let rule =
        RetryRule { limit: RetryLimit::attempts(2), backoff, on_exhausted: OnExhausted::Stop };
    let consumer = Consumer::builder(stream.source()).threads(2);
    let consumer = consumer.retry(RetryPolicy::new(rule).unwrap(), |_| ());
    let consumer = consumer.max_in_flight(KEYS as usize, usize::MAX);
    let consumer = consumer.start(|attempt: &Attempt| match attempt.number() {
        1 => Err(std::io::Error::other("the first one fails")),
        _ => Ok(()),
    });
    let ended = consumer.unwrap().wait();
    assert_eq!(ended.counts.handled, KEYS);
    assert_eq!(ended.counts.failed_attempts, KEYS);
}

/// Dead-letter sink that keeps the letters, and refuses them while the test wants that.
#[derive(Clone, Default)]
struct Grave {
    letters: Arc<Watched<Vec<DeadLetter>>>,
    closed: Arc<AtomicBool>,
    refused: Arc<Watched<u32>>,
}

impl DeadLetters for Grave {
    fn write(&mut self, letters: &[DeadLetter]) -> Result<(), DeadLetterError> {
        if self.closed.load(Ordering::SeqCst) {
            self.refused.change(|refused| *refused += 1);
            return Err(DeadLetterError::new("no room"));
        }
        self.letters.change(|all| all.extend_from_slice(letters));
        Ok(())
    }
}

#[test]
fn a_dead_letter_keeps_all_that_is_known() {
    let (stream, seen, grave) = (stream(), Watched::new(Vec::new()), Grave::default());
    let consumer = builder(&stream, OnExhausted::DeadLetter).dead_letters(grave.clone());
    let ended = consumer.start(handler(&seen)).unwrap().wait();
    assert_eq!((ended.counts.handled, ended.counts.dead_lettered), (39, 1));
    let letters = grave.letters.get();
    let [letter] = &letters[..] else { panic!("{letters:?}") };
    assert_eq!((&letter.partition, letter.position), (&Partition::new("t", 0), Position::new(BAD)));
    assert_eq!(letter.record, keyed(1, BAD));
    assert_eq!((letter.attempts, letter.failure.as_str()), (3, "a bad record"));
    assert!(letter.failed_at >= letter.written);
    assert_eq!(stream.committed(0).watermark(), Position::new(40));
}

#[test]
fn a_record_is_not_done_until_its_dead_letter_is_written() {
    let (stream, seen, grave) = (stream(), Watched::new(Vec::new()), Grave::default());
    grave.closed.store(true, Ordering::SeqCst);
    let consumer = builder(&stream, OnExhausted::DeadLetter).dead_letters(grave.clone());
    let consumer = consumer.commit(Duration::ZERO, 1).start(handler(&seen)).unwrap();
    grave.refused.until(|refused| *refused >= 2);
    eventually(|| partition_status(&consumer, 0).in_flight == 7);
    eventually(|| {
        let stored = stream.committed(0);
        (stored.end(), stored.watermark()) == (Position::new(40), Position::new(BAD))
    });
    let status = status(&consumer);
    let refused = Some("no room".to_owned());
    assert_eq!(status.partitions[0].blocked[0].reason, WaitReason::DeadLetter { refused });
    grave.closed.store(false, Ordering::SeqCst);
    let ended = consumer.wait();
    assert_eq!((ended.counts.handled, ended.counts.dead_lettered), (39, 1));
    assert_eq!(grave.letters.get().len(), 1);
}

#[test]
fn an_unwritable_dead_letter_is_abandoned_at_shutdown() {
    let (stream, seen, grave) = (stream(), Watched::new(Vec::new()), Grave::default());
    grave.closed.store(true, Ordering::SeqCst);
    let consumer = builder(&stream, OnExhausted::DeadLetter).dead_letters(grave.clone());
    let consumer = consumer.start(handler(&seen)).unwrap();
    grave.refused.until(|refused| *refused >= 1);
    // Nothing else is in flight any more.
    eventually(|| partition_status(&consumer, 0).in_flight == 7);
    let ended = consumer.stop(Duration::from_millis(50));
    assert_eq!((ended.abandoned, ended.counts.dead_lettered), (1, 0));
    assert!(!stream.committed(0).is_done(Position::new(BAD)));
}

/// Dead-letter sink that accepts all letters but that of the first record.
struct Picky(Grave);

impl DeadLetters for Picky {
    fn write(&mut self, letters: &[DeadLetter]) -> Result<(), DeadLetterError> {
        if letters.iter().any(|letter| letter.position == Position::new(0)) {
            self.0.refused.change(|refused| *refused += 1);
            return Err(DeadLetterError::new("too large"));
        }
        self.0.write(letters)
    }
}

#[test]
fn an_unwritable_dead_letter_does_not_block_later_ones() {
    let (stream, grave) = (MemoryStream::new("t", 1), Grave::default());
    stream.push(0, keyed(0, 0));
    let consumer = builder(&stream, OnExhausted::DeadLetter).dead_letters(Picky(grave.clone()));
    let consumer =
        consumer.start(|_: &Attempt| Err::<(), _>(std::io::Error::other("no good"))).unwrap();
    grave.refused.until(|refused| *refused >= 1);
    stream.push_all(0, (1..40).map(|number| keyed(number, number)));
    grave.letters.until(|letters| letters.len() == 39);
    eventually(|| status(&consumer).counts.dead_lettered == 39);
    assert_eq!(consumer.stop(Duration::from_millis(50)).abandoned, 1);
}

#[cfg(feature = "tokio")]
#[test]
fn the_end_of_the_runtime_is_a_failure_of_what_runs_there() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let stream = stream();
    let began = Watched::new(false);
    let begins = began.clone();
    let consumer = builder(&stream, OnExhausted::Stop);
    let consumer = consumer.start_async(runtime.handle().clone(), 2, move |_: Attempt| {
        begins.change(|began| *began = true);
        std::future::pending::<Result<(), AttemptFailure>>()
    });
    let consumer = consumer.unwrap();
    began.until(|began| *began);
    runtime.shutdown_background();
    let ended = consumer.wait();
    let StopReason::Failed { failure, .. } = &ended.reason else { panic!("{:?}", ended.reason) };
    assert!(matches!(**failure, AttemptFailure::Abandoned));
    assert_eq!(ended.counts.handled, 0);
}

#[test]
fn dead_letters_want_a_place() {
    let (stream, seen) = (stream(), Watched::new(Vec::new()));
    let refused = builder(&stream, OnExhausted::DeadLetter).start(handler(&seen)).unwrap_err();
    assert!(matches!(refused, StartError::NoDeadLetters));
}

fn letter(number: u64, record: Record) -> DeadLetter {
    let time = std::time::UNIX_EPOCH + Duration::from_millis(1_700_000_000_123);
    DeadLetter {
        partition: Partition::new("orders", 2),
        position: Position::new(number),
        written: time,
        record,
        failure: "it said \"no\"\n".to_owned(),
        attempts: 4,
        failed_at: time,
    }
}

#[test]
fn a_file_of_dead_letters_has_one_line_for_each() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dead.ndjson");
    let mut record = Record::new("ann", "1 book");
    record.headers.push(("trace".to_owned(), Some(vec![0xFF, 0])));
    let raw = Record::new([0x80], [0xC0]);
    let none = Record::without_key("");
    FileDeadLetters::open(&path).unwrap().write(&[letter(1, record), letter(2, raw)]).unwrap();
    // A process that was killed while it wrote leaves half a line.
    std::fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, b"{\"stream\": \"ord"))
        .unwrap();
    FileDeadLetters::open(&path).unwrap().write(&[letter(3, none)]).unwrap();
    let text = std::fs::read_to_string(&path).unwrap();
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!(lines[0]["stream"], "orders");
    assert_eq!(lines[0]["partition"], 2);
    assert_eq!(lines[0]["key"], "ann");
    assert_eq!(lines[0]["payload"], "1 book");
    assert_eq!(lines[0]["headers"][0]["value_base64"], "/wA=");
    assert_eq!(lines[0]["failed_at"], 1_700_000_000_123_u64);
    assert_eq!(lines[0]["failure"], "it said \"no\"\n");
    assert_eq!(lines[0]["attempts"], 4);
    assert_eq!(
        (&lines[1]["key_base64"], &lines[1]["payload_base64"]),
        (&"gA==".into(), &"wA==".into())
    );
    assert_eq!(lines[2].get("key"), None);
    assert_eq!(lines[2]["position"], 3);
}

/// Several consumers of a group on one machine use the same file.
#[test]
fn a_file_of_dead_letters_may_have_several_writers() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("dead.ndjson");
    let mut writers = [0, 1].map(|_| FileDeadLetters::open(&path).unwrap());
    std::thread::scope(|scope| {
        for (first, writer) in writers.iter_mut().enumerate() {
            scope.spawn(move || {
                for number in 0..50 {
                    let number = 2 * number + first as u64;
                    writer.write(&[letter(number, Record::new("ann", "1 book"))]).unwrap();
                }
            });
        }
    });
    let text = std::fs::read_to_string(&path).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    let mut found: Vec<_> = lines.map(|line| line["position"].as_u64().unwrap()).collect();
    found.sort_unstable();
    assert!(found.into_iter().eq(0..100));
}

#[test]
fn dead_letters_in_a_journal_are_records_with_headers() {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::open(folder.path().join("dead.journal")).unwrap();
    JournalDeadLetters::new(journal.clone()).write(&[letter(5, Record::new("ann", "x"))]).unwrap();
    let records = journal.read(Position::ZERO, 10).unwrap();
    assert_eq!((records.len(), records[0].record.payload()), (1, &b"x"[..]));
    let header = |name: &str| {
        let found = records[0].record.headers.iter().find(|(header, _)| header == name);
        String::from_utf8(found.unwrap().1.clone().unwrap()).unwrap()
    };
    assert_eq!(header("keylane-stream"), "orders");
    assert_eq!(header("keylane-position"), "5");
    assert_eq!(header("keylane-attempts"), "4");
    assert_eq!(header("keylane-failure"), "it said \"no\"\n");
}

#[test]
fn the_failure_that_an_acknowledgement_gives_is_shown() {
    let stream = MemoryStream::new("t", 1);
    stream.push(0, keyed("a", 0));
    stream.exhaust();
    let builder = builder(&stream, OnExhausted::StopKey);
    let consumer = builder.start_with_acks(|_: Attempt, ack: Ack| ack.failed("not today"));
    let ended = consumer.unwrap().wait();
    assert_eq!(ended.stopped[0].record.failure.as_deref(), Some("not today"));
}
