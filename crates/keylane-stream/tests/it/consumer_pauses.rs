//! Pauses of the operator: a paused key, partition or topic starts no attempt, everything else goes on,
//! the order stays, and nothing is lost or delayed by it: neither a rebalance nor a shutdown.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::time::Duration;

use crate::consuming::{Door, PATIENCE, Watched, eventually, partition_status, quick, status};
use keylane_stream::consumer::{
    Attempt, AttemptFailure, BatchBy, BatchConfig, Consumer, ConsumerBuilder, ConsumerEvent,
    ControlError, PauseReason, RecordClaims, StopReason, Target, WaitReason,
};
use keylane_stream::memory::MemoryStream;
use keylane_stream::retry::{OnExhausted, RetryPolicy};
use keylane_stream::source::Source;
use keylane_stream::{Partition, Position, Record};

fn key(key: &str) -> Target {
    Target::Key(key.into())
}

fn partition(number: u32) -> Target {
    Target::Partition(Partition::new("t", number))
}

/// Returns a record whose key is the first letter of its name.
fn named(name: &str) -> Record {
    Record::new(&name[..1], name)
}

fn push(stream: &MemoryStream, partition: u32, names: &[&str]) {
    stream.push_all(partition, names.iter().map(|name| named(name)));
}

fn name(attempt: &Attempt) -> String {
    String::from_utf8(attempt.payload().to_vec()).unwrap()
}

fn builder(source: impl Source + 'static) -> ConsumerBuilder {
    let policy = RetryPolicy::new(quick(9, OnExhausted::Stop)).unwrap();
    Consumer::builder(source).threads(3).commit(Duration::ZERO, 1).retry(policy, |_| ())
}

/// Names of the records in the order in which their attempts started.
type Started = Arc<Watched<Vec<String>>>;

fn notes(
    started: &Started,
) -> impl Fn(&Attempt) -> Result<(), AttemptFailure> + Send + Sync + 'static {
    let started = started.clone();
    move |attempt: &Attempt| {
        started.change(|started| started.push(name(attempt)));
        Ok(())
    }
}

/// Returns the started records with this key.
fn of(started: &Started, key: char) -> Vec<String> {
    started.get().into_iter().filter(|name| name.starts_with(key)).collect()
}

fn pause(consumer: &Consumer, target: &Target) {
    assert_eq!(consumer.handle().pause(target, PATIENCE), Ok(true));
}

fn resume(consumer: &Consumer, target: &Target) {
    assert_eq!(consumer.handle().resume(target, PATIENCE), Ok(true));
}

/// Returns the positions of the records that have their turns and wait for the operator.
fn parked(consumer: &Consumer, number: u32) -> Vec<u64> {
    let blocked = partition_status(consumer, number).blocked;
    let parked = blocked.into_iter().filter(|record| record.reason == WaitReason::Paused);
    parked.map(|record| record.position.get()).collect()
}

#[test]
fn a_paused_key_waits_in_order_and_the_others_go_on() {
    let (stream, started) = (MemoryStream::new("t", 1), Started::default());
    let consumer = builder(stream.source()).start(notes(&started)).unwrap();
    partition_status(&consumer, 0);
    pause(&consumer, &key("a"));
    assert_eq!(consumer.handle().pause(&key("a"), PATIENCE), Ok(false));
    push(&stream, 0, &["a0", "b0", "a1", "c0", "a2", "b1"]);
    eventually(|| status(&consumer).counts.handled == 3 && parked(&consumer, 0) == [0]);
    assert_eq!(of(&started, 'a'), [""; 0]);
    assert_eq!(of(&started, 'b'), ["b0", "b1"]);
    // The progress of the others is committed.
    eventually(|| stream.committed(0).end() == Position::new(6));
    assert_eq!(stream.committed(0).watermark(), Position::ZERO);
    let paused = status(&consumer);
    assert_eq!(paused.paused.len(), 1);
    assert_eq!(paused.paused[0].target, key("a"));
    assert_eq!((paused.partitions[0].in_flight, paused.partitions[0].paused_records), (3, 3));
    assert_eq!(paused.partitions[0].without_progress, Duration::ZERO);
    resume(&consumer, &key("a"));
    assert_eq!(consumer.handle().resume(&key("a"), PATIENCE), Ok(false));
    eventually(|| stream.committed(0).watermark() == Position::new(6));
    assert_eq!(of(&started, 'a'), ["a0", "a1", "a2"]);
    assert_eq!(status(&consumer).paused, []);
    assert_eq!(consumer.stop(PATIENCE).counts.handled, 6);
}

#[test]
fn a_paused_partition_admits_nothing_and_the_others_go_on() {
    let (stream, started) = (MemoryStream::new("t", 2), Started::default());
    let consumer = builder(stream.source()).start(notes(&started)).unwrap();
    partition_status(&consumer, 1);
    pause(&consumer, &partition(0));
    push(&stream, 0, &["a0", "b0"]);
    push(&stream, 1, &["a1", "b1"]);
    eventually(|| status(&consumer).counts.handled == 2);
    let first = partition_status(&consumer, 0);
    assert_eq!((first.paused_by, first.in_flight), (Some(PauseReason::Operator), 0));
    // Its source is paused too, so nothing is fetched for it.
    assert_eq!(first.buffered, 0);
    assert_eq!(first.without_progress, Duration::ZERO);
    assert_eq!(partition_status(&consumer, 1).paused_by, None);
    // Its topic is paused too, so the partition goes on after both are resumed.
    pause(&consumer, &Target::Topic("t".to_owned()));
    push(&stream, 1, &["a2"]);
    eventually(|| partition_status(&consumer, 1).paused_by == Some(PauseReason::Operator));
    resume(&consumer, &partition(0));
    assert_eq!(partition_status(&consumer, 0).paused_by, Some(PauseReason::Operator));
    assert_eq!(of(&started, 'a'), ["a1"]);
    resume(&consumer, &Target::Topic("t".to_owned()));
    eventually(|| status(&consumer).counts.handled == 5);
    consumer.stop(PATIENCE);
}

#[test]
fn records_that_were_admitted_before_the_pause_do_not_start() {
    let (stream, started, door) = (MemoryStream::new("t", 1), Started::default(), Door::closed());
    let (sees, passes) = (notes(&started), door.clone());
    let consumer = builder(stream.source()).threads(1).start(move |attempt: &Attempt| {
        sees(attempt)?;
        passes.pass();
        Ok::<_, AttemptFailure>(())
    });
    let consumer = consumer.unwrap();
    push(&stream, 0, &["a0", "a1", "b0", "c0"]);
    started.until(|started| started.len() == 1);
    eventually(|| partition_status(&consumer, 0).in_flight == 4);
    let running = started.get();
    pause(&consumer, &partition(0));
    // What runs goes on.
    door.open();
    eventually(|| {
        let first = partition_status(&consumer, 0);
        first.running == 0 && status(&consumer).counts.handled == 1
    });
    eventually(|| parked(&consumer, 0).len() >= 2);
    assert_eq!(started.get(), running);
    resume(&consumer, &partition(0));
    eventually(|| status(&consumer).counts.handled == 4);
    assert_eq!(of(&started, 'a'), ["a0", "a1"]);
    consumer.stop(PATIENCE);
}

#[test]
fn a_running_attempt_goes_on_and_its_retry_waits_for_the_resume() {
    let (stream, started, door) = (MemoryStream::new("t", 1), Started::default(), Door::closed());
    let (sees, passes) = (notes(&started), door.clone());
    let consumer = builder(stream.source()).start(move |attempt: &Attempt| {
        sees(attempt)?;
        passes.pass();
        if attempt.number() == 1 { Err(AttemptFailure::from("no")) } else { Ok(()) }
    });
    let consumer = consumer.unwrap();
    push(&stream, 0, &["a0"]);
    started.until(|started| started.len() == 1);
    pause(&consumer, &key("a"));
    assert_eq!(partition_status(&consumer, 0).running, 1);
    door.open();
    eventually(|| parked(&consumer, 0) == [0]);
    assert_eq!(partition_status(&consumer, 0).blocked[0].failed_attempts, 1);
    assert_eq!(started.get().len(), 1);
    resume(&consumer, &key("a"));
    eventually(|| status(&consumer).counts.handled == 1);
    assert_eq!(started.get(), ["a0", "a0"]);
    consumer.stop(PATIENCE);
}

#[test]
fn a_pause_outlasts_a_rebalance_and_does_not_delay_it() {
    let (stream, started) = (MemoryStream::new("t", 1), Started::default());
    let consumer = builder(stream.source()).shutdown_timeout(PATIENCE);
    let consumer = consumer.start(notes(&started)).unwrap();
    partition_status(&consumer, 0);
    pause(&consumer, &key("a"));
    push(&stream, 0, &["a0", "a1", "b0"]);
    eventually(|| status(&consumer).counts.handled == 1 && parked(&consumer, 0) == [0]);
    // The other member has not paused it, and gets all that was left, at once.
    let (others, other_source) = (Started::default(), stream.source());
    let member = other_source.member();
    let other = builder(other_source).start(notes(&others)).unwrap();
    stream.move_to(0, member);
    eventually(|| stream.committed(0).watermark() == Position::new(3));
    assert_eq!(others.get(), ["a0", "a1"]);
    stream.move_to(0, 0);
    eventually(|| stream.owner(0) == Some(0));
    push(&stream, 0, &["a2", "c0"]);
    eventually(|| status(&consumer).counts.handled == 2);
    eventually(|| parked(&consumer, 0) == [3]);
    assert_eq!(started.get(), ["b0", "c0"]);
    other.stop(PATIENCE);
    resume(&consumer, &key("a"));
    eventually(|| stream.committed(0).watermark() == Position::new(5));
    consumer.stop(PATIENCE);
}

#[test]
fn a_stop_ends_at_once_and_leaves_paused_records_for_the_next_start() {
    let (stream, started) = (MemoryStream::new("t", 2), Started::default());
    let consumer = builder(stream.source()).start(notes(&started)).unwrap();
    partition_status(&consumer, 1);
    pause(&consumer, &key("a"));
    pause(&consumer, &partition(1));
    push(&stream, 0, &["a0", "b0", "a1"]);
    push(&stream, 1, &["c0"]);
    eventually(|| status(&consumer).counts.handled == 1 && parked(&consumer, 0) == [0]);
    let handle = consumer.handle();
    // It waits for no time at all: an hour would be too long for the test.
    let ended = consumer.stop(Duration::from_secs(3600));
    assert_eq!((ended.abandoned, ended.counts.handled), (0, 1));
    assert_eq!(handle.pause(&key("x"), PATIENCE), Err(ControlError::Ended));
    // The next one knows no pauses, and repeats nothing.
    stream.exhaust();
    let ended = builder(stream.source()).start(notes(&started)).unwrap().wait();
    assert_eq!(ended.counts.handled, 3);
    assert_eq!(of(&started, 'a'), ["a0", "a1"]);
    assert_eq!(of(&started, 'b'), ["b0"]);
}

/// Texts of the events of a consumer.
type Events = Arc<Watched<Vec<String>>>;

fn tells(events: &Events) -> impl Fn(&ConsumerEvent) + Send + 'static {
    let events = events.clone();
    move |event: &ConsumerEvent| events.change(|events| events.push(event.to_string()))
}

#[test]
fn a_consumer_does_not_end_before_its_paused_records_and_says_so() {
    let (stream, started) = (MemoryStream::new("t", 2), Started::default());
    let events = Events::default();
    let consumer = builder(stream.source()).on_event(tells(&events));
    let consumer = consumer.start(notes(&started)).unwrap();
    partition_status(&consumer, 1);
    pause(&consumer, &key("a"));
    push(&stream, 0, &["a0", "b0"]);
    push(&stream, 1, &["c0"]);
    eventually(|| status(&consumer).counts.handled == 2);
    stream.exhaust();
    let says = |events: &Vec<String>| {
        events.iter().filter(|event| event.contains("does not end before")).count()
    };
    events.until(|events| says(events) == 1);
    assert!(!consumer.is_finished());
    assert_eq!(of(&started, 'a'), [""; 0]);
    resume(&consumer, &key("a"));
    let ended = consumer.wait();
    assert!(matches!(ended.reason, StopReason::Exhausted), "{}", ended.reason);
    assert_eq!(ended.counts.handled, 3);
    let events = events.get();
    assert_eq!(says(&events), 1, "{events:?}");
    assert!(events.iter().any(|event| event.starts_with("key a is paused")), "{events:?}");
    assert!(events.iter().any(|event| event == "key a is resumed"), "{events:?}");
}

#[test]
fn a_consumer_does_not_say_that_it_waits_for_a_resume_while_a_record_runs() {
    let (stream, started, door) = (MemoryStream::new("t", 1), Started::default(), Door::closed());
    let (events, sees, passes) = (Events::default(), notes(&started), door.clone());
    let consumer = builder(stream.source()).on_event(tells(&events));
    let consumer = consumer.start(move |attempt: &Attempt| {
        sees(attempt)?;
        if name(attempt) == "b0" {
            passes.pass();
        }
        Ok::<_, AttemptFailure>(())
    });
    let consumer = consumer.unwrap();
    partition_status(&consumer, 0);
    pause(&consumer, &key("a"));
    push(&stream, 0, &["a0", "b0"]);
    started.until(|started| started.len() == 1);
    eventually(|| parked(&consumer, 0) == [0]);
    stream.exhaust();
    // It comes with the end of the partition, or after it.
    push(&stream, 0, &["c0"]);
    eventually(|| status(&consumer).counts.handled == 1);
    let says = |events: &Vec<String>| {
        events.iter().filter(|event| event.contains("does not end before")).count()
    };
    assert_eq!(says(&events.get()), 0, "a record runs");
    door.open();
    events.until(|events| says(events) == 1);
    resume(&consumer, &key("a"));
    assert_eq!(consumer.wait().counts.handled, 3);
}

#[test]
fn a_paused_partition_is_not_taken_for_one_that_is_at_its_end() {
    let (stream, started) = (MemoryStream::new("t", 2), Started::default());
    let events = Events::default();
    let consumer = builder(stream.source()).on_event(tells(&events));
    let consumer = consumer.start(notes(&started)).unwrap();
    partition_status(&consumer, 1);
    pause(&consumer, &partition(0));
    push(&stream, 0, &["a0"]);
    push(&stream, 1, &["b0"]);
    stream.exhaust();
    events.until(|events| events.iter().any(|event| event.contains("does not end before")));
    assert_eq!(started.get(), ["b0"]);
    assert!(!consumer.is_finished());
    resume(&consumer, &partition(0));
    let ended = consumer.wait();
    assert!(matches!(ended.reason, StopReason::Exhausted), "{}", ended.reason);
    assert_eq!(started.get(), ["b0", "a0"]);
}

#[test]
fn a_paused_key_fills_the_limits_of_its_partition_alone_and_that_is_no_stall() {
    let (stream, started) = (MemoryStream::new("t", 2), Started::default());
    let consumer = builder(stream.source()).max_in_flight(3, usize::MAX);
    let consumer = consumer.start(notes(&started)).unwrap();
    partition_status(&consumer, 1);
    pause(&consumer, &key("a"));
    push(&stream, 0, &["a0", "a1", "a2", "b0", "a3"]);
    eventually(|| partition_status(&consumer, 0).paused_by == Some(PauseReason::Records));
    push(&stream, 1, &["b1", "b2", "b3", "b4"]);
    eventually(|| status(&consumer).counts.handled == 4);
    let first = partition_status(&consumer, 0);
    assert_eq!((first.in_flight, first.buffered, first.paused_records), (3, 2, 3));
    assert_eq!(first.without_progress, Duration::ZERO);
    resume(&consumer, &key("a"));
    eventually(|| status(&consumer).counts.handled == 9);
    assert_eq!(of(&started, 'a'), ["a0", "a1", "a2", "a3"]);
    consumer.stop(PATIENCE);
}

/// Returns the keys of a record: all letters of its name.
fn claims(record: &Record) -> RecordClaims {
    let mut claims = RecordClaims::default();
    for letter in record.payload().iter().copied() {
        match letter {
            b'!' => claims.is_barrier = true,
            letter if letter.is_ascii_uppercase() => {
                claims.shared.push(vec![letter.to_ascii_lowercase()]);
            }
            letter if letter.is_ascii_lowercase() => claims.exclusive.push(vec![letter]),
            _ => {}
        }
    }
    claims
}

#[test]
fn a_record_with_a_paused_key_holds_its_other_keys_and_no_further_ones() {
    let (stream, started) = (MemoryStream::new("t", 1), Started::default());
    let consumer = builder(stream.source()).by_keys(claims).start(notes(&started)).unwrap();
    partition_status(&consumer, 0);
    pause(&consumer, &key("a"));
    push(&stream, 0, &["ab0", "b1", "c2", "A3", "c4", "!5", "c6"]);
    eventually(|| status(&consumer).counts.handled == 2 && parked(&consumer, 0) == [0]);
    assert_eq!(started.get(), ["c2", "c4"]);
    resume(&consumer, &key("a"));
    eventually(|| status(&consumer).counts.handled == 7);
    let order = started.get();
    let at = |name: &str| order.iter().position(|started| started == name).unwrap();
    assert!(at("ab0") < at("b1") && at("ab0") < at("A3"), "{order:?}");
    assert_eq!(order[5..], ["!5", "c6"]);
    consumer.stop(PATIENCE);
}

#[test]
fn records_of_a_limited_key_wait_together() {
    let (stream, started) = (MemoryStream::new("t", 1), Started::default());
    let limit = NonZeroU16::new(2).unwrap();
    let consumer = builder(stream.source()).limit_per_key(limit).start(notes(&started)).unwrap();
    partition_status(&consumer, 0);
    pause(&consumer, &key("a"));
    push(&stream, 0, &["a0", "a1", "a2", "b0"]);
    eventually(|| status(&consumer).counts.handled == 1 && parked(&consumer, 0) == [0, 1]);
    resume(&consumer, &key("a"));
    eventually(|| status(&consumer).counts.handled == 4);
    consumer.stop(PATIENCE);
}

#[test]
fn the_record_at_its_turn_waits_and_the_latest_of_those_behind_it() {
    let (stream, started) = (MemoryStream::new("t", 1), Started::default());
    let consumer = builder(stream.source()).latest().start(notes(&started)).unwrap();
    partition_status(&consumer, 0);
    pause(&consumer, &key("a"));
    push(&stream, 0, &["a0"]);
    eventually(|| parked(&consumer, 0) == [0]);
    push(&stream, 0, &["a1", "a2", "a3"]);
    eventually(|| status(&consumer).counts.replaced == 2);
    resume(&consumer, &key("a"));
    eventually(|| stream.committed(0).watermark() == Position::new(4));
    assert_eq!(started.get(), ["a0", "a3"]);
    consumer.stop(PATIENCE);
}

#[test]
fn batches_have_no_record_of_a_paused_key() {
    for by in [BatchBy::Key, BatchBy::Mixed] {
        let (stream, started) = (MemoryStream::new("t", 1), Started::default());
        let batch = BatchConfig { max_records: 2, linger: Duration::ZERO, split: false, by };
        let sees = notes(&started);
        let consumer = builder(stream.source())
            .start_batches(batch, move |batch: &[Attempt]| batch.iter().try_for_each(&sees));
        let consumer = consumer.unwrap();
        partition_status(&consumer, 0);
        pause(&consumer, &key("a"));
        push(&stream, 0, &["a0", "b0", "a1", "a2", "b1"]);
        eventually(|| status(&consumer).counts.handled == 2 && parked(&consumer, 0) == [0]);
        assert_eq!(started.get(), ["b0", "b1"]);
        resume(&consumer, &key("a"));
        eventually(|| status(&consumer).counts.handled == 5);
        assert_eq!(of(&started, 'a'), ["a0", "a1", "a2"]);
        consumer.stop(PATIENCE);
    }
}

#[test]
fn a_record_of_another_order_belongs_to_its_own_key() {
    for is_ordered in [true, false] {
        let (stream, started) = (MemoryStream::new("t", 1), Started::default());
        let consumer = builder(stream.source());
        let consumer = if is_ordered { consumer.by_partition() } else { consumer.unordered() };
        let consumer = consumer.start(notes(&started)).unwrap();
        partition_status(&consumer, 0);
        pause(&consumer, &key("a"));
        push(&stream, 0, &["b0", "a0", "b1"]);
        // In the order of a partition the record holds all behind it.
        let handled = if is_ordered { 1 } else { 2 };
        eventually(|| status(&consumer).counts.handled == handled && parked(&consumer, 0) == [1]);
        resume(&consumer, &key("a"));
        eventually(|| status(&consumer).counts.handled == 3);
        if is_ordered {
            assert_eq!(started.get(), ["b0", "a0", "b1"]);
        }
        consumer.stop(PATIENCE);
    }
}

#[cfg(feature = "tokio")]
#[test]
fn a_future_that_waits_for_its_permit_does_not_start() {
    let (stream, started) = (MemoryStream::new("t", 1), Started::default());
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (open, door) = (Arc::new(tokio::sync::Semaphore::new(0)), started.clone());
    let gate = open.clone();
    let consumer = builder(stream.source()).start_async(
        runtime.handle().clone(),
        1,
        move |attempt: Attempt| {
            let (gate, door) = (gate.clone(), door.clone());
            async move {
                door.change(|started| started.push(name(&attempt)));
                gate.acquire().await.map_err(AttemptFailure::from)?.forget();
                Ok::<_, AttemptFailure>(())
            }
        },
    );
    let consumer = consumer.unwrap();
    push(&stream, 0, &["b0"]);
    started.until(|started| started.len() == 1);
    push(&stream, 0, &["a0"]);
    eventually(|| partition_status(&consumer, 0).in_flight == 2);
    pause(&consumer, &key("a"));
    open.add_permits(1);
    eventually(|| status(&consumer).counts.handled == 1 && parked(&consumer, 0) == [1]);
    assert_eq!(started.get(), ["b0"]);
    resume(&consumer, &key("a"));
    open.add_permits(1);
    eventually(|| status(&consumer).counts.handled == 2);
    consumer.stop(PATIENCE);
}
