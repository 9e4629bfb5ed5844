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

/// Where a broker listens, and the file that it reads its settings from.
#[derive(Debug)]
pub(super) struct Settings {
    file: PathBuf,
    port: u16,
}

impl Settings {
    pub(super) fn new(folder: &Path, ports: [u16; 2], overrides: &[(&str, &str)]) -> Self {
        let [port, controller] = ports;
        let mut text = BASE.to_owned();
        let logs = folder.join("logs");
        writeln!(
            text,
            "log.dirs={}\n\
             controller.quorum.voters=1@127.0.0.1:{controller}\n\
             listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}\n\
             advertised.listeners=PLAINTEXT://127.0.0.1:{port}",
            logs.display()
        )
        .expect("a string takes what is written to it");
        // Of a name that comes twice, the last value counts.
        for (name, value) in overrides {
            writeln!(text, "{name}={value}").expect("a string takes what is written to it");
        }
        let file = folder.join("server.properties");
        fs::write(&file, text).expect("the broker's folder can be written to");
        Settings { file, port }
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
