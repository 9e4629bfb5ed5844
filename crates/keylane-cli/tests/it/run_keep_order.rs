//! `--keep-order`: the output of a run is in the order of the input, whatever the records do and however
//! the run ends.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::thread;

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::common::{feed, finish, hears, keylane, named_pipe, numbers, run};

fn lines(from: u32, to: u32) -> String {
    (from..=to).map(|number| format!("{number}\n")).collect()
}

/// A folder with a named pipe, at which a record waits until the test writes to it.
struct Gate(TempDir);

impl Gate {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        named_pipe(&folder.path().join("gate"));
        Gate(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.path().join(name).to_str().unwrap().to_owned()
    }

    /// Opened for both, so that it waits for no command.
    fn open(&self) -> File {
        let mut gate = OpenOptions::new().read(true).write(true).open(self.path("gate")).unwrap();
        gate.write_all(b"go\n").unwrap();
        gate
    }
}

#[test]
fn no_output_overtakes_that_of_an_earlier_record() {
    let folder = tempfile::tempdir().unwrap();
    let ended = folder.path().join("ended");
    // Each record of the first half waits for the end of all others.
    let script = "test $1 -gt 2 || until test -e ENDED-$((5 - $1)); do :; done; echo $1; echo $1 >&2; touch ENDED-$1";
    let script = script.replace("ENDED", ended.to_str().unwrap());
    let words = ["-k", "-j4", "--key", "1", "--", "sh", "-c", &script, "sh", "{}"];
    let outcome = run(&words, lines(1, 4));
    outcome.expect(0, &[]);
    assert_eq!(
        (outcome.stdout.as_str(), outcome.stderr.as_str()),
        ("1\n2\n3\n4\n", "1\n2\n3\n4\n")
    );
}

/// A command is quiet when its turn comes: its lines appear all the same.
#[test]
fn lines_appear_while_their_command_runs_when_it_has_its_turn() {
    let gate = Gate::new();
    ["gate1", "gate2", "begun"].iter().for_each(|name| named_pipe(Path::new(&gate.path(name))));
    let script =
        "echo begin $1; printf 'end '; test $1 = 1 || echo on > BEGUN; read word < GATE$1; echo $1";
    let script = script.replace("GATE", &gate.path("gate")).replace("BEGUN", &gate.path("begun"));
    let words = ["-k", "--line-buffer", "--tag", "-j2", "--key", "1", "--"];
    let mut run =
        keylane([&words[..], &["sh", "-c", &script, "sh", "{}"]].concat()).spawn().unwrap();
    run.stdin.take().unwrap().write_all(b"1\n2\n").unwrap();
    let mut lines = BufReader::new(run.stdout.take().unwrap()).lines().map(Result::unwrap);
    let open = |name: &str| {
        let mut gate = OpenOptions::new().read(true).write(true).open(gate.path(name)).unwrap();
        gate.write_all(b"go\n").unwrap();
        gate
    };
    let mut begun = String::new();
    BufReader::new(File::open(gate.path("begun")).unwrap()).read_line(&mut begun).unwrap();
    assert_eq!(lines.next().unwrap(), "1\tbegin 1");
    let _first = open("gate1");
    assert_eq!(lines.next().unwrap(), "1\tend 1");
    assert_eq!(lines.next().unwrap(), "2\tbegin 2");
    let _second = open("gate2");
    assert_eq!(lines.collect::<Vec<_>>(), ["2\tend 2"]);
    finish(run).expect(0, &[]);
}

#[test]
fn attempts_with_lines_are_in_order() {
    let script =
        r#"echo "$1 $KEYLANE_ATTEMPT a"; echo "$1 $KEYLANE_ATTEMPT b"; test $KEYLANE_ATTEMPT = 2"#;
    let words = ["-k", "--lb", "-j4", "--attempts", "2", "--backoff", "1ms", "--key", "1", "--"];
    let outcome = run(&[&words[..], &["sh", "-c", script, "sh", "{}"]].concat(), numbers(60));
    outcome.expect(0, &[]);
    let of = |number| ["1 a", "1 b", "2 a", "2 b"].map(|end| format!("{number} {end}\n")).concat();
    assert_eq!(outcome.stdout, (1..=60).map(of).collect::<String>());
}

#[test]
fn thousands_of_records_are_in_order_with_commands_and_with_workers() {
    let command = ["-k", "-j4", "--buffer", "7", "--key", "1", "--", "echo"];
    assert!(run(&command, numbers(500)).expect(0, &[]).stdout == numbers(500));
    let worker = ["-k", "-j4", "--key", "1", "--worker", "--", "cat"];
    assert!(run(&worker, numbers(50_000)).expect(0, &[]).stdout == numbers(50_000));
}

/// Those that fail, have further attempts, are held behind a stopped key, or cannot start.
#[test]
fn records_of_all_ends_leave_no_gap() {
    let script = r#"echo "$1 $KEYLANE_ATTEMPT"; case $1 in *bad*) exit 1;; esac"#;
    let options =
        ["-k", "-j4", "--key", "1", "--attempts", "2", "--backoff", "1ms", "--on-fail", "stop-key"];
    let command = ["--", "sh", "-c", script, "sh", "{}"];
    let words = [&options[..], &command].concat();
    let outcome = run(&words, "a 1\na bad\na 3\nb 4\nc \0\nb 6\n");
    outcome.expect(2, &["record 2 (line 2, key a): exit status 1, in attempt 2; its key stops"]);
    assert_eq!(outcome.stdout, "a 1 1\na bad 1\na bad 2\nb 4 1\nb 6 1\n");
    let words =
        [&["-k", "-j3", "--ndjson", "--key", ".k", "--barrier", "b=1"][..], &["--", "echo", "{n}"]]
            .concat();
    let input = r#"{"k":1,"n":1}
{"k":2}
{"k":1,"n":3,"b":1}
{"k":2,"n":4}
"#;
    let outcome = run(&words, input);
    outcome.expect(1, &["record 2 (line 2, key 2): it has no field `n`"]);
    assert_eq!(outcome.stdout, "1\n3\n4\n");
}

#[test]
fn replaced_records_leave_no_gap() {
    let gate = Gate::new();
    let script = "if test $2 = 1; then echo on > PIPE; read word < GATE; fi; echo $2";
    let script = script.replace("GATE", &gate.path("gate")).replace("PIPE", &gate.path("begun"));
    named_pipe(Path::new(&gate.path("begun")));
    let words =
        ["-k", "-j1", "--latest", "--key", "1", "--", "sh", "-c", &script, "sh", "{1}", "{2}"];
    let mut run = keylane(words).spawn().unwrap();
    let mut input = run.stdin.take().unwrap();
    input.write_all(b"x 1\n").unwrap();
    let mut begun = String::new();
    BufReader::new(File::open(gate.path("begun")).unwrap()).read_line(&mut begun).unwrap();
    input.write_all(b"x 2\nx 3\ny 4\nx 5\n").unwrap();
    drop(input);
    let _open = gate.open();
    let outcome = finish(run);
    outcome.expect(0, &[]);
    let seen: Vec<u32> = outcome.stdout.lines().map(|line| line.parse().unwrap()).collect();
    assert!(seen.is_sorted() && seen.starts_with(&[1]) && seen.ends_with(&[4, 5]), "{seen:?}");
}

#[test]
fn records_run_ahead_by_the_buffer_at_most() {
    let gate = Gate::new();
    // Beyond the fourth, each record needs the end of the first, which comes when three others have begun.
    let script = "case $1 in 1) for i in 2 3 4; do read word < GATE; done; touch ENDED;; \
                  [234]) echo $1 > GATE;; *) test -e ENDED;; esac; echo $1";
    let script = script.replace("GATE", &gate.path("gate")).replace("ENDED", &gate.path("ended"));
    let words = ["-k", "-j4", "--buffer", "4", "--key", "1", "--", "sh", "-c", &script, "sh", "{}"];
    // A pipe of one line each: open all the time, so that no line is lost.
    let _gate = OpenOptions::new().read(true).write(true).open(gate.path("gate")).unwrap();
    let outcome = run(&words, numbers(40));
    outcome.expect(0, &[]);
    assert_eq!(outcome.stdout, numbers(40));
}

#[test]
fn more_output_than_memory_should_hold_waits_in_files() {
    let print = "test $1 != 1 || read word < GATE; head -c 1500000 /dev/zero | tr '\\0' x; echo $1; test $1 != 60 || echo go > GATE";
    let answer = format!("while read -r n; do set -- $n; {print}; done");
    let command = ["--", "sh", "-c", print, "sh", "{}"];
    let worker = ["--worker", "--worker-keys", "any", "--", "sh", "-c", &answer];
    for words in [&command[..], &worker] {
        let gate = Gate::new();
        let words = words.iter().map(|word| word.replace("GATE", &gate.path("gate")));
        let options = ["-k", "-j2", "--key", "1"].map(str::to_owned);
        let words: Vec<_> = options.into_iter().chain(words).collect();
        let words: Vec<_> = words.iter().map(|word| &**word).collect();
        let outcome = run(&words, numbers(60));
        outcome.expect(0, &[]);
        assert_eq!(outcome.stdout.len(), 60 * 1_500_000 + numbers(60).len());
        let ends: Vec<_> =
            outcome.stdout.lines().map(|line| line.trim_start_matches('x')).collect();
        assert_eq!(ends, numbers(60).lines().collect::<Vec<_>>());
    }
}

/// Of four records, the first waits at the gate, and those up to `last` have printed.
fn waiting(gate: &Gate, buffer: &str, last: u32) -> std::process::Child {
    named_pipe(Path::new(&gate.path("begun")));
    let script = "if test $1 = 1; then echo 1 > PIPE; read word < GATE; fi; echo $1; test $1 = 1 || echo $1 > PIPE";
    let script = script.replace("GATE", &gate.path("gate")).replace("PIPE", &gate.path("begun"));
    let words = ["-k", "-j2", "--buffer", buffer, "--key", "1", "--"];
    let mut run =
        keylane([&words[..], &["sh", "-c", &script, "sh", "{}"]].concat()).spawn().unwrap();
    let begun = OpenOptions::new().read(true).write(true).open(gate.path("begun")).unwrap();
    run.stdin.as_mut().unwrap().write_all(numbers(4).as_bytes()).unwrap();
    let mut begun: Vec<_> =
        BufReader::new(begun).lines().take(last as usize).map(Result::unwrap).collect();
    begun.sort_unstable();
    assert_eq!(begun.join("\n") + "\n", lines(1, last));
    run
}

#[test]
fn an_interrupt_shows_the_output_of_all_that_ended() {
    for is_killed in [false, true] {
        let gate = Gate::new();
        let mut run = waiting(&gate, "10", 4);
        let mut said = BufReader::new(run.stderr.take().unwrap());
        kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
        hears(&mut said, "stopping; ");
        let open = (!is_killed).then(|| gate.open());
        if is_killed {
            kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
        }
        let outcome = finish(run);
        let first = if is_killed { 2 } else { 1 };
        assert_eq!((outcome.code, outcome.stdout), (143, lines(first, 4)));
        drop(open);
    }
}

/// The reader waits for room when the run stops.
#[test]
fn an_interrupt_reads_no_further_record() {
    let gate = Gate::new();
    let mut run = waiting(&gate, "2", 2);
    let mut said = BufReader::new(run.stderr.take().unwrap());
    kill_process(Pid::from_child(&run), Signal::TERM).unwrap();
    hears(&mut said, "stopping; ");
    let _open = gate.open();
    let outcome = finish(run);
    assert_eq!((outcome.code, outcome.stdout.as_str()), (143, "1\n2\n"));
    let mut rest = String::new();
    said.read_to_string(&mut rest).unwrap();
    assert_eq!(rest, "");
}

#[test]
fn a_reader_that_has_had_enough_ends_the_run_quietly() {
    for words in [
        &["-k", "--lb", "-j2", "--key", "1", "--", "echo"][..],
        &["-k", "-j2", "--key", "1", "--", "echo"],
        &["-k", "-j2", "--key", "1", "--worker", "--", "cat"],
    ] {
        let mut child = keylane(words).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let source = thread::spawn(move || while stdin.write_all(b"record\n").is_ok() {});
        let mut line = String::new();
        stdout.read_line(&mut line).unwrap();
        drop(stdout);
        let outcome = finish(child);
        assert_eq!((line.as_str(), outcome.code), ("record\n", 141), "{outcome:#?}");
        source.join().unwrap();
    }
}

#[test]
fn a_full_disk_is_named() {
    let full = || File::options().write(true).open("/dev/full").unwrap();
    for form in [&[][..], &["--line-buffer"]] {
        let mut command = keylane([&["-k", "--key", "1"][..], form, &["--", "echo"]].concat());
        command.stdout(full());
        feed(command, b"a\nb\n").expect(255, &["cannot write to standard output"]);
    }
    // The first record holds up output for which the folder of temporary files has no room.
    let gate = Gate::new();
    let script = "ulimit -f 100; exec \"$0\" run -k -j2 --key 1 -- sh -c 'test $1 != 1 || read word < GATE; \
                  head -c 3000000 /dev/zero' sh {}";
    let script = script.replace("GATE", &gate.path("gate"));
    let mut command = std::process::Command::new("sh");
    command.args(["-c", &script, env!("CARGO_BIN_EXE_keylane")]).env("TMPDIR", gate.0.path());
    command.stdin(std::process::Stdio::piped());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut run = command.spawn().unwrap();
    run.stdin.take().unwrap().write_all(b"1\n2\n").unwrap();
    let mut said = BufReader::new(run.stderr.take().unwrap());
    hears(&mut said, "cannot keep what a command prints");
    let _open = gate.open();
    assert_eq!(finish(run).code, 255);
}
