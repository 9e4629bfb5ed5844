//! A disk that cannot sync ends a journal until it is reopened, and a full one does not; neither
//! loses an acknowledged record.
//!
//! Children run on such disks: a preloaded library simulates the first, and a file system of four
//! megabytes in memory is the second, where the machine permits the mount.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use crate::common::{everything, place, record};
use keylane_stream::journal::{Journal, WriteError};
use keylane_stream::tracker::Progress;
use keylane_stream::{Position, Record};
use tempfile::TempDir;

/// Variable with the path of the child's journal. Set only for a child.
const PATH: &str = "KEYLANE_TEST_JOURNAL";
/// Variable with the path of the file that makes the disk fail; see `data/failing_disk.c`.
const FAILS: &str = "KEYLANE_FAILING_DISK";

fn at(number: u64) -> Position {
    Position::new(number)
}

/// A directory with a journal, the library that simulates failures, and the file that requests
/// them.
struct Place {
    folder: TempDir,
    journal: PathBuf,
}

impl Place {
    fn new() -> Self {
        let (folder, journal) = place();
        let library = folder.path().join("failing_disk.so");
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/failing_disk.c");
        let mut compiler = Command::new("cc");
        let output = compiler.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).output();
        let output = output.expect("what links Rust is a C compiler");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Place { folder, journal }
    }

    /// Runs a child test of this file on such a disk, and returns the number of acknowledged
    /// records.
    fn run(&self, child: &str) -> u64 {
        let output = Command::new(env::current_exe().unwrap())
            .args(["--exact", child, "--nocapture"])
            .env("LD_PRELOAD", self.folder.path().join("failing_disk.so"))
            .env(FAILS, self.folder.path().join("fails"))
            .env(PATH, &self.journal)
            .output()
            .unwrap();
        acknowledged(&output)
    }
}

fn acknowledged(output: &Output) -> u64 {
    let said = String::from_utf8_lossy(&output.stdout);
    let complaint = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{complaint}");
    let line = said.lines().find_map(|line| line.strip_prefix("acknowledged "));
    line.unwrap_or_else(|| panic!("{said}")).parse().unwrap()
}

/// Sets the failure of the disk, or ends it.
fn disk_fails(how: &str) {
    fs::write(env::var_os(FAILS).unwrap(), how).unwrap();
}

/// Checks that exactly the first `count` records are there, and that more can be appended.
fn expect(path: &Path, count: u64) {
    let journal = Journal::open(path).unwrap();
    let all = everything(&journal);
    assert_eq!(all.len() as u64, count);
    assert!((0..).zip(&all).all(|(number, delivered)| delivered.record == record(number)));
    assert_eq!(journal.append(&record(count)), Ok(at(count)));
    assert_eq!(journal.check().unwrap().damage, []);
}

#[test]
fn a_failed_sync_ends_it_until_it_is_opened_again_and_loses_nothing_acknowledged() {
    let place = Place::new();
    let acknowledged = place.run("journal_disk::meets_a_disk_that_cannot_sync");
    assert_eq!(acknowledged, 30);
    expect(&place.journal, acknowledged);
}

/// Body of the child of the test above, not a test of its own.
#[test]
fn meets_a_disk_that_cannot_sync() {
    let Some(path) = env::var_os(PATH) else { return };
    // On one processor the harness has begun a line, which this ends.
    println!();
    let journal = Journal::open(Path::new(&path)).unwrap();
    for number in 0..30 {
        assert_eq!(journal.append(&record(number)), Ok(at(number)));
    }
    disk_fails("s");
    let pending: Vec<_> =
        (30..40).map(|number| journal.append_later(&[record(number)]).unwrap()).collect();
    let failures: Vec<_> = pending.into_iter().map(|pending| pending.wait().unwrap_err()).collect();
    let WriteError::Failed { cause } = &failures[0] else { panic!("{failures:?}") };
    assert!(cause.contains("I/O"), "{cause}");
    assert!(failures.iter().all(|failure| *failure == failures[0]), "{failures:?}");

    // The disk reports success again, which the journal must not rely on.
    disk_fails("");
    let failure = failures[0].clone();
    assert_eq!(journal.append(&record(40)), Err(failure.clone()));
    assert_eq!(journal.commit("group", &Progress::up_to(at(1))), Err(failure));
    assert_eq!((journal.end(), everything(&journal).len()), (at(30), 30));
    println!("acknowledged {}", journal.end());
}

#[test]
fn a_full_disk_is_said_to_be_full_and_it_goes_on_when_there_is_room() {
    let place = Place::new();
    let acknowledged = place.run("journal_disk::meets_a_full_disk");
    assert_eq!(acknowledged, 40);
    expect(&place.journal, acknowledged);
}

/// Body of the child of the test above, not a test of its own.
#[test]
fn meets_a_full_disk() {
    let Some(path) = env::var_os(PATH) else { return };
    // On one processor the harness has begun a line, which this ends.
    println!();
    let journal = Journal::open(Path::new(&path)).unwrap();
    for number in 0..30 {
        assert_eq!(journal.append(&record(number)), Ok(at(number)));
    }
    disk_fails("f");
    for _ in 0..3 {
        assert_eq!(journal.append(&record(30)), Err(WriteError::Full));
        assert_eq!(journal.commit("group", &Progress::up_to(at(9))), Err(WriteError::Full));
    }
    assert_eq!((journal.end(), everything(&journal).len()), (at(30), 30));
    disk_fails("");
    for number in 30..40 {
        assert_eq!(journal.append(&record(number)), Ok(at(number)));
    }
    assert_eq!(journal.commit("group", &Progress::up_to(at(9))), Ok(()));
    println!("acknowledged {}", journal.end());
}

/// Mounts a file system in its own namespaces, which needs no privileges where the machine permits
/// it.
const IN_MEMORY: &str = "mount -t tmpfs -o size=4m tmpfs \"$FOLDER\" && exec \"$0\" \"$@\"";

#[test]
fn a_disk_of_four_megabytes_fills_up_and_nothing_is_lost() {
    let folder = tempfile::tempdir().unwrap();
    let unshare = |script: &str, words: &[&str]| {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--mount", "sh", "-c", script]).args(words);
        command.env("FOLDER", folder.path()).env(PATH, folder.path().join("journal")).output()
    };
    let may_mount = unshare(IN_MEMORY, &["true"]).is_ok_and(|output| output.status.success());
    if !may_mount {
        // No package could help, so this is not a missing fixture.
        eprintln!("skipped: this machine does not permit an unprivileged mount");
        return;
    }
    let this = env::current_exe().unwrap();
    let words = [this.to_str().unwrap(), "--exact", "journal_disk::fills_its_disk", "--nocapture"];
    assert!(acknowledged(&unshare(IN_MEMORY, &words).unwrap()) > 20);
}

/// Body of the child of the test above, not a test of its own.
#[test]
fn fills_its_disk() {
    let Some(path) = env::var_os(PATH) else { return };
    // On one processor the harness has begun a line, which this ends.
    println!();
    let path = Path::new(&path);
    let ballast = path.with_file_name("ballast");
    fs::write(&ballast, vec![0; 1 << 20]).unwrap();
    let large = |number: u64| Record::new(number.to_string(), vec![number as u8; 50_000]);
    let journal = Journal::open(path).unwrap();
    let mut acknowledged = 0;
    let failure = loop {
        match journal.append(&large(acknowledged)) {
            Ok(position) => assert_eq!(position, at(acknowledged)),
            Err(failure) => break failure,
        }
        acknowledged += 1;
    };
    assert_eq!(failure, WriteError::Full);
    let are_all_there = |journal: &Journal| {
        let all = everything(journal);
        all.len() as u64 == acknowledged
            && (0..).zip(all).all(|(number, delivered)| delivered.record == large(number))
    };
    assert!(are_all_there(&journal));
    // Reopened on the full disk, the journal has all records; and with free space it accepts more.
    drop(journal);
    let journal = Journal::open(path).unwrap();
    assert!(are_all_there(&journal));
    fs::remove_file(ballast).unwrap();
    assert_eq!(journal.append(&large(acknowledged)), Ok(at(acknowledged)));
    assert_eq!(journal.check().unwrap().damage, []);
    println!("acknowledged {acknowledged}");
}
