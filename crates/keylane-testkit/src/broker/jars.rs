//! Locates Java and the jar files of the broker, and names the remedy where one is missing.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Missing;

/// The jar files of the broker, with their checksums.
const JAR_LIST: &str = include_str!("../../kafka-jars.sha256");

/// Returns Java's class path, with all jar files of the broker.
pub(super) fn classpath() -> Result<String, Missing> {
    check_java()?;
    let directory = jar_directory();
    let mut files = Vec::new();
    for line in JAR_LIST.lines().filter(|line| !line.starts_with('#')) {
        let (_, path) =
            line.split_once("  ").expect("each line of the list is a checksum and a path");
        let name = path.rsplit('/').next().expect("a split yields at least one part");
        let file = directory.join(name);
        if !file.is_file() {
            let reason = format!("{} is missing; run .ci/kafka-jars to fetch it", file.display());
            return Err(Missing::new(reason));
        }
        files.push(file.display().to_string());
    }
    Ok(files.join(":"))
}

fn jar_directory() -> PathBuf {
    match env::var_os("KEYLANE_KAFKA_JARS") {
        Some(directory) => PathBuf::from(directory),
        None => PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/kafka-jars")),
    }
}

fn check_java() -> Result<(), Missing> {
    let version = Command::new("java").arg("-version").stderr(Stdio::null()).status();
    match version {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Missing::new("Java is missing; install openjdk-17-jre-headless")),
    }
}
