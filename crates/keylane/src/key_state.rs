//! State of a key: a value of the user's type, which one thread owns at a time. `admit/kept_states.rs`
//! has the protocol.

use std::any::Any;

use crate::unwind::drop_catch_unwind;

/// State of a key. Catches a panic of the value's drop.
pub(crate) struct ErasedKeyState(Option<Box<StateCell<dyn Any + Send>>>);

struct StateCell<T: ?Sized> {
    last_use: u64,
    value: T,
}

impl ErasedKeyState {
    pub(crate) fn new<T: Send + 'static>(value: T) -> Self {
        ErasedKeyState(Some(Box::new(StateCell { last_use: 0, value })))
    }

    /// Returns the value, if it has this type.
    pub(crate) fn get_mut<T: 'static>(&mut self) -> Option<&mut T> {
        let value: &mut dyn Any = &mut self.0.as_mut()?.value;
        value.downcast_mut()
    }

    /// Drops the value. A panic of its drop reaches the caller.
    pub(crate) fn end(mut self) {
        drop(self.0.take());
    }

    /// Time of the last use, on the clock of the engine's timer.
    pub(crate) fn last_use(&self) -> u64 {
        self.0.as_ref().map_or(0, |cell| cell.last_use)
    }

    pub(crate) fn set_last_use(&mut self, now: u64) {
        if let Some(cell) = &mut self.0 {
            cell.last_use = now;
        }
    }
}

impl Drop for ErasedKeyState {
    fn drop(&mut self) {
        drop_catch_unwind(self.0.take());
    }
}
