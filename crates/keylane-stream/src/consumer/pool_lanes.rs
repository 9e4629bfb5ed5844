//! Lanes of a consumer in a pool of the library: in one that calls a handler for records with one lane
//! each, or in one of tasks, for records that limit or combine their lanes.

use std::num::NonZeroU16;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use keylane::{BuildError, Builder, Claims, MAX_CAPACITY, Pool, Rate, TaskContext, handler};

use super::RecordPool;
use super::handler::HandlerAdapter;
use super::in_flight::InFlight;
use super::key_guard::{KeyGuard, PoolTurn};
use super::ordering::{LaneId, LaneSet};
use super::record_lanes::RecordLanes;
use super::shared::ConsumerShared;

/// Settings of the pool.
#[derive(Clone, Debug, Default)]
pub(super) struct LaneConfig {
    pub(super) thread_name: String,
    pub(super) rate: Option<Rate>,
    pub(super) rate_per_key: Option<Rate>,
    /// Maximum number of records of a key at a time, in no order among them.
    pub(super) limit_per_key: Option<NonZeroU16>,
    /// Whether a record replaces the one of its key that has not begun.
    pub(super) is_latest: bool,
    /// Whether records can have several lanes.
    pub(super) has_lane_sets: bool,
}

/// Calls the handler of a consumer with a record that has its turn.
type HandleCall = dyn Fn(&LaneId, InFlight, TaskContext<'_>) + Send + Sync;

/// Starts a pool whose workers call the handler with the turn of the record's lanes.
pub(super) fn start<H: HandlerAdapter>(
    shared: &Arc<ConsumerShared>,
    handler: H,
    threads: Option<usize>,
    config: LaneConfig,
) -> Result<Arc<dyn RecordLanes>, BuildError> {
    let mut pool = Pool::builder().capacity(MAX_CAPACITY).thread_name(config.thread_name);
    if let Some(threads) = threads {
        pool = pool.workers(threads);
        if H::BLOCKS {
            // A number of threads is set for handlers that block. Even progress of the keys keeps
            // all threads busy to the end.
            pool = pool.strict_quantum();
        }
    }
    let has_rates = config.rate.is_some() || config.rate_per_key.is_some();
    pool = config.rate.into_iter().fold(pool, Builder::rate);
    pool = config.rate_per_key.into_iter().fold(pool, Builder::rate_per_key);
    let shared = shared.clone();
    let call: Arc<HandleCall> =
        Arc::new(move |lane: &LaneId, in_flight: InFlight, task: TaskContext<'_>| {
            handler.handle_record(&shared, lane, in_flight, &mut PoolTurn::new(task));
        });
    let retries = RetryLanes { call: call.clone(), number: AtomicU64::new(u64::MAX) };
    if config.limit_per_key.is_some() || config.has_lane_sets {
        let limit = config.limit_per_key;
        return Ok(Arc::new(TaskLanes { pool: pool.build()?, retries, limit, has_rates }));
    }
    let handle = move |lane: &LaneId, in_flight: InFlight, task: TaskContext<'_>| {
        call(lane, in_flight, task)
    };
    let pool = pool.build_handler(handler::with_context(handle))?;
    Ok(Arc::new(MessageLanes { pool, retries, is_latest: config.is_latest, has_rates }))
}

/// Records that run again.
struct RetryLanes {
    call: Arc<HandleCall>,
    /// Number of the last lane of a retry, counted downwards. The coordinator numbers its lanes of
    /// single records upwards from 1, so the numbers do not meet.
    number: AtomicU64,
}

impl RetryLanes {
    /// Runs a record in the turn that it holds: no task can come between, and it is not charged to the
    /// rates. Returns a record that holds another guard, with a lane of its own.
    fn resume(&self, mut in_flight: InFlight) -> Option<(LaneId, InFlight)> {
        let lane = LaneId::Single { number: self.number.fetch_sub(1, Ordering::Relaxed) - 1 };
        match in_flight.turn.take() {
            Some(KeyGuard::Pool(turn)) => {
                let call = self.call.clone();
                turn.resume(move |task: TaskContext<'_>| call(&lane, in_flight, task));
                None
            }
            turn => {
                in_flight.turn = turn;
                Some((lane, in_flight))
            }
        }
    }
}

/// Lanes in a pool that calls the handler. Every record has one.
struct MessageLanes {
    pool: RecordPool,
    retries: RetryLanes,
    is_latest: bool,
    has_rates: bool,
}

impl RecordLanes for MessageLanes {
    fn send(&self, records: &mut Vec<(LaneSet, InFlight)>, replaced: &mut Vec<InFlight>) -> bool {
        let mut records = records.drain(..).map(|(lanes, in_flight)| (lanes.into_one(), in_flight));
        if !self.is_latest {
            return self.pool.send_many(records).is_ok();
        }
        records.all(|(lane, in_flight)| match lane {
            // Records without a key have nothing in common that a later one could replace.
            LaneId::Key { .. } => {
                let sent = self.pool.send_latest(lane, in_flight);
                sent.map(|earlier| replaced.extend(earlier)).is_ok()
            }
            lane => self.pool.send(lane, in_flight).is_ok(),
        })
    }

    fn retry(&self, in_flight: InFlight) {
        if let Some((lane, in_flight)) = self.retries.resume(in_flight) {
            // The pool is closed only at the end, when no attempt will start any more.
            let _ = self.pool.send(lane, in_flight);
        }
    }

    fn withdraw(&self, lane: &LaneId) {
        drop(self.pool.keys().take(lane));
    }

    fn has_rates(&self) -> bool {
        self.has_rates
    }

    fn stop(&self) {
        drop(self.pool.shutdown_now());
    }
}

/// Lanes in a pool of tasks, which can have any number of them.
struct TaskLanes {
    pool: Pool<LaneId>,
    retries: RetryLanes,
    limit: Option<NonZeroU16>,
    has_rates: bool,
}

impl TaskLanes {
    fn claims(&self, lanes: LaneSet) -> Claims<LaneId> {
        match lanes {
            LaneSet::One(lane) => self.and_own(Claims::none(), lane),
            LaneSet::Many(lanes) if lanes.is_barrier => Claims::barrier(),
            LaneSet::Many(lanes) => {
                let own = lanes.exclusive.into_iter();
                let claims = own.fold(Claims::none(), |claims, lane| self.and_own(claims, lane));
                lanes.shared.into_iter().fold(claims, Claims::and_shared)
            }
        }
    }

    /// Adds a lane that the record does not share.
    fn and_own(&self, claims: Claims<LaneId>, lane: LaneId) -> Claims<LaneId> {
        match self.limit {
            Some(limit) if matches!(lane, LaneId::Key { .. }) => {
                claims.and_limited(lane, limit.get())
            }
            _ => claims.and_exclusive(lane),
        }
    }
}

impl RecordLanes for TaskLanes {
    fn send(&self, records: &mut Vec<(LaneSet, InFlight)>, _: &mut Vec<InFlight>) -> bool {
        records.drain(..).all(|(lanes, in_flight)| {
            let call = self.retries.call.clone();
            // Only the pool's own lanes are orders of records; batches by key are refused.
            let lane = LaneId::Single { number: 0 };
            let task = move |task: TaskContext<'_>| call(&lane, in_flight, task);
            self.pool.execute_with_context(self.claims(lanes), task).is_ok()
        })
    }

    fn retry(&self, in_flight: InFlight) {
        let left = self.retries.resume(in_flight);
        debug_assert!(left.is_none(), "a record that runs again holds the turn of its task");
    }

    fn withdraw(&self, lane: &LaneId) {
        drop(self.pool.keys().take(lane));
    }

    fn has_rates(&self) -> bool {
        self.has_rates
    }

    fn stop(&self) {
        drop(self.pool.shutdown_now());
    }
}
