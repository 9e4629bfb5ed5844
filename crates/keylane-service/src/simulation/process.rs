//! A simulation: processes of the service one after another, each with a start, faults, and a crash
//! or a stop. The last one ends when everything has ended.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::runtime::{Builder, Handle};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{sleep, timeout};

use super::api::Api;
use super::clients::{self, Client};
use super::cuts::{Cuts, Part};
use super::faults;
use super::followers::{self, Follower};
use super::history::{Entry, Event};
use super::kinds::{kind_of, tenants};
use super::receiver::Receiver;
use super::runner;
use super::schedules::{self, Operator};
use super::storage::Storage;
use super::work::{JobKind, SLOTS};
use super::workers::{self, Worker};
use super::world::{Fatal, World};
use crate::engine::{
    Dispatcher, Executor, JoinDispatcher, Outside, SteadyClock, Threads, WallClock,
};
use crate::store::{SimulatedDisk, Store};
use crate::wire::Timestamp;
use crate::{
    LeaseRunner, Service, ServiceSettings, StartError, WebhookSecrets, WebhookSettings, http,
};
use keylane_testkit::Random;

/// Runs everything on the thread of the runtime.
struct OneThread;

impl Threads for OneThread {
    fn blocking(&self, runtime: &Handle, work: Box<dyn FnOnce() + Send>) -> JoinHandle<()> {
        runtime.spawn(async move { work() })
    }

    fn dispatcher(
        &self,
        runtime: &Handle,
        mut dispatcher: Box<dyn Dispatcher>,
    ) -> io::Result<JoinDispatcher> {
        runtime.spawn(async move {
            while let Some(wait) = dispatcher.step() {
                match wait.is_zero() {
                    true => yield_now().await,
                    false => {
                        let notify = dispatcher.notify();
                        let _ = timeout(wait, poll_fn(|context| notify.poll(context))).await;
                    }
                }
            }
        });
        Ok(Box::new(|| {}))
    }
}

/// End of a process.
enum ProcessEnd {
    /// It was killed or lost its power, and this is left of its files.
    Crashed(Service, Storage),
    /// It has shut down.
    Stopped,
    /// It has shut down when everything had ended.
    Finished,
}

/// Parts of a simulation that outlive a process.
struct Simulation {
    world: Arc<World>,
    random: Random,
    clients: Vec<Arc<Mutex<Client>>>,
    workers: Vec<Arc<Mutex<Worker>>>,
    followers: Vec<Arc<Mutex<Follower>>>,
    operator: Arc<Mutex<Operator>>,
    /// Number of processes before the last one.
    ends: u64,
}

/// Result of a simulation.
pub(super) struct Outcome {
    pub(super) history: Vec<Entry>,
    /// Parts that it had, and that may be left out.
    pub(super) parts: Vec<Part>,
}

fn many<T>(count: u64, one: impl Fn(u64) -> T) -> Vec<Arc<Mutex<T>>> {
    (0..count).map(|number| Arc::new(Mutex::new(one(number)))).collect()
}

/// Runs the simulation of a seed without the parts that are left out.
pub(super) fn simulate(seed: u64, cuts: Cuts) -> Outcome {
    let mut random = Random::of(seed, &[0]);
    let clients = many(random.within(1..5), |number| Client::new(seed, number));
    let workers = many(random.within(1..4), |number| Worker::new(seed, number));
    let followers = many(random.within(0..3), |number| Follower::new(seed, number));
    let operator = Arc::new(Mutex::new(Operator::new(seed)));
    let all_ends = random.within(0..5);
    let ends = cuts.ends(all_ends);
    let world = Arc::new(World::new(seed, cuts));
    let mut simulation = Simulation { world, random, clients, workers, followers, operator, ends };
    for number in 0.. {
        let runtime =
            Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let disk = SimulatedDisk::default();
        let end = runtime.block_on(simulation.process(number, &disk));
        let pause = if simulation.random.chance(50) { 200 } else { 20_000 };
        let pause = simulation.random.within(0..pause);
        simulation.world.end_process();
        {
            let _guard = runtime.enter();
            simulation.world.clock.end(pause);
        }
        drop(runtime);
        disk.crash();
        match end {
            ProcessEnd::Crashed(service, storage) => {
                drop(service);
                *simulation.world.storage.lock().unwrap() = storage;
            }
            ProcessEnd::Stopped => {}
            ProcessEnd::Finished => break,
        }
    }
    let world = &simulation.world;
    // Each service owned it too. One that is never dropped would keep its folder, and slow down all later runs.
    assert_eq!(Arc::strong_count(world), 1, "a process has left its service behind");
    let mut parts: Vec<Part> = (0..all_ends).map(Part::End).collect();
    parts.extend((0..world.faults()).map(Part::Fault));
    for client in &simulation.clients {
        parts.extend(client.lock().unwrap().actions());
    }
    parts.push(Part::Failures);
    Outcome { history: world.history(), parts }
}

impl Simulation {
    /// Runs a process from its start to its end.
    async fn process(&mut self, number: u64, disk: &SimulatedDisk) -> ProcessEnd {
        let world = Arc::clone(&self.world);
        world.begin_process(number);
        let random = Random::new(self.random.number());
        let path = world.storage.lock().unwrap().path();
        let service = match start(&world, &path, disk).await {
            Ok(service) => service,
            Err(error) => {
                world.record(Event::NotOpened { why: error.to_string() });
                return ProcessEnd::Finished;
            }
        };
        tokio::spawn(faults::write(Arc::clone(&world), disk.clone(), random));
        world.record(Event::Opened { keep: world.keep().as_millis() as u64 });
        let api = Api(http::routes(&service, http::HttpSettings::default()));
        let runner = runner::is_there(&world).then(|| {
            let random = Random::of(world.seed, &[8, number]);
            let kind = kind_of(&world, JobKind::Lease);
            runner::start(&world, &api, random, (JobKind::Lease.name(), &kind))
        });
        let tasks = self.spawn_tasks(&api);
        let running = Running { service, api, tasks, runner };
        if number < self.ends {
            return self.end_early(running, disk).await;
        }
        self.finish(&running.api).await;
        running.stop(&world, disk, Duration::from_secs(60)).await;
        let report = Store::inspect(&path).map(|report| report.damage);
        let damage = report.map_or_else(
            |error| vec![error.to_string()],
            |damage| damage.iter().map(ToString::to_string).collect(),
        );
        world.record(Event::Checked { damage });
        ProcessEnd::Finished
    }

    /// Waits for the clients, ends all faults, and waits until everything has ended.
    async fn finish(&mut self, api: &Api) {
        let world = Arc::clone(&self.world);
        let have_finished =
            || self.clients.iter().all(|client| client.lock().unwrap().has_finished());
        for _ in 0..300 {
            if have_finished() {
                break;
            }
            sleep(Duration::from_secs(1)).await;
        }
        world.heal();
        let (mut random, mut ended) = (Random::new(self.random.number()), BTreeSet::new());
        // Liveness: without faults everything ends. The limit is above the longest lease and the
        // work of all jobs.
        for round in 0..200 {
            sleep(Duration::from_secs(5)).await;
            let has_ended = clients::clear(&world, api, &mut random, &mut ended).await;
            // Two minutes, so that schedules have a time.
            if has_ended && have_finished() && round >= 24 {
                break;
            }
        }
        schedules::read(&world, api, &mut random).await;
    }

    /// Starts clients, workers, followers, the operator of schedules, and faults.
    fn spawn_tasks(&mut self, api: &Api) -> Vec<JoinHandle<()>> {
        let mut tasks = Vec::new();
        for client in &self.clients {
            let (world, client) = (Arc::clone(&self.world), Arc::clone(client));
            tasks.push(tokio::spawn(clients::run(world, api.clone(), client)));
        }
        for worker in &self.workers {
            let (world, worker) = (Arc::clone(&self.world), Arc::clone(worker));
            tasks.push(tokio::spawn(workers::run(world, api.clone(), worker)));
        }
        for follower in &self.followers {
            let (world, follower) = (Arc::clone(&self.world), Arc::clone(follower));
            tasks.push(tokio::spawn(followers::run(world, api.clone(), follower)));
        }
        let (world, operator) = (Arc::clone(&self.world), Arc::clone(&self.operator));
        tasks.push(tokio::spawn(schedules::run(world, api.clone(), operator)));
        let random = Random::new(self.random.number());
        tasks.push(tokio::spawn(faults::disturb(Arc::clone(&self.world), random)));
        tasks
    }

    /// Ends a process after a while, by a crash or a stop.
    async fn end_early(&mut self, running: Running, disk: &SimulatedDisk) -> ProcessEnd {
        let world = Arc::clone(&self.world);
        sleep(Duration::from_millis(self.random.within(10..30_000))).await;
        match self.random.within(0..100) {
            0..20 => {}
            20..80 => {
                if self.random.chance(40) {
                    world.disk.lock().unwrap().crashes_after_write = true;
                } else {
                    world.end_at(*self.random.pick(&Fatal::ALL).unwrap());
                }
                // Without such an event it ends all the same.
                let _ = timeout(Duration::from_secs(20), world.crashed.notified()).await;
            }
            _ => {
                let within = Duration::from_millis(self.random.within(0..20_000));
                running.stop(&world, disk, within).await;
                return ProcessEnd::Stopped;
            }
        }
        let is_unanswered = world.disk.lock().unwrap().crashes_after_write;
        let loses_power = self.random.chance(50);
        world.record(Event::Crashed { is_unanswered, loses_power });
        world.end_process();
        let storage = world.storage.lock().unwrap().after_end(loses_power, &mut self.random);
        ProcessEnd::Crashed(running.service, storage)
    }
}

/// A process that has started.
struct Running {
    service: Service,
    api: Api,
    tasks: Vec<JoinHandle<()>>,
    runner: Option<LeaseRunner>,
}

impl Running {
    /// Shuts the process down in order.
    async fn stop(self, world: &World, disk: &SimulatedDisk, within: Duration) {
        let Running { service, api, tasks, runner } = self;
        world.record(Event::Stopping);
        if let Some(runner) = &runner {
            runner.drain();
        }
        service.quiesce(within).await;
        if let Some(runner) = runner {
            runner.stop(Duration::ZERO).await;
        }
        for task in tasks {
            task.abort();
            let _ = task.await;
        }
        drop(api);
        service.stop(Duration::from_secs(1)).await;
        world.record(Event::Stopped { is_closed: disk.is_closed() });
    }
}

async fn start(
    world: &Arc<World>,
    path: &Path,
    disk: &SimulatedDisk,
) -> Result<Service, StartError> {
    let (wall, steady, store) = (Arc::clone(world), Arc::clone(world), Arc::clone(world));
    let random = Arc::clone(world);
    let outside = Outside {
        wall: WallClock::running(move || Timestamp(wall.clock.wall())),
        steady: SteadyClock::new(move || Duration::from_millis(steady.clock.steady())),
        executor: Executor::new(Handle::current(), OneThread),
        store: disk.outside(move || store.clock.wall(), move || random.random()),
    };
    let secrets = WebhookSecrets::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
    let settings = ServiceSettings {
        slots: SLOTS,
        keep: Some(world.keep()),
        tenants: tenants(),
        webhooks: Some(WebhookSettings::simulated(secrets, Arc::new(Receiver(Arc::clone(world))))),
        ..ServiceSettings::new(PathBuf::from(path))
    };
    let mut builder = Service::builder(settings);
    for kind in JobKind::ALL {
        builder = builder.kind(kind.name(), kind_of(world, kind));
    }
    builder.start_in(outside).await
}
