//! Signals that ask a server for its end, or for the configuration to be read anew.

use std::io::{IsTerminal, stderr, stdin, stdout};
use std::time::{Duration, Instant};

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use tokio::signal::unix::{Signal, SignalKind, signal};

/// Time within which another signal belongs to the same request: `timeout` sends one to its command, and one to all
/// processes of its group.
const SAME_REQUEST: Duration = Duration::from_millis(200);

/// The signals that ask for an end, or for the configuration to be read anew.
pub(super) struct ServerSignals {
    interrupts: Signal,
    terminations: Signal,
    hangups: Signal,
    /// Whether SIGHUP asks for an end: it runs in a terminal, which sends that when it is closed.
    pub(super) hangup_stops: bool,
}

impl ServerSignals {
    pub(super) fn watch() -> anyhow::Result<Self> {
        let watch = |kind| signal(kind).context("cannot watch for signals");
        Ok(ServerSignals {
            interrupts: watch(SignalKind::interrupt())?,
            terminations: watch(SignalKind::terminate())?,
            hangups: watch(SignalKind::hangup())?,
            hangup_stops: stdin().is_terminal() || stdout().is_terminal() || stderr().is_terminal(),
        })
    }

    pub(super) async fn next(&mut self) -> i32 {
        tokio::select! {
            _ = self.interrupts.recv() => SIGINT,
            _ = self.terminations.recv() => SIGTERM,
            _ = self.hangups.recv() => SIGHUP,
        }
    }

    /// The next one that asks for an end once more. Called after the first one.
    pub(super) async fn again(&mut self) {
        let first = Instant::now();
        // A closed terminal may send SIGHUP twice, by the kernel and by the shell.
        while self.next().await == SIGHUP || first.elapsed() < SAME_REQUEST {}
    }
}
