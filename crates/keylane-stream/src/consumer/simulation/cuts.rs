//! Parts of a simulation that are left out, so that a failing seed becomes a short history.
//!
//! The parts that stay draw the same random numbers as before. In `KEYLANE_CUTS` the parts are words
//! with commas between them: `a4-9` are the actions 4 to 9, `u35` all faults after 35 ms.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Parts that are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cuts {
    /// Numbers of actions of the producer, the operator and the faults.
    pub(super) actions: BTreeSet<u64>,
    /// Maximum time with faults, in milliseconds.
    pub(super) max_faulty: Option<u64>,
}

impl FromStr for Cuts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cuts = Cuts::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let wrong = || format!("`{word}` is no part of a simulation");
            let number = |text: &str| text.parse::<u64>().map_err(|_| wrong());
            if let Some(actions) = word.strip_prefix('a') {
                let (first, last) = actions.split_once('-').unwrap_or((actions, actions));
                cuts.actions.extend(number(first)?..=number(last)?);
            } else {
                cuts.max_faulty = Some(number(word.strip_prefix('u').ok_or_else(wrong)?)?);
            }
        }
        Ok(cuts)
    }
}

impl fmt::Display for Cuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let actions: Vec<u64> = self.actions.iter().copied().collect();
        let runs = actions.chunk_by(|one, next| one + 1 == *next);
        let mut words: Vec<String> = runs
            .map(|run| match (run[0], run[run.len() - 1]) {
                (first, last) if first == last => format!("a{first}"),
                (first, last) => format!("a{first}-{last}"),
            })
            .collect();
        words.extend(self.max_faulty.map(|ms| format!("u{ms}")));
        f.write_str(&words.join(","))
    }
}

#[test]
fn cuts_are_read_as_they_are_written() {
    for text in ["", "a1", "a0-3,a7,u35"] {
        let cuts: Cuts = text.parse().unwrap();
        assert_eq!(cuts.to_string(), text);
    }
    assert!("x".parse::<Cuts>().is_err() && "a".parse::<Cuts>().is_err());
}
