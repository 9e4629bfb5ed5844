//! Waits of the coordinator: without work it sleeps until an event or its next deadline. The waits
//! are counted, not timed.
//!
//! Regression: it waited for no time at all, again and again, after a deadline that it could not
//! act on: that of a commit while the previous one was unanswered, refused or hopeless, or while
//! its partition was being released; and the shutdown deadline during the last commit.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::task::{Wake, Waker};
use std::time::{Duration, Instant, SystemTime};

use crate::consuming::{Door, PATIENCE, Watched, eventually, keyed, status};
use keylane_stream::consumer::{Attempt, AttemptFailure, Consumer, ConsumerBuilder, StopReason};
use keylane_stream::source::{
    CommitError, PartitionAssignment, ProgressCommit, Source, SourceError, SourceEvent,
};
use keylane_stream::tracker::{OffsetMapLimit, Progress};
use keylane_stream::{DeliveredRecord, Partition, Position};

/// Number of polls that are counted: few enough that no deadline passes meanwhile, and enough to
/// show a busy loop.
const LOOKS: usize = 5;
const HOUR: Duration = Duration::from_secs(3600);

/// Source that follows the script of a test, and records each poll.
#[derive(Clone)]
struct Script(Arc<Shared>);

struct Shared {
    state: Mutex<State>,
    /// Notified of every change.
    changed: Condvar,
}

struct State {
    together: bool,
    events: VecDeque<SourceEvent>,
    /// Answer to commits; `None` while they stay unanswered.
    answer: Option<Result<(), CommitError>>,
    /// Whether a commit was requested.
    committed: bool,
    /// Partitions with unanswered commits.
    unanswered: Vec<Partition>,
    /// Whether each poll fails.
    dead: bool,
    /// Whether polls without an event are recorded.
    counts: bool,
    /// Starts recording at the first commit; with the answer to it after enough polls.
    counts_from_commit: Option<Result<(), CommitError>>,
    looks: Vec<Look>,
    /// Number of calls since the last poll that settle commits: at least one in each round.
    rounds: u32,
    rung: bool,
}

/// A poll that reported no event.
#[derive(Clone, Copy, Debug)]
struct Look {
    timeout: Duration,
    /// Number of rounds since the poll before.
    rounds: u32,
}

impl Script {
    fn new() -> Self {
        let state = State {
            together: false,
            events: VecDeque::new(),
            answer: Some(Ok(())),
            committed: false,
            unanswered: Vec::new(),
            dead: false,
            counts: false,
            counts_from_commit: None,
            looks: Vec::new(),
            rounds: 0,
            rung: false,
        };
        Script(Arc::new(Shared { state: Mutex::new(state), changed: Condvar::new() }))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap()
    }

    fn change(&self, change: impl FnOnce(&mut State)) {
        change(&mut self.state());
        self.0.changed.notify_all();
    }

    fn tell(&self, event: SourceEvent) {
        self.change(|state| state.events.push_back(event));
    }

    fn assign(&self, number: u32) {
        let progress = Progress::up_to(Position::ZERO);
        let (partition, limit) = (name(number), OffsetMapLimit::KAFKA);
        self.tell(SourceEvent::Assigned(PartitionAssignment { partition, progress, limit }));
    }

    fn push(&self, number: u32, position: u64, key: &str) {
        let delivered = DeliveredRecord {
            position: Position::new(position),
            written: SystemTime::UNIX_EPOCH,
            record: keyed(key, position),
        };
        self.tell(SourceEvent::Records { partition: name(number), records: vec![delivered] });
    }

    /// Sets the answer to commits, beginning with those that wait for one.
    fn answer(&self, answer: Result<(), CommitError>) {
        self.change(|state| state.answer(answer));
    }

    /// Starts recording polls.
    fn count(&self) {
        self.change(|state| state.counts = true);
    }

    fn await_commit(&self) {
        let none = |state: &mut State| !state.committed;
        let waited = self.0.changed.wait_timeout_while(self.state(), PATIENCE, none).unwrap();
        assert!(!waited.1.timed_out(), "it does not commit");
    }

    fn count_after_a_commit(&self) {
        self.await_commit();
        self.count();
    }

    /// Waits until enough polls are recorded.
    fn looks(&self) -> Vec<Look> {
        let few = |state: &mut State| state.looks.len() < LOOKS;
        let waited = self.0.changed.wait_timeout_while(self.state(), PATIENCE, few).unwrap();
        assert!(!waited.1.timed_out(), "it does not look");
        waited.0.looks.clone()
    }

    /// Checks that the coordinator waits. One poll without a wait is allowed, for a deadline that
    /// was close.
    fn expect_waits(&self) {
        let looks = self.looks();
        let in_vain = |pair: &[Look]| pair.iter().all(|look| look.timeout.is_zero());
        assert!(!looks.windows(2).any(in_vain), "it looks again and again: {looks:?}");
    }
}

impl State {
    fn answer(&mut self, answer: Result<(), CommitError>) {
        for partition in std::mem::take(&mut self.unanswered) {
            self.events.push_back(SourceEvent::Committed { partition, result: answer.clone() });
        }
        self.answer = Some(answer);
    }

    fn alive(&self) -> Result<(), SourceError> {
        if self.dead { Err(SourceError::new("it is dead")) } else { Ok(()) }
    }
}

fn name(number: u32) -> Partition {
    Partition::new("t", number)
}

impl Source for Script {
    fn poll(
        &mut self,
        timeout: Duration,
        _: usize,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        let until = Instant::now() + timeout;
        let mut state = self.state();
        let rounds = std::mem::take(&mut state.rounds);
        let counts = state.counts || state.committed && state.counts_from_commit.is_some();
        if counts && state.events.is_empty() && state.looks.len() < LOOKS {
            // Returns at once, as a source may, so that the recording takes no time.
            state.looks.push(Look { timeout, rounds });
            if state.looks.len() == LOOKS
                && let Some(answer) = state.counts_from_commit.clone()
            {
                state.answer(answer);
            }
            self.0.changed.notify_all();
            return state.alive();
        }
        loop {
            state.alive()?;
            events.extend(state.events.drain(..));
            let left = until.saturating_duration_since(Instant::now());
            if std::mem::take(&mut state.rung) || !events.is_empty() || left.is_zero() {
                return Ok(());
            }
            state = self.0.changed.wait_timeout(state, left).unwrap().0;
        }
    }

    fn commit(&mut self, commits: Vec<ProgressCommit>) {
        self.change(|state| {
            state.committed = true;
            for ProgressCommit { partition, .. } in commits {
                match state.answer.clone() {
                    Some(result) => {
                        state.events.push_back(SourceEvent::Committed { partition, result })
                    }
                    None => state.unanswered.push(partition),
                }
            }
        });
    }

    fn is_transactional(&self) -> bool {
        let mut state = self.state();
        state.rounds += 1;
        state.together
    }

    fn pause(&mut self, _: &Partition) {}

    fn resume(&mut self, _: &Partition) {}

    fn release(&mut self, _: &[Partition]) {}

    fn close(&mut self, _: Duration) -> Result<(), SourceError> {
        Ok(())
    }

    fn waker(&self) -> Option<Waker> {
        Some(Waker::from(self.0.clone()))
    }
}

impl Wake for Shared {
    fn wake(self: Arc<Self>) {
        self.state.lock().unwrap().rung = true;
        self.changed.notify_all();
    }
}

/// Returns the builder of a consumer that commits by time alone.
fn builder(script: &Script, commit_every: Duration) -> ConsumerBuilder {
    Consumer::builder(script.clone()).threads(2).commit(commit_every, u64::MAX)
}

/// Starts a consumer with one partition and one completed record.
fn with_one_done(script: &Script, commit_every: Duration) -> Consumer {
    script.assign(0);
    script.push(0, 0, "a");
    let consumer = builder(script, commit_every).start(|_: &Attempt| Ok::<_, AttemptFailure>(()));
    let consumer = consumer.unwrap();
    eventually(|| status(&consumer).counts.handled == 1);
    consumer
}

fn for_now() -> CommitError {
    CommitError::Later("no coordinator".to_owned())
}

#[test]
fn waits_for_the_last_commit_after_the_shutdown_timeout() {
    let script = Script::new();
    let consumer = with_one_done(&script, HOUR);
    // Set by the source itself, as a test thread would be too late.
    script.change(|state| (state.answer, state.counts_from_commit) = (None, Some(Ok(()))));
    consumer.handle().stop(Duration::ZERO);
    script.expect_waits();
    assert_eq!(consumer.wait().counts.commits, 1);
}

#[test]
fn until_the_last_commit_is_tried_again_when_the_time_to_stop_is_over() {
    let script = Script::new();
    let consumer = with_one_done(&script, HOUR);
    script.change(|state| {
        (state.answer, state.counts_from_commit) = (Some(Err(for_now())), Some(Ok(())));
    });
    consumer.handle().stop(Duration::ZERO);
    script.expect_waits();
    assert_eq!(consumer.wait().counts.commits, 1);
}

#[test]
fn until_a_commit_is_tried_again_that_was_refused_for_now() {
    let script = Script::new();
    script.change(|state| state.answer = Some(Err(for_now())));
    let consumer = with_one_done(&script, Duration::ZERO);
    script.count_after_a_commit();
    script.expect_waits();
    script.answer(Ok(()));
    eventually(|| status(&consumer).counts.commits == 1);
    consumer.stop(PATIENCE);
}

#[test]
fn waits_for_the_loss_of_a_reassigned_partition() {
    let script = Script::new();
    script.change(|state| state.answer = Some(Err(CommitError::NotOurs)));
    let consumer = with_one_done(&script, Duration::ZERO);
    script.count_after_a_commit();
    script.expect_waits();
    script.tell(SourceEvent::Lost(vec![name(0)]));
    eventually(|| status(&consumer).partitions.is_empty());
    assert_eq!(consumer.stop(PATIENCE).counts.failed_commits, 1);
}

#[test]
fn waits_for_a_transaction_before_the_next_is_closed() {
    let script = Script::new();
    script.change(|state| (state.together, state.answer) = (true, None));
    script.assign(1);
    let consumer = with_one_done(&script, Duration::ZERO);
    script.await_commit();
    // The other partition has a record for the next member.
    script.push(1, 0, "b");
    eventually(|| status(&consumer).counts.handled == 2);
    script.count();
    script.expect_waits();
    script.answer(Ok(()));
    eventually(|| status(&consumer).counts.commits == 2);
    consumer.stop(PATIENCE);
}

#[test]
fn waits_for_running_attempts_of_a_revoked_partition() {
    let script = Script::new();
    script.assign(0);
    script.push(0, 0, "slow");
    script.push(0, 1, "quick");
    let (slow, quick, began) = (Door::closed(), Door::closed(), Watched::new(0));
    let (doors, begins) = ((slow.clone(), quick.clone()), began.clone());
    let consumer = builder(&script, Duration::ZERO).start(move |attempt: &Attempt| {
        begins.change(|began| *began += 1);
        let slow = attempt.key() == Some(b"slow");
        if slow {
            doors.0.pass()
        } else {
            doors.1.pass()
        }
        Ok::<_, AttemptFailure>(())
    });
    let consumer = consumer.unwrap();
    began.until(|began| *began == 2);
    consumer.handle().stop(PATIENCE);
    eventually(|| status(&consumer).stopping);
    // The completed record is committed when the other one has ended, even if a commit is due
    // several times before.
    quick.open();
    eventually(|| status(&consumer).counts.handled == 1);
    script.count();
    // The first poll has rounds from before. Each other poll has the round of its wait and a few
    // more, but not thousands.
    let looks = &script.looks()[1..];
    assert!(looks.iter().all(|look| look.rounds < 10), "it looks again and again: {looks:?}");
    slow.open();
    let ended = consumer.wait();
    assert_eq!((ended.counts.handled, ended.abandoned), (2, 0));
}

/// A record that comes while an attempt runs is not kept waiting for the end of the attempt.
#[test]
fn waits_for_the_source_too_while_an_attempt_runs() {
    let script = Script::new();
    script.assign(0);
    script.push(0, 0, "slow");
    let (slow, began) = (Door::closed(), Watched::new(0));
    let (door, begins) = (slow.clone(), began.clone());
    // The end of the attempt makes a commit due, so it is waited for.
    let consumer = Consumer::builder(script.clone()).threads(2).commit(HOUR, 1);
    let consumer = consumer.start(move |_: &Attempt| {
        begins.change(|began| *began += 1);
        door.pass();
        Ok::<_, AttemptFailure>(())
    });
    let consumer = consumer.unwrap();
    began.until(|began| *began == 1);
    script.count();
    script.expect_waits();
    slow.open();
    eventually(|| status(&consumer).counts.commits == 1);
    consumer.stop(PATIENCE);
}

/// Regression: during a commit, the coordinator waited in a source that had failed and returned at
/// once.
#[test]
fn waits_for_running_attempts_and_not_for_a_failed_source() {
    let script = Script::new();
    script.change(|state| state.answer = None);
    script.assign(0);
    script.push(0, 0, "slow");
    script.push(0, 1, "quick");
    let slow = Door::closed();
    let door = slow.clone();
    let consumer = builder(&script, Duration::ZERO).shutdown_timeout(PATIENCE);
    let consumer = consumer.start(move |attempt: &Attempt| {
        if attempt.key() == Some(b"slow") {
            door.pass();
        }
        Ok::<_, AttemptFailure>(())
    });
    let consumer = consumer.unwrap();
    script.await_commit();
    script.change(|state| (state.dead, state.counts) = (true, true));
    // The first failure stops the consumer, and after the second one the source has failed for
    // good.
    let looks = &script.looks()[2..];
    assert!(looks.iter().all(|look| look.timeout.is_zero()), "it is waited in: {looks:?}");
    slow.open();
    let ended = consumer.wait();
    assert!(matches!(ended.reason, StopReason::Source(_)), "{}", ended.reason);
    assert_eq!((ended.counts.handled, ended.abandoned), (2, 0));
}
