//! One handler for many messages: neither a closure nor an allocation is spent on a message.
//!
//! Sensors report readings, and each must be compared with the one before it of the same sensor.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use keylane::Pool;

const SENSORS: usize = 8;
const READINGS: u64 = 10_000;

/// Read number `number` of a sensor.
struct Reading {
    number: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let last: Arc<[AtomicU64]> = (0..SENSORS).map(|_| AtomicU64::new(0)).collect();

    let seen = last.clone();
    let pool = Pool::<usize>::builder().workers(4).build_handler(
        move |&sensor: &usize, reading: Reading| {
            let before = seen[sensor].swap(reading.number, Relaxed);
            assert_eq!(before + 1, reading.number, "no reading was lost, none came early");
        },
    )?;

    // One at a time.
    for sensor in 0..SENSORS {
        pool.send(sensor, Reading { number: 1 })?;
    }
    // In batches, which costs less for each message.
    for number in 2..=READINGS {
        pool.send_many((0..SENSORS).map(|sensor| (sensor, Reading { number })))?;
    }
    pool.shutdown()?;

    assert_eq!(pool.inspect().snapshot(0).panicked, 0);
    assert!(last.iter().all(|last| last.load(Relaxed) == READINGS));
    println!(
        "{} readings of {SENSORS} sensors, each after its predecessor",
        pool.inspect().snapshot(0).accepted
    );
    Ok(())
}
