//! Runs the handlers of leased kinds in this process, for the server that owns the store: another one, or this one itself.
//!
//! A server that shares its store with others leases subtasks from the owner, as a remote worker does, and calls its own handlers. If it
//! becomes the owner, it leases them from itself. So a lease and its attempt do not end when the owner changes.
//!
//! # Protocol
//!
//! Kinds are in *groups*, each with a task of its own (`group.rs`) and a number of attempts at the same time: all kinds whose handlers take any
//! number share one, and each other kind has its own. A group has at most one claim and at most one report under way. An attempt
//! (`leased_attempt.rs`) begins with its lease, which the group extends with heartbeats, and its end stays in the group until a server has
//! answered a report of it. If half of the lease or more may be over, since the claim has waited, the attempt begins after the first heartbeat.
//!
//! **No attempt outlives its lease**, as far as this machine can know: the time of a lease counts from before the request that
//! extended it, on this machine's own clock. Shortly before it is over the attempt is cancelled, and at the end its handler is dropped,
//! which kills its processes. While this machine sleeps, its clock stands still; the first heartbeat afterwards tells of the lost lease.
//! A process that stood still before it read the answer to its claim begins nothing: the heartbeat tells it that the lease has ended.
//!
//! **The leases of a former process of this server are ended before the first claim**, if the processes of its attempts have ended
//! (`former_leases.rs`).
//!
//! **An end counts once.** A report without an answer is sent again, to the next owner too. A lease that has ended is answered so, and its end is
//! dropped.

mod children;
mod former_leases;
mod group;
#[cfg(test)]
mod group_tests;
mod lease_api;
mod leased_attempt;
mod leased_kind;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use keylane_process::GuardMechanism;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use self::children::ChildProcesses;
use self::former_leases::FormerProcess;
use self::group::{Group, GroupSettings};
pub(crate) use self::lease_api::{FORMER, FormerLeases, LeaseTransport, NextFence, TransportError};
use self::leased_kind::LeasedKind;
use crate::kind::{Kind, KindExecutor};

/// Settings of a [`LeaseRunner`].
#[derive(Clone, Debug)]
pub struct LeaseRunnerSettings {
    /// Maximum number of attempts at the same time, those of [worker processes](crate::handle::WorkerHandler) not counted, which have
    /// a number of their own. Default: 64.
    pub slots: usize,
    /// File of the list of processes that handlers start. Each running process needs its own. The next process of this server finds it, and
    /// ends the leases of this one. Default: none; then the processes outlive this one if it is killed, and its leases go on.
    pub children: Option<PathBuf>,
    /// Guard that ends these processes if this one is killed. Default: none.
    pub guard: GuardMechanism,
}

impl Default for LeaseRunnerSettings {
    fn default() -> Self {
        LeaseRunnerSettings { slots: 64, children: None, guard: GuardMechanism::None }
    }
}

/// Runs the handlers of the kinds with [leases and a handler](Kind::on_all_servers) in this process.
///
/// A [`StartingServer`](crate::http::StartingServer) connects it with the owner of the store. Clones are the same runner.
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// use keylane_service::handle::{Attempt, FunctionHandler};
/// use keylane_service::http::{HttpSettings, StartingServer};
/// use keylane_service::{Kind, LeaseRunner, LeaseRunnerSettings, Service, ServiceSettings};
///
/// # let runtime = tokio::runtime::Runtime::new()?;
/// # runtime.block_on(async {
/// # let folder = tempfile::tempdir()?;
/// let greet = FunctionHandler::new(|attempt: Attempt| async move {
///     println!("hello {}", attempt.key().unwrap_or_default());
///     Ok(None)
/// });
/// let kind = Kind::on_all_servers(Duration::from_secs(10), greet);
/// let runner = LeaseRunner::new(LeaseRunnerSettings { slots: 8, ..Default::default() });
/// runner.set_kinds([("greet", &kind)]);
/// let http = HttpSettings { listen: ([127, 0, 0, 1], 0).into(), ..Default::default() };
/// let starting = StartingServer::bind(http).await?.lease_to(&runner);
/// let settings = ServiceSettings::new(folder.path().join("tasks"));
/// let service = Service::builder(settings).kind("greet", kind).start().await?;
/// let server = starting.serve(&service);
/// let id = service.submit(r#"{"kind":"greet","key":"ann"}"#).await?;
/// assert_eq!(service.wait(id).await?.counts.succeeded, 1);
///
/// // The runner before the service, which is told of the ends of its attempts.
/// runner.stop(Duration::from_secs(10)).await;
/// server.stop(Duration::from_secs(10)).await;
/// service.stop(Duration::from_secs(10)).await;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct LeaseRunner(Arc<RunnerState>);

struct RunnerState {
    settings: LeaseRunnerSettings,
    /// Way to the server that owns the store, if there is one.
    transport: watch::Sender<Option<Arc<dyn LeaseTransport>>>,
    groups: Mutex<BTreeMap<GroupName, RunningGroup>>,
    tasks: TaskTracker,
    /// Cancelled when nothing more is to be leased.
    draining: CancellationToken,
    /// Whether nothing is to be leased for now.
    paused: watch::Sender<bool>,
    /// Cancelled when running attempts are to end.
    cancelling: CancellationToken,
    children: Arc<ChildProcesses>,
    former: Arc<FormerProcess>,
}

/// A group: the kind that has it alone, or all others.
type GroupName = Option<String>;

#[derive(Debug)]
struct RunningGroup {
    kinds: Arc<BTreeMap<String, LeasedKind>>,
    draining: CancellationToken,
}

impl LeaseRunner {
    /// Creates a runner without kinds.
    #[must_use]
    pub fn new(settings: LeaseRunnerSettings) -> Self {
        // Of this server, and not of another one that had its address: each has a list of its own.
        let has_list = settings.children.as_ref().is_some_and(|list| list.exists());
        Self::with(settings, FormerProcess::new(has_list))
    }

    /// Creates a runner whose handlers start no processes, so that its attempts end with its process.
    #[cfg(test)]
    pub(crate) fn simulated(settings: LeaseRunnerSettings) -> Self {
        Self::with(settings, FormerProcess::new(true))
    }

    fn with(settings: LeaseRunnerSettings, former: FormerProcess) -> Self {
        let children = ChildProcesses::new(settings.children.clone(), settings.guard);
        LeaseRunner(Arc::new(RunnerState {
            settings,
            transport: watch::Sender::new(None),
            groups: Mutex::default(),
            tasks: TaskTracker::new(),
            draining: CancellationToken::new(),
            paused: watch::Sender::new(false),
            cancelling: CancellationToken::new(),
            children: Arc::new(children),
            former: Arc::new(former),
        }))
    }

    /// Replaces the kinds. Running attempts continue with the handlers that they have. Kinds without a lease or without a handler are not run.
    ///
    /// # Panics
    /// Panics if it is called outside of a Tokio runtime.
    pub fn set_kinds<'k>(&self, kinds: impl IntoIterator<Item = (&'k str, &'k Kind)>) {
        let mut wanted: BTreeMap<GroupName, BTreeMap<String, LeasedKind>> = BTreeMap::new();
        for (name, kind) in kinds {
            let KindExecutor::Lease { handler: Some(handler), .. } = &kind.work else { continue };
            let group = handler.max_attempts().map(|_| name.to_owned());
            let kind = LeasedKind { handler: Arc::clone(handler), log_bytes: kind.log_bytes };
            wanted.entry(group).or_default().insert(name.to_owned(), kind);
        }
        let mut groups = self.0.groups.lock().unwrap_or_else(PoisonError::into_inner);
        groups.retain(|name, group| {
            let stays = wanted.get(name).is_some_and(|kinds| *kinds == *group.kinds);
            if !stays {
                group.draining.cancel();
            }
            stays
        });
        for (name, kinds) in wanted {
            groups.entry(name).or_insert_with(|| self.start_group(Arc::new(kinds)));
        }
    }

    fn start_group(&self, kinds: Arc<BTreeMap<String, LeasedKind>>) -> RunningGroup {
        let draining = self.0.draining.child_token();
        let group = Group::new(GroupSettings {
            kinds: Arc::clone(&kinds),
            slots: self.0.settings.slots,
            transport: self.0.transport.subscribe(),
            children: Arc::clone(&self.0.children),
            former: Arc::clone(&self.0.former),
            draining: draining.clone(),
            paused: self.0.paused.subscribe(),
            cancelling: self.0.cancelling.clone(),
        });
        self.0.tasks.spawn(group.run());
        RunningGroup { kinds, draining }
    }

    /// Leases nothing more; running attempts continue.
    pub fn drain(&self) {
        self.0.draining.cancel();
    }

    /// Leases nothing more, waits at most `within` until the running attempts have ended and the owner of the store knows their ends, and then
    /// cancels them: they count as failed. An attempt of which the owner does not learn ends with its lease. Dropped, it has only stopped leasing.
    pub async fn stop(&self, within: Duration) {
        /// Time for cancelled handlers to end, and for the report of that.
        const GRACE: Duration = Duration::from_secs(2);
        self.drain();
        self.0.tasks.close();
        if timeout(within, self.0.tasks.wait()).await.is_err() {
            self.0.cancelling.cancel();
            let _ = timeout(GRACE, self.0.tasks.wait()).await;
        }
        let groups =
            std::mem::take(&mut *self.0.groups.lock().unwrap_or_else(PoisonError::into_inner));
        for kind in groups.values().flat_map(|group| group.kinds.values()) {
            kind.handler.close().await;
        }
        // The service that it may have ends only when it has no user.
        self.connect(None);
    }

    /// Leases nothing more while it is paused; running attempts continue.
    pub(crate) fn set_paused(&self, paused: bool) {
        self.0.paused.send_if_modified(|known| std::mem::replace(known, paused) != paused);
    }

    /// Connects the runner with the owner of the store, or with none.
    pub(crate) fn connect(&self, transport: Option<Arc<dyn LeaseTransport>>) {
        self.0.transport.send_replace(transport);
    }
}

impl fmt::Debug for LeaseRunner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LeaseRunner").field("settings", &self.0.settings).finish_non_exhaustive()
    }
}
