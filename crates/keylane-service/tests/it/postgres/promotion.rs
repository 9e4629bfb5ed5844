//! A node notices that a standby of its database was promoted: what the standby had not received is missing, and no fence repeats.

use super::{ENDS, Node, end, end_all_while, end_at_last};
use crate::store_support::{accepted, waiting};
use keylane_service::store::WriteError;
use keylane_testkit::{Forwarder, PostgresServer, or_skip};

/// Leads the node from a server that is killed to a standby, which is promoted.
fn fail_over(server: &mut PostgresServer, standby: &mut PostgresServer, forwarder: &Forwarder) {
    server.kill();
    standby.promote();
    forwarder.lead_to(standby.port());
}

#[track_caller]
fn is_told_of_the_promotion(error: &WriteError) {
    assert!(
        matches!(error, WriteError::Failed { cause } if cause.contains("promoted")),
        "{error:?}"
    );
}

#[test]
fn a_promotion_that_loses_transactions_ends_the_store_and_no_fence_repeats() {
    let Some(mut server) = or_skip(PostgresServer::start()) else { return };
    let mut standby = server.start_standby();
    let forwarder = Forwarder::start(server.port());
    let node = Node::by(forwarder.port());
    let (store, _) = node.open();
    let kept = accepted(&store, 1);
    let received = "SELECT replay_lsn >= pg_current_wal_lsn() FROM pg_stat_replication";
    while server.query(received) != "t" {}
    standby.kill();
    let lost = accepted(&store, 1);
    let boot = store.boot();
    server.kill();
    standby.restart();
    fail_over(&mut server, &mut standby, &forwarder);
    is_told_of_the_promotion(&end_at_last(&store, kept, 0).unwrap_err());
    assert!(store.lost().is_some_and(|why| why.contains("promoted")));
    drop(store);

    let (store, mut recovered) = node.open();
    assert!(store.boot() > boot, "{} after {boot}", store.boot());
    let found = recovered.next_job().unwrap().unwrap();
    assert_eq!((found.job.number, waiting(&found)), (kept, vec![(0, 0)]));
    assert!(recovered.next_job().unwrap().is_none());
    assert!(store.job(lost).unwrap().is_none());
    end(&store, kept).unwrap();
    assert_eq!(store.check().unwrap().damage, []);
}

#[test]
fn a_standby_that_is_synchronous_has_all_that_was_acknowledged() {
    let Some(mut server) = or_skip(PostgresServer::start()) else { return };
    let mut standby = server.start_synchronous_standby();
    let forwarder = Forwarder::start(server.port());
    let node = Node::by(forwarder.port());
    let (store, _) = node.open();
    let job = accepted(&store, ENDS);
    let mut rounds = 0;
    let ended = end_all_while(&store, job, 500, || {
        rounds += 1;
        if rounds == 3 {
            fail_over(&mut server, &mut standby, &forwarder);
        }
    });
    let (acknowledged, error) = ended.unwrap_err();
    is_told_of_the_promotion(&error);
    drop(store);

    let (store, mut recovered) = node.open();
    let found = recovered.next_job().unwrap().unwrap();
    let left: Vec<_> = waiting(&found).into_iter().map(|(number, _)| number).collect();
    let missing: Vec<_> = acknowledged.iter().filter(|number| left.contains(number)).collect();
    assert!(acknowledged.len() >= 1_500 && missing.is_empty(), "{missing:?}");
    assert_eq!(store.check().unwrap().damage, []);
}

#[test]
fn an_address_with_a_standby_leads_to_it_when_it_is_promoted() {
    let Some(mut server) = or_skip(PostgresServer::start()) else { return };
    let mut standby = server.start_synchronous_standby();
    let (first, second) = (standby.port(), server.port());
    let node = Node::at(&format!(
        "postgres://keylane@127.0.0.1:{first},127.0.0.1:{second}/postgres?sslmode=disable"
    ));
    let (store, _) = node.open();
    let job = accepted(&store, 1);
    server.kill();
    standby.promote();
    is_told_of_the_promotion(&end_at_last(&store, job, 0).unwrap_err());
    drop(store);

    let (store, mut recovered) = node.open();
    assert_eq!(recovered.next_job().unwrap().unwrap().job.number, job);
    end(&store, job).unwrap();
}
