//! All reasons for pausing a key, at once, under random programs: rates, pauses, taking waiting
//! tasks, tasks that share or limit their key, and jobs, which are paused as well.
//!
//! There are fewer workers than tasks, so that tasks wait for a worker alone, and every body stops
//! at a gate that the test opens. After each step the pool comes to rest: each worker is in a body,
//! or asleep. The test then checks of every body that begins: its key is not paused, its task was
//! not taken, its key has had a token for it, no conflicting task runs beside it, and no later task
//! has begun before it. In the end everything is resumed, and everything ends.

use std::collections::BTreeSet;
use std::sync::mpsc;
use std::time::Duration;

use crate::common::{AnyHasher, LONG, Rng, effort, eventually, soon};
use keylane::observe::PauseReason;
use keylane::{Claims, Job, MockClock, PendingTask, Pool, Rate};

const KEYS: u64 = 2;
const STEPS: usize = 100;
const PROGRAMS: u64 = 60;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Alone,
    Shared,
    Limited(u16),
}

impl Mode {
    fn random(rng: &mut Rng) -> Self {
        match rng.below(8) {
            0..=3 => Mode::Shared,
            4..=6 => Mode::Limited(1 + rng.below(3) as u16),
            _ => Mode::Alone,
        }
    }

    fn claims(self, key: u32) -> Claims<u32> {
        match self {
            Mode::Alone => Claims::exclusive(key),
            Mode::Shared => Claims::shared(key),
            Mode::Limited(most) => Claims::limited(key, most),
        }
    }

    fn runs_beside(self, other: Mode) -> bool {
        matches!(
            (self, other),
            (Mode::Shared, Mode::Shared) | (Mode::Limited(2..), Mode::Limited(2..))
        )
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    Waiting,
    Running,
    Ended,
    Taken,
}

#[derive(Debug)]
struct Task {
    key: u32,
    mode: Mode,
    state: State,
    /// Its place among the tasks that were submitted on their own: a job's subtasks come when they
    /// are split.
    place: Option<usize>,
    gate: Option<mpsc::Sender<()>>,
}

/// A key's rate: at most `burst` tasks at once, and one more after each `interval`.
#[derive(Clone, Copy, Debug)]
struct Bound {
    interval: u64,
    burst: u64,
}

#[derive(Debug, Default)]
struct Key {
    paused: bool,
    rate: Option<Bound>,
    begun: u64,
}

enum Event {
    Begin(usize),
    End(usize),
}

struct World<S: AnyHasher> {
    /// Dropped before the pool, which waits for the bodies that wait for their gates.
    tasks: Vec<Task>,
    keys: Vec<Key>,
    jobs: Vec<Job<()>>,
    pool: Pool<u32, S>,
    workers: usize,
    clock: MockClock,
    now: u64,
    events: mpsc::Receiver<Event>,
    say: mpsc::Sender<Event>,
    /// Log of the steps, to be printed when a program fails.
    log: Vec<String>,
}

impl<S: AnyHasher> World<S> {
    fn new(workers: usize, rng: &mut Rng) -> Self {
        let clock = MockClock::new();
        let builder = Pool::<u32>::builder().workers(workers).clock(&clock);
        let pool = builder.hasher(S::default()).build().unwrap();
        let mut keys: Vec<Key> = (0..KEYS).map(|_| Key::default()).collect();
        for (n, key) in keys.iter_mut().enumerate().skip(1) {
            let bound = Bound { interval: 5 + rng.below(10), burst: 1 + rng.below(2) };
            let rate = Rate::every(Duration::from_nanos(bound.interval)).burst(bound.burst as u32);
            pool.keys().set_rate(&(n as u32), Some(rate)).unwrap();
            key.rate = Some(bound);
        }
        let (say, events) = mpsc::channel();
        let log = vec![format!("{workers} workers, {keys:?}")];
        World {
            tasks: Vec::new(),
            keys,
            jobs: Vec::new(),
            pool,
            workers,
            clock,
            now: 0,
            events,
            say,
            log,
        }
    }

    fn fail(&self, why: &str) -> ! {
        panic!("{why}\n{}\n{:#?}\n{:#?}", self.log.join("\n"), self.keys, self.tasks);
    }

    /// A new task, and its body.
    fn add(&mut self, key: u32, mode: Mode, place: Option<usize>) -> impl FnOnce() + Send + use<S> {
        let (open, gate) = mpsc::channel::<()>();
        let (n, say) = (self.tasks.len(), self.say.clone());
        self.tasks.push(Task { key, mode, state: State::Waiting, place, gate: Some(open) });
        move || {
            // The receiver is gone once the program is over.
            let _ = say.send(Event::Begin(n));
            let _ = gate.recv();
            let _ = say.send(Event::End(n));
        }
    }

    fn running(&self) -> usize {
        self.tasks.iter().filter(|task| task.state == State::Running).count()
    }

    fn begins(&mut self, n: usize) {
        let Task { key, mode, state, place, .. } = self.tasks[n];
        self.log.push(format!("  {n} begins: {mode:?} of {key}"));
        if state != State::Waiting {
            self.fail(&format!("{n} begins, and is {state:?}"));
        }
        self.tasks[n].state = State::Running;
        let it = &mut self.keys[key as usize];
        it.begun += 1;
        if it.paused {
            self.fail(&format!("{n} begins, and its key is paused"));
        }
        if it.rate.is_some_and(|rate| it.begun > rate.burst + self.now / rate.interval) {
            self.fail(&format!("{n} begins without a token"));
        }
        let of_key = || self.tasks.iter().enumerate().filter(|(_, task)| task.key == key);
        let beside: Vec<_> =
            of_key().filter(|(at, task)| *at != n && task.state == State::Running).collect();
        if let Some((other, _)) = beside.iter().find(|(_, task)| !mode.runs_beside(task.mode)) {
            self.fail(&format!("{n} begins beside {other}"));
        }
        let least =
            beside.iter().map(|(_, task)| task.mode).chain([mode]).filter_map(|mode| match mode {
                Mode::Limited(most) => Some(most),
                Mode::Alone | Mode::Shared => None,
            });
        if least.min().is_some_and(|least| beside.len() >= least.into()) {
            self.fail(&format!("{n} begins beside too many"));
        }
        let overtaken = of_key().find(|(_, task)| {
            let is_before = task.place.zip(place).is_some_and(|(its, own)| its < own);
            is_before && task.state == State::Waiting && !task.mode.runs_beside(mode)
        });
        if let Some((other, _)) = overtaken {
            self.fail(&format!("{n} overtakes {other}"));
        }
    }

    fn learn(&mut self, event: Event) {
        match event {
            Event::Begin(n) => self.begins(n),
            Event::End(n) => self.tasks[n].state = State::Ended,
        }
    }

    fn listen(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.learn(event);
        }
    }

    /// Waits until each worker is in a body or asleep, and the timer has done all that is due.
    fn rest(&mut self) {
        let mut rests = || {
            self.listen();
            let is_due = |hold| matches!(hold, PauseReason::RateLimited { left } if left.is_zero());
            if self.pool.keys().list_paused().into_iter().any(|held| is_due(held.hold)) {
                return false;
            }
            // A task that the timer has resumed is ready before its deadline is removed, and until
            // a worker takes it. A worker that was notified is not asleep.
            let snapshot = self.pool.inspect().snapshot(0);
            let asleep = snapshot.workers_asleep;
            asleep + self.running() == self.workers && (asleep == 0 || snapshot.ready == 0)
        };
        eventually(&mut rests);
        self.listen();
    }

    fn submit(&mut self, rng: &mut Rng) {
        let (key, mode) = (rng.below(KEYS) as u32, Mode::random(rng));
        self.log.push(format!("submit {}: {mode:?} of {key}", self.tasks.len()));
        let body = self.add(key, mode, Some(self.tasks.len()));
        self.pool.execute(mode.claims(key), body).unwrap();
    }

    fn submit_job(&mut self, rng: &mut Rng) {
        let (key, mode) = (rng.below(KEYS) as u32, Mode::random(rng));
        let subtasks = 1 + rng.below(4);
        let first = self.tasks.len();
        self.log.push(format!("job {}, {first} and on: {mode:?} of {key}", self.jobs.len()));
        let mut subtask = || (mode.claims(key), self.add(key, mode, None));
        let subtasks: Vec<_> = (0..subtasks).map(|_| subtask()).collect();
        let job = self.pool.job("job").each_keyed(subtasks).run();
        self.jobs.push(job.unwrap());
    }

    fn finish(&mut self, rng: &mut Rng) {
        let running: Vec<_> =
            (0..self.tasks.len()).filter(|&n| self.tasks[n].state == State::Running).collect();
        if !running.is_empty() {
            let n = running[rng.below(running.len() as u64) as usize];
            self.log.push(format!("finish {n}"));
            self.open(n);
        }
    }

    fn open(&mut self, n: usize) {
        self.tasks[n].gate = None;
        while self.tasks[n].state == State::Running {
            let event = self.events.recv_timeout(LONG);
            self.learn(event.expect("its gate is open"));
        }
    }

    fn set_paused(&mut self, key: u64, paused: bool) {
        self.log.push(format!("paused {key}: {paused}"));
        let before = std::mem::replace(&mut self.keys[key as usize].paused, paused);
        let changed = match paused {
            true => self.pool.keys().pause(&(key as u32)),
            false => self.pool.keys().resume(&(key as u32)),
        };
        assert_eq!(changed, before != paused);
    }

    /// Takes the waiting tasks of a key, which must be all tasks of that key alone that have not
    /// begun.
    fn take(&mut self, key: u64) {
        self.log.push(format!("take {key}"));
        let unrun: Vec<PendingTask<u32>> = self.pool.keys().take(&(key as u32));
        let is_taken = |task: &&mut Task| {
            u64::from(task.key) == key && task.state == State::Waiting && task.place.is_some()
        };
        let taken = self.tasks.iter_mut().filter(is_taken);
        let taken = taken.map(|task| task.state = State::Taken).count();
        if unrun.len() != taken {
            self.fail(&format!("{} were taken instead of {taken}", unrun.len()));
        }
    }

    fn pass(&mut self, nanos: u64) {
        self.log.push(format!("pass {nanos}"));
        self.now += nanos;
        self.clock.advance(Duration::from_nanos(nanos));
    }

    fn step(&mut self, rng: &mut Rng) {
        match rng.below(16) {
            0..=3 => self.submit(rng),
            4 => self.submit_job(rng),
            5..=7 => self.finish(rng),
            8 | 9 => self.pass(rng.below(20)),
            10 => self.set_paused(rng.below(KEYS), true),
            11 | 12 => self.set_paused(rng.below(KEYS), false),
            13 => self.take(rng.below(KEYS)),
            _ if self.jobs.is_empty() => {}
            kind => {
                let job = rng.below(self.jobs.len() as u64) as usize;
                self.log.push(format!("job {job} paused: {}", kind == 14));
                match kind {
                    14 => self.jobs[job].pause(),
                    _ => self.jobs[job].resume(),
                };
            }
        }
    }

    /// Everything continues.
    fn end(&mut self) {
        (0..KEYS).for_each(|key| self.set_paused(key, false));
        for job in &self.jobs {
            job.resume();
        }
        let barrier = self.pool.submit(Claims::barrier(), || {}).unwrap();
        self.tasks.iter_mut().for_each(|task| task.gate = None);
        let open: BTreeSet<usize> = (0..self.tasks.len()).collect();
        let is_open = |world: &Self, n: &usize| {
            matches!(world.tasks[*n].state, State::Waiting | State::Running)
        };
        while open.iter().any(|n| is_open(self, n)) {
            self.pass(10);
            self.rest();
        }
        assert!(barrier.wait().unwrap().is_completed());
        for job in std::mem::take(&mut self.jobs) {
            assert!(job.wait().unwrap().is_completed());
        }
        self.pass(1000);
        eventually(|| self.pool.keys().list_paused().is_empty());
        self.pool.shutdown_timeout(LONG).unwrap();
    }
}

fn run<S: AnyHasher>(seed: u64) {
    let mut rng = Rng(seed);
    let mut world = World::<S>::new(1 + seed as usize % 2, &mut rng);
    for _ in 0..STEPS {
        world.rest();
        world.step(&mut rng);
    }
    world.rest();
    world.end();
}

#[test]
fn random_programs_with_keys_spread() {
    (0..PROGRAMS * effort()).for_each(|seed| soon(move || run::<keylane::KeyBuildHasher>(seed)));
}

#[test]
fn random_programs_with_all_keys_colliding() {
    (0..PROGRAMS * effort()).for_each(|seed| soon(move || run::<crate::common::Collide>(seed)));
}
