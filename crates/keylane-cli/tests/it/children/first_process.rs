//! `keylane` as the first process of a container.

use std::io::{BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use keylane_testkit::{Missing, or_skip};
use rustix::process::{Pid, Signal, kill_process};

use super::family::Family;
use crate::common::finish;

/// Words by which `unshare` makes a namespace of processes here: as root, or as one that is root in a namespace of users.
fn unshare() -> Result<Vec<&'static str>, Missing> {
    let words = ["--pid", "--fork", "--kill-child", "--mount-proc"];
    let users = ["--user", "--map-root-user"];
    let ways = [words.to_vec(), [&users[..], &words[..]].concat()];
    let is_allowed = |way: &Vec<&str>| {
        let tried = Command::new("unshare").args(way).arg("true").output();
        tried.is_ok_and(|output| output.status.success())
    };
    let why = "this system allows no namespaces of processes here, neither to root nor by a namespace of users; \
               run it as root, or allow these with `sysctl kernel.unprivileged_userns_clone=1`";
    ways.into_iter().find(is_allowed).ok_or_else(|| Missing::new(why))
}

/// `keylane run` as process 1 of a namespace of its own; none where the system forbids such namespaces.
fn first_process(words: &[&str]) -> Option<Child> {
    let unshare = or_skip(unshare())?;
    let mut command = Command::new("unshare");
    command.args(unshare).args([env!("CARGO_BIN_EXE_keylane"), "run", "--key", "1"]).args(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    Some(command.spawn().unwrap())
}

/// Process 1 of the namespace, by its number out here.
fn inside(unshare: &Child) -> Pid {
    let path = format!("/proc/{0}/task/{0}/children", unshare.id());
    let children = std::fs::read_to_string(path).unwrap();
    Pid::from_raw(children.trim().parse().unwrap()).unwrap()
}

#[test]
fn it_reaps_what_commands_have_left() {
    // An orphan that has ended, and then a look until no such process is left.
    let script = "(sh -c 'echo $$ > /dev/null' &); while grep -q ') Z 1 ' /proc/[0-9]*/stat; do :; done; \
                  cat /proc/1/comm; echo $PPID";
    let Some(mut run) = first_process(&["-j1", "--", "sh", "-c", script]) else { return };
    run.stdin.take().unwrap().write_all(b"a\nb\nc\n").unwrap();
    let outcome = finish(run);
    outcome.expect(0, &[]);
    assert_eq!(outcome.stdout.matches("keylane\n").count(), 3, "{outcome:?}");
    // Process 1 is not the one that starts commands.
    assert!(!outcome.stdout.lines().any(|line| line == "1"), "{outcome:?}");
}

#[test]
fn it_passes_signals_on_and_ends_as_the_program_does() {
    let family = Family::new();
    let script = family.script("", "on").replace("& echo", "& child=$!; echo");
    let script = script.replace(
        "; wait",
        &format!("; read word < {}; kill $child", family.path("gate").display()),
    );
    let Some(mut run) = first_process(&["--", "sh", "-c", &script]) else { return };
    run.stdin.take().unwrap().write_all(b"a\n").unwrap();
    assert_eq!(family.next(), "on");
    kill_process(inside(&run), Signal::TERM).unwrap();
    let mut said = BufReader::new(run.stderr.take().unwrap());
    crate::common::hears(&mut said, "stopping; 1 running may finish");
    std::fs::write(family.path("gate"), "go\n").unwrap();
    let outcome = run.wait().unwrap();
    assert_eq!(outcome.code(), Some(143));
}

#[test]
fn processes_of_a_killed_program_get_a_grace_period() {
    let mut family = Family::new();
    let trap = format!("trap 'echo ended > {}; exit' TERM;", family.path("begun").display());
    let script = format!("{} ", family.script(&trap, "on"));
    let Some(mut run) = first_process(&["--", "sh", "-c", &script]) else { return };
    run.stdin.take().unwrap().write_all(b"a\n").unwrap();
    assert_eq!(family.next(), "on");
    // The program is the child of process 1.
    let first = inside(&run).as_raw_nonzero();
    let children = std::fs::read_to_string(format!("/proc/{first}/task/{first}/children")).unwrap();
    let program = Pid::from_raw(children.trim().parse().unwrap()).unwrap();
    kill_process(program, Signal::KILL).unwrap();
    assert_eq!(family.next(), "ended");
    let mut text = String::new();
    run.stderr.take().unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(run.wait().unwrap().code(), Some(137), "{text}");
    family.wait_until_gone();
}

/// Regression test: the shipped unit for systemd hid the file, and the service did not start.
#[test]
fn a_hidden_boot_id_is_named_with_the_remedy() {
    let Some(unshare) = or_skip(unshare()) else { return };
    let script = r#"mount -t proc -o subset=pid proc /proc && exec "$0" run --key 1 -- true"#;
    let mut command = Command::new("unshare");
    command.args(unshare).args(["sh", "-c", script, env!("CARGO_BIN_EXE_keylane")]);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let outcome = finish(command.spawn().unwrap());
    outcome.expect(
        255,
        &["cannot read /proc/sys/kernel/random/boot_id", "leave out `ProcSubset=pid`"],
    );
}
