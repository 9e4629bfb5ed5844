//! The exit code counts failures as GNU parallel does, and every failure is
//! named with its record, its key and its status.

use crate::common::{numbers, run};

#[test]
fn success_is_zero_and_silent() {
    let outcome = run(&["--key", "1", "--", "true"], numbers(5));
    assert_eq!((outcome.code, outcome.stdout.as_str(), outcome.stderr.as_str()), (0, "", ""));
    assert_eq!(run(&["--key", "1", "--", "false"], "").code, 0);
}

#[test]
fn failures_are_counted_and_named() {
    let odd = ["--key", "1", "--", "sh", "-c", "exit $(($1 % 2 * 7))", "sh", "{}"];
    run(&odd, numbers(6)).expect(
        3,
        &[
            "record 1 (line 1, key 1): exit status 7",
            "record 5 (line 5, key 5): exit status 7",
            "3 of 6 records failed, 3 succeeded",
        ],
    );
}

#[test]
fn a_failure_names_a_long_key_by_its_beginning() {
    let outcome =
        run(&["--key", "1", "--", "sh", "-c", "exit 1", "sh", "{#}"], "k".repeat(100_000));
    outcome.expect(1, &["kkk... of 100000 bytes): exit status 1"]);
    assert!(outcome.stderr.len() < 500, "{}", outcome.stderr.len());
}

#[test]
fn a_hundred_is_the_most_that_is_counted() {
    let words = ["--key", "1", "--progress", "none", "--", "false"];
    assert_eq!(run(&words, numbers(100)).code, 100);
    assert_eq!(run(&words, numbers(101)).code, 101);
    assert_eq!(run(&words, numbers(150)).code, 101);
}

#[test]
fn a_signal_that_ends_a_command_is_named() {
    let outcome = run(&["--key", "1", "--", "sh", "-c", "kill -9 $$"], "x\n");
    outcome.expect(1, &["record 1 (line 1, key x): ended by signal 9 (SIGKILL)"]);
}

#[test]
fn a_command_that_does_not_exist_is_one_error() {
    let outcome = run(&["--key", "1", "--", "no-such-command-here"], numbers(1000));
    outcome.expect(255, &["there is no program `no-such-command-here` in PATH"]);
    assert_eq!(outcome.stderr.lines().count(), 1);
}

#[test]
fn a_script_that_cannot_be_run_ends_the_run_early() {
    use std::os::unix::fs::PermissionsExt;
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    std::fs::set_permissions(&script, PermissionsExt::from_mode(0o755)).unwrap();
    let outcome = run(&["-j2", "--key", "1", "--", script.to_str().unwrap()], numbers(1000));
    outcome.expect(255, &["cannot run", "a script needs a first line"]);
    assert!(outcome.stderr.lines().count() < 10, "{}", outcome.stderr);
}

#[test]
fn wrong_usage_is_255_and_says_what_to_write() {
    for (words, said) in [
        (&["--key", "1"][..], "<COMMAND>"),
        (&["--", "true"], "--key <KEY>"),
        (&["-j", "0%", "--key", "1", "--", "true"], "give a number like 8"),
        (&["-j", "many", "--key", "1", "--", "true"], "give a number like 8"),
        (&["--csv", "--ndjson", "--key", "1", "--", "true"], "cannot be used with"),
        (&["--worker-line", "{}", "--key", "1", "--", "cat"], "--worker"),
        (&["--header", "--key", "1", "--", "true"], "--header is for tables"),
        (&["--key", "/(/", "--", "true"], "unclosed group"),
        (&["--key", "name", "--", "true"], "lines have numbered fields"),
        (&["--key", "1,2", "--", "true"], "write a template, as in '{1}/{2}'"),
        (&["--csv", "--header", "--key", "a,b", "--", "true"], "as in '{a}/{b}'"),
        (&["--key", "1", "--", "echo", ":::", "a", "b"], "`:::` has no meaning here"),
        (&["--key", "1", ":::", "a", "b", "--", "echo"], "`printf '%s\\n' a b | keylane run"),
        (&["--key", "1", "echo"], "write -- before the command"),
        (
            &["--retries", "3", "--key", "1", "--", "true"],
            "in place of '--retries' write '--attempts N'",
        ),
        (&["--halt", "now,fail=1", "--key", "1", "--", "true"], "write '--on-fail stop'"),
    ] {
        run(words, "a\n").expect(255, &[said]);
    }
}

#[test]
fn help_is_no_error() {
    run(&["--help"], "").expect(0, &[]);
}

#[test]
fn a_record_that_no_command_line_can_hold_fails_alone() {
    let mut input = b"a\nb\0c\n".to_vec();
    input.resize(input.len() + (4 << 20), b'x');
    input.extend_from_slice(b"\nd\n");
    let outcome = run(&["--key", "/^./", "--", "echo"], input);
    outcome.expect(
        2,
        &[
            "record 2 (line 2, key b): it has a NUL byte",
            "record 3 (line 3, key x): it is too long",
        ],
    );
    assert_eq!(outcome.sorted(), ["a", "d"]);
}
