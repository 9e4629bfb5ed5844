//! With `--worker`, long-lived children answer a line for each line, in order
//! per key; a child that does not is found out, and its records are named.

use std::fs;
use std::io::Write;

use crate::common::{finish, keylane, numbers, run};

fn worker<'w>(options: &[&'w str], command: &[&'w str]) -> Vec<&'w str> {
    [&["--worker", "-j3"], options, &["--"], command].concat()
}

#[test]
fn every_record_is_answered_and_every_key_is_in_order() {
    let input: String = (0..20_000).map(|n| format!("k{} {n}\n", n * n % 11)).collect();
    let outcome = run(&worker(&["--key", "1"], &["cat"]), &input);
    outcome.expect(0, &[]);
    let of = |text: &str, key: &str| -> Vec<String> {
        text.lines().filter(|line| line.split(' ').next() == Some(key)).map(String::from).collect()
    };
    for key in 0..11 {
        let key = format!("k{key}");
        assert!(of(&outcome.stdout, &key) == of(&input, &key), "{key}");
    }
    assert_eq!(outcome.stdout.lines().count(), 20_000);
}

#[test]
fn no_more_children_are_started_than_there_are_slots() {
    let outcome = run(
        &worker(&["--key", "1"], &["sh", "-c", "while read -r x; do echo $$; done"]),
        numbers(2000),
    );
    let mut pids = outcome.expect(0, &[]).sorted();
    pids.dedup();
    assert!(pids.len() <= 3, "{pids:?}");
}

#[test]
fn the_line_can_be_made_of_fields() {
    let options = ["--csv", "--header", "--key", "a", "--worker-line", "{b}:{#}:{key}"];
    let outcome = run(&worker(&options, &["cat"]), "a,b\nx,\"1,5\"\nx,2\n");
    assert_eq!(outcome.expect(0, &[]).stdout, "1,5:1:x\n2:2:x\n");
}

#[test]
fn the_commands_words_are_taken_as_they_are() {
    let outcome = run(&worker(&["--key", "1"], &["awk", "{ print $2; fflush() }"]), "k v\n");
    assert_eq!(outcome.expect(0, &[]).stdout, "v\n");
}

#[test]
fn lines_larger_than_a_pipe_pass() {
    let long = "x".repeat(1 << 20);
    let input = format!("a {long}\nb {long}\na short\n");
    let outcome = run(&worker(&["--key", "1"], &["cat"]), &input);
    let mut expected: Vec<_> = input.lines().collect();
    expected.sort_unstable();
    assert!(outcome.expect(0, &[]).sorted() == expected);
}

#[test]
fn a_record_that_is_more_than_a_line_is_refused_alone() {
    let outcome = run(&worker(&["--csv", "--key", "1"], &["cat"]), "a,\"1\n2\"\nb,3\n");
    outcome.expect(
        1,
        &[
            "record 1 (line 1, key a): its line for the worker would contain a line end",
            "--worker-line",
        ],
    );
    assert_eq!(outcome.stdout, "b,3\n");
}

#[test]
fn a_child_that_dies_takes_only_its_own_records_along() {
    let fragile = r#"while read -r x; do if [ "$x" = 500 ]; then exit 9; fi; echo "$x"; done"#;
    let outcome = run(&worker(&["--key", "1"], &["sh", "-c", fragile]), numbers(1000));
    outcome.expect(
        outcome.code,
        &["record 500 (line 500, key 500): its worker ended without answering it (exit status 9)"],
    );
    let lost = 1000 - outcome.stdout.lines().count();
    assert_eq!(outcome.code as usize, lost.min(101), "{}", outcome.stderr);
    assert_eq!(outcome.stderr.matches("its worker ended without").count(), lost);
}

#[test]
fn a_hot_key_stays_in_order_through_a_death() {
    let fragile = r#"while read -r k x; do if [ "$x" = 5000 ]; then exit 9; fi; echo "$x"; done"#;
    let input: String = (1..=10_000).map(|number| format!("hot {number}\n")).collect();
    let outcome = run(&worker(&["--key", "1"], &["sh", "-c", fragile]), input);
    outcome.expect(outcome.code, &["record 5000 (line 5000, key hot): its worker ended"]);
    let answered: Vec<u32> = outcome.stdout.lines().map(|line| line.parse().unwrap()).collect();
    assert!(
        answered.is_sorted() && answered.first() == Some(&1) && answered.last() == Some(&10_000)
    );
    let lost = 10_000 - answered.len();
    assert_eq!(outcome.stderr.matches("its worker ended without").count(), lost);
}

#[test]
fn a_command_that_never_answers_ends_the_run() {
    let outcome = run(&worker(&["--key", "1"], &["sh", "-c", "exit 3"]), numbers(1000));
    outcome.expect(
        255,
        &[
            "the worker ended 3 times in a row without an answer (exit status 3)",
            "exactly one line",
        ],
    );
}

#[test]
fn too_many_answers_are_a_breach() {
    let twice = r#"while read -r x; do echo "$x"; echo "$x again"; done"#;
    let outcome = run(&["--worker", "-j1", "--key", "1", "--", "sh", "-c", twice], numbers(1));
    outcome.expect(255, &["printed more lines than it was given", "again", "exactly one line"]);
}

#[test]
fn too_few_answers_are_a_breach() {
    let outcome =
        run(&["--worker", "-j1", "--key", "1", "--", "sh", "-c", "cat > /dev/null"], numbers(1));
    outcome.expect(
        255,
        &[
            "record 1 (line 1, key 1): its worker ended without answering it",
            "a worker left 1 of its lines unanswered",
        ],
    );
}

#[test]
fn a_child_that_fails_after_its_last_answer_is_no_success() {
    let outcome = run(&worker(&["--key", "1"], &["sh", "-c", "cat; exit 4"]), "a\n");
    outcome.expect(255, &["a worker failed after its last answer (exit status 4)"]);
    assert_eq!(outcome.stdout, "a\n");
}

#[test]
fn a_worker_that_does_not_exist_is_one_error() {
    run(&worker(&["--key", "1"], &["no-such-worker"]), "a\n")
        .expect(255, &["there is no program `no-such-worker`"]);
}

#[test]
fn records_in_a_slow_child_do_not_wait_behind_it_while_another_is_free() {
    // The first child to get the slow record answers it only when all others
    // have been answered, which the file tells it.
    let folder = tempfile::tempdir().unwrap();
    let [pipe, begun] = ["pipe", "begun"].map(|name| folder.path().join(name));
    for path in [&pipe, &begun] {
        crate::common::named_pipe(path);
    }
    let program = r#"
        while read -r x; do
            case $x in
                slow) echo begun > "$2"; read -r word < "$1" ;;
                last) echo go > "$1" ;;
            esac
            echo "$x"
        done"#;
    let paths = [&pipe, &begun].map(|path| path.to_str().unwrap());
    let words = ["--worker", "--worker-keys", "any", "-j2", "--key", "1", "--"];
    let words = [&words[..], &["sh", "-c", program, "sh"], &paths].concat();
    let mut child = keylane(words).spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(b"slow\n").unwrap();
    // The others come when a child is at it: nothing orders keys, and the last one must not be before it.
    assert_eq!(fs::read_to_string(&begun).unwrap(), "begun\n");
    stdin.write_all(b"1\n2\n3\n4\n5\nlast\n").unwrap();
    drop(stdin);
    assert_eq!(finish(child).expect(0, &[]).stdout.lines().count(), 7);
}
