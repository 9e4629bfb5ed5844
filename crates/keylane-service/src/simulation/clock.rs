//! Simulated time: a steady clock that includes the sleep of the machine, and a wall clock that is
//! set forward and backward.

use std::sync::Mutex;

use tokio::time::Instant;

/// Wall time at the begin of a simulation, in milliseconds since 1970.
const BEGIN: u64 = 1_763_000_000_000;

#[derive(Debug, Default)]
pub(super) struct Clock(Mutex<ClockState>);

#[derive(Debug, Default)]
struct ClockState {
    /// Begin of the present process on its runtime's clock.
    process: Option<Instant>,
    /// Steady time at that begin, in milliseconds, and since then the sleep of the machine.
    base: u64,
    /// Time of the last step or sleep, on the runtime's clock.
    disturbed: Option<Instant>,
    /// Difference of the wall clock to the steady clock since the begin, in milliseconds.
    offset: i64,
    /// Highest difference so far.
    highest: i64,
}

impl ClockState {
    fn steady(&self) -> u64 {
        let ran = self.process.map_or(0, |begin| begin.elapsed().as_millis());
        self.base + u64::try_from(ran).unwrap()
    }
}

impl Clock {
    /// Returns the steady time, in milliseconds since the begin of the simulation.
    pub(super) fn steady(&self) -> u64 {
        self.0.lock().unwrap().steady()
    }

    /// Returns the wall time, in milliseconds since 1970.
    pub(super) fn wall(&self) -> u64 {
        let state = self.0.lock().unwrap();
        (BEGIN + state.steady()).saturating_add_signed(state.offset)
    }

    /// Begins a process on the present runtime.
    pub(super) fn begin(&self) {
        let mut state = self.0.lock().unwrap();
        (state.process, state.disturbed) = (Some(Instant::now()), None);
    }

    /// Returns the steady time at which a deadline of the service, in wall time, is reached.
    /// Returns the present time if the service may not have followed the wall clock yet.
    pub(super) fn steady_of(&self, wall: u64) -> u64 {
        let state = self.0.lock().unwrap();
        let is_settled = state.disturbed.is_none_or(|at| at.elapsed().as_secs() >= 3);
        let now = (BEGIN + state.steady()).saturating_add_signed(state.offset);
        state.steady() + if is_settled { wall.saturating_sub(now) } else { 0 }
    }

    /// Ends the process. `pause` is the time until the next one, in milliseconds.
    pub(super) fn end(&self, pause: u64) {
        let mut state = self.0.lock().unwrap();
        state.base = state.steady() + pause;
        state.process = None;
    }

    /// Sets the wall clock forward or backward.
    pub(super) fn set_by(&self, ms: i64) {
        let mut state = self.0.lock().unwrap();
        state.offset += ms;
        state.highest = state.highest.max(state.offset);
        state.disturbed = Some(Instant::now());
    }

    /// Sets the wall clock to the highest time that it would show if it had never been set back.
    /// Returns the difference, if there is one.
    pub(super) fn catch_up(&self) -> Option<i64> {
        let ms = {
            let state = self.0.lock().unwrap();
            state.highest - state.offset
        };
        (ms > 0).then(|| {
            self.set_by(ms);
            ms
        })
    }

    /// Lets the machine sleep: both clocks advance, and no timer runs.
    pub(super) fn sleep(&self, ms: u64) {
        let mut state = self.0.lock().unwrap();
        state.base += ms;
        state.disturbed = Some(Instant::now());
    }
}
