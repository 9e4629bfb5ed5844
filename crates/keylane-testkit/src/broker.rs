//! A Kafka broker of a test's own: one node, KRaft, on ports and in a folder of its own.
//!
//! It ends with the value, and also if the test process is killed: a shell stands between the two, which
//! kills the broker and removes its folder as soon as the pipe from the test process is closed.

mod jars;
mod process;
mod settings;

use std::io;
use std::net::TcpListener;
use std::path::Path;
use std::time::Duration;

use process::{Process, Started};
use rustix::process::Signal;
use settings::{Ports, Role, Settings};
use tempfile::TempDir;

use crate::Missing;

/// How long a broker may take from its start to being ready. It takes three seconds on a free processor.
const START_WITHIN: Duration = Duration::from_secs(120);

/// How often other ports are tried when somebody has taken one between its choice and the start.
const ATTEMPTS: usize = 3;

/// A running broker, which ends when this is dropped.
#[derive(Debug)]
pub struct Broker {
    settings: Settings,
    ports: Ports,
    classpath: String,
    /// None while it is killed.
    process: Option<Process>,
    /// Removed when it is dropped, by the shell if this process does not get to it.
    folder: TempDir,
}

impl Broker {
    /// Starts a broker with an empty log and waits until it serves requests.
    ///
    /// # Errors
    /// If this machine has no Java, or not the broker's files.
    ///
    /// # Panics
    /// If it does not start; with what it said.
    pub fn start() -> Result<Broker, Missing> {
        Self::start_with(&[])
    }

    /// The same with settings of the broker's beside those that it needs to run.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    ///
    /// # Panics
    /// As for [`start`](Self::start).
    pub fn start_with(overrides: &[(&str, &str)]) -> Result<Broker, Missing> {
        let classpath = jars::classpath()?;
        Ok(Self::start_as(Role::Alone, &classpath, overrides, two_free_ports))
    }

    /// Starts two brokers of one cluster, which each have a copy of what Kafka itself stores. The second can be killed:
    /// the first then leads all that has a copy there. Clients find both by the address of either.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    ///
    /// # Panics
    /// As for [`start`](Self::start).
    pub fn start_pair(overrides: &[(&str, &str)]) -> Result<[Broker; 2], Missing> {
        let classpath = jars::classpath()?;
        let first = Self::start_as(Role::First, &classpath, overrides, two_free_ports);
        let controller = first.ports.controller;
        let second = Self::start_as(Role::Second, &classpath, overrides, || {
            Ok(Ports { controller, ..two_free_ports()? })
        });
        Ok([first, second])
    }

    fn start_as(
        role: Role,
        classpath: &str,
        overrides: &[(&str, &str)],
        mut ports: impl FnMut() -> io::Result<Ports>,
    ) -> Broker {
        for _ in 0..ATTEMPTS {
            let folder = tempfile::Builder::new()
                .prefix("keylane-broker-")
                .tempdir()
                .expect("a temporary folder can be made");
            let ports = ports().expect("there are free ports");
            let settings = Settings::new(folder.path(), role, ports, overrides);
            settings.format(classpath);
            let classpath = classpath.to_owned();
            let mut broker = Broker { settings, ports, classpath, process: None, folder };
            match broker.run() {
                Started::Ready => return broker,
                Started::PortTaken => continue,
                Started::Ended(said) => panic!("the broker did not start; it said:\n{said}"),
            }
        }
        panic!("somebody took each of the free ports that were tried");
    }

    /// Where clients find it: `host:port`.
    #[must_use]
    pub fn address(&self) -> String {
        self.settings.address()
    }

    /// Its folder, which is removed with it: tests may put files beside its own.
    #[must_use]
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends it at once, as a failure of the machine would: `SIGKILL`. Returns when it is gone.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    /// Starts it again on the same ports and the same log, and waits until it serves requests.
    ///
    /// # Panics
    /// If it runs, or does not start.
    pub fn restart(&mut self) {
        assert!(self.process.is_none(), "a running broker cannot be started");
        match self.run() {
            Started::Ready => {}
            Started::PortTaken => panic!("somebody took the broker's port while it was away"),
            Started::Ended(said) => panic!("the broker did not start again; it said:\n{said}"),
        }
    }

    /// Keeps it from running on: `SIGSTOP`. Its connections stay open, and nobody answers.
    pub fn suspend(&self) {
        self.signal(Signal::STOP);
    }

    /// Lets it run on: `SIGCONT`.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        self.process.as_ref().expect("only a running broker gets a signal").signal(signal);
    }

    fn run(&mut self) -> Started {
        let java = self.settings.broker_command(&self.classpath);
        let (process, started) = Process::start(&java, self.folder.path(), START_WITHIN);
        self.process = Some(process);
        started
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Ports that nobody uses now. They are told apart by being held at the same time.
fn two_free_ports() -> io::Result<Ports> {
    let any = || TcpListener::bind(("127.0.0.1", 0));
    let (one, other) = (any()?, any()?);
    Ok(Ports { broker: one.local_addr()?.port(), controller: other.local_addr()?.port() })
}
