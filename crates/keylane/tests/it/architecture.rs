//! The arrows that ARCHITECTURE.md draws are those of the sources.
//!
//! This reads text, not syntax: it catches imports that were written without thinking of it, not
//! ones that were hidden.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The folders that a task passes through.
const STAGES: [&str; 5] = ["admit", "order", "run", "complete", "observe"];

/// Which stage uses which, and why. Everything else goes through the engine.
const ARROWS: [(&str, &str); 4] = [
    // A body runs in the worker's task slot, and a worker carries the lanes that its task holds.
    ("run", "order"),
    // Every worker keeps a tally.
    ("run", "observe"),
    // A handle's slot is a body that a worker runs,
    ("complete", "run"),
    // and a worker is a loop over the engine's one step.
    ("run", "engine"),
];

/// Modules that are not stages, and that stages may use.
const BELOW_THE_STAGES: [&str; 6] = ["sync", "error", "key_state", "prefetch", "retry", "unwind"];

/// What may be named outside of sync.rs all the same: nothing that a protocol depends on.
const HARMLESS: [(&str, &str); 5] = [
    // How many futures run at a time is counted where they run; no lane and no slot depends on it.
    ("complete/future.rs", "tokio::sync::Semaphore"),
    // Models keep no spare cells, whose exchange outlives a run.
    ("complete/spare_cells.rs", "std::sync::{Arc, Mutex, PoisonError}"),
    // A thread that only looks, and takes part in no protocol.
    ("observe/stall_watch.rs", "std::thread::JoinHandle"),
    ("observe/stall_watch.rs", "std::thread::Builder"),
    ("observe/stall_watch.rs", "std::thread::current().id()"),
];

#[test]
fn only_sync_names_the_primitives() {
    let mut wrong = Vec::new();
    for source in sources() {
        if source.name == "sync.rs" || source.name.starts_with("sync/") {
            continue;
        }
        for (number, line) in source.code() {
            let mut line = line.to_owned();
            for (file, harmless) in HARMLESS {
                if source.name == file {
                    line = line.replace(harmless, "");
                }
            }
            // How a plain `Arc` keeps its count matters to no protocol.
            for harmless in ["std::sync::Arc", "std::sync::Weak", "std::sync::{Arc, Weak}"] {
                line = line.replace(harmless, "");
            }
            let names = ["std::sync", "core::sync", "std::thread", "tokio::sync"];
            let unsynced = names.into_iter().any(|name| line.contains(name));
            if unsynced || line.contains("loom::") {
                wrong.push(format!("{}:{number}: {line}", source.name));
            }
        }
    }
    assert!(wrong.is_empty(), "not through sync.rs:\n{}", wrong.join("\n"));
}

#[test]
fn stages_meet_only_along_the_arrows() {
    let mut drawn = BTreeSet::new();
    let mut wrong = Vec::new();
    for source in sources() {
        let Some(stage) = source.stage() else { continue };
        for (number, line) in source.code() {
            for used in crate_paths(line) {
                let to = used[0];
                if to == stage || BELOW_THE_STAGES.contains(&to) {
                    continue;
                }
                drawn.insert((stage, to.to_owned()));
                if !ARROWS.contains(&(stage, to)) {
                    wrong.push(format!("{}:{number}: {line}", source.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "arrows that ARCHITECTURE.md does not draw:\n{}", wrong.join("\n"));
    for (from, to) in ARROWS {
        assert!(drawn.contains(&(from, to.to_owned())), "no longer so: {from} -> {to}");
    }
}

#[test]
fn a_stage_shows_only_what_its_mod_rs_lists() {
    for stage in STAGES {
        let source = Source::read(&src().join(stage).join("mod.rs"));
        for (number, line) in source.code() {
            let open = line.trim_start().starts_with("pub") && line.contains(" mod ");
            assert!(!open, "{}:{number}: {line}", source.name);
            let is_list = ["mod ", "use ", "pub", "#[", "}", "    "];
            assert!(
                line.is_empty() || is_list.into_iter().any(|start| line.starts_with(start)),
                "{}:{number}: a mod.rs lists, and does nothing: {line}",
                source.name
            );
        }
    }
    let mut wrong = Vec::new();
    for source in sources() {
        for (number, line) in source.code() {
            for used in crate_paths(line) {
                let Some(inner) = used.get(1) else { continue };
                let inside = source.stage() == Some(used[0]);
                let is_file = src().join(used[0]).join(format!("{inner}.rs")).is_file();
                if STAGES.contains(&used[0]) && is_file && !inside {
                    wrong.push(format!("{}:{number}: {line}", source.name));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "reaches into a stage:\n{}", wrong.join("\n"));
}

#[test]
fn the_crates_depend_downwards() {
    // From the bottom to the top; a crate may use those before it. The first is for tests.
    let tower = [
        "keylane-testkit",
        "keylane-allocate",
        "keylane",
        "keylane-process",
        "keylane-storage",
        "keylane-stream",
        "keylane-service",
        "keylane-cli",
    ];
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    for folder in fs::read_dir(crates).unwrap() {
        let folder = folder.unwrap();
        let name = folder.file_name().into_string().unwrap();
        let height = tower.iter().position(|known| *known == name);
        let height = height.unwrap_or_else(|| panic!("{name} has no place in the tower"));
        let manifest = fs::read_to_string(folder.path().join("Cargo.toml")).unwrap();
        for used in dependencies(&manifest).filter(|used| used.starts_with("keylane")) {
            // A crate names itself to test all of its features.
            assert!(used == name || tower[..height].contains(&used), "{name} depends on {used}");
        }
    }
}

/// Names in a manifest's dependency tables.
fn dependencies(manifest: &str) -> impl Iterator<Item = &str> {
    let mut in_table = false;
    manifest.lines().filter_map(move |line| {
        if let Some(table) = line.strip_prefix('[') {
            in_table = table.trim_end_matches(']').ends_with("dependencies");
            // A dependency can have a table of its own.
            return line.split_once("dependencies.").map(|(_, name)| name.trim_end_matches(']'));
        }
        let name = line.split(['.', '=', ' ']).next()?;
        (in_table && !name.is_empty() && !name.starts_with('#')).then_some(name)
    })
}

/// The paths in a line that begin with `crate::`, each in its parts.
fn crate_paths(line: &str) -> impl Iterator<Item = Vec<&str>> {
    line.split("crate::").skip(1).map(|rest| {
        let end = rest.find(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'));
        rest[..end.unwrap_or(rest.len())].split("::").filter(|part| !part.is_empty()).collect()
    })
}

struct Source {
    /// Its path below src/, with slashes.
    name: String,
    text: String,
}

impl Source {
    fn read(path: &Path) -> Self {
        Source::read_in(path, &src())
    }

    fn read_in(path: &Path, src: &Path) -> Self {
        let name = path.strip_prefix(src).unwrap();
        let name: Vec<_> = name.iter().map(|part| part.to_str().unwrap()).collect();
        Source { name: name.join("/"), text: fs::read_to_string(path).unwrap() }
    }

    fn stage(&self) -> Option<&'static str> {
        let (folder, _) = self.name.split_once('/')?;
        STAGES.into_iter().find(|stage| *stage == folder)
    }

    /// The lines with their numbers, without comments and without the tests at the bottom.
    fn code(&self) -> impl Iterator<Item = (usize, &str)> {
        let lines = self.text.lines().take_while(|line| *line != "mod tests {");
        lines.enumerate().map(|(i, line)| (i + 1, line.split("//").next().unwrap_or_default()))
    }
}

/// All sources of the crate but the models, which are tests.
fn sources() -> Vec<Source> {
    let found = sources_in(&src(), &src());
    assert!(found.len() > STAGES.len(), "the sources are not where they were");
    found
}

/// Sources below a folder of a crate with this `src`, without models, simulations and files of tests.
fn sources_in(folder: &Path, src: &Path) -> Vec<Source> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            let stem = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            if path.is_dir() {
                folders.extend((stem != "tests" && stem != "simulation").then_some(path));
            } else if path.extension().is_some_and(|extension| extension == "rs")
                && stem != "models"
                && !stem.ends_with("tests")
            {
                found.push(Source::read_in(&path, src));
            }
        }
    }
    found
}

fn src() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src")
}

/// What the service takes from outside of the process, and the files that may name it, because they
/// are the system's implementations of the parts that are passed in.
const OUTSIDE: [(&str, &[&str]); 8] = [
    ("SystemTime::now", &["store/store_dependencies.rs"]),
    ("Timestamp::now", &["engine/wall_clock.rs"]),
    ("Instant::now", &["engine/clock.rs", "engine/timer.rs", "store/postgres/client.rs"]),
    ("getrandom", &["store/store_dependencies.rs"]),
    ("tokio::time", &["engine/timer.rs", "store/postgres/client.rs"]),
    ("thread::spawn", &[]),
    ("thread::Builder", &["engine/executor.rs", "store/store_dependencies.rs"]),
    ("tokio::spawn", &[]),
];

/// The same for the consumer of streams. Its batches and its threads are not simulated.
const OUTSIDE_OF_CONSUMER: [(&str, &[&str]); 4] = [
    ("SystemTime::now", &["consumer/outside.rs"]),
    (
        "Instant::now",
        &["consumer/outside.rs", "consumer/key_batches.rs", "consumer/mixed_batches.rs"],
    ),
    ("RandomState::default", &["consumer/outside.rs"]),
    (
        "thread::Builder",
        &[
            "consumer/builder.rs",
            "consumer/key_batches.rs",
            "consumer/mixed_batches.rs",
            "consumer/outbox.rs",
            "consumer/threads.rs",
        ],
    ),
];

#[test]
fn the_service_takes_time_randomness_and_threads_from_its_caller() {
    check_outside("keylane-service", &["engine", "store", "scheduler"], &OUTSIDE);
}

#[test]
fn the_consumer_takes_time_and_randomness_from_its_builder() {
    check_outside("keylane-stream", &["consumer"], &OUTSIDE_OF_CONSUMER);
}

/// Checks that only these files of a crate name these parts of the system.
fn check_outside(name: &str, folders: &[&str], outside: &[(&str, &[&str])]) {
    let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(name).join("src");
    let (mut wrong, mut named) = (Vec::new(), BTreeSet::new());
    for folder in folders {
        for source in sources_in(&src.join(folder), &src) {
            for (number, line) in source.code() {
                let line = line.replace("std::time::Instant::now", "Instant::now");
                for (what, files) in outside {
                    if line.contains(what) && files.contains(&&*source.name) {
                        named.insert((*what, source.name.clone()));
                    } else if line.contains(what) {
                        wrong.push(format!("{}:{number}: {line}", source.name));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "not passed in (`Outside` of {name}):\n{}", wrong.join("\n"));
    for (what, files) in outside {
        for file in *files {
            assert!(named.contains(&(*what, (*file).to_owned())), "no longer so: {what} in {file}");
        }
    }
}
