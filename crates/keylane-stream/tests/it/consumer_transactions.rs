//! Transactional commits: a commit carries exactly the output of the records that it completes,
//! whatever fails, is late or is revoked. The transactions are a model in memory with random
//! failures.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use crate::consuming::{Dice, keyed, number, quick};
use keylane_stream::consumer::{Attempt, AttemptFailure, Consumer, ShutdownReport, StopReason};
use keylane_stream::retry::{OnExhausted, RetryPolicy};
use keylane_stream::sink::{HandlerOutput, Sink, SinkError};
use keylane_stream::source::{
    PartitionAssignment, ProgressCommit, Source, SourceError, SourceEvent,
};
use keylane_stream::tracker::{OffsetMapLimit, Progress};
use keylane_stream::{DeliveredRecord, Partition, Position, Record};

const PARTITIONS: u32 = 3;
const EACH: u64 = 400;
const KEYS: u64 = 9;

/// Committed and uncommitted state of the model.
struct Ledger {
    progress: Vec<Progress>,
    output: Vec<Record>,
    open: Vec<Record>,
    /// Whether outputs can be added.
    is_open: bool,
    is_over: bool,
    dice: Dice,
}

#[derive(Clone)]
struct Model(Arc<(Mutex<Ledger>, Condvar)>);

impl Model {
    fn new(seed: u64) -> Self {
        let ledger = Ledger {
            progress: vec![Progress::up_to(Position::ZERO); PARTITIONS as usize],
            output: Vec::new(),
            open: Vec::new(),
            is_open: true,
            is_over: false,
            dice: Dice(seed),
        };
        Model(Arc::new((Mutex::new(ledger), Condvar::new())))
    }

    fn lock(&self) -> MutexGuard<'_, Ledger> {
        self.0.0.lock().unwrap()
    }

    fn roll(&self, below: u64) -> u64 {
        self.lock().dice.roll(below)
    }
}

/// Writes into the transaction. As the protocol requires, every write is answered before a cut.
struct Into(Model);

impl Sink for Into {
    fn put(&mut self, _: &[Record]) -> Result<(), SinkError> {
        unreachable!("outputs are put one by one")
    }

    fn put_each(&mut self, outputs: Vec<HandlerOutput>) {
        for mut output in outputs {
            let (lock, changed) = &*self.0.0;
            let ledger = lock.lock().unwrap();
            let waits = |ledger: &mut Ledger| !ledger.is_open && !ledger.is_over;
            let mut ledger = changed.wait_while(ledger, waits).unwrap();
            if !ledger.is_open || !output.is_wanted() {
                drop(ledger);
                output.withdraw();
                continue;
            }
            if ledger.dice.roll(8) == 0 {
                // Meanwhile the record may be abandoned.
                thread::sleep(Duration::from_micros(400));
            }
            let records = output.take_records();
            if ledger.dice.roll(40) == 0 {
                drop(ledger);
                output.answer(Err(SinkError::new("not this time")));
                continue;
            }
            ledger.open.extend(records);
            output.answer(Ok(()));
        }
    }
}

/// Source whose partitions are revoked at random, and whose transactions fail at random.
struct Moving {
    model: Model,
    partitions: Vec<Vec<DeliveredRecord>>,
    /// Next position of each assigned partition.
    ours: BTreeMap<u32, usize>,
    /// Partition that is revoked and not yet released.
    wanted: Option<u32>,
    pending: Vec<SourceEvent>,
    /// The transaction was aborted, and the poll before reported it.
    told: bool,
}

impl Moving {
    fn new(model: Model) -> Self {
        let mut dice = Dice(model.roll(1_000));
        let mut partition = |partition| {
            let mut delivered = |number| DeliveredRecord {
                position: Position::new(number),
                written: SystemTime::UNIX_EPOCH,
                record: keyed(format!("{partition}.{}", dice.roll_skewed(KEYS)), number),
            };
            (0..EACH).map(&mut delivered).collect()
        };
        let partitions = (0..PARTITIONS).map(&mut partition).collect();
        let ours = BTreeMap::new();
        Moving { model, partitions, ours, wanted: None, pending: Vec::new(), told: false }
    }

    fn assign(&mut self, number: u32, events: &mut Vec<SourceEvent>) {
        let progress = self.model.lock().progress[number as usize].clone();
        self.ours.insert(number, progress.watermark().get() as usize);
        let limit = OffsetMapLimit::KAFKA;
        events.push(SourceEvent::Assigned(PartitionAssignment {
            partition: name(number),
            progress,
            limit,
        }));
    }

    /// Aborts: drops the output, and goes back to the committed state.
    fn give_up(&mut self) {
        self.model.lock().open.clear();
        let ours: Vec<_> = self.ours.keys().copied().collect();
        let mut events = vec![SourceEvent::Lost(ours.iter().copied().map(name).collect())];
        self.wanted = None;
        ours.into_iter().for_each(|number| self.assign(number, &mut events));
        events.push(SourceEvent::Aborted);
        self.pending.extend(events);
    }
}

fn name(number: u32) -> Partition {
    Partition::new("orders", number)
}

impl Source for Moving {
    fn poll(
        &mut self,
        timeout: Duration,
        most: usize,
        events: &mut Vec<SourceEvent>,
    ) -> Result<(), SourceError> {
        if std::mem::take(&mut self.told) {
            self.model.lock().is_open = true;
            self.model.0.1.notify_all();
        }
        if !self.pending.is_empty() && self.model.roll(3) > 0 {
            // The outcome of a commit may take a while.
            thread::sleep(timeout.min(Duration::from_micros(200)));
            return Ok(());
        }
        events.append(&mut self.pending);
        self.told = events.iter().any(|event| matches!(event, SourceEvent::Aborted));
        for number in 0..PARTITIONS {
            match (self.ours.get(&number).copied(), self.model.roll(100)) {
                (None, 0..20) => self.assign(number, events),
                (Some(_), 0) => {
                    self.ours.remove(&number);
                    self.wanted.take_if(|wanted| *wanted == number);
                    events.push(SourceEvent::Lost(vec![name(number)]));
                }
                (Some(_), 1) if self.wanted.is_none() => {
                    self.wanted = Some(number);
                    events.push(SourceEvent::Revoked(vec![name(number)]));
                }
                (Some(next), 2..50) if self.wanted != Some(number) && next < EACH as usize => {
                    let end = EACH.min(next as u64 + 1 + self.model.roll(20)) as usize;
                    let end = end.min(next + most);
                    let records = self.partitions[number as usize][next..end].to_vec();
                    self.ours.insert(number, end);
                    events.push(SourceEvent::Records { partition: name(number), records });
                }
                _ => {}
            }
        }
        if events.is_empty() {
            thread::sleep(timeout.min(Duration::from_micros(200)));
        }
        Ok(())
    }

    fn is_transactional(&self) -> bool {
        true
    }

    fn begin_commit(&mut self) -> bool {
        let mut ledger = self.model.lock();
        let can = ledger.is_open && ledger.dice.roll(4) > 0;
        if can {
            ledger.is_open = false;
        }
        can
    }

    fn abort_transaction(&mut self) {
        self.give_up();
    }

    fn commit(&mut self, commits: Vec<ProgressCommit>) {
        let is_whole =
            commits.iter().all(|commit| self.ours.contains_key(&commit.partition.number()));
        if !is_whole || self.model.roll(6) == 0 {
            return self.give_up();
        }
        let mut ledger = self.model.lock();
        let open = std::mem::take(&mut ledger.open);
        ledger.output.extend(open);
        for ProgressCommit { partition, progress } in commits {
            ledger.progress[partition.number() as usize] = progress;
            self.pending.push(SourceEvent::Committed { partition, result: Ok(()) });
        }
        ledger.is_open = true;
        self.model.0.1.notify_all();
    }

    fn pause(&mut self, _: &Partition) {}

    fn resume(&mut self, _: &Partition) {}

    fn release(&mut self, partitions: &[Partition]) {
        for partition in partitions {
            self.ours.remove(&partition.number());
            self.wanted.take_if(|wanted| *wanted == partition.number());
        }
    }

    fn close(&mut self, _: Duration) -> Result<(), SourceError> {
        let mut ledger = self.model.lock();
        ledger.open.clear();
        ledger.is_over = true;
        self.model.0.1.notify_all();
        Ok(())
    }
}

/// Returns the number of copies of a record.
fn copies(number: u64) -> usize {
    [1, 0, 2, 1][number as usize % 4]
}

/// Copies records until all are committed.
fn run(seed: u64) -> (Model, ShutdownReport) {
    let model = Model::new(seed);
    let dice = model.clone();
    let policy = RetryPolicy::new(quick(1_000, OnExhausted::Stop)).unwrap();
    let consumer = Consumer::builder(Moving::new(model.clone()))
        .threads(4)
        .max_in_flight(60, 1 << 20)
        .commit(Duration::from_millis(1 + seed % 3), 5 + seed % 50)
        .shutdown_timeout(Duration::from_micros(seed % 4 * 300))
        .retry(policy, |_| ())
        .start_producing(Into(model.clone()), move |attempt: &Attempt| {
            let roll = dice.roll(300);
            thread::sleep(Duration::from_micros(roll));
            match roll % 15 {
                0 => Err(AttemptFailure::from("not this time")),
                _ => Ok(vec![attempt.record().clone(); copies(number(attempt))]),
            }
        })
        .unwrap();
    let until = Instant::now() + crate::consuming::PATIENCE;
    while model.lock().progress.iter().any(|progress| progress.watermark().get() < EACH) {
        assert!(Instant::now() < until, "it did not come: {:?}", consumer.status());
        thread::sleep(Duration::from_millis(1));
    }
    (model, consumer.stop(Duration::from_secs(5)))
}

#[test]
fn what_is_committed_was_made_of_what_is_done_by_that_and_of_nothing_else() {
    for seed in 0..8 {
        let (model, ended) = run(seed);
        assert!(matches!(ended.reason, StopReason::Asked), "{}", ended.reason);
        let mut keys: HashMap<_, Vec<u64>> = HashMap::new();
        for record in &model.lock().output {
            let number = std::str::from_utf8(record.payload()).unwrap().parse().unwrap();
            keys.entry(record.key.clone()).or_default().push(number);
        }
        let mut expected: HashMap<_, Vec<u64>> = HashMap::new();
        for delivered in Moving::new(Model::new(seed)).partitions.concat() {
            let number = delivered.position.get();
            let copies = vec![number; copies(number)];
            expected.entry(delivered.record.key).or_default().extend(copies);
        }
        expected.retain(|_, numbers| !numbers.is_empty());
        assert_eq!(keys, expected, "seed {seed}, {:?}", ended.counts);
    }
}
