//! A pool, and a slow obvious reference beside it, which predicts after each step the tasks that
//! must run.

use std::sync::{Arc, Weak, mpsc};
use std::thread;

use keylane::{Claims, Handle, Outcome, PendingTask, Pool, SubmitErrorKind};

use super::keys::Keys;
use super::program::{End, Program, Step};
use crate::common::{AnyHasher, LONG, Wakes, block_on, eventually, poll};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Waiting,
    Running,
    Ended,
    /// Before it began. Its turn is over as soon as it could have begun.
    Cancelled,
    /// Not accepted.
    Refused,
}

/// A task, as the reference knows it.
pub(crate) struct Task {
    keys: Keys,
    state: State,
    fails: bool,
    /// Releases the body, with its further submissions. Dropped, it releases the body with none.
    gate: Option<mpsc::Sender<Vec<Inner>>>,
    handle: Option<Handle<usize>>,
}

impl std::fmt::Debug for Task {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} {:?}", self.state, self.keys)
    }
}

pub(crate) type Work = Box<dyn FnOnce() -> usize + Send>;
/// A task that a task submits: its keys and its body.
pub(crate) type Inner = (Claims<u32>, Work);

#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    Begin(usize),
    End(usize),
    /// A task that was submitted from inside was accepted, or not.
    Inside {
        accepted: bool,
    },
}

pub(crate) struct World<S: AnyHasher> {
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
    pub(crate) fn new(program: &Program) -> Self {
        let pool = Pool::<u32>::builder()
            .workers(program.workers)
            .capacity(program.capacity)
            .placement(program.placement)
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
        let this = &self.tasks[n].keys;
        let before = || self.tasks[..n].iter().zip(over).filter(|(_, over)| !**over);
        let fits = |(key, most): (u32, u16)| {
            // They get the key in their order: one with a lower limit blocks all behind it.
            let limits = || before().filter_map(move |(task, _)| task.keys.limit_of(key));
            limits().count() < limits().fold(most, u16::min).into()
        };
        before().all(|(task, _)| !task.keys.conflicts(this)) && this.limits().all(fits)
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
    pub(crate) fn settle(&mut self) {
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
        eventually(|| (least..=most).contains(&self.pool().inspect().snapshot(0).unfinished));
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
            // The receiver is gone once the program is over.
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

    /// Compares the result of the last submission with the prediction.
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
        // With certain capacity, or when it is closed, every way to submit must work without
        // waiting.
        let certain = before.1 < self.capacity || self.closed;
        let result = match (certain, how % 8) {
            (true, 0) => pool.submit(claims, work).map(Some).map_err(|e| e.kind()),
            (true, 1) => pool.execute(claims, || _ = work()).map(|()| None).map_err(|e| e.kind()),
            (true, 2) => {
                block_on(pool.task(claims).submit_async(work)).map(Some).map_err(|e| e.kind())
            }
            (true, 3) => {
                let execution = pool.task(claims).execute_async(|| _ = work());
                block_on(execution).map(|()| None).map_err(|e| e.kind())
            }
            (_, 4) => {
                let now = std::time::Duration::ZERO;
                pool.task(claims).timeout(now).submit(work).map(Some).map_err(|e| e.kind())
            }
            (_, 5) => {
                // Waits for a moment, if there is no capacity.
                let mut submission = Box::pin(pool.task(claims).submit_async(work));
                match poll(submission.as_mut(), &Wakes::new()) {
                    std::task::Poll::Ready(result) => result.map(Some).map_err(|e| e.kind()),
                    std::task::Poll::Pending => Err(SubmitErrorKind::Full),
                }
            }
            (_, 6) => {
                pool.task(claims).try_execute(|| _ = work()).map(|()| None).map_err(|e| e.kind())
            }
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

    pub(crate) fn step(&mut self, step: Step) {
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
                // The worker of a running task stays until it ends; other tests check how soon it
                // then ends.
                if workers >= self.count(State::Running) {
                    self.pool().settings().set_workers(workers).unwrap();
                    self.workers = workers;
                    eventually(|| self.pool().inspect().snapshot(0).workers.len() == workers);
                }
            }
            Step::Capacity(capacity) => {
                self.pool().settings().set_capacity(capacity).unwrap();
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

    pub(crate) fn end(&mut self, end: End, seed: usize) {
        match end {
            End::Drain => {
                self.pool().close();
                self.closed = true;
                self.finish_all(seed);
                self.pool().shutdown_timeout(LONG).unwrap();
            }
            End::Stop => {
                let unrun = self.pool().shutdown_now();
                (self.closed, self.stopped) = (true, true);
                assert!(unrun.len() >= self.count(State::Waiting), "{self:#?}");
                while self.count(State::Running) != 0 {
                    self.finish(seed, Vec::new());
                }
                self.pool().shutdown_timeout(LONG).unwrap();
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
            let snapshot = pool.inspect().snapshot(9);
            assert_eq!(snapshot.unfinished, 0);
            assert!(matches!(end, End::Stop) || snapshot.hottest.is_empty(), "{snapshot:#?}");
        }
        for (n, task) in self.tasks.iter_mut().enumerate() {
            let Some(handle) = task.handle.take() else { continue };
            assert!(handle.is_finished());
            match (handle.wait().unwrap(), task.state) {
                (Outcome::Completed(value), State::Ended) => {
                    assert_eq!((value, task.fails), (n, false))
                }
                (Outcome::Panicked(_), State::Ended) => assert!(task.fails),
                (Outcome::Cancelled, State::Cancelled) => {}
                (outcome, _) => panic!("task {n}, {task:?}: {outcome:?}"),
            }
        }
    }

    /// Runs the tasks that a stopped pool returned, in that order.
    fn run_here(&mut self, unrun: Vec<PendingTask<u32>>) {
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
            .field("pool", &self.pool.as_ref().map(|pool| pool.inspect().snapshot(9)))
            .finish()
    }
}
