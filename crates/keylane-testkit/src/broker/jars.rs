//! Locates Java and the jar files of the broker, and names the remedy where one is missing.

use std::env;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

use crate::Missing;

/// The jar files of the broker, with their checksums.
pub(super) const JAR_LIST: &str = include_str!("../../kafka-jars.sha256");

/// Returns Java's class path, with all jar files of the broker.
pub(super) fn classpath() -> Result<String, Missing> {
    java_version()?;
    let directory = directory();
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

/// Returns the directory of the jar files.
pub(super) fn directory() -> PathBuf {
    let directory = match env::var_os("KEYLANE_KAFKA_JARS") {
        Some(directory) => PathBuf::from(directory),
        None => PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/kafka-jars")),
    };
    // Java compares the paths of an archive of classes as texts.
    directory.canonicalize().unwrap_or(directory)
}

/// Returns what Java says of its version.
pub(super) fn java_version() -> Result<&'static str, Missing> {
    static VERSION: OnceLock<Option<String>> = OnceLock::new();
    let version = VERSION.get_or_init(|| {
        let output = Command::new("java").arg("-version").output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stderr).into_owned())
    });
    let missing = || Missing::new("Java is missing; install openjdk-17-jre-headless");
    version.as_deref().ok_or_else(missing)
}
