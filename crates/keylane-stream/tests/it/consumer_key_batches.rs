//! Batches of a key: consecutive records in order, limited by size and time; the handling of a
//! failed batch; and the release of its partition.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::consuming::{Dice, Door, Watched, eventually, keyed, number, partition_status, quick};
use keylane_stream::consumer::{
    Attempt, AttemptFailure, BatchBy, BatchConfig, BatchFailure, Consumer, ConsumerBuilder,
    StopReason, UnkeyedPolicy, WaitReason,
};
use keylane_stream::dead_letters::{DeadLetter, DeadLetterError, DeadLetters};
use keylane_stream::memory::MemoryStream;
use keylane_stream::retry::{OnExhausted, RetryPolicy};
use keylane_stream::{Partition, Record};

const HOUR: Duration = Duration::from_secs(3600);
const MOMENT: Duration = Duration::from_micros(200);

fn batch(max_records: usize, linger: Duration) -> BatchConfig {
    BatchConfig { max_records, linger, split: false, by: BatchBy::Key }
}

fn builder(stream: &MemoryStream, attempts: u32, on_exhausted: OnExhausted) -> ConsumerBuilder {
    let policy = RetryPolicy::new(quick(attempts, on_exhausted)).unwrap();
    Consumer::builder(stream.source()).threads(3).retry(policy, |_| ())
}

fn stream(records: impl IntoIterator<Item = (u64, u64)>) -> MemoryStream {
    let stream = MemoryStream::new("t", 1);
    stream.push_all(0, records.into_iter().map(|(key, number)| keyed(key, number)));
    stream.exhaust();
    stream
}

fn numbers(attempts: &[Attempt]) -> Vec<u64> {
    attempts.iter().map(number).collect()
}

/// Batches in the order of their starts.
type Seen = Arc<Watched<Vec<Vec<u64>>>>;

fn note(seen: &Seen, attempts: &[Attempt]) {
    seen.change(|seen| seen.push(numbers(attempts)));
}

#[test]
fn a_batch_has_consecutive_records_of_one_key_and_waits_until_it_is_full() {
    let stream = stream((0..100).map(|number| (number % 4, number)));
    let seen = Seen::default();
    let notes = seen.clone();
    let consumer =
        builder(&stream, 1, OnExhausted::Stop).start_batches(batch(5, HOUR), move |them| {
            note(&notes, them);
            Ok::<_, AttemptFailure>(())
        });
    assert_eq!(consumer.unwrap().wait().counts.handled, 100);
    let mut seen = seen.get();
    seen.sort_unstable();
    let mut expected: Vec<Vec<u64>> = (0..20)
        .map(|batch| (0..5).map(|i| batch / 5 + (batch % 5 * 5 + i) * 4).collect())
        .collect();
    expected.sort_unstable();
    assert_eq!(seen, expected);
}

#[test]
fn a_part_of_a_batch_does_not_wait_for_ever() {
    let stream = stream((0..7).map(|number| (number % 2, number)));
    let consumer = builder(&stream, 1, OnExhausted::Stop)
        .start_batches(batch(1_000, Duration::from_millis(2)), |_: &[Attempt]| {
            Ok::<_, AttemptFailure>(())
        });
    assert_eq!(consumer.unwrap().wait().counts.handled, 7);
}

#[test]
fn records_during_a_batch_form_the_next_one() {
    let stream = MemoryStream::new("t", 1);
    stream.push_all(0, (0..2).map(|number| keyed("k", number)));
    let (seen, door) = (Seen::default(), Door::closed());
    let (notes, waits) = (seen.clone(), door.clone());
    let consumer =
        builder(&stream, 1, OnExhausted::Stop).start_batches(batch(2, HOUR), move |them| {
            note(&notes, them);
            waits.pass();
            Ok::<_, AttemptFailure>(())
        });
    let consumer = consumer.unwrap();
    seen.until(|seen| seen.len() == 1);
    stream.push_all(0, (2..6).map(|number| keyed("k", number)));
    eventually(|| partition_status(&consumer, 0).in_flight == 6);
    assert_eq!(seen.get().len(), 1, "one of a key at a time");
    door.open();
    seen.until(|seen| seen.len() == 3);
    assert_eq!(seen.get(), [[0, 1], [2, 3], [4, 5]]);
    consumer.stop(Duration::from_secs(60));
}

#[test]
fn a_record_that_is_in_order_with_none_is_alone_and_does_not_wait() {
    let stream = MemoryStream::new("t", 1);
    stream.push_all(0, (0..20).map(|number: u64| Record { key: None, ..keyed("", number) }));
    stream.exhaust();
    let builder = builder(&stream, 1, OnExhausted::Stop).unkeyed(UnkeyedPolicy::Unordered);
    let consumer = builder.start_batches(batch(10, HOUR), |them: &[Attempt]| match them.len() {
        1 => Ok(()),
        _ => Err(AttemptFailure::from("they are in no order")),
    });
    assert_eq!(consumer.unwrap().wait().counts.handled, 20);
}

#[test]
fn by_partition_the_batches_are_of_a_partition() {
    let stream = MemoryStream::new("t", 2);
    for partition in 0..2 {
        stream.push_all(partition, (0..30).map(|number| keyed(number, number)));
    }
    stream.exhaust();
    let next = Arc::new(Mutex::new(HashMap::<Partition, u64>::new()));
    let builder = builder(&stream, 1, OnExhausted::Stop).by_partition();
    let consumer = builder.start_batches(batch(10, HOUR), move |them: &[Attempt]| {
        assert!(them.iter().all(|one| one.partition() == them[0].partition()));
        let mut next = next.lock().unwrap();
        let next = next.entry(them[0].partition().clone()).or_default();
        assert_eq!(numbers(them), (*next..*next + 10).collect::<Vec<_>>());
        *next += 10;
        Ok::<_, AttemptFailure>(())
    });
    assert_eq!(consumer.unwrap().wait().counts.handled, 60);
}

/// Expectation of each key: a batch is the next few of its incomplete records.
#[derive(Default)]
struct Model {
    left: HashMap<Vec<u8>, VecDeque<u64>>,
    running: HashMap<Vec<u8>, bool>,
    broken: Vec<String>,
}

impl Model {
    fn of(records: &[(u64, u64)]) -> Arc<Mutex<Model>> {
        let mut model = Model::default();
        for (key, number) in records {
            let key = key.to_string().into_bytes();
            model.left.entry(key).or_default().push_back(*number);
        }
        Arc::new(Mutex::new(model))
    }

    fn begin(&mut self, them: &[Attempt], most: usize) {
        let key = them[0].key().unwrap_or_default().to_vec();
        let left = self.left.entry(key.clone()).or_default();
        let expected: Vec<_> = left.iter().copied().take(them.len()).collect();
        if numbers(them) != expected || them.len() > most {
            self.broken.push(format!("{:?} came instead of {expected:?}", numbers(them)));
        }
        if self.running.insert(key, true) == Some(true) {
            self.broken.push(format!("{:?} came while another ran", numbers(them)));
        }
    }

    fn end(&mut self, them: &[Attempt], done: usize) {
        let key = them[0].key().unwrap_or_default().to_vec();
        self.left.entry(key.clone()).or_default().drain(..done);
        self.running.insert(key, false);
    }

    fn check(&self) {
        assert_eq!(self.broken, Vec::<String>::new());
        assert!(self.left.values().all(VecDeque::is_empty), "{:?}", self.left);
    }
}

/// Random keys, lengths, lingers and failures of every form; no record is skipped.
fn random(seed: u64, split: bool) {
    let mut dice = Dice(seed);
    let keys = 1 + dice.roll(40);
    let records: Vec<_> = (0..1_500).map(|number| (dice.roll_skewed(keys), number)).collect();
    let most = 1 + dice.roll(12) as usize;
    let linger = Duration::from_micros(dice.roll(400));
    let model = Model::of(&records);
    let stream = stream(records);
    let models = model.clone();
    let chance = Mutex::new(dice);
    let builder = builder(&stream, 1_000, OnExhausted::Stop).max_in_flight(100, 1 << 20);
    let batch = BatchConfig { split, ..batch(most, linger) };
    let consumer = builder.start_batches(batch, move |them: &[Attempt]| {
        models.lock().unwrap().begin(them, most);
        let (roll, index) = {
            let mut chance = chance.lock().unwrap();
            (chance.roll(8), chance.roll(them.len() as u64 + 2) as usize)
        };
        let (done, result) = match roll {
            0 => (0, Err(AttemptFailure::from("all of them"))),
            1 => {
                models.lock().unwrap().end(them, 0);
                panic!("a panic is a failure, too");
            }
            // An index beyond the end fails the whole batch.
            2 | 3 if index < them.len() => {
                (index, Err(BatchFailure::new(index, "this one").into()))
            }
            2 | 3 => (0, Err(BatchFailure::new(index, "nobody").into())),
            _ => (them.len(), Ok(())),
        };
        models.lock().unwrap().end(them, done);
        result
    });
    let ended = consumer.unwrap().wait();
    assert!(matches!(ended.reason, StopReason::Exhausted), "{}", ended.reason);
    assert_eq!(ended.counts.handled, 1_500);
    model.lock().unwrap().check();
}

#[test]
fn order_holds_through_failures_of_every_form() {
    (0..6).for_each(|seed| random(seed, false));
}

#[test]
fn order_holds_through_failures_if_batches_are_split() {
    (6..12).for_each(|seed| random(seed, true));
}

/// Handles ten records of a key of which number 4 is bad, with three attempts for each.
fn with_a_bad_one(split: bool, names: bool) -> (Vec<Vec<u64>>, u64, u64) {
    let stream = stream((0..10).map(|number| (1, number)));
    let seen = Seen::default();
    let notes = seen.clone();
    let batch = BatchConfig { split, ..batch(10, HOUR) };
    let consumer =
        builder(&stream, 3, OnExhausted::Skip).start_batches(batch, move |them: &[Attempt]| {
            note(&notes, them);
            match them.iter().position(|attempt| number(attempt) == 4) {
                Some(index) if names => Err(BatchFailure::new(index, "number 4 is bad").into()),
                Some(_) => Err(AttemptFailure::from("one of them is bad")),
                None => Ok(()),
            }
        });
    let counts = consumer.unwrap().wait().counts;
    (seen.get(), counts.handled, counts.skipped)
}

#[test]
fn a_batch_that_fails_is_tried_again_as_it_was_and_all_of_it_goes() {
    let (seen, handled, skipped) = with_a_bad_one(false, false);
    assert_eq!((handled, skipped), (0, 10));
    assert_eq!(seen, vec![(0..10).collect::<Vec<_>>(); 3]);
}

#[test]
fn the_one_that_is_named_fails_alone_and_those_behind_it_wait() {
    let (seen, handled, skipped) = with_a_bad_one(false, true);
    assert_eq!((handled, skipped), (9, 1));
    let (all, rest): (Vec<_>, Vec<_>) = ((0..10).collect(), (4..10).collect());
    assert_eq!(seen, [all, rest.clone(), rest, (5..10).collect()]);
}

#[test]
fn a_batch_that_is_split_goes_on_up_to_the_bad_one() {
    let (seen, handled, skipped) = with_a_bad_one(true, false);
    assert_eq!((handled, skipped), (9, 1));
    let first: Vec<_> = (0..10).collect();
    assert_eq!(seen[0], first);
    assert_eq!(seen[1..6], [[0], [1], [2], [3], [4]]);
    // Handled again with the records behind it, and alone when that fails; once it is skipped, they
    // continue.
    assert_eq!(
        seen[6..],
        [vec![4, 5, 6, 7, 8, 9], vec![4], vec![4, 5, 6, 7, 8, 9], vec![4], vec![5, 6, 7, 8, 9]]
    );
}

/// Dead-letter sink that lets one letter through at a time.
struct Gated {
    door: Door,
    seen: Arc<Watched<Vec<u64>>>,
}

impl DeadLetters for Gated {
    fn write(&mut self, letters: &[DeadLetter]) -> Result<(), DeadLetterError> {
        self.door.pass();
        let number = |letter: &DeadLetter| {
            std::str::from_utf8(letter.record.payload()).unwrap().parse::<u64>().unwrap()
        };
        self.seen.change(|seen| seen.extend(letters.iter().map(number)));
        Ok(())
    }
}

#[test]
fn dead_letters_of_a_batch_are_written_in_order_and_the_key_waits_for_them() {
    let stream = stream((0..8).map(|number| (1, number)));
    let (door, letters, seen) = (Door::closed(), Watched::new(Vec::new()), Seen::default());
    let (notes, waits) = (seen.clone(), door.clone());
    let gated = Gated { door: door.clone(), seen: letters.clone() };
    let consumer = builder(&stream, 1, OnExhausted::DeadLetter)
        .dead_letters(gated)
        .start_batches(batch(4, HOUR), move |them: &[Attempt]| {
            note(&notes, them);
            match number(&them[0]) {
                0 => Err(AttemptFailure::from("they are bad")),
                _ => Ok(()),
            }
        })
        .unwrap();
    seen.until(|seen| seen.len() == 1);
    eventually(|| partition_status(&consumer, 0).blocked_count > 0);
    assert_eq!(
        partition_status(&consumer, 0).blocked_count,
        1,
        "the others stand behind the first letter"
    );
    waits.open();
    let counts = consumer.wait().counts;
    assert_eq!((counts.handled, counts.dead_lettered), (4, 4));
    assert_eq!(letters.get(), [0, 1, 2, 3]);
    assert_eq!(seen.get(), [[0, 1, 2, 3], [4, 5, 6, 7]]);
}

#[test]
fn a_key_that_stops_in_the_middle_of_a_batch_leaves_the_others_going() {
    let stream = stream((0..40).map(|number| (number % 2, number)));
    let seen = Seen::default();
    let notes = seen.clone();
    let consumer = builder(&stream, 2, OnExhausted::StopKey)
        .start_batches(batch(5, MOMENT), move |them: &[Attempt]| {
            note(&notes, them);
            match them.iter().position(|attempt| number(attempt) == 13) {
                Some(index) => Err(BatchFailure::new(index, "number 13 is bad")),
                None => Ok(()),
            }
        })
        .unwrap();
    let ended = consumer.wait();
    // All of the even keys; of the odd keys, the records before the bad one.
    assert_eq!(ended.counts.handled, 20 + 6);
    assert_eq!(ended.stopped.len(), 1);
    assert_eq!(ended.stopped[0].record.reason, WaitReason::Stopped);
    assert_eq!(stream.committed(0).watermark().get(), 13);
    let after = |batch: &Vec<u64>| batch[0] % 2 == 1 && batch[0] > 13;
    assert!(!seen.get().iter().any(after), "{:?}", seen.get());
}

#[test]
fn records_that_wait_for_a_batch_are_released_with_their_partition() {
    let stream = MemoryStream::new("t", 1);
    stream.push_all(0, (0..3).map(|number| keyed("k", number)));
    let first = builder(&stream, 1, OnExhausted::Stop)
        .start_batches(batch(10, HOUR), |_: &[Attempt]| Ok::<_, AttemptFailure>(()))
        .unwrap();
    eventually(|| partition_status(&first, 0).in_flight == 3);
    let ended = first.stop(HOUR);
    assert_eq!((ended.counts.handled, ended.abandoned), (0, 0));
    stream.push_all(0, (3..10).map(|number| keyed("k", number)));
    stream.exhaust();
    let second = builder(&stream, 1, OnExhausted::Stop)
        .start_batches(batch(10, HOUR), |_: &[Attempt]| Ok::<_, AttemptFailure>(()))
        .unwrap();
    assert_eq!(second.wait().counts.handled, 10);
}

#[test]
fn a_batch_that_runs_when_its_partition_is_wanted_is_awaited_and_then_another_member_goes_on() {
    let records: Vec<_> = (0..600).map(|number| (number % 7, number)).collect();
    let model = Model::of(&records);
    let stream = MemoryStream::new("t", 1);
    stream.push_all(0, records.iter().map(|(key, number)| keyed(key, *number)));
    let member = |model: &Arc<Mutex<Model>>| {
        let model = model.clone();
        builder(&stream, 50, OnExhausted::Stop)
            .max_in_flight(60, 1 << 20)
            .start_batches(batch(6, MOMENT), move |them: &[Attempt]| {
                model.lock().unwrap().begin(them, 6);
                let sum: u64 = them.iter().map(|it| number(it) + u64::from(it.number())).sum();
                std::thread::sleep(Duration::from_micros(sum % 500));
                let (done, result) = match sum % 5 {
                    0 => (them.len() / 2, Err(BatchFailure::new(them.len() / 2, "this one"))),
                    _ => (them.len(), Ok(())),
                };
                model.lock().unwrap().end(them, done);
                result
            })
            .unwrap()
    };
    let members = [member(&model), member(&model)];
    let mut to = 0;
    while stream.committed(0).watermark().get() < 600 {
        to = 1 - to;
        stream.move_to(0, to);
        eventually(|| stream.owner(0) == Some(to));
        let before = stream.committed(0).watermark();
        let is_further = || {
            let held = members[to].status().map_or(vec![], |status| status.partitions);
            held.iter().any(|held| held.watermark > before) || before.get() == 600
        };
        eventually(is_further);
    }
    let ended = members.map(|member| member.stop(HOUR).counts);
    // Members that release in order repeat nothing, and nothing is late.
    assert_eq!(ended[0].handled + ended[1].handled, 600);
    assert_eq!(ended[0].fenced + ended[1].fenced, 0);
    model.lock().unwrap().check();
}

#[test]
fn the_handler_is_gone_when_the_consumer_has_ended() {
    let stream = stream((0..50).map(|number| (number % 5, number)));
    let captured = Arc::new(());
    let watched = Arc::downgrade(&captured);
    let consumer = builder(&stream, 1, OnExhausted::Stop).start_batches(
        batch(3, MOMENT),
        move |_: &[Attempt]| {
            let _ = &captured;
            Ok::<_, AttemptFailure>(())
        },
    );
    consumer.unwrap().wait();
    assert!(watched.upgrade().is_none(), "a handle still exists");
}
