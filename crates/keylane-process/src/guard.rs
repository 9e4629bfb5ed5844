//! Guard: a process that ends all processes in a table once the table's parent is gone.
//!
//! It is this program again, with [`WORD`] as its first argument. Its standard input is a pipe whose only write end is
//! the parent's, its standard output the table. It is in a session of its own, so that no terminal's signal reaches
//! it, and it does not end by a signal that can be ignored.

use std::fs::File;
use std::io::{self, PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitCode};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use signal_hook::consts::{SIGHUP, SIGINT, SIGPIPE, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2};

use crate::leftovers::MessageSink;
use crate::own_executable::{has_entrance, own_program};
use crate::{GRACE, say, table, termination};

/// First argument of a guard.
const WORD: &str = "--guard-children";

/// Message of a parent that has no children left.
const DISMISSED: u8 = b'.';

/// Lifetime below which a guard is not replaced at once, so that one that cannot live costs little.
const SHORT_LIFE: Duration = Duration::from_secs(1);

/// Time that a dismissed guard has to end.
const FAREWELL: Duration = Duration::from_secs(1);

/// Mechanism that ends the children of a killed process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum GuardMechanism {
    /// None, until the next start with the same table.
    #[default]
    None,
    /// This program, started again. Its `main` begins with [`enter`](crate::enter).
    ThisProgram,
}

/// Runs the guard, if this process was started to be one.
pub(crate) fn run_if_asked() -> Option<ExitCode> {
    if std::env::args_os().nth(1).is_none_or(|word| word != WORD) {
        return None;
    }
    match guard() {
        Ok(()) => Some(ExitCode::SUCCESS),
        Err(error) => {
            say(&format!("the guard cannot end the child processes: {error}"));
            Some(ExitCode::FAILURE)
        }
    }
}

fn guard() -> io::Result<()> {
    // Fails for the leader of a group, which a parent does not make of it.
    let _ = rustix::process::setsid();
    let heard = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2] {
        signal_hook::flag::register(signal, Arc::clone(&heard))?;
    }
    // No folder is kept in use.
    let _ = std::env::set_current_dir("/");
    let file = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    if wait_for_end()? {
        return Ok(());
    }
    let (header, slots) = match table::read(&file) {
        Ok(Some(found)) => found,
        // It was cleared by a parent that was killed before it could dismiss the guard.
        Ok(None) => return Ok(()),
        Err(table::TableReadError::Io(error)) => return Err(error),
        Err(table::TableReadError::Format) => return Err(io::ErrorKind::InvalidData.into()),
    };
    let process = header.process;
    termination::end_all(&header, &slots, grace_of_arguments(), |count| {
        say(&format!("process {process} is gone; its {count} child processes are ended"));
    })?;
    table::clear(&file)
}

/// Time between SIGTERM and SIGKILL, in milliseconds: the argument behind the parent's number.
fn grace_of_arguments() -> Duration {
    let ms = std::env::args().nth(3).and_then(|ms| ms.parse().ok());
    ms.map_or(GRACE, Duration::from_millis)
}

/// Waits until the pipe has no write end left. Whether the parent has dismissed the guard before.
fn wait_for_end() -> io::Result<bool> {
    let mut stdin = io::stdin().lock();
    let mut said = [0];
    loop {
        match stdin.read(&mut said) {
            Ok(0) => return Ok(false),
            Ok(_) if said[0] == DISMISSED => return Ok(true),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Parent's side: a guard, and a thread that replaces a guard that ends before the parent.
///
/// All guards read from one pipe. So the end of that pipe has the same meaning for a later guard as
/// for the first: this process is gone, and every child that it forked has either executed its
/// program or ended.
#[derive(Debug)]
pub(crate) struct GuardHandle {
    /// The pipe's write end. A child that was forked has it, too, until it gets to its program.
    pipe: PipeWriter,
    shared: Arc<GuardShared>,
}

#[derive(Debug, Default)]
struct GuardShared {
    state: Mutex<GuardState>,
    /// Notified when a field of the state changes.
    changed: Condvar,
}

#[derive(Debug, Default)]
struct GuardState {
    /// True once no guard is wanted any more.
    dismissed: bool,
    /// True once the last guard was reaped.
    ended: bool,
}

/// State of the thread that replaces guards.
struct GuardWatcher {
    shared: Arc<GuardShared>,
    /// The pipe's read end, for the next guard.
    pipe: PipeReader,
    /// The table, for the next guard.
    file: File,
    grace: Duration,
    tell: MessageSink,
}

impl GuardHandle {
    /// Starts a guard of this table, with this time between SIGTERM and SIGKILL.
    pub(crate) fn start(file: File, grace: Duration, tell: MessageSink) -> io::Result<Self> {
        if !has_entrance() {
            let why = "a guard is this program started again, so its main must begin with \
                       keylane_process::enter; call it there, or choose GuardMechanism::None";
            return Err(io::Error::new(io::ErrorKind::Unsupported, why));
        }
        let (end, pipe) = io::pipe()?;
        let shared = Arc::new(GuardShared::default());
        let watch = GuardWatcher { shared: Arc::clone(&shared), pipe: end, file, grace, tell };
        let guard = watch.start_one()?;
        thread::Builder::new().name("keylane-guard".into()).spawn(move || watch.run(guard))?;
        Ok(GuardHandle { pipe, shared })
    }

    /// Ends the guard: no child is left.
    pub(crate) fn dismiss(&self) {
        let mut state = self.shared.lock();
        state.dismissed = true;
        // The pipe never blocks: this is its only message.
        let _ = (&self.pipe).write_all(&[DISMISSED]);
        self.shared.changed.notify_all();
        // So that it is reaped here. One that does not run, because it was stopped, ends later.
        let runs = |state: &mut GuardState| !state.ended;
        drop(self.shared.changed.wait_timeout_while(state, FAREWELL, runs));
    }
}

impl GuardWatcher {
    /// Replaces guards until they are dismissed. Starts and ends no child.
    fn run(self, mut guard: Child) {
        loop {
            let begun = Instant::now();
            let ended = guard.wait();
            if self.shared.is_over() {
                return;
            }
            let how = ended.map_or_else(|error| error.to_string(), |status| status.to_string());
            if begun.elapsed() < SHORT_LIFE {
                self.shared.pause();
            }
            let Some(next) = self.replace() else { return };
            guard = next;
            (self.tell)(&format!(
                "the guard of the child processes has ended ({how}); another one was started"
            ));
        }
    }

    /// Starts another guard, as often as it takes; none once it is dismissed.
    fn replace(&self) -> Option<Child> {
        let mut told = false;
        loop {
            if self.shared.is_over() {
                return None;
            }
            match self.start_one() {
                Ok(guard) => return Some(guard),
                Err(error) if !std::mem::replace(&mut told, true) => (self.tell)(&format!(
                    "cannot start a guard of the child processes: {error}; until one can be \
                     started, they outlive this process if it is killed"
                )),
                Err(_) => {}
            }
            self.shared.pause();
        }
    }

    fn start_one(&self) -> io::Result<Child> {
        let mut command = Command::new(own_program()?);
        command
            .arg0("keylane")
            .args([WORD, &std::process::id().to_string(), &self.grace.as_millis().to_string()])
            .stdin(self.pipe.try_clone()?)
            .stdout(self.file.try_clone()?);
        command.spawn()
    }
}

impl GuardShared {
    /// Whether the guards were dismissed. The last one has ended then.
    fn is_over(&self) -> bool {
        let mut state = self.lock();
        state.ended = state.dismissed;
        let is_over = state.ended;
        drop(state);
        self.changed.notify_all();
        is_over
    }

    fn pause(&self) {
        let state = self.lock();
        drop(self.changed.wait_timeout_while(state, SHORT_LIFE, |state| !state.dismissed));
    }

    fn lock(&self) -> MutexGuard<'_, GuardState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
