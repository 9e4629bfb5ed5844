//! `keylane run --dry-run` prints the commands of a run in the order of the input, and runs nothing.

use std::process::Command;

use crate::common::{feed, keylane, run, subcommand};

#[test]
fn commands_are_printed_in_the_order_of_the_input_and_do_not_run() {
    let folder = tempfile::tempdir().unwrap();
    let words = "--dry-run -j8 --csv --header --key account --log log --trace trace -- touch {account} ran-{amount} {#}";
    let mut command = keylane(words.split(' '));
    command.current_dir(folder.path());
    let outcome = feed(command, b"account,amount\nann,1 2\nben,it's\nann,\n");
    outcome.expect(0, &[]);
    let expected = "touch ann 'ran-1 2' 1\ntouch ben 'ran-it'\"'\"'s' 2\ntouch ann ran- 3\n";
    assert_eq!((&*outcome.stdout, &*outcome.stderr), (expected, ""));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}

/// The lines of a dry run, read by a shell, do what the run does.
#[test]
fn a_shell_runs_what_is_printed() {
    let input = "a b\n'quoted' \"twice\"\n$HOME `date`\n\n*\n\u{e9}\\\n";
    let words = ["-j1", "--key", "1", "--", "printf", "<%s>\n", "{}"];
    let printed = run(&[&["--dry-run"], &words[..]].concat(), input);
    printed.expect(0, &[]);
    let shell = Command::new("sh").arg("-c").arg(&printed.stdout).output().unwrap();
    assert_eq!(String::from_utf8(shell.stdout).unwrap(), run(&words, input).stdout);
}

#[test]
fn lines_of_workers_are_printed() {
    let words = ["--dry-run", "--worker", "--worker-line", "{2}:{1}", "--key", "1", "--", "cat"];
    let outcome = run(&words, "a b\nc d\ne\n");
    outcome.expect(1, &["record 3 (line 3, key e): it has no field"]);
    assert_eq!(outcome.stdout, "b:a\nd:c\n");
}

#[test]
fn errors_are_those_of_a_run() {
    let words = ["--dry-run", "--ndjson", "--key", "a", "--", "echo", "{b}"];
    let outcome = run(&words, "{\"a\":1,\"b\":2}\n{\"a\":1}\n{\"a\":3,\"b\":4}\n");
    outcome.expect(1, &["record 2 (line 2, key 1): it has no field `b`"]);
    assert_eq!(outcome.stdout, "echo 2\necho 4\n");
    let outcome = run(&words, "{\"a\":1,\"b\":2}\n{\n");
    outcome.expect(255, &["standard input:2: not valid JSON"]);
    assert_eq!(outcome.stdout, "echo 2\n");
    let outcome = run(&["--dry-run", "--key", "1", "--", "echo"], "a\0b\n");
    outcome.expect(1, &["record 1 (line 1, key a", "a NUL byte"]);
    let words = ["--dry-run", "--key", "2", "--no-key", "error", "--", "echo"];
    run(&words, "a b\nc\n").expect(255, &["standard input:2: the record has no key"]);
    run(&["--dry-run", "--key", "1", "--", "/no/such/command"], "a\n")
        .expect(255, &["/no/such/command"]);
    run(&["--dry-run", "--plan", "--key", "1", "--", "echo"], "")
        .expect(255, &["cannot be used with"]);
}

/// The reader of the output may leave early, as with `| head -1`.
#[test]
fn a_closed_pipe_ends_it_without_a_message() {
    let mut command = subcommand("run", ["--dry-run", "--key", "1", "--", "echo"]);
    let mut child = command.spawn().unwrap();
    drop(child.stdout.take());
    let mut input = child.stdin.take().unwrap();
    // A write fails as soon as the run has ended.
    while std::io::Write::write_all(&mut input, &b"a\n".repeat(1_000)).is_ok() {}
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(141), &b""[..]));
}
