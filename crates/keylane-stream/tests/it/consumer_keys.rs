//! Orders beyond one key: several keys per record, shared keys and barriers over all partitions; limits, and
//! records that count only as the latest of their key.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use crate::consuming::{Dice, Door, Watched, eventually, partition_status, quick, status};
use keylane_stream::consumer::{
    Attempt, AttemptFailure, BatchBy, BatchConfig, Consumer, ConsumerBuilder, RecordClaims,
    StartError, StopReason, WaitReason,
};
use keylane_stream::memory::MemoryStream;
use keylane_stream::retry::{OnExhausted, RetryPolicy};
use keylane_stream::source::Source;
use keylane_stream::{Position, Record};

/// Keys of a payload: `a b +c` has `a` and `b` for itself and shares `c`, and `!` is a barrier.
fn claims(record: &Record) -> RecordClaims {
    let text = std::str::from_utf8(record.payload()).unwrap();
    let mut claims = RecordClaims::default();
    for word in text.split(' ') {
        match (word, word.strip_prefix('+')) {
            ("!", _) => claims.is_barrier = true,
            (_, Some(shared)) => claims.shared.push(shared.into()),
            (own, None) => claims.exclusive.push(own.into()),
        }
    }
    claims
}

fn conflict(one: &RecordClaims, other: &RecordClaims) -> bool {
    let meet = |own: &[Vec<u8>], other: &[Vec<u8>]| own.iter().any(|key| other.contains(key));
    let (a, b) = (one, other);
    a.is_barrier
        || b.is_barrier
        || meet(&a.exclusive, &b.exclusive)
        || meet(&a.exclusive, &b.shared)
        || meet(&b.exclusive, &a.shared)
}

fn text(attempt: &Attempt) -> String {
    String::from_utf8(attempt.payload().to_vec()).unwrap()
}

fn builder(source: impl Source + 'static, on_exhausted: OnExhausted) -> ConsumerBuilder {
    let policy = RetryPolicy::new(quick(3, on_exhausted)).unwrap();
    Consumer::builder(source).threads(6).retry(policy, |_| ()).by_keys(claims)
}

/// What runs and what is done, which checks the order.
#[derive(Default)]
struct Runs {
    running: Vec<(u32, Position, RecordClaims)>,
    done: Vec<(u32, Position, RecordClaims)>,
    most: usize,
    broken: Vec<String>,
}

impl Runs {
    fn begin(&mut self, attempt: &Attempt) {
        let (partition, position) = (attempt.partition().number(), attempt.position());
        let own = claims(attempt.record());
        for (other_partition, other, theirs) in &self.running {
            if conflict(&own, theirs) {
                let what = format!("{partition}/{position} meets {other_partition}/{other}");
                self.broken.push(what);
            }
        }
        for (other_partition, other, theirs) in &self.done {
            if *other_partition == partition && *other > position && conflict(&own, theirs) {
                self.broken.push(format!("{partition}/{position} begins after {other} is done"));
            }
        }
        self.running.push((partition, position, own));
        self.most = self.most.max(self.running.len());
    }

    fn end(&mut self, attempt: &Attempt, is_done: bool) {
        let (partition, position) = (attempt.partition().number(), attempt.position());
        let is_it = |run: &(u32, Position, RecordClaims)| (run.0, run.1) == (partition, position);
        let at = self.running.iter().position(is_it).unwrap();
        let run = self.running.swap_remove(at);
        if is_done {
            self.done.push(run);
        }
    }
}

#[test]
fn records_that_conflict_are_in_order_over_all_partitions() {
    for seed in 0..4 {
        let stream = MemoryStream::new("t", 3);
        let mut dice = Dice(seed);
        for _ in 0..600 {
            let key = |dice: &mut Dice| format!("k{}", dice.roll(20));
            let payload = match dice.roll(20) {
                0 => "!".to_owned(),
                1..5 => format!("{} {}", key(&mut dice), key(&mut dice)),
                5..10 => format!("{} +{}", key(&mut dice), key(&mut dice)),
                10..13 => format!("+{} +{}", key(&mut dice), key(&mut dice)),
                _ => key(&mut dice),
            };
            stream.push(dice.roll(3) as u32, Record::without_key(payload));
        }
        stream.exhaust();
        let runs = Watched::new(Runs::default());
        let sees = runs.clone();
        let handle = move |attempt: &Attempt| {
            sees.change(|runs| runs.begin(attempt));
            std::thread::yield_now();
            let seed = attempt.position().get() * 3 + u64::from(attempt.number());
            let is_done = Dice(seed).roll(4) > 0 || attempt.number() == 3;
            sees.change(|runs| runs.end(attempt, is_done));
            if is_done { Ok(()) } else { Err(AttemptFailure::from("not yet")) }
        };
        let ended = builder(stream.source(), OnExhausted::Stop).start(handle).unwrap().wait();
        assert!(matches!(ended.reason, StopReason::Exhausted), "{}", ended.reason);
        assert_eq!(ended.counts.handled, 600);
        runs.change(|runs| {
            assert_eq!(runs.broken, [""; 0]);
            assert!(runs.most > 1, "nothing ran in parallel");
        });
    }
}

/// The barrier waits for a record whose next attempt comes later. That attempt must not wait for it.
#[test]
fn a_record_that_is_tried_again_comes_before_a_barrier_that_waits_for_it() {
    let stream = MemoryStream::new("t", 1);
    stream.push_all(0, ["a", "!", "b"].map(Record::without_key));
    stream.exhaust();
    let seen = Watched::new(Vec::new());
    let sees = seen.clone();
    let handle = move |attempt: &Attempt| {
        sees.change(|seen| seen.push((text(attempt), attempt.number())));
        if attempt.number() < 3 { Err(AttemptFailure::from("not yet")) } else { Ok(()) }
    };
    let ended = builder(stream.source(), OnExhausted::Stop).start(handle).unwrap().wait();
    assert_eq!(ended.counts.handled, 3, "{}", ended.reason);
    let expected = ["a", "!", "b"].iter().flat_map(|it| (1..4).map(|n| ((*it).to_owned(), n)));
    assert_eq!(seen.get(), expected.collect::<Vec<_>>());
}

#[test]
fn a_stopped_record_holds_all_that_comes_after_it_and_nothing_else() {
    let stream = MemoryStream::new("t", 2);
    stream.push_all(0, ["bad a b", "b c", "+c", "d"].map(Record::without_key));
    let handle = |attempt: &Attempt| match text(attempt).starts_with("bad") {
        true => Err(AttemptFailure::from("bad")),
        false => Ok(()),
    };
    let consumer = builder(stream.source(), OnExhausted::StopKey).start(handle).unwrap();
    // `b c` waits for `a b`, and `+c` for `b c`.
    eventually(|| status(&consumer).partitions.iter().any(|it| it.blocked_count == 3));
    stream.push_all(1, ["c", "e", "!", "f"].map(Record::without_key));
    stream.exhaust();
    let ended = consumer.wait();
    assert!(matches!(ended.reason, StopReason::Exhausted), "{}", ended.reason);
    // `d` and `e`: the barrier waits for all before it, and `f` for the barrier.
    assert_eq!((ended.counts.handled, ended.stopped.len()), (2, 1));
    assert_eq!(stream.committed(0).watermark(), Position::ZERO);
    assert!(stream.committed(0).is_done(Position::new(3)));
    assert!(stream.committed(1).is_done(Position::new(1)));
    assert!(!stream.committed(1).is_done(Position::new(3)));
}

#[test]
fn a_record_stays_behind_a_stopped_one_of_another_partition_when_a_further_one_stops() {
    let stream = MemoryStream::new("t", 2);
    let handle = |attempt: &Attempt| match text(attempt).starts_with("bad") {
        true => Err(AttemptFailure::from("bad")),
        false => Ok(()),
    };
    let consumer = builder(stream.source(), OnExhausted::StopKey).start(handle).unwrap();
    let blocked = |partition| partition_status(&consumer, partition).blocked_count;
    let stopped = || {
        let records = partition_status(&consumer, 1).blocked;
        records.iter().filter(|record| record.reason == WaitReason::Stopped).count()
    };
    stream.push(1, Record::without_key("bad a"));
    eventually(|| stopped() == 1);
    // It comes first by its partition, and second by its time.
    stream.push(0, Record::without_key("a b"));
    eventually(|| blocked(0) == 1);
    stream.push(1, Record::without_key("bad2 c"));
    eventually(|| stopped() == 2);
    let waits = partition_status(&consumer, 0).blocked.into_iter().map(|record| record.reason);
    assert_eq!(waits.collect::<Vec<_>>(), [WaitReason::BehindStopped(Position::ZERO)]);
    stream.push(0, Record::without_key("b"));
    eventually(|| blocked(0) == 2);
    stream.exhaust();
    let ended = consumer.wait();
    assert!(matches!(ended.reason, StopReason::Exhausted), "{}", ended.reason);
    assert_eq!((ended.counts.handled, ended.stopped.len()), (0, 2));
}

#[test]
fn a_second_member_ends_both_before_it_handles_anything() {
    let stream = MemoryStream::new("t", 2);
    stream.push(0, Record::without_key("a first"));
    let (door, seen) = (Door::closed(), Watched::new(Vec::new()));
    let handle = |name: &'static str| {
        let (passes, sees) = (door.clone(), seen.clone());
        move |attempt: &Attempt| {
            sees.change(|seen| seen.push(format!("{name} begins {}", text(attempt))));
            passes.pass();
            sees.change(|seen| seen.push(format!("{name} ends {}", text(attempt))));
            Ok::<_, AttemptFailure>(())
        }
    };
    let first = builder(stream.source(), OnExhausted::Stop).start(handle("one")).unwrap();
    seen.until(|seen| seen.len() == 1);
    // Waits for the record that runs, and must not begin any more.
    stream.push(1, Record::without_key("a second"));
    let other = stream.source();
    stream.move_to(1, other.member());
    let second = builder(other, OnExhausted::Stop).start(handle("two")).unwrap();
    eventually(|| status(&first).stopping);
    // The partition does not move before the running record has ended.
    assert_eq!(stream.owner(1), Some(0));
    door.open();
    let ended = first.wait();
    let StopReason::NotAlone(why) = &ended.reason else { panic!("{}", ended.reason) };
    assert_eq!(why, "the group gives t[1] to another member");
    assert_eq!(ended.counts.handled, 1);
    // The second one is alone now, unless it has come while the first one left.
    stream.exhaust();
    let ended = second.wait();
    let is_alone = match ended.reason {
        StopReason::Exhausted => true,
        StopReason::NotAlone(_) => false,
        other => panic!("{other}"),
    };
    let all =
        ["one begins a first", "one ends a first", "two begins a second", "two ends a second"];
    assert_eq!(seen.get(), all[..if is_alone { 4 } else { 2 }]);
    assert_eq!(stream.committed(0).watermark(), Position::new(1));
    assert_eq!(stream.committed(1).watermark(), Position::new(u64::from(is_alone)));
}

#[test]
fn a_member_that_begins_with_some_of_the_partitions_handles_nothing() {
    let stream = MemoryStream::new("t", 2);
    stream.push(0, Record::without_key("a"));
    let (one, other) = (stream.source(), stream.source());
    stream.move_to(1, other.member());
    let handle = |_: &Attempt| -> Result<(), AttemptFailure> { unreachable!("it is not alone") };
    let ended = builder(one, OnExhausted::Stop).start(handle).unwrap().wait();
    let said = ended.reason.to_string();
    assert!(said.contains("member 1 of the group has t[1]; run one member of the group"), "{said}");
    assert_eq!(ended.counts.handled, 0);
}

#[test]
fn a_limit_lets_records_of_a_key_run_together() {
    let stream = MemoryStream::new("t", 1);
    stream.push_all(0, (0..40).map(|n| Record::new("k", format!("{n}"))));
    stream.exhaust();
    let running = Watched::new((0_usize, 0_usize));
    let runs = running.clone();
    let handle = move |_: &Attempt| {
        runs.change(|(running, most)| {
            *running += 1;
            *most = (*most).max(*running);
        });
        // The first ones wait until the limit is reached.
        runs.until(|(_, most)| *most == 3);
        runs.change(|(running, _)| *running -= 1);
        Ok::<_, AttemptFailure>(())
    };
    let limit = NonZeroU16::new(3).unwrap();
    let consumer = Consumer::builder(stream.source()).threads(8).limit_per_key(limit);
    let ended = consumer.start(handle).unwrap().wait();
    assert_eq!((ended.counts.handled, running.get()), (40, (0, 3)));
}

#[test]
fn a_stopped_key_of_a_limit_begins_no_other_record_and_ends_those_that_run() {
    let stream = MemoryStream::new("t", 1);
    let handled: Arc<Watched<Vec<String>>> = Watched::new(Vec::new());
    let (begins, door) = (handled.clone(), Door::closed());
    let passes = door.clone();
    let handle = move |attempt: &Attempt| {
        begins.change(|begun| begun.push(text(attempt)));
        match text(attempt).as_str() {
            "bad" => Err(AttemptFailure::from("bad")),
            "slow" => {
                passes.pass();
                Ok(())
            }
            _ => Ok(()),
        }
    };
    let policy = RetryPolicy::new(quick(1, OnExhausted::StopKey)).unwrap();
    let limit = NonZeroU16::new(2).unwrap();
    let consumer = Consumer::builder(stream.source()).threads(4).limit_per_key(limit);
    let consumer = consumer.retry(policy, |_| ()).start(handle).unwrap();
    stream.push_all(0, [Record::new("k", "slow"), Record::new("k", "bad")]);
    eventually(|| status(&consumer).counts.failed_attempts == 1);
    stream.push_all(0, [Record::new("k", "later"), Record::new("l", "other")]);
    stream.exhaust();
    handled.until(|begun| begun.contains(&"other".to_owned()));
    door.open();
    let ended = consumer.wait();
    assert!(matches!(ended.reason, StopReason::Exhausted), "{}", ended.reason);
    assert_eq!((ended.counts.handled, ended.stopped.len()), (2, 1));
    assert!(!handled.get().contains(&"later".to_owned()));
    assert_eq!(stream.committed(0).watermark(), Position::new(1));
}

#[test]
fn a_replaced_record_is_done_and_the_latest_is_handled() {
    let stream = MemoryStream::new("t", 1);
    let (begin, begun) = mpsc::channel();
    let door = Door::closed();
    let passes = door.clone();
    let handle = move |attempt: &Attempt| {
        begin.send(text(attempt)).unwrap();
        passes.pass();
        // It runs again without being replaced, and the others wait behind it.
        if attempt.number() == 1 { Err(AttemptFailure::from("again")) } else { Ok(()) }
    };
    let policy = RetryPolicy::new(quick(3, OnExhausted::Stop)).unwrap();
    let consumer = Consumer::builder(stream.source()).threads(2).latest().retry(policy, |_| ());
    let consumer = consumer.start(handle).unwrap();
    stream.push(0, Record::new("k", "1"));
    assert_eq!(begun.recv().unwrap(), "1");
    stream.push_all(0, (2..6).map(|n| Record::new("k", n.to_string())));
    stream.push_all(0, (0..2).map(|_| Record::without_key("no key")));
    eventually(|| status(&consumer).counts.replaced == 3);
    // The replaced ones are committed while the latest waits.
    eventually(|| stream.committed(0).end() == Position::new(4));
    assert_eq!(stream.committed(0).watermark(), Position::ZERO);
    stream.exhaust();
    door.open();
    let ended = consumer.wait();
    assert_eq!((ended.counts.handled, ended.counts.replaced), (4, 3));
    let mut seen: Vec<_> = begun.iter().collect();
    seen.sort();
    assert_eq!(seen, ["1", "5", "5", "no key", "no key", "no key", "no key"]);
    assert_eq!(stream.committed(0).watermark(), Position::new(7));
}

#[test]
fn orders_that_contradict_each_other_are_refused() {
    let refused = |builder: ConsumerBuilder| {
        let started = builder.start(|_: &Attempt| Ok::<_, AttemptFailure>(()));
        assert!(matches!(started, Err(StartError::Lanes(_))), "{started:?}");
    };
    let one = || Consumer::builder(MemoryStream::new("t", 1).source());
    let limit = NonZeroU16::new(2).unwrap();
    refused(one().latest().limit_per_key(limit));
    refused(one().unordered().latest());
    refused(one().by_partition().limit_per_key(limit));
    refused(one().by_keys(claims).latest());
    let batch =
        BatchConfig { max_records: 2, linger: Duration::ZERO, split: false, by: BatchBy::Key };
    let handle = |_: &[Attempt]| Ok::<_, AttemptFailure>(());
    let started = one().by_keys(claims).start_batches(batch, handle);
    assert!(matches!(started, Err(StartError::Lanes(_))));
}
