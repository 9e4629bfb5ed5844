//! At which times a schedule fires, and which of them are decided next: plain functions of patterns and times.
//!
//! A time is *due* when it has passed and nothing was decided of it. What is due for less than [`LATE`] makes its job
//! all the same: a start of the server takes a moment. What is older was *missed*, and the schedule says what becomes
//! of that.

use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;

use crate::wire::MissedChoice;

/// For how long a time that is due is not missed, in milliseconds.
pub(super) const LATE: u64 = 60_000;

/// How many times are looked at before the rest is jumped over: more than two years of a schedule that fires daily.
const MOST_COUNTED: usize = 1000;

/// A pattern in a time zone.
#[derive(Clone, Debug)]
pub(super) struct Times {
    cron: Cron,
    zone: TimeZone,
}

/// What is to be decided next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// Nothing before this time; never, without one.
    Wait(Option<u64>),
    /// These were missed, and make no job.
    PassOver(Span),
    /// This one makes a job, after those that were missed and make none.
    Fire { at: u64, missed: Option<Span> },
}

/// Times that follow one another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Span {
    /// How many, as far as they were counted.
    pub(super) count: u64,
    /// The last of them.
    pub(super) last: u64,
}

impl Times {
    /// Reads a pattern of five fields, or a name such as `@daily`, and the name of a time zone. Otherwise says which of
    /// them is wrong, and why.
    pub(super) fn read(cron: &str, zone: &str) -> Result<Self, (&'static str, String)> {
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed);
        let wrong = |error: CronError| ("/cron", sentence(&error));
        let cron = parser.build().parse(cron).map_err(wrong)?;
        let zone = TimeZone::get(zone)
            .map_err(|_| ("/time_zone", format!("there is no time zone `{zone}`")))?;
        Ok(Times { cron, zone })
    }

    /// The first time after this one: milliseconds since 1970. None if there is none.
    pub(super) fn after(&self, ms: u64) -> Option<u64> {
        let from = jiff::Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()?;
        let next = self.cron.find_next_occurrence(&from.to_zoned(self.zone.clone()), false).ok()?;
        u64::try_from(next.timestamp().as_millisecond()).ok()
    }

    /// The last time before this one, or at it.
    fn last_until(&self, ms: u64) -> Option<u64> {
        let from = jiff::Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()?;
        let last = self.cron.find_previous_occurrence(&from.to_zoned(self.zone.clone()), true);
        u64::try_from(last.ok()?.timestamp().as_millisecond()).ok()
    }

    /// What to decide next, when all times up to `decided` were.
    pub(super) fn next(&self, decided: u64, now: u64, missed: MissedChoice) -> Next {
        let Some(first) = self.after(decided) else { return Next::Wait(None) };
        if first > now {
            return Next::Wait(Some(first));
        }
        let on_time_from = (now + 1).saturating_sub(LATE);
        if first >= on_time_from {
            return Next::Fire { at: first, missed: None };
        }
        let all = self.count(first, on_time_from);
        let stands_for_them = self.after(all.last).is_some_and(|next| next <= now);
        match missed {
            // One that is on time does what these were for.
            MissedChoice::Once if !stands_for_them => {
                let missed = (all.last > first).then(|| self.count(first, all.last));
                Next::Fire { at: all.last, missed }
            }
            MissedChoice::Once | MissedChoice::Skip => Next::PassOver(all),
        }
    }

    /// The times that are due, when all up to `decided` were decided.
    pub(super) fn due(&self, decided: u64, now: u64) -> Option<Span> {
        let first = self.after(decided).filter(|first| *first <= now)?;
        Some(self.count(first, now + 1))
    }

    /// The times from this one until before that.
    fn count(&self, first: u64, before: u64) -> Span {
        let (mut count, mut last) = (1, first);
        while let Some(next) = self.after(last).filter(|next| *next < before) {
            last = next;
            count += 1;
            if count == MOST_COUNTED as u64 {
                // Never before one that was counted, whatever the pattern.
                last = self.last_until(before - 1).unwrap_or(last).max(last);
                break;
            }
        }
        Span { count, last }
    }
}

/// An error in our words: a sentence's part, without a full stop.
fn sentence(error: &CronError) -> String {
    match error {
        CronError::EmptyPattern => "it is empty".into(),
        CronError::InvalidPattern(why)
        | CronError::IllegalCharacters(why)
        | CronError::ComponentError(why) => why.trim_end_matches('.').to_owned(),
        other => other.to_string().trim_end_matches('.').to_owned(),
    }
}

#[cfg(test)]
#[path = "when_tests.rs"]
mod tests;
