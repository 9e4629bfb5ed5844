//! Compares computed times with a slow model: every minute, checked one by one against the wall
//! clock of the zone.

use jiff::civil::DateTime;
use proptest::prelude::*;

use super::*;

const MINUTE: i64 = 60_000;

/// Zones whose clocks change: by an hour in the north and the south, by half an hour, at midnight,
/// in an unusual year; and two whose clocks do not change.
const ZONES: [&str; 8] = [
    "Europe/Berlin",
    "America/New_York",
    "Australia/Sydney",
    "Australia/Lord_Howe",
    "America/Asuncion",
    "Africa/Cairo",
    "Asia/Kathmandu",
    "UTC",
];

fn times(cron: &str, zone: &str) -> CronTimes {
    CronTimes::read(cron, zone).unwrap()
}

fn ms(text: &str) -> u64 {
    text.parse::<jiff::Timestamp>().unwrap().as_millisecond().cast_unsigned()
}

/// Returns the times of a pattern after `from`, up to `until`, in UTC.
fn listed(times: &CronTimes, from: &str, until: &str) -> Vec<String> {
    let (mut at, until) = (ms(from), ms(until));
    let mut all = Vec::new();
    while let Some(next) = times.after(at).filter(|next| *next <= until) {
        assert!(next > at, "{next} after {at}");
        all.push(crate::wire::Timestamp(next).to_string().replace(":00.000Z", ""));
        at = next;
    }
    all
}

#[test]
fn one_time_a_day_is_there_once_a_day_when_clocks_move() {
    // 2:30 does not exist on 29 March 2026, and occurs twice on 25 October.
    let daily = times("30 2 * * *", "Europe/Berlin");
    assert_eq!(
        listed(&daily, "2026-03-27T12:00:00Z", "2026-03-30T12:00:00Z"),
        ["2026-03-28T01:30", "2026-03-29T01:00", "2026-03-30T00:30"]
    );
    assert_eq!(
        listed(&daily, "2026-10-23T12:00:00Z", "2026-10-26T12:00:00Z"),
        ["2026-10-24T00:30", "2026-10-25T00:30", "2026-10-26T01:30"]
    );
}

#[test]
fn an_interval_follows_the_wall_clock_when_it_moves() {
    let often = times("*/30 * * * *", "Europe/Berlin");
    assert_eq!(
        listed(&often, "2026-03-29T00:00:00Z", "2026-03-29T02:00:00Z"),
        ["2026-03-29T00:30", "2026-03-29T01:00", "2026-03-29T01:30", "2026-03-29T02:00"]
    );
    let hours = times("30 1-3 * * *", "Europe/Berlin");
    assert_eq!(
        listed(&hours, "2026-03-28T20:00:00Z", "2026-03-29T20:00:00Z"),
        ["2026-03-29T00:30", "2026-03-29T01:30"]
    );
    assert_eq!(
        listed(&hours, "2026-10-24T20:00:00Z", "2026-10-25T20:00:00Z"),
        ["2026-10-24T23:30", "2026-10-25T00:30", "2026-10-25T01:30", "2026-10-25T02:30"]
    );
}

#[test]
fn what_is_no_pattern_or_no_zone_is_refused_with_its_place() {
    let place = |cron: &str, zone: &str| CronTimes::read(cron, zone).unwrap_err().0;
    for wrong in ["", "* * * *", "* * * * * *", "61 * * * *", "a b c d e", "@never", "* * * 13 *"] {
        assert_eq!(place(wrong, "UTC"), "/cron", "{wrong}");
    }
    for (wrong, has) in [("5", "1 field"), ("* * * *", "4 fields"), ("0 * * * * *", "6 fields")] {
        let (_, why) = CronTimes::read(wrong, "UTC").unwrap_err();
        assert!(why.starts_with(&format!("it has {has} and needs 5: minute, ")), "{why}");
    }
    assert_eq!(place("@daily", "Europe/Nowhere"), "/time_zone");
    assert!(CronTimes::read("@daily", "UTC").is_ok());
    assert!(CronTimes::read("0 9 * * MON-FRI", "Asia/Tokyo").is_ok());
}

#[test]
fn a_pattern_that_never_comes_has_no_time() {
    let never = times("0 0 30 2 *", "UTC");
    assert_eq!(never.after(ms("2026-01-01T00:00:00Z")), None);
    assert_eq!(never.next(0, u64::from(u32::MAX), MissedChoice::Once), NextFiring::Wait(None));
}

#[test]
fn what_is_due_is_decided_by_how_late_it_is() {
    let hourly = times("0 * * * *", "UTC");
    let at = |hour: u64| ms("2026-05-05T00:00:00Z") + hour * 3_600_000;
    let (once, skip) = (MissedChoice::Once, MissedChoice::Skip);
    for missed in [once, skip] {
        assert_eq!(hourly.next(at(3), at(4) - 1, missed), NextFiring::Wait(Some(at(4))));
        assert_eq!(hourly.next(at(3), at(4), missed), NextFiring::Fire { at: at(4), missed: None });
        let late = at(4) + LATE - 1;
        assert_eq!(hourly.next(at(3), late, missed), NextFiring::Fire { at: at(4), missed: None });
        // A time that is not late replaces the missed ones before it.
        assert_eq!(
            hourly.next(at(1), at(4), missed),
            NextFiring::PassOver(TimeSpan { count: 2, last: at(3) })
        );
    }
    assert_eq!(
        hourly.next(at(3), at(4) + LATE, once),
        NextFiring::Fire { at: at(4), missed: None }
    );
    assert_eq!(
        hourly.next(at(3), at(4) + LATE, skip),
        NextFiring::PassOver(TimeSpan { count: 1, last: at(4) })
    );
    let missed = Some(TimeSpan { count: 2, last: at(3) });
    assert_eq!(hourly.next(at(1), at(4) + LATE, once), NextFiring::Fire { at: at(4), missed });
    assert_eq!(hourly.due(at(1), at(4)), Some(TimeSpan { count: 3, last: at(4) }));
    assert_eq!(hourly.due(at(3), at(4) - 1), None);
}

#[test]
fn years_of_missed_minutes_are_jumped_over() {
    let often = times("* * * * *", "Europe/Berlin");
    let (decided, now) = (ms("2016-01-01T00:00:00Z"), ms("2026-01-01T00:00:00Z"));
    let last = now - LATE;
    let wanted = NextFiring::PassOver(TimeSpan { count: 1000, last });
    assert_eq!(often.next(decided, now, MissedChoice::Skip), wanted);
    assert_eq!(
        often.next(last, now, MissedChoice::Skip),
        NextFiring::Fire { at: now, missed: None }
    );
    // One job for all of them: its own time is the last one, and the one before is the last without
    // a job.
    let daily = times("0 0 * * *", "Europe/Berlin");
    let fired = daily.next(decided, now, MissedChoice::Once);
    let (at, last) = (ms("2025-12-31T23:00:00Z"), ms("2025-12-30T23:00:00Z"));
    assert_eq!(fired, NextFiring::Fire { at, missed: Some(TimeSpan { count: 1000, last }) });
}

/// Pattern of plain lists: wanted times of a day.
#[derive(Clone, Debug)]
struct TestPattern {
    minutes: Vec<i8>,
    hours: Vec<i8>,
    /// Sunday is 0; empty for any day.
    weekdays: Vec<i8>,
}

impl TestPattern {
    fn cron(&self) -> String {
        let list = |numbers: &[i8]| {
            let words: Vec<String> = numbers.iter().map(ToString::to_string).collect();
            if words.is_empty() { "*".to_owned() } else { words.join(",") }
        };
        format!("{} {} * * {}", list(&self.minutes), list(&self.hours), list(&self.weekdays))
    }

    fn is_at(&self, shown: DateTime) -> bool {
        let among = |list: &[i8], one: i8| list.is_empty() || list.contains(&one);
        among(&self.minutes, shown.minute())
            && among(&self.hours, shown.hour())
            && among(&self.weekdays, shown.weekday().to_sunday_zero_offset())
    }

    fn is_once_a_day(&self) -> bool {
        self.minutes.len() == 1 && self.hours.len() == 1
    }

    /// Returns all times after `from` up to `until`, checked minute by minute.
    fn model(&self, zone: &TimeZone, from: i64, until: i64) -> Vec<u64> {
        let mut found = Vec::new();
        let mut at = from.div_euclid(MINUTE) * MINUTE + MINUTE;
        while at <= until {
            if self.fires(zone, at) {
                found.push(at.cast_unsigned());
            }
            at += MINUTE;
        }
        found
    }

    fn fires(&self, zone: &TimeZone, at: i64) -> bool {
        let shown = |ms: i64| {
            jiff::Timestamp::from_millisecond(ms).unwrap().to_zoned(zone.clone()).datetime()
        };
        let (before, now) = (shown(at - MINUTE), shown(at));
        if !self.is_once_a_day() {
            return self.is_at(now);
        }
        // A time skipped by the clock change fires when the skip ends.
        let mut passed = before.checked_add(jiff::SignedDuration::from_mins(1)).unwrap();
        let mut is_wanted = self.is_at(now);
        while passed < now {
            is_wanted |= self.is_at(passed);
            passed = passed.checked_add(jiff::SignedDuration::from_mins(1)).unwrap();
        }
        // A time shown twice fires the first time only.
        let first = zone.to_ambiguous_zoned(now).earlier().unwrap();
        is_wanted && first.timestamp().as_millisecond() == at
    }
}

fn wanted() -> impl Strategy<Value = TestPattern> {
    let minutes = prop_oneof![
        3 => prop::collection::btree_set(0i8..60, 1..2),
        2 => prop::collection::btree_set(0i8..60, 2..4),
        1 => Just(Default::default()),
    ];
    // Clock changes happen at night.
    let hours = prop_oneof![
        3 => prop::collection::btree_set(0i8..5, 1..2),
        2 => prop::collection::btree_set(0i8..24, 2..5),
        1 => Just(Default::default()),
    ];
    let weekdays = prop_oneof![
        2 => Just(Default::default()),
        1 => prop::collection::btree_set(0i8..7, 1..4),
    ];
    (minutes, hours, weekdays).prop_map(|(minutes, hours, weekdays)| TestPattern {
        minutes: minutes.into_iter().collect(),
        hours: hours.into_iter().collect(),
        weekdays: weekdays.into_iter().collect(),
    })
}

/// Returns an interval of a day and a half around a change of the clock, if the zone has one after
/// `after`.
fn around_change(zone: &TimeZone, after: i64) -> i64 {
    let after = jiff::Timestamp::from_millisecond(after).unwrap();
    let change = zone.following(after).next().map(|change| change.timestamp());
    change.filter(|at| at.as_second() < 1_900_000_000).unwrap_or(after).as_millisecond()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn times_are_those_of_the_model_around_changes_of_the_clock(
        wanted in wanted(), zone in prop::sample::select(&ZONES[..]),
        after in 1_700_000_000_000i64..1_800_000_000_000, shift in 0i64..36 * 60,
    ) {
        let times = times(&wanted.cron(), zone);
        let zone = TimeZone::get(zone).unwrap();
        let from = around_change(&zone, after) - shift * MINUTE;
        let until = from + 48 * 60 * MINUTE;
        let model = wanted.model(&zone, from, until);
        let mut found = Vec::new();
        let mut at = from.cast_unsigned();
        while let Some(next) = times.after(at).filter(|next| *next <= until.cast_unsigned()) {
            prop_assert!(next > at);
            found.push(next);
            at = next;
        }
        prop_assert_eq!(&found, &model, "{} from {}", wanted.cron(), from);
    }

}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// For any number of decisions and any delay: each time is decided once, in order, and only
    /// missed times create no job.
    #[test]
    fn every_time_is_decided_once(
        wanted in wanted(), zone in prop::sample::select(&ZONES[..]), missed in prop::bool::ANY,
        begin in 1_700_000_000_000i64..1_800_000_000_000,
        steps in prop::collection::vec(prop_oneof![1i64..90_000, 90_000i64..50_000_000], 1..12),
    ) {
        let missed = if missed { MissedChoice::Once } else { MissedChoice::Skip };
        let times = times(&wanted.cron(), zone);
        let zone = TimeZone::get(zone).unwrap();
        let (mut now, mut decided) = (begin.cast_unsigned(), begin.cast_unsigned());
        let (mut fired, mut passed_over) = (Vec::new(), 0);
        for step in steps {
            now += step.cast_unsigned();
            loop {
                match times.next(decided, now, missed) {
                    NextFiring::Wait(until) => {
                        prop_assert!(until.is_none_or(|until| until > now));
                        break;
                    }
                    NextFiring::PassOver(TimeSpan { count, last }) => {
                        prop_assert!(last > decided && last + LATE <= now);
                        passed_over += count;
                        decided = last;
                    }
                    NextFiring::Fire { at, missed: before } => {
                        prop_assert!(at > decided && at <= now);
                        prop_assert!(missed == MissedChoice::Once || at + LATE > now);
                        if let Some(TimeSpan { count, last }) = before {
                            prop_assert!(last > decided && times.after(last) == Some(at));
                            passed_over += count;
                        }
                        fired.push(at);
                        decided = at;
                    }
                }
            }
        }
        prop_assert!(fired.is_sorted());
        let all = wanted.model(&zone, begin, now.cast_signed());
        prop_assert_eq!(fired.len() as u64 + passed_over, all.len() as u64);
        prop_assert!(fired.iter().all(|at| all.binary_search(at).is_ok()));
    }
}
