//! `keylane calibrate` measures, shows, concludes and writes its files; what goes wrong is said before
//! anything is measured, or with what failed.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::Command;

use crate::common::{Outcome, feed, finish, subcommand};

fn calibrate(words: &[&str]) -> Outcome {
    feed(subcommand("calibrate", words), b"")
}

#[test]
fn a_short_run_shows_each_size_and_writes_what_it_shows() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let (csv, svg) = (path("curve.csv"), path("curve.svg"));
    let words = ["--workload", "cpu", "--seconds", "0.01", "--max-workers", "3"];
    let outcome = calibrate(&[&words[..], &["--csv", &csv, "--svg", &svg]].concat());
    outcome.expect(0, &[]);

    let rows = outcome.stdout.lines().filter(|line| line.contains(" ms  "));
    let workers: Vec<_> = rows.map(|row| row.split_whitespace().next().unwrap()).collect();
    assert_eq!(workers, ["1", "2", "3"], "{}", outcome.stdout);
    let said = |start: &str| outcome.stdout.lines().any(|line| line.starts_with(start));
    assert!(said("recommended: ") && said("default on this machine: "), "{}", outcome.stdout);

    let csv = fs::read_to_string(csv).unwrap();
    let rows: Vec<Vec<_>> = csv.lines().map(|line| line.split(',').collect()).collect();
    assert_eq!(rows[0][..4], ["workload", "workers", "seconds", "units"]);
    assert_eq!(rows.len(), 4);
    for (number, row) in rows[1..].iter().enumerate() {
        assert_eq!(row[..2], ["cpu", &(number + 1).to_string()]);
        assert!(row[3].parse::<usize>().unwrap() > number, "each worker did a piece: {row:?}");
        assert!(row[2..].iter().all(|value| value.parse::<f64>().unwrap() > 0.0), "{row:?}");
    }
    assert!(fs::read_to_string(svg).unwrap().contains("cpu: "));
}

#[test]
fn a_busy_machine_is_noticed() {
    let processors = std::thread::available_parallelism().unwrap().get();
    let busy = || Command::new("sh").args(["-c", "while :; do :; done"]).spawn().unwrap();
    let mut busy: Vec<_> = (0..2 * processors).map(|_| busy()).collect();
    let outcome = calibrate(&["--workload", "cpu", "--seconds", "0.3", "--max-workers", "1"]);
    for child in &mut busy {
        child.kill().unwrap();
        child.wait().unwrap();
    }
    outcome.expect(0, &[]);
    assert!(outcome.stdout.contains("the machine is busy: other processes used"), "{outcome:?}");
    assert!(outcome.stdout.contains("recommended: 1 worker"), "{outcome:?}");
}

#[test]
fn both_workloads_are_measured_one_after_the_other() {
    let outcome = calibrate(&["--seconds", "0.001", "--max-workers", "1"]);
    outcome.expect(0, &[]);
    let names = outcome.stdout.lines().filter(|line| line.ends_with("for each line"));
    let names: Vec<_> = names.map(|line| line.split(',').next().unwrap()).collect();
    assert_eq!(names, ["cpu", "memory"]);
    assert_eq!(outcome.stdout.matches("recommended: 1 worker: ").count(), 2);
}

#[test]
fn a_command_is_measured_with_its_own_processes() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("ran");
    let script = format!("echo x >> {}; echo noise", mark.display());
    let outcome =
        calibrate(&["--seconds", "0.01", "--max-workers", "2", "--", "sh", "-c", &script]);
    outcome.expect(0, &[]);
    assert!(!outcome.stdout.contains("noise\n"), "its output is thrown away");
    assert!(fs::read_to_string(mark).unwrap().lines().count() >= 3);
}

#[test]
fn a_reader_that_has_had_enough_ends_it_quietly() {
    // All sizes together take far longer than anybody needs to go.
    let words = ["--workload", "cpu", "--seconds", "0.3", "--max-workers", "4096"];
    let mut child = subcommand("calibrate", words).spawn().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert!(line.starts_with("cpu, "), "{line}");
    drop(stdout);
    let outcome = finish(child);
    assert_eq!((outcome.code, outcome.stderr.as_str()), (141, ""));
}

#[test]
fn failures_are_reported() {
    calibrate(&["--", "no-such-command-here"])
        .expect(255, &["there is no program `no-such-command-here` in PATH"]);
    calibrate(&["--seconds", "3600", "--max-workers", "1", "--", "sh", "-c", "exit 7"])
        .expect(255, &["with 1 worker:", "the command failed: exit status 7"]);
    let unwritable = calibrate(&["--seconds", "3600", "--csv", "/no/such/folder/x.csv"]);
    unwritable.expect(255, &["cannot write /no/such/folder/x.csv"]);
    calibrate(&["--seconds", "0"]).expect(255, &["from 0.001 to 3600"]);
    calibrate(&["--max-workers", "0"]).expect(255, &["from 1 to 4096"]);
    calibrate(&["--latency", "x"]).expect(255, &["milliseconds"]);
    calibrate(&["--workload", "cpu", "--", "true"]).expect(255, &["cannot be used with"]);
}
