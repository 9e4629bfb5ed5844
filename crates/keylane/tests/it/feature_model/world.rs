//! A pool beside the reference: learns which bodies run, and waits until the pool is at rest.

use std::panic::resume_unwind;
use std::sync::{LazyLock, mpsc};
use std::time::{Duration, Instant};

use crate::common::{AnyHasher, LONG};
use keylane::observe::{PauseReason, TaskState};
use keylane::{
    Backoff, Claims, Compatibility, Handle, Job, MockClock, OnFailure, Pool, Rate, Retry,
};
use tokio::runtime::Runtime;
use tokio::sync::oneshot;

use super::program::{Bound, Claim, KEYS, Kind, Mode, Program, Result, Role};
use super::reference::{Key, Reference, State, Task};

/// Number of consecutive failures that stop a key.
pub(super) const STOP_AFTER: u32 = 2;
/// Time between two attempts.
const BACKOFF: u64 = 7;
/// Bound of the running futures, above the number of tasks.
const FUTURES: usize = 1000;

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().expect("it can be built")
});

/// Conflicts with overlapping ranges.
struct Span(u8, u8);

impl Compatibility for Span {
    fn is_compatible(&self, other: &Self) -> bool {
        self.1 <= other.0 || other.1 <= self.0
    }
}

pub(super) enum Event {
    Begin(usize),
    End(usize),
}

/// Says that a body has ended, when it is dropped.
pub(super) struct SayEnd(usize, mpsc::Sender<Event>);

impl Drop for SayEnd {
    fn drop(&mut self) {
        let _ = self.1.send(Event::End(self.0));
    }
}

/// Lets a body end.
pub(super) enum Gate {
    Thread(mpsc::Sender<()>),
    Future(Option<oneshot::Sender<()>>),
}

impl Gate {
    pub(super) fn open(&mut self) {
        match self {
            // The body may be gone, for instance a cancelled future.
            Gate::Thread(gate) => _ = gate.send(()),
            Gate::Future(gate) => _ = gate.take().map(|gate| gate.send(())),
        }
    }
}

pub(super) struct World<S: AnyHasher> {
    /// Dropped before the pool, which waits for the bodies that wait for their gates.
    pub(super) gates: Vec<Option<Gate>>,
    pub(super) handles: Vec<Option<Handle<usize, ()>>>,
    pub(super) jobs: Vec<Job<()>>,
    pub(super) reference: Reference,
    pub(super) pool: Option<Pool<u32, S>>,
    pub(super) workers: usize,
    pub(super) clock: MockClock,
    events: mpsc::Receiver<Event>,
    say: mpsc::Sender<Event>,
    /// Log of steps and events, to be printed when a program fails.
    pub(super) log: Vec<String>,
}

pub(super) fn rate(bound: Bound) -> Rate {
    Rate::every(Duration::from_nanos(bound.interval)).burst(bound.burst)
}

pub(super) fn claims(claim: &Claim) -> Claims<u32> {
    let Claim::Some { keys, span } = claim else { return Claims::barrier() };
    let claims = keys.iter().fold(Claims::none(), |claims, &(key, mode)| match mode {
        Mode::Exclusive => claims.and_exclusive(key),
        Mode::Shared => claims.and_shared(key),
        Mode::Limited(most) => claims.and_limited(key, most),
    });
    match span {
        Some((from, to)) => claims.with_descriptor(Span(*from, *to)),
        None => claims,
    }
}

pub(super) fn retry(attempts: u32) -> Retry {
    Retry::attempts(attempts).backoff(Backoff::constant(Duration::from_nanos(BACKOFF)))
}

impl<S: AnyHasher> World<S> {
    pub(super) fn new(program: &Program) -> Self {
        let clock = MockClock::new();
        let builder = Pool::<u32>::builder().workers(program.workers).clock(&clock);
        let builder = builder.on_failure(OnFailure::StopKey { after: STOP_AFTER });
        let builder = builder.self_check(true).runtime(RUNTIME.handle().clone(), FUTURES);
        let pool = builder.hasher(S::default()).build().unwrap();
        let keys = program.rates.iter().map(|&rate| Key { rate, ..Key::default() }).collect();
        for (key, bound) in program.rates.iter().enumerate() {
            if let Some(bound) = bound {
                pool.keys().set_rate(&(key as u32), Some(rate(*bound))).unwrap();
            }
        }
        let (say, events) = mpsc::channel();
        World {
            gates: Vec::new(),
            handles: Vec::new(),
            jobs: Vec::new(),
            reference: Reference { keys, ..Reference::default() },
            pool: Some(pool),
            workers: program.workers,
            clock,
            events,
            say,
            log: Vec::new(),
        }
    }

    pub(super) fn pool(&self) -> &Pool<u32, S> {
        self.pool.as_ref().expect("the pool is there until the end")
    }

    pub(super) fn fail(&self, why: &str) -> ! {
        let tasks: Vec<_> = self.reference.tasks.iter().enumerate().collect();
        let snapshot = self.pool.as_ref().map(|pool| pool.inspect().snapshot(9));
        let steps = self.log.join("\n");
        panic!("{why}\n{steps}\n{:?}\n{tasks:?}\n{snapshot:?}", self.reference.keys);
    }

    /// Returns the body of a closure, and its gate.
    pub(super) fn closure(
        &self,
        n: usize,
        result: Result,
    ) -> (impl FnOnce() -> std::result::Result<usize, ()> + Send + use<S>, Gate) {
        let (say, (open, gate)) = (self.say.clone(), mpsc::channel());
        let body = move || {
            // The receiver is gone once the program is over.
            let _ = say.send(Event::Begin(n));
            let _end = SayEnd(n, say);
            let _ = gate.recv();
            end_with(n, result)
        };
        (body, Gate::Thread(open))
    }

    pub(super) fn future(
        &self,
        n: usize,
        result: Result,
    ) -> (impl Future<Output = std::result::Result<usize, ()>> + Send + use<S>, Gate) {
        let (say, (open, gate)) = (self.say.clone(), oneshot::channel());
        let body = async move {
            let _ = say.send(Event::Begin(n));
            let _end = SayEnd(n, say);
            let _ = gate.await;
            end_with(n, result)
        };
        (body, Gate::Future(Some(open)))
    }

    pub(super) fn retried(
        &self,
        n: usize,
        failures: u32,
    ) -> (impl FnMut() -> std::result::Result<usize, ()> + Send + use<S>, Gate) {
        let (say, (open, gate)) = (self.say.clone(), mpsc::channel());
        let mut attempt = 0;
        let body = move || {
            let _ = say.send(Event::Begin(n));
            let _end = SayEnd(n, say.clone());
            let _ = gate.recv();
            attempt += 1;
            if attempt <= failures { Err(()) } else { Ok(n) }
        };
        (body, Gate::Thread(open))
    }

    fn learn(&mut self, event: Event) {
        match event {
            Event::Begin(n) => {
                self.log.push(format!("  {n} begins"));
                self.observe();
                if let Some(rule) = self.reference.forbids(n) {
                    self.fail(&rule);
                }
                self.reference.begin(n);
            }
            Event::End(n) => {
                self.log.push(format!("  {n} ends"));
                self.body_ended(n);
            }
        }
    }

    fn body_ended(&mut self, n: usize) {
        let task = &self.reference.tasks[n];
        if task.state != State::Running {
            self.fail(&format!("task {n} ends, and does not run"));
        }
        if let Kind::Retry { failures, attempts } = task.kind {
            let failed = task.attempts <= failures;
            if failed && task.attempts < attempts && !task.told {
                let due = self.reference.now + BACKOFF;
                self.reference.tasks[n].state = State::Backoff(due);
                return;
            }
        }
        let failed = self.reference.tasks[n].has_failed();
        self.reference.tasks[n].state = State::Ended;
        if let Some(failed) = failed {
            self.reference.count_result(n, failed, STOP_AFTER);
        }
        for key in &mut self.reference.keys {
            key.end.take_if(|end| end.0 == n && !end.1);
        }
    }

    pub(super) fn listen(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.learn(event);
        }
    }

    /// Waits for the next event.
    pub(super) fn hear(&mut self) -> bool {
        let event = self.events.recv_timeout(patience());
        event.map(|event| self.learn(event)).is_ok()
    }

    /// Number of bodies on workers.
    pub(super) fn on_workers(&self) -> usize {
        self.reference.count(|task| task.state == State::Running && task.kind != Kind::Future)
    }

    /// Waits until the pool is at rest, and each body runs that must.
    pub(super) fn settle(&mut self) {
        let start = Instant::now();
        loop {
            self.listen();
            self.observe();
            let lack = match self.lack() {
                None if self.observe() => continue,
                None => break,
                Some(lack) => lack,
            };
            if start.elapsed() > patience() {
                self.fail(&lack);
            }
            std::thread::yield_now();
        }
        self.reference.charge_unseen();
        self.observe_cancelled();
        let violations = self.pool().inspect().snapshot(9).violations;
        if violations.is_none_or(|violations| !violations.is_none()) {
            self.fail("the pool has found a violation");
        }
    }

    /// Returns what the pool has not done yet, if anything.
    fn lack(&self) -> Option<String> {
        let is_due = |hold| matches!(hold, PauseReason::RateLimited { left } if left.is_zero());
        if self.pool().keys().list_paused().into_iter().any(|held| is_due(held.hold)) {
            return Some("a rate that permits a start pauses its key".to_owned());
        }
        let snapshot = self.pool().inspect().snapshot(0);
        let (asleep, running) = (snapshot.workers_asleep, self.on_workers());
        let delayed = self.reference.count(|task| matches!(task.state, State::Delayed(_)));
        if snapshot.delayed != delayed {
            return Some(format!("{} tasks are delayed, not {delayed}", snapshot.delayed));
        }
        if snapshot.workers.len() != self.workers || asleep + running != self.workers {
            return Some(format!("{asleep} workers sleep, and {running} bodies run on workers"));
        }
        if let Some(lack) = self.lacks_body().or_else(|| self.differs()) {
            return Some(lack);
        }
        if asleep == 0 {
            return None;
        }
        if snapshot.ready != 0 {
            return Some(format!("{} tasks are ready, and a worker sleeps", snapshot.ready));
        }
        let must = (0..self.reference.tasks.len()).find(|&n| self.reference.must_begin(n));
        must.map(|n| format!("task {n} should run"))
    }

    /// Returns whether a task was taken by a worker, and its body has not begun: a future that the
    /// runtime has not polled.
    fn lacks_body(&self) -> Option<String> {
        let is_taken = |n: &usize| match &self.handles[*n] {
            Some(handle) if self.reference.tasks[*n].state == State::Waiting => {
                let state = self.pool().inspect().explain(handle).state;
                matches!(state, TaskState::Taken | TaskState::Running(_))
            }
            _ => false,
        };
        let taken = (0..self.reference.tasks.len()).find(is_taken);
        taken.map(|n| format!("task {n} is taken, and its body has not begun"))
    }

    fn is_finished(&self, n: usize) -> bool {
        self.handles[n].as_ref().is_some_and(Handle::is_finished)
    }

    /// Learns which waiting tasks were replaced. A task that holds its key and waits for a worker is
    /// not replaced, and the reference does not know which do. Returns whether there is news.
    fn observe(&mut self) -> bool {
        let mut is_news = false;
        for n in 0..self.reference.tasks.len() {
            let task = &self.reference.tasks[n];
            if task.state != State::Waiting || !self.is_finished(n) {
                continue;
            }
            let doubted = task.doubted;
            let is_replaced = task.role == Role::Latest && !self.reference.is_latest(n);
            if !is_replaced && doubted.is_none() {
                self.fail(&format!("task {n} waits, and has ended"));
            }
            let task = &mut self.reference.tasks[n];
            (task.state, task.superseded) = (State::Gone, is_replaced);
            for key in &mut self.reference.keys {
                if doubted.is_some() && key.end.is_some_and(|end| end.0 == n) {
                    key.end = doubted;
                }
            }
            is_news = true;
        }
        is_news
    }

    /// Learns that no cancelled task has a place any more.
    fn observe_cancelled(&mut self) {
        let unfinished = self.pool().inspect().snapshot(0).unfinished;
        let is_over = self.jobs.iter().all(Job::is_finished);
        if is_over && unfinished == self.reference.count(Task::is_open) {
            for task in &mut self.reference.tasks {
                if task.state == State::Cancelled {
                    task.state = State::Gone;
                }
            }
        }
    }

    /// Compares what the pool says of its keys with the reference.
    fn differs(&self) -> Option<String> {
        let held = self.pool().keys().list_paused().into_iter();
        let mut held: Vec<_> = held
            .filter(|held| !matches!(held.hold, PauseReason::RateLimited { .. }))
            .map(|held| (held.key, matches!(held.hold, PauseReason::Stopped { .. })))
            .collect();
        held.sort_unstable();
        let keys = (0..KEYS).zip(&self.reference.keys);
        let known = keys.clone().filter(|(_, key)| key.paused || key.stopped);
        let known: Vec<_> = known.map(|(n, key)| (n, key.stopped)).collect();
        if held != known {
            return Some(format!("paused keys (and stopped ones) are {held:?}, not {known:?}"));
        }
        let mut closed = self.pool().keys().list_closed();
        closed.sort_unstable();
        let known: Vec<_> =
            keys.filter(|(_, key)| key.end.is_some_and(|end| end.1)).map(|(n, _)| n).collect();
        if closed != known {
            return Some(format!("closed keys are {closed:?}, not {known:?}"));
        }
        let is_subtask = |task: &Task| task.job.is_some() && task.is_open();
        if self.jobs.iter().any(|job| !job.is_finished()) || self.reference.count(is_subtask) != 0 {
            return None;
        }
        let (unfinished, open) =
            (self.pool().inspect().snapshot(0).unfinished, self.reference.count(Task::is_open));
        let cancelled = self.reference.count(|task| task.state == State::Cancelled);
        (!(open..=open + cancelled).contains(&unfinished))
            .then(|| format!("{unfinished} tasks are unfinished, not {open}"))
    }
}

impl super::reference::Task {
    /// Returns whether its end counts as a failure of its keys, if it counts.
    fn has_failed(&self) -> Option<bool> {
        match (self.kind, self.result) {
            (Kind::Retry { failures, .. }, _) if self.attempts > failures => Some(false),
            (Kind::Retry { .. }, _) => Some(true),
            (Kind::Future, _) if self.told => None,
            (_, result) => Some(result != Result::Value),
        }
    }
}

fn end_with(n: usize, result: Result) -> std::result::Result<usize, ()> {
    match result {
        Result::Value => Ok(n),
        Result::Error => Err(()),
        // As a panic, but nothing is printed.
        Result::Panic => resume_unwind(Box::new("on purpose")),
    }
}

/// Time after which something never happens. The programs that are derived from a failed one wait
/// less: they are only made to find a smaller one.
pub(super) fn patience() -> Duration {
    match super::HAS_FAILED.load(std::sync::atomic::Ordering::Relaxed) {
        true => Duration::from_secs(1),
        false => LONG / 4,
    }
}
