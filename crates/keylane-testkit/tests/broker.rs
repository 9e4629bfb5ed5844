//! A broker starts, is killed, starts again, and leaves nothing behind.

use std::net::TcpStream;

use keylane_testkit::{Broker, or_skip};

#[test]
fn starts_dies_starts_again_and_leaves_nothing() {
    let Some(mut broker) = or_skip(Broker::start()) else { return };
    let (address, folder) = (broker.address(), broker.folder().to_owned());
    TcpStream::connect(&address).expect("a ready broker listens");

    broker.kill();
    TcpStream::connect(&address).expect_err("nobody listens in the place of a killed one");
    assert!(folder.is_dir(), "its log outlives it");

    broker.restart();
    TcpStream::connect(&address).expect("one that was started again listens where it did");

    drop(broker);
    TcpStream::connect(&address).expect_err("it ends with its value");
    assert!(!folder.exists(), "its folder goes with it");
}
