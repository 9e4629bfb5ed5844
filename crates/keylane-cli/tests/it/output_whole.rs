//! What a command prints appears whole when it ends, however much it is.

use crate::common::{numbers, run};

#[test]
fn outputs_of_parallel_commands_never_mix() {
    let chatter = "for i in 1 2 3 4 5; do echo $1; done";
    let words = ["-j8", "--key", "1", "--", "sh", "-c", chatter, "sh", "{}"];
    let outcome = run(&words, numbers(60));
    outcome.expect(0, &[]);
    let lines: Vec<_> = outcome.stdout.lines().collect();
    assert_eq!(lines.len(), 300);
    assert!(lines.chunks(5).all(|chunk| chunk.iter().all(|line| *line == chunk[0])));
}

#[test]
fn both_streams_of_a_command_stay_apart_from_those_of_others() {
    let chatter = "echo $1 >&2; echo out; echo $1 >&2";
    let outcome = run(&["-j4", "--key", "1", "--", "sh", "-c", chatter, "sh", "{}"], numbers(20));
    outcome.expect(0, &[]);
    let lines: Vec<_> = outcome.stderr.lines().collect();
    assert!(lines.chunks(2).all(|pair| pair[0] == pair[1]), "{lines:?}");
    assert_eq!(outcome.stdout, "out\n".repeat(20));
}

#[test]
fn output_beyond_what_memory_should_hold_arrives() {
    let flood = r#"i=0; while [ $i -lt 300 ]; do printf "%10000s" "$1"; i=$((i + 1)); done"#;
    let outcome = run(&["-j2", "--key", "1", "--", "sh", "-c", flood, "sh", "{}"], "a\nb\n");
    outcome.expect(0, &[]);
    let runs: Vec<_> = outcome.stdout.split_whitespace().collect();
    assert_eq!((outcome.stdout.len(), runs.len()), (6_000_000, 600));
    assert!(runs.chunks(300).all(|chunk| chunk.iter().all(|word| *word == chunk[0])));
}

#[test]
fn no_control_codes_reach_what_is_no_terminal() {
    let words = ["--progress", "bar", "--key", "1", "--", "false"];
    let outcome = run(&words, numbers(3));
    assert!(!outcome.stderr.contains('\u{1b}'), "{outcome:?}");
    outcome.expect(3, &["3 of 3 records failed, 0 succeeded"]);
}
