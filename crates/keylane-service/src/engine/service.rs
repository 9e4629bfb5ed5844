//! The service as its owner has it: started with its kinds, served, and stopped.

use std::collections::{HashMap, HashSet, VecDeque};
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use keylane_process::{Guard, OpenError, Options, Registry};
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::audit::Audit;
use super::books::{Batch, Books, Totals};
use super::calendar::Calendar;
use super::events::Events;
use super::lease::Claimers;
use super::order_check::OrderCheck;
use super::schedules::Schedules;
use super::timeline::{Recorder, Slots};
use super::{Clock, Core, Settings, StartError, StoreHealth, dispatch};
use crate::kind::{Kind, Kinds, Work};
use crate::schedule::{self, Scheduler};
use crate::store::Store;
use crate::wire::Timestamp;

/// A service that accepts jobs, runs their subtasks in order and keeps what came of them.
///
/// - **What was accepted is done.** A job that was acknowledged is on the disk, and goes on after
///   `kill -9`. A subtask is done at least once; each attempt has a higher fence than the one before.
/// - **In order.** Of two subtasks with a key in common the one that entered first has ended for good
///   before the other begins, over retries and restarts.
/// - **Fair.** Jobs share the slots by the four rules of [`keylane::allocate`].
///
/// It is served over HTTP by a [`Server`](crate::http::Server). Dropped without [`stop`](Self::stop), it
/// ends as after a crash: nothing that was acknowledged is lost, and what ran counts as an attempt.
///
/// # Examples
/// ```
/// use keylane_service::handle::{Attempt, Function};
/// use keylane_service::{Kind, Service, Settings};
///
/// # let runtime = tokio::runtime::Runtime::new()?;
/// # runtime.block_on(async {
/// let folder = tempfile::tempdir()?;
/// let greet = Function::new(|attempt: Attempt| async move {
///     println!("hello {}", attempt.key().unwrap_or_default());
///     Ok(None)
/// });
/// let service = Service::builder(Settings::new(folder.path().join("tasks")))
///     .kind("greet", Kind::new(greet))
///     .start()
///     .await?;
/// let id = service.submit(r#"{"kind":"greet","key":"ann"}"#).await?;
/// let job = service.wait(id).await?;
/// assert_eq!(job.counts.succeeded, 1);
/// service.stop(std::time::Duration::from_secs(10)).await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Service {
    pub(crate) core: Arc<Core>,
    dispatcher: Option<JoinHandle<()>>,
    ticker: tokio::task::JoinHandle<()>,
    schedules: tokio::task::JoinHandle<()>,
}

/// Settings of a service, and its kinds.
#[derive(Debug)]
#[must_use = "nothing happens until it is started"]
pub struct ServiceBuilder {
    settings: Settings,
    kinds: Kinds,
    guard: Guard,
}

impl ServiceBuilder {
    /// Adds a kind of jobs; in place of the one that had its name, if there was one.
    pub fn kind(mut self, name: &str, kind: Kind) -> Self {
        self.kinds.add(name, kind);
        self
    }

    /// Sets what ends the processes of handlers if this process is killed. Unless set, the next start with the same
    /// store does, before it begins anything: SIGTERM, and SIGKILL five seconds later. With
    /// [`Guard::ThisProgram`] they end at once; `main` must begin with [`keylane_process::enter`] then.
    ///
    /// The list of processes is a file beside the store, `-children`.
    pub fn guard(mut self, guard: Guard) -> Self {
        self.guard = guard;
        self
    }

    /// Opens the store, puts what is unfinished back into its order, and begins.
    ///
    /// Handlers run on the runtime that it is called in.
    ///
    /// # Errors
    /// If the store cannot be opened, or has an unfinished job that cannot go on.
    ///
    /// # Panics
    /// If it is called outside of a runtime.
    pub async fn start(self) -> Result<Service, StartError> {
        let runtime = Handle::current();
        let started = tokio::task::spawn_blocking(move || Service::begin(self, runtime)).await;
        started.unwrap_or_else(|panic| std::panic::resume_unwind(panic.into_panic()))
    }
}

/// How many fences one start of the server can give: 2^40, and there can be 2^24 starts.
const FENCES: u64 = 1 << 40;

impl Service {
    /// With the store in the settings' file.
    pub fn builder(settings: Settings) -> ServiceBuilder {
        ServiceBuilder { settings, kinds: Kinds::default(), guard: Guard::None }
    }

    fn begin(builder: ServiceBuilder, runtime: Handle) -> Result<Service, StartError> {
        let ServiceBuilder { settings, kinds, guard } = builder;
        let (store, mut recovered) = Store::open(&settings.path, &settings.store)?;
        // Behind the store, whose lock says that the process is gone that this waits for.
        let children = children(store.path(), guard)?;
        let clock = Clock::start();
        let boot = store.boot();
        let scheduler = Scheduler::new(schedule::Settings {
            order: settings.order,
            first_fence: boot * FENCES + 1,
            ..schedule::Settings::new(settings.slots)
        });
        let calendar = settings.clock.clone().map_or(Calendar::System, Calendar::Manual);
        let core = Arc::new(Core {
            calendar,
            schedules: Schedules::default(),
            audit: Audit::default(),
            settings,
            kinds,
            store,
            children,
            clock,
            events: Arc::new(Events::new(boot)),
            timeline: Recorder::default(),
            runtime: runtime.clone(),
            tasks: TaskTracker::new(),
            stopped: CancellationToken::new(),
            bell: dispatch::Bell::default(),
            books: Mutex::new(books(scheduler, !recovered.was_clean())),
            claims: Arc::default(),
            answers: Mutex::default(),
            health: Mutex::new(StoreHealth::Well),
            found_no_room: AtomicBool::new(false),
            chance: AtomicU64::new(clock.now().0 ^ boot.rotate_left(32)),
            websockets: AtomicU64::new(0),
            by_key: Mutex::default(),
            summary: Mutex::default(),
        });
        // The service has the store, so the store must not have the service.
        let committed = Arc::downgrade(&core);
        core.store.after_commits(move || {
            if let Some(core) = committed.upgrade() {
                core.commit_ended();
            }
        });
        core.recover(&mut recovered)?;
        core.schedules.recover(core.store.schedule_rows()?, core.calendar.now());
        let dispatching = Arc::clone(&core);
        let dispatcher = std::thread::Builder::new()
            .name("keylane-dispatch".into())
            .spawn(move || dispatching.dispatch())
            .map_err(StartError::Thread)?;
        let (ticking, retaining) = (Arc::clone(&core).tick(), Arc::clone(&core).retain());
        let ticker = runtime.spawn(async { _ = tokio::join!(ticking, retaining) });
        let schedules = runtime.spawn(Arc::clone(&core).keep_schedules());
        Ok(Service { core, dispatcher: Some(dispatcher), ticker, schedules })
    }

    /// Takes nothing more and begins nothing more, from when this returns; what runs goes on. It cannot be undone.
    ///
    /// [`stop`](Self::stop) begins with it. Called before, others can be told that the end has begun when it has.
    pub fn drain(&self) {
        self.core.drain();
    }

    /// Lets what runs end, for so long, begins nothing more, and closes the store. What has not ended by then is told to
    /// give up: an attempt like any other that fails, so it is tried again after the next start if it has one left.
    pub async fn stop(mut self, within: Duration) {
        self.core.drain();
        self.core.tasks.close();
        let _ = tokio::time::timeout(within, self.core.tasks.wait()).await;
        self.core.give_up_running();
        let _ = tokio::time::timeout(Duration::from_secs(1), self.core.tasks.wait()).await;
        let _ = self.core.all_written().await;
        for (_, _, kind) in self.core.kinds.iter() {
            let steps = kind.split.iter().chain(&kind.fan_in);
            let work = match &kind.work {
                Work::Handler(handler) => Some(handler),
                Work::Lease { .. } => None,
            };
            for handler in steps.chain(work) {
                handler.close().await;
            }
        }
        self.end();
        let _ = (&mut self.ticker).await;
        let _ = (&mut self.schedules).await;
        self.release().await;
    }

    /// Waits until nobody else has the store, so that it is closed when this returns and can be opened again.
    /// A client's last answer may be on its way for a moment.
    async fn release(self) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(2);
        while Arc::strong_count(&self.core) > 1 && tokio::time::Instant::now() < deadline {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        // Closing waits for the writer.
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }

    fn end(&mut self) {
        self.core.stopped.cancel();
        self.core.bell.ring();
        if let Some(dispatcher) = self.dispatcher.take() {
            dispatcher.join().expect("the dispatcher does not panic");
        }
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.dispatcher.is_some() {
            self.end();
        }
    }
}

/// The registry of the processes that handlers start. What an earlier process has left in it is ended.
fn children(store: &Path, guard: Guard) -> Result<Registry, OpenError> {
    let mut path = store.as_os_str().to_owned();
    path.push("-children");
    let tell = |text: &str| tracing::warn!("{text}");
    Registry::open(Path::new(&path), &Options::default().guard(guard).tell(tell))
}

fn books(scheduler: Scheduler, is_careful: bool) -> Books {
    Books {
        scheduler,
        live: HashMap::new(),
        running: HashMap::new(),
        slots: Slots::default(),
        unwritten: Batch::default(),
        is_writing: false,
        refused: None,
        claimers: Claimers::default(),
        next_expiry: None,
        due: VecDeque::new(),
        changed: HashSet::new(),
        totals: Totals::default(),
        order: OrderCheck::default(),
        paused_keys: HashMap::new(),
        is_careful,
        held_back: VecDeque::new(),
        is_draining: false,
        unfinished: 0,
        retried: HashSet::new(),
    }
}

impl Core {
    fn recover(
        self: &Arc<Self>,
        recovered: &mut crate::store::Recovered,
    ) -> Result<(), StartError> {
        let now = self.clock.now();
        let mut books = self.books();
        self.set_kinds(&mut books, now);
        for (key, record) in recovered.keys() {
            books.scheduler.pause_key(&key.0, now.0);
            books.paused_keys.insert(key.clone(), Timestamp(record.since_ms));
        }
        while let Some(job) = recovered.next_job()? {
            self.resume(&mut books, &job, now)?;
        }
        self.write_next(&mut books);
        Ok(())
    }

    /// Takes nothing more and begins nothing more.
    pub(crate) fn drain(&self) {
        let mut books = self.books();
        books.is_draining = true;
        books.scheduler.drain();
    }

    /// Whether the service is about to stop.
    pub(crate) fn is_draining(&self) -> bool {
        self.books().is_draining
    }

    /// Tells everything that runs to give up.
    fn give_up_running(&self) {
        let books = self.books();
        books.running.values().for_each(|running| running.cancel.cancel());
    }
}
