//! Check of the order of each key, and the durations of the handlers of a run.

use std::collections::HashMap;
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use keylane_stream::Position;
use keylane_stream::consumer::Attempt;

/// Checks the order of each key, and measures the handlers of a run.
pub(crate) struct Watch {
    seen: Mutex<Seen>,
    /// Notified when all have ended.
    over: Condvar,
    /// Number of records of the run.
    total: u64,
}

#[derive(Default)]
struct Seen {
    /// Start of the first handler.
    first: Option<Instant>,
    ended: u64,
    /// By partition and key.
    lanes: HashMap<(u32, Vec<u8>), Lane>,
    over: Option<Over>,
}

#[derive(Default)]
struct Lane {
    /// Highest position that has ended.
    last: Option<Position>,
    /// Total duration of its handlers.
    took: Duration,
}

/// Times of a run.
#[derive(Clone, Copy)]
pub(crate) struct Over {
    /// From the start of the first handler to the end of the last.
    pub(crate) work: Duration,
    /// End of the last handler.
    pub(crate) at: Instant,
    /// Total duration of the slowest key's handlers, which run one after another; and that of all
    /// keys.
    pub(crate) slowest_key: Duration,
    pub(crate) handlers: Duration,
}

impl Watch {
    pub(crate) fn new(total: u64) -> Self {
        Watch { seen: Mutex::default(), over: Condvar::new(), total }
    }

    pub(crate) fn begins(&self) -> Instant {
        let now = Instant::now();
        self.seen.lock().unwrap().first.get_or_insert(now);
        now
    }

    pub(crate) fn ends(&self, attempt: &Attempt, begun: Instant) {
        let now = Instant::now();
        let lane = (attempt.partition().number(), attempt.key().unwrap_or_default().to_vec());
        let mut seen = self.seen.lock().unwrap();
        let lane = seen.lanes.entry(lane).or_default();
        let before = lane.last.replace(attempt.position());
        assert!(before < Some(attempt.position()), "out of order");
        lane.took += now - begun;
        seen.ended += 1;
        if seen.ended == self.total {
            seen.over = Some(seen.sum_up(now));
            self.over.notify_all();
        }
    }

    /// Waits until all have ended.
    pub(crate) fn wait(&self) -> Over {
        let seen = self.seen.lock().unwrap();
        let seen = self.over.wait_while(seen, |seen| seen.over.is_none()).unwrap();
        seen.over.expect("it was waited for")
    }
}

impl Seen {
    fn sum_up(&self, now: Instant) -> Over {
        let all = self.lanes.values().map(|lane| lane.took);
        Over {
            work: now - self.first.expect("some have begun"),
            at: now,
            slowest_key: all.clone().max().unwrap_or_default(),
            handlers: all.sum(),
        }
    }
}
