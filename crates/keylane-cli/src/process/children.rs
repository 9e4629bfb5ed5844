//! Set of running children, all of which can be ended; a signal never goes to a process that is not
//! ours.
//!
//! Each child leads a process group of its own: the terminal's interrupt does not reach it, and its
//! descendants in the group are ended with it. A group's number is in use until its leader is
//! reaped, so:
//!
//! 1. a child enters the set under the lock, and is signalled there and then
//!    if the end was asked for while it was being started;
//! 2. a thread that waits for a child does so without reaping it; then, under the lock, it kills
//!    the rest of the child's group, removes it from the set and reaps it;
//! 3. signals are sent under the lock, to groups in the set: none of them can
//!    have been reaped, so none of the numbers can have been given to others;
//! 4. a child has an entry in the registry from before its start until no process of its group
//!    runs, so that it ends even if this process is killed. Only then does [`reap`](ChildProcesses::reap)
//!    return.

use std::collections::HashMap;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard};
use std::thread::sleep;
use std::time::{Duration, Instant};

use keylane_process::{Registry, RegistryEntry};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// Looks at a group for which there is no event, before all processes are looked at.
const LOOKS: u32 = 20;

/// Pause between two looks at a group that was killed.
const LOOK_PAUSE: Duration = Duration::from_millis(1);

/// Longest pause between two looks for the end of a child that has closed its output.
const MAX_END_PAUSE: Duration = Duration::from_millis(20);

/// The children that were started and not reaped.
#[derive(Debug)]
pub(crate) struct ChildProcesses {
    state: Mutex<ChildSet>,
    /// Lists the children for the case that this process is killed.
    registry: Registry,
    /// Readable once the children's output is not to be waited for any more.
    abandoned: PipeReader,
}

#[derive(Debug)]
struct ChildSet {
    /// Each group's place in the registry.
    groups: HashMap<Pid, RegistryEntry>,
    /// Signal for children that start after the end was requested.
    ending: Option<Signal>,
    /// Dropped to make `abandoned` readable.
    abandon: Option<PipeWriter>,
}

impl ChildProcesses {
    pub(crate) fn new(registry: Registry) -> io::Result<Self> {
        let (abandoned, abandon) = io::pipe()?;
        let state = ChildSet { groups: HashMap::new(), ending: None, abandon: Some(abandon) };
        Ok(Self { state: Mutex::new(state), registry, abandoned })
    }

    /// Starts a command that is configured to lead a process group.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let mut place = self.registry.reserve()?;
        if let Some((name, value)) = place.tag() {
            command.env(name, value);
        }
        let mut child = command.spawn()?;
        let group = Pid::from_child(&child);
        if let Err(error) = place.register(group) {
            // It was killed, because it would survive a kill of this process.
            child.wait()?;
            return Err(error);
        }
        let mut state = self.lock();
        state.groups.insert(group, place);
        if let Some(signal) = state.ending {
            send(group, signal);
        }
        Ok(child)
    }

    /// Waits until a child of [`spawn`](Self::spawn) has ended, and ends the rest of its group.
    pub(crate) fn reap(&self, child: &mut Child) -> io::Result<ExitStatus> {
        wait_for_end(child)?;
        let group = Pid::from_child(child);
        let mut state = self.lock();
        send(group, Signal::KILL);
        let place = state.groups.remove(&group);
        let status = child.wait();
        drop(state);
        place.inspect(wait_until_gone);
        status
    }

    /// Waits until a child has ended, without reaping it. Whenever `deadline` has passed, calls
    /// `on_deadline`, which returns the next one, or `None` to end.
    pub(super) fn wait_until(
        &self,
        child: &Child,
        mut deadline: Instant,
        mut on_deadline: impl FnMut() -> Option<Instant>,
    ) -> io::Result<()> {
        let group = Pid::from_child(child);
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        // A child mostly ends as soon as it has closed its output.
        let mut pause = Duration::from_micros(50);
        loop {
            match waitid(WaitId::Pid(group), ended) {
                Ok(Some(_)) => return Ok(()),
                Ok(None) | Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
            if deadline <= Instant::now() {
                let Some(next) = on_deadline() else { return Ok(()) };
                deadline = next;
            }
            sleep(pause.min(deadline.saturating_duration_since(Instant::now())));
            pause = (pause * 2).min(MAX_END_PAUSE);
        }
    }

    /// Asks all children to end, including those that start later.
    pub(crate) fn terminate(&self) {
        self.end_with(Signal::TERM);
    }

    /// Kills all children, including those that start later; abandons output that a process outside
    /// of their groups keeps open.
    pub(crate) fn kill(&self) {
        self.end_with(Signal::KILL);
        self.lock().abandon = None;
    }

    /// Whether all children were asked to end.
    pub(crate) fn is_ending(&self) -> bool {
        self.lock().ending.is_some()
    }

    /// Asks one child and its group to end.
    pub(crate) fn end(&self, child: &Child) {
        self.signal(Pid::from_child(child), Signal::TERM);
    }

    /// Sends a signal to one child and its group, unless it has been reaped.
    pub(crate) fn signal(&self, group: Pid, signal: Signal) {
        let state = self.lock();
        if state.groups.contains_key(&group) {
            send(group, signal);
        }
    }

    /// Waits until there is something to read from one of the streams, or its end; false once
    /// [`kill`](Self::kill) was called.
    pub(crate) fn wait_readable(&self, streams: [Option<BorrowedFd<'_>>; 2]) -> io::Result<bool> {
        // A missing stream's place is taken by the pipe that is polled anyway.
        let [first, second] = streams.map(|stream| stream.unwrap_or(self.abandoned.as_fd()));
        let all = [first, second, self.abandoned.as_fd()];
        let mut polled = all.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        poll_until(&mut polled, None)?;
        Ok(polled[2].revents().is_empty())
    }

    /// Becomes readable when [`kill`](Self::kill) was called.
    pub(crate) fn abandoned(&self) -> &PipeReader {
        &self.abandoned
    }

    /// Records that no child starts any more and this process is about to end.
    pub(crate) fn dismiss(&self) {
        self.registry.dismiss();
    }

    fn end_with(&self, signal: Signal) {
        let mut state = self.lock();
        state.ending = Some(signal);
        for group in state.groups.keys() {
            send(*group, signal);
        }
    }

    fn lock(&self) -> MutexGuard<'_, ChildSet> {
        self.state.lock().expect("no holder of the lock panics")
    }
}

/// Waits until a child has ended, and does not reap it.
pub(super) fn wait_for_end(child: &Child) -> io::Result<()> {
    let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    while let Err(error) = waitid(WaitId::Pid(Pid::from_child(child)), ended) {
        if error != Errno::INTR {
            return Err(error.into());
        }
    }
    Ok(())
}

/// Waits until no process of a group runs that was killed and whose leader was reaped; mostly
/// returns at once.
fn wait_until_gone(place: &RegistryEntry) {
    let mut looks = 0;
    while !place.is_gone() {
        looks += 1;
        // A zombie that no process reaps would otherwise be awaited forever.
        if looks % LOOKS == 0 && place.is_gone_but_for_zombies() {
            return;
        }
        sleep(LOOK_PAUSE);
    }
}

/// Polls, again if a signal interrupts it. Returns false if the deadline has come.
pub(super) fn poll_until(polled: &mut [PollFd<'_>], deadline: Option<Instant>) -> io::Result<bool> {
    loop {
        let left = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let left = left.map(|left| Timespec {
            tv_sec: left.as_secs().try_into().unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        });
        match poll(polled, left.as_ref()) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn send(group: Pid, signal: Signal) {
    // The whole group may have ended, which is the goal.
    let _ = kill_process_group(group, signal);
}
