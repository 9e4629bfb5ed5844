//! A store in PostgreSQL outlives connections that are cut or say nothing more, and refuses a pooler that has no session for each of
//! them.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use super::{ENDS, Node, check_all_ended, end, end_all_while, end_at_last, end_one};
use crate::store_support::{NOW, accepted, waiting};
use keylane_service::JobId;
use keylane_service::store::{
    Changes, JobAlias, PostgresSettings, Store, StoreSettings, WriteError,
};
use keylane_testkit::{Forwarder, LockedTable, PAUSE, PgBouncer, PostgresServer, or_skip};

#[test]
fn connections_that_are_cut_under_load_lose_and_repeat_no_change() {
    let Some(server) = or_skip(PostgresServer::start()) else { return };
    let forwarder = Forwarder::start(server.port());
    let node = Node::by(forwarder.port());
    let (store, _) = node.open();
    let job = accepted(&store, ENDS);
    end_all_while(&store, job, 100, || forwarder.cut()).unwrap();
    check_all_ended(&node, store);
}

#[test]
fn a_commit_whose_answer_is_lost_has_taken_effect_once() {
    let Some(server) = or_skip(PostgresServer::start()) else { return };
    let forwarder = Forwarder::start(server.port());
    let node = Node::by(forwarder.port());
    let (store, _) = node.open();
    let job = accepted(&store, 3);
    for number in 0..2 {
        forwarder.lose_next_commit();
        end_one(&store, job, number).unwrap();
    }
    drop(store);
    let (_store, mut recovered) = node.open();
    assert_eq!(waiting(&recovered.next_job().unwrap().unwrap()), [(2, 0)]);
}

/// The store asks by other connections whether the database still executes it.
#[test]
fn a_statement_that_takes_long_is_waited_for() {
    let Some(server) = or_skip(PostgresServer::start()) else { return };
    let forwarder = Forwarder::start(server.port());
    let (store, _) = Node::by(forwarder.port()).open();
    let job = accepted(&store, 1);
    let locked = LockedTable::new(&server, "keylane.meta");
    thread::scope(|scope| {
        let write = scope.spawn(|| end(&store, job));
        let waiting = || server.query("SELECT pid FROM pg_locks WHERE NOT granted");
        while waiting().is_empty() {
            thread::sleep(PAUSE);
        }
        let (session, before) = (waiting(), forwarder.accepted());
        // It has asked several times.
        while forwarder.accepted() < before + 4 {
            thread::sleep(PAUSE);
        }
        assert_eq!(waiting(), session, "the statement was sent again");
        locked.release();
        write.join().unwrap().unwrap();
    });
}

#[test]
fn connections_that_say_nothing_more_are_replaced() {
    let Some(server) = or_skip(PostgresServer::start()) else { return };
    let forwarder = Forwarder::start(server.port());
    let node = Node::by(forwarder.port());
    let (store, _) = node.open();
    let job = accepted(&store, 2);
    end(&store, job).unwrap();
    // One connection that writes, and one that reads.
    assert_eq!(store.job(job).unwrap().unwrap().number, job);
    forwarder.silence();
    thread::scope(|scope| {
        let reads = scope.spawn(|| {
            while store.job(job).is_err() {
                thread::sleep(PAUSE);
            }
        });
        end_at_last(&store, job, 1).unwrap();
        reads.join().unwrap();
    });
    assert_eq!(store.check().unwrap().damage, []);
    while !store.may_start_work() {
        thread::sleep(PAUSE);
    }
}

/// A node whose role may have this number of connections.
fn node_with(server: &PostgresServer, connections: usize) -> Node {
    let _ = server.query(&format!("CREATE ROLE few LOGIN CONNECTION LIMIT {connections}"));
    let _ = server.query("CREATE DATABASE few OWNER few");
    let _ = server.query_in("few", "GRANT pg_monitor TO few");
    let port = server.port();
    Node::at(&format!("postgres://few@127.0.0.1:{port}/few?sslmode=disable"))
}

/// The last connection of its start was refused, and it gave up.
#[test]
fn a_store_opens_as_soon_as_the_database_has_connections_for_it() {
    let Some(server) = or_skip(PostgresServer::start()) else { return };
    let node = node_with(&server, 2);
    let postgres = node.settings.postgres.clone().unwrap().without_waits();
    let settings = StoreSettings { postgres: Some(postgres), ..StoreSettings::default() };
    let refused = Store::open(node.folder.path().join("other"), &settings).err().unwrap();
    assert!(refused.to_string().contains("needs at least 3 connections"), "{refused}");
    thread::scope(|scope| {
        let opened = scope.spawn(|| node.open());
        // Each attempt takes the store, before it is refused one more connection.
        while server.query_in("few", "SELECT epoch >= 3 FROM keylane.term") != "t" {
            thread::sleep(PAUSE);
        }
        let _ = server.query("ALTER ROLE few CONNECTION LIMIT 3");
        let (store, _) = opened.join().unwrap();
        accepted(&store, 1);
    });
}

/// They were refused, although one reader after the other could use the same connection.
#[test]
fn readers_share_the_connections_that_the_database_gives() {
    let Some(server) = or_skip(PostgresServer::start()) else { return };
    let (store, _) = node_with(&server, 3).open();
    let job = accepted(&store, 1);
    thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| (0..20).for_each(|_| assert!(store.job(job).unwrap().is_some())));
        }
    });
}

/// It waited for the end of its last commit until the database was back.
#[test]
fn a_store_is_closed_while_the_database_is_away() {
    let Some(server) = or_skip(PostgresServer::start()) else { return };
    let forwarder = Forwarder::start(server.port());
    let (store, _) = Node::by(forwarder.port()).open();
    let job = accepted(&store, 2);
    end(&store, job).unwrap();
    let locked = LockedTable::new(&server, "keylane.meta");
    let (tell, closed) = mpsc::channel();
    thread::spawn(move || {
        drop(store);
        tell.send(()).unwrap();
    });
    while server.query("SELECT count(*) FROM pg_locks WHERE NOT granted") == "0" {}
    // Nothing listens there.
    forwarder.lead_to(1);
    forwarder.cut();
    closed.recv_timeout(Duration::from_secs(60)).expect("the store is not closed");
    locked.release();
    // Another node takes over what was acknowledged.
    let (_next, mut recovered) = Node::new(&server).open();
    assert_eq!(waiting(&recovered.next_job().unwrap().unwrap()), [(1, 0)]);
}

/// The server holds the locks of a transaction whose next statement never comes, and knows nothing of a new connection.
#[test]
fn a_connection_that_says_nothing_more_in_a_transaction_is_replaced() {
    let Some(server) = or_skip(PostgresServer::start()) else { return };
    let forwarder = Forwarder::start(server.port());
    let (store, _) = Node::by(forwarder.port()).open();
    let job = accepted(&store, 1);
    // It makes the transaction below wait for a read.
    let locked = LockedTable::new(&server, "keylane.alias");
    let named = || {
        let mut changes = Changes::new();
        let alias = JobAlias { name: "a".into(), job: JobId::new(job, NOW, 7), body_hash: [7; 32] };
        changes.alias(alias);
        store.submit(changes).wait().map(drop)
    };
    thread::scope(|scope| {
        let write = scope.spawn(|| {
            let mut written = named();
            while written == Err(WriteError::Busy) {
                written = named();
            }
            written
        });
        while server.query("SELECT count(*) FROM pg_locks WHERE NOT granted") == "0" {}
        forwarder.silence();
        locked.release();
        write.join().unwrap().unwrap();
    });
    // Connections that read are replaced when they are used.
    let report = loop {
        if let Ok(report) = store.check() {
            break report;
        }
    };
    assert_eq!(report.damage, []);
    // The earlier connection has ended.
    let left = "SELECT count(*) FROM pg_stat_activity WHERE state LIKE 'idle in transaction%'";
    assert_eq!(server.query(left), "0");
}

/// The database is well, and another node reaches it.
#[test]
fn a_node_whose_connections_say_nothing_more_learns_that_another_one_owns_the_store() {
    let Some(server) = or_skip(PostgresServer::start()) else { return };
    let forwarder = Forwarder::start(server.port());
    let (first, _) = Node::by(forwarder.port()).open();
    let job = accepted(&first, 3);
    end(&first, job).unwrap();
    // Nothing listens there.
    forwarder.lead_to(1);
    forwarder.silence();
    thread::scope(|scope| {
        // Not refused as if nothing had been written: that is not known.
        let write = scope.spawn(|| end_one(&first, job, 1));
        let (second, mut recovered) = Node::new(&server).open();
        assert!(!first.may_start_work());
        forwarder.lead_to(server.port());
        let error = write.join().unwrap().unwrap_err();
        assert!(
            matches!(&error, WriteError::Failed { cause } if cause.contains("another node")),
            "{error:?}"
        );
        assert!(first.lost().is_some());
        assert_eq!(waiting(&recovered.next_job().unwrap().unwrap()), [(1, 0), (2, 0)]);
        end_one(&second, job, 1).unwrap();
    });
}

#[test]
fn a_pooler_needs_a_session_for_each_connection() {
    let Some(server) = or_skip(PostgresServer::start()) else { return };
    for mode in ["transaction", "statement"] {
        let Some(pooler) = or_skip(PgBouncer::start(&server, mode)) else { return };
        let postgres: PostgresSettings = pooler.address().parse().unwrap();
        let planned = postgres.migration_plan().unwrap_err().to_string();
        assert!(planned.contains("pool_mode = session"), "{mode}: {planned}");
        let settings = StoreSettings { postgres: Some(postgres), ..StoreSettings::default() };
        let folder = tempfile::tempdir().unwrap();
        let opened = Store::open(folder.path().join("node"), &settings).unwrap_err().to_string();
        assert!(opened.contains("pool_mode = session"), "{mode}: {opened}");
    }
    assert_eq!(server.query("SELECT count(*) FROM pg_namespace WHERE nspname = 'keylane'"), "0");
    let Some(pooler) = or_skip(PgBouncer::start(&server, "session")) else { return };
    let node = Node::at(&pooler.address());
    let (store, _) = node.open();
    let job = accepted(&store, ENDS);
    end_all_while(&store, job, ENDS as usize, || {}).unwrap();
    check_all_ended(&node, store);
}
