//! Keys whose `Hash`, `Eq`, `Clone` or `Drop` panics once, at a random call, while random programs
//! use every form of submission and control. At most one task is lost, or one call fails; every
//! other task runs, in order and without overlap; and the pool is not poisoned.

use std::cell::Cell;
use std::hash::{BuildHasher, Hash, Hasher};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::Duration;

use crate::common::{LONG, Rng, lock, soon};
use keylane::{Claims, OnClosedKey, OnError, OnFailure, Pool, Rate, SubmitErrorKind};

const KEYS: u64 = 5;
const OPERATIONS: usize = 60;

/// Call of a key that panics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Hash,
    Eq,
    Clone,
    Drop,
}

/// Panics at one call of one kind.
#[derive(Debug)]
struct Bomb {
    fault: Fault,
    /// Number of calls until the panic.
    left: AtomicU64,
    armed: AtomicBool,
    /// Number of panics.
    blown: AtomicUsize,
}

impl Bomb {
    fn call(&self, fault: Fault) {
        if self.fault != fault || !self.armed.load(Ordering::SeqCst) || thread::panicking() {
            return;
        }
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.blown.fetch_add(1, Ordering::SeqCst);
            panic!("a key, on purpose: {fault:?}");
        }
    }
}

#[derive(Debug)]
struct Key {
    id: u64,
    bomb: Arc<Bomb>,
}

impl Hash for Key {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.bomb.call(Fault::Hash);
        self.id.hash(state);
    }
}

impl PartialEq for Key {
    fn eq(&self, other: &Self) -> bool {
        self.bomb.call(Fault::Eq);
        self.id == other.id
    }
}

impl Eq for Key {}

impl Clone for Key {
    fn clone(&self) -> Self {
        self.bomb.call(Fault::Clone);
        Key { id: self.id, bomb: self.bomb.clone() }
    }
}

impl Drop for Key {
    fn drop(&mut self) {
        self.bomb.call(Fault::Drop);
    }
}

/// Spreads the keys over two shards, with one hash in each, so that keys are compared often.
#[derive(Clone, Default)]
struct TwoHashes;

struct TwoHashed(u64);

impl BuildHasher for TwoHashes {
    type Hasher = TwoHashed;

    fn build_hasher(&self) -> TwoHashed {
        TwoHashed(0)
    }
}

impl Hasher for TwoHashed {
    fn finish(&self) -> u64 {
        self.0 % 2 * 0x1_0000_0001
    }

    fn write(&mut self, bytes: &[u8]) {
        self.0 += bytes.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    }
}

/// State of a task: created, run, dropped without a run, or dropped so in a call that may.
const CREATED: u8 = 0;
const RAN: u8 = 1;
const LOST: u8 = 2;
const TAKEN: u8 = 3;

thread_local! {
    /// Whether this thread is in a call that takes or replaces tasks.
    static TAKES: Cell<bool> = const { Cell::new(false) };
}

#[derive(Default)]
struct Log {
    states: Mutex<Vec<Arc<AtomicU8>>>,
    /// Highest number of a task that has begun, by key.
    last: [AtomicU64; KEYS as usize],
    /// Whether an exclusive task of the key runs.
    busy: [AtomicBool; KEYS as usize],
    violations: Mutex<Vec<String>>,
}

/// Captures of a task.
struct Probe {
    log: Arc<Log>,
    state: Arc<AtomicU8>,
    number: u64,
    keys: Vec<u64>,
    /// Whether the task came in the order of its number.
    ordered: bool,
}

impl Probe {
    fn new(log: &Arc<Log>, keys: &[u64], ordered: bool) -> Self {
        let state = Arc::new(AtomicU8::new(CREATED));
        let mut states = lock(&log.states);
        states.push(state.clone());
        let number = states.len() as u64;
        Probe { log: log.clone(), state, number, keys: keys.to_vec(), ordered }
    }

    fn run(self) {
        let violation = |what| lock(&self.log.violations).push(format!("{what}: {:?}", self.keys));
        for key in &self.keys {
            if self.log.busy[*key as usize].swap(true, Ordering::SeqCst) {
                violation("overlap");
            }
            if self.ordered
                && self.log.last[*key as usize].fetch_max(self.number, Ordering::SeqCst)
                    > self.number
            {
                violation("overtaken");
            }
        }
        thread::yield_now();
        self.keys
            .iter()
            .for_each(|key| self.log.busy[*key as usize].store(false, Ordering::SeqCst));
        self.state.store(RAN, Ordering::SeqCst);
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        let state = if TAKES.get() { TAKEN } else { LOST };
        _ = self.state.compare_exchange(CREATED, state, Ordering::SeqCst, Ordering::SeqCst);
    }
}

/// One program: its random numbers, its pool, and what it has seen.
struct Program {
    rng: Rng,
    bomb: Arc<Bomb>,
    pool: Pool<Key, TwoHashes>,
    log: Arc<Log>,
    /// Tasks in calls that have panicked or were refused.
    refused: usize,
}

impl Program {
    fn id(&mut self) -> u64 {
        self.rng.next() % KEYS
    }

    fn key(&self, id: u64) -> Key {
        Key { id, bomb: self.bomb.clone() }
    }

    fn probe(&self, keys: &[u64]) -> Probe {
        Probe::new(&self.log, keys, true)
    }

    /// Makes one random call.
    fn step(&mut self) {
        let (one, two) = (self.id(), self.id());
        let (key, other) = (self.key(one), self.key(two));
        match self.rng.next() % 17 {
            0..=2 => {
                let probe = self.probe(&[one]);
                let result = self.pool.execute(key, || probe.run());
                self.refused += usize::from(result.is_err());
            }
            3 => {
                let probe = self.probe(&[one]);
                drop(self.pool.submit(key, || probe.run()));
            }
            4 | 5 => {
                let keys = if one == two { vec![one] } else { vec![one, two] };
                let probe = self.probe(&keys);
                drop(self.pool.submit([key, other], || probe.run()));
            }
            6 => {
                let probe = self.probe(&[]);
                let claims = match self.rng.next() % 3 {
                    0 => Claims::limited(key, 2),
                    1 => Claims::shared(key).and_shared(other),
                    _ => Claims::shared(key),
                };
                drop(self.pool.execute(claims, || probe.run()));
            }
            7 | 8 => {
                let probe = self.probe(&[one]);
                TAKES.set(true);
                let result = self.pool.task(key).latest().submit(|| probe.run());
                self.refused += usize::from(result.is_err());
            }
            9 => {
                let tasks = 1 + self.rng.next() % 40;
                let tasks: Vec<_> = (0..tasks)
                    .map(|n| {
                        let id = (one + n) % KEYS;
                        let probe = self.probe(&[id]);
                        (self.key(id), move || probe.run())
                    })
                    .collect();
                drop(self.pool.execute_many(tasks));
            }
            10 => {
                self.pool.keys().pause(&key);
            }
            11 => {
                self.pool.keys().resume(&key);
            }
            12 => {
                TAKES.set(true);
                drop(self.pool.keys().take(&key));
            }
            13 => {
                let tasks: Vec<_> = (0..4)
                    .map(|n| {
                        let id = (one + n) % KEYS;
                        let probe = Probe::new(&self.log, &[id], false);
                        (self.key(id), move || probe.run())
                    })
                    .collect();
                let job = self.pool.job("each").on_error(OnError::FinishAll);
                drop(job.each_keyed(tasks).run());
            }
            14 => {
                let probe = Probe::new(&self.log, &[one], false);
                drop(self.pool.task(key).after(Duration::from_micros(50)).execute(|| probe.run()));
            }
            15 => {
                let probe = self.probe(&[one]);
                let task = self.pool.task(key).last(OnClosedKey::NewLife);
                self.refused += usize::from(task.execute(|| probe.run()).is_err());
            }
            _ => {
                let rate = Rate::per_second(100_000);
                let rate = (self.rng.below(2) == 0).then_some(rate);
                drop(self.pool.keys().set_rate(&key, rate));
            }
        }
    }

    /// Makes all calls. Only the one with the panic may lose more than one task.
    fn run(&mut self) {
        for _ in 0..OPERATIONS {
            let before = lock(&self.log.states).len();
            let panics = catch_unwind(AssertUnwindSafe(|| self.step())).is_err();
            TAKES.set(false);
            let states = lock(&self.log.states);
            if panics {
                // The tasks of the call itself were refused, or accepted before the panic.
                self.refused += states.len() - before;
            }
        }
    }
}

fn program(seed: u64, fault: Fault) {
    let mut rng = Rng(seed);
    let left = 1 + rng.next() % 400;
    let armed = AtomicBool::new(true);
    let bomb = Arc::new(Bomb { fault, left: left.into(), armed, blown: AtomicUsize::new(0) });
    let mut builder = Pool::<Key>::builder().workers(1 + rng.next() as usize % 3).capacity(1_000);
    if rng.below(2) == 0 {
        builder = builder.quantum(1 + rng.next() as usize % 3, LONG);
    }
    if rng.below(3) == 0 {
        builder = builder.on_failure(OnFailure::StopKey { after: 1 });
    }
    if rng.below(3) == 0 {
        builder = builder.rate_per_key(Rate::per_second(200_000));
    }
    let pool = builder.hasher(TwoHashes).build().unwrap();
    let log = Arc::new(Log::default());
    let mut program = Program { rng, bomb: bomb.clone(), pool, log: log.clone(), refused: 0 };
    program.run();
    bomb.armed.store(false, Ordering::SeqCst);
    (0..KEYS).for_each(|id| _ = program.pool.keys().resume(&program.key(id)));
    let case = format!("seed {seed}, {fault:?}");
    // A key may be stopped by the failure of its task, after it was resumed.
    while program.pool.wait_idle_timeout(Duration::from_millis(20)).is_err() {
        assert!(!program.pool.inspect().snapshot(0).poisoned, "{case}: the pool is poisoned");
        (0..KEYS).for_each(|id| _ = program.pool.keys().resume(&program.key(id)));
    }
    assert!(!program.pool.inspect().snapshot(0).poisoned, "{case}: the pool is poisoned");
    let (tell, told) = mpsc::channel();
    for id in 0..KEYS {
        let tell = tell.clone();
        program.pool.execute(program.key(id), move || tell.send(id).unwrap()).unwrap();
    }
    drop(tell);
    assert_eq!(told.iter().count() as u64, KEYS, "{case}: each key goes on");
    program.pool.shutdown().unwrap();
    let refused = program.refused;
    // Joins the workers, one of which may still drop what is left of a job.
    drop(program);
    assert_eq!(*lock(&log.violations), Vec::<String>::new(), "{case}");
    let states: Vec<_> =
        lock(&log.states).iter().map(|state| state.load(Ordering::SeqCst)).collect();
    assert!(!states.contains(&CREATED), "{case}: a task neither ran nor was dropped");
    let lost = states.iter().filter(|state| **state == LOST).count();
    let blown = bomb.blown.load(Ordering::SeqCst);
    assert!(lost <= blown + refused, "{case}: {lost} lost, {blown} panics, {refused} refused");
}

fn programs(fault: Fault) {
    soon(move || (0..150).for_each(|seed| program(seed, fault)));
}

#[test]
fn a_hash_that_panics_costs_one_task() {
    programs(Fault::Hash);
}

#[test]
fn a_comparison_that_panics_costs_one_task() {
    programs(Fault::Eq);
}

#[test]
fn a_clone_that_panics_costs_one_task() {
    programs(Fault::Clone);
}

#[test]
fn a_drop_that_panics_costs_one_task() {
    programs(Fault::Drop);
}

/// Refuses a task with a closed key and another one, of which the `call`th call panics. Its permits
/// of both keys are released, or the pool says that it can go on no more.
fn refusal(fault: Fault, call: u64) {
    let bomb = Arc::new(Bomb {
        fault,
        left: AtomicU64::new(call),
        armed: AtomicBool::new(false),
        blown: AtomicUsize::new(0),
    });
    let key = |id| Key { id, bomb: bomb.clone() };
    let builder = Pool::<Key>::builder().workers(1).capacity_per_key(2).hasher(TwoHashes);
    let pool = builder.build().unwrap();
    for id in [1, 2] {
        pool.keys().pause(&key(id));
    }
    pool.task(key(1)).last(OnClosedKey::Refuse).execute(|| ()).unwrap();
    let task = pool.task([key(1), key(2)]);
    bomb.armed.store(true, Ordering::SeqCst);
    let refused = catch_unwind(AssertUnwindSafe(|| task.try_execute(|| ()).map_err(drop)));
    bomb.armed.store(false, Ordering::SeqCst);
    assert!(!matches!(refused, Ok(Ok(()))), "{fault:?} {call}: the task was accepted");
    for _ in 0..2 {
        match pool.task(key(2)).try_execute(|| ()) {
            Ok(()) => {}
            Err(error) if error.kind() == SubmitErrorKind::Poisoned => return,
            Err(error) => panic!("{fault:?} {call}: a permit is lost: {error}"),
        }
    }
}

#[test]
fn a_refused_task_keeps_no_permit_of_a_key() {
    for fault in [Fault::Hash, Fault::Eq] {
        (1..40).for_each(|call| soon(move || refusal(fault, call)));
    }
}
