//! The server's own runner of leased kinds, in some simulations: its requests are late or lost, and so are answers.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use serde_json::Value;

use super::api::Api;
use super::history::{Event, Run};
use super::work::RunEnd;
use super::workers::{record_end, run_of};
use super::world::World;
use crate::handle::BoxFuture;
use crate::lease_runner::{FORMER, LeaseRunner, LeaseTransport, TransportError};
use crate::{Kind, LeaseRunnerSettings};
use keylane_testkit::Random;

/// Whether the handlers of leased kinds run in the simulated service too, beside remote workers.
pub(super) fn is_there(world: &World) -> bool {
    world.seed % 5 == 3
}

/// Way of the runner to the routes of the service. It records what the runner learns.
struct SimulatedTransport {
    world: Arc<World>,
    api: Api,
    random: Mutex<Random>,
    runs: Arc<Mutex<BTreeMap<u64, Run>>>,
}

/// Starts the runner with the kind, which has a handler.
pub(super) fn start(
    world: &Arc<World>,
    api: &Api,
    random: Random,
    kind: (&str, &Kind),
) -> LeaseRunner {
    let runner = LeaseRunner::simulated(LeaseRunnerSettings { slots: 2, ..Default::default() });
    runner.set_kinds([kind]);
    runner.connect(Some(Arc::new(SimulatedTransport {
        world: Arc::clone(world),
        api: api.clone(),
        random: Mutex::new(random),
        runs: Arc::default(),
    })));
    runner
}

impl LeaseTransport for SimulatedTransport {
    fn worker(&self) -> String {
        "here".to_owned()
    }

    fn post(
        &self,
        path: &'static str,
        body: Vec<u8>,
    ) -> BoxFuture<Result<(u16, Bytes), TransportError>> {
        let (world, api, runs) =
            (Arc::clone(&self.world), self.api.clone(), Arc::clone(&self.runs));
        let mut random = Random::new(self.random.lock().unwrap().number());
        Box::pin(async move {
            let is_lost = |random: &mut Random| !world.is_healed() && random.chance(10);
            if is_lost(&mut random) {
                return Err(TransportError("the request was lost".to_owned()));
            }
            let request: Value = serde_json::from_slice(&body).unwrap();
            let sent = world.clock.steady();
            if path == FORMER {
                end_former(&world);
            }
            let (status, answer) =
                api.send(&mut random, ("POST", path), None, Some(request.clone())).await;
            if is_lost(&mut random) {
                if status.is_success() {
                    lose(&world, &answer);
                }
                return Err(TransportError("the answer was lost".to_owned()));
            }
            if status.is_success() {
                record(&world, &mut runs.lock().unwrap(), &request, &answer, sent);
            }
            Ok((status.as_u16(), serde_json::to_vec(&answer).unwrap().into()))
        })
    }
}

/// Records that the leases of former processes do not hold any more: their attempts have ended with these processes, and the service may
/// know it from now on.
fn end_former(world: &World) {
    let until = world.clock.steady();
    for fence in std::mem::take(&mut *world.runner_leases.lock().unwrap()) {
        world.record(Event::Held { fence, until });
    }
}

/// Records the leases that a lost answer would have brought: their attempts have begun, and end with the leases.
fn lose(world: &World, answer: &Value) {
    for lease in answer["leases"].as_array().into_iter().flatten() {
        let run = run_of(lease);
        world.runner_leases.lock().unwrap().insert(run.fence);
        world.record(Event::Started(run));
        record_end(world, run.fence, lease);
        world.record(Event::Vanished { fence: run.fence });
    }
}

/// Returns the fence in the id of a lease.
fn fence_in(id: &Value) -> u64 {
    id.as_str().unwrap().split('_').nth(1).unwrap().parse().unwrap()
}

/// Records the leases that an answer brings or extends, and the ends that it confirms.
fn record(
    world: &World,
    runs: &mut BTreeMap<u64, Run>,
    request: &Value,
    answer: &Value,
    sent: u64,
) {
    let items = answer["items"].as_array().into_iter().flatten();
    for (lease, item) in request["leases"].as_array().into_iter().flatten().zip(items) {
        let status = item["status"].as_u64().unwrap() as u16;
        // A heartbeat names leases, a report has their ends.
        if lease.is_string() {
            if status == 200 {
                record_end(world, fence_in(lease), item);
            }
            continue;
        }
        let fence = fence_in(&lease["id"]);
        let run = runs.remove(&fence).expect("only leases of an answer are reported");
        if lease["release"] == true {
            world.record(Event::Ended(run, RunEnd::Released));
        }
        world.record(Event::Reported { fence, status, sent });
    }
    for lease in answer["leases"].as_array().into_iter().flatten() {
        let run = run_of(lease);
        runs.insert(run.fence, run);
        world.runner_leases.lock().unwrap().insert(run.fence);
        world.record(Event::Started(run));
        record_end(world, run.fence, lease);
    }
}
