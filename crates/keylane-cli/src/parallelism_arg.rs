//! Number of parallel commands as users write it.

use std::num::NonZeroUsize;
use std::thread;

/// A number of parallel commands, never zero.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ParallelismArg {
    Count(NonZeroUsize),
    PercentOfCpus(NonZeroUsize),
}

/// Beyond this, memory for stacks and the kernel's process limit come first.
const MAX_JOBS: usize = 10_000;

impl ParallelismArg {
    pub(crate) fn count(self) -> usize {
        let wanted = match self {
            Self::Count(count) => count.get(),
            Self::PercentOfCpus(percent) => {
                let cpus = thread::available_parallelism().map_or(1, NonZeroUsize::get);
                cpus.saturating_mul(percent.get()) / 100
            }
        };
        wanted.clamp(1, MAX_JOBS)
    }
}

impl std::str::FromStr for ParallelismArg {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (digits, percent) = match text.strip_suffix('%') {
            Some(digits) => (digits, true),
            None => (text, false),
        };
        let remedy = "give a number from 1 on like 8, or a percentage of the CPUs like 200%";
        let count: NonZeroUsize = digits.parse().map_err(|_| remedy.to_owned())?;
        if !percent && count.get() > MAX_JOBS {
            return Err(format!("at most {MAX_JOBS} are possible"));
        }
        Ok(if percent { Self::PercentOfCpus(count) } else { Self::Count(count) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_a_number_or_a_percentage_and_never_zero() {
        let jobs = |text: &str| text.parse::<ParallelismArg>().map(ParallelismArg::count);
        assert_eq!(jobs("3"), Ok(3));
        assert!(jobs("1%").unwrap() >= 1);
        assert!(jobs("200%").unwrap() >= 2);
        assert!(["0", "0%", "-1", "x", "", "1.5", "10001"].iter().all(|text| jobs(text).is_err()));
    }
}
