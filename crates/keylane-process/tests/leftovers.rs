//! A start ends what an earlier process has left, and nothing else.
#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use keylane_process::{Registry, RegistryEntry, RegistryOpenError, RegistryOptions, has_ended};
use rustix::process::{Pid, Signal, kill_process_group};

/// A registry's file, and what was said.
struct Table {
    folder: tempfile::TempDir,
    said: Arc<Mutex<Vec<String>>>,
    _alone: Option<MutexGuard<'static, ()>>,
}

/// One test at a time: between its fork and its exec, a child of another test has the lock of this one's table.
static ALONE: Mutex<()> = Mutex::new(());

impl Table {
    fn new() -> Self {
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        Table { _alone: Some(alone), ..Table::further() }
    }

    /// Another table of the same test.
    fn further() -> Self {
        Table { folder: tempfile::tempdir().unwrap(), said: Arc::default(), _alone: None }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("children")
    }

    fn open(&self) -> Result<Registry, RegistryOpenError> {
        let said = Arc::clone(&self.said);
        let tell = move |text: &str| said.lock().unwrap().push(text.to_owned());
        Registry::open(&self.path(), &RegistryOptions::default().tell(tell))
    }

    fn said(&self) -> String {
        self.said.lock().unwrap().join("; ")
    }
}

/// Starts a shell that leads its own group and says a word when the script has got to `echo`.
fn start(place: &RegistryEntry, script: &str) -> Child {
    let mut command = Command::new("sh");
    command.args(["-c", script]).stdout(Stdio::piped()).stdin(Stdio::null()).process_group(0);
    if let Some((name, value)) = place.tag() {
        command.env(name, value);
    }
    let mut child = command.spawn().unwrap();
    let mut word = String::new();
    let stdout = child.stdout.take().unwrap();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(stdout), &mut word).unwrap();
    assert_eq!(word, "ready\n");
    child
}

fn signal_of(mut child: Child) -> Option<i32> {
    child.wait().unwrap().signal()
}

/// A child of a process that was killed together with its guard, as the table has it.
fn left_over(table: &Table, script: &str) -> Child {
    left_over_by(table, script, true)
}

/// The same, whose parent was perhaps killed before it could register it.
fn left_over_by(table: &Table, script: &str, registers: bool) -> Child {
    let registry = table.open().unwrap();
    let mut place = registry.reserve().unwrap();
    let child = start(&place, script);
    if registers {
        place.register(Pid::from_child(&child)).unwrap();
    }
    let text = fs::read(table.path()).unwrap();
    drop(place);
    drop(registry);
    fs::write(table.path(), text).unwrap();
    child
}

#[test]
fn registered_processes_get_sigterm_and_then_sigkill() {
    let table = Table::new();
    let polite = left_over(&table, "echo ready; exec sleep infinity");
    drop(table.open().unwrap());
    assert_eq!(signal_of(polite), Some(15));
    assert!(table.said().contains("ending 1 child processes that process"), "{}", table.said());

    let table = Table::further();
    let deaf = left_over(&table, "trap '' TERM; echo ready; while :; do sleep infinity; done");
    drop(table.open().unwrap());
    assert_eq!(signal_of(deaf), Some(9));
}

#[test]
fn a_child_that_its_parent_could_not_register_is_found_by_its_tag() {
    let table = Table::new();
    // With a grandchild in a group of its own, as a shell with job control starts them.
    let child = left_over_by(&table, "set -m; sleep infinity & echo ready; wait", false);
    drop(table.open().unwrap());
    assert!(table.said().contains("ending 2 child processes"), "{}", table.said());
    assert_eq!(signal_of(child), Some(15));
}

#[test]
fn a_copied_table_ends_nothing() {
    let table = Table::new();
    let child = left_over(&table, "echo ready; exec sleep infinity");
    let copy = Table::further();
    fs::copy(table.path(), copy.path()).unwrap();
    drop(copy.open().unwrap());
    let leader = Pid::from_child(&child);
    assert!(!has_ended(leader));
    drop(table.open().unwrap());
    assert_eq!(signal_of(child), Some(15));
}

#[test]
fn a_process_that_has_got_the_number_of_another_is_left_alone() {
    let table = Table::new();
    let stranger = left_over(&table, "echo ready; unset KEYLANE_CHILD_OF; exec sleep infinity");
    // The one that was registered was started a second earlier, when it had the number.
    let text = fs::read_to_string(table.path()).unwrap();
    let slot = text.lines().nth(1).unwrap().to_owned();
    let number = |at: usize| slot.split_ascii_whitespace().nth(at).unwrap();
    let earlier = |at: usize| number(at).parse::<u64>().unwrap() - 1000;
    let moved = format!("{:<63}", format!("{} {} {}", number(0), earlier(1), earlier(2)));
    // Its tag is that of another registry, too.
    let tag = text.split_once("tag=").unwrap().1[..32].to_owned();
    let text = text.replacen(&slot, &moved, 1).replacen(&tag, &"0".repeat(32), 1);
    fs::write(table.path(), text).unwrap();
    drop(table.open().unwrap());
    let leader = Pid::from_child(&stranger);
    assert!(!has_ended(leader));
    assert_eq!(table.said(), "");
    kill_process_group(leader, Signal::KILL).unwrap();
    assert_eq!(signal_of(stranger), Some(9));
}

#[test]
fn numbers_of_another_start_of_the_machine_mean_nothing() {
    let table = Table::new();
    let child = left_over(&table, "echo ready; exec sleep infinity");
    let text = fs::read_to_string(table.path()).unwrap();
    let boot = text.split_once("boot=").unwrap().1[..36].to_owned();
    fs::write(table.path(), text.replacen(&boot, &"0".repeat(36), 1)).unwrap();
    drop(table.open().unwrap());
    let leader = Pid::from_child(&child);
    assert!(!has_ended(leader));
    kill_process_group(leader, Signal::KILL).unwrap();
    assert_eq!(signal_of(child), Some(9));
}

#[test]
fn a_file_that_is_no_table_is_refused_and_kept() {
    let table = Table::new();
    fs::write(table.path(), "my notes").unwrap();
    let error = table.open().unwrap_err().to_string();
    assert!(error.contains("delete the file"), "{error}");
    assert_eq!(fs::read(table.path()).unwrap(), b"my notes");
}

#[test]
fn a_clean_end_leaves_nothing_to_look_after() {
    let table = Table::new();
    let length = |path: &Path| fs::metadata(path).unwrap().len();
    let registry = table.open().unwrap();
    // More than the table has room for at first.
    let places: Vec<_> = (0..200).map(|_| registry.reserve().unwrap()).collect();
    registry.dismiss();
    assert!(length(&table.path()) > 200 * 64, "it is not over as long as a place is there");
    drop(places);
    registry.dismiss();
    assert_eq!(length(&table.path()), 0);
    assert!(registry.reserve().is_err());
}
