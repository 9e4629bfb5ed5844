//! Archive of the classes that a broker loads, with which a start takes 1.6 s of processor time instead of 2.5 s.
//!
//! Java writes it when a broker ends by itself. The first test that starts a broker has it written, beside the jar files, and
//! others wait meanwhile. Java runs without an archive that it cannot use.

use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use rustix::process::{Pid, Signal, kill_process};

use super::jars;
use super::settings::{BrokerRole, BrokerSettings, PREFIX, START_TEXTS, two_free_ports};
use crate::memory_directory::memory_directory;

/// Returns the option with which a broker uses the archive. `None` if it cannot be written.
pub(super) fn option(classpath: &str) -> Option<OsString> {
    static OPTION: OnceLock<Option<OsString>> = OnceLock::new();
    OPTION.get_or_init(|| find_or_write(classpath)).clone()
}

fn find_or_write(classpath: &str) -> Option<OsString> {
    let java = jars::java_version().ok()?;
    let hash = BuildHasherDefault::<DefaultHasher>::default().hash_one((java, jars::JAR_LIST));
    let archive = jars::directory().join(format!("classes-{hash:016x}.jsa"));
    // Released when the file is closed.
    let lock = File::create(archive.with_extension("lock")).ok()?;
    lock.lock().ok()?;
    if !archive.is_file() {
        let unfinished = archive.with_extension("unfinished");
        write(classpath, &unfinished)?;
        fs::rename(&unfinished, &archive).ok()?;
    }
    Some(with_path("-XX:SharedArchiveFile=", &archive))
}

/// Starts a broker, and ends it when it serves requests.
fn write(classpath: &str, archive: &Path) -> Option<()> {
    let directory = memory_directory(PREFIX);
    let settings =
        BrokerSettings::new(directory.path(), BrokerRole::Alone, two_free_ports().ok()?, &[]);
    settings.format_log(classpath);
    let option = with_path("-XX:ArchiveClassesAtExit=", archive);
    let java = settings.broker_command(classpath, Some(&option));
    // Ends the broker also if this process is killed meanwhile.
    let mut broker = Command::new("timeout")
        .args(["--kill-after=10", "110"])
        .arg(java.get_program())
        .args(java.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .ok()?;
    let mut lines = BufReader::new(broker.stderr.take()?).lines().map_while(Result::ok);
    if lines.any(|line| line.contains(START_TEXTS.ready)) {
        kill_process(Pid::from_child(&broker), Signal::TERM).ok()?;
    }
    // Until it has ended, so that it is never blocked by a full pipe.
    lines.for_each(drop);
    broker.wait().ok()?;
    archive.is_file().then_some(())
}

fn with_path(option: &str, path: &Path) -> OsString {
    let mut option = OsString::from(option);
    option.push(path);
    option
}
