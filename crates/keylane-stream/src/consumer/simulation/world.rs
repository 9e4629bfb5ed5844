//! Time and history of a simulation, shared by all its parts.

use std::sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use super::super::outside::Clock;
use super::history::{Entry, Event};

/// Time of day at the begin of a simulation, in milliseconds since 1970.
const BEGIN: u64 = 1_763_000_000_000;

#[derive(Debug)]
pub(super) struct World {
    /// Time since the begin, in microseconds.
    now: AtomicU64,
    /// Difference of the time of day to the steady time, in milliseconds.
    offset: AtomicI64,
    /// Begin on the clock of the product, whose times have no other origin.
    base: Instant,
    history: Mutex<Vec<Entry>>,
}

impl World {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(World {
            now: AtomicU64::new(0),
            offset: AtomicI64::new(0),
            base: Instant::now(),
            history: Mutex::default(),
        })
    }

    pub(super) fn now(&self) -> u64 {
        self.now.load(Relaxed)
    }

    pub(super) fn set_now(&self, micros: u64) {
        self.now.store(micros, Relaxed);
    }

    /// Sets the time of day forward or backward.
    pub(super) fn step_wall(&self, ms: i64) {
        self.offset.fetch_add(ms, Relaxed);
        self.record(Event::Set { ms });
    }

    /// Returns the first microsecond at which a time of the product has come.
    pub(super) fn micros_of(&self, at: Instant) -> u64 {
        let since = at.saturating_duration_since(self.base);
        u64::try_from(since.as_nanos().div_ceil(1000)).expect("a simulation is short")
    }

    pub(super) fn record(&self, event: Event) {
        self.history.lock().unwrap().push(Entry { at: self.now(), event });
    }

    pub(super) fn take_history(&self) -> Vec<Entry> {
        std::mem::take(&mut self.history.lock().unwrap())
    }
}

/// Clock of the consumers.
pub(super) struct SimulatedClock(pub(super) Arc<World>);

impl Clock for SimulatedClock {
    fn now(&self) -> Instant {
        self.0.base + Duration::from_micros(self.0.now())
    }

    fn wall(&self) -> SystemTime {
        let ms = BEGIN + self.0.now() / 1000;
        let ms = ms.saturating_add_signed(self.0.offset.load(Relaxed));
        UNIX_EPOCH + Duration::from_millis(ms)
    }
}
