//! Files that revision 46944ce wrote open in this version, and say what they said then.
//!
//! `fixtures/46944ce/make.sh` says what is in them. No test changes them: each works on a copy.

use std::fs;
use std::path::{Path, PathBuf};

use crate::common::served::Served;
use crate::common::{Outcome, finish, subcommand};
use serde_json::Value;

/// The kinds of the fixture's server. Commands that hung or failed then succeed now.
const KINDS: &str = r#"
[kinds.echo]
command = ["cat"]
[kinds.refuse]
command = ["cat"]
[kinds.stop]
command = ["cat"]
attempts = 1
on_fail = "stop_key"
[kinds.hang]
command = ["cat"]
[kinds.remote]
lease = "1h"
attempts = 5
[kinds.sum]
command = ["cat"]
split = { command = ["echo", "[]"] }
fan_in = { command = ["echo", "0"] }
[kinds.later]
command = ["cat"]
attempts = 9
"#;

/// A folder with copies of some of the fixture's files.
struct Copies(tempfile::TempDir);

impl Copies {
    fn of(files: &[&str]) -> Copies {
        let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/46944ce");
        let folder = tempfile::tempdir().unwrap();
        for file in files {
            let name = Path::new(file).file_name().unwrap();
            fs::copy(fixture.join(file), folder.path().join(name)).unwrap();
        }
        Copies(folder)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).to_str().unwrap().to_owned()
    }

    /// Starts a server on the store of this name.
    fn serve(&self, store: &str) -> Served {
        let config = self.path("config.toml");
        let text = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nstore = \"{}\"\n{KINDS}",
            self.text(store)
        );
        fs::write(&config, text).unwrap();
        Served::with_config(&config, &[])
    }

    fn keylane(&self, words: &[&str]) -> Outcome {
        let mut command = subcommand(words[0], &words[1..]);
        command.current_dir(self.0.path());
        finish(command.spawn().unwrap())
    }
}

fn json(outcome: &Outcome) -> Value {
    assert_eq!(outcome.code, 0, "{outcome:#?}");
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|error| panic!("{error}: {outcome:#?}"))
}

/// Waits until a job has succeeded.
fn watch(server: &Served, job: &str) {
    let job = json(&server.run(&["status", job, "--json"]));
    server.run(&["watch", job["id"].as_str().unwrap()]).expect(0, &[]);
}

/// Checks what a server says of the fixture's jobs, keys and schedules, and that unfinished work goes on.
fn check_jobs(server: &Served) {
    let state = |job: &str| json(&server.run(&["status", job, "--json"]))["state"].clone();
    assert_eq!(state("done"), "succeeded");
    assert_eq!(state("summed"), "succeeded");
    assert_eq!(state("failed"), "failed");
    assert_eq!(state("cancelled"), "cancelled");
    assert_eq!(state("scheduled"), "scheduled");
    assert_eq!(state("paused"), "paused");

    let results = server.run(&["results", "done"]);
    results.expect(0, &[]);
    let values: Vec<Value> = results
        .stdout
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["result"].clone())
        .collect();
    assert_eq!(values, [serde_json::json!(1), serde_json::json!({"x": [2]}), "three".into()]);

    // What ran when the files were written is tried again.
    watch(server, "hanging");
    let schedules = server.run(&["schedules"]);
    schedules.expect(0, &[]);
    assert!(schedules.stdout.contains("yearly"), "{schedules:#?}");
}

/// Checks that `keylane store check` finds no damage.
fn check_store(copies: &Copies, store: &str) {
    let outcome = copies.keylane(&["store", "check", "--store", store]);
    outcome.expect(0, &[]);
    assert!(!outcome.stdout.contains("damaged"), "{outcome:#?}");
}

/// Checks that the key whose subtask used its only attempt waits for an operator, and goes on when asked.
fn check_stopped_key(server: &Served) {
    let stopped = json(&server.run(&["status", "stopped", "--json"]));
    assert_eq!(stopped["counts"]["succeeded"], 0, "{stopped}");
    assert_eq!(stopped["waiting_because"][0]["reason"], "key_stopped", "{stopped}");
    server.run(&["keys", "retry-head", "stopped"]).expect(0, &[]);
    watch(server, "stopped");
}

#[test]
fn the_store_that_a_killed_server_left_is_served() {
    let copies =
        Copies::of(&["killed/running.db", "killed/running.db-wal", "killed/running.db-mark"]);
    let server = copies.serve("running.db");
    check_jobs(&server);
    check_stopped_key(&server);
    server.kill();
    check_store(&copies, "running.db");
}

#[test]
fn the_store_that_a_stopped_server_left_is_served() {
    let copies = Copies::of(&["stopped/running.db", "stopped/running.db-mark"]);
    check_store(&copies, "running.db");
    let server = copies.serve("running.db");
    check_jobs(&server);
    check_stopped_key(&server);
    server.kill();
    check_store(&copies, "running.db");
}

#[test]
fn a_backup_is_served() {
    let copies = Copies::of(&["backup.db"]);
    check_store(&copies, "backup.db");
    let server = copies.serve("backup.db");
    check_jobs(&server);
    check_stopped_key(&server);
}

#[test]
fn an_export_is_imported_and_served() {
    let copies = Copies::of(&["export.ndjson"]);
    copies.keylane(&["store", "import", "--store", "new.db", "export.ndjson"]).expect(0, &[]);
    // The export of that version says nothing of attempts, so a stopped key is not known as such.
    check_jobs(&copies.serve("new.db"));
}

#[test]
fn a_group_of_a_journal_goes_on_where_it_was() {
    let copies = Copies::of(&["orders.journal", "orders.journal-mark"]);
    let journal = format!("journal:{}", copies.text("orders.journal"));
    let words = ["consume", &journal, "--group", "billing", "--to-the-end", "--", "echo", "{key}"];
    let rest = copies.keylane(&words);
    // Of 200 records those of k3 were left.
    rest.expect(0, &[]);
    assert_eq!(rest.stdout.lines().collect::<Vec<_>>(), vec!["k3"; 29], "{rest:#?}");
}

#[test]
fn the_progress_in_a_file_goes_on_where_it_was() {
    let copies = Copies::of(&["lines.txt", "lines.txt.keylane"]);
    let file = format!("file:{}", copies.text("lines.txt"));
    let words = ["consume", &file, "--key", "1", "--to-the-end", "--", "echo", "{key}"];
    let rest = copies.keylane(&words);
    // Of 100 lines those of k2 were left.
    rest.expect(0, &[]);
    assert_eq!(rest.stdout.lines().collect::<Vec<_>>(), vec!["k2"; 20], "{rest:#?}");
}
