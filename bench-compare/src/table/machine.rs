//! Says what the figures were measured on and with.

use std::fmt::Write;
use std::fs;
use std::process::Command;

use crate::probe;

/// Rivals whose versions matter.
const CRATES: &[&str] = &[
    "ahash",
    "crossbeam-channel",
    "crossbeam-deque",
    "dashmap",
    "keylane",
    "mimalloc",
    "rayon",
    "tokio",
];

/// A markdown list: processor, system, allocators, compiler, versions.
pub(crate) fn describe() -> String {
    let cores = std::thread::available_parallelism().map_or(0, |cores| cores.get());
    let mut text = String::new();
    let mut line = |name: &str, value: &str| {
        writeln!(text, "- {name}: {value}").expect("writing to a string");
    };
    line("processor", &format!("{}, {cores} cores", processor()));
    line("memory", &memory());
    line("system", &format!("Linux {}", kernel()));
    line("system allocator", &format!("glibc {} malloc", probe::libc_version()));
    line("compiler", &format!("{}, release, thin LTO, 1 codegen unit", env!("BENCH_RUSTC")));
    line("versions", &versions());
    line("revision", &revision());
    text.push('\n');
    text
}

fn processor() -> String {
    field("/proc/cpuinfo", "model name").unwrap_or("unknown".to_owned())
}

fn memory() -> String {
    let total = field("/proc/meminfo", "MemTotal");
    let kib = total.and_then(|text| text.trim_end_matches(" kB").parse::<u64>().ok());
    kib.map_or("unknown".to_owned(), |kib| format!("{} GiB", kib.div_ceil(1 << 20)))
}

fn kernel() -> String {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease");
    release.map_or("unknown".to_owned(), |release| release.trim().to_owned())
}

/// The value of the first `name: value` line of a file in /proc.
fn field(path: &str, name: &str) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let value =
        text.lines().find_map(|line| line.strip_prefix(name)?.trim_start().strip_prefix(':'));
    value.map(|value| value.trim().to_owned())
}

/// Names and versions from the lock file this program was built with.
fn versions() -> String {
    let lock = include_str!("../../Cargo.lock");
    let quoted = |line: &str| line.split('"').nth(1).unwrap_or_default().to_owned();
    let lines: Vec<&str> = lock.lines().collect();
    let packages = lines.windows(2).filter(|pair| pair[0].starts_with("name = "));
    let versions = packages.map(|pair| (quoted(pair[0]), quoted(pair[1])));
    let wanted = versions.filter(|(name, _)| CRATES.contains(&name.as_str()));
    wanted.map(|(name, version)| format!("{name} {version}")).collect::<Vec<_>>().join(", ")
}

fn revision() -> String {
    let git = Command::new("git").args(["describe", "--always", "--dirty"]).output();
    match git {
        Ok(output) if output.status.success() => {
            String::from_utf8_lossy(&output.stdout).trim().to_owned()
        }
        _ => "unknown".to_owned(),
    }
}
