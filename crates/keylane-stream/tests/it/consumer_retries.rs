//! Retries on demand of the operator: a record that waits for its next attempt, and one that has stopped its
//! key, are tried again at once, and the order stays.

use std::collections::HashSet;
use std::num::NonZeroU16;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::consuming::{Door, PATIENCE, Watched, eventually, partition_status, quick, status};
use keylane_stream::consumer::{
    Attempt, AttemptFailure, BatchBy, BatchConfig, Consumer, ConsumerBuilder, RecordClaims, Target,
    UnkeyedPolicy, WaitReason,
};
use keylane_stream::memory::MemoryStream;
use keylane_stream::retry::{Backoff, Jitter, OnExhausted, RetryLimit, RetryPolicy, RetryRule};
use keylane_stream::{Partition, Position, Record};

const HOUR: Duration = Duration::from_secs(3600);

/// Attempts that have started, and records that fail.
#[derive(Clone, Default)]
struct Stage {
    stream: Option<MemoryStream>,
    started: Arc<Watched<Vec<(String, u32)>>>,
    bad: Arc<Mutex<HashSet<String>>>,
}

impl Stage {
    fn new(bad: &[&str]) -> Self {
        let bad = Arc::new(Mutex::new(bad.iter().map(ToString::to_string).collect()));
        Stage { stream: Some(MemoryStream::new("t", 1)), bad, ..Stage::default() }
    }

    fn stream(&self) -> &MemoryStream {
        self.stream.as_ref().unwrap()
    }

    fn builder(&self, rule: RetryRule) -> ConsumerBuilder {
        let policy = RetryPolicy::new(rule).unwrap();
        let builder = Consumer::builder(self.stream().source()).threads(3);
        builder.commit(Duration::ZERO, 1).retry(policy, |_| ())
    }

    fn handler(&self) -> impl Fn(&Attempt) -> Result<(), AttemptFailure> + Send + Sync + 'static {
        let Stage { started, bad, .. } = self.clone();
        move |attempt: &Attempt| {
            let name = String::from_utf8(attempt.payload().to_vec()).unwrap();
            started.change(|started| started.push((name.clone(), attempt.number())));
            if bad.lock().unwrap().contains(&name) { Err("bad".into()) } else { Ok(()) }
        }
    }

    /// Adds records whose keys are the first letters of their names.
    fn push(&self, names: &[&str]) {
        let records = names.iter().map(|name| Record::new(&name[..1], *name));
        self.stream().push_all(0, records);
    }

    fn heal(&self) {
        self.bad.lock().unwrap().clear();
    }

    fn started(&self, key: char) -> Vec<String> {
        let started = self.started.get().into_iter();
        let of_key = started.filter(|(name, _)| name.starts_with(key));
        of_key.map(|(name, number)| format!("{name} {number}")).collect()
    }
}

fn key(key: &str) -> Target {
    Target::Key(key.into())
}

/// Returns a rule whose backoff no test waits for.
fn slow() -> RetryRule {
    let backoff = Backoff { first: HOUR, factor: 1, max: HOUR, jitter: Jitter::Equal };
    RetryRule { limit: RetryLimit::attempts(9), backoff, on_exhausted: OnExhausted::Stop }
}

fn retry(consumer: &Consumer, target: &Target) -> usize {
    consumer.handle().retry(target, PATIENCE).unwrap()
}

/// Returns the positions of the records that have stopped their keys.
fn stopped(consumer: &Consumer) -> Vec<u64> {
    let blocked = partition_status(consumer, 0).blocked;
    let stopped = blocked.into_iter().filter(|record| record.reason == WaitReason::Stopped);
    stopped.map(|record| record.position.get()).collect()
}

/// Returns the number of records that wait for their next attempt.
fn waiting(consumer: &Consumer) -> usize {
    let blocked = partition_status(consumer, 0).blocked;
    blocked.iter().filter(|record| matches!(record.reason, WaitReason::Retry { .. })).count()
}

#[test]
fn records_that_wait_for_their_next_attempt_are_tried_at_once() {
    let stage = Stage::new(&["a0", "b0", "c0"]);
    let consumer = stage.builder(slow()).start(stage.handler()).unwrap();
    stage.push(&["a0", "a1", "b0", "c0"]);
    eventually(|| waiting(&consumer) == 3);
    assert_eq!(retry(&consumer, &key("x")), 0);
    assert_eq!(retry(&consumer, &Target::Partition(Partition::new("t", 1))), 0);
    // It fails again, and waits again.
    assert_eq!(retry(&consumer, &key("a")), 1);
    stage.started.until(|started| started.contains(&("a0".to_owned(), 2)));
    eventually(|| waiting(&consumer) == 3);
    stage.heal();
    assert_eq!(retry(&consumer, &key("a")), 1);
    eventually(|| status(&consumer).counts.handled == 2);
    assert_eq!(stage.started('a'), ["a0 1", "a0 2", "a0 3", "a1 1"]);
    assert_eq!(stage.started('b'), ["b0 1"]);
    assert_eq!(retry(&consumer, &Target::Topic("t".to_owned())), 2);
    eventually(|| stage.stream().committed(0).watermark() == Position::new(4));
    consumer.stop(PATIENCE);
}

#[test]
fn a_record_whose_next_attempt_has_begun_is_running() {
    let (stage, door) = (Stage::new(&[]), Door::closed());
    let (handle, passes) = (stage.handler(), door.clone());
    let consumer = stage.builder(quick(2, OnExhausted::Stop));
    let consumer = consumer.start(move |attempt: &Attempt| {
        handle(attempt)?;
        if attempt.number() == 1 {
            return Err(AttemptFailure::from("not yet"));
        }
        passes.pass();
        Ok(())
    });
    let consumer = consumer.unwrap();
    stage.push(&["a0"]);
    stage.started.until(|started| started.contains(&("a0".to_owned(), 2)));
    let oldest = partition_status(&consumer, 0).oldest.unwrap();
    assert_eq!((oldest.reason, oldest.failed_attempts), (WaitReason::Running, 1));
    door.open();
    eventually(|| status(&consumer).counts.handled == 1);
    consumer.stop(PATIENCE);
}

#[test]
fn a_stopped_key_goes_on_in_order_when_its_record_succeeds() {
    let stage = Stage::new(&["a0"]);
    let consumer = stage.builder(quick(2, OnExhausted::StopKey)).start(stage.handler()).unwrap();
    stage.push(&["a0", "a1", "b0"]);
    eventually(|| stopped(&consumer) == [0] && status(&consumer).counts.handled == 1);
    // These come when the key has stopped already.
    stage.push(&["a2", "b1", "a3"]);
    eventually(|| status(&consumer).counts.handled == 2);
    eventually(|| partition_status(&consumer, 0).in_flight == 4);
    // One more attempt, and it stops its key again.
    assert_eq!(retry(&consumer, &key("a")), 1);
    stage.started.until(|started| started.contains(&("a0".to_owned(), 3)));
    eventually(|| stopped(&consumer) == [0]);
    assert_eq!(partition_status(&consumer, 0).blocked_count, 4);
    stage.push(&["a4"]);
    eventually(|| partition_status(&consumer, 0).blocked_count == 5);
    stage.heal();
    assert_eq!(retry(&consumer, &key("a")), 1);
    eventually(|| stage.stream().committed(0).watermark() == Position::new(7));
    let order = ["a0 1", "a0 2", "a0 3", "a0 4", "a1 1", "a2 1", "a3 1", "a4 1"];
    assert_eq!(stage.started('a'), order);
    // No record waits any more, so the consumer ends with the stream.
    stage.stream().exhaust();
    eventually(|| consumer.is_finished());
    let ended = consumer.wait();
    assert_eq!((ended.counts.handled, ended.stopped.len()), (7, 0));
}

#[test]
fn a_paused_and_stopped_record_is_tried_after_its_resume() {
    let stage = Stage::new(&["a0"]);
    let consumer = stage.builder(quick(1, OnExhausted::StopKey)).start(stage.handler()).unwrap();
    stage.push(&["a0", "a1"]);
    eventually(|| stopped(&consumer) == [0]);
    stage.heal();
    assert_eq!(consumer.handle().pause(&key("a"), PATIENCE), Ok(true));
    assert_eq!(retry(&consumer, &key("a")), 1);
    let is_paused = || partition_status(&consumer, 0).blocked;
    eventually(|| is_paused().first().is_some_and(|it| it.reason == WaitReason::Paused));
    assert_eq!(stage.started('a'), ["a0 1"]);
    assert_eq!(consumer.handle().resume(&key("a"), PATIENCE), Ok(true));
    eventually(|| status(&consumer).counts.handled == 2);
    assert_eq!(stage.started('a'), ["a0 1", "a0 2", "a1 1"]);
    consumer.stop(PATIENCE);
}

#[test]
fn a_limited_key_that_has_stopped_goes_on_with_all_of_its_records() {
    let stage = Stage::new(&["a0", "a1"]);
    let builder = stage.builder(quick(1, OnExhausted::StopKey));
    let consumer = builder.limit_per_key(NonZeroU16::new(3).unwrap()).start(stage.handler());
    let consumer = consumer.unwrap();
    stage.push(&["a0"]);
    eventually(|| stopped(&consumer) == [0]);
    stage.push(&["a1", "a2", "a3", "a4", "b0"]);
    eventually(|| status(&consumer).counts.handled == 1);
    eventually(|| partition_status(&consumer, 0).blocked_count == 5);
    assert_eq!(stage.started('a'), ["a0 1"]);
    stage.heal();
    assert_eq!(retry(&consumer, &key("a")), 1);
    eventually(|| status(&consumer).counts.handled == 6);
    let mut started = stage.started('a');
    started.sort_unstable();
    assert_eq!(started, ["a0 1", "a0 2", "a1 1", "a2 1", "a3 1", "a4 1"]);
    consumer.stop(PATIENCE);
}

#[test]
fn records_of_a_limited_key_that_got_their_turns_behind_a_stopped_one_go_on() {
    let (stage, door) = (Stage::new(&["a0"]), Door::closed());
    let builder = stage.builder(quick(1, OnExhausted::StopKey));
    let (handle, passes, started) = (stage.handler(), door.clone(), stage.started.clone());
    let consumer = builder.limit_per_key(NonZeroU16::new(2).unwrap());
    let consumer = consumer.start(move |attempt: &Attempt| {
        let result = handle(attempt);
        match attempt.position().get() {
            // It fails when the other one runs.
            0 => started.until(|started| started.contains(&("a1".to_owned(), 1))),
            1 => passes.pass(),
            _ => {}
        }
        result
    });
    let consumer = consumer.unwrap();
    stage.push(&["a0", "a1", "a2", "a3"]);
    eventually(|| stopped(&consumer) == [0]);
    // The turn of this one goes to the next, which must not begin.
    door.open();
    eventually(|| status(&consumer).counts.handled == 1);
    stage.heal();
    assert_eq!(retry(&consumer, &key("a")), 1);
    eventually(|| stage.stream().committed(0).watermark() == Position::new(4));
    let started = stage.started('a');
    assert_eq!(started.len(), 5, "{started:?}");
    assert!(started.contains(&"a0 2".to_owned()), "{started:?}");
    consumer.stop(PATIENCE);
}

#[test]
fn records_behind_a_stopped_one_with_several_keys_go_on() {
    for limit in [None, NonZeroU16::new(2)] {
        let stage = Stage::new(&["ab0"]);
        let builder = stage.builder(quick(1, OnExhausted::StopKey)).by_keys(|record| {
            let letters = record.payload().iter().filter(|letter| letter.is_ascii_lowercase());
            RecordClaims {
                exclusive: letters.map(|letter| vec![*letter]).collect(),
                is_barrier: record.payload().starts_with(b"!"),
                ..RecordClaims::default()
            }
        });
        let builder = limit.into_iter().fold(builder, ConsumerBuilder::limit_per_key);
        let consumer = builder.start(stage.handler()).unwrap();
        stage.push(&["ab0"]);
        eventually(|| stopped(&consumer) == [0]);
        stage.push(&["b1", "c2", "bc3", "c4", "!5", "d6"]);
        eventually(|| status(&consumer).counts.handled == 1);
        eventually(|| partition_status(&consumer, 0).blocked_count == 6);
        stage.heal();
        assert_eq!(retry(&consumer, &key("b")), 1);
        eventually(|| stage.stream().committed(0).watermark() == Position::new(7));
        let order: Vec<_> = stage.started.get().into_iter().map(|(name, _)| name).collect();
        assert_eq!(order[..2], ["ab0", "c2"]);
        assert_eq!(order[6..], ["!5", "d6"], "{order:?}");
        if limit.is_none() {
            assert_eq!(order, ["ab0", "c2", "ab0", "b1", "bc3", "c4", "!5", "d6"]);
        }
        consumer.stop(PATIENCE);
    }
}

#[test]
fn a_batch_that_has_stopped_its_key_goes_on_in_order() {
    let stage = Stage::new(&["a0"]);
    let by = BatchBy::Key;
    let batch = BatchConfig { max_records: 2, linger: Duration::ZERO, split: true, by };
    let handle = stage.handler();
    let consumer = stage.builder(quick(1, OnExhausted::StopKey));
    let consumer =
        consumer.start_batches(batch, move |batch: &[Attempt]| batch.iter().try_for_each(&handle));
    let consumer = consumer.unwrap();
    stage.push(&["a0", "a1", "a2"]);
    eventually(|| stopped(&consumer) == [0]);
    stage.push(&["a3", "b0"]);
    eventually(|| status(&consumer).counts.handled == 1);
    stage.heal();
    assert_eq!(retry(&consumer, &Target::Topic("t".to_owned())), 1);
    eventually(|| stage.stream().committed(0).watermark() == Position::new(5));
    let mut names: Vec<_> = stage.started('a').iter().map(|name| name[..2].to_owned()).collect();
    names.dedup();
    assert_eq!(names, ["a0", "a1", "a2", "a3"]);
    consumer.stop(PATIENCE);
}

#[test]
fn a_record_that_was_rejected_without_an_attempt_is_not_tried() {
    let stage = Stage::new(&[]);
    let builder = stage.builder(quick(1, OnExhausted::StopKey)).unkeyed(UnkeyedPolicy::Reject);
    let consumer = builder.start(stage.handler()).unwrap();
    stage.stream().push(0, Record::without_key("n0"));
    eventually(|| stopped(&consumer) == [0]);
    assert_eq!(retry(&consumer, &Target::Topic("t".to_owned())), 0);
    stage.push(&["a0"]);
    eventually(|| status(&consumer).counts.handled == 1);
    assert_eq!(stopped(&consumer), [0]);
    assert_eq!(stage.started('n'), [""; 0]);
    consumer.stop(PATIENCE);
}
