//! Faults during a process: a slow or full disk, clock steps, sleep of the machine.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::history::Event;
use super::world::World;
use crate::store::{SimulatedDisk, WriteFate};
use keylane_testkit::Random;

/// Writes the store's requests, each after the latency of the disk. The process may be to end after a
/// write.
pub(super) async fn write(world: Arc<World>, disk: SimulatedDisk, mut random: Random) {
    loop {
        poll_fn(|context| disk.poll_filled(context)).await;
        let is_slow = world.disk.lock().unwrap().is_slow;
        let latency = if is_slow { random.within(50..1_500) } else { random.within(0..6) };
        sleep(Duration::from_millis(latency)).await;
        let state = *world.disk.lock().unwrap();
        if state.crashes_after_write {
            world.write_begins();
            disk.step(WriteFate::WrittenUnanswered);
            world.crashed.notify_one();
            return std::future::pending().await;
        }
        disk.step(if state.is_full { WriteFate::Full } else { WriteFate::Written });
    }
}

/// Makes faults until everything is healed.
pub(super) async fn disturb(world: Arc<World>, mut random: Random) {
    loop {
        sleep(Duration::from_millis(random.within(500..20_000))).await;
        if world.is_healed() {
            return;
        }
        let mut random = Random::new(random.number());
        if world.skips_fault() {
            continue;
        }
        match random.within(0..100) {
            0..25 => {
                let ms = random.within(1..7_200_000).cast_signed();
                let ms = if random.chance(50) { ms } else { -ms };
                world.clock.set_by(ms);
                world.record(Event::Set { ms });
            }
            25..40 => {
                let ms = random.within(100..120_000);
                world.clock.sleep(ms);
                world.record(Event::Slept { ms });
            }
            40..60 => {
                world.disk.lock().unwrap().is_full = true;
                world.record(Event::Full(true));
                sleep(Duration::from_millis(random.within(10..8_000))).await;
                world.disk.lock().unwrap().is_full = false;
                world.record(Event::Full(false));
            }
            60..80 => {
                world.disk.lock().unwrap().is_slow = true;
                sleep(Duration::from_millis(random.within(1_000..10_000))).await;
                world.disk.lock().unwrap().is_slow = false;
            }
            _ => {}
        }
    }
}
