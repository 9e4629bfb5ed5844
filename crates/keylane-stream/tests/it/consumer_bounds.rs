//! G3, G4, G5, G6, G12 and G13: a commit is true and fits; a stuck key and a slow partition delay
//! no other; memory is bounded; and the status shows all of it.

use std::sync::Arc;
use std::time::Duration;

use crate::consuming::{
    Dice, Door, PATIENCE, Watched, eventually, keyed, number, partition_status, quick, status,
};
use keylane_stream::consumer::{
    Attempt, AttemptFailure, Consumer, ConsumerBuilder, PauseReason, WaitReason,
};
use keylane_stream::memory::MemoryStream;
use keylane_stream::retry::{OnExhausted, RetryPolicy};
use keylane_stream::source::CommitError;
use keylane_stream::tracker::OffsetMapLimit;
use keylane_stream::{Position, Record};

fn builder(stream: &MemoryStream) -> ConsumerBuilder {
    Consumer::builder(stream.source()).threads(4)
}

fn stuck_at(
    door: &Door,
) -> impl Fn(&Attempt) -> Result<(), AttemptFailure> + Send + Sync + 'static {
    let door = door.clone();
    move |attempt: &Attempt| {
        if attempt.key() == Some(b"stuck") {
            door.pass();
        }
        Ok(())
    }
}

#[test]
fn a_stuck_key_holds_up_no_other() {
    let stream = MemoryStream::new("t", 1);
    stream.push_all(0, [keyed("stuck", 0), keyed("stuck", 1)]);
    stream.push_all(0, (2..2_000).map(|number| keyed(number % 100, number)));
    let door = Door::closed();
    let consumer = builder(&stream).commit(Duration::ZERO, 1).start(stuck_at(&door)).unwrap();
    eventually(|| {
        let progress = stream.committed(0);
        let stuck = (progress.watermark(), progress.incomplete());
        progress.end() == Position::new(2_000) && stuck == (Position::ZERO, &[Position::new(1)])
    });
    let status = status(&consumer);
    let oldest = status.partitions[0].oldest.as_ref().unwrap();
    assert_eq!((oldest.position, oldest.key.as_deref()), (Position::ZERO, Some(&b"stuck"[..])));
    assert_eq!(status.partitions[0].end, Some(Position::new(2_000)));
    door.open();
    eventually(|| stream.committed(0).watermark() == Position::new(2_000));
    consumer.stop(PATIENCE);
}

#[test]
fn too_many_behind_a_stuck_key_hold_up_their_partition_alone() {
    let stream = MemoryStream::new("t", 2);
    stream.push_all(0, (0..50).map(|number| keyed("stuck", number)));
    let door = Door::closed();
    let consumer = builder(&stream).max_in_flight(20, usize::MAX);
    let consumer = consumer.start(stuck_at(&door)).unwrap();
    let first = || partition_status(&consumer, 0);
    eventually(|| first().paused_by == Some(PauseReason::Records));
    assert_eq!((first().in_flight, first().buffered), (20, 30));
    stream.push_all(1, (0..500).map(|number| keyed(number, number)));
    eventually(|| status(&consumer).counts.handled == 500);
    // A partition over its limit is paused, so nothing more is fetched.
    stream.push_all(0, (50..90).map(|number| keyed("stuck", number)));
    stream.push(1, keyed("another", 500));
    eventually(|| status(&consumer).counts.handled == 501);
    assert_eq!((first().in_flight, first().buffered), (20, 30));
    door.open();
    eventually(|| status(&consumer).counts.handled == 591);
    assert_eq!(first().paused_by, None);
    consumer.stop(PATIENCE);
}

#[test]
fn a_partition_that_is_full_again_from_its_buffer_stays_paused() {
    let stream = MemoryStream::new("t", 2);
    // The limit lets half of the stuck ones in; the others are buffered, and take the free places.
    stream.push_all(0, (0..10).map(|number| keyed(number, number)));
    stream.push_all(0, (10..30).map(|number| keyed("stuck", number)));
    let door = Door::closed();
    let consumer = builder(&stream).max_in_flight(20, usize::MAX);
    let consumer = consumer.start(stuck_at(&door)).unwrap();
    let first = || partition_status(&consumer, 0);
    eventually(|| (first().in_flight, first().buffered) == (20, 0));
    assert_eq!(status(&consumer).counts.handled, 10);
    stream.push_all(0, (30..35).map(|number| keyed("stuck", number)));
    stream.push(1, keyed("another", 0));
    eventually(|| status(&consumer).counts.handled == 11);
    assert_eq!((first().in_flight, first().buffered), (20, 0));
    door.open();
    eventually(|| status(&consumer).counts.handled == 36);
    consumer.stop(PATIENCE);
}

#[test]
fn bytes_are_bounded_and_one_record_always_goes() {
    let stream = MemoryStream::new("t", 1);
    let large = |number: u64| Record {
        payload: Some(vec![b'x'; 100_000].into()),
        ..keyed("stuck", number)
    };
    stream.push_all(0, (0..10).map(large));
    let door = Door::closed();
    let consumer = builder(&stream).max_in_flight(1_000, 250_000).start(stuck_at(&door)).unwrap();
    let first = || partition_status(&consumer, 0);
    eventually(|| first().paused_by == Some(PauseReason::Bytes));
    assert_eq!(first().in_flight, 2);
    assert!(first().bytes <= 250_000);
    door.open();
    eventually(|| status(&consumer).counts.handled == 10);
    assert_eq!(first().bytes, 0);
    consumer.stop(PATIENCE);

    let stream = MemoryStream::new("t", 1);
    stream.push_all(0, (0..3).map(large));
    stream.exhaust();
    let consumer = builder(&stream).max_in_flight(1_000, 1);
    let ended = consumer.start(|_: &Attempt| Ok::<_, AttemptFailure>(())).unwrap().wait();
    assert_eq!(ended.counts.handled, 3);
}

#[test]
fn a_map_that_could_outgrow_its_limit_holds_up_its_partition() {
    let stream = MemoryStream::new("t", 1);
    stream.set_limit(OffsetMapLimit::characters(OffsetMapLimit::MIN_CHARACTERS).unwrap());
    stream.push(0, keyed("stuck", 0));
    stream.push_all(0, (1..5_000).map(|number| keyed(number, number)));
    let door = Door::closed();
    let consumer = builder(&stream).commit(Duration::ZERO, 1).start(stuck_at(&door)).unwrap();
    let first = || partition_status(&consumer, 0);
    // The map with a single incomplete record always fits, whatever number is complete above it.
    eventually(|| status(&consumer).counts.handled == 4_999);
    eventually(|| stream.committed(0).end() == Position::new(5_000));
    assert!(stream.committed(0).encode(b"t").len() <= OffsetMapLimit::MIN_CHARACTERS);
    door.open();
    eventually(|| first().watermark == Position::new(5_000));
    consumer.stop(PATIENCE);

    // Maps with many incomplete records exceed the limit.
    let stream = MemoryStream::new("t", 1);
    stream.set_limit(OffsetMapLimit::characters(OffsetMapLimit::MIN_CHARACTERS).unwrap());
    let mut dice = Dice(1);
    stream.push_all(
        0,
        (0..5_000).map(|number| match dice.roll(3) {
            0 => keyed("stuck", number),
            _ => keyed(number, number),
        }),
    );
    let door = Door::closed();
    let consumer = builder(&stream).commit(Duration::ZERO, 1).start(stuck_at(&door)).unwrap();
    let first = || partition_status(&consumer, 0);
    eventually(|| first().paused_by == Some(PauseReason::Map));
    assert!(stream.committed(0).encode(b"t").len() <= OffsetMapLimit::MIN_CHARACTERS);
    door.open();
    eventually(|| status(&consumer).counts.handled == 5_000);
    consumer.stop(PATIENCE);
}

#[test]
fn a_destination_with_less_room_than_it_said_gets_a_shorter_map() {
    let stream = MemoryStream::new("t", 1);
    stream.push_all(
        0,
        (0..2_000_u64).map(|number| match number % 3 {
            0 => keyed("stuck", number),
            _ => keyed(number, number),
        }),
    );
    let door = Door::closed();
    let consumer = builder(&stream).commit(Duration::ZERO, 1).start(stuck_at(&door)).unwrap();
    let length = || stream.committed(0).encode(b"t").len();
    eventually(|| stream.committed(0).end() == Position::new(2_000));
    eventually(|| status(&consumer).counts.handled == 1_333);
    assert!(length() > 4 * OffsetMapLimit::MIN_CHARACTERS, "{} characters", length());
    stream.refuse_commits(Some(CommitError::TooLong));
    stream.push(0, keyed("another", 2_000));
    eventually(|| status(&consumer).counts.failed_commits >= 8);
    let before = status(&consumer).counts.commits;
    stream.refuse_commits(None);
    eventually(|| status(&consumer).counts.commits > before);
    assert!(length() <= OffsetMapLimit::MIN_CHARACTERS, "{} characters", length());
    door.open();
    eventually(|| stream.committed(0).watermark() == Position::new(2_001));
    consumer.stop(PATIENCE);
}

/// A commit never covers an incomplete record, whatever fails; and all records are complete in the
/// end.
#[test]
fn committed_progress_is_always_true() {
    for seed in 0..4 {
        let stream = MemoryStream::new("t", 1);
        let mut dice = Dice(seed);
        stream.push_all(0, (0..2_000).map(|number| keyed(dice.roll_skewed(60), number)));
        stream.exhaust();
        let done = Watched::new(std::collections::HashSet::new());
        let says = done.clone();
        let policy = RetryPolicy::new(quick(50, OnExhausted::Stop)).unwrap();
        let consumer = builder(&stream).retry(policy, |_| ()).commit(Duration::ZERO, 1);
        let consumer = consumer.start(move |attempt: &Attempt| {
            if Dice(number(attempt) + 7 * u64::from(attempt.number())).roll(5) == 0 {
                return Err(std::io::Error::other("not today"));
            }
            says.change(|done| done.insert(attempt.position()));
            Ok(())
        });
        let consumer = consumer.unwrap();
        while !consumer.is_finished() {
            let progress = stream.committed(0);
            done.change(|done| {
                let all = (0..2_000).map(Position::new);
                let lies: Vec<_> =
                    all.filter(|at| progress.is_done(*at) && !done.contains(at)).collect();
                assert_eq!(lies, [], "committed, and not done");
            });
            if dice.roll(3) == 0 {
                let refusal = (dice.roll(2) == 0).then(|| CommitError::Later("no".to_owned()));
                stream.refuse_commits(refusal);
            }
        }
        stream.refuse_commits(None);
        assert_eq!(consumer.wait().counts.handled, 2_000);
        assert_eq!(done.change(|done| done.len()), 2_000);
    }
}

/// The backlog of a stopped key has more than half of the room: the other keys use the rest.
#[test]
fn a_stopped_key_does_not_block_other_keys() {
    let stream = MemoryStream::new("t", 1);
    stream.push_all(0, (0..60).map(|number| keyed("bad", number)));
    stream.push_all(0, (60..2_000).map(|number| keyed(number % 50, number)));
    stream.exhaust();
    let policy = RetryPolicy::new(quick(1, OnExhausted::StopKey)).unwrap();
    let consumer = builder(&stream).max_in_flight(100, 1 << 20).retry(policy, |_| ());
    let consumer = consumer.start(|attempt: &Attempt| match attempt.key() {
        Some(b"bad") => Err(std::io::Error::other("bad")),
        _ => Ok(()),
    });
    assert_eq!(consumer.unwrap().wait().counts.handled, 1_940);
}

#[test]
fn a_partition_without_progress_is_seen() {
    let stream = MemoryStream::new("t", 2);
    let door = Door::closed();
    let consumer = builder(&stream).start(stuck_at(&door)).unwrap();
    eventually(|| status(&consumer).partitions.len() == 2);
    let idle = |partition| partition_status(&consumer, partition).without_progress;
    assert_eq!((idle(0), idle(1)), (Duration::ZERO, Duration::ZERO));
    stream.push(0, keyed("stuck", 0));
    eventually(|| idle(0) > Duration::from_millis(50));
    assert_eq!(idle(1), Duration::ZERO);
    door.open();
    eventually(|| idle(0) == Duration::ZERO);
    consumer.stop(PATIENCE);
}

#[test]
fn a_survey_says_what_each_record_waits_for() {
    let stream = MemoryStream::new("t", 1);
    stream.push_all(0, [keyed("bad", 0), keyed("bad", 1), keyed("good", 2)]);
    let policy = RetryPolicy::new(quick(2, OnExhausted::StopKey)).unwrap();
    let consumer = builder(&stream).retry(policy, |_| ());
    let consumer = consumer.start(|attempt: &Attempt| match attempt.key() {
        Some(b"bad") => Err(std::io::Error::other("no good")),
        _ => Ok(()),
    });
    let consumer = consumer.unwrap();
    eventually(|| partition_status(&consumer, 0).blocked_count == 2);
    // A record that arrives after its key has stopped.
    stream.push(0, keyed("bad", 3));
    // And one after the good record is complete.
    eventually(|| {
        let held = partition_status(&consumer, 0);
        held.blocked_count == 3 && held.in_flight == 3
    });
    let status = status(&consumer);
    let waits: Vec<_> = status.partitions[0].blocked.iter().map(|record| &record.reason).collect();
    let behind = WaitReason::BehindStopped(Position::ZERO);
    assert_eq!(waits, [&WaitReason::Stopped, &behind, &behind]);
    assert_eq!(status.partitions[0].blocked[0].failed_attempts, 2);
    // Nothing is in flight, so no progress is overdue.
    assert_eq!(status.partitions[0].without_progress, Duration::ZERO);
    consumer.stop(PATIENCE);
}

#[test]
fn notices_tell_what_happened() {
    let stream = MemoryStream::new("t", 1);
    stream.push(0, keyed("a", 0));
    stream.exhaust();
    let told = Watched::new(Vec::new());
    let tells: Arc<Watched<Vec<String>>> = told.clone();
    let policy = RetryPolicy::new(quick(2, OnExhausted::Skip)).unwrap();
    let consumer = builder(&stream).retry(policy, |_| ());
    let consumer = consumer.on_event(move |notice| {
        tells.change(|told| told.push(notice.to_string()));
        panic!("what listens cannot stop it");
    });
    let failing = |_: &Attempt| Err::<(), _>(std::io::Error::other("no good"));
    consumer.start(failing).unwrap().wait();
    assert_eq!(
        told.get(),
        [
            "t[0] assigned",
            "t[0] at 0, attempt 1: no good; retrying",
            "t[0] at 0, attempt 2: no good; skipped",
            "t[0] released",
        ]
    );
}
