//! Kafka broker of one test: one KRaft node, with its own ports and directory.
//!
//! It ends when the value is dropped, and also if the test process is killed: see `guarded_process.rs`.

mod acls;
mod class_archive;
mod jars;
mod settings;

use std::io;
use std::path::Path;
use std::time::Duration;

use rustix::process::Signal;
use settings::{BrokerRole, BrokerSettings, PREFIX, Ports, START_TEXTS, two_free_ports};
use tempfile::TempDir;

use crate::Missing;
use crate::guarded_process::{GuardedProcess, StartOutcome};
use crate::memory_directory::memory_directory;

/// Maximum time from the start of a broker until it is ready. It takes 3 s on an idle processor.
const START_TIMEOUT: Duration = Duration::from_secs(120);

/// Maximum number of starts: another process can take a chosen port before the broker binds it.
const MAX_STARTS: usize = 3;

/// A Kafka broker, which ends when the value is dropped.
#[derive(Debug)]
pub struct Broker {
    settings: BrokerSettings,
    ports: Ports,
    classpath: String,
    /// `None` after [`kill`](Self::kill).
    process: Option<GuardedProcess>,
    /// Removed on drop; by the guard, if the test process is killed.
    directory: TempDir,
}

impl Broker {
    /// Starts a broker with an empty log and waits until it serves requests.
    ///
    /// # Errors
    /// If Java or a jar file of the broker is missing.
    ///
    /// # Panics
    /// If the broker does not start. The message contains the last lines of its log.
    pub fn start() -> Result<Broker, Missing> {
        Self::start_with(&[])
    }

    /// Starts a broker as [`start`](Self::start) does, with `overrides` of its settings.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    ///
    /// # Panics
    /// As for [`start`](Self::start).
    pub fn start_with(overrides: &[(&str, &str)]) -> Result<Broker, Missing> {
        let classpath = jars::classpath()?;
        Ok(Self::start_as(BrokerRole::Alone, &classpath, overrides, two_free_ports))
    }

    /// Starts two brokers of one cluster, which both have a replica of Kafka's internal topics.
    ///
    /// The second can be killed: the first then leads every partition that it has a replica of.
    /// Clients find both by the address of either.
    ///
    /// # Errors
    /// As for [`start`](Self::start).
    ///
    /// # Panics
    /// As for [`start`](Self::start).
    pub fn start_pair(overrides: &[(&str, &str)]) -> Result<[Broker; 2], Missing> {
        let classpath = jars::classpath()?;
        let first = Self::start_as(BrokerRole::First, &classpath, overrides, two_free_ports);
        let controller = first.ports.controller;
        let second = Self::start_as(BrokerRole::Second, &classpath, overrides, || {
            Ok(Ports { controller, ..two_free_ports()? })
        });
        Ok([first, second])
    }

    fn start_as(
        role: BrokerRole,
        classpath: &str,
        overrides: &[(&str, &str)],
        mut ports: impl FnMut() -> io::Result<Ports>,
    ) -> Broker {
        for _ in 0..MAX_STARTS {
            let directory = memory_directory(PREFIX);
            let ports = ports().expect("there are free ports");
            let settings = BrokerSettings::new(directory.path(), role, ports, overrides);
            settings.format_log(classpath);
            let classpath = classpath.to_owned();
            let mut broker = Broker { settings, ports, classpath, process: None, directory };
            match broker.run() {
                StartOutcome::Ready => return broker,
                StartOutcome::Taken => continue,
                StartOutcome::Failed(log) => panic!("the broker did not start; its log:\n{log}"),
            }
        }
        panic!("other processes took the ports of {MAX_STARTS} starts");
    }

    /// Returns the address for clients, `host:port`.
    #[must_use]
    pub fn address(&self) -> String {
        self.settings.address()
    }

    /// Lets all clients read `topic`, and no client write to it. The broker needs
    /// [`WITH_ACLS`](Self::WITH_ACLS).
    ///
    /// # Panics
    /// If the broker refuses that.
    pub fn allow_only_reads(&self, topic: &str) {
        acls::allow_only_reads(&self.address(), topic);
    }

    /// Settings of a broker that allows everything, except on resources with access rules.
    pub const WITH_ACLS: [(&str, &str); 2] = [
        ("authorizer.class.name", "org.apache.kafka.metadata.authorizer.StandardAuthorizer"),
        ("allow.everyone.if.no.acl.found", "true"),
    ];

    /// Returns the directory, which is removed on drop. Tests can add files.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Kills the broker with `SIGKILL`, as a crash would, and returns when it has ended.
    pub fn kill(&mut self) {
        if let Some(process) = self.process.take() {
            process.kill();
        }
    }

    /// Starts a killed broker with the same ports and log, and waits until it serves requests.
    ///
    /// # Panics
    /// If the broker runs, or does not start.
    pub fn restart(&mut self) {
        assert!(self.process.is_none(), "kill the broker before a restart");
        match self.run() {
            StartOutcome::Ready => {}
            StartOutcome::Taken => panic!("another process took a port of the killed broker"),
            StartOutcome::Failed(log) => panic!("the broker did not restart; its log:\n{log}"),
        }
    }

    /// Suspends the broker with `SIGSTOP`. Its connections stay open, and requests get no answer.
    pub fn suspend(&self) {
        self.signal(Signal::STOP);
    }

    /// Resumes a suspended broker with `SIGCONT`.
    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        self.process.as_ref().expect("the broker runs").signal(signal);
    }

    fn run(&mut self) -> StartOutcome {
        let option = class_archive::option(&self.classpath);
        let java = self.settings.broker_command(&self.classpath, option.as_deref());
        let (process, outcome) =
            GuardedProcess::start(&java, self.directory.path(), START_TEXTS, START_TIMEOUT);
        self.process = Some(process);
        outcome
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.kill();
    }
}
