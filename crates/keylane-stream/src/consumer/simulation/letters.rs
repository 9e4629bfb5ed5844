//! Dead letters of a simulation: writes succeed, fail, or succeed without an acknowledgement.

use std::sync::{Arc, Mutex};

use super::history::{Event, Place};
use super::settings::Behaviour;
use super::stage::Stage;
use super::world::World;
use crate::dead_letters::{DeadLetter, DeadLetterError, DeadLetters};
use keylane_testkit::Random;

pub(super) struct SimulatedLetters {
    world: Arc<World>,
    behaviour: Arc<Mutex<Behaviour>>,
    member: usize,
    random: Random,
}

impl SimulatedLetters {
    pub(super) fn new(stage: &Stage, member: usize, random: Random) -> Self {
        let (world, behaviour) = (stage.world.clone(), stage.behaviour.clone());
        SimulatedLetters { world, behaviour, member, random }
    }
}

impl DeadLetters for SimulatedLetters {
    fn write(&mut self, letters: &[DeadLetter]) -> Result<(), DeadLetterError> {
        let is_healed = self.behaviour.lock().unwrap().is_healed;
        let (is_written, is_acknowledged) = match self.random.within(0..100) {
            _ if is_healed => (letters.len(), true),
            0..75 => (letters.len(), true),
            75..85 => (0, false),
            _ => (usize::try_from(self.random.within(0..3)).unwrap().min(letters.len()), false),
        };
        for letter in &letters[..is_written] {
            let position = letter.position.get();
            let place = Place { partition: letter.partition.number(), position };
            let (member, attempts) = (self.member, letter.attempts);
            self.world.record(Event::Letter { member, place, attempts, is_acknowledged });
        }
        is_acknowledged.then_some(()).ok_or_else(|| DeadLetterError::new("the disk is full"))
    }
}
