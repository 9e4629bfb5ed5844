//! Init process of a container: reaps orphans and forwards signals.
//!
//! The kernel gives every orphan in a namespace of process numbers to process 1. A program that is process 1 and reaps
//! only its own children collects zombies until no number is left. So process 1 starts the program again as a child
//! and does nothing else. The program's signals have their default effects then, which they have not in process 1.

use std::io;
use std::process::{Command, ExitCode};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process};
use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH,
};
use signal_hook::iterator::Signals;

use crate::{GRACE, say};

/// Signals that are passed on.
const PASSED: [i32; 8] = [SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT];

/// Where this is process 1, runs the program as a child, reaps all orphans, and returns the
/// program's exit code after its end. Elsewhere returns none at once.
///
/// Must be called at the start of `main`, before there are threads. If the program cannot be
/// started again, it continues as process 1, with a message.
#[must_use]
pub fn enter_as_init() -> Option<ExitCode> {
    if std::process::id() != 1 {
        return None;
    }
    match reap_for_program() {
        Ok(code) => Some(ExitCode::from(code)),
        Err(error) => {
            say(&format!("cannot start a process to run in ({error}); zombies are not reaped"));
            None
        }
    }
}

fn reap_for_program() -> io::Result<u8> {
    // Before the start, so that no end is missed.
    let mut signals = Signals::new(PASSED.into_iter().chain([SIGCHLD]))?;
    let program = start()?;
    loop {
        for signal in signals.wait() {
            if signal == SIGCHLD {
                if let Some(status) = reap(program) {
                    return Ok(code(status));
                }
            } else if let Some(signal) = Signal::from_named_raw(signal) {
                // It is not reaped yet, so the number is its own.
                let _ = kill_process(program, signal);
            }
        }
    }
}

/// Starts this program again with its arguments, in a process group of its own: the signals of a terminal go to the
/// program directly, and not twice.
fn start() -> io::Result<Pid> {
    let mut words = std::env::args_os();
    let mut command = Command::new(crate::own_executable::own_program()?);
    {
        use std::os::unix::process::CommandExt;
        if let Some(name) = words.next() {
            command.arg0(name);
        }
        command.process_group(0);
    }
    let child = command.args(words).spawn()?;
    let program = Pid::from_child(&child);
    let stdin = std::io::stdin();
    // Without a terminal this fails, and has no effect to undo.
    if rustix::termios::tcsetpgrp(&stdin, program).is_ok() {
        // It may have been stopped because it read from the terminal before.
        let _ = kill_process(program, Signal::CONT);
    }
    Ok(program)
}

/// Reaps whatever has ended; returns how the program ended, once it has.
fn reap(program: Pid) -> Option<WaitStatus> {
    let mut ended = None;
    while let Ok(Some((process, status))) = rustix::process::wait(WaitOptions::NOHANG) {
        if process == program {
            ended = Some(status);
        }
    }
    let status = ended?;
    if status.signaled() {
        reap_rest();
    }
    Some(status)
}

/// Gives the guard of a program that was killed the time to end the program's children: the kernel kills everything
/// in the container once process 1 ends.
fn reap_rest() {
    let until = Instant::now() + GRACE + Duration::from_secs(2);
    while Instant::now() < until {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Err(Errno::CHILD) => return,
            Ok(None) => sleep(Duration::from_millis(10)),
            _ => {}
        }
    }
}

/// The exit code as a shell has it.
fn code(status: WaitStatus) -> u8 {
    let code = match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code,
        (None, Some(signal)) => 128 + signal,
        (None, None) => 255,
    };
    u8::try_from(code).unwrap_or(255)
}
