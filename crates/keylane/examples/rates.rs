//! Limit how often tasks begin: those of each key, those of one, and those of the whole pool.
//!
//! Each customer may call five times at once and then once in a while; one has paid for more; and
//! the service at the other end limits the calls of all of them together. The example advances its
//! own clock, so that it ends at once: without `clock` it is the system's.

use std::error::Error;
use std::time::Duration;

use keylane::observe::PauseReason;
use keylane::{MockClock, Pool, Rate};

fn main() -> Result<(), Box<dyn Error>> {
    let clock = MockClock::new();
    let pool = Pool::<&str>::builder()
        .workers(2)
        .rate(Rate::per_second(100).burst(50))
        .rate_per_key(Rate::per_second(1).burst(5))
        .clock(&clock)
        .build()?;
    pool.keys().set_rate(&"bob", Some(Rate::per_second(10).burst(20)))?;

    let call =
        |client: &'static str, n: u32| pool.submit(client, move || println!("{client}: call {n}"));
    let alice = (1..=7).map(|n| call("alice", n)).collect::<Result<Vec<_>, _>>()?;
    let bob = (1..=7).map(|n| call("bob", n)).collect::<Result<Vec<_>, _>>()?;

    // His rate lets all of his begin, and five of hers.
    for handle in bob.iter().chain(&alice[..5]) {
        while !handle.is_finished() {
            std::thread::yield_now();
        }
    }
    println!("her sixth: {}", pool.inspect().explain(&alice[5]));
    assert!(!alice[5].is_finished());
    let held = pool.keys().paused(&"alice").expect("five have begun");
    let PauseReason::RateLimited { left } = held.hold else { panic!("{}", held.hold) };
    assert_eq!(left, Duration::from_secs(1));

    clock.advance(Duration::from_secs(2));
    for handle in alice {
        assert!(handle.wait()?.is_completed());
    }
    pool.shutdown()?;
    Ok(())
}
