//! A standard stream that is closed at the start loses nothing in silence: the runtime puts
//! `/dev/null` in its place, which takes all output and is an empty input.

use std::process::{Command, Stdio};

use crate::common::{Outcome, feed, subcommand};

/// Runs `keylane` with these words and the redirections of a shell.
fn redirected(name: &str, words: &[&str], redirections: &str, input: &str) -> Outcome {
    let plain = subcommand(name, words);
    let mut shell = Command::new("sh");
    shell.args(["-c", &format!("exec \"$0\" \"$@\" {redirections}")]);
    shell.arg(plain.get_program()).args(plain.get_args());
    shell.envs(plain.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    feed(shell, input.as_bytes())
}

#[test]
fn a_file_beyond_the_limit_on_its_size_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let lines: String = (0..20_000).map(|n| format!("{n}\n")).collect();
    let limited = |name: &str, words: &str| {
        let plain = subcommand(name, [] as [&str; 0]);
        let mut shell = Command::new("sh");
        let script = format!("ulimit -f 100; exec \"$0\" {name} {words}");
        shell.args(["-c", &script]).arg(plain.get_program()).current_dir(folder.path());
        shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        feed(shell, lines.as_bytes())
    };
    let output = limited("run", "--key 1 --worker -- cat > out");
    output.expect(255, &["cannot write to standard output: File too large"]);
    let log = limited("run", "--key 1 --log log --worker -- cat");
    log.expect(255, &["cannot write the log log", "File too large"]);
    let journal = limited("produce", "journal:j");
    journal.expect(255, &["was not written"]);
}

const RUN: (&str, &[&str]) = ("run", &["--key", "1", "--", "sh", "-c", "echo ran $0 >&2", "{}"]);
const CONSUME: (&str, &[&str]) =
    ("consume", &["-", "--key", "1", "--", "sh", "-c", "echo ran $0 >&2", "{}"]);

#[test]
fn nothing_starts_while_standard_output_is_closed() {
    for (name, words) in [RUN, CONSUME] {
        for also in ["", "<&-"] {
            let outcome = redirected(name, words, &format!("{also} >&-"), "a\nb\n");
            let said = ["standard output is closed", "redirect it to a file, or to /dev/null"];
            outcome.expect(255, &said);
            assert!(!outcome.stderr.contains("ran"), "{outcome:?}");
        }
    }
    for (name, words) in [
        ("simulate", &["--random", "2"][..]),
        ("calibrate", &["--", "true"]),
        ("lag", &["journal:j"]),
        ("keys", &[]),
        ("store", &["check", "--store", "no.db"]),
    ] {
        redirected(name, words, ">&-", "").expect(255, &["standard output is closed"]);
    }
}

#[test]
fn what_discards_output_on_purpose_is_accepted() {
    for (name, words) in [RUN, CONSUME] {
        for null in [">/dev/null", "1<>/dev/null"] {
            redirected(name, words, null, "a\n").expect(0, &["ran a"]);
        }
    }
}

#[test]
fn closed_standard_input_is_no_empty_input() {
    for (name, words) in [
        RUN,
        CONSUME,
        ("run", &["--key", "1", "-", "--", "true"]),
        ("simulate", &["-"]),
        ("verify", &["-"]),
        ("submit", &["k", "--payload-file", "-"]),
        ("store", &["import", "--store", "no.db"]),
    ] {
        redirected(name, words, "<&-", "").expect(255, &["standard input is closed", "/dev/null"]);
    }
    let named = ["--key", "1", "Cargo.toml", "--", "true"];
    redirected("run", &named, "<&-", "").expect(0, &[]);
    redirected("run", RUN.1, "</dev/null", "").expect(0, &[]);
}

#[test]
fn without_standard_error_a_run_does_the_same_and_nothing_of_it_reaches_the_output() {
    let words = ["--key", "1", "--", "sh", "-c", "echo out $0; echo err >&2; exit 3", "{}"];
    let outcome = redirected("run", &words, "2>&-", "a\n");
    assert_eq!((outcome.code, outcome.stdout.as_str()), (1, "out a\n"));
}
