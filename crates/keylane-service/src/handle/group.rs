//! A handler's process and what it starts, from the start to the moment when nothing of it runs.
//!
//! 1. A place in the registry is reserved before the start and freed once nothing of the group runs: a server that is
//!    killed has all of its groups in the registry, and a guard or the next start ends them.
//! 2. The leader is not reaped before its group has been sent SIGKILL: until then the group's number is given to no
//!    other process.
//! 3. [`end`](Group::end) returns when nothing of the group runs, so the next attempt cannot run beside it. A group
//!    that is dropped is killed, and its leader waited for.

use std::io;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use keylane_process::{Place, Registry, has_ended};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

/// Looks at a group for which there is no event, before all processes are looked at.
const LOOKS: u32 = 20;

/// Pause between two looks at a group that was killed.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// Time that a dropped group's leader has to end after SIGKILL. It needs more only where the system waits for a device.
const DROP_WAIT: Duration = Duration::from_secs(1);

/// A process that leads a group, and all that it has started, as long as they stay together.
#[derive(Debug)]
pub(super) struct Group {
    child: Child,
    /// None once the leader was reaped.
    leader: Option<Pid>,
    /// Dropped last: it stands for the processes.
    place: Place,
}

impl Group {
    /// Starts a command that was told to lead a process group.
    pub(super) fn start(command: &mut Command, registry: &Registry) -> io::Result<Self> {
        let mut place = registry.reserve()?;
        if let Some((name, value)) = place.tag() {
            command.env(name, value);
        }
        let child = command.spawn()?;
        let leader = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let leader = leader.expect("a child that was not waited for has a number");
        let registered = place.register(leader);
        let group = Group { child, leader: Some(leader), place };
        // Dropped, it is killed.
        registered.map(|()| group)
    }

    /// The leader, for its pipes.
    pub(super) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal to all of the group.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            // All may have ended.
            let _ = kill_process_group(leader, signal);
        }
    }

    /// Whether the leader has ended. It is not reaped.
    pub(super) fn has_ended(&self) -> bool {
        self.leader.is_none_or(has_ended)
    }

    /// Waits until the leader has ended. It is not reaped.
    pub(super) async fn ended(&self) {
        if let Some(leader) = self.leader {
            wait_for(leader).await;
        }
    }

    /// Kills what is left of the group, and returns once nothing of it runs.
    pub(super) async fn end(mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        self.ended().await;
        self.leader = None;
        let status = self.child.wait().await;
        let mut looks = 0;
        while !self.place.is_gone() {
            looks += 1;
            // What has ended and is reaped by no process would be waited for without end.
            if looks % LOOKS == 0 && self.place.is_gone_but_for_zombies() {
                break;
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        status
    }
}

/// Also when the attempt is dropped before it has ended.
impl Drop for Group {
    fn drop(&mut self) {
        let Some(leader) = self.leader else { return };
        self.signal(Signal::KILL);
        // A process that was killed runs nothing more of its own; this is for what the system still does for it.
        let until = Instant::now() + DROP_WAIT;
        while !has_ended(leader) && Instant::now() < until {
            std::thread::sleep(LOOK_PAUSE);
        }
    }
}

/// Waits for the end of a child and leaves it unreaped.
#[cfg(target_os = "linux")]
async fn wait_for(child: Pid) {
    use rustix::process::{PidfdFlags, pidfd_open};
    use tokio::io::Interest;
    use tokio::io::unix::AsyncFd;

    let watched = pidfd_open(child, PidfdFlags::NONBLOCK).ok();
    let watched = watched.and_then(|fd| {
        // SAFETY: an `OwnedFd` has one open descriptor for as long as it lives, and is not reached through the
        // `AsyncFd`, so it is neither closed nor replaced before.
        unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.ok()
    });
    match watched {
        // It stays readable, for its end is not undone.
        Some(watched) if watched.readable().await.is_ok() => {}
        _ => wait_by_signals(child).await,
    }
}

#[cfg(not(target_os = "linux"))]
async fn wait_for(child: Pid) {
    wait_by_signals(child).await;
}

/// Looks at the child whenever some child of this process has ended.
async fn wait_by_signals(child: Pid) {
    use tokio::signal::unix::{SignalKind, signal};

    let mut ends = signal(SignalKind::child()).ok();
    while !has_ended(child) {
        match &mut ends {
            Some(ends) => _ = ends.recv().await,
            None => tokio::time::sleep(LOOK_PAUSE).await,
        }
    }
}
