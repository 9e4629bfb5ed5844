//! Logs, dead letters and continued runs of `keylane run --batch`.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::children::dice::Dice;
use crate::common::{Outcome, finish, keylane, named_pipe, subcommand};

/// A folder with an input file, and a log.
struct Stage(tempfile::TempDir);

impl Stage {
    fn new(input: &str) -> Self {
        let stage = Stage(tempfile::tempdir().unwrap());
        fs::write(stage.path("input"), input).unwrap();
        stage
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// The command of a run with the log. It gets the folder.
    fn command(&self, options: &[&str], script: &str) -> Command {
        let mut command = keylane(["--key", "1", "--linger", "1h", "--log"]);
        command.arg(self.path("log")).args(options).arg(self.path("input"));
        command.args(["--", "sh", "-c", script, "sh"]).arg(self.0.path());
        command
    }

    fn run(&self, options: &[&str], script: &str) -> Outcome {
        finish(self.command(options, script).spawn().unwrap())
    }

    /// Lines of the log about records.
    fn lines(&self) -> Vec<Value> {
        let text = self.text("log");
        let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        lines.filter(|line| line.get("keylane_log").is_none()).collect()
    }

    #[track_caller]
    fn verify(&self) {
        let log = self.path("log");
        finish(subcommand("verify", [&log]).spawn().unwrap()).expect(0, &[]);
    }
}

#[test]
fn the_log_has_a_line_per_record_and_the_job_log_one_per_command() {
    let stage = Stage::new("a 1\nb 2\na 3\na 4\n");
    let joblog = stage.path("joblog");
    let options = ["-j1", "--batch", "2", "--joblog", joblog.to_str().unwrap()];
    stage.run(&options, "cat; [ $KEYLANE_SEQ != 1 ]").expect(2, &[]);
    let lines = stage.lines();
    let seen: Vec<_> = lines
        .iter()
        .map(|line| {
            let exit = line["exit"].as_u64().unwrap();
            (line["place"].as_u64().unwrap(), line["batch"].as_u64(), exit)
        })
        .collect();
    assert_eq!(seen, [(1, Some(1), 1), (3, Some(1), 1), (2, None, 0), (4, None, 0)]);
    assert_eq!(lines[0]["start_us"], lines[1]["start_us"]);
    assert_eq!(lines[0]["end_us"], lines[1]["end_us"]);
    assert!(lines.iter().all(|line| line["hash"].as_str().unwrap().len() == 16));
    stage.verify();
    let text = stage.text("joblog");
    let jobs: Vec<Vec<_>> = text.lines().skip(1).map(|line| line.split('\t').collect()).collect();
    let seen: Vec<_> = jobs.iter().map(|job| (job[0], job[5], job[6])).collect();
    assert_eq!(seen, [("1", "8", "1"), ("2", "4", "0"), ("4", "4", "0")]);
}

#[cfg(feature = "consume")]
#[test]
fn each_record_of_a_failed_batch_has_its_dead_letter() {
    let stage = Stage::new("a 1\na 2\na 3\nb 4\n");
    let letters = format!("file:{}", stage.path("dead").display());
    let options = ["--batch", "3", "--on-fail", "dead-letter", "--dead-letters", &letters];
    let outcome = stage.run(&options, "! grep -q 2");
    outcome.expect(0, &["batch of 3 records", "; in the dead letters"]);
    let text = stage.text("dead");
    let letters = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let places: Vec<_> = letters.map(|letter| letter["position"].as_u64().unwrap()).collect();
    assert_eq!(places, [1, 2, 3], "{text}");
    assert_eq!(stage.lines().iter().filter(|line| line["result"] == "dead-letter").count(), 3);
    assert!(text.contains("a 2") && !text.contains("a 2\\n"), "{text}");
}

#[test]
fn a_log_that_cannot_be_written_ends_the_run() {
    let words = ["--key", "1", "--batch", "2", "--log", "/dev/full", "--", "true"];
    let outcome = crate::common::run(&words, "a 1\na 2\n");
    outcome.expect(255, &["cannot write the log /dev/full"]);
}

/// Notes the records, and waits at the gate before a record with a stop.
const NOTE: &str = r#"
    while read -r key number stop; do
        echo "$key $number" >> "$1/ran"
        if [ "$stop" = stop ] && mkdir "$1/stopped" 2> /dev/null; then
            echo waiting; read -r word < "$1/gate"
        fi
    done"#;

#[test]
fn a_killed_run_repeats_the_records_of_its_running_batch_and_no_other() {
    let stage = Stage::new("a 1\na 2\na 3\na 4 stop\na 5\nb 6\n");
    named_pipe(&stage.path("gate"));
    let options = ["-j1", "--batch", "2", "--line-buffer"];
    let mut child = stage.command(&options, NOTE).spawn().unwrap();
    let mut output = BufReader::new(child.stdout.take().unwrap()).lines();
    assert_eq!(output.next().unwrap().unwrap(), "waiting");
    kill_process(Pid::from_child(&child), Signal::KILL).unwrap();
    child.wait().unwrap();
    assert_eq!(stage.text("ran"), "a 1\na 2\na 3\na 4\n");
    // Other batches than before.
    stage
        .run(&["-j1", "--batch", "3", "--resume"], NOTE)
        .expect(0, &["continuing after 2 records"]);
    assert_eq!(stage.text("ran"), "a 1\na 2\na 3\na 4\na 3\na 4\na 5\nb 6\n");
    stage.verify();
    stage.run(&["-j1", "--batch", "3", "--resume"], NOTE).expect(0, &[]);
    assert_eq!(stage.lines().len(), 6);
}

#[test]
fn a_batch_between_two_attempts_is_left_for_the_next_run_in_any_batches() {
    let stage = Stage::new("a 1\na 2\na 3\n");
    let script = r#"[ -e "$1/repaired" ] && exit 0; kill -TERM $PPID; exit 1"#;
    let options = ["--batch", "3", "--attempts", "9", "--backoff", "1h"];
    stage.run(&options, script).expect(143, &[]);
    assert_eq!(stage.lines().len(), 3);
    assert!(stage.lines().iter().all(|line| line["result"] == "retry"));
    fs::write(stage.path("repaired"), "").unwrap();
    stage.run(&["--batch", "2", "--resume"], script).expect(0, &[]);
    stage.verify();
    assert_eq!(stage.lines().iter().filter(|line| line["result"] == "done").count(), 3);
}

#[test]
fn failed_batches_run_again() {
    let stage = Stage::new("a 1\nb 2\na 3\nb 4\na 5\n");
    let script = r#"cat >> "$1/ran"; [ $KEYLANE_KEY = b ] || [ -e "$1/repaired" ]"#;
    stage.run(&["-j1", "--batch", "2"], script).expect(3, &[]);
    fs::write(stage.path("repaired"), "").unwrap();
    fs::remove_file(stage.path("ran")).unwrap();
    let again = ["-j1", "--batch", "9", "--retry-failed"];
    stage.run(&again, script).expect(0, &["3 failed and run again"]);
    assert_eq!(stage.text("ran"), "a 1\na 3\na 5\n");
    stage.verify();
}

/// Notes the records, interrupts the run at most once in its life, and fails for bad records until
/// they are repaired.
const RANDOM: &str = r#"
    status=0
    while read -r key number stop end; do
        echo "$key $number" >> "$1/ran"
        if [ "$stop" = stop ] && mkdir "$1/stop-$LIFE" 2> /dev/null; then kill -TERM $PPID; fi
        [ "$end" = good ] || [ -e "$1/repaired" ] || status=1
    done
    exit $status"#;

/// Runs with random batches, again while the run is interrupted.
fn run_to_the_end(stage: &Stage, dice: &mut Dice, lives: &mut u32, options: &[&str]) -> Outcome {
    loop {
        *lives += 1;
        assert!(*lives < 200, "it never ends");
        let batch = (1 + dice.roll(4)).to_string();
        let options = [&["-j3", "--linger", "1ms", "--batch", &batch], options].concat();
        let mut command = keylane(["--key", "1", "--log"]);
        command.arg(stage.path("log")).args(options).arg(stage.path("input"));
        command.args(["--", "sh", "-c", RANDOM, "sh"]).arg(stage.0.path());
        let outcome = finish(command.env("LIFE", lives.to_string()).spawn().unwrap());
        stage.verify();
        if outcome.code != 143 {
            return outcome;
        }
    }
}

/// Runs that are interrupted at random records and continued with other batches: each record runs
/// once, in order per key. `KEYLANE_SEEDS` is the number of runs.
#[test]
fn interrupted_runs_that_continue_run_each_record_once_in_order() {
    let seeds = env::var("KEYLANE_SEEDS").map_or(6, |seeds| seeds.parse().expect("it is a number"));
    for seed in 0..seeds {
        let mut dice = Dice::new(seed);
        let word = |rare: bool, yes, no| if rare { yes } else { no };
        let line = |number| {
            let stop = word(dice.roll(12) == 0, "stop", "go");
            let end = word(dice.roll(12) == 0, "bad", "good");
            format!("k{} {number} {stop} {end}\n", dice.roll(4))
        };
        let input: String = (1..=20 + seed * 5).map(line).collect();
        let stage = Stage::new(&input);
        let mut lives = 0;
        run_to_the_end(&stage, &mut dice, &mut lives, &["--resume"]);
        check(&stage, input.lines(), seed);
        // Those of a batch have failed together.
        let failed: BTreeSet<_> = failed_places(&stage);
        let lines = (1..).zip(input.lines()).filter(|(place, _)| failed.contains(place));
        fs::write(stage.path("repaired"), "").unwrap();
        fs::remove_file(stage.path("ran")).unwrap();
        run_to_the_end(&stage, &mut dice, &mut lives, &["--retry-failed", "--resume"])
            .expect(0, &[]);
        check(&stage, lines.map(|(_, line)| line), seed);
        assert!(failed_places(&stage).is_empty());
    }
}

/// Places of the records whose last line in the log is a failure.
fn failed_places(stage: &Stage) -> BTreeSet<u64> {
    let lines = stage.lines();
    let last: BTreeMap<_, _> =
        lines.iter().map(|line| (line["place"].as_u64().unwrap(), &line["result"])).collect();
    last.into_iter().filter(|(_, result)| **result == "failed").map(|(place, _)| place).collect()
}

/// Fails unless the records ran once each, in order per key.
fn check<'i>(stage: &Stage, expected: impl Iterator<Item = &'i str>, seed: u64) {
    let of_keys = |lines: Vec<String>| {
        let mut keys = BTreeMap::<String, Vec<String>>::new();
        for line in lines {
            let mut words = line.split(' ').map(str::to_owned);
            let (key, number) = (words.next().unwrap(), words.next().unwrap());
            keys.entry(key).or_default().push(number);
        }
        keys
    };
    let ran = stage.text("ran").lines().map(str::to_owned).collect();
    assert_eq!(of_keys(ran), of_keys(expected.map(str::to_owned).collect()), "seed {seed}");
}
