//! The whole contract, against a slow obvious reference, under random programs.
//!
//! `step_by_step`: every body stops at a gate that the test opens, so that after each step the
//! reference knows exactly how many bodies must run: as many as there are workers, or all that are
//! ready. That is "not more than that": an idle worker means that no task is ready. Each beginning
//! is checked against the order, each refusal and each admission against the bound, and the end of
//! the pool against all that is unfinished.
//!
//! `at_full_speed`: bodies run freely under several producers, and the history is checked afterwards.

mod common;

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak, mpsc};
use std::thread;

use common::{AnyHasher, Collide, LONG, Rng, Wakes, block_on, eventually, poll, soon};
use keylane::{
    Claims, Compatibility, Handle, KeyHasher, Outcome, Pool, SubmitErrorKind, UnrunTask,
};
use proptest::prelude::*;

/// What a task claims, to be looked at.
#[derive(Clone, Debug, PartialEq)]
enum Keys {
    /// Each with whether it is shared. Duplicates are welcome.
    Some(Vec<(u32, bool)>),
    /// And a descriptor.
    Described(Vec<(u32, bool)>, Mark),
    All,
}

/// The keys of a task, and its descriptor.
type Parts<'a> = (&'a [(u32, bool)], Option<&'a Mark>);

impl Keys {
    fn claims(&self) -> Claims<u32> {
        match self {
            Keys::All => Claims::barrier(),
            Keys::Some(keys) => keys.iter().fold(Claims::none(), |claims, &(key, shared)| {
                if shared { claims.and_shared(key) } else { claims.and_exclusive(key) }
            }),
            Keys::Described(keys, mark) => {
                let claims = Keys::Some(keys.clone()).claims();
                match mark.other_type {
                    true => claims.with_descriptor(OtherMark(*mark)),
                    false => claims.with_descriptor(*mark),
                }
            }
        }
    }

    fn conflicts(&self, other: &Keys) -> bool {
        let (Some((these, this)), Some((those, that))) = (self.parts(), other.parts()) else {
            return true;
        };
        let by_key = these.iter().any(|(key, shared)| {
            those.iter().any(|(also, with)| key == also && !(*shared && *with))
        });
        by_key || this.zip(that).is_some_and(|(this, that)| this.conflicts(that))
    }

    /// The keys and the descriptor, unless it is a barrier.
    fn parts(&self) -> Option<Parts<'_>> {
        match self {
            Keys::All => None,
            Keys::Some(keys) => Some((keys, None)),
            Keys::Described(keys, mark) => Some((keys, Some(mark))),
        }
    }
}

/// A descriptor: what it conflicts with has no rule to it, and only one of two says so.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Mark {
    kind: u64,
    other_type: bool,
}

/// The kinds of descriptors; those below `CLASSES` are classes.
const KINDS: u64 = 6;
const CLASSES: u64 = 3;

impl Mark {
    fn conflicts(&self, other: &Mark) -> bool {
        self.other_type == other.other_type && !(self.agrees(other) && other.agrees(self))
    }

    fn agrees(&self, other: &Mark) -> bool {
        self.kind > other.kind || !(self.kind * 5 + other.kind).is_multiple_of(3)
    }

    fn class(&self) -> Option<u64> {
        (self.kind < CLASSES).then_some(self.kind)
    }
}

impl Compatibility for Mark {
    fn is_compatible(&self, other: &Self) -> bool {
        self.agrees(other)
    }

    fn class(&self) -> Option<u64> {
        Mark::class(self)
    }
}

/// Descriptors of another type conflict with their own only.
struct OtherMark(Mark);

impl Compatibility for OtherMark {
    fn is_compatible(&self, other: &Self) -> bool {
        self.0.agrees(&other.0)
    }

    fn class(&self) -> Option<u64> {
        self.0.class()
    }
}

fn some_keys() -> impl Strategy<Value = Keys> {
    let key = || (0..4_u32, prop::bool::weighted(0.3));
    prop_oneof![
        6 => key().prop_map(|key| Keys::Some(vec![key])),
        4 => prop::collection::vec(key(), 2..4).prop_map(Keys::Some),
        1 => Just(Keys::Some(Vec::new())),
        5 => (prop::collection::vec(key(), 0..3), some_mark())
            .prop_map(|(keys, mark)| Keys::Described(keys, mark)),
        1 => Just(Keys::All),
    ]
}

fn some_mark() -> impl Strategy<Value = Mark> {
    (0..KINDS, prop::bool::weighted(0.2)).prop_map(|(kind, other_type)| Mark { kind, other_type })
}

#[derive(Clone, Debug)]
enum Step {
    Submit {
        keys: Keys,
        how: u8,
        fails: bool,
    },
    Batch {
        keys: Vec<Keys>,
        handles: bool,
    },
    /// Lets a running body go on; it first submits these.
    Finish {
        which: usize,
        inside: Vec<Keys>,
    },
    Cancel(usize),
    Detach(usize),
    Workers(usize),
    Capacity(usize),
    Close,
}

fn some_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => (some_keys(), any::<u8>(), prop::bool::weighted(0.1))
            .prop_map(|(keys, how, fails)| Step::Submit { keys, how, fails }),
        2 => (prop::collection::vec(some_keys(), 0..5), any::<bool>())
            .prop_map(|(keys, handles)| Step::Batch { keys, handles }),
        10 => (any::<usize>(), prop::collection::vec(some_keys(), 0..3), prop::bool::weighted(0.2))
            .prop_map(|(which, inside, submits)| Step::Finish {
                which,
                inside: if submits { inside } else { Vec::new() },
            }),
        2 => any::<usize>().prop_map(Step::Cancel),
        1 => any::<usize>().prop_map(Step::Detach),
        1 => (1..5_usize).prop_map(Step::Workers),
        1 => (1..14_usize).prop_map(Step::Capacity),
        1 => prop::bool::weighted(0.1).prop_map(|closes| match closes {
            true => Step::Close,
            false => Step::Detach(0),
        }),
    ]
}

/// How a program ends.
#[derive(Clone, Copy, Debug)]
enum End {
    Drain,
    Stop,
    Drop,
}

#[derive(Clone, Debug)]
struct Program {
    workers: usize,
    capacity: usize,
    steps: Vec<Step>,
    end: End,
}

fn some_program() -> impl Strategy<Value = Program> {
    let end = prop_oneof![Just(End::Drain), Just(End::Stop), Just(End::Drop)];
    (1..4_usize, 1..14_usize, prop::collection::vec(some_step(), 1..50), end)
        .prop_map(|(workers, capacity, steps, end)| Program { workers, capacity, steps, end })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Running,
    Ended,
    /// Before it began. Its turn is over as soon as it could have begun.
    Cancelled,
    /// Not accepted.
    Refused,
}

/// A task, as the reference knows it.
struct Task {
    keys: Keys,
    state: State,
    fails: bool,
    /// Lets the body go on, with what it is to submit. Dropped, it lets it go on with nothing.
    gate: Option<mpsc::Sender<Vec<Inner>>>,
    handle: Option<Handle<usize>>,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?}", self.state, self.keys)
    }
}

type Work = Box<dyn FnOnce() -> usize + Send>;
/// A task that a task submits: its keys and its body.
type Inner = (Claims<u32>, Work);

#[derive(Clone, Copy, Debug)]
enum Event {
    Begin(usize),
    End(usize),
    /// A task that was submitted from inside was accepted, or not.
    Inside {
        accepted: bool,
    },
}

struct World<S: AnyHasher> {
    /// Dropped before the pool, which waits for the bodies that wait for their gates.
    tasks: Vec<Task>,
    pool: Option<Arc<Pool<u32, S>>>,
    workers: usize,
    capacity: usize,
    closed: bool,
    /// No worker takes a task any more.
    stopped: bool,
    events: mpsc::Receiver<Event>,
    say: mpsc::Sender<Event>,
}

impl<S: AnyHasher> World<S> {
    fn new(program: &Program) -> Self {
        let pool = Pool::<u32>::builder()
            .workers(program.workers)
            .capacity(program.capacity)
            .hasher(S::default())
            .build()
            .unwrap();
        let (say, events) = mpsc::channel();
        World {
            pool: Some(Arc::new(pool)),
            tasks: Vec::new(),
            workers: program.workers,
            capacity: program.capacity,
            closed: false,
            stopped: false,
            events,
            say,
        }
    }

    fn pool(&self) -> &Pool<u32, S> {
        self.pool.as_ref().expect("it is there until the end")
    }

    // The reference.

    /// For each task, whether its turn is over at the latest when all workers have looked.
    fn over(&self) -> Vec<bool> {
        let mut over = Vec::new();
        for (n, task) in self.tasks.iter().enumerate() {
            over.push(match task.state {
                State::Ended | State::Refused => true,
                State::Cancelled => self.is_next(n, &over),
                State::Waiting | State::Running => false,
            });
        }
        over
    }

    /// Whether all that the task waits for is over.
    fn is_next(&self, n: usize, over: &[bool]) -> bool {
        self.tasks[..n]
            .iter()
            .zip(over)
            .all(|(before, over)| *over || !before.keys.conflicts(&self.tasks[n].keys))
    }

    fn count(&self, state: State) -> usize {
        self.tasks.iter().filter(|task| task.state == state).count()
    }

    /// How many bodies must run.
    fn expected_running(&self) -> usize {
        let running = self.count(State::Running);
        if self.stopped || running >= self.workers {
            return running;
        }
        let over = self.over();
        let ready = (0..self.tasks.len())
            .filter(|&n| self.tasks[n].state == State::Waiting && self.is_next(n, &over))
            .count();
        self.workers.min(running + ready)
    }

    /// The least and the most tasks that may count as unfinished. They differ by those that were
    /// cancelled, whose turns end only when a worker comes by.
    fn unfinished(&self) -> (usize, usize) {
        let open = self.count(State::Running) + self.count(State::Waiting);
        let over = self.over();
        let cancelled = |over_too: bool| {
            (0..self.tasks.len())
                .filter(|&n| self.tasks[n].state == State::Cancelled && (over_too || !over[n]))
                .count()
        };
        let all_looked = self.count(State::Running) < self.workers && !self.stopped;
        (open + cancelled(false), open + cancelled(!all_looked))
    }

    fn learn(&mut self, event: Event) {
        match event {
            Event::Begin(n) => {
                assert_eq!(self.tasks[n].state, State::Waiting, "task {n} begins: {self:#?}");
                let over = self.over();
                assert!(self.is_next(n, &over), "task {n} begins too early: {self:#?}");
                self.tasks[n].state = State::Running;
            }
            Event::End(n) => {
                assert_eq!(self.tasks[n].state, State::Running, "task {n} ends: {self:#?}");
                self.tasks[n].state = State::Ended;
            }
            Event::Inside { accepted } => {
                assert_eq!(accepted, !self.closed, "a submission from inside: {self:#?}");
            }
        }
    }

    /// Waits until exactly what should run runs.
    fn settle(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.learn(event);
        }
        loop {
            let (running, expected) = (self.count(State::Running), self.expected_running());
            assert!(running <= expected, "{running} run, not {expected}: {self:#?}");
            if running == expected {
                break;
            }
            match self.events.recv_timeout(LONG / 4) {
                Ok(event) => self.learn(event),
                Err(_) => panic!("{running} run, and {expected} should: {self:#?}"),
            }
        }
        let (least, most) = self.unfinished();
        eventually(|| (least..=most).contains(&self.pool().snapshot(0).unfinished));
    }

    // The program.

    /// A new task's body, and its place in the reference.
    fn task(&mut self, keys: Keys, fails: bool) -> Work {
        let n = self.tasks.len();
        let (open, gate) = mpsc::channel::<Vec<Inner>>();
        let say = self.say.clone();
        let own: Weak<Pool<u32, S>> = self.pool.as_ref().map(Arc::downgrade).unwrap_or_default();
        self.tasks.push(Task {
            keys,
            state: State::Waiting,
            fails,
            gate: Some(open),
            handle: None,
        });
        Box::new(move || {
            // Nobody listens once the program is over.
            let _ = say.send(Event::Begin(n));
            for (claims, work) in gate.recv().unwrap_or_default() {
                let pool = own.upgrade().expect("the pool is there until its tasks have ended");
                let accepted = pool.execute(claims, || _ = work()).is_ok();
                let _ = say.send(Event::Inside { accepted });
            }
            let _ = say.send(Event::End(n));
            assert!(!fails, "on purpose");
            n
        })
    }

    /// What became of the last task that was submitted.
    fn judge(
        &mut self,
        result: Result<Option<Handle<usize>>, SubmitErrorKind>,
        before: (usize, usize),
    ) {
        let (least, most) = before;
        let closed = self.closed;
        let capacity = self.capacity;
        match &result {
            Ok(_) => assert!(!closed && least < capacity, "accepted: {self:#?}"),
            Err(SubmitErrorKind::Closed) => assert!(closed, "refused as closed: {self:#?}"),
            Err(_) => assert!(!closed && most >= capacity, "refused as full: {self:#?}"),
        }
        let task = self.tasks.last_mut().expect("it was just added");
        match result {
            Ok(handle) => task.handle = handle,
            Err(_) => {
                task.state = State::Refused;
                task.gate = None;
            }
        }
    }

    fn submit(&mut self, keys: Keys, how: u8, fails: bool) {
        let before = self.unfinished();
        let claims = keys.claims();
        let work = self.task(keys, fails);
        let pool = self.pool.clone().expect("it is there until the end");
        // With certain room, or when it is closed, every way to submit must work without waiting.
        let certain = before.1 < self.capacity || self.closed;
        let result = match (certain, how % 8) {
            (true, 0) => pool.submit(claims, work).map(Some).map_err(|e| e.kind()),
            (true, 1) => pool.execute(claims, || _ = work()).map(|()| None).map_err(|e| e.kind()),
            (true, 2) => block_on(pool.submit_async(claims, work)).map(Some).map_err(|e| e.kind()),
            (true, 3) => {
                let execution = pool.execute_async(claims, || _ = work());
                block_on(execution).map(|()| None).map_err(|e| e.kind())
            }
            (_, 4) => {
                let now = std::time::Duration::ZERO;
                pool.submit_timeout(claims, now, work).map(Some).map_err(|e| e.kind())
            }
            (_, 5) => {
                // Stands in the line for a moment, if there is no room.
                let mut submission = Box::pin(pool.submit_async(claims, work));
                match poll(submission.as_mut(), &Wakes::new()) {
                    std::task::Poll::Ready(result) => result.map(Some).map_err(|e| e.kind()),
                    std::task::Poll::Pending => Err(SubmitErrorKind::Full),
                }
            }
            (_, 6) => pool.try_execute(claims, || _ = work()).map(|()| None).map_err(|e| e.kind()),
            _ => pool.try_submit(claims, work).map(Some).map_err(|e| e.kind()),
        };
        self.judge(result, before);
    }

    fn batch(&mut self, keys: Vec<Keys>, with_handles: bool) {
        if self.unfinished().1 + keys.len() > self.capacity && !self.closed {
            return;
        }
        let first = self.tasks.len();
        let batch: Vec<_> =
            keys.into_iter().map(|keys| (keys.claims(), self.task(keys, false))).collect();
        let all = batch.len();
        let pool = self.pool.clone().expect("it is there until the end");
        let (accepted, handles) = if with_handles {
            match pool.submit_many(batch) {
                Ok(handles) => (handles.len(), handles),
                Err(error) => (error.accepted().len(), Vec::new()),
            }
        } else {
            let batch = batch.into_iter().map(|(claims, work)| (claims, || _ = work()));
            (pool.execute_many(batch).unwrap_or_else(|error| *error.accepted()), Vec::new())
        };
        assert_eq!(accepted, if self.closed { 0 } else { all }, "{self:#?}");
        for task in self.tasks[first..].iter_mut().skip(accepted) {
            task.state = State::Refused;
            task.gate = None;
        }
        for (task, handle) in self.tasks[first..].iter_mut().zip(handles) {
            task.handle = Some(handle);
        }
    }

    fn nth(&self, which: usize, choose: impl Fn(&Task) -> bool) -> Option<usize> {
        let chosen: Vec<usize> =
            (0..self.tasks.len()).filter(|&n| choose(&self.tasks[n])).collect();
        (!chosen.is_empty()).then(|| chosen[which % chosen.len()])
    }

    /// Lets a running body end, and waits for that.
    fn finish(&mut self, which: usize, inside: Vec<Keys>) {
        let Some(n) = self.nth(which, |task| task.state == State::Running) else { return };
        let mut inner = Vec::new();
        for keys in inside {
            let claims = keys.claims();
            inner.push((claims, self.task(keys, false)));
            if self.closed {
                let refused = self.tasks.last_mut().expect("it was just added");
                refused.state = State::Refused;
            }
        }
        let gate = self.tasks[n].gate.take().expect("it is opened once");
        gate.send(inner).expect("the body waits for it");
        while self.tasks[n].state != State::Ended {
            let event = self.events.recv_timeout(LONG / 4);
            self.learn(event.unwrap_or_else(|_| panic!("task {n} does not end: {self:#?}")));
        }
    }

    fn cancel(&mut self, which: usize) {
        let Some(n) = self.nth(which, |task| task.handle.is_some()) else { return };
        let task = &mut self.tasks[n];
        let handle = task.handle.as_ref().expect("it was chosen for that");
        assert_eq!(handle.cancel(), task.state == State::Waiting);
        if task.state == State::Waiting {
            task.state = State::Cancelled;
            assert!(handle.is_finished());
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Submit { keys, how, fails } => self.submit(keys, how, fails),
            Step::Batch { keys, handles } => self.batch(keys, handles),
            Step::Finish { which, inside } => self.finish(which, inside),
            Step::Cancel(which) => self.cancel(which),
            Step::Detach(which) => {
                if let Some(n) = self.nth(which, |task| task.handle.is_some()) {
                    self.tasks[n].handle = None;
                }
            }
            Step::Workers(workers) => {
                // Who runs a task stays until it ends; how soon then is tested elsewhere.
                if workers >= self.count(State::Running) {
                    self.pool().set_workers(workers).unwrap();
                    self.workers = workers;
                    eventually(|| self.pool().snapshot(0).workers.len() == workers);
                }
            }
            Step::Capacity(capacity) => {
                self.pool().set_capacity(capacity).unwrap();
                self.capacity = capacity;
            }
            Step::Close => {
                self.pool().close();
                self.closed = true;
            }
        }
    }

    /// Lets all end that runs, one after the other.
    fn finish_all(&mut self, seed: usize) {
        while self.count(State::Running) != 0 {
            self.finish(seed.wrapping_mul(self.tasks.len()), Vec::new());
            self.settle();
        }
    }

    fn end(&mut self, end: End, seed: usize) {
        match end {
            End::Drain => {
                self.pool().close();
                self.closed = true;
                self.finish_all(seed);
                self.pool().drain(Some(LONG)).unwrap();
            }
            End::Stop => {
                let unrun = self.pool().stop_now();
                (self.closed, self.stopped) = (true, true);
                assert!(unrun.len() >= self.count(State::Waiting), "{self:#?}");
                while self.count(State::Running) != 0 {
                    self.finish(seed, Vec::new());
                }
                self.pool().drain(Some(LONG)).unwrap();
                self.run_here(unrun);
            }
            End::Drop => {
                self.stopped = true;
                let pool = self.pool.take().expect("it ends once");
                let pool = Arc::into_inner(pool).expect("no task has it for longer than a moment");
                let dropper = thread::spawn(|| drop(pool));
                // A running body may end before its pool is stopped, and let a last one begin.
                for task in &mut self.tasks {
                    task.gate = None;
                }
                dropper.join().unwrap();
                while let Ok(event) = self.events.try_recv() {
                    self.learn(event);
                }
                for task in &mut self.tasks {
                    if task.state == State::Waiting {
                        task.state = State::Cancelled;
                    }
                }
            }
        }
        assert_eq!(self.count(State::Waiting) + self.count(State::Running), 0, "{self:#?}");
        if let Some(pool) = &self.pool {
            let snapshot = pool.snapshot(9);
            assert_eq!(snapshot.unfinished, 0);
            assert!(matches!(end, End::Stop) || snapshot.hottest.is_empty(), "{snapshot:#?}");
        }
        for (n, task) in self.tasks.iter_mut().enumerate() {
            let Some(handle) = task.handle.take() else { continue };
            assert!(handle.is_finished());
            match (handle.wait().unwrap(), task.state) {
                (Outcome::Done(value), State::Ended) => assert_eq!((value, task.fails), (n, false)),
                (Outcome::Panicked(_), State::Ended) => assert!(task.fails),
                (Outcome::Cancelled, State::Cancelled) => {}
                (outcome, _) => panic!("task {n}, {task:?}: {outcome:?}"),
            }
        }
    }

    /// Runs what a stopped pool returned, in that order.
    fn run_here(&mut self, unrun: Vec<UnrunTask<u32>>) {
        for task in &mut self.tasks {
            task.gate = None;
        }
        for task in unrun {
            // It may have no handle to take its panic.
            let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| task.run()));
            while let Ok(event) = self.events.try_recv() {
                self.learn(event);
            }
        }
    }
}

impl<S: AnyHasher> std::fmt::Debug for World<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("workers", &self.workers)
            .field("capacity", &self.capacity)
            .field("closed", &self.closed)
            .field("tasks", &self.tasks.iter().enumerate().collect::<Vec<_>>())
            .field("pool", &self.pool.as_ref().map(|pool| pool.snapshot(9)))
            .finish()
    }
}

fn run<S: AnyHasher>(program: Program) {
    let mut world = World::<S>::new(&program);
    let seed = program.steps.len();
    for step in program.steps {
        world.step(step);
        world.settle();
    }
    world.end(program.end, seed);
}

/// Bodies panic on purpose here, thousands of times.
fn without_panic_messages(test: impl FnOnce() + Send + 'static) {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload().downcast_ref::<&str>() != Some(&"on purpose") {
            hook(info);
        }
    }));
    test();
}

fn check_step_by_step<S: AnyHasher>(cases: u32) {
    let config = ProptestConfig {
        cases,
        failure_persistence: None,
        max_shrink_time: 120_000,
        ..ProptestConfig::default()
    };
    without_panic_messages(move || {
        proptest!(config, |(program in some_program())| run::<S>(program));
    });
}

#[test]
fn step_by_step_with_keys_spread() {
    check_step_by_step::<KeyHasher>(600);
}

#[test]
fn step_by_step_with_all_keys_colliding() {
    check_step_by_step::<Collide>(600);
}

/// What happened to one task.
#[derive(Clone, Debug)]
struct Story {
    keys: Keys,
    /// Just before it was submitted, and just after.
    submitted: (u64, u64),
    /// Absent if it was cancelled.
    ran: Option<(u64, u64)>,
    times: usize,
    inside: bool,
}

#[derive(Default)]
struct Marks {
    begin: AtomicU64,
    end: AtomicU64,
    times: AtomicUsize,
}

fn random_keys(rng: &mut Rng) -> Keys {
    match rng.below(40) {
        0 => Keys::All,
        1..4 => Keys::Some(Vec::new()),
        30..36 => Keys::Described(
            (0..rng.below(3)).map(|_| (rng.below(5) as u32, rng.below(3) == 0)).collect(),
            Mark { kind: rng.below(KINDS), other_type: rng.below(5) == 0 },
        ),
        4..28 => Keys::Some(vec![(rng.below(5) as u32, rng.below(3) == 0)]),
        _ => Keys::Some(
            (0..2 + rng.below(2)).map(|_| (rng.below(5) as u32, rng.below(3) == 0)).collect(),
        ),
    }
}

/// Runs a program of several producers and returns what happened.
fn history<S: AnyHasher>(seed: u64, capacity: usize) -> Vec<Story> {
    let mut rng = Rng(seed);
    let pool = Pool::<u32>::builder()
        .workers(1 + rng.below(3) as usize)
        .capacity(capacity)
        .quantum(1 + rng.below(8) as usize, LONG)
        .hasher(S::default())
        .build()
        .unwrap();
    let pool = Arc::new(pool);
    let clock = Arc::new(AtomicU64::new(0));
    let tick = |clock: &AtomicU64| clock.fetch_add(1, Ordering::SeqCst);
    let stories = common::Log::new();
    thread::scope(|scope| {
        for producer in 0..3 {
            let (pool, clock, stories) = (&pool, &clock, stories.clone());
            scope.spawn(move || {
                let mut rng = Rng(seed * 31 + producer);
                for n in 0..70 {
                    let keys = random_keys(&mut rng);
                    let marks = Arc::new(Marks::default());
                    let (fails, spins) = (rng.below(15) == 0, rng.below(300));
                    let inner = (rng.below(8) == 0).then(|| random_keys(&mut rng));
                    let (own, ticks, mark) = (Arc::downgrade(pool), clock.clone(), marks.clone());
                    let log = stories.clone();
                    let work = move || {
                        mark.begin.store(tick(&ticks), Ordering::SeqCst);
                        mark.times.fetch_add(1, Ordering::SeqCst);
                        (0..spins).for_each(|_| std::hint::spin_loop());
                        if let Some(keys) = inner {
                            let pool = own.upgrade().expect("it is drained first");
                            let marks = Arc::new(Marks::default());
                            let (mark, clock) = (marks.clone(), ticks.clone());
                            let work = move || {
                                mark.begin.store(tick(&clock), Ordering::SeqCst);
                                mark.times.fetch_add(1, Ordering::SeqCst);
                                mark.end.store(tick(&clock), Ordering::SeqCst);
                            };
                            let before = tick(&ticks);
                            // Refused if the pool is being drained.
                            if pool.execute(keys.claims(), work).is_ok() {
                                log.push((keys, (before, tick(&ticks)), marks, true, false));
                            }
                        }
                        mark.end.store(tick(&ticks), Ordering::SeqCst);
                        assert!(!fails, "on purpose");
                    };
                    let before = tick(clock);
                    let claims = keys.claims();
                    let mut cancelled = false;
                    match n % 4 {
                        0 => pool.execute(claims, work).unwrap(),
                        1 => _ = pool.execute_many([(claims, work)]).unwrap(),
                        2 => drop(block_on(pool.submit_async(claims, work)).unwrap()),
                        _ => {
                            let handle = pool.submit(claims, work).unwrap();
                            cancelled = rng.below(3) == 0 && handle.cancel();
                        }
                    }
                    stories.push((keys, (before, tick(clock)), marks, false, cancelled));
                }
            });
        }
    });
    pool.drain(None).unwrap();
    let told = stories.take().into_iter();
    told.map(|(keys, submitted, marks, inside, cancelled)| {
        let at = |mark: &AtomicU64| mark.load(Ordering::SeqCst);
        let times = marks.times.load(Ordering::SeqCst);
        assert_eq!(times, usize::from(!cancelled), "it runs once, or was cancelled");
        let ran = (!cancelled).then(|| (at(&marks.begin), at(&marks.end)));
        Story { keys, submitted, ran, times, inside }
    })
    .collect()
}

fn check_history(stories: &[Story], capacity: usize) {
    for (n, one) in stories.iter().enumerate() {
        let Some((begin, end)) = one.ran else { continue };
        assert!(one.submitted.0 < begin && begin < end && one.times == 1, "{one:?}");
        for other in &stories[n + 1..] {
            let Some((other_begin, other_end)) = other.ran else { continue };
            if !one.keys.conflicts(&other.keys) {
                continue;
            }
            assert!(end < other_begin || other_end < begin, "overlap: {one:?} {other:?}");
            if one.submitted.1 < other.submitted.0 {
                assert!(end < other_begin, "disorder: {one:?} {other:?}");
            }
            if other.submitted.1 < one.submitted.0 {
                assert!(other_end < begin, "disorder: {other:?} {one:?}");
            }
        }
    }
    // At each admission from outside: those that were surely accepted before and surely end after.
    for one in stories.iter().filter(|story| !story.inside) {
        let now = one.submitted.1;
        let unfinished = stories.iter().filter(|story| {
            !story.inside && story.submitted.1 <= now && story.ran.is_some_and(|(_, end)| end > now)
        });
        assert!(unfinished.count() <= capacity);
    }
}

fn check_at_full_speed<S: AnyHasher>() {
    without_panic_messages(|| {
        for seed in 0..60 {
            let capacity = 1 + (seed as usize * 7) % 40;
            check_history(&history::<S>(seed, capacity), capacity);
        }
    });
}

#[test]
fn at_full_speed_with_keys_spread() {
    soon(check_at_full_speed::<KeyHasher>);
}

#[test]
fn at_full_speed_with_all_keys_colliding() {
    soon(check_at_full_speed::<Collide>);
}
