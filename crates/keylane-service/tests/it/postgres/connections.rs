//! A store in PostgreSQL outlives connections that are cut or say nothing more, and refuses a pooler that has no session for each of
//! them.

use std::thread;

use super::{ENDS, Node, check_all_ended, end, end_all_while, end_at_last};
use crate::store_support::{accepted, waiting};
use keylane_service::store::{PostgresSettings, Store, StoreSettings, WriteError};
use keylane_testkit::{Forwarder, PgBouncer, PostgresServer, or_skip};

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
        let reads = scope.spawn(|| while store.job(job).is_err() {});
        end_at_last(&store, job, 1).unwrap();
        reads.join().unwrap();
    });
    assert_eq!(store.check().unwrap().damage, []);
    while !store.may_start_work() {
        thread::yield_now();
    }
}

/// The database is well, and another node reaches it.
#[test]
fn a_node_whose_connections_say_nothing_more_learns_that_another_one_owns_the_store() {
    let Some(server) = or_skip(PostgresServer::start()) else { return };
    let forwarder = Forwarder::start(server.port());
    let (first, _) = Node::by(forwarder.port()).open();
    let job = accepted(&first, 2);
    // Nothing listens there.
    forwarder.lead_to(1);
    forwarder.silence();
    thread::scope(|scope| {
        let write = scope.spawn(|| end_at_last(&first, job, 0));
        let (second, mut recovered) = Node::new(&server).open();
        assert!(!first.may_start_work());
        forwarder.lead_to(server.port());
        let error = write.join().unwrap().unwrap_err();
        assert!(
            matches!(&error, WriteError::Failed { cause } if cause.contains("another node")),
            "{error:?}"
        );
        assert!(first.lost().is_some());
        assert_eq!(waiting(&recovered.next_job().unwrap().unwrap()), [(0, 0), (1, 0)]);
        end(&second, job).unwrap();
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
