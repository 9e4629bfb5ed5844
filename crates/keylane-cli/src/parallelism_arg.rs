//! Number of parallel commands as users write it: with the meaning of GNU parallel, and by default
//! one for each physical core.

use std::fmt;
use std::num::NonZeroUsize;
use std::thread;

use keylane_allocate::Machine;
use rustix::process::{Resource, getrlimit};
use serde::de::{Deserializer, Error, Unexpected, Visitor};

/// A number of parallel commands, never zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum ParallelismArg {
    /// One for each physical core.
    #[default]
    Cores,
    Count(NonZeroUsize),
    PercentOfCpus(NonZeroUsize),
    MoreThanCpus(usize),
    FewerThanCpus(usize),
    /// As many as the limits of the process allow.
    Unlimited,
}

/// Beyond this, memory for stacks and the kernel's process limit come first.
const MAX_JOBS: usize = 10_000;

/// Open files that a command needs: its output, its standard error and a handle of its process,
/// and as many for its guard.
const FILES_PER_COMMAND: u64 = 6;

/// Open files that are left for everything else.
const SPARE_FILES: u64 = 64;

impl ParallelismArg {
    pub(crate) fn count(self) -> usize {
        let wanted = match self {
            Self::Cores => Machine::here().cores(),
            Self::Count(count) => count.get(),
            Self::PercentOfCpus(percent) => cpus().saturating_mul(percent.get()) / 100,
            Self::MoreThanCpus(more) => cpus().saturating_add(more),
            Self::FewerThanCpus(fewer) => cpus().saturating_sub(fewer),
            Self::Unlimited => within_limits(
                getrlimit(Resource::Nofile).current,
                getrlimit(Resource::Nproc).current,
            ),
        };
        wanted.clamp(1, MAX_JOBS)
    }
}

/// Logical CPUs that the process may use, within its quota.
fn cpus() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Number of commands that fit into these limits. Each needs a process and a thread of this one, and
/// half of the processes are left to others of the user.
fn within_limits(files: Option<u64>, processes: Option<u64>) -> usize {
    let by_files = files.map(|files| files.saturating_sub(SPARE_FILES) / FILES_PER_COMMAND);
    let by_processes = processes.map(|processes| processes / 4);
    let limit = by_files.into_iter().chain(by_processes).min();
    limit.map_or(MAX_JOBS, |limit| usize::try_from(limit).unwrap_or(MAX_JOBS))
}

impl std::str::FromStr for ParallelismArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "give a number like 8, cores, a percentage of the CPUs like 200%, +N or -N for more or \
             fewer than the CPUs, or 0 for as many as possible"
                .to_owned()
        };
        let digits = |text: &str| match text.starts_with(|first: char| first.is_ascii_digit()) {
            true => text.parse::<usize>().map_err(|_| wrong()),
            false => Err(wrong()),
        };
        if let Some(percent) = text.strip_suffix('%') {
            return NonZeroUsize::new(digits(percent)?).map(Self::PercentOfCpus).ok_or_else(wrong);
        }
        match text.as_bytes().first() {
            Some(b'+') => digits(&text[1..]).map(Self::MoreThanCpus),
            Some(b'-') => digits(&text[1..]).map(Self::FewerThanCpus),
            _ if text == "cores" => Ok(Self::Cores),
            _ => match NonZeroUsize::new(digits(text)?) {
                None => Ok(Self::Unlimited),
                Some(count) if count.get() > MAX_JOBS => {
                    Err(format!("at most {MAX_JOBS} are possible"))
                }
                Some(count) => Ok(Self::Count(count)),
            },
        }
    }
}

/// In a file: a number, or any of the other forms as text.
impl<'de> serde::Deserialize<'de> for ParallelismArg {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(NumberOrText)
    }
}

/// Reads both forms.
struct NumberOrText;

impl Visitor<'_> for NumberOrText {
    type Value = ParallelismArg;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number of parallel commands")
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<ParallelismArg, E> {
        match number {
            0.. => self.visit_str(&number.to_string()),
            _ => Err(E::invalid_value(Unexpected::Signed(number), &"a number from 0 on, or text")),
        }
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<ParallelismArg, E> {
        self.visit_str(&number.to_string())
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<ParallelismArg, E> {
        text.parse().map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn count(text: &str) -> Result<usize, String> {
        text.parse::<ParallelismArg>().map(ParallelismArg::count)
    }

    #[test]
    fn jobs_have_the_forms_of_gnu_parallel_and_are_never_zero() {
        assert_eq!(count("3"), Ok(3));
        assert_eq!(count("100%"), Ok(cpus()));
        assert_eq!(count("200%"), Ok(2 * cpus()));
        assert_eq!(count("1%"), Ok((cpus() / 100).max(1)));
        assert_eq!(count("+3"), Ok(cpus() + 3));
        assert_eq!(count("+0"), Ok(cpus()));
        assert_eq!(count("-0"), Ok(cpus()));
        assert_eq!(count("-1"), Ok(cpus().max(2) - 1));
        assert_eq!(count("-100000"), Ok(1));
        assert_eq!(count("cores"), Ok(Machine::here().cores()));
        assert!(count("0").unwrap() > 1);
    }

    #[test]
    fn other_forms_are_refused() {
        for text in ["0%", "-1%", "x", "", "+", "-", "++1", "-+1", "1.5", "10001", "%", " 1"] {
            assert!(count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn as_many_as_possible_are_those_within_the_limits() {
        assert_eq!(within_limits(Some(1024), None), 160);
        assert_eq!(within_limits(Some(1024), Some(100)), 25);
        assert_eq!(within_limits(None, None), MAX_JOBS);
        assert_eq!(within_limits(Some(10), None), 0);
    }

    #[test]
    fn files_have_numbers_and_texts() {
        #[derive(serde::Deserialize)]
        struct Settings {
            jobs: ParallelismArg,
        }
        let read = |text: &str| serde_json::from_str::<Settings>(text).map(|read| read.jobs);
        let four = NonZeroUsize::new(4).unwrap();
        assert_eq!(read(r#"{"jobs": 4}"#).unwrap(), ParallelismArg::Count(four));
        assert_eq!(read(r#"{"jobs": "-2"}"#).unwrap(), ParallelismArg::FewerThanCpus(2));
        assert!(read(r#"{"jobs": -2}"#).is_err());
        assert!(read(r#"{"jobs": 1.5}"#).is_err());
    }
}
