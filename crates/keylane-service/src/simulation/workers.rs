//! Remote workers: they claim leases, send heartbeats and report, late or never if they fail.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::api::Api;
use super::history::{Event, Run};
use super::random::Random;
use super::work::{Behaviour, LEASE, RunEnd};
use super::world::World;
use crate::wire::Timestamp;

/// Remote worker, which outlives the processes of the service.
#[derive(Debug)]
pub(super) struct Worker {
    random: Random,
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

impl Worker {
    pub(super) fn new(seed: u64, number: u64) -> Self {
        Worker { random: Random::of(seed, &[4, number]), held: Vec::new() }
    }
}

/// Lets a worker work until the process ends.
pub(super) async fn run(world: Arc<World>, api: Api, worker: Arc<Mutex<Worker>>) {
    loop {
        let (held, mut random) = {
            let mut worker = worker.lock().unwrap();
            (worker.held.first().cloned(), Random::new(worker.random.next()))
        };
        match held {
            Some(held) => work(&world, &api, &mut random, &worker, held).await,
            None => claim(&world, &api, &mut random, &worker).await,
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
    for lease in answer["leases"].as_array().unwrap() {
        let held = taken(world, lease);
        worker.lock().unwrap().held.push(held);
    }
}

/// Records the begin of the work on a lease.
fn taken(world: &World, lease: &Value) -> HeldLease {
    let job = lease["payload"]["job"].as_u64().unwrap() as usize;
    let number = lease["payload"]["number"].as_u64().unwrap() as u32;
    let run = Run {
        job,
        number,
        attempt: lease["attempt"].as_u64().unwrap() as u32,
        fence: lease["fence"].as_u64().unwrap(),
        is_lease: true,
    };
    world.record(Event::Started(run));
    record_end(world, run.fence, lease);
    let behaviour = world.behaviour(job, number);
    if behaviour.vanishes {
        world.record(Event::Vanished { fence: run.fence });
    }
    let id = lease["id"].as_str().unwrap().to_owned();
    HeldLease { id, run, behaviour, left: behaviour.lasts, has_ended: false }
}

/// Works on the first lease: a slice up to the next heartbeat, or the report.
async fn work(
    world: &World,
    api: &Api,
    random: &mut Random,
    worker: &Mutex<Worker>,
    mut held: HeldLease,
) {
    if held.behaviour.vanishes {
        worker.lock().unwrap().held.remove(0);
        return;
    }
    let slice = match held.behaviour.is_silent {
        // Longer than the lease, so that the report comes too late.
        true => held.left + Duration::from_millis(LEASE),
        false => held.left.min(Duration::from_millis(LEASE / 4)),
    };
    sleep(slice).await;
    held.left = held.left.saturating_sub(slice);
    worker.lock().unwrap().held[0].left = held.left;
    let patience = Duration::from_millis(random.within(50..5_000));
    if !held.left.is_zero() {
        let all = worker.lock().unwrap().held.clone();
        for held in all {
            let _ = timeout(patience, heartbeat(world, api, random, &held)).await;
        }
        return;
    }
    if !held.has_ended {
        world.record(Event::Ended(held.run, held.behaviour.end));
        worker.lock().unwrap().held[0].has_ended = true;
    }
    let reported = timeout(patience, report(world, api, random, &held)).await;
    if reported == Ok(true) {
        worker.lock().unwrap().held.remove(0);
    } else {
        sleep(Duration::from_millis(random.within(100..1_000))).await;
    }
}

/// Records the end of a lease without a further heartbeat, as the service has told it.
fn record_end(world: &World, fence: u64, answer: &Value) {
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

/// Reports the end of a lease. Returns false if the service asks to repeat it.
async fn report(world: &World, api: &Api, random: &mut Random, held: &HeldLease) -> bool {
    let (what, body) = match held.behaviour.end {
        RunEnd::Succeeded | RunEnd::GaveUp => ("complete", json!({"result": held.run.fence})),
        RunEnd::Failed { after: None } => ("fail", json!({"error": "failed"})),
        RunEnd::Failed { after } => ("fail", json!({"error": "later", "after_ms": after})),
        RunEnd::FailedForGood => ("fail", json!({"error": "never", "retry": false})),
    };
    let path = format!("/v1/leases/{}/{what}", held.id);
    let (status, _) = api.send(random, ("POST", &path), None, Some(body)).await;
    let repeats = status.is_server_error();
    if !repeats {
        world.record(Event::Reported { fence: held.run.fence, status: status.as_u16() });
    }
    !repeats
}
