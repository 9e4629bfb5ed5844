//! Java's ArrayBlockingQueue, fair and not, driven by `java/QueueRun.java` where there is a JDK.

use std::path::PathBuf;
use std::process::Command;

use crate::Result;
use crate::record::Record;
use crate::workloads::Setting;
use crate::workloads::w4_queue::Shape;

/// Whether there is a JDK that runs a source file.
pub(crate) fn is_there() -> bool {
    Command::new("javac").arg("-version").output().is_ok_and(|output| output.status.success())
        && Command::new("java").arg("-version").output().is_ok()
}

/// The program prints the record's line itself.
pub(crate) fn run(setting: &Setting, shape: &Shape) -> Result<Record> {
    let source = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("java/QueueRun.java");
    let output = Command::new("java")
        .arg(source)
        .arg(&setting.peer)
        .args([shape.producers, shape.consumers, setting.capacity].map(|n| n.to_string()))
        .arg(shape.time.as_millis().to_string())
        .arg(shape.is_slow.to_string())
        .output()?;
    let text = String::from_utf8(output.stdout)?;
    let line = text.lines().last().ok_or_else(|| {
        format!("java printed nothing: {}", String::from_utf8_lossy(&output.stderr))
    })?;
    Ok(serde_json::from_str(line)?)
}
