//! Remote workers: they claim leases, send heartbeats and report, late or never if they fail. Some do
//! all of that in batches.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::api::Api;
use super::history::{Event, Run};
use super::work::{Behaviour, LEASE, RunEnd};
use super::world::World;
use crate::wire::Timestamp;
use keylane_testkit::Random;

/// Remote worker, which outlives the processes of the service.
#[derive(Debug)]
pub(super) struct Worker {
    random: Random,
    /// Whether it reports several leases in one request.
    has_batches: bool,
    held: Vec<HeldLease>,
}

#[derive(Clone, Debug)]
struct HeldLease {
    id: String,
    run: Run,
    behaviour: Behaviour,
    /// Remaining work.
    left: Duration,
    /// Whether the end is recorded, and only the report is missing.
    has_ended: bool,
}

impl HeldLease {
    fn has_begun(&self) -> bool {
        self.left < self.behaviour.lasts
    }
}

impl Worker {
    pub(super) fn new(seed: u64, number: u64) -> Self {
        let has_batches = Random::of(seed, &[4, number, 1]).chance(50);
        Worker { random: Random::of(seed, &[4, number]), has_batches, held: Vec::new() }
    }

    /// Returns the lease to work on, if the worker does not report first.
    fn next(&self, random: &mut Random) -> Option<HeldLease> {
        let has_ended = self.held.iter().any(|held| held.has_ended);
        if has_ended && (!self.has_batches || random.chance(30)) {
            return None;
        }
        self.held.iter().find(|held| !held.has_ended).cloned()
    }

    fn find(&mut self, fence: u64) -> Option<&mut HeldLease> {
        self.held.iter_mut().find(|held| held.run.fence == fence)
    }

    fn remove(&mut self, fence: u64) {
        self.held.retain(|held| held.run.fence != fence);
    }
}

/// Lets a worker work until the process ends.
pub(super) async fn run(world: Arc<World>, api: Api, worker: Arc<Mutex<Worker>>) {
    loop {
        let (next, is_free, has_batches, mut random) = {
            let mut worker = worker.lock().unwrap();
            let mut random = Random::new(worker.random.number());
            let next = worker.next(&mut random);
            (next, worker.held.is_empty(), worker.has_batches, random)
        };
        match next {
            Some(held) => work(&world, &api, &mut random, &worker, held).await,
            None if is_free => claim(&world, &api, &mut random, &worker).await,
            None if has_batches => report_batch(&world, &api, &mut random, &worker).await,
            None => report_one(&world, &api, &mut random, &worker).await,
        }
    }
}

async fn claim(world: &World, api: &Api, random: &mut Random, worker: &Mutex<Worker>) {
    sleep(Duration::from_millis(random.within(0..500))).await;
    let wait = [0, 100, 5_000, 60_000][random.within(0..4) as usize];
    let body = json!({"kinds": ["lease"], "max": random.within(1..4), "wait_ms": wait});
    let patience = Duration::from_millis(random.within(50..120_000));
    let request = ("POST", "/v1/leases");
    let claimed = timeout(patience, api.send(random, request, None, Some(body))).await;
    let Ok((StatusCode::OK, answer)) = claimed else { return };
    take(world, worker, &answer);
}

/// Takes the leases of an answer.
fn take(world: &World, worker: &Mutex<Worker>, answer: &Value) {
    for lease in answer["leases"].as_array().unwrap() {
        let held = taken(world, lease);
        worker.lock().unwrap().held.push(held);
    }
}

/// Returns the attempt of a lease.
pub(super) fn run_of(lease: &Value) -> Run {
    Run {
        job: lease["payload"]["job"].as_u64().unwrap() as usize,
        number: lease["payload"]["number"].as_u64().unwrap() as u32,
        attempt: lease["attempt"].as_u64().unwrap() as u32,
        fence: lease["fence"].as_u64().unwrap(),
        is_lease: true,
        edition: lease["payload"]["edition"].as_u64(),
    }
}

/// Records the begin of the work on a lease.
fn taken(world: &World, lease: &Value) -> HeldLease {
    let run = run_of(lease);
    let Run { job, number, .. } = run;
    world.record(Event::Started(run));
    record_end(world, run.fence, lease);
    let behaviour = world.behaviour(job, number);
    if behaviour.vanishes {
        world.record(Event::Vanished { fence: run.fence });
    }
    let id = lease["id"].as_str().unwrap().to_owned();
    HeldLease { id, run, behaviour, left: behaviour.lasts, has_ended: false }
}

/// Works on a lease: a slice up to the next heartbeat, or to the end.
async fn work(
    world: &World,
    api: &Api,
    random: &mut Random,
    worker: &Mutex<Worker>,
    mut held: HeldLease,
) {
    let fence = held.run.fence;
    if held.behaviour.vanishes {
        return worker.lock().unwrap().remove(fence);
    }
    let slice = match held.behaviour.is_silent {
        // Longer than the lease, so that the report comes too late.
        true => held.left + Duration::from_millis(LEASE),
        false => held.left.min(Duration::from_millis(LEASE / 4)),
    };
    sleep(slice).await;
    held.left = held.left.saturating_sub(slice);
    if let Some(kept) = worker.lock().unwrap().find(fence) {
        (kept.left, kept.has_ended) = (held.left, held.left.is_zero());
    }
    if held.left.is_zero() {
        return world.record(Event::Ended(held.run, held.behaviour.end));
    }
    let patience = Duration::from_millis(random.within(50..5_000));
    let (all, has_batches) = {
        let worker = worker.lock().unwrap();
        (worker.held.clone(), worker.has_batches)
    };
    if has_batches {
        let _ = timeout(patience, heartbeat_batch(world, api, random, &all)).await;
        return;
    }
    for held in all {
        let _ = timeout(patience, heartbeat(world, api, random, &held)).await;
    }
}

/// Records the end of a lease without a further heartbeat, as the service has told it.
pub(super) fn record_end(world: &World, fence: u64, answer: &Value) {
    let ends: Timestamp = serde_json::from_value(answer["expires_at"].clone()).unwrap();
    world.record(Event::Held { fence, until: world.clock.steady_of(ends.0) });
}

async fn heartbeat(world: &World, api: &Api, random: &mut Random, held: &HeldLease) {
    let path = format!("/v1/leases/{}/heartbeat", held.id);
    let (status, answer) = api.send(random, ("POST", &path), None, None).await;
    if status.is_success() {
        record_end(world, held.run.fence, &answer);
    }
}

async fn heartbeat_batch(world: &World, api: &Api, random: &mut Random, all: &[HeldLease]) {
    let ids: Vec<&str> = all.iter().map(|held| &*held.id).collect();
    let (request, body) = (("POST", "/v1/leases/heartbeat"), json!({"leases": ids}));
    let (status, answer) = api.send(random, request, None, Some(body)).await;
    // The process may end.
    let Some(items) = answer["items"].as_array().filter(|_| status.is_success()) else { return };
    for (held, item) in all.iter().zip(items).filter(|(_, item)| item["status"] == 200) {
        record_end(world, held.run.fence, item);
    }
}

/// Reports the first lease that has ended.
async fn report_one(world: &World, api: &Api, random: &mut Random, worker: &Mutex<Worker>) {
    let held = worker.lock().unwrap().held.iter().find(|held| held.has_ended).cloned();
    let held = held.expect("a worker reports what has ended");
    let patience = Duration::from_millis(random.within(50..5_000));
    let reported = timeout(patience, report(world, api, random, &held)).await;
    match reported {
        Ok(true) => worker.lock().unwrap().remove(held.run.fence),
        _ => sleep(Duration::from_millis(random.within(100..1_000))).await,
    }
}

/// Reports the end of a lease. Returns false if the service asks to repeat it.
async fn report(world: &World, api: &Api, random: &mut Random, held: &HeldLease) -> bool {
    let (what, body) = match held.behaviour.end {
        RunEnd::Succeeded | RunEnd::GaveUp => ("complete", json!({"result": held.run.fence})),
        RunEnd::Failed { after: None } => ("fail", json!({"error": "failed"})),
        RunEnd::Failed { after } => ("fail", json!({"error": "later", "after_ms": after})),
        RunEnd::FailedForGood => ("fail", json!({"error": "never", "retry": false})),
        RunEnd::Released => unreachable!("only a batch has releases"),
    };
    let (path, sent) = (format!("/v1/leases/{}/{what}", held.id), world.clock.steady());
    let (status, _) = api.send(random, ("POST", &path), None, Some(body)).await;
    let repeats = status.is_server_error();
    if !repeats {
        let (fence, status) = (held.run.fence, status.as_u16());
        world.record(Event::Reported { fence, status, sent });
    }
    !repeats
}

/// Reports all leases that have ended, with some that are returned, and possibly claims the next ones.
async fn report_batch(world: &World, api: &Api, random: &mut Random, worker: &Mutex<Worker>) {
    let (ended, is_last) = {
        let mut worker = worker.lock().unwrap();
        for held in worker.held.iter_mut().filter(|held| !held.has_ended && !held.has_begun()) {
            if !held.behaviour.vanishes && random.chance(20) {
                (held.behaviour.end, held.has_ended) = (RunEnd::Released, true);
                world.record(Event::Ended(held.run, RunEnd::Released));
            }
        }
        let ended: Vec<_> = worker.held.iter().filter(|held| held.has_ended).cloned().collect();
        let is_last = ended.len() == worker.held.len();
        (ended, is_last)
    };
    let mut body = json!({"leases": ended.iter().map(item).collect::<Vec<_>>()});
    if random.chance(60) {
        // One that still has leases must not wait for long.
        let waits = if is_last { &[0, 100, 5_000, 60_000][..] } else { &[0, 100] };
        let wait = random.pick(waits);
        body["claim"] = json!({"kinds": ["lease"], "max": random.within(1..6), "wait_ms": wait});
    }
    let patience = random.within(50..if is_last { 120_000 } else { 5_000 });
    let (request, sent) = (("POST", "/v1/leases/complete"), world.clock.steady());
    let answered =
        timeout(Duration::from_millis(patience), api.send(random, request, None, Some(body))).await;
    let Ok((StatusCode::OK, answer)) = answered else {
        return sleep(Duration::from_millis(random.within(100..1_000))).await;
    };
    for (held, item) in ended.iter().zip(answer["items"].as_array().unwrap()) {
        let (fence, status) = (held.run.fence, item["status"].as_u64().unwrap() as u16);
        world.record(Event::Reported { fence, status, sent });
        worker.lock().unwrap().remove(fence);
    }
    if answer["leases"].is_array() {
        take(world, worker, &answer);
    }
}

/// Returns the report of a lease in a batch.
fn item(held: &HeldLease) -> Value {
    let id = &held.id;
    match held.behaviour.end {
        RunEnd::Succeeded | RunEnd::GaveUp => json!({"id": id, "result": held.run.fence}),
        RunEnd::Failed { after: None } => json!({"id": id, "error": "failed"}),
        RunEnd::Failed { after } => json!({"id": id, "error": "later", "after_ms": after}),
        RunEnd::FailedForGood => json!({"id": id, "error": "never", "retry": false}),
        RunEnd::Released => json!({"id": id, "release": true}),
    }
}
