//! All operations on single keys, against a slow obvious reference, under random programs: tasks
//! with one key, several, or all; tasks that replace the latest of their key; ends of keys; keys
//! that are paused, resumed, emptied, opened again, and stopped because their tasks fail.
//!
//! There are more workers than tasks, and every body stops at a gate that the test opens. So after
//! each step the reference knows exactly which bodies must run: those that have all their keys. It
//! is a table of the holders of each key, filled in order of submission.

use std::collections::BTreeMap;
use std::panic::resume_unwind;
use std::sync::mpsc;

use crate::common::{AnyHasher, Collide, LONG, effort, eventually, soon};
use keylane::observe::PauseReason;
use keylane::{
    Claims, Handle, KeyBuildHasher, OnClosedKey, OnFailure, Outcome, Pool, SubmitErrorKind,
};
use proptest::prelude::*;

/// Number of consecutive failures that stop a key.
const STOP_AFTER: u32 = 2;
const MAX_STEPS: usize = 30;

/// How a task uses a key.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Mode {
    Alone,
    Shared,
    Limited(u16),
}

/// Claims of a task: keys, each with its use, none twice; or all.
#[derive(Clone, Debug, PartialEq)]
enum Keys {
    Some(BTreeMap<u32, Mode>),
    All,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Role {
    Plain,
    Latest,
    End,
}

#[derive(Clone, Debug)]
enum Step {
    Submit { keys: Keys, fails: bool },
    Latest { key: u32, fails: bool },
    End { key: u32, refuses: bool },
    Finish(usize),
    Cancel(usize),
    Pause(u32),
    Resume(u32),
    Take(u32),
    Reopen(u32),
}

fn some_step() -> impl Strategy<Value = Step> {
    let key = || 0..3_u32;
    let fails = || prop::bool::weighted(0.3);
    let mode = prop_oneof![
        4 => Just(Mode::Alone),
        3 => Just(Mode::Shared),
        4 => (1..4_u16).prop_map(Mode::Limited),
    ];
    let some = prop::collection::btree_map(key(), mode, 1..3);
    let keys = prop_oneof![12 => some.prop_map(Keys::Some), 1 => Just(Keys::All)];
    prop_oneof![
        8 => (keys, fails()).prop_map(|(keys, fails)| Step::Submit { keys, fails }),
        8 => (key(), fails()).prop_map(|(key, fails)| Step::Latest { key, fails }),
        2 => (key(), any::<bool>()).prop_map(|(key, refuses)| Step::End { key, refuses }),
        9 => any::<usize>().prop_map(Step::Finish),
        2 => any::<usize>().prop_map(Step::Cancel),
        3 => key().prop_map(Step::Pause),
        4 => key().prop_map(Step::Resume),
        2 => key().prop_map(Step::Take),
        2 => key().prop_map(Step::Reopen),
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    /// It has its keys, and its body runs.
    Running,
    Ended,
    /// Before it began. It keeps its place until that is reached.
    Cancelled,
    Superseded,
    Taken,
    /// It came back from a stop.
    Unrun,
}

struct Task {
    keys: Keys,
    role: Role,
    fails: bool,
    state: State,
    /// The keys that it has.
    has: Vec<u32>,
    gate: Option<mpsc::Sender<()>>,
    handle: Handle<usize>,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Task { state, role, keys, has, .. } = self;
        write!(f, "{state:?} {role:?} {keys:?}, has {has:?}")
    }
}

/// A key, as far as something was done to it.
#[derive(Debug, Default)]
struct Key {
    paused: bool,
    stopped: bool,
    failures: u32,
    /// Its latest task, and whether something has come behind it.
    latest: Option<(usize, bool)>,
    /// Its end, and whether that refuses later tasks.
    end: Option<(usize, bool)>,
}

enum Event {
    Begin(usize),
    End(usize),
}

struct World<S: AnyHasher> {
    /// Dropped before the pool, which waits for the bodies that wait for their gates.
    tasks: Vec<Task>,
    /// Those that have a place, in the order of their places.
    line: Vec<usize>,
    keys: BTreeMap<u32, Key>,
    pool: Pool<u32, S>,
    events: mpsc::Receiver<Event>,
    say: mpsc::Sender<Event>,
}

impl<S: AnyHasher> std::fmt::Debug for World<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("World")
            .field("tasks", &self.tasks.iter().enumerate().collect::<Vec<_>>())
            .field("line", &self.line)
            .field("keys", &self.keys)
            .finish()
    }
}

impl<S: AnyHasher> World<S> {
    fn new() -> Self {
        let builder = Pool::<u32>::builder().workers(MAX_STEPS).hasher(S::default());
        let on_failure = OnFailure::StopKey { after: STOP_AFTER };
        let (say, events) = mpsc::channel();
        World {
            tasks: Vec::new(),
            line: Vec::new(),
            keys: BTreeMap::new(),
            pool: builder.on_failure(on_failure).build().unwrap(),
            events,
            say,
        }
    }

    fn key(&mut self, key: u32) -> &mut Key {
        self.keys.entry(key).or_default()
    }

    // The reference.

    /// Grants keys to the tasks that may have them, and releases cancelled tasks that have all of
    /// them.
    fn grant(&mut self) {
        let mut at = 0;
        while at < self.line.len() {
            let n = self.line[at];
            match self.tasks[n].keys.clone() {
                Keys::All if at == 0 => {}
                // No task behind a barrier has a key.
                Keys::All => return,
                Keys::Some(keys) => {
                    for (&key, &mode) in &keys {
                        if !self.tasks[n].has.contains(&key) && self.may_have(at, key, mode) {
                            self.tasks[n].has.push(key);
                        }
                    }
                    if self.tasks[n].has.len() != keys.len() {
                        at += 1;
                        continue;
                    }
                }
            }
            if self.tasks[n].state == State::Cancelled {
                self.leave(at);
                at = 0;
                continue;
            }
            if self.tasks[n].keys == Keys::All {
                return;
            }
            at += 1;
        }
    }

    fn may_have(&self, at: usize, key: u32, mode: Mode) -> bool {
        let mut before = 0;
        let mut least = u16::MAX;
        if let Mode::Limited(most) = mode {
            least = most;
        }
        let held = self.keys.get(&key).is_some_and(|key| key.paused || key.stopped);
        !held
            && self.line[..at].iter().map(|&n| &self.tasks[n]).all(|it| match &it.keys {
                Keys::All => false,
                Keys::Some(keys) => match keys.get(&key) {
                    None => true,
                    Some(also) => {
                        it.has.contains(&key)
                            && match (mode, also) {
                                (Mode::Shared, Mode::Shared) => true,
                                (Mode::Limited(_), Mode::Limited(most)) => {
                                    before += 1;
                                    least = least.min(*most);
                                    true
                                }
                                _ => false,
                            }
                    }
                },
            })
            && before < least
    }

    /// A task's turn is over.
    fn leave(&mut self, at: usize) {
        let n = self.line.remove(at);
        for key in self.keys.values_mut() {
            key.latest.take_if(|latest| latest.0 == n);
            key.end.take_if(|end| end.0 == n && !end.1);
        }
    }

    /// It has all its keys, and its body must run.
    fn is_ready(&self, n: usize) -> bool {
        let task = &self.tasks[n];
        matches!(task.state, State::Waiting | State::Running)
            && match &task.keys {
                Keys::All => self.line.first() == Some(&n),
                Keys::Some(keys) => keys.len() == task.has.len(),
            }
    }

    fn learn(&mut self, event: Event) {
        match event {
            Event::Begin(n) => {
                assert_eq!(self.tasks[n].state, State::Waiting, "task {n} begins: {self:#?}");
                assert!(self.is_ready(n), "task {n} begins too early: {self:#?}");
                self.tasks[n].state = State::Running;
            }
            Event::End(n) => {
                assert_eq!(self.tasks[n].state, State::Running, "task {n} ends: {self:#?}");
                self.tasks[n].state = State::Ended;
            }
        }
    }

    /// Waits until exactly what should run runs, and exactly what should be there is there.
    fn settle(&mut self) {
        self.grant();
        let late = |world: &Self| {
            (0..world.tasks.len())
                .find(|&n| world.tasks[n].state == State::Waiting && world.is_ready(n))
        };
        while let Some(n) = late(self) {
            match self.events.recv_timeout(LONG / 4) {
                Ok(event) => self.learn(event),
                Err(_) => panic!("task {n} should run: {self:#?}"),
            }
        }
        self.listen();
        // When all workers sleep, every key has been granted where possible: a pause comes after
        // that.
        let running = self.tasks.iter().filter(|task| task.state == State::Running).count();
        let (there, idle) = (self.line.len(), MAX_STEPS - running);
        eventually(|| {
            let snapshot = self.pool.inspect().snapshot(0);
            snapshot.unfinished == there && snapshot.workers_asleep == idle
        });
        let mut held: Vec<_> = self
            .pool
            .keys()
            .list_paused()
            .into_iter()
            .map(|held| (held.key, matches!(held.hold, PauseReason::Stopped { .. })))
            .collect();
        held.sort_unstable();
        let expected = self.keys.iter().filter(|(_, key)| key.paused || key.stopped);
        assert!(held.into_iter().eq(expected.map(|(n, key)| (*n, key.stopped))), "{self:#?}");
        let mut finished = self.pool.keys().list_closed();
        finished.sort_unstable();
        let expected =
            self.keys.iter().filter(|(_, key)| key.end.is_some_and(|(_, refuses)| refuses));
        assert!(finished.into_iter().eq(expected.map(|(n, _)| *n)), "{self:#?}");
    }

    /// Events received meanwhile must fit the present state.
    fn listen(&mut self) {
        while let Ok(event) = self.events.try_recv() {
            self.learn(event);
        }
    }

    // The program.

    /// The body of the next task, and what opens its gate.
    fn body(&self, fails: bool) -> (impl FnOnce() -> usize + Send + 'static, mpsc::Sender<()>) {
        let (n, say) = (self.tasks.len(), self.say.clone());
        let (open, gate) = mpsc::channel();
        let body = move || {
            // The receiver is gone once the program is over.
            let _ = say.send(Event::Begin(n));
            let _ = gate.recv();
            let _ = say.send(Event::End(n));
            if fails {
                // As a panic, but nothing is printed.
                resume_unwind(Box::new("on purpose"));
            }
            n
        };
        (body, open)
    }

    /// A task was accepted.
    fn add(
        &mut self,
        keys: Keys,
        role: Role,
        fails: bool,
        gate: mpsc::Sender<()>,
        handle: Handle<usize>,
    ) -> usize {
        let (gate, has) = (Some(gate), Vec::new());
        self.tasks.push(Task { keys, role, fails, state: State::Waiting, has, gate, handle });
        self.tasks.len() - 1
    }

    /// Something comes behind what these keys have.
    fn pass(&mut self, keys: &Keys) {
        let all = *keys == Keys::All;
        for (n, key) in &mut self.keys {
            let concerned = matches!(keys, Keys::Some(keys) if keys.contains_key(n));
            if let Some((_, sealed)) = &mut key.latest {
                *sealed |= all || concerned;
            }
            key.end.take_if(|_| concerned);
        }
    }

    fn refuses(&self, keys: &Keys) -> bool {
        let refuses = |n| self.keys.get(n).is_some_and(|key| key.end.is_some_and(|end| end.1));
        matches!(keys, Keys::Some(keys) if keys.keys().any(refuses))
    }

    fn submit(&mut self, keys: Keys, fails: bool) {
        let claims = match &keys {
            Keys::All => Claims::barrier(),
            Keys::Some(keys) => {
                keys.iter().fold(Claims::none(), |claims, (&key, &mode)| match mode {
                    Mode::Alone => claims.and_exclusive(key),
                    Mode::Shared => claims.and_shared(key),
                    Mode::Limited(most) => claims.and_limited(key, most),
                })
            }
        };
        let (body, gate) = self.body(fails);
        match self.pool.submit(claims, body) {
            Ok(handle) => {
                assert!(!self.refuses(&keys), "accepted: {self:#?}");
                self.pass(&keys);
                let n = self.add(keys, Role::Plain, fails, gate, handle);
                self.line.push(n);
            }
            Err(error) => {
                assert_eq!(error.kind(), SubmitErrorKind::KeyClosed);
                assert!(self.refuses(&keys), "refused: {self:#?}");
            }
        }
    }

    fn submit_latest(&mut self, key: u32, fails: bool) {
        let keys = Keys::Some([(key, Mode::Alone)].into());
        let (body, gate) = self.body(fails);
        let handle = match self.pool.task(key).latest().submit(body) {
            Ok(handle) => handle,
            Err(error) => {
                assert_eq!(error.kind(), SubmitErrorKind::KeyClosed);
                assert!(self.refuses(&keys), "refused: {self:#?}");
                return;
            }
        };
        assert!(!self.refuses(&keys), "accepted: {self:#?}");
        let n = self.add(keys, Role::Latest, fails, gate, handle);
        let (latest, tasks) = (self.key(key).latest, &self.tasks);
        let waits = latest.filter(|(old, _)| tasks[*old].has.is_empty());
        let place = waits.map(|(old, _)| self.line.iter().position(|&it| it == old).unwrap());
        match waits.zip(place) {
            None => self.line.push(n),
            Some(((old, sealed), place)) => {
                match sealed {
                    true => {
                        self.line.remove(place);
                        self.line.push(n);
                    }
                    false => self.line[place] = n,
                }
                let old = &mut self.tasks[old];
                assert!(old.handle.is_finished(), "it is superseded at once: {self:#?}");
                if old.state == State::Waiting {
                    old.state = State::Superseded;
                }
            }
        }
        let key = self.key(key);
        key.latest = Some((n, false));
        // It can't refuse, and a new life has begun; unless the place is before the end.
        let in_place = waits.is_some_and(|(_, sealed)| !sealed);
        key.end.take_if(|_| !in_place);
    }

    fn submit_end(&mut self, key: u32, refuses: bool) {
        let keys = Keys::Some([(key, Mode::Alone)].into());
        let (body, gate) = self.body(false);
        let after = if refuses { OnClosedKey::Refuse } else { OnClosedKey::NewLife };
        match self.pool.task(key).last(after).submit(body) {
            Ok(handle) => {
                assert!(self.key(key).end.is_none(), "accepted: {self:#?}");
                self.pass(&keys);
                let n = self.add(keys, Role::End, false, gate, handle);
                self.line.push(n);
                self.key(key).end = Some((n, refuses));
            }
            Err(error) => {
                assert_eq!(error.kind(), SubmitErrorKind::KeyClosed);
                assert!(self.key(key).end.is_some(), "refused: {self:#?}");
            }
        }
    }

    fn nth(&self, which: usize, state: State) -> Option<usize> {
        let chosen: Vec<_> =
            (0..self.tasks.len()).filter(|&n| self.tasks[n].state == state).collect();
        (!chosen.is_empty()).then(|| chosen[which % chosen.len()])
    }

    /// Lets a running body end, and waits for that.
    fn finish(&mut self, which: usize) {
        let Some(n) = self.nth(which, State::Running) else { return };
        self.tasks[n].gate = None;
        while self.tasks[n].state != State::Ended {
            let event = self.events.recv_timeout(LONG / 4);
            self.learn(event.unwrap_or_else(|_| panic!("task {n} does not end: {self:#?}")));
        }
        let at = self.line.iter().position(|&it| it == n).expect("it had a place");
        self.leave(at);
        let (Keys::Some(keys), fails) = (self.tasks[n].keys.clone(), self.tasks[n].fails) else {
            return;
        };
        for key in keys.into_keys() {
            let key = self.key(key);
            key.failures = if fails { key.failures + 1 } else { 0 };
            if key.failures == STOP_AFTER {
                (key.failures, key.stopped) = (0, true);
            }
        }
    }

    fn cancel(&mut self, which: usize) {
        let Some(n) = self.nth(which, State::Waiting) else { return };
        assert!(self.tasks[n].handle.cancel());
        self.tasks[n].state = State::Cancelled;
    }

    /// Takes the waiting tasks of a key alone, and runs them here, in order.
    fn take(&mut self, key: u32) {
        let alone = |task: &Task| matches!(&task.keys, Keys::Some(keys) if keys.len() == 1 && keys.contains_key(&key));
        let is_taken = |task: &Task| alone(task) && task.role != Role::End && task.has.is_empty();
        let (taken, line): (Vec<_>, Vec<_>) =
            self.line.iter().partition(|&&n| is_taken(&self.tasks[n]));
        self.line = line;
        let unrun = self.pool.keys().take(&key);
        assert_eq!(unrun.len(), taken.len(), "{taken:?}: {self:#?}");
        for &n in &taken {
            for key in self.keys.values_mut() {
                key.latest.take_if(|latest| latest.0 == n);
            }
            let task = &mut self.tasks[n];
            task.gate = None;
            if task.state == State::Waiting {
                task.state = State::Taken;
            }
        }
        // Tasks that waited for them begin now.
        self.settle();
        for (task, n) in unrun.into_iter().zip(taken) {
            task.run();
            if self.tasks[n].state == State::Taken {
                assert!(matches!(self.events.try_recv(), Ok(Event::Begin(it)) if it == n));
                assert!(matches!(self.events.try_recv(), Ok(Event::End(it)) if it == n));
            }
            assert!(self.tasks[n].handle.is_finished());
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Submit { keys, fails } => self.submit(keys, fails),
            Step::Latest { key, fails } => self.submit_latest(key, fails),
            Step::End { key, refuses } => self.submit_end(key, refuses),
            Step::Finish(which) => self.finish(which),
            Step::Cancel(which) => self.cancel(which),
            Step::Pause(key) => {
                let paused = std::mem::replace(&mut self.key(key).paused, true);
                assert_eq!(self.pool.keys().pause(&key), !paused);
            }
            Step::Resume(key) => {
                let known = self.key(key);
                let held = known.paused || known.stopped;
                (known.paused, known.stopped, known.failures) = (false, false, 0);
                assert_eq!(self.pool.keys().resume(&key), held);
            }
            Step::Take(key) => self.take(key),
            Step::Reopen(key) => {
                let refused = self.key(key).end.take_if(|end| end.1).is_some();
                assert_eq!(self.pool.keys().reopen(&key), refused);
            }
        }
    }

    fn end(&mut self, stops: bool) {
        if stops {
            let unrun = self.pool.shutdown_now();
            let waits = |n: &&usize| self.tasks[**n].state != State::Running;
            assert_eq!(unrun.len(), self.line.iter().filter(waits).count(), "{self:#?}");
            drop(unrun);
            for task in self.tasks.iter_mut().filter(|task| task.state == State::Waiting) {
                task.state = State::Unrun;
            }
            self.line.retain(|&n| self.tasks[n].state == State::Running);
            self.keys.clear();
            for n in std::mem::take(&mut self.line) {
                self.tasks[n].gate = None;
            }
            self.pool.shutdown_timeout(LONG).unwrap();
            self.listen();
            return;
        }
        while !self.line.is_empty() {
            for key in self.keys.keys().copied().collect::<Vec<_>>() {
                self.step(Step::Resume(key));
            }
            self.settle();
            self.finish(0);
            self.settle();
        }
        for key in self.keys.keys().copied().collect::<Vec<_>>() {
            self.step(Step::Resume(key));
            self.step(Step::Reopen(key));
        }
        self.settle();
        let snapshot = self.pool.inspect().snapshot(9);
        assert!(snapshot.unfinished == 0 && snapshot.hottest.is_empty(), "{snapshot:#?}");
    }
}

fn run<S: AnyHasher>(steps: Vec<Step>, stops: bool) {
    let mut world = World::<S>::new();
    world.settle();
    for step in steps {
        world.listen();
        world.step(step);
        world.settle();
    }
    world.end(stops);
    for (n, task) in std::mem::take(&mut world.tasks).into_iter().enumerate() {
        match (task.handle.wait().unwrap(), task.state) {
            (Outcome::Completed(value), State::Ended | State::Taken) => {
                assert_eq!((value, task.fails), (n, false));
            }
            (Outcome::Panicked(_), State::Ended | State::Taken) => assert!(task.fails),
            (Outcome::Cancelled, State::Cancelled | State::Unrun) => {}
            (Outcome::Superseded, State::Superseded) => {}
            (outcome, state) => panic!("task {n}, {state:?}: {outcome:?}"),
        }
    }
}

fn check<S: AnyHasher>() {
    let count = 60 * effort() as u32;
    let cases = ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(count) };
    let programs = (prop::collection::vec(some_step(), 1..MAX_STEPS), any::<bool>());
    proptest!(cases, |((steps, stops) in programs)| soon(move || run::<S>(steps, stops)));
}

#[test]
fn random_programs_with_keys_spread() {
    check::<KeyBuildHasher>();
}

#[test]
fn random_programs_with_all_keys_colliding() {
    check::<Collide>();
}
