//! The first minute of `keylane serve`: it starts without a configuration, and what it prints works as printed.

use std::fs;
use std::path::Path;

use rustix::process::Signal;

use crate::common::served::{Served, refused, run_at};
use crate::common::{finish, subcommand};

/// A server without a file, whose user has this data directory.
fn start(data: &Path, words: &[&str]) -> Served {
    let words = [&["--listen", "127.0.0.1:0"], words].concat();
    Served::spawn(subcommand("serve", words).env("XDG_DATA_HOME", data))
}

/// The lines that a server prints when it is ready, up to the one with the command to try.
fn lines_with_command(server: &mut Served) -> (Vec<String>, String) {
    let mut lines = Vec::new();
    loop {
        let line = server.line();
        assert!(!line.is_empty(), "no command to try: {lines:?}");
        if let Some(command) = line.strip_prefix("keylane: try in another terminal: keylane ") {
            return (lines, command.to_owned());
        }
        lines.push(line);
    }
}

#[test]
fn a_server_without_a_file_prints_a_command_that_works() {
    let data = tempfile::tempdir().unwrap();
    for (words, job, result) in [
        (&[][..], "submit hello ", "\"result\":null"),
        (&["--kind", "greet=echo 'a  b' {key}"], "submit greet ", "a  b ann"),
    ] {
        let mut server = start(data.path(), words);
        let (lines, command) = lines_with_command(&mut server);
        let store = data.path().join("keylane/keylane.db");
        assert_eq!(lines[0], format!("keylane: dashboard: http://{}/", server.address));
        assert_eq!(lines[1], format!("keylane: store: {}", store.display()));
        assert_eq!(lines.len(), if words.is_empty() { 3 } else { 2 }, "{lines:?}");
        assert!(store.exists() && command.starts_with(job), "{command}");
        let submitted = finish(subcommand("submit", command.split(' ').skip(1)).spawn().unwrap());
        let id = submitted.expect(0, &[]).stdout.trim().to_owned();
        let results = server.run(&["results", &id]);
        assert!(results.expect(0, &[]).stdout.contains(result), "{results:?}");
        server.signal(Signal::TERM);
        server.end().expect(0, &[]);
    }
}

/// It started without a word, and the first job failed.
#[test]
fn a_program_that_is_missing_is_reported_at_the_start() {
    let data = tempfile::tempdir().unwrap();
    let mut server = start(data.path(), &["--kind", "nox=no-such-program"]);
    server.hears("kinds.nox: `no-such-program` cannot be run: no folder in PATH has it");
}

#[test]
fn a_reload_without_a_file_changes_nothing_and_says_so() {
    let data = tempfile::tempdir().unwrap();
    let mut server = start(data.path(), &["--kind", "greet=echo {key}"]);
    server.signal(Signal::HUP);
    server.hears("there is no configuration file");
    server.submit(&["greet", "--key", "ann", "--wait"]);
}

#[test]
fn kinds_of_the_command_line_stand_beside_those_of_the_file_and_survive_a_reload() {
    let folder = tempfile::tempdir().unwrap();
    let (config, store) = (folder.path().join("keylane.toml"), folder.path().join("tasks.db"));
    fs::write(&config, "[kinds.a]\ncommand = [\"cat\"]\n").unwrap();
    let twice = refused(&config, &["--kind", "a=cat", "--check"]);
    twice.expect(255, &["the kind `a` is configured twice"]);
    let words = ["--listen", "127.0.0.1:0", "--kind", "b=cat", "--store", store.to_str().unwrap()];
    let mut server = Served::with_config(&config, &words);
    server.signal(Signal::HUP);
    server.hears("reloaded");
    for kind in ["a", "b"] {
        run_at(&server.address, &["submit", kind, "--key", "x", "--wait"]).expect(0, &[]);
    }
}

#[test]
fn the_written_configuration_starts_and_is_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let init = |words: &[&str]| {
        let mut command = subcommand("serve", [&["--init"], words].concat());
        finish(command.current_dir(folder.path()).spawn().unwrap())
    };
    let written = init(&[]);
    let next = "keylane: wrote keylane.toml; next: keylane serve --config keylane.toml\n";
    assert_eq!(written.expect(0, &[]).stdout, next);
    let config = folder.path().join("keylane.toml");
    refused(&config, &["--check"]).expect(0, &[]);
    fs::write(&config, "mine").unwrap();
    init(&[]).expect(255, &["keylane.toml exists already", "--init FILE"]);
    assert_eq!(fs::read_to_string(&config).unwrap(), "mine");
    init(&["other.toml"]).expect(0, &[]);
    init(&["none/other.toml"]).expect(255, &["cannot create none/other.toml"]);
    assert!(folder.path().join("other.toml").exists());
}

#[test]
fn a_kind_that_cannot_be_read_is_refused_with_an_example() {
    for (kind, said) in [("cat", "there is no `=`"), ("a=", "no program"), ("a='b", "quote")] {
        let outcome = finish(subcommand("serve", ["--kind", kind]).spawn().unwrap());
        outcome.expect(255, &["--kind", said]);
    }
}
