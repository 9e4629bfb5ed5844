use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Missing;

/// The files that the broker consists of, with their checksums.
const LIST: &str = include_str!("../../kafka-jars.sha256");

/// Java's class path with all files of the broker.
pub(super) fn classpath() -> Result<String, Missing> {
    java()?;
    let folder = folder();
    let mut files = Vec::new();
    for line in LIST.lines().filter(|line| !line.starts_with('#')) {
        let (_, path) = line.split_once("  ").expect("a line of the list is a sum and a path");
        let name = path.rsplit('/').next().expect("a split has at least one part");
        let file = folder.join(name);
        if !file.is_file() {
            let what = format!("{} is not there: .ci/kafka-jars fetches it", file.display());
            return Err(Missing::new(what));
        }
        files.push(file.display().to_string());
    }
    Ok(files.join(":"))
}

fn folder() -> PathBuf {
    match env::var_os("KEYLANE_KAFKA_JARS") {
        Some(folder) => PathBuf::from(folder),
        None => PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/kafka-jars")),
    }
}

fn java() -> Result<(), Missing> {
    let version = Command::new("java").arg("-version").stderr(Stdio::null()).status();
    match version {
        Ok(status) if status.success() => Ok(()),
        _ => Err(Missing::new("there is no Java: openjdk-17-jre-headless is enough")),
    }
}
