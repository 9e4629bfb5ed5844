//! A command's end decides the outcome of the attempt, and with the attempt ends all that the command has started.

use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::common::attempts::{
    JOB, ask, attempt, cancellable, lasting, named_pipe, passing, result, traced,
};
use crate::common::{Log, builder, serve};
use keylane_service::handle::{Attempt, CommandHandler, ProcessLimits};
use keylane_service::{Key, Kind};
use tokio::task::spawn_blocking;

fn shell(script: &str) -> CommandHandler {
    CommandHandler::new(["sh", "-c", script])
}

#[tokio::test]
async fn what_it_prints_is_the_result() {
    let printed = async |script: &str| result(ask(&shell(script), attempt("{\"n\":1.50}")).await);
    assert_eq!(printed("cat").await, "{\"n\":1.50}");
    assert_eq!(printed("echo done, all of it").await, "\"done, all of it\"");
    assert_eq!(printed("true").await, "");
    // What it says besides is for people, and no result.
    assert_eq!(printed("echo 7; echo a word >&2").await, "7");
}

#[tokio::test]
async fn it_is_told_what_it_is_about() {
    let told = CommandHandler::new(["printf", "%s|", "a {} {key} {other} {"]);
    let told = result(ask(&told, attempt("[{key}]")).await);
    // Nothing in a payload is taken for a place.
    assert_eq!(told, "\"a [{key}] ann {other} {|\"");
    let script = "echo $KEYLANE_JOB $KEYLANE_KIND $KEYLANE_SUBTASK $KEYLANE_KEY \
                  $KEYLANE_ATTEMPT $KEYLANE_FENCE";
    let told = result(ask(&shell(script), attempt("null")).await);
    assert_eq!(told, format!("\"{JOB} resize 7 ann 2 99\""));
}

/// Variables that each command has.
const OWN: [&str; 8] = [
    "KEYLANE_ATTEMPT",
    "KEYLANE_CHILD_OF",
    "KEYLANE_FENCE",
    "KEYLANE_JOB",
    "KEYLANE_KEY",
    "KEYLANE_KIND",
    "KEYLANE_PAYLOAD_BYTES",
    "KEYLANE_SUBTASK",
];

/// Names of the variables that a command has, beside these.
async fn variables(command: CommandHandler) -> Vec<String> {
    let printed = result(ask(&command, attempt("null")).await);
    let printed: String = serde_json::from_str(&printed).unwrap();
    let name = |line: &str| line.split_once('=').map(|(name, _)| name.to_owned());
    let mut names: Vec<_> = printed.lines().filter_map(name).collect();
    // Those of the attempt and of its process group. All others of this name, such as the server's token, are the server's.
    names.retain(|name| !OWN.contains(&&**name));
    names.sort_unstable();
    names
}

#[tokio::test]
async fn it_gets_no_more_of_the_servers_environment_than_it_needs() {
    let env = || CommandHandler::new(["env"]);
    let ours: Vec<_> =
        std::env::vars_os().filter_map(|(name, _)| name.into_string().ok()).collect();
    let is_ours = |name: &&str| ours.iter().any(|other| other == name);
    // Cargo gives each test some, so that there is something to be left out.
    assert!(is_ours(&"CARGO_MANIFEST_DIR"));
    let mut some: Vec<_> = ["HOME", "LANG", "PATH", "TZ"].into_iter().filter(is_ours).collect();
    some.sort_unstable();
    assert_eq!(variables(env()).await, some);
    assert_eq!(variables(env().environment(["CARGO_MANIFEST_DIR"])).await, ["CARGO_MANIFEST_DIR"]);
    let all = variables(env().inherit_environment()).await;
    assert!(all.iter().any(|name| name == "CARGO_MANIFEST_DIR"), "{all:?}");
    // Secrets of a server have names like those of an attempt.
    if std::env::var_os("KEYLANE_TOKEN").is_none() {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        let test = "handler_command::it_gets_no_more_of_the_servers_environment_than_it_needs";
        again.args([test, "--exact"]).env("KEYLANE_TOKEN", "secret").env("KEYLANE_LOG", "debug");
        let again = again.output().unwrap();
        let said = String::from_utf8_lossy(&again.stdout);
        assert!(again.status.success() && said.contains("1 passed"), "{said}");
    }
}

#[tokio::test]
async fn a_key_is_not_an_option_of_the_command() {
    let option = || Attempt { keys: vec![Key::new("--version")], ..attempt("-5") };
    let said = lasting(ask(&CommandHandler::new(["ls", "{key}"]), option()).await);
    assert!(said.contains("put the word `--` before `{key}`"), "{said}");
    lasting(ask(&CommandHandler::new(["expr", "{}"]), option()).await);
    let told = ask(&CommandHandler::new(["printf", "--", "{key}"]), option()).await;
    assert_eq!(result(told), "\"--version\"");
}

#[tokio::test]
async fn it_has_the_trace_of_its_job_and_no_other() {
    let script = "echo ${TRACEPARENT-none} ${TRACESTATE-none}";
    let told = result(ask(&shell(script), traced("null")).await);
    assert_eq!(told, "\"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01 a=1\"");
    assert_eq!(result(ask(&shell(script), attempt("null")).await), "\"none none\"");
    // A parent that the server itself was started with is of another trace: the same in a process that has one.
    if std::env::var_os("TRACEPARENT").is_none() {
        let mut again = std::process::Command::new(std::env::current_exe().unwrap());
        again.args(["handler_command::it_has_the_trace_of_its_job_and_no_other", "--exact"]);
        let again = again.env("TRACEPARENT", "ours").env("TRACESTATE", "ours").output().unwrap();
        let said = String::from_utf8_lossy(&again.stdout);
        assert!(again.status.success() && said.contains("1 passed"), "{said}");
    }
}

#[tokio::test]
async fn its_status_says_whether_another_attempt_could_help() {
    let of = async |script: &str| ask(&shell(script), attempt("null")).await;
    assert_eq!(lasting(of("echo not a picture >&2; exit 65").await), "it refused: not a picture");
    assert_eq!(passing(of("echo no room >&2; exit 1").await), "exit status 1: no room");
    assert_eq!(passing(of("exit 64").await), "exit status 64");
    assert_eq!(passing(of("kill -9 $$").await), "ended by signal 9");
    // What it printed counts only with success.
    assert_eq!(passing(of("echo 7; exit 3").await), "exit status 3");
    // Of much that it says the end is kept, where the reason mostly is.
    let much = "i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done >&2; exit 1";
    let said = passing(of(much).await);
    assert!(said.ends_with("line 1999") && said.len() < 2200, "{said}");
    // A program that is not there won't be next time.
    let missing = ask(&CommandHandler::new(["/nowhere/at-all"]), attempt("null")).await;
    assert!(lasting(missing).contains("not run"));
}

#[tokio::test]
async fn pipes_that_are_full_or_not_read_hold_nobody_up() {
    // Far more than a pipe holds, in both directions at once.
    let large = format!("\"{}\"", "x".repeat(3_000_000));
    assert_eq!(result(ask(&shell("cat"), attempt(&large)).await), large);
    assert_eq!(result(ask(&shell("echo 1"), attempt(&large)).await), "1");
    let both = "head -c 1000000 /dev/zero | tr '\\0' e >&2; echo 2";
    assert_eq!(result(ask(&shell(both), attempt("null")).await), "2");
    // More than a result may have: it is read to its end, so that it ends, and refused.
    let much = "head -c 17000000 /dev/zero | tr '\\0' 1; echo it has ended >&2";
    let said = lasting(ask(&shell(much), attempt("null")).await);
    assert!(said.contains("16777216 bytes"), "{said}");
}

#[tokio::test]
async fn its_input_is_whole_before_it_starts() {
    // More than a pipe holds: through a pipe it would come in parts, and end early if the server died.
    let large = format!("\"{}\"", "x".repeat(3_000_000));
    let script = "test -f /dev/stdin && stat -Lc %s /dev/stdin; echo $KEYLANE_PAYLOAD_BYTES; \
                  wc -c < /dev/stdin; (echo more >&0) 2> /dev/null || echo sealed";
    let told = result(ask(&shell(script), attempt(&large)).await);
    assert_eq!(told, "\"3000002\\n3000002\\n3000002\\nsealed\"");
}

#[tokio::test]
async fn each_limit_holds_for_its_process() {
    const MIB: u64 = 1024 * 1024;
    let script = "ulimit -v; ulimit -t; ulimit -n; ulimit -f";
    let limited = shell(script).limits(ProcessLimits {
        memory_bytes: Some(512 * MIB),
        cpu_seconds: Some(60),
        open_files: Some(64),
        file_bytes: Some(MIB),
    });
    let told = result(ask(&limited, attempt("null")).await);
    // The shell counts memory by 1 KiB and files by 512 bytes.
    assert_eq!(told, format!("\"{}\\n60\\n64\\n{}\"", 512 * 1024, 2048));
    // And each alone leaves the others as they are.
    let files = shell("ulimit -n; ulimit -f")
        .limits(ProcessLimits { open_files: Some(77), ..ProcessLimits::default() });
    let plain = result(ask(&shell("ulimit -n; ulimit -f"), attempt("null")).await);
    let (_, of_files) = plain.split_once("\\n").unwrap();
    assert_eq!(result(ask(&files, attempt("null")).await), format!("\"77\\n{of_files}"));
}

/// Pipes by which a command says that it has begun, and is waited for.
struct Pipes {
    folder: tempfile::TempDir,
    begun: BufReader<File>,
}

fn open(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).open(path).unwrap()
}

impl Pipes {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for pipe in ["begun", "alive", "gate"] {
            named_pipe(&folder.path().join(pipe));
        }
        let begun = open(&folder.path().join("begun"));
        Pipes { folder, begun: BufReader::new(begun) }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A command that has a child with a child, all of which hold `alive` open, and says that it has begun.
    fn family(&self, before: &str, after: &str) -> CommandHandler {
        let folder = self.folder.path().display();
        shell(&format!(
            "{before}; exec 3<> {folder}/alive; sh -c 'sleep 1000 & wait' & \
             echo begun > {folder}/begun; {after}"
        ))
    }

    async fn wait_until_it_has_begun(mut self) -> Self {
        spawn_blocking(move || {
            let mut line = String::new();
            self.begun.read_line(&mut line).unwrap();
            self
        })
        .await
        .unwrap()
    }

    /// Waits until no process holds `alive` open any more.
    async fn wait_until_nobody_is_left(&self) {
        let path = self.path("alive");
        let wait = spawn_blocking(move || {
            let ours = open(&path);
            let mut alive = File::open(&path).unwrap();
            drop(ours);
            assert_eq!(alive.read(&mut [0]).unwrap(), 0);
        });
        wait.await.unwrap();
    }
}

#[tokio::test]
async fn what_it_leaves_running_ends_with_it() {
    let pipes = Pipes::new();
    let answer = ask(&pipes.family(":", "echo 5"), attempt("null")).await;
    assert_eq!(result(answer), "5");
    pipes.wait_until_nobody_is_left().await;
}

#[tokio::test]
async fn one_that_is_told_to_end_may_say_what_came_of_it() {
    let pipes = Pipes::new();
    let (attempt, cancel) = cancellable("null");
    let polite = pipes.family("trap 'echo 8; exit 0' TERM", "wait");
    let answer = tokio::spawn(ask(&polite, attempt));
    let pipes = pipes.wait_until_it_has_begun().await;
    cancel.cancel();
    assert_eq!(result(answer.await.unwrap()), "8");
    pipes.wait_until_nobody_is_left().await;
}

/// It takes the five seconds that a process has after SIGTERM.
#[tokio::test]
async fn one_that_does_not_listen_is_killed_with_its_children() {
    let pipes = Pipes::new();
    let (attempt, cancel) = cancellable("null");
    let deaf = pipes.family("trap '' TERM", "while :; do wait; done");
    let answer = tokio::spawn(ask(&deaf, attempt));
    let pipes = pipes.wait_until_it_has_begun().await;
    cancel.cancel();
    let said = passing(answer.await.unwrap());
    assert!(said.contains("was killed"), "{said}");
    pipes.wait_until_nobody_is_left().await;
}

/// The service gives up on an attempt after a while, whatever the handler does: by dropping it.
#[tokio::test]
async fn one_whose_attempt_is_dropped_ends_with_its_children() {
    let pipes = Pipes::new();
    let answer = tokio::spawn(ask(&pipes.family("trap '' TERM", "wait"), attempt("null")));
    let pipes = pipes.wait_until_it_has_begun().await;
    answer.abort();
    pipes.wait_until_nobody_is_left().await;
}

/// A process that leaves its group keeps what it has inherited open. Its command's result was then refused for
/// good, as one that was too long, though it was there. It takes the five seconds that the rest of it has.
#[tokio::test]
async fn a_daemon_that_it_starts_does_not_cost_it_its_result() {
    let ended = async |then: &str| {
        let pipes = Pipes::new();
        let folder = pipes.folder.path().display();
        // It has left the group before the command ends.
        let daemon = format!(
            "setsid sh -c 'echo left > {folder}/begun; read word < {folder}/gate' & \
             read left < {folder}/begun; {then}"
        );
        let answer = ask(&shell(&daemon), attempt("null")).await;
        let mut gate = open(&pipes.path("gate"));
        gate.write_all(b"end\n").unwrap();
        (answer, gate, pipes)
    };
    let (well, ill) =
        tokio::join!(ended("echo 9; echo a word >&2"), ended("echo a word >&2; exit 4"));
    assert_eq!(result(well.0), "9");
    assert_eq!(passing(ill.0), "exit status 4: a word");
}

/// The kind's time-out, through the service: the command is told, and what it then says counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_time_out_tells_the_command_to_end() {
    let folder = tempfile::tempdir().unwrap();
    let late = Kind {
        timeout: Some(Duration::from_secs(1)),
        backoff: keylane::Backoff { first: Duration::from_millis(1), ..Default::default() },
        // On a busy machine the time may be up before there is anybody to listen.
        attempts: 100,
        ..Kind::new(shell("trap 'echo \\\"told\\\"; exit 0' TERM; sleep 1000 & wait"))
    };
    let deaf = Kind { attempts: 2, work: Kind::new(shell("sleep 1000")).work, ..late.clone() };
    let service = builder(folder.path(), &Log::default()).kind("late", late).kind("deaf", deaf);
    let service = service.start().await.unwrap();
    let (_server, client) = serve(&service).await;
    let late = client.submit(r#"{"kind":"late","payload":1}"#).await;
    let deaf = client.submit(r#"{"kind":"deaf","payload":1}"#).await;
    assert_eq!(client.wait(&late).await["state"], "succeeded");
    let results = client.get(&format!("/v1/jobs/{late}/results")).await.json();
    assert_eq!(results["items"][0]["result"], "told");
    let failed = client.wait(&deaf).await;
    assert_eq!((&failed["state"], &failed["counts"]["failed"]), (&"failed".into(), &1.into()));
    let subtask = client.get(&format!("/v1/jobs/{deaf}/subtasks/0")).await.json();
    assert_eq!(subtask["attempts"], 2, "{subtask}");
}
