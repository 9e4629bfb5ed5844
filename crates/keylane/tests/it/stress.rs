//! A few million tasks with skewed keys, several producers, rollups, readers, barriers, cancelled
//! tasks and a pool that changes its size: per key in order, never two at a time, none lost, none
//! twice.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use crate::common::{Rng, effort, soon};
use keylane::{Claims, Pool};

const KEYS: u32 = 1_000;
const PRODUCERS: u64 = 3;
const TASKS: u64 = 250_000;

/// State of each key. Only a task that has the key exclusively writes.
struct Cell {
    /// How many are at it: one writer is `WRITER`, each reader 1.
    inside: AtomicU64,
    /// For each producer the number of its last task here.
    last: [AtomicU64; PRODUCERS as usize],
}

const WRITER: u64 = 1 << 32;

impl Cell {
    fn new() -> Self {
        Cell { inside: AtomicU64::new(0), last: Default::default() }
    }

    fn write(&self, producer: u64, n: u64) {
        let others = self.inside.fetch_add(WRITER, Ordering::Relaxed);
        assert_eq!(others, 0, "a writer is alone");
        let last = self.last[producer as usize].load(Ordering::Relaxed);
        assert!(last < n, "task {n} of producer {producer} runs after {last}");
        self.last[producer as usize].store(n, Ordering::Relaxed);
        self.inside.fetch_sub(WRITER, Ordering::Relaxed);
    }

    fn read(&self, producer: u64, n: u64) {
        let others = self.inside.fetch_add(1, Ordering::Relaxed);
        assert!(others < WRITER, "no writer is here");
        assert!(self.last[producer as usize].load(Ordering::Relaxed) < n, "no later one was here");
        self.inside.fetch_sub(1, Ordering::Relaxed);
    }
}

/// About Zipf's law: small numbers are frequent.
fn skewed(rng: &mut Rng) -> u32 {
    let uniform = (rng.next() >> 11) as f64 / (1_u64 << 53) as f64;
    (f64::from(KEYS).powf(uniform) as u32 - 1).min(KEYS - 1)
}

/// Each task of each producer once; a bit each.
struct Ran(Vec<AtomicU64>);

impl Ran {
    fn new() -> Self {
        Ran((0..TASKS.div_ceil(64)).map(|_| AtomicU64::new(0)).collect())
    }

    fn mark(&self, n: u64) {
        let before = self.0[n as usize / 64].fetch_or(1 << (n % 64), Ordering::Relaxed);
        assert_eq!(before >> (n % 64) & 1, 0, "task {n} runs twice");
    }

    fn count(&self) -> u64 {
        self.0.iter().map(|word| u64::from(word.load(Ordering::Relaxed).count_ones())).sum()
    }
}

#[test]
fn a_million_mixed_tasks() {
    soon(|| {
        let pool = Pool::<u32>::builder().workers(3).capacity(4_096).build().unwrap();
        let cells: Arc<Vec<Cell>> = Arc::new((0..KEYS).map(|_| Cell::new()).collect());
        let ran: Vec<Arc<Ran>> = (0..PRODUCERS).map(|_| Arc::new(Ran::new())).collect();
        let (cancelled, over) = (AtomicU64::new(0), AtomicBool::new(false));
        thread::scope(|scope| {
            let producers: Vec<_> = (0..PRODUCERS)
                .map(|producer| {
                    let (pool, cells, cancelled) = (&pool, &cells, &cancelled);
                    let ran = ran[producer as usize].clone();
                    scope.spawn(move || produce(pool, cells, &ran, producer, cancelled))
                })
                .collect();
            let (pool, over) = (&pool, &over);
            scope.spawn(move || {
                let mut rng = Rng(99);
                while !over.load(Ordering::Relaxed) {
                    pool.settings().set_workers(1 + rng.below(4) as usize).unwrap();
                    pool.settings().set_capacity(64 + rng.below(8_000) as usize).unwrap();
                    let _ = pool.inspect().snapshot(5);
                    // Often enough, and leaves the processors to the tasks.
                    (0..200).for_each(|_| thread::yield_now());
                }
            });
            producers.into_iter().for_each(|producer| producer.join().unwrap());
            over.store(true, Ordering::Relaxed);
        });
        pool.shutdown().unwrap();
        let snapshot = pool.inspect().snapshot(1);
        assert_eq!((snapshot.panicked, snapshot.unfinished), (0, 0));
        assert!(snapshot.hottest.is_empty());
        let all: u64 = ran.iter().map(|ran| ran.count()).sum();
        assert_eq!(all + cancelled.load(Ordering::Relaxed), PRODUCERS * TASKS);
    });
}

fn produce(
    pool: &Pool<u32>,
    cells: &Arc<Vec<Cell>>,
    ran: &Arc<Ran>,
    producer: u64,
    cancelled: &AtomicU64,
) {
    let mut rng = Rng(producer + 1);
    let mut n = 0;
    while n < TASKS {
        let key = skewed(&mut rng);
        let number = n + 1;
        let (cells, ran) = (cells.clone(), ran.clone());
        match rng.below(1_000) {
            0..10 => {
                let keys: Vec<u32> = (0..2 + rng.below(3)).map(|_| skewed(&mut rng)).collect();
                let mut own = keys.clone();
                own.sort_unstable();
                own.dedup();
                let work = move || {
                    own.iter().for_each(|key| cells[*key as usize].write(producer, number));
                    ran.mark(number - 1);
                };
                pool.execute(keys, work).unwrap();
            }
            10..60 => {
                let work = move || {
                    cells[key as usize].read(producer, number);
                    ran.mark(number - 1);
                };
                pool.execute(Claims::shared(key), work).unwrap();
            }
            60..70 => pool.execute(Claims::none(), move || ran.mark(number - 1)).unwrap(),
            70 => {
                let work = move || {
                    let inside = |cell: &Cell| cell.inside.load(Ordering::Relaxed);
                    assert!(cells.iter().all(|cell| inside(cell) == 0), "a barrier is alone");
                    ran.mark(number - 1);
                };
                pool.execute(Claims::barrier(), work).unwrap();
            }
            71..100 => {
                let work = move || {
                    cells[key as usize].write(producer, number);
                    ran.mark(number - 1);
                };
                let handle = pool.submit(key, work).unwrap();
                if rng.below(2) == 0 && handle.cancel() {
                    cancelled.fetch_add(1, Ordering::Relaxed);
                }
            }
            100..104 if n + 300 < TASKS => {
                let batch = (0..300).map(|i| {
                    let (cells, ran, key) = (cells.clone(), ran.clone(), skewed(&mut rng));
                    let work = move || {
                        cells[key as usize].write(producer, number + i);
                        ran.mark(number + i - 1);
                    };
                    (key, work)
                });
                assert_eq!(pool.execute_many(batch).unwrap(), 300);
                n += 299;
            }
            _ => {
                let work = move || {
                    cells[key as usize].write(producer, number);
                    ran.mark(number - 1);
                };
                pool.execute(key, work).unwrap();
            }
        }
        n += 1;
    }
}

#[test]
fn many_messages() {
    soon(|| {
        let messages = 300_000 * effort();
        let cells: Arc<Vec<Cell>> = Arc::new((0..KEYS).map(|_| Cell::new()).collect());
        let handled = Arc::new(AtomicU64::new(0));
        let (own, count) = (cells.clone(), handled.clone());
        let pool = Pool::<u32>::builder()
            .workers(2)
            .capacity(10_000)
            .self_check(true)
            .build_handler(move |&key: &u32, (producer, n): (u64, u64)| {
                own[key as usize].write(producer, n);
                count.fetch_add(1, Ordering::Relaxed);
            })
            .unwrap();
        thread::scope(|scope| {
            for producer in 0..2 {
                let pool = &pool;
                scope.spawn(move || {
                    let mut rng = Rng(producer + 7);
                    let mut n = 1;
                    while n <= messages {
                        if rng.below(10) == 0 {
                            pool.send(skewed(&mut rng), (producer, n)).unwrap();
                            n += 1;
                            continue;
                        }
                        let end = (n + rng.below(600)).min(messages);
                        let many = (n..=end).map(|n| (skewed(&mut rng), (producer, n)));
                        pool.send_many(many).unwrap();
                        n = end + 1;
                    }
                });
            }
        });
        pool.shutdown().unwrap();
        assert_eq!(pool.inspect().snapshot(0).panicked, 0);
        assert!(pool.inspect().snapshot(0).violations.unwrap().is_none());
        assert_eq!(handled.load(Ordering::Relaxed), 2 * messages);
    });
}
