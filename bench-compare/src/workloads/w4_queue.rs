//! W4: a bounded queue of 1,024 numbers between producers and consumers that do nothing else; and
//! many producers at a full queue with one slow consumer, which shows the producers that get in.
//!
//! A run lasts for a time, not for a number of items, as the slowest rival takes a thousand times as
//! long for an item as the fastest. Each item carries its producer's number and its place in that
//! producer's sequence, and consumers check that the places of each producer ascend: without a gap
//! where there is one consumer. All that was sent must have come, by number and by sum.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use super::Setting;
use crate::args::Args;
use crate::record::Record;
use crate::rivals::{channels, java_queue};
use crate::{Result, ours, probe};

pub(crate) const RIVALS: &[&str] = &[
    "crossbeam",
    "flume",
    "kanal",
    "async-channel",
    "tokio-mpsc",
    "std-sync",
    "java-abq",
    "java-abq-fair",
];

/// Peers with one consumer, as their receivers cannot be shared.
pub(crate) const ONE_CONSUMER: &[&str] = &["tokio-mpsc", "std-sync"];

pub(crate) const CAPACITY: usize = 1024;

/// What the slow consumer does between two items.
const SLOW: Duration = Duration::from_micros(20);

/// How long the slow run goes before waits are counted, so that the queue is full by then.
const FILLING: Duration = Duration::from_millis(300);

/// A way in. Dropping the last one closes the queue.
pub(crate) trait Put: Send {
    fn put(&mut self, item: u64);
}

/// A way out.
pub(crate) trait Take: Send {
    /// Nothing once the queue is closed and empty.
    fn take(&mut self) -> Option<u64>;
}

/// What a run is told beside its setting.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    pub(crate) producers: usize,
    pub(crate) consumers: usize,
    pub(crate) time: Duration,
    /// One consumer, which takes an item every 20 microseconds.
    pub(crate) is_slow: bool,
}

pub(crate) fn run(mut args: Args) -> Result<Record> {
    let defaults = Setting { keys: 0, workers: 1, tasks: 0, ..Setting::defaults() };
    let defaults = Setting { capacity: CAPACITY, ..defaults };
    let setting = Setting::from_args(&mut args, defaults)?;
    let time = Duration::from_millis(args.take("millis", 1000)?);
    let is_slow = args.take("slow", false)?;
    args.finish()?;
    let (producers, consumers) = (setting.producers, setting.workers);
    if is_slow && consumers != 1 {
        return Err("there is one slow consumer".into());
    }
    let shape = Shape { producers, consumers, time, is_slow };
    match setting.peer.as_str() {
        "java-abq" | "java-abq-fair" => java_queue::run(&setting, &shape),
        peer => match channels::run(peer, &setting, &shape) {
            Some(record) => record,
            None => ours::w4(&setting, &shape),
        },
    }
}

/// As many ends as there are threads.
pub(crate) fn copies<T: Clone>(end: T, count: usize) -> Vec<T> {
    vec![end; count]
}

pub(crate) fn measure<P: Put, T: Take>(
    setting: &Setting,
    shape: &Shape,
    ins: Vec<P>,
    outs: Vec<T>,
) -> Record {
    if shape.is_slow {
        measure_slow(setting, shape, ins, outs)
    } else {
        measure_rate(setting, shape, ins, outs)
    }
}

/// What one end saw go by.
#[derive(Clone, Copy, Default)]
struct Sum {
    items: u64,
    /// Of all items, wrapping.
    total: u64,
    errors: u64,
}

impl Sum {
    fn add(self, other: Sum) -> Sum {
        Sum {
            items: self.items + other.items,
            total: self.total.wrapping_add(other.total),
            errors: self.errors + other.errors,
        }
    }
}

/// The place of an item is in its lower bits, its producer above.
const PLACE_BITS: u32 = 48;

fn item(producer: usize, place: u64) -> u64 {
    (producer as u64) << PLACE_BITS | place
}

/// Takes items until the queue is closed and empty, and checks their order.
fn consume<T: Take>(out: &mut T, shape: &Shape, mut after_each: impl FnMut()) -> Sum {
    let mut next = vec![0; shape.producers];
    let mut sum = Sum::default();
    while let Some(item) = out.take() {
        let (producer, place) = ((item >> PLACE_BITS) as usize, item & ((1 << PLACE_BITS) - 1));
        let due = next[producer];
        let wrong = if shape.consumers == 1 { place != due } else { place < due };
        next[producer] = place + 1;
        sum = sum.add(Sum { items: 1, total: item, errors: wrong.into() });
        after_each();
    }
    sum
}

fn measure_rate<P: Put, T: Take>(
    setting: &Setting,
    shape: &Shape,
    ins: Vec<P>,
    outs: Vec<T>,
) -> Record {
    let stop = &AtomicBool::new(false);
    let (cpu, start) = (probe::own_cpu(), Instant::now());
    let (sent, came) = thread::scope(|scope| {
        let producers: Vec<_> = ins
            .into_iter()
            .enumerate()
            .map(|(producer, mut way)| {
                scope.spawn(move || {
                    let mut sum = Sum::default();
                    while !stop.load(Relaxed) {
                        let item = item(producer, sum.items);
                        way.put(item);
                        sum = sum.add(Sum { items: 1, total: item, errors: 0 });
                    }
                    sum
                })
            })
            .collect();
        let consumers: Vec<_> = outs
            .into_iter()
            .map(|mut out| scope.spawn(move || consume(&mut out, shape, || {})))
            .collect();
        thread::sleep(shape.time);
        stop.store(true, Relaxed);
        (all(producers), all(consumers))
    });
    let wall = start.elapsed();
    let mut record = finish(setting, sent, came);
    let items = came.items as f64;
    record.figure("secs", wall.as_secs_f64());
    record.figure("items_m_per_sec", items / wall.as_secs_f64() / 1e6);
    record.figure("ns_per_item", wall.as_secs_f64() * 1e9 / items);
    record.figure("cpu_ns_per_item", (probe::own_cpu() - cpu).as_secs_f64() * 1e9 / items);
    record
}

fn measure_slow<P: Put, T: Take>(
    setting: &Setting,
    shape: &Shape,
    ins: Vec<P>,
    mut outs: Vec<T>,
) -> Record {
    let (stop, counts) = (&AtomicBool::new(false), &AtomicBool::new(false));
    let mut out = outs.pop().expect("there is one consumer");
    drop(outs);
    let mut waits: Vec<Vec<u64>> = Vec::new();
    let (sent, came) = thread::scope(|scope| {
        let producers: Vec<_> = ins
            .into_iter()
            .enumerate()
            .map(|(producer, mut way)| {
                scope.spawn(move || {
                    let (mut sum, mut waits) = (Sum::default(), Vec::with_capacity(1 << 16));
                    while !stop.load(Relaxed) {
                        let (is_counted, begin) = (counts.load(Relaxed), Instant::now());
                        let item = item(producer, sum.items);
                        way.put(item);
                        sum = sum.add(Sum { items: 1, total: item, errors: 0 });
                        if is_counted && !stop.load(Relaxed) {
                            waits.push(begin.elapsed().as_nanos() as u64);
                        }
                    }
                    (sum, waits)
                })
            })
            .collect();
        let consumer = scope.spawn(move || {
            consume(&mut out, shape, || {
                let begin = Instant::now();
                while !stop.load(Relaxed) && begin.elapsed() < SLOW {
                    std::hint::spin_loop();
                }
            })
        });
        thread::sleep(FILLING);
        counts.store(true, Relaxed);
        thread::sleep(shape.time);
        stop.store(true, Relaxed);
        let mut sent = Sum::default();
        for producer in producers {
            let (sum, own) = producer.join().expect("no producer panics");
            sent = sent.add(sum);
            waits.push(own);
        }
        (sent, consumer.join().expect("the consumer does not panic"))
    });
    let mut record = finish(setting, sent, came);
    fairness(&mut record, waits);
    record
}

fn all(threads: Vec<thread::ScopedJoinHandle<'_, Sum>>) -> Sum {
    threads
        .into_iter()
        .map(|thread| thread.join().expect("no end panics"))
        .fold(Sum::default(), Sum::add)
}

fn finish(setting: &Setting, sent: Sum, came: Sum) -> Record {
    let mut record = Setting { tasks: came.items as usize, ..setting.clone() }.record("w4");
    record.all_done = (sent.items, sent.total) == (came.items, came.total);
    record.order_errors = came.errors as usize;
    record
}

/// Jain's index of what each producer got in (1 is even, 1 over their number is all for one), and
/// how long a put took, in microseconds.
fn fairness(record: &mut Record, waits: Vec<Vec<u64>>) {
    let counts: Vec<f64> = waits.iter().map(|own| own.len() as f64).collect();
    let (sum, squares) = (counts.iter().sum::<f64>(), counts.iter().map(|c| c * c).sum::<f64>());
    record.figure("jain", sum * sum / (counts.len() as f64 * squares));
    let mut all = waits.concat();
    all.sort_unstable();
    let at = |part: f64| all[((all.len() - 1) as f64 * part) as usize] as f64 / 1e3;
    record.figure("median_us", at(0.5));
    record.figure("p99_us", at(0.99));
    record.figure("max_us", at(1.0));
    record.figure("max_over_median", at(1.0) / at(0.5));
    record.figure("p99_over_median", at(0.99) / at(0.5));
}
