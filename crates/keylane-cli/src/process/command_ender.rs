//! End of one command before its time, from another thread.

use std::cell::RefCell;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::process::{Child, Command};
use std::sync::{Arc, Mutex, MutexGuard};

use rustix::io::ioctl_fionread;
use rustix::process::{Pid, Signal};

use super::children::ChildProcesses;

thread_local! {
    /// Each thread's pipe, used again and again.
    static PIPE: RefCell<Option<(PipeReader, Arc<PipeWriter>)>> = const { RefCell::new(None) };
}

/// Ends a command that another thread runs.
#[derive(Debug)]
pub(crate) struct CommandEnder {
    children: Arc<ChildProcesses>,
    state: Mutex<EnderState>,
    /// Makes the pipe readable: the output of the command is not awaited any more.
    abandon: Arc<PipeWriter>,
}

#[derive(Debug, Default)]
struct EnderState {
    /// Group of the command while it runs.
    group: Option<Pid>,
    /// The last signal that was asked for.
    signal: Option<Signal>,
}

/// Runs a function with an ender for the command that it runs, and with the pipe of the ender.
pub(super) fn with_ender<R>(
    children: &Arc<ChildProcesses>,
    run: impl FnOnce(&Arc<CommandEnder>, &PipeReader) -> io::Result<R>,
) -> io::Result<R> {
    PIPE.with_borrow_mut(|pipe| {
        let (reader, writer) = match pipe {
            Some(pipe) => pipe,
            None => {
                let (reader, writer) = io::pipe()?;
                pipe.insert((reader, Arc::new(writer)))
            }
        };
        let ender = Arc::new(CommandEnder {
            children: Arc::clone(children),
            state: Mutex::default(),
            abandon: Arc::clone(writer),
        });
        let result = run(&ender, reader);
        // The thread's next command starts with an empty pipe, and a late call does not reach it.
        ender.ended();
        drain(reader)?;
        result
    })
}

fn drain(reader: &PipeReader) -> io::Result<()> {
    let written = ioctl_fionread(reader)?;
    reader.take(written).read_to_end(&mut Vec::new()).map(drop)
}

impl CommandEnder {
    /// Asks the command and its group to end.
    pub(crate) fn terminate(&self) {
        self.end_with(Signal::TERM);
    }

    /// Kills the command and its group. Output that a process outside of the group keeps open is not
    /// awaited.
    pub(crate) fn kill(&self) {
        self.end_with(Signal::KILL);
    }

    /// Starts the command, unless it was ended before.
    pub(super) fn start(&self, command: &mut Command) -> io::Result<Child> {
        if self.lock().signal.is_some() {
            return Err(io::Error::new(
                io::ErrorKind::Interrupted,
                "it was ended before its start",
            ));
        }
        let child = self.children.spawn(command)?;
        let mut state = self.lock();
        state.group = Some(Pid::from_child(&child));
        self.send(&state);
        Ok(child)
    }

    /// Records that the command has ended. Its number is about to be free for another process.
    pub(super) fn ended(&self) {
        self.lock().group = None;
    }

    pub(super) fn end_with(&self, signal: Signal) {
        let mut state = self.lock();
        state.signal = Some(signal);
        self.send(&state);
    }

    fn send(&self, state: &EnderState) {
        let (Some(group), Some(signal)) = (state.group, state.signal) else { return };
        self.children.signal(group, signal);
        if signal == Signal::KILL {
            // The pipe never blocks: a command gets a few signals at most.
            let _ = (&*self.abandon).write_all(b".");
        }
    }

    fn lock(&self) -> MutexGuard<'_, EnderState> {
        self.state.lock().expect("no holder of the lock panics")
    }
}
