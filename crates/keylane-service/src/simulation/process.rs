//! A simulation: processes of the service one after another, each with a start, faults, and a crash
//! or a stop. The last one ends when everything has ended.

use std::collections::BTreeSet;
use std::future::poll_fn;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tempfile::TempDir;
use tokio::runtime::{Builder, Handle};
use tokio::task::{JoinHandle, yield_now};
use tokio::time::{sleep, timeout};

use super::api::Api;
use super::clients::{self, Client};
use super::faults;
use super::history::{Entry, Event, Run};
use super::random::Random;
use super::work::{JobKind, LEASE, RunEnd};
use super::workers::{self, Worker};
use super::world::{Fatal, World};
use crate::engine::{
    Dispatcher, Executor, JoinDispatcher, Outside, SteadyClock, Threads, WallClock,
};
use crate::handle::{Attempt, AttemptFailure, FunctionHandler};
use crate::store::{SimulatedDisk, Store};
use crate::wire::{OnFail, Timestamp};
use crate::{Kind, Service, ServiceSettings, http};

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
    /// It was killed, and its files are copied.
    Crashed(Service),
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
    /// Number of processes before the last one.
    ends: u64,
}

/// Creates a folder in memory if there is one: a crash copies the files, so syncs decide nothing.
fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    match memory.is_dir() {
        true => tempfile::tempdir_in(memory).unwrap(),
        false => tempfile::tempdir().unwrap(),
    }
}

/// Runs the simulation of a seed, and returns its history.
pub(super) fn simulate(seed: u64) -> Vec<Entry> {
    let folder = folder();
    let mut random = Random::of(seed, &[0]);
    let clients = (0..random.within(1..5)).map(|number| Client::new(seed, number));
    let clients = clients.map(|client| Arc::new(Mutex::new(client))).collect();
    let workers = (0..random.within(1..4)).map(|number| Worker::new(seed, number));
    let workers = workers.map(|worker| Arc::new(Mutex::new(worker))).collect();
    let ends = random.within(0..5);
    let world = Arc::new(World::new(seed));
    let mut simulation = Simulation { world, random, clients, workers, ends };
    let mut path = folder.path().join("store0");
    for number in 0.. {
        let next = folder.path().join(format!("store{}", number + 1));
        let runtime =
            Builder::new_current_thread().enable_time().start_paused(true).build().unwrap();
        let disk = SimulatedDisk::default();
        let end = runtime.block_on(simulation.process(number, &path, &next, &disk));
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
            ProcessEnd::Crashed(service) => {
                drop(service);
                path = next;
            }
            ProcessEnd::Stopped => {}
            ProcessEnd::Finished => break,
        }
    }
    simulation.world.history()
}

impl Simulation {
    /// Runs a process from its start to its end.
    async fn process(
        &mut self,
        number: u64,
        path: &Path,
        next: &Path,
        disk: &SimulatedDisk,
    ) -> ProcessEnd {
        let world = Arc::clone(&self.world);
        world.begin_process(number);
        let random = Random::new(self.random.next());
        let service = start(&world, path, disk).await;
        tokio::spawn(faults::write(Arc::clone(&world), disk.clone(), random));
        world.record(Event::Opened);
        let api = Api(http::routes(&service, http::HttpSettings::default()));
        let tasks = self.spawn_tasks(&api);
        if number < self.ends {
            return self.end_early(service, api, tasks, (path, next), disk).await;
        }
        let have_finished =
            || self.clients.iter().all(|client| client.lock().unwrap().has_finished());
        for _ in 0..300 {
            if have_finished() {
                break;
            }
            sleep(Duration::from_secs(1)).await;
        }
        world.heal();
        let (mut random, mut ended) = (Random::new(self.random.next()), BTreeSet::new());
        // Liveness: without faults everything ends. The limit is above the longest lease and the
        // work of all jobs.
        for _ in 0..200 {
            sleep(Duration::from_secs(5)).await;
            let has_ended = clients::clear(&world, &api, &mut random, &mut ended).await;
            if has_ended && have_finished() {
                break;
            }
        }
        stop(&world, service, api, tasks, disk, Duration::from_secs(60)).await;
        let report = Store::inspect(path).map(|report| report.damage);
        let damage = report.map_or_else(
            |error| vec![error.to_string()],
            |damage| damage.iter().map(ToString::to_string).collect(),
        );
        world.record(Event::Checked { damage });
        ProcessEnd::Finished
    }

    /// Starts clients, workers and faults.
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
        let random = Random::new(self.random.next());
        tasks.push(tokio::spawn(faults::disturb(Arc::clone(&self.world), random)));
        tasks
    }

    /// Ends a process after a while, by a crash or a stop.
    async fn end_early(
        &mut self,
        service: Service,
        api: Api,
        tasks: Vec<JoinHandle<()>>,
        (path, next): (&Path, &Path),
        disk: &SimulatedDisk,
    ) -> ProcessEnd {
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
                stop(&world, service, api, tasks, disk, within).await;
                return ProcessEnd::Stopped;
            }
        }
        let is_unanswered = world.disk.lock().unwrap().crashes_after_write;
        world.record(Event::Crashed { is_unanswered });
        world.end_process();
        SimulatedDisk::copy(path, next).unwrap();
        ProcessEnd::Crashed(service)
    }
}

/// Shuts a process down in order.
async fn stop(
    world: &World,
    service: Service,
    api: Api,
    tasks: Vec<JoinHandle<()>>,
    disk: &SimulatedDisk,
    within: Duration,
) {
    world.record(Event::Stopping);
    service.quiesce(within).await;
    for task in tasks {
        task.abort();
        let _ = task.await;
    }
    drop(api);
    service.stop(Duration::from_secs(1)).await;
    world.record(Event::Stopped { is_closed: disk.is_closed() });
}

async fn start(world: &Arc<World>, path: &Path, disk: &SimulatedDisk) -> Service {
    let (wall, steady, store) = (Arc::clone(world), Arc::clone(world), Arc::clone(world));
    let random = Arc::clone(world);
    let outside = Outside {
        wall: WallClock::running(move || Timestamp(wall.clock.wall())),
        steady: SteadyClock::new(move || Duration::from_millis(steady.clock.steady())),
        executor: Executor::new(Handle::current(), OneThread),
        store: disk.outside(move || store.clock.wall(), move || random.random()),
    };
    let settings = ServiceSettings { slots: 3, ..ServiceSettings::new(PathBuf::from(path)) };
    let mut builder = Service::builder(settings);
    for kind in [JobKind::Local, JobKind::Stop, JobKind::Lease] {
        builder = builder.kind(kind.name(), kind_of(world, kind));
    }
    builder.start_in(outside).await.expect("the service starts")
}

fn kind_of(world: &Arc<World>, kind: JobKind) -> Kind {
    let base = match kind {
        JobKind::Lease => Kind::leased(Duration::from_millis(LEASE)),
        JobKind::Local | JobKind::Stop => {
            let world = Arc::clone(world);
            Kind::new(FunctionHandler::new(move |attempt| handle(Arc::clone(&world), attempt)))
        }
    };
    let on_fail = match kind {
        JobKind::Stop => OnFail::StopKey,
        JobKind::Local | JobKind::Lease => OnFail::Continue,
    };
    let backoff = keylane::Backoff::constant(Duration::from_millis(kind.backoff()));
    Kind {
        attempts: kind.attempts(),
        backoff,
        on_fail,
        timeout: (kind != JobKind::Lease).then_some(Duration::from_secs(12)),
        max_lease: Duration::from_secs(40),
        ..base
    }
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

/// Handler of subtasks in the service.
async fn handle(world: Arc<World>, attempt: Attempt) -> crate::handle::AttemptResult {
    let payload: serde_json::Value = serde_json::from_slice(&attempt.payload).unwrap();
    let job = payload["job"].as_u64().unwrap() as usize;
    let number = payload["number"].as_u64().unwrap() as u32;
    let run = Run { job, number, attempt: attempt.number, fence: attempt.fence, is_lease: false };
    world.record(Event::Started(run));
    let behaviour = world.behaviour(job, number);
    let mut record = EndRecord { world, run, end: RunEnd::GaveUp };
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
        RunEnd::Succeeded => Ok(None),
        RunEnd::Failed { after } => Err(AttemptFailure {
            after: after.map(Duration::from_millis),
            ..AttemptFailure::passing("failed")
        }),
        RunEnd::FailedForGood | RunEnd::GaveUp => Err(AttemptFailure::lasting("never")),
    }
}
