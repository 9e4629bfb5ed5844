//! Number of subtasks that run at the same time, as a configuration has it: a number, or `cores`.

use std::fmt;
use std::num::NonZeroUsize;

use keylane_allocate::Machine;
use serde::de::{Deserialize, Deserializer, Error, Unexpected, Visitor};

/// A number of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SlotCount(NonZeroUsize);

impl SlotCount {
    pub(super) fn get(self) -> NonZeroUsize {
        self.0
    }

    /// One for each physical core: a second thread on a core adds little work and takes the time of others.
    /// Of a machine whose CPUs are all cores, one is left for the server itself.
    fn of_cores(machine: &Machine) -> Self {
        let cores = machine.cores().min(machine.logical.saturating_sub(1));
        SlotCount(NonZeroUsize::new(cores).unwrap_or(NonZeroUsize::MIN))
    }
}

impl<'de> Deserialize<'de> for SlotCount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NumberOrCores)
    }
}

/// Reads both forms.
struct NumberOrCores;

impl Visitor<'_> for NumberOrCores {
    type Value = SlotCount;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number from 1 on, or \"cores\"")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<SlotCount, E> {
        let count = usize::try_from(number).ok().and_then(NonZeroUsize::new);
        let wrong = || E::invalid_value(Unexpected::Signed(number), &self);
        count.map(SlotCount).ok_or_else(wrong)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<SlotCount, E> {
        match text {
            "cores" => Ok(SlotCount::of_cores(&Machine::here())),
            _ => Err(E::invalid_value(Unexpected::Str(text), &self)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_processor_is_left_for_the_server() {
        let count = |logical, physical, quota_millis| {
            SlotCount::of_cores(&Machine { logical, physical, quota_millis }).get().get()
        };
        // Two threads per core; one; a single processor; a container with half a processor.
        assert_eq!(count(8, 4, None), 4);
        assert_eq!(count(4, 4, None), 3);
        assert_eq!(count(1, 1, None), 1);
        assert_eq!(count(8, 4, Some(500)), 1);
    }

    #[test]
    fn what_is_no_count_is_refused_with_the_rule() {
        let read = |text: &str| {
            let table: Result<std::collections::BTreeMap<String, SlotCount>, _> =
                toml::from_str(&format!("slots = {text}"));
            table.map(|table| table["slots"].get().get()).map_err(|error| error.to_string())
        };
        assert_eq!(read("7"), Ok(7));
        assert!(read("\"cores\"").unwrap() >= 1);
        for wrong in ["0", "-1", "\"all\"", "1.5"] {
            assert!(
                read(wrong).unwrap_err().contains("a number from 1 on, or \"cores\""),
                "{wrong}"
            );
        }
    }
}
