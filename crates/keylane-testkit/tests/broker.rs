//! Lifecycle of a broker: start, kill, restart, and drop without leftovers.

use std::net::TcpStream;

use keylane_testkit::{Broker, or_skip};

#[test]
fn starts_is_killed_restarts_and_leaves_nothing() {
    let Some(mut broker) = or_skip(Broker::start()) else { return };
    let (address, directory) = (broker.address(), broker.directory().to_owned());
    TcpStream::connect(&address).expect("a ready broker listens");

    broker.kill();
    TcpStream::connect(&address).expect_err("a killed broker does not listen");
    assert!(directory.is_dir(), "its log outlives it");

    broker.restart();
    TcpStream::connect(&address).expect("a restarted broker listens on the same port");

    drop(broker);
    TcpStream::connect(&address).expect_err("a dropped broker has ended");
    assert!(!directory.exists(), "a dropped broker's directory is removed");
}
