//! Random runs that are interrupted at random records and continued, against a sequential reference: each record runs
//! once, in order per key, and the rules for failures hold over all runs together. `KEYLANE_SEEDS` says how many.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::path::PathBuf;

use serde_json::Value;

use crate::children::dice::Dice;
use crate::common::{Outcome, finish, keylane, subcommand};

/// Notes the record, interrupts the run at most once in its life, and fails until it is repaired.
const COMMAND: &str = r#"
    echo "$2" >> "$1/ran"
    if [ "$3" = stop ] && mkdir "$1/stop-$LIFE" 2> /dev/null; then kill -TERM $PPID; fi
    [ "$4" = good ] || [ -e "$1/repaired" ]"#;

/// What the options of a run are, beside its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    /// Two keys, and barriers.
    Continue,
    /// The same, and a failed record stops its keys.
    StopKey,
    /// One key, of which the latest record replaces the waiting one.
    Latest,
}

#[derive(Debug)]
struct ModelRecord {
    number: u64,
    keys: Vec<String>,
    is_barrier: bool,
    fails: bool,
    stops: bool,
}

impl ModelRecord {
    fn line(&self) -> String {
        let key = |at: usize| self.keys.get(at).map_or("-", |key| key);
        let first = if self.is_barrier { "barrier" } else { key(0) };
        let stop = if self.stops { "stop" } else { "go" };
        let end = if self.fails { "bad" } else { "good" };
        format!("{first} {} {} {stop} {end}\n", key(1), self.number)
    }
}

/// One random run, and all that continue it.
#[derive(Debug)]
struct Model {
    folder: tempfile::TempDir,
    mode: Mode,
    records: Vec<ModelRecord>,
    lives: u32,
}

impl Model {
    fn new(seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mode = [Mode::Continue, Mode::StopKey, Mode::Latest][(seed % 3) as usize];
        let count = 20 + dice.roll(40);
        let record = |number| {
            let is_barrier = mode != Mode::Latest && dice.roll(15) == 0;
            let mut keys: Vec<_> = (0..2).map(|_| format!("k{}", dice.roll(5))).collect();
            keys.truncate(if mode == Mode::Latest { 1 } else { 1 + dice.roll(2) as usize });
            keys.dedup();
            let (fails, stops) = (dice.roll(8) == 0, dice.roll(10) == 0);
            // One that stops its key is run by each life, and would interrupt each of them.
            let stops = stops && !(fails && mode == Mode::StopKey);
            ModelRecord { number, keys, is_barrier, fails, stops }
        };
        let records = (1..=count).map(record).collect();
        let model = Model { folder: tempfile::tempdir().unwrap(), mode, records, lives: 0 };
        let input: String = model.records.iter().map(ModelRecord::line).collect();
        fs::write(model.path("input"), input).unwrap();
        model
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Runs with these options, again while the run is interrupted.
    fn run(&mut self, options: &[&str]) -> Outcome {
        loop {
            self.lives += 1;
            let mut command = keylane(["-j3", "--key", "1", "--null-value", "-"]);
            match self.mode {
                Mode::Latest => command.arg("--latest"),
                Mode::StopKey => {
                    command.args(["--key", "2", "--barrier", "1=barrier", "--on-fail", "stop-key"])
                }
                Mode::Continue => command.args(["--key", "2", "--barrier", "1=barrier"]),
            };
            command.arg("--log").arg(self.path("log")).args(options).arg(self.path("input"));
            command.args(["--", "sh", "-c", COMMAND, "sh"]).arg(self.folder.path());
            command.args(["{3}", "{4}", "{5}"]).env("LIFE", self.lives.to_string());
            let outcome = finish(command.spawn().unwrap());
            let verified = finish(subcommand("verify", [self.path("log")]).spawn().unwrap());
            assert_eq!(verified.code, 0, "{verified:#?}");
            if outcome.code != 143 {
                return outcome;
            }
            assert!(self.lives < 200, "it never ends: {self:#?}");
        }
    }

    /// Numbers of the records that have run, in the order of their starts.
    fn ran(&self) -> Vec<u64> {
        let text = fs::read_to_string(self.path("ran")).unwrap_or_default();
        text.lines().map(|line| line.parse().unwrap()).collect()
    }

    /// Records that a sequential run would run.
    fn expected(&self) -> Vec<&ModelRecord> {
        let (mut stopped, mut all) = (BTreeSet::new(), false);
        let mut run = Vec::new();
        for record in &self.records {
            let is_held = match record.is_barrier {
                true => !stopped.is_empty(),
                false => record.keys.iter().any(|key| stopped.contains(key)),
            };
            let fails = self.mode == Mode::StopKey && record.fails;
            if !is_held && !all {
                run.push(record);
            }
            if is_held || fails {
                all |= record.is_barrier;
                stopped.extend(if record.is_barrier { Vec::new() } else { record.keys.clone() });
            }
        }
        run
    }

    /// Fails unless the records of each key ran in order. A failed record that stopped its key may
    /// have run several times in a row.
    fn check_order(&self, seed: u64) {
        let (ran, expected) = (self.ran(), self.expected());
        let keys: BTreeSet<_> = self.records.iter().flat_map(|record| &record.keys).collect();
        let records: BTreeMap<_, _> = self.records.iter().map(|it| (it.number, it)).collect();
        for key in keys {
            let has_key = |record: &ModelRecord| record.is_barrier || record.keys.contains(key);
            let mut seen: Vec<_> = ran.iter().copied().filter(|n| has_key(records[n])).collect();
            if self.mode == Mode::StopKey {
                seen.dedup_by(|a, b| a == b && records[a].fails);
            }
            let wanted: Vec<_> = expected
                .iter()
                .filter(|record| has_key(record))
                .map(|record| record.number)
                .collect();
            if self.mode != Mode::Latest {
                assert_eq!(seen, wanted, "key {key} of seed {seed}");
                continue;
            }
            assert!(seen.is_sorted_by(|a, b| a < b), "key {key} of seed {seed}: {seen:?}");
            assert_eq!(seen.last(), wanted.last(), "key {key} of seed {seed}");
        }
        // Records of different keys may start in any order.
        let distinct: BTreeSet<_> = ran.iter().copied().collect();
        if self.mode == Mode::Latest {
            let replaced = self.replaced();
            assert!(distinct.is_disjoint(&replaced), "seed {seed}");
            assert_eq!(distinct.len() + replaced.len(), self.records.len(), "seed {seed}");
        } else {
            let wanted: BTreeSet<_> = expected.iter().map(|record| record.number).collect();
            assert_eq!(distinct, wanted, "seed {seed}");
        }
    }

    fn replaced(&self) -> BTreeSet<u64> {
        let log = fs::read_to_string(self.path("log")).unwrap();
        let lines = log.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
        let replaced = lines.filter(|line| line["result"] == "replaced");
        replaced.map(|line| line["place"].as_u64().unwrap()).collect()
    }

    /// Repairs the records that fail, and runs them again, and then those behind them.
    fn repair(&mut self, seed: u64) {
        let failed: Vec<_> = self.ran().into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        let records: BTreeMap<_, _> = self.records.iter().map(|it| (it.number, it)).collect();
        let failed: Vec<_> = failed.into_iter().filter(|n| records[n].fails).collect();
        fs::write(self.path("repaired"), "").unwrap();
        fs::remove_file(self.path("ran")).unwrap();
        self.run(&["--retry-failed"]).expect(0, &[]);
        let mut again = self.ran();
        again.sort_unstable();
        if self.mode == Mode::Latest {
            assert!(again.iter().all(|number| failed.contains(number)), "seed {seed}");
        } else {
            assert_eq!(again, failed, "seed {seed}");
        }
        let before: BTreeSet<_> = self.expected().iter().map(|record| record.number).collect();
        let _ = fs::remove_file(self.path("ran"));
        self.run(&["--resume", "--retry-failed"]).expect(0, &[]);
        let ran: BTreeSet<_> = self.ran().into_iter().collect();
        let all = self.records.iter().map(|record| record.number);
        let rest = all.filter(|number| !before.contains(number)).collect();
        assert_eq!(
            ran,
            if self.mode == Mode::Latest { BTreeSet::new() } else { rest },
            "seed {seed}"
        );
    }
}

#[test]
fn interrupted_runs_that_continue_do_what_one_run_would() {
    let seeds =
        env::var("KEYLANE_SEEDS").map_or(12, |seeds| seeds.parse().expect("it is a number"));
    for seed in 0..seeds {
        let mut model = Model::new(seed);
        // The first run is one that continues nothing yet.
        model.run(&["--resume"]);
        model.check_order(seed);
        model.repair(seed);
    }
}
