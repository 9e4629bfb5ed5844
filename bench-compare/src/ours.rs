//! Keylane's entries, in the forms that its users choose between:
//!
//! - `keylane`: `execute`, one closure at a time;
//! - `keylane-handle`: `submit`, the handle dropped at once;
//! - `keylane-many`: `execute_many`, 64 closures at a time;
//! - `keylane-typed`: a handler, `send`, one message at a time;
//! - `keylane-typed-many`: a handler, `send_many`, 64 messages at a time;
//! - `keylane-predicate`: `execute` with a descriptor instead of keys; `keylane-summary`, with a summary of
//!   each; `keylane-class`, with classes;
//! - `keylane-after-job`: `execute`, on a pool that has had a job.
//!
//! Jobs are in `ours/jobs.rs`.
//!
//! Pools are leaked: submitters refer to them, and the run ends with its process.

mod jobs;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use keylane::admit::{FairQueue, Gate as Slots};
use keylane::{Claims, Compatibility, HandlerPool, Pool as Keylane};

use crate::Result;
use crate::job::{Gate, Job, Sleep, Tiny};
use crate::pool::{Pool, Submit, SubmitGroup};
use crate::record::Record;
use crate::workloads::w4_queue::{Put, Shape, Take};
use crate::workloads::w5_memory::Question;
use crate::workloads::{
    Setting, w1_tiny, w2_sleeps, w3_rollups, w4_gate, w4_queue, w5_memory, w6_predicate,
};
use crate::world::World;

pub(crate) use jobs::{JOBS, JOBS_MIX, JOBS_START, jobs, jobs_mix, jobs_start};

pub(crate) const W1: &[&str] = &[
    "keylane",
    "keylane+mimalloc",
    "keylane-handle",
    "keylane-many",
    "keylane-typed",
    "keylane-typed-many",
    "keylane-after-job",
];
pub(crate) const W2: &[&str] = &["keylane", "keylane-typed"];
pub(crate) const W3: &[&str] = &["keylane"];
pub(crate) const W4: &[&str] = &["keylane"];
pub(crate) const W4_GATE: &[&str] = &["keylane-gate"];
pub(crate) const W5: &[&str] = &["keylane", "keylane-handle", "keylane-typed"];
pub(crate) const W6: &[&str] =
    &["keylane-class", "keylane-summary", "keylane-predicate", "keylane"];

const BATCH: usize = 64;

pub(crate) fn w1(setting: &Setting) -> Result<Record> {
    Ok(match setting.peer.as_str() {
        "keylane" => w1_tiny::measure(setting, |_| Closures(closures(setting))),
        "keylane-after-job" => w1_tiny::measure(setting, |_| {
            let pool = closures(setting);
            let job = pool.job("before").each((0..1000).map(|_| || ())).run();
            _ = job.expect("the pool is open").wait();
            Closures(pool)
        }),
        "keylane-handle" => w1_tiny::measure(setting, |_| Handles(closures(setting))),
        "keylane-many" => w1_tiny::measure(setting, |_| ClosureBatches(closures(setting))),
        "keylane-typed" => w1_tiny::measure(setting, |world| Messages(steps(setting, world))),
        "keylane-typed-many" => {
            w1_tiny::measure(setting, |world| MessageBatches(steps(setting, world)))
        }
        _ => return Err(setting.unknown_peer()),
    })
}

pub(crate) fn w2(setting: &Setting, zipf: f64) -> Result<Record> {
    Ok(match setting.peer.as_str() {
        "keylane" => w2_sleeps::measure(setting, zipf, |_| Closures(closures(setting))),
        "keylane-typed" => {
            w2_sleeps::measure(setting, zipf, |world| Messages(sleeps(setting, world)))
        }
        _ => return Err(setting.unknown_peer()),
    })
}

pub(crate) fn w3(setting: &Setting, every: usize) -> Result<Record> {
    Ok(match setting.peer.as_str() {
        "keylane" => w3_rollups::measure(setting, every, Closures(closures(setting))),
        _ => return Err(setting.unknown_peer()),
    })
}

pub(crate) fn w4(setting: &Setting, shape: &Shape) -> Result<Record> {
    if setting.peer != "keylane" {
        return Err(setting.unknown_peer());
    }
    let queue = Arc::new(FairQueue::new(setting.capacity)?);
    let left = Arc::new(AtomicUsize::new(shape.producers));
    let ins =
        (0..shape.producers).map(|_| WayIn { queue: queue.clone(), left: left.clone() }).collect();
    let outs = (0..shape.consumers).map(|_| WayOut(queue.clone())).collect();
    Ok(w4_queue::measure(setting, shape, ins, outs))
}

pub(crate) fn w4_gate(setting: &Setting, is_handed: bool) -> Result<Record> {
    if setting.peer != "keylane-gate" {
        return Err(setting.unknown_peer());
    }
    let gates = [1, 1].map(|slots| Slots::new(slots).expect("there is a slot"));
    Ok(if is_handed {
        let gates: &'static [Slots; 2] = Box::leak(Box::new(gates));
        gates.iter().for_each(|gate| _ = gate.acquire().expect("the gate is open").forget());
        w4_gate::handed(
            setting,
            |side| _ = gates[side].acquire().expect("the gate is open").forget(),
            |side| gates[side].release(1),
        )
    } else {
        w4_gate::alone(setting, || drop(std::hint::black_box(gates[0].acquire())))
    })
}

pub(crate) fn w5(setting: &Setting, question: Question) -> Result<Record> {
    Ok(match setting.peer.as_str() {
        "keylane" => w5_memory::measure(setting, question, |_| Closures(closures(setting))),
        "keylane-handle" => w5_memory::measure(setting, question, |_| Handles(closures(setting))),
        "keylane-typed" => {
            w5_memory::measure(setting, question, |world| Messages(steps(setting, world)))
        }
        _ => return Err(setting.unknown_peer()),
    })
}

pub(crate) fn w6(setting: &Setting, shape: &w6_predicate::Shape) -> Result<Record> {
    let pool = || closures(setting);
    Ok(match setting.peer.as_str() {
        "keylane" => w6_predicate::measure(setting, shape, Closures(pool())),
        "keylane-class" => w6_predicate::measure(setting, shape, Described::<CLASS>(pool())),
        "keylane-summary" => w6_predicate::measure(setting, shape, Described::<SUMMARY>(pool())),
        "keylane-predicate" => w6_predicate::measure(setting, shape, Described::<PLAIN>(pool())),
        _ => return Err(setting.unknown_peer()),
    })
}

type ClosurePool = &'static Keylane<u64>;

/// The message is the task's place; the key comes with it, the world is the handler's.
type StepPool = &'static HandlerPool<u64, u32>;

/// The place that makes a message hold its worker at the gate. No plan is that long.
const AT_GATE: u32 = u32::MAX;

fn closures(setting: &Setting) -> ClosurePool {
    let pool = Keylane::<u64>::builder().workers(setting.workers).capacity(setting.capacity);
    Box::leak(Box::new(pool.build().expect("the setting is valid")))
}

fn steps(setting: &Setting, world: &'static World) -> StepPool {
    handler(setting, move |&key, place| match place {
        AT_GATE => world.wait_at_gate(),
        _ => world.step((key as u32, place)),
    })
}

fn sleeps(setting: &Setting, world: &'static World) -> StepPool {
    handler(setting, move |&key, place| Sleep { world, step: (key as u32, place) }.run())
}

fn handler(setting: &Setting, handle: impl Fn(&u64, u32) + Send + Sync + 'static) -> StepPool {
    let pool = Keylane::<u64>::builder().workers(setting.workers).capacity(setting.capacity);
    Box::leak(Box::new(pool.build_handler(handle).expect("the setting is valid")))
}

/// `execute`.
#[derive(Clone, Copy)]
struct Closures(ClosurePool);

impl Pool for Closures {
    type Submitter = Closures;

    fn submitter(&self) -> Closures {
        *self
    }
}

impl<J: Job> Submit<J> for Closures {
    #[inline]
    fn submit(&mut self, key: u64, job: J) {
        assert!(self.0.execute(key, move || job.run()).is_ok(), "the pool stays open");
    }
}

impl<J: Job> SubmitGroup<J> for Closures {
    #[inline]
    fn submit_group(&mut self, keys: [u64; 4], job: J) {
        assert!(self.0.execute(keys, move || job.run()).is_ok(), "the pool stays open");
    }
}

/// `execute` with a descriptor, of which this says what it knows of itself.
#[derive(Clone, Copy)]
struct Described<const KNOWN: u8>(ClosurePool);

const PLAIN: u8 = 0;
const SUMMARY: u8 = 1;
const CLASS: u8 = 2;

/// Compatible with what has no key in common.
enum KeySet<const KNOWN: u8> {
    One([u64; 1]),
    Four([u64; 4]),
}

impl<const KNOWN: u8> KeySet<KNOWN> {
    fn keys(&self) -> &[u64] {
        match self {
            KeySet::One(keys) => keys,
            KeySet::Four(keys) => keys,
        }
    }
}

impl<const KNOWN: u8> Compatibility for KeySet<KNOWN> {
    fn is_compatible(&self, other: &Self) -> bool {
        let others = other.keys();
        !self.keys().iter().any(|key| others.contains(key))
    }

    fn class(&self) -> Option<u64> {
        match self {
            KeySet::One(keys) if KNOWN == CLASS => Some(keys[0]),
            _ => None,
        }
    }

    fn summary(&self) -> u64 {
        match KNOWN {
            // A bit for each key, which it shares with few others.
            SUMMARY => self.keys().iter().fold(0, |bits, key| bits | 1 << (key % 64)),
            _ => u64::MAX,
        }
    }
}

impl<const KNOWN: u8> Pool for Described<KNOWN> {
    type Submitter = Self;

    fn submitter(&self) -> Self {
        *self
    }
}

impl<J: Job, const KNOWN: u8> Submit<J> for Described<KNOWN> {
    fn submit(&mut self, key: u64, job: J) {
        let claims = Claims::described(KeySet::<KNOWN>::One([key]));
        assert!(self.0.execute(claims, move || job.run()).is_ok(), "the pool stays open");
    }
}

impl<J: Job, const KNOWN: u8> SubmitGroup<J> for Described<KNOWN> {
    fn submit_group(&mut self, keys: [u64; 4], job: J) {
        let claims = Claims::described(KeySet::<KNOWN>::Four(keys));
        assert!(self.0.execute(claims, move || job.run()).is_ok(), "the pool stays open");
    }
}

/// `submit`, the handle dropped at once.
#[derive(Clone, Copy)]
struct Handles(ClosurePool);

impl Pool for Handles {
    type Submitter = Handles;

    fn submitter(&self) -> Handles {
        *self
    }
}

impl<J: Job> Submit<J> for Handles {
    #[inline]
    fn submit(&mut self, key: u64, job: J) {
        assert!(self.0.submit(key, move || job.run()).is_ok(), "the pool stays open");
    }
}

/// `execute_many`.
struct ClosureBatches(ClosurePool);

impl Pool for ClosureBatches {
    type Submitter = ClosureBatch;

    fn submitter(&self) -> ClosureBatch {
        ClosureBatch { pool: self.0, batch: Vec::with_capacity(BATCH) }
    }
}

struct ClosureBatch {
    pool: ClosurePool,
    batch: Vec<(u64, Tiny)>,
}

impl Submit<Tiny> for ClosureBatch {
    #[inline]
    fn submit(&mut self, key: u64, job: Tiny) {
        self.batch.push((key, job));
        if self.batch.len() == BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let batch = self.batch.drain(..).map(|(key, job)| (key, move || job.run()));
        assert!(self.pool.execute_many(batch).is_ok(), "the pool stays open");
    }
}

/// `send`.
#[derive(Clone, Copy)]
struct Messages(StepPool);

impl Messages {
    #[inline]
    fn send(&self, key: u64, place: u32) {
        assert!(self.0.send(key, place).is_ok(), "the pool stays open");
    }
}

impl Pool for Messages {
    type Submitter = Messages;

    fn submitter(&self) -> Messages {
        *self
    }
}

impl Submit<Tiny> for Messages {
    #[inline]
    fn submit(&mut self, key: u64, job: Tiny) {
        self.send(key, job.step.1);
    }
}

impl Submit<Sleep> for Messages {
    fn submit(&mut self, key: u64, job: Sleep) {
        self.send(key, job.step.1);
    }
}

impl Submit<Gate> for Messages {
    fn submit(&mut self, key: u64, _gate: Gate) {
        self.send(key, AT_GATE);
    }
}

/// `send_many`.
struct MessageBatches(StepPool);

impl Pool for MessageBatches {
    type Submitter = MessageBatch;

    fn submitter(&self) -> MessageBatch {
        MessageBatch { pool: self.0, batch: Vec::with_capacity(BATCH) }
    }
}

struct MessageBatch {
    pool: StepPool,
    batch: Vec<(u64, u32)>,
}

impl Submit<Tiny> for MessageBatch {
    #[inline]
    fn submit(&mut self, key: u64, job: Tiny) {
        self.batch.push((key, job.step.1));
        if self.batch.len() == BATCH {
            self.flush();
        }
    }

    fn flush(&mut self) {
        assert!(self.pool.send_many(self.batch.drain(..)).is_ok(), "the pool stays open");
    }
}

/// The last producer closes the queue.
struct WayIn {
    queue: Arc<FairQueue<u64>>,
    /// The producers that have not gone.
    left: Arc<AtomicUsize>,
}

impl Put for WayIn {
    #[inline]
    fn put(&mut self, item: u64) {
        self.queue.push(item).expect("it is closed by the last producer");
    }
}

impl Drop for WayIn {
    fn drop(&mut self) {
        if self.left.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.queue.close();
        }
    }
}

struct WayOut(Arc<FairQueue<u64>>);

impl Take for WayOut {
    #[inline]
    fn take(&mut self) -> Option<u64> {
        self.0.pop().ok()
    }
}
