//! Runs ready tasks: worker threads, their sleep and wake-up, and the bodies of tasks.

mod affinity;
mod attempt;
mod attempt_context;
mod batch_size;
mod body;
mod cancel_flag;
mod clock;
mod context;
mod current;
mod idle;
mod resumed_turn;
mod sampler;
mod stretch;
mod timer;
mod turn_keeper;
mod waits;
mod worker;
mod workers;

pub use affinity::Placement;
pub(crate) use affinity::{ShardChoiceInput, WorkerAffinity};
pub(crate) use attempt::{AttemptEngine, RetryAttempt};
pub(crate) use attempt_context::AttemptContext;
pub(crate) use body::{RunBody, RunSharedBody, TaskBody, name_of};
pub use cancel_flag::is_cancelled;
pub(crate) use cancel_flag::{CancelFlag, LentCancelFlag, with_cancel_flag, with_current_flag};
pub use clock::MockClock;
pub(crate) use clock::TimeSource;
pub use context::Turn;
pub(crate) use context::{
    EndTurn, ExecContext, KeepValueContext, KeptValue, LaneJob, SubtaskEnd, TurnResult,
    noop_context,
};
#[cfg(feature = "tokio")]
pub(crate) use current::SavedContext;
pub(crate) use current::{
    OrderPosition, SavedPosition, current_engine_hooks, engine_of_this_thread, set_turn_result,
    take_turn_result,
};
pub(crate) use idle::IdleWorkers;
pub(crate) use sampler::Sampler;
pub(crate) use timer::Timer;
pub use turn_keeper::TaskContext;
#[cfg(feature = "tokio")]
pub(crate) use waits::forget_soft_waits;
pub(crate) use waits::{
    AwaitedTask, RegisteredWait, SoftWait, WaitingTask, has_soft_wait, soft_waiter,
    tasks_in_cycles, waiting_threads,
};
pub(crate) use worker::SpawnWorkers;
pub use workers::MAX_SUBSTITUTES;
pub(crate) use workers::{BlockAnswer, WorkerSet};
