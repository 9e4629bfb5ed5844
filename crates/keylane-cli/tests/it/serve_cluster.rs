//! Servers that share a store in PostgreSQL: a client that knows only one of them is served by the others too, whichever of them is stopped,
//! killed or suspended.

use std::fs;
use std::path::PathBuf;

use crate::common::Outcome;
use crate::common::served::Served;
use keylane_testkit::{PostgresServer, or_skip};
use rustix::process::Signal;
use tempfile::TempDir;

/// The database, and the folders of the servers.
struct Cluster {
    database: PostgresServer,
    folder: TempDir,
}

impl Cluster {
    /// Starts the server with this name. Its first line says where it listens.
    fn server(&self, name: &str) -> Served {
        let folder = self.folder.path().join(name);
        fs::create_dir_all(&folder).unwrap();
        let config = format!(
            "[server]\nlisten = \"127.0.0.1:0\"\nstore = \"{}\"\ndata_folder = \"{}\"\n\
             [kinds.echo]\ncommand = [\"cat\"]\n[kinds.hang]\ncommand = [\"sleep\", \"1000\"]\n",
            self.database.address(),
            folder.display(),
        );
        let path: PathBuf = folder.join("config.toml");
        fs::write(&path, config).unwrap();
        Served::with_config(&path, &[])
    }
}

/// Waits for the next line on standard output with `part` in it.
fn prints(server: &mut Served, part: &str) {
    loop {
        let line = server.line();
        assert!(!line.is_empty(), "{part:?} was never printed");
        if line.contains(part) {
            return;
        }
    }
}

/// Runs a command until the server that it is sent to reaches an owner.
fn until_accepted(server: &Served, words: &[&str]) -> Outcome {
    loop {
        let outcome = server.run(words);
        if outcome.code == 0 {
            return outcome;
        }
        assert!(outcome.stderr.contains("unavailable"), "{outcome:#?}");
    }
}

#[test]
fn a_client_of_one_server_is_served_while_the_others_are_stopped_and_killed() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let cluster = Cluster { database, folder: tempfile::tempdir().unwrap() };
    let first = cluster.server("first");
    let mut front = cluster.server("front");
    prints(&mut front, &format!("the server at http://{} runs the jobs", first.address));
    let submit = ["submit", "echo", "--key", "k", "--payload", "7", "--wait"];
    front.run(&submit).expect(0, &[]);

    first.kill();
    let answer = until_accepted(&front, &submit);
    answer.expect(0, &["succeeded"]);
    prints(&mut front, "dashboard");

    // The killed one comes back, and waits.
    let mut first = cluster.server("first");
    prints(&mut first, &format!("the server at http://{} runs the jobs", front.address));
    first.run(&submit).expect(0, &[]);
    front.signal(Signal::TERM);
    front.end().expect(0, &["stopping"]);
    prints(&mut first, "dashboard");
    first.run(&submit).expect(0, &[]);
    let jobs = first.run(&["status"]);
    assert_eq!(jobs.expect(0, &[]).stdout.matches("succeeded").count(), 4, "{jobs:#?}");
}

/// A suspended owner does not answer, and does not close its connections either.
#[test]
fn a_suspended_owner_is_left_by_all_requests_and_ends_when_it_continues() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let cluster = Cluster { database, folder: tempfile::tempdir().unwrap() };
    let mut first = cluster.server("first");
    let front = cluster.server("front");
    let id = until_accepted(&front, &["submit", "hang", "--key", "k"]).stdout;
    let id = id.split_whitespace().last().unwrap().to_owned();
    first.signal(Signal::STOP);
    // It waits at the suspended one until that is no owner any more.
    let cancelled = until_accepted(&front, &["cancel", &id, "--kill"]);
    cancelled.expect(0, &[]);
    until_accepted(&front, &["submit", "echo", "--key", "k", "--wait"]);
    first.signal(Signal::CONT);
    first.hears("another node has taken the store over");
    assert_eq!(first.end().code, 255);
}

#[test]
fn a_server_that_waits_is_stopped_by_a_signal() {
    let Some(database) = or_skip(PostgresServer::start()) else { return };
    let cluster = Cluster { database, folder: tempfile::tempdir().unwrap() };
    let first = cluster.server("first");
    let front = cluster.server("front");
    until_accepted(&front, &["submit", "echo", "--key", "k"]);
    front.signal(Signal::TERM);
    front.end().expect(0, &["stopping"]);
    first.run(&["submit", "echo", "--key", "k", "--wait"]).expect(0, &[]);
}
