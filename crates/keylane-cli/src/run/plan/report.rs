//! Text of a plan.

use std::fmt::Write;
use std::time::Duration;

use crate::key::RecordKey;
use crate::key_counts::KeyCounts;
use crate::progress::clock;
use crate::run_stats::records;

use super::chains::Figures;

/// Maximum number of keys that the text names.
const MAX_HOTTEST: usize = 10;

/// What the text is about, beside the figures.
#[derive(Debug, Clone, Copy)]
pub(super) struct PlanContext {
    pub(super) jobs: u64,
    /// Time of a record, if the user gave one.
    pub(super) duration: Option<Duration>,
    /// Least time by the rates.
    pub(super) rate_time: Duration,
    /// Whether the input has further records.
    pub(super) is_sample: bool,
    /// Whether records replace others, so that fewer run.
    pub(super) is_latest: bool,
}

/// Returns the text of a plan.
pub(super) fn text<S>(figures: &Figures, keys: &KeyCounts<S>, context: &PlanContext) -> String {
    let mut text = String::new();
    let mut line = |name: &str, value: String| {
        writeln!(text, "{name:<14} {value}").expect("a string takes any text");
    };
    let first = if context.is_sample { ", a sample from the beginning of the input" } else { "" };
    line("records", format!("{}{first}", figures.records));
    if figures.keyless > 0 {
        line("without a key", figures.keyless.to_string());
    }
    if figures.barriers > 0 {
        line("barriers", figures.barriers.to_string());
    }
    line("keys", key_count(keys));
    if figures.records > 0 {
        line("longest chain", chain(figures));
        line("useful -j", useful(figures));
        line("least time", least_time(figures, context));
    }
    if !context.rate_time.is_zero() {
        line("", format!("at least {} by the rates", seconds(context.rate_time)));
    }
    for (place, (key, count)) in keys.hottest(MAX_HOTTEST).into_iter().enumerate() {
        let name = if place == 0 { "hottest keys" } else { "" };
        let share = 100.0 * count.records as f64 / figures.records as f64;
        let more = match count.missed {
            0 => String::new(),
            missed => format!(", or up to {missed} more"),
        };
        line(name, format!("{}: {}, {share:.1} %{more}", key_name(key), records(count.records)));
    }
    if context.is_latest {
        line("--latest", "fewer records run: each replaces the waiting one of its key".to_owned());
    }
    text
}

fn key_count<S>(keys: &KeyCounts<S>) -> String {
    match keys.dropped() {
        0 => keys.len().to_string(),
        dropped => format!(
            "more than {}; rare ones were forgotten, so a chain can be up to {dropped} longer than it says",
            keys.len()
        ),
    }
}

fn chain(figures: &Figures) -> String {
    let by = match (&figures.chain_key, figures.barriers) {
        (None, _) => String::new(),
        (Some(key), 0) => format!(" to the last of {}", key_name(key)),
        (Some(key), _) => {
            format!(" over all barriers; the longest part ends with {}", key_name(key))
        }
    };
    format!("{} one after another{by}", records(figures.chain))
}

fn useful(figures: &Figures) -> String {
    match figures.useful_jobs {
        1 => "1: no two records can run at the same time".to_owned(),
        jobs => format!("at most {jobs}: more slots cannot shorten the run"),
    }
}

fn least_time(figures: &Figures, context: &PlanContext) -> String {
    let PlanContext { jobs, duration, .. } = context;
    let set_by = match figures.rounds > figures.records.div_ceil(*jobs) {
        true => "the chain",
        false => "the number of slots",
    };
    let times =
        format!("{} times that of a record with -j {jobs}, set by {set_by}", figures.rounds);
    match duration {
        Some(duration) => {
            let whole = duration.saturating_mul(u32::try_from(figures.rounds).unwrap_or(u32::MAX));
            format!("{}: {times}", seconds(whole))
        }
        None => times,
    }
}

fn key_name(key: &RecordKey) -> String {
    match key {
        RecordKey::Named(_) => key.to_string(),
        RecordKey::Unkeyed(_) | RecordKey::Serial => "records without a key".to_owned(),
    }
}

/// "0.5 s", "59 s", "2 min 3 s".
fn seconds(time: Duration) -> String {
    match time.as_secs() {
        0..10 => format!("{:.1} s", time.as_secs_f64()),
        whole => clock(whole),
    }
}
