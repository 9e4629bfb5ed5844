//! Steps of a program, in the pool and in the reference, and the end.

use std::time::{Duration, Instant};

use crate::common::{AnyHasher, LONG};
use keylane::{Handle, OnClosedKey, Outcome, SubmitErrorKind};

use super::program::{Claim, End, Kind, Mode, Result, Role, Step, Submission};
use super::reference::{State, Task};
use super::world::{Gate, World, claims, patience, rate, retry};

/// Result of a submission, and the gate of its body.
type Submitted = (std::result::Result<Handle<usize, ()>, SubmitErrorKind>, Gate);

impl Task {
    fn new(submission: &Submission, job: Option<usize>) -> Self {
        let Submission { claim, role, kind, result, .. } = submission.clone();
        Task {
            claim,
            role,
            kind,
            result,
            state: State::Waiting,
            place: None,
            job,
            attempts: 0,
            told: false,
            had: Vec::new(),
            displaced: false,
            doubted: None,
            superseded: false,
        }
    }
}

impl<S: AnyHasher> World<S> {
    pub(super) fn step(&mut self, step: Step) {
        self.log.push(format!("{step:?}, tasks from {}", self.reference.tasks.len()));
        match step {
            Step::Submit(submission) => self.submit(submission),
            Step::Batch(batch) => self.batch(batch),
            Step::Job { subtasks } => self.submit_job(subtasks),
            Step::Finish(which) => self.finish(which),
            Step::Cancel(which) => self.cancel(which),
            Step::Pause(key) => {
                self.reference.hold(key);
                let paused = std::mem::replace(&mut self.key(key).paused, true);
                assert_eq!(self.pool().keys().pause(&key), !paused);
            }
            Step::Resume(key) => self.resume(key),
            Step::Take(key) => self.take(key),
            Step::Reopen(key) => {
                let refused = self.key(key).end.take_if(|end| end.1).is_some();
                assert_eq!(self.pool().keys().reopen(&key), refused);
            }
            Step::Rate(key, bound) => {
                self.pool().keys().set_rate(&key, bound.map(rate)).unwrap();
                let now = self.reference.now;
                let known = self.key(key);
                (known.rate, known.since, known.begun) = (bound, now, 0);
                known.blurred = Some(now);
            }
            Step::PauseJob(which) => self.set_job_paused(which, true),
            Step::ResumeJob(which) => self.set_job_paused(which, false),
            Step::CancelJob(which) => self.cancel_job(which),
            Step::Pass(nanos) => self.pass(nanos),
            Step::Workers(workers) => {
                // A worker that leaves ends its body first.
                if workers >= self.on_workers() {
                    self.pool().settings().set_workers(workers).unwrap();
                    self.workers = workers;
                }
            }
        }
    }

    fn key(&mut self, key: u32) -> &mut super::reference::Key {
        &mut self.reference.keys[key as usize]
    }

    fn resume(&mut self, key: u32) {
        let known = self.key(key);
        let held = known.paused || known.stopped;
        self.reference.release(key);
        assert_eq!(self.pool().keys().resume(&key), held);
    }

    /// Adds a task to the reference, before the pool has it.
    fn add(&mut self, submission: &Submission, job: Option<usize>) -> usize {
        self.reference.tasks.push(Task::new(submission, job));
        self.gates.push(None);
        self.handles.push(None);
        self.reference.tasks.len() - 1
    }

    /// Removes the last task: the pool has refused it.
    fn remove_last(&mut self) {
        self.reference.tasks.pop();
        self.gates.pop();
        self.handles.pop();
    }

    fn submit(&mut self, submission: Submission) {
        let Submission { claim, role, delay, .. } = &submission;
        let (role, delay, refuses) = (*role, *delay, self.reference.refuses(claim));
        let end = match (role, claim) {
            (Role::Last { .. }, Claim::Some { keys, .. }) => self.key(keys[0].0).end,
            _ => None,
        };
        let is_unsure = end.is_some_and(|(n, _)| self.is_unsure(n));
        let n = self.add(&submission, None);
        // It may begin before its submission returns.
        if delay.is_none() {
            self.enter(n);
        }
        let (result, gate) = self.put(n, &submission);
        match result {
            Err(SubmitErrorKind::KeyClosed) => {
                if !refuses && end.is_none() {
                    self.fail("a task of an open key is refused");
                }
                self.remove_last();
                if delay.is_none() {
                    self.undo_enter(n, end);
                }
            }
            Err(why) => self.fail(&format!("refused: {why:?}")),
            Ok(handle) => {
                if (refuses || (delay.is_none() && end.is_some())) && !is_unsure {
                    self.fail("a task of a closed key is accepted");
                }
                (self.gates[n], self.handles[n]) = (Some(gate), Some(handle));
                if let Some(delay) = delay {
                    self.reference.tasks[n].state = State::Delayed(self.reference.now + delay);
                    self.debounce(n);
                }
            }
        }
    }

    /// Whether a cancelled end has had its turn is not known, nor whether a subtask has begun a new
    /// life of the key.
    fn is_unsure(&self, end: usize) -> bool {
        let tasks = &self.reference.tasks[end..];
        let was_cancelled = tasks[0].attempts == 0 && self.is_over(end);
        was_cancelled || tasks.iter().any(|task| task.job.is_some())
    }

    /// A refused task has changed nothing.
    fn undo_enter(&mut self, n: usize, end: Option<(usize, bool)>) {
        for key in &mut self.reference.keys {
            key.latest.take_if(|latest| *latest == n);
            if key.end.is_some_and(|end| end.0 == n) {
                key.end = end;
            }
        }
    }

    /// A delayed latest task replaces the one before it.
    fn debounce(&mut self, n: usize) {
        let task = self.reference.tasks[n].clone();
        if task.role != Role::Latest {
            return;
        }
        let older = (0..n).find(|&m| {
            let other = &self.reference.tasks[m];
            let is_delayed = matches!(other.state, State::Delayed(_));
            is_delayed && other.role == Role::Latest && other.claim == task.claim
        });
        if let Some(older) = older {
            if !self.handles[older].as_ref().is_some_and(Handle::is_finished) {
                self.fail(&format!("{n} does not replace the delayed {older}"));
            }
            self.reference.tasks[older].state = State::Gone;
            self.reference.tasks[older].superseded = true;
        }
    }

    fn put(&mut self, n: usize, submission: &Submission) -> Submitted {
        let Submission { claim, role, kind, result, delay } = submission.clone();
        let pool = self.pool().clone();
        let mut task = pool.task(claims(&claim));
        if let Some(delay) = delay {
            task = task.after(Duration::from_nanos(delay));
        }
        task = match role {
            Role::Ordinary => task,
            Role::Latest => task.latest(),
            Role::Last { refuses: true } => task.last(OnClosedKey::Refuse),
            Role::Last { refuses: false } => task.last(OnClosedKey::NewLife),
        };
        match kind {
            Kind::Closure => {
                let (body, gate) = self.closure(n, result);
                (task.fallible().submit(body).map_err(|error| error.kind()), gate)
            }
            Kind::Future => {
                let (body, gate) = self.future(n, result);
                (task.fallible().submit(body).map_err(|error| error.kind()), gate)
            }
            Kind::Retry { failures, attempts } => {
                let (body, gate) = self.retried(n, failures);
                let task = task.fallible().retry(retry(attempts));
                (task.submit(body).map_err(|error| error.kind()), gate)
            }
        }
    }

    /// A task takes its place in the order.
    fn enter(&mut self, n: usize) {
        self.reference.pass(n);
        let place = self.reference.place();
        let task = &mut self.reference.tasks[n];
        (task.state, task.place) = (State::Waiting, Some(place));
        let (role, claim) = (task.role, task.claim.clone());
        let Claim::Some { keys, .. } = claim else { return };
        match role {
            Role::Ordinary => {}
            Role::Latest => {
                if let Some(old) = self.key(keys[0].0).latest.replace(n) {
                    self.reference.tasks[old].displaced = true;
                }
            }
            Role::Last { refuses } => {
                let key = self.key(keys[0].0);
                // A key that is closed stays so; this task is refused then.
                key.end = key.end.or(Some((n, refuses)));
            }
        }
    }

    fn batch(&mut self, batch: Vec<Submission>) {
        let refused = batch.iter().position(|it| self.reference.refuses(&it.claim));
        let accepted = refused.unwrap_or(batch.len());
        let mut work = Vec::new();
        for (at, submission) in batch.iter().enumerate() {
            let n = self.reference.tasks.len();
            let (body, gate) = self.closure(n + at.saturating_sub(accepted), Result::Value);
            if at < accepted {
                self.add(submission, None);
                self.gates[n] = Some(gate);
                self.enter(n);
            }
            work.push((claims(&submission.claim), move || _ = body()));
        }
        let result = self.pool().execute_many(work);
        let known = result.unwrap_or_else(|error| *error.accepted());
        if known != accepted {
            self.fail(&format!("{known} tasks of a batch are accepted, not {accepted}"));
        }
    }

    fn submit_job(&mut self, subtasks: Vec<(u32, Mode)>) {
        let job = self.jobs.len();
        let mut work = Vec::new();
        for &(key, mode) in &subtasks {
            let claim = Claim::Some { keys: vec![(key, mode)], span: None };
            let submission = Submission {
                claim: claim.clone(),
                role: Role::Ordinary,
                kind: Kind::Closure,
                result: Result::Value,
                delay: None,
            };
            let n = self.add(&submission, Some(job));
            let (body, gate) = self.closure(n, Result::Value);
            self.gates[n] = Some(gate);
            work.push((claims(&claim), move || _ = body()));
        }
        self.reference.paused_jobs.push(false);
        let handle = self.pool().job("job").each_keyed(work).run();
        self.jobs.push(handle.unwrap_or_else(|_| panic!("the pool is open")));
    }

    fn nth(&self, which: usize, is: impl Fn(&Task) -> bool) -> Option<usize> {
        let tasks = &self.reference.tasks;
        let chosen: Vec<_> = (0..tasks.len()).filter(|&n| is(&tasks[n])).collect();
        (!chosen.is_empty()).then(|| chosen[which % chosen.len()])
    }

    /// Lets a running body end, and waits for that.
    fn finish(&mut self, which: usize) {
        if let Some(n) = self.nth(which, |task| task.state == State::Running) {
            self.open(n);
        }
    }

    fn open(&mut self, n: usize) {
        self.log.push(format!("  the gate of {n} is opened"));
        self.gates[n].as_mut().expect("a running body has a gate").open();
        while self.reference.tasks[n].state == State::Running {
            if !self.hear() {
                self.fail(&format!("task {n} does not end"));
            }
        }
    }

    fn cancel(&mut self, which: usize) {
        let is_open = |n: &usize| self.reference.tasks[*n].is_open() && self.handles[*n].is_some();
        let chosen: Vec<_> = (0..self.reference.tasks.len()).filter(is_open).collect();
        let Some(&n) = chosen.get(which % chosen.len().max(1)) else { return };
        self.log.push(format!("  {n} is cancelled"));
        let cancelled = self.handles[n].as_ref().expect("it was chosen for that").cancel();
        let state = self.reference.tasks[n].state;
        if cancelled != (state != State::Running) {
            self.fail(&format!("cancelling {n}, which is {state:?}, says {cancelled}"));
        }
        let task = &mut self.reference.tasks[n];
        match state {
            State::Delayed(_) => task.state = State::Gone,
            State::Waiting => task.state = State::Cancelled,
            State::Backoff(_) => {
                task.state = State::Ended;
                for key in &mut self.reference.keys {
                    key.end.take_if(|end| end.0 == n && !end.1);
                }
            }
            _ => {
                task.told = true;
                while self.reference.tasks[n].kind == Kind::Future
                    && self.reference.tasks[n].state == State::Running
                {
                    if !self.hear() {
                        self.fail(&format!("the cancelled future {n} is not dropped"));
                    }
                }
            }
        }
    }

    /// Takes the waiting tasks of a key alone, and drops them.
    fn take(&mut self, key: u32) {
        let taken = self.pool().keys().take(&key).len();
        let is_taken = |task: &Task| {
            let is_last = matches!(task.role, Role::Last { .. });
            let waits = matches!(task.state, State::Waiting | State::Delayed(_));
            task.is_alone(key) && waits && !is_last && task.job.is_none()
        };
        let mut known = 0;
        for n in 0..self.reference.tasks.len() {
            let task = &self.reference.tasks[n];
            let is_end = matches!(task.state, State::Delayed(_)) && self.is_over(n);
            if is_taken(task) || is_end {
                known += 1;
                self.reference.tasks[n].state = State::Gone;
            }
            self.reference.tasks[n].displaced |= self.reference.tasks[n].is_alone(key);
        }
        let cancelled =
            self.reference.count(|task| task.is_alone(key) && task.state == State::Cancelled);
        if !(known..=known + cancelled).contains(&taken) {
            self.fail(&format!("{taken} tasks are taken, not {known}"));
        }
    }

    fn is_over(&self, n: usize) -> bool {
        self.handles[n].as_ref().is_some_and(Handle::is_finished)
    }

    fn set_job_paused(&mut self, which: usize, paused: bool) {
        if self.jobs.is_empty() {
            return;
        }
        let job = which % self.jobs.len();
        let handle = &self.jobs[job];
        _ = if paused { handle.pause() } else { handle.resume() };
        self.reference.paused_jobs[job] = paused;
    }

    fn cancel_job(&mut self, which: usize) {
        if self.jobs.is_empty() {
            return;
        }
        let job = which % self.jobs.len();
        self.jobs[job].cancel();
        for task in &mut self.reference.tasks {
            if task.job == Some(job) && task.state == State::Waiting {
                task.state = State::Cancelled;
            }
        }
    }

    /// Time passes: delays end, in their order.
    pub(super) fn pass(&mut self, nanos: u64) {
        self.reference.now += nanos;
        let now = self.reference.now;
        let tasks = &self.reference.tasks;
        let mut due: Vec<_> = (0..tasks.len())
            .filter_map(|n| match tasks[n].state {
                State::Delayed(at) if at <= now => Some((at, n)),
                _ => None,
            })
            .collect();
        due.sort_unstable();
        for (_, n) in due {
            let task = &self.reference.tasks[n];
            let (role, claim) = (task.role, task.claim.clone());
            let is_closed = match (role, &claim) {
                (Role::Last { .. }, Claim::Some { keys, .. }) => self.is_ended(n, keys[0].0),
                _ => self.reference.refuses(&claim),
            };
            match is_closed {
                true => self.reference.tasks[n].state = State::Gone,
                false => self.enter(n),
            }
        }
        self.clock.advance(Duration::from_nanos(nanos));
    }

    /// Returns whether a delayed end of a key is cancelled, because the key has another one. Where
    /// that is not known, the pool shows it later.
    fn is_ended(&mut self, n: usize, key: u32) -> bool {
        let Some((last, refuses)) = self.key(key).end else { return false };
        let is_unsure = !refuses && self.is_unsure(last);
        if is_unsure {
            self.reference.tasks[n].doubted = self.key(key).end.take();
        }
        !is_unsure
    }

    pub(super) fn end(&mut self, end: End) {
        self.log.push(format!("{end:?}"));
        match end {
            End::Finish => self.finish_all(),
            End::Stop => self.stop(),
            End::Drop => self.drop_pool(),
        }
        self.check_outcomes(end);
    }

    fn finish_all(&mut self) {
        let keys = 0..self.reference.keys.len() as u32;
        for key in keys.clone() {
            self.step(Step::Reopen(key));
        }
        for job in 0..self.jobs.len() {
            self.set_job_paused(job, false);
        }
        while self.reference.count(Task::is_open) != 0 {
            keys.clone().for_each(|key| self.resume(key));
            self.settle();
            match self.nth(0, |task| task.state == State::Running) {
                Some(n) => self.open(n),
                None => self.pass(5),
            }
            self.settle();
        }
        // Cancelled tasks still have their places where a key was paused, or has a rate.
        keys.for_each(|key| self.resume(key));
        let start = Instant::now();
        while self.pool().inspect().snapshot(0).unfinished != 0 {
            self.clock.advance(Duration::from_nanos(100));
            std::thread::yield_now();
            if start.elapsed() > patience() {
                self.fail("a task without a body does not end");
            }
        }
        for job in std::mem::take(&mut self.jobs) {
            job.wait().unwrap();
        }
        self.pool().shutdown_timeout(LONG).unwrap();
        let snapshot = self.pool().inspect().snapshot(9);
        assert!(snapshot.hottest.is_empty() && snapshot.delayed == 0, "{snapshot:#?}");
    }

    fn stop(&mut self) {
        let unrun = self.pool().shutdown_now().len();
        self.listen();
        let is_unrun = |task: &Task| {
            task.job.is_none() && matches!(task.state, State::Waiting | State::Delayed(_))
        };
        let known = self.reference.count(is_unrun);
        let cancelled = self.reference.count(|task| task.state == State::Cancelled);
        if !(known..=known + cancelled).contains(&unrun) {
            self.fail(&format!("{unrun} tasks come back from a stop, not {known}"));
        }
        self.leave();
        self.pool().shutdown_timeout(LONG).unwrap();
        self.listen();
    }

    fn drop_pool(&mut self) {
        self.leave();
        self.jobs.clear();
        let pool = self.pool.take();
        for gate in &mut self.gates {
            *gate = None;
        }
        drop(pool);
    }

    /// What has not begun never does, and each body may end.
    fn leave(&mut self) {
        for gate in &mut self.gates {
            *gate = None;
        }
        self.jobs.clear();
    }

    fn check_outcomes(&mut self, end: End) {
        for n in 0..self.reference.tasks.len() {
            let Some(mut handle) = self.handles[n].take() else { continue };
            // A future ends on its runtime, and the drop of a pool does not wait for that.
            let Ok(Some(outcome)) = handle.wait_timeout(patience()) else {
                self.fail(&format!("the handle of {n} is open"));
            };
            let task = &self.reference.tasks[n];
            let (state, told, superseded) = (task.state, task.told, task.superseded);
            let fits = match &outcome {
                _ if matches!(end, End::Drop | End::Stop) && state != State::Ended => true,
                Outcome::Completed(value) => state == State::Ended && *value == n,
                Outcome::Failed(()) | Outcome::Panicked(_) => state == State::Ended,
                Outcome::Cancelled => state != State::Ended || told || task.attempts > 0,
                Outcome::Superseded => superseded,
                _ => false,
            };
            if !fits {
                self.fail(&format!("task {n} is {state:?}, and its outcome {outcome:?}"));
            }
        }
    }
}
