//! `keylane run --resume` is killed at many moments, every other time with its guard: no record is lost, the records of
//! a key begin in order, and those alone begin again that ran at a kill. `KEYLANE_KILLS` says how many kills there are.

use std::collections::HashMap;
use std::env;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;

use rustix::process::Signal;

use super::dice::Dice;
use super::family::{Family, end_by, kill_with_guard};
use crate::common::{finish, keylane, subcommand};

/// Records of a round: more than begin before its kills.
const RECORDS: u64 = 300;

/// Kills of a round, after which its run goes on to its end.
const KILLS: u64 = 4;

/// Begun records before a kill, at most.
const MAX_BEGUN: u64 = 60;

/// Slots of a run.
const JOBS: usize = 4;

/// Says that the record has begun, takes some milliseconds, and fails for every 11th record.
const COMMAND: &str = "exec 8>DIR/alive; [ $KEYLANE_ATTEMPT = 2 ] || echo LIFE $1 > DIR/begun; \
                       sleep 0.00$(($1 % 10)); [ $(($1 % 11)) -ne 0 ] || [ $KEYLANE_ATTEMPT = 2 ]";

/// The same for each line, without failures.
const WORKER: &str = "exec 8>DIR/alive; while read -r number rest; do echo LIFE $number > DIR/begun; echo done; done";

/// Keys of a record: two, of which one may be missing. Every 50th record is a barrier.
fn keys_of(number: u64, is_worker: bool) -> Vec<String> {
    let key = |factor: u64| number.wrapping_mul(2_654_435_761 * factor) >> 7;
    let mut keys = vec![format!("k{}", key(1) % 7)];
    if !is_worker && number.is_multiple_of(3) {
        keys.push(format!("k{}", key(5) % 7));
    }
    keys
}

fn is_barrier(number: u64) -> bool {
    number.is_multiple_of(50)
}

fn input(is_worker: bool) -> String {
    let line = |number: u64| {
        let keys = keys_of(number, is_worker);
        let second = keys.get(1).map_or("-", |key| key);
        let first = if is_barrier(number) && !is_worker { "barrier" } else { &keys[0] };
        format!("{number} {first} {second}\n")
    };
    (1..=RECORDS).map(line).collect()
}

fn command(family: &Family, life: u64, is_worker: bool) -> Command {
    let script = if is_worker { WORKER } else { COMMAND };
    let script = script.replace("DIR", family.folder().to_str().unwrap());
    let script = script.replace("LIFE", &life.to_string());
    let mut command = keylane([format!("-j{JOBS}")]);
    command.args(["--key", "2", "--resume", "--log"]).arg(family.path("log"));
    let said = OpenOptions::new().append(true).create(true).open(family.path("said")).unwrap();
    command.env("TMPDIR", family.folder()).stdout(Stdio::null()).stderr(said);
    let several = ["--key", "3", "--barrier", "2=barrier", "--null-value", "-"];
    let attempts = ["--attempts", "2", "--backoff", "1ms"];
    match is_worker {
        true => command.arg("--worker"),
        false => command.args(several).args(attempts),
    };
    command.arg(family.path("input")).args(["--", "sh", "-c", &script]);
    command.args(if is_worker { &[][..] } else { &["sh", "{1}"] });
    command
}

/// Prints what the runs said, if the test fails.
struct SaidOnFailure(PathBuf);

impl Drop for SaidOnFailure {
    fn drop(&mut self) {
        if thread::panicking() {
            let said = fs::read_to_string(&self.0).unwrap_or_default();
            let last: Vec<_> = said.lines().rev().take(20).collect();
            eprintln!("the runs said last, the newest first: {last:#?}");
        }
    }
}

/// Reads what began until `count` records of this life have, or all until `end`.
fn see(family: &Family, begun: &mut Vec<(u64, u64)>, life: u64, count: u64) {
    let mut seen = 0;
    while seen < count {
        let line = family.next();
        if line == "end" {
            return;
        }
        let (of, number) = line.split_once(' ').unwrap();
        let (of, number) = (of.parse().unwrap(), number.parse().unwrap());
        begun.push((of, number));
        seen += u64::from(of == life);
    }
}

fn kill(family: &Family, mut run: Child, with_guard: bool, dice: &mut Dice) {
    if with_guard {
        kill_with_guard(run.id());
        run.wait().unwrap();
    } else {
        end_by(&mut run, Signal::KILL);
    }
    // A line that a crash of the machine has torn.
    if dice.roll(3) == 0 {
        let mut log = OpenOptions::new().append(true).open(family.path("log")).unwrap();
        log.write_all(b"{\"place\":7,\"ha").unwrap();
    }
}

/// Fails unless each key's records began in order, all of them, and again only at a kill.
fn check(begun: &[(u64, u64)], is_worker: bool) {
    let mut of_key = HashMap::<String, Vec<(u64, u64)>>::new();
    for &(life, number) in begun {
        let is_barrier = is_barrier(number) && !is_worker;
        let keys = match is_barrier {
            true => (0..7).map(|key| format!("k{key}")).collect(),
            false => keys_of(number, is_worker),
        };
        let mut keys: Vec<String> = keys;
        keys.dedup();
        keys.into_iter().for_each(|key| of_key.entry(key).or_default().push((life, number)));
    }
    for (key, begun) in of_key {
        for pair in begun.windows(2) {
            let again = pair[0].1 == pair[1].1;
            assert!(!again || pair[0].0 < pair[1].0, "{key} in one life: {pair:?}");
        }
        let mut numbers: Vec<_> = begun.iter().map(|(_, number)| *number).collect();
        numbers.dedup();
        let wanted = (1..=RECORDS).filter(|&number| {
            (is_barrier(number) && !is_worker) || keys_of(number, is_worker).contains(&key)
        });
        assert!(numbers.iter().copied().eq(wanted), "{key}: {begun:?}");
    }
    let lives = begun.iter().map(|(life, _)| *life).max().unwrap();
    for life in 1..lives {
        let later = |number| begun.iter().any(|(of, begun)| *of > life && *begun == number);
        // A worker has records of other keys in its pipe; a failed record between two attempts has no
        // slot.
        let counts = |number: u64| is_worker || !number.is_multiple_of(11);
        let again = begun
            .iter()
            .filter(|(of, number)| *of == life && counts(*number) && later(*number))
            .count();
        assert!(is_worker || again <= JOBS, "{again} began again after life {life}");
    }
}

#[test]
fn a_run_that_is_killed_and_continued_loses_nothing_and_repeats_what_ran() {
    let kills: u64 =
        env::var("KEYLANE_KILLS").map_or(8, |kills| kills.parse().expect("it is a number"));
    let mut dice = Dice::new(2);
    for round in 0..kills.div_ceil(KILLS) {
        let family = Family::new();
        let _said = SaidOnFailure(family.path("said"));
        let is_worker = round % 2 == 1;
        fs::write(family.path("input"), input(is_worker)).unwrap();
        let mut begun = Vec::new();
        for life in 1..=KILLS {
            let run = command(&family, life, is_worker).spawn().unwrap();
            see(&family, &mut begun, life, 1 + dice.roll(MAX_BEGUN));
            kill(&family, run, life % 2 == 1, &mut dice);
        }
        let last = KILLS + 1;
        let mut run = command(&family, last, is_worker);
        finish(run.stderr(Stdio::piped()).spawn().unwrap()).expect(0, &[]);
        fs::write(family.path("begun"), "end\n").unwrap();
        see(&family, &mut begun, last, u64::MAX);
        check(&begun, is_worker);
        let verified = finish(subcommand("verify", [family.path("log")]).spawn().unwrap());
        verified.expect(0, &[]);
    }
}
