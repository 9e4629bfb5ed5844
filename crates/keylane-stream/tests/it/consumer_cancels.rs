//! G9: a partition is released only after its cancelled attempts have ended, and the attempts of a
//! lost partition are ended at once.

use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use crate::consuming::{Door, PATIENCE, Watched, eventually, keyed, number, status};
use keylane_stream::consumer::{
    Attempt, AttemptFailure, BatchBy, BatchConfig, Cancellation, Consumer, ConsumerBuilder,
    StopReason,
};
use keylane_stream::memory::MemoryStream;
use keylane_stream::retry::{Backoff, OnExhausted, RetryLimit, RetryPolicy, RetryRule};

const HOUR: Duration = Duration::from_secs(3600);

/// A builder whose records have one attempt, and are skipped after it.
fn builder(stream: &MemoryStream) -> ConsumerBuilder {
    let rule = RetryRule {
        limit: RetryLimit::attempts(1),
        backoff: Backoff::default(),
        on_exhausted: OnExhausted::Skip,
    };
    let policy = RetryPolicy::new(rule).unwrap();
    Consumer::builder(stream.source()).threads(4).retry(policy, |_| ())
}

/// Stages of cancellations, in their order, and the door behind which the attempts end.
struct Stages {
    seen: Arc<Watched<Vec<Cancellation>>>,
    began: Arc<Watched<u32>>,
    door: Door,
}

impl Stages {
    fn new() -> Self {
        Stages { seen: Watched::new(Vec::new()), began: Watched::new(0), door: Door::closed() }
    }

    /// Returns a handler that ends with a failure, when it is cancelled with `ends_at` and the door
    /// is open.
    fn handler(
        &self,
        ends_at: Cancellation,
    ) -> impl Fn(&Attempt) -> Result<(), AttemptFailure> + Send + Sync + 'static {
        let (seen, began, door) = (self.seen.clone(), self.began.clone(), self.door.clone());
        move |attempt: &Attempt| {
            let (tell, told) = mpsc::channel();
            let seen = seen.clone();
            let hook = attempt.on_cancel(move |stage| {
                seen.change(|seen| seen.push(stage));
                let _ = tell.send(stage);
            });
            began.change(|began| *began += 1);
            while told.recv_timeout(PATIENCE).unwrap() < ends_at {}
            door.pass();
            drop(hook);
            Err("it was ended".into())
        }
    }
}

/// A handler that succeeds, and counts.
fn counts(
    count: &Arc<Watched<u32>>,
) -> impl Fn(&Attempt) -> Result<(), AttemptFailure> + Send + Sync + 'static {
    let count = count.clone();
    move |_: &Attempt| {
        count.change(|count| *count += 1);
        Ok(())
    }
}

#[test]
fn a_partition_is_released_after_its_cancelled_attempts_have_ended() {
    let stream = MemoryStream::new("t", 1);
    stream.push(0, keyed("slow", 0));
    let stages = Stages::new();
    let owner = builder(&stream)
        .shutdown_timeout(Duration::from_millis(30))
        .start(stages.handler(Cancellation::Forced))
        .unwrap();
    stages.began.until(|began| *began == 1);
    let taken = Watched::new(0);
    let next = builder(&stream).start(counts(&taken)).unwrap();
    stream.move_to(0, 1);
    let both = [Cancellation::Requested, Cancellation::Forced];
    stages.seen.until(|seen| *seen == both);
    // Its time is over, and its hook is registered: the partition is not released. The coordinator
    // has answered twice, so it has come past the deadline.
    status(&owner);
    status(&owner);
    assert_eq!((stream.owner(0), taken.get()), (Some(0), 0));
    stages.door.open();
    taken.until(|taken| *taken == 1);
    let counts = status(&owner).counts;
    // The failure is no failed attempt, and the only attempt of the policy is not used up.
    assert_eq!((counts.cancelled, counts.failed_attempts, counts.skipped), (1, 0, 0));
    owner.stop(PATIENCE);
    assert_eq!(next.stop(PATIENCE).counts.handled, 1);
}

#[test]
fn an_attempt_that_ends_on_request_is_not_forced() {
    let stream = MemoryStream::new("t", 1);
    stream.push(0, keyed("slow", 0));
    let stages = Stages::new();
    stages.door.open();
    let owner = builder(&stream)
        .shutdown_timeout(HOUR)
        .cancel_grace(HOUR)
        .start(stages.handler(Cancellation::Requested))
        .unwrap();
    stages.began.until(|began| *began == 1);
    // Half of an hour would pass before the request.
    owner.handle().cancel(HOUR);
    let ended = owner.wait();
    assert!(matches!(ended.reason, StopReason::Asked));
    assert_eq!(stages.seen.get(), [Cancellation::Requested]);
    assert_eq!((ended.abandoned, ended.counts.cancelled, ended.counts.skipped), (0, 1, 0));
    assert_eq!(stream.owner(0), None);
}

#[test]
fn attempts_of_a_lost_partition_are_ended_at_once() {
    let stream = MemoryStream::new("t", 1);
    stream.push(0, keyed("slow", 0));
    let stages = Stages::new();
    stages.door.open();
    let owner = builder(&stream)
        .shutdown_timeout(HOUR)
        .start(stages.handler(Cancellation::Forced))
        .unwrap();
    stages.began.until(|began| *began == 1);
    stream.steal_for(0, 1);
    stages.seen.until(|seen| *seen == [Cancellation::Forced]);
    eventually(|| status(&owner).counts.cancelled == 1);
    let counts = owner.stop(PATIENCE).counts;
    assert_eq!((counts.failed_attempts, counts.skipped), (0, 0));
}

#[test]
fn attempts_that_are_being_ended_hold_back_the_next_assignment() {
    let stream = MemoryStream::new("t", 1);
    stream.push(0, keyed("slow", 0));
    let stages = Stages::new();
    let (slow, began) = (stages.handler(Cancellation::Forced), Watched::new(Vec::new()));
    let begins = began.clone();
    let consumer = builder(&stream).unordered().start(move |attempt: &Attempt| {
        begins.change(|began| began.push((number(attempt), attempt.epoch())));
        if attempt.epoch() == 1 { slow(attempt) } else { Ok(()) }
    });
    let consumer = consumer.unwrap();
    // An attempt whose hook is not registered yet holds nothing back.
    stages.began.until(|began| *began == 1);
    stream.steal_for(0, 0);
    stages.seen.until(|seen| seen.len() == 1);
    eventually(|| status(&consumer).partitions.iter().any(|held| held.epoch == 2));
    eventually(|| status(&consumer).partitions[0].buffered == 1);
    // Without a key nothing but the ending attempt keeps the record back.
    status(&consumer);
    assert_eq!(began.get(), [(0, 1)]);
    stages.door.open();
    began.until(|began| *began == [(0, 1), (0, 2)]);
    eventually(|| status(&consumer).counts.handled == 1);
    consumer.stop(PATIENCE);
}

#[test]
fn a_cancelled_batch_is_not_handled_record_by_record() {
    for by in [BatchBy::Key, BatchBy::Mixed] {
        let stream = MemoryStream::new("t", 1);
        let keys = ["slow", if by == BatchBy::Key { "slow" } else { "other" }];
        for (number, key) in (0..).zip(keys) {
            stream.push(0, keyed(key, number));
        }
        let stages = Stages::new();
        stages.door.open();
        let (handle, sizes) = (stages.handler(Cancellation::Forced), Watched::new(Vec::new()));
        let seen = sizes.clone();
        let batch = BatchConfig { max_records: 2, linger: HOUR, split: true, by };
        let consumer = builder(&stream).start_batches(batch, move |batch: &[Attempt]| {
            seen.change(|sizes| sizes.push(batch.len()));
            let others: Vec<_> = batch[1..].iter().map(|other| other.on_cancel(|_| ())).collect();
            let result = handle(&batch[0]);
            drop(others);
            result
        });
        let consumer = consumer.unwrap();
        stages.began.until(|began| *began == 1);
        stream.steal_for(0, 1);
        eventually(|| status(&consumer).counts.cancelled == 2);
        let counts = consumer.stop(PATIENCE).counts;
        assert_eq!(
            (sizes.get(), counts.failed_attempts, counts.skipped),
            (vec![2], 0, 0),
            "{by:?}"
        );
    }
}

#[test]
fn a_restarted_attempt_is_repeated_and_not_counted() {
    let stream = MemoryStream::new("t", 1);
    stream.push(0, keyed("a", 0));
    stream.push(0, keyed("a", 1));
    let seen = Watched::new(Vec::new());
    let sees = seen.clone();
    let consumer = builder(&stream).start_with_acks(move |attempt: Attempt, ack| {
        let count = sees.change(|seen| {
            seen.push((number(&attempt), attempt.number()));
            seen.len()
        });
        if count < 3 { ack.restart() } else { ack.done() }
    });
    let consumer = consumer.unwrap();
    seen.until(|seen| seen.len() == 4);
    // The key's next record waits for it.
    assert_eq!(seen.get(), [(0, 1), (0, 1), (0, 1), (1, 1)]);
    eventually(|| status(&consumer).counts.handled == 2);
    assert_eq!(consumer.stop(PATIENCE).counts.failed_attempts, 0);
}
