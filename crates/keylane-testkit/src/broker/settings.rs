use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Any will do, as long as it is the same when the broker is started again.
const CLUSTER: &str = "a2V5bGFuZS10ZXN0LTAwMQ";

/// A broker that starts quickly, is small, and lets groups and their members come and go at once.
const BASE: &str = "\
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

/// What each broker of a pair has a copy of.
const COPIED: &str = "\
offsets.topic.replication.factor=2
transaction.state.log.replication.factor=2
";

/// Where a broker listens, and the file that it reads its settings from.
#[derive(Debug)]
pub(super) struct Settings {
    file: PathBuf,
    port: u16,
}

/// The ports of a broker.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    /// Its own.
    pub(super) broker: u16,
    /// The controller's.
    pub(super) controller: u16,
}

/// What a broker is to others.
#[derive(Clone, Copy, Debug)]
pub(super) enum Role {
    /// It has the controller and is alone.
    Alone,
    /// It has the controller, and there is another broker.
    First,
    /// The other one.
    Second,
}

impl Settings {
    pub(super) fn new(folder: &Path, role: Role, ports: Ports, overrides: &[(&str, &str)]) -> Self {
        let Ports { broker, controller } = ports;
        let mut text = BASE.to_owned();
        if !matches!(role, Role::Alone) {
            text.push_str(COPIED);
        }
        let own = format!("PLAINTEXT://127.0.0.1:{broker}");
        let listeners = match role {
            Role::Alone | Role::First => format!("{own},CONTROLLER://127.0.0.1:{controller}"),
            Role::Second => {
                text.push_str("process.roles=broker\nnode.id=2\n");
                own.clone()
            }
        };
        writeln!(
            text,
            "log.dirs={}\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners={listeners}\n\
             advertised.listeners={own}",
            folder.join("logs").display()
        )
        .expect("a string takes what is written to it");
        // Of a name that comes twice, the last value counts.
        for (name, value) in overrides {
            writeln!(text, "{name}={value}").expect("a string takes what is written to it");
        }
        let file = folder.join("server.properties");
        fs::write(&file, text).expect("the broker's folder can be written to");
        Settings { file, port: broker }
    }

    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Writes the empty log.
    pub(super) fn format(&self, classpath: &str) {
        let mut java = java(classpath);
        java.args(["kafka.tools.StorageTool", "format", "-t", CLUSTER, "-c"]).arg(&self.file);
        let output = java.output().expect("java was there a moment ago");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "the log could not be formatted: {said}");
    }

    pub(super) fn broker_command(&self, classpath: &str) -> Command {
        let mut java = java(classpath);
        java.arg("kafka.Kafka").arg(&self.file);
        java
    }
}

/// A Java that starts quickly rather than runs fast.
fn java(classpath: &str) -> Command {
    let mut java = Command::new("java");
    java.args(["-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto"]);
    java.args(["-Dorg.slf4j.simpleLogger.defaultLogLevel=info", "-cp", classpath]);
    java
}
