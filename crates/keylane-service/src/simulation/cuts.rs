//! Parts of a simulation that are left out, so that a failing seed becomes a short history.
//!
//! The parts that stay draw the same random numbers as before. In `KEYLANE_CUTS` the parts are words
//! with commas between them: `c1.4-9` are the actions 4 to 9 of client 1, `f3` the fault 3, `e2`
//! all ends of processes after the first two, `calm` the failures of attempts.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// Part that can be left out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// Action of a client.
    Action { client: u64, number: u64 },
    /// Fault of the disk or of a clock.
    Fault(u64),
    /// Crash or stop of the process with this number, and of all later ones.
    End(u64),
    /// Failures of attempts.
    Failures,
}

/// Parts that are left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Cuts(pub(super) BTreeSet<Part>);

impl Cuts {
    pub(super) fn has(&self, part: Part) -> bool {
        self.0.contains(&part)
    }

    /// Returns the number of ends that stay.
    pub(super) fn ends(&self, ends: u64) -> u64 {
        (0..ends).find(|end| self.has(Part::End(*end))).unwrap_or(ends)
    }
}

impl FromStr for Cuts {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut cuts = BTreeSet::new();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let wrong = || format!("`{word}` is no part of a simulation");
            let range = |text: &str| -> Option<std::ops::RangeInclusive<u64>> {
                let (from, to) = text.split_once('-').unwrap_or((text, text));
                Some(from.parse().ok()?..=to.parse().ok()?)
            };
            if word == "calm" {
                cuts.insert(Part::Failures);
            } else if let Some(actions) = word.strip_prefix('c') {
                let (client, numbers) = actions.split_once('.').ok_or_else(wrong)?;
                let client = client.parse().map_err(|_| wrong())?;
                let numbers = range(numbers).ok_or_else(wrong)?;
                cuts.extend(numbers.map(|number| Part::Action { client, number }));
            } else if let Some(faults) = word.strip_prefix('f') {
                cuts.extend(range(faults).ok_or_else(wrong)?.map(Part::Fault));
            } else if let Some(end) = word.strip_prefix('e') {
                cuts.insert(Part::End(end.parse().map_err(|_| wrong())?));
            } else {
                return Err(wrong());
            }
        }
        Ok(Cuts(cuts))
    }
}

impl fmt::Display for Cuts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let parts: Vec<Part> = self.0.iter().copied().collect();
        let mut words = Vec::new();
        for run in parts.chunk_by(|one, next| one.next() == Some(*next)) {
            let (first, last) = (run[0], run[run.len() - 1]);
            words.push(match (first, last) {
                (Part::Action { client, number }, Part::Action { number: last, .. }) => {
                    format!("c{client}.{}", span(number, last))
                }
                (Part::Fault(first), Part::Fault(last)) => format!("f{}", span(first, last)),
                // A cut end removes all later ones.
                (Part::End(first), _) => format!("e{first}"),
                _ => "calm".to_owned(),
            });
        }
        f.write_str(&words.join(","))
    }
}

impl Part {
    /// Returns the part that follows in a range.
    fn next(self) -> Option<Part> {
        match self {
            Part::Action { client, number } => Some(Part::Action { client, number: number + 1 }),
            Part::Fault(number) => Some(Part::Fault(number + 1)),
            Part::End(number) => Some(Part::End(number + 1)),
            Part::Failures => None,
        }
    }
}

fn span(first: u64, last: u64) -> String {
    match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    }
}

#[test]
fn cuts_are_read_as_they_are_written() {
    for text in ["", "c0.1", "c0.1-3,c2.7,f0-1,f9,e2,calm"] {
        let cuts: Cuts = text.parse().unwrap();
        assert_eq!(cuts.to_string(), text);
    }
    assert!("x".parse::<Cuts>().is_err() && "c1".parse::<Cuts>().is_err());
}
