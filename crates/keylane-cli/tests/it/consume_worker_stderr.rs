//! Dead letters of `keylane consume --worker` have what the worker wrote to standard error during the attempt.

use std::fs;

use crate::common::{Outcome, feed, named_pipe, subcommand};

/// The failure in each dead letter, and what was printed.
fn failures(words: &[&str], worker: &str, input: &str) -> (Vec<String>, Outcome) {
    let folder = tempfile::tempdir().unwrap();
    let base = ["-", "--order", "none", "-j", "1", "--worker", "--backoff", "1ms"];
    let letters = ["--on-fail", "dead-letter", "--dead-letters", "file:dead"];
    let words = [&base[..], &letters, words, &["--", "sh", "-c", worker]].concat();
    let mut command = subcommand("consume", words);
    command.current_dir(folder.path());
    let outcome = feed(command, input.as_bytes());
    let dead = fs::read_to_string(folder.path().join("dead")).unwrap();
    let failure = |line: &str| {
        let letter: serde_json::Value = serde_json::from_str(line).unwrap();
        letter["failure"].as_str().unwrap().to_owned()
    };
    (dead.lines().map(failure).collect(), outcome)
}

const ENDED: &str = "its worker ended without answering it";

#[test]
fn a_letter_has_the_text_of_its_attempt_and_of_no_other() {
    let worker = "while read -r line; do
        echo about $line >&2
        case $line in
            bad) echo no such client >&2; exit 3;;
        esac
        echo $line
    done";
    let (failures, outcome) = failures(&["--attempts", "2"], worker, "good\nbad\nfine\n");
    assert_eq!(failures, [format!("{ENDED} (exit status 3): about bad\nno such client")]);
    // And all of it is passed on.
    for said in ["about good\n", "about bad\nno such client\n", "about fine\n"] {
        assert!(outcome.stderr.contains(said), "{outcome:?}");
    }
    outcome.expect(1, &["attempt 2: its worker ended without answering it (exit status 3); sent"]);
    assert_eq!(outcome.sorted(), ["fine", "good"]);
}

#[test]
fn a_long_text_is_cut_at_its_beginning() {
    let worker = "read -r line; seq 100000 >&2; echo no such client >&2; exit 3";
    let (failures, outcome) = failures(&["--attempts", "1"], worker, "bad\n");
    let [failure] = &failures[..] else { panic!("{failures:?}") };
    assert!(failure.starts_with(&format!("{ENDED} (exit status 3): ")), "{failure}");
    assert!(failure.ends_with("\n100000\nno such client") && failure.len() < 2200, "{failure}");
    assert!(outcome.stderr.contains("\n50000\n"), "all is passed on");
}

/// The worker closes its output first, and then writes more than a pipe takes.
#[test]
fn what_follows_the_end_of_the_output_belongs_to_the_attempt() {
    let worker = "read -r line; exec >&-; seq 100000 >&2; echo the reason >&2; exit 3";
    let (failures, _) = failures(&["--attempts", "1"], worker, "bad\n");
    assert!(failures[0].ends_with("\n100000\nthe reason"), "{failures:?}");
}

/// A process that the worker leaves behind keeps its standard error open.
#[test]
fn a_process_that_outlives_the_worker_does_not_keep_the_letter_back() {
    let folder = tempfile::tempdir().unwrap();
    let [ready, pipe] = ["ready", "pipe"].map(|name| folder.path().join(name));
    named_pipe(&ready);
    named_pipe(&pipe);
    // The worker ends when the other process has left its group, with which that would end.
    let outlives = format!("echo > {}; exec cat {} > /dev/null", ready.display(), pipe.display());
    let worker = format!(
        "read -r line; echo the reason >&2; setsid sh -c '{outlives}' & read -r it < {}; exit 3",
        ready.display()
    );
    let (failures, _) = failures(&["--attempts", "1"], &worker, "bad\n");
    assert_eq!(failures, [format!("{ENDED} (exit status 3): the reason")]);
    // It has waited for this, and ends.
    fs::write(pipe, "").unwrap();
}

#[test]
fn a_worker_that_is_ended_for_its_silence_leaves_its_text() {
    let worker = "read -r line; echo waiting for $line >&2; exec sleep 1000";
    let words = ["--attempts", "1", "--worker-timeout", "300ms"];
    let (failures, _) = failures(&words, worker, "bad\n");
    assert_eq!(failures, [format!("{ENDED} (ended by signal 9 (SIGKILL)): waiting for bad")]);
}
