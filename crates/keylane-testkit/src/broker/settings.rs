//! Decides the configuration of a broker: small, quick to start, and with groups that rebalance at
//! once.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, PoisonError};

use crate::guarded_process::StartTexts;

/// Beginning of the names of the directories of brokers.
pub(super) const PREFIX: &str = "keylane-broker-";

/// Texts of a broker's log.
pub(super) const START_TEXTS: StartTexts =
    StartTexts { ready: "Kafka Server started", taken: &["Address already in use"] };

/// Cluster identifier: arbitrary, but a formatted log accepts no other.
const CLUSTER_ID: &str = "a2V5bGFuZS10ZXN0LTAwMQ";

/// Settings of every broker: few threads and partitions, and no delay before a rebalance.
const BASE_SETTINGS: &str = "\
process.roles=broker,controller
node.id=1
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
num.partitions=1
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=500
group.consumer.min.session.timeout.ms=500
group.consumer.min.heartbeat.interval.ms=100
group.consumer.session.timeout.ms=6000
group.consumer.heartbeat.interval.ms=500
controlled.shutdown.enable=false
log.cleaner.dedupe.buffer.size=2097152
num.network.threads=2
num.io.threads=4
";

/// Settings of a pair, which replicates the internal topics to both brokers.
const PAIR_SETTINGS: &str = "\
offsets.topic.replication.factor=2
transaction.state.log.replication.factor=2
";

/// Names and contents of the files of an empty log.
type LogFiles = Vec<(OsString, Vec<u8>)>;

/// The settings file of a broker, and what is in it.
#[derive(Debug)]
pub(super) struct BrokerSettings {
    file: PathBuf,
    logs: PathBuf,
    role: BrokerRole,
    port: u16,
}

/// The ports of a broker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    /// Port for clients.
    pub(super) broker: u16,
    /// Port of the controller.
    pub(super) controller: u16,
}

/// Role of a broker in its cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum BrokerRole {
    /// The only broker, with the controller.
    Alone,
    /// The first of two brokers, with the controller.
    First,
    /// The second of two brokers, without a controller.
    Second,
}

impl BrokerSettings {
    /// Writes the settings file into `directory`. `overrides` replace the settings of their names.
    pub(super) fn new(
        directory: &Path,
        role: BrokerRole,
        ports: Ports,
        overrides: &[(&str, &str)],
    ) -> Self {
        let Ports { broker, controller } = ports;
        let mut text = BASE_SETTINGS.to_owned();
        if !matches!(role, BrokerRole::Alone) {
            text.push_str(PAIR_SETTINGS);
        }
        let own = format!("PLAINTEXT://127.0.0.1:{broker}");
        let listeners = match role {
            BrokerRole::Alone | BrokerRole::First => {
                format!("{own},CONTROLLER://127.0.0.1:{controller}")
            }
            BrokerRole::Second => {
                text.push_str("process.roles=broker\nnode.id=2\n");
                own.clone()
            }
        };
        let logs = directory.join("logs");
        writeln!(
            text,
            "log.dirs={}\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners={listeners}\n\
             advertised.listeners={own}",
            logs.display()
        )
        .expect("writing to a string cannot fail");
        // Kafka takes the last value of a name that occurs twice.
        for (name, value) in overrides {
            writeln!(text, "{name}={value}").expect("writing to a string cannot fail");
        }
        let file = directory.join("server.properties");
        fs::write(&file, text).expect("the broker's directory is writable");
        BrokerSettings { file, logs, role, port: broker }
    }

    /// Returns the address for clients, `host:port`.
    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Writes an empty log, as Kafka requires before the first start.
    ///
    /// Only the first log of a role is made by Kafka's tool; the others are copies of it. A start of Java less for each
    /// broker saves a second of processor time.
    pub(super) fn format_log(&self, classpath: &str) {
        static FORMATTED: Mutex<BTreeMap<BrokerRole, LogFiles>> = Mutex::new(BTreeMap::new());
        let mut formatted = FORMATTED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(files) = formatted.get(&self.role) {
            fs::create_dir(&self.logs).expect("the broker's directory is writable");
            for (name, content) in files {
                fs::write(self.logs.join(name), content).expect("the log is writable");
            }
            return;
        }
        let mut java = java_command(classpath);
        java.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"]).arg(&self.file);
        let output = java.output().expect("Java was found before");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "the log could not be formatted: {stderr}");
        let files = fs::read_dir(&self.logs).expect("the tool makes the log").map(|file| {
            let file = file.expect("the log is readable");
            (file.file_name(), fs::read(file.path()).expect("the log has files only"))
        });
        formatted.insert(self.role, files.collect());
    }

    /// Returns the command that runs the broker, with an option for Java.
    pub(super) fn broker_command(&self, classpath: &str, option: Option<&OsStr>) -> Command {
        let mut java = java_command(classpath);
        java.args(option).arg("kafka.Kafka").arg(&self.file);
        java
    }
}

/// Returns the command for Java, with options for a short start rather than for throughput.
fn java_command(classpath: &str) -> Command {
    let mut java = Command::new("java");
    java.args(["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]);
    java.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "-cp", classpath]);
    java
}

/// Returns two unused ports.
pub(super) fn two_free_ports() -> io::Result<Ports> {
    let any = || TcpListener::bind(("127.0.0.1", 0));
    // Bound at the same time, so that the ports differ.
    let (one, other) = (any()?, any()?);
    Ok(Ports { broker: one.local_addr()?.port(), controller: other.local_addr()?.port() })
}
