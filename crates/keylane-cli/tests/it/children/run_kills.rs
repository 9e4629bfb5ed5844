//! `keylane run` is killed at many moments, every other time with its guard: the records of a key begin in order and one
//! at a time, and no process of a command is left. `KEYLANE_KILLS` says how many kills there are.

use std::collections::HashMap;
use std::env;
use std::io::Write;
use std::process::{Child, Stdio};

use rustix::process::Signal;

use super::dice::Dice;
use super::family::{Family, end_by, kill_with_guard};
use crate::common::keylane;

/// Keys of the records of a run.
const KEYS: u64 = 7;

/// Records of each key: more than begin before a kill.
const RECORDS: u64 = 100;

/// Takes its key's lock, says that it has begun, and takes some milliseconds.
const COMMAND: &str = "exec 8>DIR/alive 9>>DIR/lock-$1; flock -n 9 || echo $1 $2 >> DIR/overlap; \
                       echo LIFE $1 $2 > DIR/begun; sleep 0.00$(($2 % 10))";

/// The same for each line.
const WORKER: &str = "exec 8>DIR/alive; while read -r key number; do exec 9>>DIR/lock-$key; \
                      flock -n 9 || echo $key $number >> DIR/overlap; \
                      echo LIFE $key $number > DIR/begun; exec 9>&-; echo done; done";

fn start(family: &Family, life: u64, worker: bool) -> Child {
    let script = if worker { WORKER } else { COMMAND };
    let script = script.replace("DIR", family.folder().to_str().unwrap());
    let script = script.replace("LIFE", &life.to_string());
    let mut command = keylane(["-j4", "--key", "1"]);
    command.env("TMPDIR", family.folder()).args(worker.then_some("--worker"));
    command.args(["--", "sh", "-c", &script, "sh"]).args(if worker {
        &[][..]
    } else {
        &["{1}", "{2}"]
    });
    let mut run = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let records = (0..RECORDS * KEYS).map(|n| format!("k{} {}\n", n % KEYS, n / KEYS + 1));
    // They fit into the pipe. It stays open, so that nothing ends by itself.
    run.stdin.as_mut().unwrap().write_all(records.collect::<String>().as_bytes()).unwrap();
    run
}

/// Waits until `count` records of this life have begun, and checks their order.
fn see(family: &Family, life: u64, count: u64) {
    let mut last = HashMap::<String, u64>::new();
    let mut seen = 0;
    while seen < count {
        let line = family.next();
        let words: Vec<&str> = line.split(' ').collect();
        let [of, key, number] = words[..] else { panic!("{line:?}") };
        // Of what was killed, a line may have lain in the pipe.
        if of != life.to_string() {
            assert_eq!(of, (life - 1).to_string());
            continue;
        }
        let last = last.entry(key.to_owned()).or_default();
        assert_eq!(number, (*last + 1).to_string(), "of {key}, in life {life}");
        *last += 1;
        seen += 1;
    }
}

#[test]
fn a_run_that_is_killed_keeps_the_order_and_leaves_no_command() {
    let kills: u64 =
        env::var("KEYLANE_KILLS").map_or(8, |kills| kills.parse().expect("it is a number"));
    let mut dice = Dice::new(1);
    for pair in 0..kills.div_ceil(2) {
        let mut family = Family::new();
        let worker = pair % 2 == 1;
        for (life, with_guard) in [(1, true), (2, false)] {
            let mut run = start(&family, life, worker);
            see(&family, life, 1 + dice.roll(60));
            if with_guard {
                kill_with_guard(run.id());
                run.wait().unwrap();
            } else {
                end_by(&mut run, Signal::KILL);
            }
        }
        family.wait_until_gone();
        family.assert_no_overlap();
    }
}
