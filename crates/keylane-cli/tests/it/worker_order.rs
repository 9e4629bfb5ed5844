//! `--worker` with several keys, shared keys, barriers, limits, latest records and rates.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::path::Path;

use crate::common::{finish, keylane, named_pipe, run};

/// Worker that writes down when each of its records begins and ends. The first word is the number.
const NOTE: &str = r#"while read -r n rest; do
    echo "begin $n" >> "$1"
    echo "end $n" >> "$1"
    echo "$n $$"
done"#;

/// What a record uses: its keys alone, keys that it shares, or everything.
struct Claim {
    keys: BTreeSet<u32>,
    shared: BTreeSet<u32>,
    is_barrier: bool,
}

impl Claim {
    fn conflicts(&self, other: &Claim) -> bool {
        self.is_barrier
            || other.is_barrier
            || self.keys.iter().any(|key| other.keys.contains(key) || other.shared.contains(key))
            || self.shared.iter().any(|key| other.keys.contains(key))
    }
}

/// Checks that of two records in conflict the earlier one ends before the later one begins.
fn check(notes: &Path, claims: &[Claim]) {
    let mut begin = vec![usize::MAX; claims.len()];
    let mut end = vec![usize::MAX; claims.len()];
    for (time, line) in fs::read_to_string(notes).unwrap().lines().enumerate() {
        let (what, number) = line.split_once(' ').unwrap();
        let number: usize = number.parse().unwrap();
        match what {
            "begin" => begin[number] = time,
            _ => end[number] = time,
        }
    }
    for later in 0..claims.len() {
        assert!(end[later] != usize::MAX, "record {later} did not run");
        for earlier in 0..later {
            if claims[earlier].conflicts(&claims[later]) {
                assert!(end[earlier] < begin[later], "{earlier} and {later}");
            }
        }
    }
}

fn roll(state: &mut u64, sides: u64) -> u32 {
    *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    ((*state >> 33) % sides) as u32
}

#[test]
fn a_record_waits_for_the_earlier_ones_of_all_its_keys() {
    let folder = tempfile::tempdir().unwrap();
    let mut state = 7;
    let mut input = String::new();
    let claims: Vec<Claim> = (0..400)
        .map(|number| {
            let (from, to) = (roll(&mut state, 9), roll(&mut state, 9));
            input += &format!("{{\"n\":{number},\"from\":\"{from}\",\"to\":[\"{to}\"]}}\n");
            Claim { keys: [from, to].into(), shared: BTreeSet::new(), is_barrier: false }
        })
        .collect();
    for (more, jobs) in [("sticky", "-j4"), ("any", "-j4"), ("sticky", "-j1")] {
        let notes = folder.path().join(format!("{more}{jobs}"));
        let words = ["--worker", "--worker-keys", more, jobs, "--ndjson", "--key", ".from"];
        let more = ["--key", ".to[]", "--worker-line", "{n} {from}", "--", "sh", "-c", NOTE, "sh"];
        let words = [&words[..], &more, &[notes.to_str().unwrap()]].concat();
        assert_eq!(run(&words, &input).expect(0, &[]).stdout.lines().count(), 400);
        check(&notes, &claims);
    }
}

#[test]
fn the_first_key_selects_the_worker() {
    let tell = r#"while read -r from to; do echo "$from $$"; done"#;
    let input: String = (0..200).map(|n| format!("a{} b{}\n", n * n % 13, n % 7)).collect();
    let words = ["--worker", "-j4", "--key", "1", "--key", "2", "--", "sh", "-c", tell];
    let outcome = run(&words, input);
    let mut children = BTreeMap::new();
    for line in outcome.expect(0, &[]).stdout.lines() {
        let (key, child) = line.split_once(' ').unwrap();
        assert_eq!(*children.entry(key).or_insert(child), child, "{key}");
    }
    assert!(children.values().collect::<BTreeSet<_>>().len() > 1, "{children:?}");
}

#[test]
fn shared_keys_and_barriers_hold_for_workers() {
    let folder = tempfile::tempdir().unwrap();
    let notes = folder.path().join("notes");
    let mut state = 3;
    let mut input = String::new();
    let claims: Vec<Claim> = (0..300)
        .map(|number| {
            let (own, read) = (roll(&mut state, 7), roll(&mut state, 7));
            let is_barrier = roll(&mut state, 40) == 0;
            let kind = if is_barrier { "all" } else { "one" };
            input += &format!(
                "{{\"n\":{number},\"own\":\"{own}\",\"read\":\"{read}\",\"kind\":\"{kind}\"}}\n"
            );
            Claim { keys: [own].into(), shared: [read].into(), is_barrier }
        })
        .collect();
    let words = ["--worker", "-j4", "--ndjson", "--key", ".own", "--shared-key", ".read"];
    let more = ["--barrier", "kind=all", "--worker-line", "{n} {own}", "--", "sh", "-c", NOTE];
    let words = [&words[..], &more, &["sh", notes.to_str().unwrap()]].concat();
    run(&words, &input).expect(0, &[]);
    check(&notes, &claims);
}

#[test]
fn a_limit_lets_that_many_records_of_a_key_run_at_once_with_workers_for_any_key() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    named_pipe(&pipe);
    // Each of the two opens the pipe, which waits for the other.
    let meet = r#"while read -r key n; do
        case $n in
            1) echo met > "$1" ;;
            2) read -r word < "$1" ;;
        esac
        echo "$n"
    done"#;
    let limit = ["--worker", "-j2", "--key", "1", "--limit-per-key", "2"];
    let command = ["--", "sh", "-c", meet, "sh", pipe.to_str().unwrap()];
    let words = [&limit[..], &["--worker-keys", "any"], &command].concat();
    assert_eq!(run(&words, "a 1\na 2\n").expect(0, &[]).sorted(), ["1", "2"]);
    let words = [&limit[..], &command].concat();
    run(&words, "a 1\n").expect(255, &["a key always has the same worker; add --worker-keys any"]);
}

#[test]
fn the_latest_record_of_a_key_replaces_the_one_that_waits_for_its_worker() {
    let folder = tempfile::tempdir().unwrap();
    let (begun, pipe) = (folder.path().join("begun"), folder.path().join("pipe"));
    named_pipe(&begun);
    named_pipe(&pipe);
    // `b` comes when all records of `a` were read, of which the first is running.
    let meet = r#"while read -r x; do
        case $x in
            a1) echo yes > "$1/begun"; read -r word < "$1/pipe" ;;
            b*) echo met > "$1/pipe" ;;
        esac
        echo "$x"
    done"#;
    let path = folder.path().to_str().unwrap();
    let words = ["--worker", "--worker-keys", "any", "-j2", "--key", "/^./", "--latest"];
    let words = [&words[..], &["--", "sh", "-c", meet, "sh", path]].concat();
    let mut child = keylane(words).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"a1\n").unwrap();
    assert_eq!(fs::read_to_string(&begun).unwrap(), "yes\n");
    stdin.write_all(b"a2\na3\na4\nb\n").unwrap();
    drop(stdin);
    let outcome = finish(child);
    outcome.expect(0, &["replaced: 2 records by a later one of the key"]);
    assert_eq!(outcome.sorted(), ["a1", "a4", "b"]);
}

#[test]
fn a_rate_holds_the_records_of_workers_back() {
    let words = ["--worker", "-j2", "--key", "1", "--key", "2", "--rate", "1/h", "--", "cat"];
    let mut child = keylane(words).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"a b\nc d\n").unwrap();
    let mut first = [0; 4];
    child.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    assert_eq!(&first, b"a b\n");
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
    drop(stdin);
    finish(child).expect(143, &["not run: 1 record that had been read ahead"]);
}

#[test]
fn a_log_has_all_keys_of_a_record_of_a_worker() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let words = ["--worker", "-j2", "--key", "1", "--key", "2", "--log", log.to_str().unwrap()];
    run(&[&words[..], &["--", "cat"]].concat(), "a b\nb c\n").expect(0, &[]);
    let text = fs::read_to_string(&log).unwrap();
    assert!(text.contains(r#""keys":["a","b"]"#) && text.contains(r#""keys":["b","c"]"#), "{text}");
}
