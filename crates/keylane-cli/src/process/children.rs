//! Knows every child that lives, so that all can be ended; a signal never goes
//! to a process that is not ours.
//!
//! Each child leads a process group of its own: the terminal's interrupt does
//! not reach it, and what it has started is ended with it. A group's number
//! stays taken until its leader is reaped, so:
//!
//! 1. a child enters the set under the lock, and is signalled there and then
//!    if the end was asked for while it was being started;
//! 2. who waits for a child does so without reaping it, then removes it from
//!    the set and reaps it under the lock;
//! 3. signals are sent under the lock, to groups in the set: none of them can
//!    have been reaped, so none of the numbers can have been given to others.

use std::collections::HashSet;
use std::io::{self, PipeReader, PipeWriter};
use std::os::fd::AsFd;
use std::process::{Child, Command, ExitStatus};
use std::sync::{Mutex, MutexGuard};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};

/// The children that were started and not reaped.
#[derive(Debug)]
pub(crate) struct Children {
    state: Mutex<State>,
    /// Readable once the children's output is not to be waited for any more.
    abandoned: PipeReader,
}

#[derive(Debug)]
struct State {
    groups: HashSet<Pid>,
    /// What children get that are started after the end was asked for.
    ending: Option<Signal>,
    /// Dropped to make `abandoned` readable.
    abandon: Option<PipeWriter>,
}

impl Children {
    pub(crate) fn new() -> io::Result<Self> {
        let (abandoned, abandon) = io::pipe()?;
        let state = State { groups: HashSet::new(), ending: None, abandon: Some(abandon) };
        Ok(Self { state: Mutex::new(state), abandoned })
    }

    /// Starts a command that was told to lead a process group.
    pub(crate) fn spawn(&self, command: &mut Command) -> io::Result<Child> {
        let child = command.spawn()?;
        let group = Pid::from_child(&child);
        let mut state = self.lock();
        state.groups.insert(group);
        if let Some(signal) = state.ending {
            send(group, signal);
        }
        Ok(child)
    }

    /// Waits until a child of [`spawn`](Self::spawn) has ended.
    pub(crate) fn reap(&self, child: &mut Child) -> io::Result<ExitStatus> {
        let group = Pid::from_child(child);
        let ended = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
        while let Err(error) = waitid(WaitId::Pid(group), ended) {
            if error != Errno::INTR {
                return Err(error.into());
            }
        }
        let mut state = self.lock();
        state.groups.remove(&group);
        child.wait()
    }

    /// Asks all children to end, and those that start later.
    pub(crate) fn terminate(&self) {
        self.end_with(Signal::TERM);
    }

    /// Ends all children, and those that start later; gives up on output that
    /// a process outside of their groups keeps open.
    pub(crate) fn kill(&self) {
        self.end_with(Signal::KILL);
        self.lock().abandon = None;
    }

    /// Asks one child and what it has started to end.
    pub(crate) fn end(&self, child: &Child) {
        let group = Pid::from_child(child);
        if self.lock().groups.contains(&group) {
            send(group, Signal::TERM);
        }
    }

    /// Ends one child and what it has started at once, if it has not been reaped.
    pub(crate) fn kill_one(&self, group: Pid) {
        if self.lock().groups.contains(&group) {
            send(group, Signal::KILL);
        }
    }

    /// Waits until there is something to read, or an end; false once
    /// [`kill`](Self::kill) was called.
    pub(crate) fn wait_readable<S: AsFd>(&self, stream: &S) -> io::Result<bool> {
        let streams = [stream.as_fd(), self.abandoned.as_fd()];
        let mut polled = streams.map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN));
        poll_again(&mut polled)?;
        Ok(polled[1].revents().is_empty())
    }

    /// Becomes readable when [`kill`](Self::kill) was called.
    pub(crate) fn abandoned(&self) -> &PipeReader {
        &self.abandoned
    }

    fn end_with(&self, signal: Signal) {
        let mut state = self.lock();
        state.ending = Some(signal);
        for group in &state.groups {
            send(*group, signal);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder of the lock panics")
    }
}

/// Polls without a deadline, again if a signal interrupts it.
pub(super) fn poll_again(polled: &mut [PollFd<'_>]) -> io::Result<()> {
    loop {
        match poll(polled, None) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn send(group: Pid, signal: Signal) {
    // The whole group may have ended already, which is what is wanted.
    let _ = kill_process_group(group, signal);
}
