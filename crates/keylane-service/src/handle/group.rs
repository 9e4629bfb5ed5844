//! Process group of a handler: guarantees that no process of it runs after its end.
//!
//! 1. An entry in the registry is reserved before the start and freed once no process of the group
//!    runs: when a server is killed, all of its groups are in the registry, and a guard or the next
//!    start ends them.
//! 2. The leader is not reaped before its group has been sent SIGKILL: until then the system gives
//!    the group's number to no other process.
//! 3. [`end`](Group::end) returns once no process of the group runs, so the next attempt cannot
//!    overlap. Dropping a group kills it and waits for its leader.

use std::io;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use keylane_process::{Registry, RegistryEntry, has_ended};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::process::{Child, Command};

/// Polls of a group without an event source before all processes are scanned.
const LOOKS: u32 = 20;

/// Pause between two polls of a killed group.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// Timeout for the leader of a dropped group to end after SIGKILL. More is needed only while the
/// system waits for a device.
const DROP_WAIT: Duration = Duration::from_secs(1);

/// Process that leads a group, and all its descendants in that group.
#[derive(Debug)]
pub(super) struct ProcessGroup {
    child: Child,
    /// None once the leader is reaped.
    leader: Option<Pid>,
    /// Registry entry; dropped last, because it covers the processes.
    place: RegistryEntry,
}

impl ProcessGroup {
    /// Starts a command that is configured to lead a process group.
    pub(super) fn start(command: &mut Command, registry: &Registry) -> io::Result<Self> {
        let mut place = registry.reserve()?;
        if let Some((name, value)) = place.tag() {
            command.env(name, value);
        }
        let child = command.spawn()?;
        let leader = child.id().and_then(|id| Pid::from_raw(id.cast_signed()));
        let leader = leader.expect("an unreaped child has a pid");
        let registered = place.register(leader);
        let group = ProcessGroup { child, leader: Some(leader), place };
        // On an error the group is dropped, which kills it.
        registered.map(|()| group)
    }

    /// Leader, for access to its pipes.
    pub(super) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    /// Sends a signal to the whole group.
    pub(super) fn signal(&self, signal: Signal) {
        if let Some(leader) = self.leader {
            // The group may have ended.
            let _ = kill_process_group(leader, signal);
        }
    }

    /// Whether the leader has ended. Does not reap it.
    pub(super) fn has_ended(&self) -> bool {
        self.leader.is_none_or(has_ended)
    }

    /// Waits until the leader has ended. Does not reap it.
    pub(super) async fn ended(&self) {
        if let Some(leader) = self.leader {
            wait_for(leader).await;
        }
    }

    /// Kills the rest of the group and returns once no process of it runs.
    pub(super) async fn end(mut self) -> io::Result<ExitStatus> {
        self.signal(Signal::KILL);
        self.ended().await;
        self.leader = None;
        let status = self.child.wait().await;
        let mut looks = 0;
        while !self.place.is_gone() {
            looks += 1;
            // A zombie that no process reaps would otherwise be awaited forever.
            if looks % LOOKS == 0 && self.place.is_gone_but_for_zombies() {
                break;
            }
            tokio::time::sleep(LOOK_PAUSE).await;
        }
        status
    }
}

/// Also ends the group of an attempt that is dropped early.
impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let Some(leader) = self.leader else { return };
        self.signal(Signal::KILL);
        // A killed process runs no more code of its own; the wait is for the system's cleanup.
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
        // SAFETY: an `OwnedFd` has one open descriptor for its whole life, and is not accessible
        // through the `AsyncFd`, so it is neither closed nor replaced before.
        unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) }.ok()
    });
    match watched {
        // The descriptor stays readable: the child's end is final.
        Some(watched) if watched.readable().await.is_ok() => {}
        _ => wait_by_signals(child).await,
    }
}

#[cfg(not(target_os = "linux"))]
async fn wait_for(child: Pid) {
    wait_by_signals(child).await;
}

/// Checks the child after every SIGCHLD.
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

#[cfg(test)]
mod tests {
    use std::process::Stdio;

    use keylane_process::RegistryOptions;
    use tokio::io::AsyncReadExt;

    use super::*;

    /// The number of a reaped leader may be that of another process, so the leader of a group that
    /// is to get a signal must not be reaped.
    #[tokio::test]
    async fn a_leader_that_has_ended_is_reaped_after_the_last_signal_to_its_group() {
        let folder = tempfile::tempdir().unwrap();
        let registry =
            Registry::open(&folder.path().join("children"), &RegistryOptions::default()).unwrap();
        let mut command = Command::new("sh");
        // The rest of the group holds the output open for longer than the leader runs.
        command.args(["-c", "sleep infinity & exit 7"]).process_group(0).stdout(Stdio::piped());
        let mut group = ProcessGroup::start(&mut command, &registry).unwrap();
        let mut output = group.child().stdout.take().unwrap();
        let leader = group.leader.unwrap();
        group.ended().await;
        assert!(group.has_ended());
        // It can still be signalled, by its own number and by that of its group.
        rustix::process::test_kill_process(leader).expect("the leader is not reaped");
        rustix::process::test_kill_process_group(leader).expect("the rest of the group runs");
        assert_eq!(group.end().await.unwrap().code(), Some(7));
        assert_eq!(output.read_to_end(&mut Vec::new()).await.unwrap(), 0, "the rest is gone");
        rustix::process::test_kill_process(leader).expect_err("the leader is reaped");
    }
}
