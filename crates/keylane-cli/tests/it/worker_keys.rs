//! With `--worker`, a key always has the same child, which may keep state of the key; the loss of a
//! child is reported. `--worker-keys any` lets a record go to any child.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{BufRead, BufReader, Write};

use crate::common::{finish, hears, keylane, named_pipe, run};

/// Counts the records of each key in memory.
const COUNTER: &str = r#"while read -r k; do
    eval "count_$k=\$((count_$k + 1))"
    eval "echo $k \$count_$k"
done"#;

/// Records of 300 keys; some keys have many.
fn records(count: u32) -> String {
    (0..count).map(|n| format!("k{}\n", (n * n % 7919) % 300 / (1 + n % 5))).collect()
}

#[test]
fn a_child_can_count_per_key_in_memory() {
    let input = records(5312);
    for jobs in ["-j1", "-j4", "-j7"] {
        let outcome = run(&["--worker", jobs, "--key", "1", "--", "sh", "-c", COUNTER], &input);
        let mut counts = BTreeMap::new();
        for line in outcome.expect(0, &[]).stdout.lines() {
            let (key, count) = line.split_once(' ').unwrap();
            let right = counts.entry(key.to_owned()).or_insert(0);
            *right += 1;
            assert_eq!(count, right.to_string(), "{jobs}, key {key}");
        }
        assert_eq!(counts.values().sum::<u32>(), 5312);
    }
}

/// The same with a log, for which each record waits for the answer to the one before it.
#[test]
fn a_child_can_count_while_its_records_are_logged() {
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("log");
    let words = ["--worker", "-j4", "--key", "1", "--log", log.to_str().unwrap()];
    let outcome = run(&[&words[..], &["--", "sh", "-c", COUNTER]].concat(), records(1000));
    let mut counts = BTreeMap::new();
    for line in outcome.expect(0, &[]).stdout.lines() {
        let (key, count) = line.split_once(' ').unwrap();
        let right = counts.entry(key.to_owned()).or_insert(0);
        *right += 1;
        assert_eq!(count, right.to_string(), "key {key}");
    }
    // The first line is the header of the run.
    assert_eq!(fs::read_to_string(&log).unwrap().lines().count(), 1 + 1000);
}

#[test]
fn a_slow_child_holds_up_only_its_own_keys() {
    let keys: Vec<String> = (0..60).map(|n| format!("k{n}")).collect();
    let input = format!("slow\n{}\n", keys.join("\n"));
    // The placement of keys is the same in each run.
    let tell = "while read -r k; do echo \"$k $$\"; done";
    let told = run(&["--worker", "-j2", "--key", "1", "--", "sh", "-c", tell], &input);
    let children: BTreeMap<&str, &str> =
        told.expect(0, &[]).stdout.lines().map(|line| line.split_once(' ').unwrap()).collect();
    let others: BTreeSet<&str> =
        keys.iter().map(|k| &**k).filter(|k| children[k] != children["slow"]).collect();
    assert!((15..45).contains(&others.len()), "{}", others.len());

    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    named_pipe(&go);
    let program = r#"while read -r k; do
        test "$k" != slow || read -r word < "$1"
        echo "$k"
    done"#;
    let words = ["--worker", "-j2", "--key", "1", "--", "sh", "-c", program, "sh"];
    let mut child = keylane([&words[..], &[go.to_str().unwrap()]].concat()).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"slow\n").unwrap();
    // Opens once the slow child reads from it. Other keys of that child could start first before.
    let mut release = fs::OpenOptions::new().write(true).open(&go).unwrap();
    stdin.write_all(format!("{}\n", keys.join("\n")).as_bytes()).unwrap();
    drop(stdin);
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    let first: BTreeSet<String> = answers.by_ref().take(others.len()).collect();
    assert_eq!(first.iter().map(|k| &**k).collect::<BTreeSet<_>>(), others);
    release.write_all(b"go\n").unwrap();
    assert_eq!(answers.next().as_deref(), Some("slow"));
    assert_eq!(answers.count(), 60 - others.len());
    finish(child).expect(0, &[]);
}

#[test]
fn records_without_a_key_go_to_any_child() {
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    named_pipe(&go);
    // One is in its child until the other has been given to the child that is left.
    let program = r#"while read -r x; do
        case $x in
            slow) read -r word < "$1" ;;
            last) echo go > "$1" ;;
        esac
        echo "$x"
    done"#;
    let words = ["--worker", "-j2", "--csv", "--key", "2", "--worker-line", "{1}"];
    let words = [&words[..], &["--", "sh", "-c", program, "sh", go.to_str().unwrap()]].concat();
    let outcome = run(&words, "slow,\nlast,\n");
    assert_eq!(outcome.expect(0, &[]).sorted(), ["last", "slow"]);
}

#[test]
fn the_loss_of_a_childs_state_is_reported_and_counted() {
    let fragile = r#"while read -r k x; do if [ "$x" = 50 ]; then exit 9; fi; echo "$k"; done"#;
    let input: String = (1..=100).map(|n| format!("k{} {n}\n", n % 10)).collect();
    let outcome = run(&["--worker", "-j3", "--key", "1", "--", "sh", "-c", fragile], input);
    outcome.expect(
        outcome.code,
        &[
            " of 3 has ended (exit status 9); its state of its keys is lost",
            "state of keys lost: 1 worker ended early",
        ],
    );
}

#[test]
fn no_loss_of_state_is_reported_where_there_was_none() {
    let fragile = r#"while read -r x; do if [ "$x" = 50 ]; then exit 9; fi; echo "$x"; done"#;
    let input: String = (1..=100).map(|n| format!("{n}\n")).collect();
    let any = ["--worker", "--worker-keys", "any", "-j2", "--key", "1", "--", "sh", "-c", fragile];
    let outcome = run(&any, &input);
    assert!(!outcome.stderr.contains("state"), "{outcome:#?}");
    // The first child has answered nothing when it ends.
    let first = "test -e \"$1\" || { read -r x; : > \"$1\"; exit 9; }; cat";
    let folder = tempfile::tempdir().unwrap();
    let seen = folder.path().join("seen");
    let words = ["--worker", "-j1", "--key", "1", "--", "sh", "-c", first, "sh"];
    let outcome = run(&[&words[..], &[seen.to_str().unwrap()]].concat(), &input);
    outcome.expect(outcome.code, &["its worker ended without answering it (exit status 9)"]);
    assert!(!outcome.stderr.contains("state"), "{outcome:#?}");
}

#[test]
fn an_interrupted_run_reports_no_loss_of_state() {
    let folder = tempfile::tempdir().unwrap();
    let never = folder.path().join("never");
    named_pipe(&never);
    let program = r#"while read -r x; do echo "$x"; echo "got $x" >&2; test "$x" != b || read -r y < "$1"; done"#;
    let words = ["--worker", "-j1", "--key", "1", "--", "sh", "-c", program, "sh"];
    let mut child = keylane([&words[..], &[never.to_str().unwrap()]].concat()).spawn().unwrap();
    child.stdin.as_mut().unwrap().write_all(b"a\nb\nc\n").unwrap();
    let mut said = BufReader::new(child.stderr.take().unwrap());
    hears(&mut said, "got b");
    let signal = |part: &str| {
        let id = child.id().to_string();
        let kill = std::process::Command::new("kill").args(["-TERM", &id]).status().unwrap();
        assert!(kill.success(), "{part}");
    };
    signal("first");
    hears(&mut said, "interrupt again");
    signal("second");
    let mut rest = String::new();
    std::io::Read::read_to_string(&mut said, &mut rest).unwrap();
    assert!(!rest.contains("state"), "{rest}");
    assert_eq!(child.wait().unwrap().code(), Some(143));
}
