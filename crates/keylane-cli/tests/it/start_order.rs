//! A slot that becomes free takes the earliest record that may run.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Command;

use crate::common::{finish, keylane};

const SLOTS: usize = 3;

fn make_pipes(folder: &Path, count: usize) {
    let names = (1..=count).map(|number| format!("end{number}"));
    let paths = names.chain(["begun".into()]).map(|name| folder.join(name));
    assert!(Command::new("mkfifo").args(paths).status().unwrap().success());
}

fn roll(state: &mut u64, sides: u64) -> u64 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*state >> 33) % sides
}

/// Lets the records end one at a time, in random order. Returns the number of records that began
/// although an earlier one could have.
fn inversions(records: &[Vec<u64>], options: &[&str], state: &mut u64) -> usize {
    let folder = tempfile::tempdir().unwrap();
    make_pipes(folder.path(), records.len());
    // Open for writing too, so that it does not end between two commands.
    let begun = File::options().read(true).write(true).open(folder.path().join("begun")).unwrap();
    let mut begun = BufReader::new(begun).lines().map(|line| line.unwrap().parse().unwrap());
    let gate = r#"echo "$1" > "$2/begun"; read -r word < "$2/end$1""#;
    let path = folder.path().to_str().unwrap();
    let words = [options, &["-j3", "--", "sh", "-c", gate, "sh", "{#}", path]].concat();
    let mut child = keylane(words).spawn().unwrap();
    let line = |keys: &Vec<u64>| keys.iter().map(u64::to_string).collect::<Vec<_>>().join(" ");
    let input: Vec<String> = records.iter().map(line).collect();
    child.stdin.take().unwrap().write_all((input.join("\n") + "\n").as_bytes()).unwrap();

    let conflict = |a: usize, b: usize| records[a].iter().any(|key| records[b].contains(key));
    let mut unfinished: BTreeSet<usize> = (0..records.len()).collect();
    let mut started = BTreeSet::new();
    let mut running: Vec<usize> = Vec::new();
    let mut inversions = 0;
    while !unfinished.is_empty() {
        let may_begin = |&number: &usize| {
            !started.contains(&number)
                && !unfinished.range(..number).any(|earlier| conflict(*earlier, number))
        };
        // Several free slots begin in any order among themselves.
        let earliest: Vec<usize> =
            unfinished.iter().copied().filter(may_begin).take(SLOTS - running.len()).collect();
        for _ in 0..earliest.len() {
            let place: usize = begun.next().unwrap();
            inversions += usize::from(!earliest.contains(&(place - 1)));
            started.insert(place - 1);
            running.push(place - 1);
        }
        let chosen = roll(state, running.len() as u64) as usize;
        let number = running.swap_remove(chosen);
        unfinished.remove(&number);
        fs::write(folder.path().join(format!("end{}", number + 1)), "go\n").unwrap();
    }
    finish(child).expect(0, &[]);
    inversions
}

#[test]
fn a_free_slot_takes_the_earliest_record_that_may_run() {
    let mut state = 11;
    let records: Vec<Vec<u64>> = (0..150).map(|_| vec![roll(&mut state, 25)]).collect();
    assert_eq!(inversions(&records, &["--key", "1"], &mut state), 0);
}

#[test]
fn records_with_several_keys_have_their_place_in_this_order() {
    let mut state = 5;
    let records: Vec<Vec<u64>> = (0..150)
        .map(|_| (0..=roll(&mut state, 3)).map(|_| roll(&mut state, 40)).collect())
        .collect();
    let keys = ["--key", "1", "--key", "2", "--key", "3"];
    assert_eq!(inversions(&records, &keys, &mut state), 0);
}
