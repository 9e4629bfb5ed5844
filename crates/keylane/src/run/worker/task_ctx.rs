//! Context of a running task at its worker: what its body reports, and the turn that it can keep.

use std::any::Any;
use std::hash::BuildHasher;
use std::sync::Arc;
use std::time::Duration;

use crate::engine::{Engine, Execute, Key};
use crate::key_state::ErasedKeyState;
use crate::observe::{TraceOutcome, WorkerCounters};
use crate::order::HeldLanes;
use crate::run::stretch::Stretch;
use crate::run::{
    AttemptEngine, EndTurn, ExecContext, LaneJob, SubtaskEnd, Turn, TurnResult, current,
};

/// Context of one running task.
pub(super) struct TaskCtx<'a, K: Key, X: Execute<K>, S> {
    pub(super) engine: &'a Arc<Engine<K, X, S>>,
    pub(super) counters: &'a WorkerCounters,
    pub(super) shard: usize,
    /// Key, if the executor wants it.
    pub(super) key: Option<&'a K>,
    pub(super) turn: TaskTurn<HeldLanes<K, X::Work>>,
    pub(super) stretch: &'a mut Stretch,
}

/// Owner of a task's turn while its body runs.
pub(super) enum TaskTurn<H> {
    /// The body, with these claims.
    Here(H),
    /// The holder of a kept turn, which has this number in its shard.
    Kept(usize),
}

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> ExecContext
    for TaskCtx<'_, K, X, S>
{
    fn panicked(&self, payload: &(dyn Any + Send)) {
        current::set_turn_result(TurnResult::Failed);
        self.engine.panicked(payload);
    }

    fn failed(&self) {
        current::set_turn_result(TurnResult::Failed);
        self.engine.counters.count_failed();
        self.engine.record_abnormal_end(TraceOutcome::Failed);
    }

    fn cancelled(&self) {
        self.set_void();
        self.engine.counters.count_cancelled();
        self.engine.record_abnormal_end(TraceOutcome::Cancelled);
    }

    fn set_void(&self) {
        current::set_turn_result(TurnResult::Void);
    }

    fn attempts(&self) -> Option<Arc<dyn AttemptEngine>> {
        Some(self.engine.clone())
    }

    fn begin_subtask(&mut self, job: &dyn LaneJob) -> bool {
        self.stretch.begin(self.engine, self.counters, job)
    }

    fn end_subtask(&mut self, end: SubtaskEnd, at_once: bool) {
        if self.stretch.end_subtask(end) || at_once {
            self.engine.report_assignment(self.stretch.close(self.counters));
        }
    }

    fn take_state(&mut self) -> Option<ErasedKeyState> {
        self.engine.take_state(self.key?)
    }

    fn put_state(&mut self, state: ErasedKeyState) -> Option<ErasedKeyState> {
        match self.key {
            Some(key) => self.engine.put_state(key, state),
            None => Some(state),
        }
    }

    fn keep_turn(&mut self) -> Turn {
        // Placeholder until the engine returns the number: no shard has as many turns.
        let held = match std::mem::replace(&mut self.turn, TaskTurn::Kept(usize::MAX)) {
            TaskTurn::Here(held) => held,
            TaskTurn::Kept(_) => unreachable!("a turn is kept once"),
        };
        let turn = self.engine.keep_turn(self.shard, held, self.counters.began());
        self.turn = TaskTurn::Kept(turn);
        Turn::new(KeptTurn { engine: self.engine.clone(), shard: self.shard, turn })
    }
}

/// Turn kept beyond its body, or at least taken out of it.
struct KeptTurn<K: Key, X: Execute<K>, S> {
    engine: Arc<Engine<K, X, S>>,
    shard: usize,
    /// Number of the turn in its shard.
    turn: usize,
}

impl<K: Key, X: Execute<K>, S: BuildHasher + Send + Sync + 'static> EndTurn for KeptTurn<K, X, S> {
    fn end(self: Box<Self>, turn_result: TurnResult) {
        self.engine.intact_quietly(|| self.engine.leave_turn(self.shard, self.turn, turn_result));
    }

    fn back_off(&self, pause: Duration) {
        self.engine.back_off(self.shard, self.turn, pause);
    }

    fn location(&self) -> Option<(usize, usize)> {
        Some((self.shard, self.turn))
    }

    fn engine(&self) -> Option<Arc<dyn AttemptEngine>> {
        Some(self.engine.clone())
    }
}
