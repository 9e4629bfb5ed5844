//! Commands of an operator to a simulated process, and their confirmations.

use std::sync::mpsc::{self, Receiver};

use super::super::shared::ConsumerShared;
use super::super::target::{ControlError, Target};
use super::super::worker_event::{OperatorCommand, WorkerEvent};
use super::broker::partition;
use super::history::{Event, Scope};
use super::settings::Settings;
use super::world::World;
use keylane_testkit::Random;

/// Commands that a process has got.
#[derive(Debug, Default)]
pub(super) struct Commands {
    /// Targets whose pause was confirmed, and whose resume was not asked for.
    paused: Vec<Scope>,
    /// Commands that are not confirmed.
    pending: Vec<(Scope, Pending)>,
}

/// Result of a command, before it is there.
#[derive(Debug)]
enum Pending {
    Pause(Receiver<Result<bool, ControlError>>),
    Resume(Receiver<bool>),
    Retry(Receiver<usize>),
}

fn target_of(scope: Scope) -> Target {
    match scope {
        Scope::All => Target::Topic(partition(0).stream().to_owned()),
        Scope::Partition(number) => Target::Partition(partition(number)),
        Scope::Key(key) => Target::Key(vec![key]),
    }
}

/// Draws a target.
fn draw(random: &mut Random, settings: &Settings) -> Scope {
    match random.within(0..10) {
        0 => Scope::All,
        1..4 => Scope::Partition(u32::try_from(random.within(0..settings.partitions)).unwrap()),
        _ => Scope::Key(u8::try_from(random.within(1..settings.keys + 1)).unwrap()),
    }
}

impl Commands {
    /// Sends a random command to a consumer.
    pub(super) fn send(
        &mut self,
        consumer: &ConsumerShared,
        random: &mut Random,
        settings: &Settings,
    ) {
        let paused = self.paused.len() as u64;
        let (scope, command, pending) = if paused > 0 && random.chance(60) {
            let index = usize::try_from(random.within(0..paused)).unwrap();
            let (reply, result) = mpsc::channel();
            let scope = self.paused.swap_remove(index);
            let command = OperatorCommand::Resume(target_of(scope), reply);
            (scope, command, Pending::Resume(result))
        } else if random.chance(50) {
            let (reply, result) = mpsc::channel();
            let scope = draw(random, settings);
            let command = OperatorCommand::Pause(target_of(scope), reply);
            (scope, command, Pending::Pause(result))
        } else {
            let (reply, result) = mpsc::channel();
            // Few records wait for that at a time.
            let scope = if random.chance(70) { Scope::All } else { draw(random, settings) };
            let command = OperatorCommand::Retry(target_of(scope), reply);
            (scope, command, Pending::Retry(result))
        };
        self.pending.push((scope, pending));
        consumer.mailbox.push_and_wake(WorkerEvent::Operate(Box::new(command)));
    }

    /// Records the commands that the consumer has confirmed.
    pub(super) fn confirm(&mut self, world: &World, member: usize) {
        for (scope, pending) in std::mem::take(&mut self.pending) {
            let event = match &pending {
                Pending::Pause(result) => result.try_recv().ok().map(|result| {
                    if result.expect("few targets are paused") {
                        self.paused.push(scope);
                    }
                    Event::Paused { member, scope }
                }),
                Pending::Resume(result) => {
                    result.try_recv().ok().map(|_| Event::Resumed { member, scope })
                }
                Pending::Retry(result) => {
                    result.try_recv().ok().map(|_| Event::Retried { member, scope })
                }
            };
            match event {
                Some(event) => world.record(event),
                None => self.pending.push((scope, pending)),
            }
        }
    }
}
