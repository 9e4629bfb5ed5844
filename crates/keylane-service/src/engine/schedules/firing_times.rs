//! Times at which a schedule fires, and the next decision about them: pure functions of patterns
//! and times.
//!
//! A time is *due* when it has passed and is not decided. A time that has been due for less than
//! [`LATE`] still creates its job, because a restart of the server takes a moment. An older time
//! was *missed*, and the schedule's `missed` setting decides about it.

use croner::Cron;
use croner::errors::CronError;
use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::TimeZone;

use crate::wire::MissedChoice;

/// Time after which a due time counts as missed, in milliseconds.
pub(super) const LATE: u64 = 60_000;

/// Maximum number of times that are counted one by one; the rest is skipped. Enough for more than
/// two years of a daily schedule.
const MAX_COUNTED: usize = 1000;

/// Cron pattern in a time zone.
#[derive(Clone, Debug)]
pub(super) struct CronTimes {
    cron: Cron,
    zone: TimeZone,
}

/// Next decision of a schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextFiring {
    /// Nothing to decide before this time; never, if `None`.
    Wait(Option<u64>),
    /// These times were missed and create no job.
    PassOver(TimeSpan),
    /// This time creates a job, after missed ones that create none.
    Fire { at: u64, missed: Option<TimeSpan> },
}

/// Consecutive times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TimeSpan {
    /// Number of times, as far as they were counted.
    pub(super) count: u64,
    /// The last time.
    pub(super) last: u64,
}

impl CronTimes {
    /// Parses a pattern of five fields, or a name such as `@daily`, and the name of a time zone.
    /// The error has the JSON pointer of the wrong one, and the reason.
    pub(super) fn read(cron: &str, zone: &str) -> Result<Self, (&'static str, String)> {
        check_fields(cron).map_err(|why| ("/cron", why))?;
        let parser = CronParser::builder().seconds(Seconds::Disallowed).year(Year::Disallowed);
        let wrong = |error: CronError| ("/cron", sentence(&error));
        let cron = parser.build().parse(cron).map_err(wrong)?;
        let zone = TimeZone::get(zone).map_err(|_| {
            let why = format!(
                "there is no time zone `{zone}`; write a name such as Europe/Berlin, or UTC"
            );
            ("/time_zone", why)
        })?;
        Ok(CronTimes { cron, zone })
    }

    /// Returns the first time after `ms`, in milliseconds since 1970. `None` if there is none.
    pub(super) fn after(&self, ms: u64) -> Option<u64> {
        let from = jiff::Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()?;
        let next = self.cron.find_next_occurrence(&from.to_zoned(self.zone.clone()), false).ok()?;
        u64::try_from(next.timestamp().as_millisecond()).ok()
    }

    /// Returns the last time at or before `ms`.
    fn last_until(&self, ms: u64) -> Option<u64> {
        let from = jiff::Timestamp::from_millisecond(i64::try_from(ms).ok()?).ok()?;
        let last = self.cron.find_previous_occurrence(&from.to_zoned(self.zone.clone()), true);
        u64::try_from(last.ok()?.timestamp().as_millisecond()).ok()
    }

    /// Returns the next decision, when all times up to `decided` are decided.
    pub(super) fn next(&self, decided: u64, now: u64, missed: MissedChoice) -> NextFiring {
        let Some(first) = self.after(decided) else { return NextFiring::Wait(None) };
        if first > now {
            return NextFiring::Wait(Some(first));
        }
        let on_time_from = (now + 1).saturating_sub(LATE);
        if first >= on_time_from {
            return NextFiring::Fire { at: first, missed: None };
        }
        let all = self.count(first, on_time_from);
        let stands_for_them = self.after(all.last).is_some_and(|next| next <= now);
        match missed {
            // A time that is not late replaces the missed ones.
            MissedChoice::Once if !stands_for_them => {
                let missed = (all.last > first).then(|| self.count(first, all.last));
                NextFiring::Fire { at: all.last, missed }
            }
            MissedChoice::Once | MissedChoice::Skip => NextFiring::PassOver(all),
        }
    }

    /// Returns the due times, when all times up to `decided` are decided.
    pub(super) fn due(&self, decided: u64, now: u64) -> Option<TimeSpan> {
        let first = self.after(decided).filter(|first| *first <= now)?;
        Some(self.count(first, now + 1))
    }

    /// Returns the times from `first` until before `before`.
    fn count(&self, first: u64, before: u64) -> TimeSpan {
        let (mut count, mut last) = (1, first);
        while let Some(next) = self.after(last).filter(|next| *next < before) {
            last = next;
            count += 1;
            if count == MAX_COUNTED as u64 {
                // Never before a time that was counted, whatever the pattern.
                last = self.last_until(before - 1).unwrap_or(last).max(last);
                break;
            }
        }
        TimeSpan { count, last }
    }
}

/// Checks the number of fields. The parser's own message speaks of fields that no pattern here has.
fn check_fields(cron: &str) -> Result<(), String> {
    let fields = cron.split_whitespace().count();
    if matches!(fields, 0 | 5) || cron.trim_start().starts_with('@') {
        return Ok(());
    }
    let has = if fields == 1 { "1 field".to_owned() } else { format!("{fields} fields") };
    Err(format!(
        "it has {has} and needs 5: minute, hour, day of the month, month and day of the week, such as `0 9 * * MON-FRI`"
    ))
}

/// Returns the message of an error, as part of a sentence without a full stop.
fn sentence(error: &CronError) -> String {
    match error {
        CronError::EmptyPattern => "it is empty".into(),
        CronError::InvalidPattern(why)
        | CronError::IllegalCharacters(why)
        | CronError::ComponentError(why) => why.trim_end_matches('.').to_owned(),
        other => other.to_string().trim_end_matches('.').to_owned(),
    }
}

/// Fuzz target: a cron pattern, a line end, and a time zone. The times of a pattern that is read are later than what
/// they follow, are whole minutes, and come one after another.
#[cfg(any(test, fuzzing))]
pub fn fuzz_cron(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    let (cron, zone) = text.split_once('\n').unwrap_or((text, "UTC"));
    let times = match CronTimes::read(cron, zone) {
        Ok(times) => times,
        Err((at, why)) => return assert!(at.starts_with('/') && !why.is_empty()),
    };
    for from in [0, 951_782_400_000, 1_763_000_000_123, 1_774_745_999_999] {
        let Some(first) = times.after(from) else { continue };
        assert!(first > from && first % 60_000 == 0, "{first} after {from}");
        assert_eq!(times.after(first - 1), Some(first), "no other time comes before");
        if let Some(second) = times.after(first) {
            assert!(second > first);
            let next = times.next(from, second, MissedChoice::Skip);
            assert_ne!(next, NextFiring::Wait(Some(first)), "a time that has passed");
        }
    }
}

#[cfg(test)]
#[path = "when_tests.rs"]
mod tests;
