//! Public handle of the service: start with its kinds, reload, and shutdown.

use std::fmt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use keylane_process::{GuardMechanism, Registry, RegistryOpenError, RegistryOptions};
use tokio::runtime::Handle;

use super::engine_dependencies::Outside;
use super::executor::JoinDispatcher;
use super::timer::{Deadline, sleep, timeout};
use super::wall_clock::WallClock;
use super::webhooks::WebhookSettings;
use super::{Core, ServiceSettings, StartError};
use crate::kind::Kind;
use crate::kind_registry::KindRegistry;
use crate::store::Store;
use crate::tenant::Tenants;

/// A service that accepts jobs, runs their subtasks in order and keeps their results.
///
/// - **An accepted job is done.** An acknowledged job is on the disk and continues after `kill -9`.
///   A subtask runs at least once; each attempt has a higher fence than the one before.
/// - **In order.** Of two subtasks with a common key, the one that entered first has ended
///   permanently before the other begins, across retries and restarts.
/// - **Fair.** Jobs share the slots by the four rules of [`keylane_allocate`].
///
/// A [`HttpServer`](crate::http::HttpServer) serves it over HTTP. If it is dropped without
/// [`stop`](Self::stop), it ends as after a crash: no acknowledged job is lost, and interrupted
/// runs count as attempts.
///
/// # Examples
/// ```
/// use keylane_service::handle::{Attempt, FunctionHandler};
/// use keylane_service::{Kind, Service, ServiceSettings};
///
/// # let runtime = tokio::runtime::Runtime::new()?;
/// # runtime.block_on(async {
/// let folder = tempfile::tempdir()?;
/// let greet = FunctionHandler::new(|attempt: Attempt| async move {
///     println!("hello {}", attempt.key().unwrap_or_default());
///     Ok(None)
/// });
/// let service = Service::builder(ServiceSettings::new(folder.path().join("tasks")))
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
pub struct Service {
    pub(crate) core: Arc<Core>,
    dispatcher: Option<JoinDispatcher>,
    ticker: tokio::task::JoinHandle<()>,
    schedules: tokio::task::JoinHandle<()>,
}

/// Builder of a [`Service`]: its settings and kinds.
#[derive(Debug)]
#[must_use = "nothing happens until it is started"]
pub struct ServiceBuilder {
    settings: ServiceSettings,
    kinds: KindRegistry,
    guard: GuardMechanism,
}

impl ServiceBuilder {
    /// Adds a kind of jobs, or replaces the one with this name.
    pub fn kind(self, name: &str, kind: Kind) -> Self {
        self.kinds.add(name, kind);
        self
    }

    /// Sets the guard that ends handlers' processes if this process is killed. By default the next
    /// start with the same store ends them before it starts any work: SIGTERM, and SIGKILL five
    /// seconds later. With [`GuardMechanism::ThisProgram`] they end at once; then `main` must begin with
    /// [`keylane_process::enter`].
    ///
    /// The list of processes is a file beside the store, with the suffix `-children`.
    pub fn guard(mut self, guard: GuardMechanism) -> Self {
        self.guard = guard;
        self
    }

    /// Opens the store, restores the order of unfinished jobs, and starts the service.
    ///
    /// Handlers run on the current Tokio runtime. A store in a database may be owned by another server: then this waits until that ends, or
    /// the future is dropped.
    ///
    /// # Errors
    /// Returns an error if the store cannot be opened, or if an unfinished job cannot continue.
    ///
    /// # Panics
    /// Panics if it is called outside of a Tokio runtime.
    pub async fn start(self) -> Result<Service, StartError> {
        self.start_in(Outside::system(Handle::current())).await
    }

    /// Starts the service with these clocks, threads and numbers.
    pub(crate) async fn start_in(mut self, mut outside: Outside) -> Result<Service, StartError> {
        if let Some(clock) = self.settings.clock.take() {
            outside.wall = WallClock::Manual(clock);
        }
        let executor = outside.executor.clone();
        // A start can wait long for a store in a database. Dropped, it ends.
        let _given_up = outside.store.given_up.clone().drop_guard();
        executor.blocking_or_panic(move || Service::begin(self, outside)).await
    }
}

impl Service {
    /// Creates a builder. The store is in the file that the settings name.
    pub fn builder(settings: ServiceSettings) -> ServiceBuilder {
        ServiceBuilder { settings, kinds: KindRegistry::default(), guard: GuardMechanism::None }
    }

    fn begin(builder: ServiceBuilder, outside: Outside) -> Result<Service, StartError> {
        let ServiceBuilder { settings, kinds, guard } = builder;
        let (store, mut recovered) =
            Store::open_in(&settings.path, &settings.store, &outside.store)?;
        // After the store: its lock proves that the process whose children this ends is gone.
        let children = children(store.path(), guard)?;
        if store.is_exposed() {
            let path = store.path().display();
            tracing::warn!("other users may read the store; run `chmod 600 {path}*`");
        }
        let core = Arc::new(Core::new(settings, kinds, store, children, outside));
        // Submission owns the store, so the store must not own it.
        let committed = Arc::downgrade(&core.submission);
        core.store.after_commits(move || {
            if let Some(submission) = committed.upgrade() {
                submission.commit_ended();
            }
        });
        core.recovery().recover(&mut recovered)?;
        let schedules = &core.schedules;
        schedules.recover()?;
        core.retention().doubt_clock();
        if core.settings.keeps_history {
            core.history.open(&core.settings.path);
        }
        let dispatcher = core.executor.dispatcher(core.dispatcher()).map_err(StartError::Thread)?;
        let (ticking, retaining) = (core.ticker().run(), core.retention().run());
        let (copying, sending) = (Arc::clone(&core.backups).run(), core.delivery_runner().run());
        let (recording, exporting) = (core.history_recorder().run(), core.span_exporter().run());
        let reading = core.inbox_reader().run();
        let all = async {
            _ = tokio::join!(ticking, retaining, copying, sending, recording, exporting, reading);
        };
        let ticker = core.executor.spawn(all);
        let schedules = core.executor.spawn(Arc::clone(schedules).run());
        core.executor.spawn(Arc::clone(&core.events).distribute(core.signals.stopped.clone()));
        Ok(Service { core, dispatcher: Some(dispatcher), ticker, schedules })
    }

    /// Stops accepting and starting work before it returns; running attempts continue. It cannot be
    /// undone.
    ///
    /// [`stop`](Self::stop) begins with it. An earlier call makes the begin of the shutdown visible
    /// to clients.
    pub fn drain(&self) {
        self.core.drain();
    }

    /// Stops accepting and starting work, and waits until no attempt runs, at most for `within`.
    /// Remote workers can meanwhile complete their leases if the server still listens; leases that
    /// are not completed survive the restart. Call it before the [server](crate::http::HttpServer)
    /// stops.
    pub async fn quiesce(&self, within: Duration) {
        self.core.drain();
        self.core.tasks.close();
        self.core.leases.held.close();
        let all = async {
            self.core.tasks.wait().await;
            self.core.leases.held.wait().await;
        };
        let _ = timeout(within, all).await;
    }

    /// Stops accepting and starting work, and waits until no attempt runs in this process, at most for `within`. Leases continue, those that
    /// this process has from itself too: the next owner of a store in a database gets their ends.
    pub async fn end_attempts(&self, within: Duration) {
        self.core.drain();
        self.core.tasks.close();
        let _ = timeout(within, self.core.tasks.wait()).await;
    }

    /// Waits until this process can no longer run the jobs of the store, and returns the reason: another process has taken over a store in a
    /// database, or the database has lost transactions. Then the process should end, and start again to stand by. Never returns
    /// for a store in a file. Cancel safe.
    pub async fn lost(&self) -> String {
        loop {
            if let Some(why) = self.core.store.lost() {
                return why;
            }
            sleep(Duration::from_millis(500)).await;
        }
    }

    /// Replaces the kinds while jobs are accepted and run. Running attempts continue unchanged.
    /// Jobs of a removed kind wait until it is added again or they are cancelled. A kind whose
    /// handler is unchanged should be passed with its existing handler.
    pub async fn reload_kinds(&self, kinds: Vec<(String, Kind)>) {
        let kept: Vec<_> = kinds.iter().flat_map(|(_, kind)| kind.handlers().cloned()).collect();
        let replaced = self.core.replace_kinds(kinds);
        self.core.signals.wake.notify();
        let is_kept = |handler: &Arc<_>| kept.iter().any(|other| Arc::ptr_eq(other, handler));
        let gone = replaced.iter().flat_map(|kind| kind.handlers());
        for handler in gone.filter(|handler| !is_kept(handler)) {
            // Running attempts keep their handler; its own resources are released here.
            handler.close().await;
        }
    }

    /// Replaces the tenants while jobs are accepted and run. Running attempts continue.
    pub fn reload_tenants(&self, tenants: Tenants) {
        self.core.replace_tenants(tenants);
        self.core.signals.wake.notify();
    }

    /// Replaces the secrets and networks of webhooks. Without them, webhooks that are not delivered wait.
    pub fn reload_webhooks(&self, webhooks: Option<WebhookSettings>) {
        self.core.webhooks.replace(webhooks);
    }

    /// Starts nothing more, waits at most `within` for running attempts, and closes the store.
    /// Attempts that still run are then cancelled: such an attempt counts as failed, and its
    /// subtask is retried after the next start if it has an attempt left. Leases of remote workers
    /// continue after the next start.
    ///
    /// On return the store is closed, so it can be opened again, and no attempt runs beside its
    /// successor. A handler that ignores its cancellation delays the return by 10 seconds; then its
    /// future is dropped. Stop the [server](crate::http::HttpServer) first: while it answers
    /// requests, it has the file of the store, and this waits for it for only two seconds.
    ///
    /// A caller with less time can drop the future, and then ends as after a crash. A store that is
    /// still open cannot be opened a second time:
    /// [`InUse`](crate::store::StoreOpenError::InUse).
    pub async fn stop(mut self, within: Duration) {
        self.core.drain();
        self.core.tasks.close();
        let _ = timeout(within, self.core.tasks.wait()).await;
        self.core.give_up_running();
        let _ = timeout(Duration::from_secs(1), self.core.tasks.wait()).await;
        let _ = self.core.persistence.all_written().await;
        self.close_handlers().await;
        // Their processes have ended with the handlers, and what still runs is dropped after its
        // grace. Without a limit: the store must not close before.
        self.core.tasks.wait().await;
        let _ = self.core.persistence.all_written().await;
        self.end();
        let _ = (&mut self.ticker).await;
        let _ = (&mut self.schedules).await;
        self.release().await;
    }

    async fn close_handlers(&self) {
        for entry in self.core.kinds.all() {
            for handler in entry.kind.handlers() {
                handler.close().await;
            }
        }
    }

    /// Waits until this is the last owner of the store, so that the store is closed on return and
    /// can be opened again. The last reply to a client may own it for a moment. A database can be opened again at once,
    /// although a client still reads a response from it.
    async fn release(self) {
        self.core.children.dismiss();
        let store = self.core.store.clone();
        let _ = self.core.executor.clone().blocking(move || store.give_up()).await;
        let deadline = Deadline::after(Duration::from_secs(2));
        while Arc::strong_count(&self.core) > 1 && !deadline.has_passed() {
            sleep(Duration::from_millis(2)).await;
        }
        // Closing the store blocks until the writer has ended.
        let (executor, open) = (self.core.executor.clone(), self.core.store.watch_open());
        let _ = executor.blocking(move || drop(self)).await;
        // A read that a client no longer waits for, or the callback of the last commit, may own a part
        // of the engine, and so the store.
        while open.is_open() && !deadline.has_passed() {
            sleep(Duration::from_millis(2)).await;
        }
    }

    fn end(&mut self) {
        self.core.signals.stopped.cancel();
        self.core.signals.wake.notify();
        if let Some(dispatcher) = self.dispatcher.take() {
            dispatcher();
        }
    }
}

impl fmt::Debug for Service {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service").field("core", &self.core).finish_non_exhaustive()
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        if self.dispatcher.is_some() {
            self.end();
        }
    }
}

/// Opens the registry of the processes that handlers start, and ends the processes that an earlier
/// run left in it.
fn children(store: &Path, guard: GuardMechanism) -> Result<Registry, RegistryOpenError> {
    let mut path = store.as_os_str().to_owned();
    path.push("-children");
    let report = |text: &str| tracing::warn!("{text}");
    Registry::open(Path::new(&path), &RegistryOptions::default().guard(guard).tell(report))
}
