//! A store in PostgreSQL has one owner, loses nothing that it has acknowledged, and goes on after its database has been away.

use std::io::{BufRead, BufReader, Write};
use std::process::Stdio;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::{ENDS, Node, check_all_ended, end, end_all_while};
use crate::store_support::{accepted, waiting};
use keylane_service::store::{PostgresSettings, RecoveredJobs, Store, StoreSettings, WriteError};
use keylane_testkit::{PAUSE, PostgresServer, or_skip};

fn open_in_background(node: Node) -> mpsc::Receiver<(Store, RecoveredJobs)> {
    let (opened, wait) = mpsc::channel();
    thread::spawn(move || drop(opened.send(node.open())));
    wait
}

#[test]
fn a_second_node_opens_the_store_when_the_first_one_has_closed_it() {
    let Some(server) = or_skip(PostgresServer::start()) else { return };
    let (first, _) = Node::new(&server).open();
    let job = accepted(&first, 3);
    let boot = first.boot();
    let second = open_in_background(Node::new(&server));
    // The first one still works, although the other one looks at it.
    assert!(second.recv_timeout(Duration::from_millis(700)).is_err());
    end(&first, job).unwrap();
    assert!(first.may_start_work());
    drop(first);
    let (second, mut recovered) = second.recv().unwrap();
    assert!(second.boot() > boot);
    assert!(recovered.was_clean());
    let job = recovered.next_job().unwrap().unwrap();
    assert_eq!(waiting(&job), [(1, 0), (2, 0)]);
}

#[test]
fn a_node_whose_store_was_taken_over_writes_nothing_more() {
    let Some(server) = or_skip(PostgresServer::start()) else { return };
    let (first, _) = Node::new(&server).open();
    let job = accepted(&first, 3);
    // As if its heartbeats had not reached the database for long.
    let taken = "UPDATE keylane.term SET node = NULL; DELETE FROM keylane.heartbeat";
    let _ = server.query(taken);
    let (second, mut recovered) = Node::new(&server).open();
    assert!(
        matches!(end(&first, job), Err(WriteError::Failed { cause }) if cause.contains("another node"))
    );
    assert!(first.lost().is_some());
    assert!(!recovered.was_clean());
    assert_eq!(waiting(&recovered.next_job().unwrap().unwrap()).len(), 3);
    end(&second, job).unwrap();
    assert!(second.may_start_work() && second.lost().is_none());
    drop(first);
    assert_eq!(second.check().unwrap().damage, []);
    end(&second, accepted(&second, 2)).unwrap();
}

/// Its heartbeat tells it.
#[test]
fn a_node_that_writes_nothing_learns_that_its_store_was_taken_over() {
    let Some(server) = or_skip(PostgresServer::start()) else { return };
    let (first, _) = Node::new(&server).open();
    assert!(first.lost().is_none());
    let _ = server.query("UPDATE keylane.term SET node = NULL; DELETE FROM keylane.heartbeat");
    let (_second, _) = Node::new(&server).open();
    while first.lost().is_none() {
        thread::sleep(PAUSE);
    }
    assert!(!first.may_start_work());
}

/// As a server's, that stood still in the midst of a write.
#[test]
fn a_transaction_that_holds_the_owners_row_delays_no_takeover() {
    let Some(server) = or_skip(PostgresServer::start()) else { return };
    drop(Node::new(&server).open());
    let mut holds = server.psql();
    holds.arg("-XAtq").arg(server.address()).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holds = holds.stderr(Stdio::null()).spawn().unwrap();
    let mut input = holds.stdin.take().unwrap();
    writeln!(input, "BEGIN; SELECT 'held' FROM keylane.term FOR SHARE;").unwrap();
    let mut answers = BufReader::new(holds.stdout.take().unwrap()).lines();
    assert!(answers.any(|line| line.unwrap().contains("held")));
    let (store, _) = Node::new(&server).open();
    end(&store, accepted(&store, 1)).unwrap();
    // Its connection has been ended, and psql with it.
    let _ = writeln!(input, "COMMIT;");
    drop(input);
    assert!(!holds.wait().unwrap().success());
}

#[test]
fn writes_are_refused_while_the_database_is_away_and_succeed_again_afterwards() {
    let Some(mut server) = or_skip(PostgresServer::start_with(&["fsync=on"])) else { return };
    let node = Node::new(&server);
    let (store, _) = node.open();
    let (mut jobs, mut refused) = (Vec::new(), 0);
    for _ in 0..5 {
        let job = accepted(&store, 2);
        jobs.push(job);
        server.kill();
        let other = store.clone();
        let write = thread::spawn(move || end(&other, job));
        while store.job(job).is_ok() {}
        server.restart();
        // It was refused at once, unless its connection has ended only after it was sent: then that it was not written is known when
        // the server is back.
        match write.join().unwrap() {
            Err(WriteError::Busy) => {
                refused += 1;
                // The connections of the store find by themselves that the server is back.
                while end(&store, job) == Err(WriteError::Busy) {}
            }
            written => written.unwrap(),
        }
    }
    assert!(refused > 0);
    assert_eq!(store.failure(), None);
    assert_eq!(store.check().unwrap().damage, []);
    drop(store);
    let (_store, mut recovered) = node.open();
    for job in jobs {
        let found = recovered.next_job().unwrap().unwrap();
        assert_eq!((found.job.number, waiting(&found)), (job, vec![(1, 0)]));
    }
}

/// Number of subtasks whose ends are acknowledged between two kills.
const BETWEEN_KILLS: usize = 300;

/// Nothing acknowledged is missing and nothing refused is there, wherever the server is killed.
#[test]
fn a_server_that_is_killed_under_load_has_each_acknowledged_change_once() {
    let Some(mut server) = or_skip(PostgresServer::start_with(&["fsync=on"])) else { return };
    let node = Node::new(&server);
    let (store, _) = node.open();
    let job = accepted(&store, ENDS);
    let ended = end_all_while(&store, job, BETWEEN_KILLS, || {
        server.kill();
        server.restart();
    });
    ended.unwrap();
    check_all_ended(&node, store);
}

#[test]
fn what_cannot_be_a_store_is_refused_with_the_reason() {
    let Some(server) = or_skip(PostgresServer::start()) else { return };
    let refused = |address: String| {
        let postgres: PostgresSettings = address.parse().unwrap();
        let settings =
            StoreSettings { postgres: Some(postgres.without_waits()), ..StoreSettings::default() };
        let folder = tempfile::tempdir().unwrap();
        let opened = Store::open(folder.path().join("node"), &settings);
        opened.err().map(|error| error.to_string()).unwrap_or_default()
    };
    let missing = refused(server.address_of("none"));
    assert!(missing.contains("\"none\" does not exist"), "{missing}");
    let port = server.port();
    let _ = server.query("CREATE ROLE guest LOGIN");
    let guest = refused(format!("postgres://guest@127.0.0.1:{port}/postgres?sslmode=disable"));
    assert!(guest.contains("permission denied"), "{guest}");
    let tls = refused(format!("postgres://keylane@127.0.0.1:{port}/postgres?sslmode=require"));
    assert!(tls.contains("TLS"), "{tls}");
    let away = refused("postgres://keylane@127.0.0.1:1/postgres".into());
    assert!(away.contains("refused"), "{away}");
    let (store, _) = Node::new(&server).open();
    let used = refused(server.address());
    assert!(used.contains("a server works with it"), "{used}");
    drop(store);
    // A later version that this one can work with, while the servers are replaced one by one.
    let _ = server.query("UPDATE keylane.layout SET version = 99");
    drop(Node::new(&server).open());
    let _ = server.query("UPDATE keylane.layout SET readable_by = 99");
    let later = refused(server.address());
    assert!(later.contains("version 99, of a later keylane"), "{later}");
    let _ = server.query("UPDATE keylane.layout SET readable_by = 1");
    let _ = server.query("ALTER DATABASE postgres SET default_transaction_read_only = on");
    let read_only = refused(server.address());
    assert!(read_only.contains("read-only"), "{read_only}");
}
