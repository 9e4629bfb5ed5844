//! Runs what the order says is ready: the worker threads, how they sleep, and the bodies of tasks.

mod body;
mod crew;
mod current;
mod homes;
mod idle;
mod keeper;
mod pace;
mod stage;
mod time;
mod timer;
mod waits;
mod worker;

pub(crate) use body::{Body, Run, RunShared, name_of};
pub(crate) use crew::Crew;
pub use crew::MAX_SUBSTITUTES;
#[cfg(feature = "tokio")]
pub(crate) use current::Place;
pub(crate) use current::{
    Position, Standing, current_inside, engine_of_this_thread, set_fate, take_fate,
};
pub use homes::Placement;
pub(crate) use homes::{Homes, View};
pub(crate) use idle::Idle;
pub use keeper::TurnKeeper;
pub(crate) use pace::Pace;
pub use stage::Turn;
pub(crate) use stage::{EndTurn, Fate, Keeping, KeptValue, Stage, bystander};
pub use time::ManualClock;
pub(crate) use time::Time;
pub(crate) use timer::Timer;
pub(crate) use waits::{Awaited, NotedWait, Waiter, waiting_threads};
pub(crate) use worker::CrewControl;
