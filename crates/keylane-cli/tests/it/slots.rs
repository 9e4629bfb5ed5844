//! Slots of a run: their number, the number that a command has, and the pace of starts.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{BufRead, BufReader, Read, Write};

use crate::common::{finish, keylane, named_pipe, numbers, run};

#[test]
fn each_running_command_has_a_slot_of_its_own() {
    let folder = tempfile::tempdir().unwrap();
    let begun = folder.path().join("begun");
    named_pipe(&begun);
    let ends: Vec<_> = (1..=9).map(|number| folder.path().join(format!("end{number}"))).collect();
    ends.iter().for_each(|end| named_pipe(end));
    let gate = r#"echo "$1 $KEYLANE_SLOT" > "$2/begun"; read -r word < "$2/end$KEYLANE_SEQ""#;
    let path = folder.path().to_str().unwrap();
    let words = ["-j3", "--key", "1", "--", "sh", "-c", gate, "sh", "{%}", path];
    let mut child = keylane(words).spawn().unwrap();
    child.stdin.take().unwrap().write_all(numbers(9).as_bytes()).unwrap();
    let begun = File::options().read(true).write(true).open(begun).unwrap();
    let mut begun = BufReader::new(begun).lines();
    for running in ends.chunks(3) {
        let mut taken = BTreeSet::new();
        for _ in 0..3 {
            let line = begun.next().unwrap().unwrap();
            let (argument, variable) = line.split_once(' ').unwrap();
            assert_eq!(argument, variable);
            taken.insert(argument.to_owned());
        }
        // They run together.
        assert_eq!(taken.into_iter().collect::<String>(), "123");
        running.iter().for_each(|end| fs::write(end, "go\n").unwrap());
    }
    finish(child).expect(0, &[]);
}

#[test]
fn one_slot_has_the_number_one() {
    let words = ["-j1", "--key", "1", "--", "echo", "{%}{}{%}", "{%}"];
    let outcome = run(&words, "a\nb\n");
    assert_eq!(outcome.expect(0, &[]).stdout, "1a1 1\n1b1 1\n");
    // As for every placeholder, the record is then no further argument.
    let outcome = run(&["-j1", "--key", "1", "--", "echo", "{%}"], "a\n");
    assert_eq!(outcome.expect(0, &[]).stdout, "1\n");
}

#[test]
fn a_nul_byte_is_not_the_place_of_a_slot() {
    let outcome = run(&["-j1", "--key", "/./", "--", "echo", "{%}", "{}"], b"a\0b\nc\n");
    outcome.expect(1, &["record 1 (line 1, key a): it has a NUL byte"]);
    assert_eq!(outcome.stdout, "1 c\n");
}

#[test]
fn only_a_command_names_its_slot() {
    run(&["--key", "{%}", "--", "true"], "").expect(255, &["`{%}` is for the command"]);
    let words = ["--worker", "--worker-line", "{%}", "--key", "1", "--", "cat"];
    run(&words, "").expect(255, &["`{%}` is for the command of keylane run"]);
}

#[test]
fn each_worker_knows_its_slot() {
    let tell = r#"while read -r x; do echo "$KEYLANE_SLOT $$"; done"#;
    let outcome = run(&["--worker", "-j3", "--key", "1", "--", "sh", "-c", tell], numbers(300));
    let children: BTreeSet<&str> = outcome.expect(0, &[]).stdout.lines().collect();
    let slots: Vec<&str> = children.iter().map(|line| line.split_once(' ').unwrap().0).collect();
    assert_eq!(slots, ["1", "2", "3"]);
}

#[test]
fn jobs_have_the_forms_of_gnu_parallel() {
    let forms: [&[&str]; 9] = [
        &["-j", "-1"],
        &["-j-1"],
        &["--jobs=-1"],
        &["-j", "+1"],
        &["-j+1"],
        &["-j50%"],
        &["-j0"],
        &["-j", "cores"],
        &[],
    ];
    for form in forms {
        let outcome = run(&[form, &["--key", "1", "--", "echo"]].concat(), "a\nb\n");
        assert_eq!(outcome.expect(0, &[]).sorted(), ["a", "b"], "{form:?}");
    }
    let refused = run(&["-j", "x", "--key", "1", "--", "true"], "");
    refused.expect(255, &["give a number like 8", "200%", "+N or -N", "0 for as many as possible"]);
}

#[test]
fn a_delay_is_the_least_time_between_two_starts() {
    // With a rate, the slower one counts.
    for pace in [
        &["--delay", "1h"][..],
        &["--delay", "1h", "--rate", "100/s"],
        &["--delay", "1ms", "--rate", "1/h"],
    ] {
        let words = [pace, &["-j2", "--key", "1", "--", "echo", "{}"]].concat();
        let mut child = keylane(words).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(b"a\nb\n").unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        assert_eq!(line, "a\n");
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        drop(stdin);
        let mut rest = String::new();
        stdout.read_to_string(&mut rest).unwrap();
        assert_eq!(rest, "");
        finish(child).expect(143, &["not run: 1 record that had been read ahead"]);
    }
    run(&["--delay", "1ms", "--key", "1", "--", "true"], numbers(5)).expect(0, &[]);
}
