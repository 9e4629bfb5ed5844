//! Runs programs on an executor and on the model beside it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::model::Model;
use super::program::{Claims, Features, KEYS, Program, Step};

/// Executor under test. Tasks have the numbers of their submissions, from 0.
pub trait Executor {
    /// Features that the executor has.
    const FEATURES: Features;

    /// Creates an executor on which this number of tasks may run at a time.
    fn new(slots: usize) -> Self;

    /// Submits a task.
    fn submit(&mut self, task: usize, claims: &Claims);

    /// Returns a task that has started and was not returned before. If one `must` start, waits for
    /// it, and returns `None` if it does not come.
    fn next_start(&mut self, must: bool) -> Option<usize>;

    /// Ends a running task. A failure stops its keys.
    fn end(&mut self, task: usize, fails: bool);

    /// Cancels a waiting task.
    fn cancel(&mut self, task: usize);

    /// Pauses a key.
    fn pause(&mut self, key: u8);

    /// Resumes a key. `gives_up` says that a failed task keeps it, which ends now. Several failed
    /// tasks may keep a key that they share: then one of them ends, and is returned. `None` stands
    /// for the first one.
    fn resume(&mut self, key: u8, gives_up: bool) -> Option<usize>;

    /// Changes the number of tasks that may run at a time.
    fn resize(&mut self, slots: usize);

    /// Checks the executor when all tasks have ended: nothing may be left.
    fn finish(self);
}

/// Runs the programs of these seeds on an executor.
///
/// # Panics
///
/// Panics if a program fails, with the shortest one found that does, and its error.
pub fn check_order<E: Executor>(seeds: impl IntoIterator<Item = u64>) {
    for seed in seeds {
        let program = Program::random(seed, E::FEATURES);
        if let Err(error) = outcome::<E>(&program) {
            let (program, error) = shortened::<E>(program, error);
            let steps = program.steps.iter().map(|step| format!("\n  {step:?}"));
            let steps: String = steps.collect();
            panic!("seed {seed}, {} slots: {error}{steps}", program.slots);
        }
    }
}

/// Leaves out steps as long as the program fails.
fn shortened<E: Executor>(mut program: Program, mut error: String) -> (Program, String) {
    let mut step = program.steps.len();
    while step > 0 {
        step -= 1;
        let mut shorter = program.clone();
        shorter.steps.remove(step);
        if let Err(other) = outcome::<E>(&shorter) {
            (program, error) = (shorter, other);
        }
    }
    (program, error)
}

fn outcome<E: Executor>(program: &Program) -> Result<(), String> {
    catch_unwind(AssertUnwindSafe(|| run::<E>(program))).unwrap_or_else(|payload| {
        let text = payload.downcast_ref::<String>().cloned();
        Err(text.unwrap_or_else(|| "the executor panicked".to_owned()))
    })
}

fn run<E: Executor>(program: &Program) -> Result<(), String> {
    let mut pair =
        Pair { executor: E::new(program.slots), model: Model::new(program.slots, E::FEATURES) };
    for (number, step) in program.steps.iter().enumerate() {
        pair.step(step);
        pair.settle().map_err(|error| format!("after step {number}: {error}"))?;
    }
    // Everything that was accepted ends.
    for key in 0..KEYS {
        pair.step(&Step::Resume(key));
        pair.settle()?;
        // Several failed tasks may share the key.
        while pair.model.stopped_head(key).is_some() {
            pair.step(&Step::Resume(key));
            pair.settle()?;
        }
    }
    while !pair.model.running().is_empty() {
        pair.step(&Step::End { which: 0, fails: false });
        pair.settle()?;
    }
    match pair.model.waiting().first() {
        None => {
            pair.executor.finish();
            Ok(())
        }
        Some(task) => Err(format!("task {task} waits, and nothing runs: the model is wrong")),
    }
}

struct Pair<E> {
    executor: E,
    model: Model,
}

impl<E: Executor> Pair<E> {
    fn step(&mut self, step: &Step) {
        match step {
            Step::Submit(claims) => {
                let task = self.model.submit(claims.clone());
                self.executor.submit(task, claims);
            }
            Step::End { which, fails } => {
                if let Some(task) = nth(&self.model.running(), *which) {
                    let fails = *fails && self.model.may_fail(task);
                    self.model.end(task, fails);
                    self.executor.end(task, fails);
                }
            }
            Step::Cancel { which } => {
                if let Some(task) = nth(&self.model.waiting(), *which) {
                    self.model.cancel(task);
                    self.executor.cancel(task);
                }
            }
            Step::Pause(key) => {
                if self.model.may_pause(*key) {
                    self.model.pause(*key);
                    self.executor.pause(*key);
                }
            }
            Step::Resume(key) => {
                let gives_up = self.model.stopped_head(*key).is_some();
                let given_up = self.executor.resume(*key, gives_up);
                self.model.resume(*key, given_up);
            }
            Step::Resize(slots) => {
                // A slot of a running task is removed when that ends, and others test when.
                if *slots >= self.model.running().len() {
                    self.model.resize(*slots);
                    self.executor.resize(*slots);
                }
            }
        }
    }

    /// Waits until all tasks run that must, and checks each start.
    fn settle(&mut self) -> Result<(), String> {
        loop {
            let (running, expected) = (self.model.running().len(), self.model.expected_running());
            match self.executor.next_start(running < expected) {
                Some(task) => self.model.start(task)?,
                None if running < expected => {
                    return Err(format!("{running} tasks run, and {expected} must"));
                }
                None => return Ok(()),
            }
        }
    }
}

fn nth(tasks: &[usize], which: usize) -> Option<usize> {
    tasks.get(which.checked_rem(tasks.len())?).copied()
}
