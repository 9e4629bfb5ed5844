//! A start ends what any earlier process with its folder of tables has left, and nothing else.
#![cfg(target_os = "linux")]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use keylane_process::{Registry, RegistryOptions, has_ended};
use rustix::process::{Pid, Signal, kill_process_group};

fn open(folder: &Path) -> Registry {
    Registry::in_folder(folder, &RegistryOptions::default().tell(|_| {})).unwrap()
}

fn tables(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

/// A child that is registered in a table of its own folder, which nothing locks afterwards.
fn left_over(folder: &Path) -> Child {
    let registry = open(folder);
    let mut place = registry.reserve().unwrap();
    let mut command = Command::new("sleep");
    let child = command.arg("infinity").process_group(0).envs(place.tag()).spawn().unwrap();
    place.register(Pid::from_child(&child)).unwrap();
    let [table] = &tables(folder)[..] else { panic!("it has one table") };
    // The same file, because a copy says nothing.
    fs::hard_link(table, folder.join("kept")).unwrap();
    let text = fs::read(table).unwrap();
    drop((place, registry));
    fs::write(folder.join("kept"), text).unwrap();
    fs::rename(folder.join("kept"), folder.join("children-kept")).unwrap();
    child
}

#[test]
fn the_next_start_ends_what_is_left_and_removes_its_table() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("tables");
    let mut child = left_over(&folder);
    let registry = open(&folder);
    assert_eq!(child.wait().unwrap().signal(), Some(15));
    assert_eq!(tables(&folder).len(), 1, "that of this start");
    drop(registry);
    assert_eq!(tables(&folder), [] as [PathBuf; 0]);
}

#[test]
fn the_children_of_a_process_that_runs_are_left_alone() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("tables");
    let registry = open(&folder);
    let mut place = registry.reserve().unwrap();
    let mut command = Command::new("sleep");
    let mut child = command.arg("infinity").process_group(0).envs(place.tag()).spawn().unwrap();
    let leader = Pid::from_child(&child);
    place.register(leader).unwrap();
    drop(open(&folder));
    assert!(!has_ended(leader));
    kill_process_group(leader, Signal::KILL).unwrap();
    child.wait().unwrap();
}

#[test]
fn a_folder_that_others_can_use_is_not_used() {
    let temporary = tempfile::tempdir().unwrap();
    let folder = temporary.path().join("tables");
    fs::create_dir(&folder).unwrap();
    fs::set_permissions(&folder, Permissions::from_mode(0o777)).unwrap();
    let (told, said) = std::sync::mpsc::channel();
    let options = RegistryOptions::default().tell(move |text| told.send(text.to_owned()).unwrap());
    let registry = Registry::in_folder(&folder, &options).unwrap();
    assert!(said.recv().unwrap().contains("this user alone"));
    drop(registry.reserve().unwrap());
    assert_eq!(tables(&folder), [] as [PathBuf; 0]);
}
