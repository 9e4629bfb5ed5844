//! Kinds of the simulated service, and their handlers.

use std::sync::Arc;
use std::time::Duration;

use serde_json::value::to_raw_value;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::history::{Event, Run};
use super::runner;
use super::work::{
    BURST, FAN_IN, JobKind, KEY_INTERVAL, LARGE, LEASE, RATE, RATED_AT_ONCE, RunEnd, SMALL,
    SMALL_AT_ONCE, SPLIT, result_of,
};
use super::world::World;
use crate::handle::{Attempt, AttemptFailure, AttemptResult, FunctionHandler, Step};
use crate::wire::OnFail;
use crate::{KeepJobs, Kind, StartRate, Tenant, Tenants};

/// Returns the settings and the handlers of a kind.
pub(super) fn kind_of(world: &Arc<World>, kind: JobKind) -> Kind {
    let function = || {
        let world = Arc::clone(world);
        FunctionHandler::new(move |attempt| handle(Arc::clone(&world), attempt))
    };
    let base = match kind {
        JobKind::Lease if runner::is_there(world) => {
            let world = Arc::clone(world);
            let handler = FunctionHandler::new(move |attempt| leased(Arc::clone(&world), attempt));
            Kind::on_all_servers(Duration::from_millis(LEASE), handler)
        }
        JobKind::Lease => Kind::leased(Duration::from_millis(LEASE)),
        JobKind::Local | JobKind::Stop => Kind::new(function()),
        JobKind::Split => Kind {
            split: Some(Arc::new(function())),
            fan_in: Some(Arc::new(function())),
            ..Kind::new(function())
        },
        JobKind::Rated => Kind {
            rate: Some(StartRate { per_second: RATE as f64, burst: BURST as u32 }),
            concurrency: Some(RATED_AT_ONCE),
            rate_per_key: Some(StartRate { per_second: 1e3 / KEY_INTERVAL as f64, burst: 1 }),
            keep: KeepJobs::For(Duration::from_millis(kind.keep(world.keep().as_millis() as u64))),
            ..Kind::new(function())
        },
    };
    let on_fail = match kind {
        JobKind::Stop => OnFail::StopKey,
        _ => OnFail::Continue,
    };
    Kind {
        attempts: kind.attempts(),
        backoff: keylane::Backoff::constant(Duration::from_millis(kind.backoff())),
        on_fail,
        timeout: (kind != JobKind::Lease).then_some(Duration::from_secs(12)),
        max_lease: Duration::from_secs(40),
        ..base
    }
}

/// Returns the configured tenants.
pub(super) fn tenants() -> Tenants {
    let small = Tenant { max_workers: Some(SMALL_AT_ONCE), ..Tenant::default() };
    let rate = Some(StartRate { per_second: RATE as f64, burst: BURST as u32 });
    let large = Tenant { weight: 3, min_workers: 1, rate, ..Tenant::default() };
    let named = [(SMALL, small), (LARGE, large)];
    let named = named.into_iter().map(|(name, tenant)| (name.to_owned(), tenant)).collect();
    Tenants { named, refuse_unknown: false }
}

/// Records the end of an attempt whose handler is dropped.
struct EndRecord {
    world: Arc<World>,
    run: Run,
    end: RunEnd,
}

impl Drop for EndRecord {
    fn drop(&mut self) {
        self.world.record(Event::Ended(self.run, self.end));
    }
}

/// Handler of all attempts in the service.
async fn handle(world: Arc<World>, attempt: Attempt) -> AttemptResult {
    let input: Value = serde_json::from_slice(&attempt.payload).unwrap();
    // A fan-in gets the payload of its job, and the results.
    let payload = if attempt.step == Step::FanIn { &input["payload"] } else { &input };
    if let Some(schedule) = payload["schedule"].as_u64() {
        return handle_scheduled(world, attempt, schedule as u8).await;
    }
    let job = payload["job"].as_u64().unwrap() as usize;
    let number = match attempt.step {
        Step::Split => SPLIT,
        Step::FanIn => FAN_IN,
        Step::Subtask(number) => number,
    };
    let edition = payload["edition"].as_u64();
    let Attempt { number: count, fence, .. } = attempt;
    let run = Run { job, number, attempt: count, fence, is_lease: false, edition };
    world.record(Event::Started(run));
    if attempt.step == Step::FanIn {
        world.record(Event::FannedIn { job, results: input["results"].clone() });
    }
    let result = match attempt.step {
        Step::Split => world.job(job).subtasks_body(job),
        Step::FanIn => input["results"].clone(),
        Step::Subtask(number) => result_of(job, number),
    };
    work(&world, &attempt, run, result).await
}

/// Handler of the attempts in the service that have a lease. Their begins are recorded with the leases.
async fn leased(world: Arc<World>, attempt: Attempt) -> AttemptResult {
    let payload: Value = serde_json::from_slice(&attempt.payload).unwrap();
    let run = Run {
        job: payload["job"].as_u64().unwrap() as usize,
        number: payload["number"].as_u64().unwrap() as u32,
        attempt: attempt.number,
        fence: attempt.fence,
        is_lease: true,
        edition: payload["edition"].as_u64(),
    };
    work(&world, &attempt, run, json!(attempt.fence)).await
}

/// Behaves as the seed says, and records the end.
async fn work(world: &Arc<World>, attempt: &Attempt, run: Run, result: Value) -> AttemptResult {
    let behaviour = world.behaviour(run.job, run.number);
    let mut record = EndRecord { world: Arc::clone(world), run, end: RunEnd::GaveUp };
    tokio::select! {
        biased;
        () = sleep(behaviour.lasts) => {}
        () = attempt.cancelled.cancelled(), if behaviour.heeds_cancel => {
            return Err(AttemptFailure::passing("cancelled"));
        }
    }
    if attempt.cancelled.is_cancelled() && behaviour.end != RunEnd::Succeeded {
        return Err(AttemptFailure::passing("cancelled"));
    }
    record.end = behaviour.end;
    match behaviour.end {
        RunEnd::Succeeded => Ok(Some(to_raw_value(&result).unwrap())),
        RunEnd::Failed { after } => Err(AttemptFailure {
            after: after.map(Duration::from_millis),
            ..AttemptFailure::passing("failed")
        }),
        RunEnd::FailedForGood | RunEnd::GaveUp => Err(AttemptFailure::lasting("never")),
        RunEnd::Released => unreachable!("only remote workers release"),
    }
}

/// Records the end of the run of a schedule's job.
struct ScheduledRunRecord {
    world: Arc<World>,
    schedule: u8,
    id: String,
}

impl ScheduledRunRecord {
    fn record(&self, begins: bool) {
        let (schedule, id) = (self.schedule, self.id.clone());
        self.world.record(Event::ScheduledRun { schedule, id, begins });
    }
}

impl Drop for ScheduledRunRecord {
    fn drop(&mut self) {
        self.record(false);
    }
}

/// Handler of the jobs of schedules. Some are longer than the time between two of them.
async fn handle_scheduled(world: Arc<World>, attempt: Attempt, schedule: u8) -> AttemptResult {
    let id = attempt.job.to_string();
    let record = ScheduledRunRecord { world, schedule, id };
    record.record(true);
    let seconds = if attempt.fence.is_multiple_of(4) { 70 } else { 1 };
    tokio::select! {
        biased;
        () = sleep(Duration::from_secs(seconds)) => Ok(Some(to_raw_value(&json!(schedule)).unwrap())),
        () = attempt.cancelled.cancelled() => Err(AttemptFailure::passing("cancelled")),
    }
}
