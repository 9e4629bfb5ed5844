//! `keylane serve` with commands, workers, commands under leases and a remote worker is killed at many moments, with and without its guard, as are
//! its child processes. The subtasks of a key run in order and one at a time, no accepted subtask is lost, and
//! no process of a command is left. All of that is judged by what the subtasks have written. `KEYLANE_KILLS` says how
//! many kills there are. The same with a store in PostgreSQL, where another server takes over after each kill.

use std::env;
use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::process::Child;
use std::sync::Arc;
use std::thread;

use rustix::process::Signal;

use super::clients::{Clients, KEYS, KINDS, run_remote, submit};
use super::dice::Dice;
use super::family::{Family, end_by, kill_with_guard};
use super::subtasks::{Faults, Step, configure, judge};
use crate::common::subcommand;

/// Lines of the configuration for a store in a file.
const IN_FILE: &str = r#"store = "DIR/tasks.db""#;

/// Starts a server with these lines of the configuration for its store. It has not said its address yet.
fn start(family: &Family, life: u64, store: &str) -> Server {
    configure(family, life, &store.replace("NODE", &(life / 2).to_string()));
    let path = family.path(&format!("config-{life}.toml"));
    let log = OpenOptions::new().create(true).append(true).open(family.path("stderr")).unwrap();
    let mut command = subcommand("serve", ["--config", path.to_str().unwrap()]);
    Server(command.env("TMPDIR", family.folder()).stderr(log).spawn().unwrap())
}

/// A server that does not outlive a failed test.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It has ended, unless the test has failed.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits for the address of a server.
fn address_of(server: &mut Server, family: &Family) -> String {
    let mut line = String::new();
    BufReader::new(server.0.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let stderr = || fs::read_to_string(family.path("stderr")).unwrap();
    assert!(line.starts_with("keylane: listening on http://"), "{line:?} {}", stderr());
    line.trim_end().rsplit("//").next().unwrap().to_owned()
}

/// Runs a server until some of its subtasks have begun, and kills it. Every fifth of them is killed itself.
fn live(
    family: &Family,
    clients: &Clients,
    (life, store): (u64, &str),
    dice: &mut Dice,
    faults: &mut Faults,
) {
    let mut server = start(family, life, store);
    // One of eight ends while it starts.
    if dice.roll(8) > 0 {
        clients.serve(vec![(life, address_of(&mut server, family))]);
        let mut left = dice.roll(30);
        while left > 0 {
            let step = Step::of(&family.next(), clients);
            if step.life != life || step.has_ended {
                continue;
            }
            left -= 1;
            if dice.roll(5) == 0 && step.kill(family) {
                faults.killed.extend(step.places.into_iter().map(|(key, one)| (key, one, life)));
            }
        }
    }
    // Clients find out by broken connections that it is gone.
    if dice.roll(2) == 0 && clients.has_server() {
        kill_with_guard(server.0.id());
        server.0.wait().unwrap();
    } else {
        end_by(&mut server.0, Signal::KILL);
    }
    clients.serve(Vec::new());
}

pub(super) fn kills_or(default: u64) -> u64 {
    env::var("KEYLANE_KILLS").map_or(default, |kills| kills.parse().expect("it is a number"))
}

#[test]
fn a_server_that_is_killed_keeps_order_and_loses_nothing() {
    run_with_kills(kills_or(8), IN_FILE);
}

/// Every second server has another folder than the killed one, as if it were on another machine, and takes over when that has
/// been silent for some seconds; the others go on at once.
#[cfg(feature = "postgres")]
#[test]
fn a_server_on_postgres_that_takes_over_from_a_killed_one_keeps_order_and_loses_nothing() {
    use keylane_testkit::{PostgresServer, or_skip};
    let Some(server) = or_skip(PostgresServer::start()) else { return };
    let folder = "data_folder = \"DIR/node-NODE\"";
    run_with_kills(kills_or(4), &format!("store = \"{}\"\n{folder}", server.address()));
}

/// Kills servers with this store while clients work with them, and judges what the subtasks have written.
fn run_with_kills(kills: u64, store: &str) {
    let mut dice = Dice::new(3);
    let mut family = Family::new();
    let clients = Arc::new(Clients::default());
    let (submitter, worker) = (Arc::clone(&clients), Arc::clone(&clients));
    let folder = family.folder().to_owned();
    let submitter = thread::spawn(move || submit(&submitter, Dice::new(4)));
    let worker = thread::spawn(move || run_remote(&worker, &folder));

    let mut faults = Faults::default();
    for life in 1..=kills {
        live(&family, &clients, (life, store), &mut dice, &mut faults);
    }
    let mut server = start(&family, kills + 1, store);
    let address = address_of(&mut server, &family);
    clients.serve(vec![(kills + 1, address)]);
    clients.accept_no_more();
    submitter.join().unwrap();
    while !clients.all_ended() {
        Step::of(&family.next(), &clients);
    }
    clients.check_books();
    clients.stop();
    worker.join().unwrap();
    end_by(&mut server.0, Signal::TERM);
    family.wait_until_gone();
    family.assert_no_overlap();
    let submitted = clients.submitted();
    assert!(submitted.len() == KEYS as usize, "{submitted:?}");
    for (key, total) in &submitted {
        judge(&family, (key, *total), &faults, &clients.leased(key));
    }
    assert_eq!(KINDS.len(), 4);
    let total: u64 = submitted.values().sum();
    println!("{kills} kills, {} kills of children, {total} steps", faults.killed.len());
}
