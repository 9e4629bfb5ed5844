//! Status of a consumer as JSON, metrics and a table.

use std::fmt::Write as _;
use std::time::Duration;

use keylane_stream::consumer::{
    ConsumerCounts, ConsumerStatus, PartitionStatus, PausedTarget, PendingRecord, Target,
    WaitReason,
};
use serde::{Deserialize, Serialize};

use crate::features;

/// From when on a consumer is unhealthy.
#[derive(Debug, Clone, Copy)]
pub(crate) struct HealthThresholds {
    /// Time without progress, or without a broker.
    pub(crate) stalled: Duration,
    /// Maximum healthy age of unstored progress; progress with a long commit interval may be older
    /// by that interval.
    pub(crate) uncommitted: Duration,
}

/// Maximum number of paused targets that are listed for a partition.
const MAX_PAUSED_LISTED: usize = 20;

/// Lag of a partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct PartitionLag {
    pub(crate) partition: String,
    /// Its topic, journal or file.
    #[serde(default)]
    pub(crate) topic: String,
    /// The group, where there can be several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) group: Option<String>,
    pub(crate) committed: u64,
    pub(crate) highest_done: u64,
    pub(crate) end: Option<u64>,
    /// Number of records that were admitted and are not complete; from the disk unless a running
    /// consumer was asked.
    pub(crate) incomplete: u64,
    /// Data that only a running consumer has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) live: Option<LiveLag>,
}

/// Data that only a running consumer has.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct LiveLag {
    /// Attempts that run.
    #[serde(default)]
    pub(crate) running: u64,
    pub(crate) held: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) held_by: Option<String>,
    pub(crate) oldest_seconds: f64,
    /// Incomplete record that was admitted first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) oldest: Option<BlockedRecord>,
    pub(crate) without_progress_seconds: f64,
    /// Age of the oldest unstored progress, in seconds.
    #[serde(default)]
    pub(crate) uncommitted_seconds: f64,
    pub(crate) stalled: bool,
    /// Paused targets that records of the partition can belong to; the first of them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) paused: Vec<String>,
    /// Number of such targets.
    #[serde(default)]
    pub(crate) paused_count: u64,
    /// Records under way that the operator has paused.
    #[serde(default)]
    pub(crate) paused_records: u64,
    pub(crate) blocked_count: u64,
    pub(crate) blocked: Vec<BlockedRecord>,
}

/// A record that waits for something else than its turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct BlockedRecord {
    pub(crate) position: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) key: Option<String>,
    pub(crate) failed_attempts: u32,
    pub(crate) why: String,
}

impl PartitionLag {
    /// Returns the lags of all partitions of a consumer.
    pub(crate) fn all(status: &ConsumerStatus, patience: HealthThresholds) -> Vec<Self> {
        let partitions = status.partitions.iter();
        partitions.map(|held| PartitionLag::new(held, &status.paused, patience)).collect()
    }

    fn new(held: &PartitionStatus, paused: &[PausedTarget], patience: HealthThresholds) -> Self {
        let paused = paused.iter().filter(|paused| paused.target.concerns(&held.partition));
        PartitionLag {
            partition: held.partition.to_string(),
            topic: held.partition.stream().to_owned(),
            group: None,
            committed: held.committed.get(),
            highest_done: held.highest_done.get(),
            end: held.end.map(|end| end.get()),
            incomplete: held.in_flight as u64,
            live: Some(LiveLag {
                running: held.running as u64,
                held: held.buffered as u64,
                held_by: held.paused_by.map(|by| format!("{by:?}").to_lowercase()),
                oldest_seconds: held.oldest.as_ref().map_or(0.0, |oldest| oldest.age.as_secs_f64()),
                oldest: held.oldest.as_ref().map(BlockedRecord::new),
                without_progress_seconds: held.without_progress.as_secs_f64(),
                uncommitted_seconds: held.uncommitted.as_secs_f64(),
                stalled: held.without_progress >= patience.stalled
                    || held.uncommitted >= patience.uncommitted,
                paused: paused
                    .clone()
                    .take(MAX_PAUSED_LISTED)
                    .map(|paused| paused.target.to_string())
                    .collect(),
                paused_count: paused.count() as u64,
                paused_records: held.paused_records as u64,
                blocked_count: held.blocked_count as u64,
                blocked: held.blocked.iter().map(BlockedRecord::new).collect(),
            }),
        }
    }

    /// Records that are there and not done.
    pub(crate) fn behind(&self) -> Option<u64> {
        let above = self.end?.saturating_sub(self.highest_done.max(self.committed));
        Some(above + self.incomplete.min(self.highest_done.saturating_sub(self.committed)))
    }
}

impl BlockedRecord {
    fn new(record: &PendingRecord) -> Self {
        let failure = record.failure.as_deref().unwrap_or_default();
        let why = match &record.reason {
            WaitReason::Retry { within } => {
                format!("next attempt in {:.1} s after: {failure}", within.as_secs_f64())
            }
            WaitReason::DeadLetter { refused: Some(why) } => {
                format!("dead letter refused: {why}; after: {failure}")
            }
            WaitReason::DeadLetter { refused: None } => format!("dead letter, after: {failure}"),
            WaitReason::Paused if failure.is_empty() => "paused by the operator".to_owned(),
            WaitReason::Paused => format!("paused by the operator, after: {failure}"),
            WaitReason::Stopped => format!("key stopped: {failure}"),
            WaitReason::BehindStopped(position) => {
                format!("behind position {position}, which stopped")
            }
            _ => "running".to_owned(),
        };
        BlockedRecord {
            position: record.position.get(),
            key: record.key.as_ref().map(|key| String::from_utf8_lossy(key).into_owned()),
            failed_attempts: record.failed_attempts,
            why,
        }
    }
}

/// Reasons for which a consumer is unhealthy, one line each; empty if it is healthy.
pub(crate) fn complaints(
    status: &ConsumerStatus,
    lags: &[PartitionLag],
    patience: HealthThresholds,
) -> Vec<String> {
    let mut complaints = Vec::new();
    if let Some(since) = status.unreachable.filter(|since| *since >= patience.stalled) {
        complaints.push(format!("no broker has been connected for {:.1} s", since.as_secs_f64()));
    }
    for lag in lags {
        let Some(live) = lag.live.as_ref().filter(|live| live.stalled) else { continue };
        let (partition, uncommitted) = (&lag.partition, live.uncommitted_seconds);
        if uncommitted >= patience.uncommitted.as_secs_f64() {
            complaints.push(format!(
                "{partition} has progress that was not stored for {uncommitted:.1} s"
            ));
        }
        if live.without_progress_seconds >= patience.stalled.as_secs_f64() {
            let seconds = live.without_progress_seconds;
            let oldest = live.oldest.as_ref().map_or(String::new(), |oldest| {
                let key = oldest.key.as_deref().unwrap_or("none").escape_debug();
                let (position, why, age) = (oldest.position, &oldest.why, live.oldest_seconds);
                format!("; the oldest is at {position}, key {key}, for {age:.1} s: {why}")
            });
            complaints.push(format!("{partition} has made no progress for {seconds:.1} s{oldest}"));
        }
    }
    complaints
}

/// Why a consumer is not ready to get records; none if it is.
pub(crate) fn unready(status: &ConsumerStatus) -> Option<&'static str> {
    if status.stopping {
        Some("it is about to end")
    } else if status.unreachable.is_some() {
        Some("no broker is connected")
    } else if !status.ready {
        Some("it is not a member of its group yet")
    } else {
        None
    }
}

/// Status in the text format of Prometheus.
pub(crate) fn metrics(status: &ConsumerStatus, lags: &[PartitionLag]) -> String {
    let mut text = String::new();
    put_build(&mut text);
    put_counts(&mut text, &status.counts);
    put_state(&mut text, status);
    put_paused(&mut text, &status.paused);
    type Gauge = (&'static str, &'static str, fn(&PartitionLag) -> Option<f64>);
    let gauges: [Gauge; 13] = [
        ("committed", "All positions below are done and stored.", |lag| Some(lag.committed as f64)),
        ("highest_done", "One past the highest position that is done.", |lag| {
            Some(lag.highest_done as f64)
        }),
        ("end", "One past the last position there is.", |lag| lag.end.map(|end| end as f64)),
        ("behind", "Records that are there and not done.", |lag| {
            lag.behind().map(|lag| lag as f64)
        }),
        ("incomplete", "Records under way.", |lag| Some(lag.incomplete as f64)),
        ("running", "Attempts that run.", |lag| lag.live.as_ref().map(|live| live.running as f64)),
        ("held", "Records that came and wait for room.", |lag| {
            lag.live.as_ref().map(|live| live.held as f64)
        }),
        ("uncommitted_seconds", "How long the oldest progress has not been stored.", |lag| {
            lag.live.as_ref().map(|live| live.uncommitted_seconds)
        }),
        ("blocked", "Records that wait for something else than their turn.", |lag| {
            lag.live.as_ref().map(|live| live.blocked_count as f64)
        }),
        ("paused_records", "Records under way that the operator has paused.", |lag| {
            lag.live.as_ref().map(|live| live.paused_records as f64)
        }),
        ("oldest_seconds", "How long the oldest record has been under way.", |lag| {
            lag.live.as_ref().map(|live| live.oldest_seconds)
        }),
        ("without_progress_seconds", "How long ago a record was done, if some are to be.", |lag| {
            lag.live.as_ref().map(|live| live.without_progress_seconds)
        }),
        ("stalled", "1 if that is too long ago.", |lag| {
            lag.live.as_ref().map(|live| f64::from(u8::from(live.stalled)))
        }),
    ];
    for (name, help, value) in gauges {
        let name = format!("keylane_partition_{name}");
        let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
        for lag in lags {
            if let Some(value) = value(lag) {
                let [label, topic] = [&lag.partition, &lag.topic].map(|text| escaped(text));
                let _ = writeln!(text, "{name}{{topic=\"{topic}\",partition=\"{label}\"}} {value}");
            }
        }
    }
    text
}

fn put_counts(text: &mut String, counts: &ConsumerCounts) {
    for (name, help, count) in [
        ("records_handled", "Records that were handled.", counts.handled),
        ("attempts_failed", "Attempts that failed.", counts.failed_attempts),
        ("attempts_cancelled", "Attempts that were ended early.", counts.cancelled),
        ("records_skipped", "Records that were skipped after their last attempt.", counts.skipped),
        ("records_dead_lettered", "Records that went to the dead letters.", counts.dead_lettered),
        (
            "records_replaced",
            "Records that a later one of their key has replaced before they began.",
            counts.replaced,
        ),
        (
            "records_missed",
            "Positions passed over, whose records were removed before they were read.",
            counts.missed,
        ),
        ("rebalances", "How often partitions came or went.", counts.rebalances),
        ("records_fenced", "Records whose end came too late to count.", counts.fenced),
        ("commits", "Commits that were stored.", counts.commits),
        ("commits_failed", "Commits that were not stored.", counts.failed_commits),
    ] {
        let _ = write!(
            text,
            "# HELP keylane_{name}_total {help}\n# TYPE keylane_{name}_total counter\n\
             keylane_{name}_total {count}\n"
        );
    }
}

/// The value of a label.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn put_build(text: &mut String) {
    let (version, revision) = (env!("CARGO_PKG_VERSION"), features::REVISION);
    let (name, features) = ("keylane_build_info", features::names().join(","));
    let _ = writeln!(
        text,
        "# HELP {name} Version, source revision and Cargo features of the running consumer.\n\
         # TYPE {name} gauge\n\
         {name}{{version=\"{version}\",revision=\"{revision}\",features=\"{features}\"}} 1"
    );
}

/// Metrics of the whole consumer.
fn put_state(text: &mut String, status: &ConsumerStatus) {
    let unreachable = status.unreachable.map_or(0.0, |since| since.as_secs_f64());
    for (name, help, value) in [
        (
            "ready",
            "1 if the consumer is connected, and a member of its group.",
            f64::from(u8::from(unready(status).is_none())),
        ),
        ("unreachable_seconds", "How long no broker has been connected.", unreachable),
    ] {
        let _ = write!(
            text,
            "# HELP keylane_{name} {help}\n# TYPE keylane_{name} gauge\nkeylane_{name} {value}\n"
        );
    }
    let times = &status.times;
    let name = "keylane_handler_seconds";
    let _ = writeln!(
        text,
        "# HELP {name} Time of attempts, from start to answer.\n# TYPE {name} histogram"
    );
    for (bound, count) in &times.buckets {
        let _ = writeln!(text, "{name}_bucket{{le=\"{}\"}} {count}", bound.as_secs_f64());
    }
    let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {}", times.count);
    let _ = writeln!(text, "{name}_sum {}\n{name}_count {}", times.sum.as_secs_f64(), times.count);
}

/// Number of paused targets of each kind. Their names would be labels without a bound.
fn put_paused(text: &mut String, paused: &[PausedTarget]) {
    let name = "keylane_paused";
    let help = "Topics, partitions and keys that the operator has paused.";
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} gauge");
    type IsOfKind = fn(&Target) -> bool;
    let kinds: [(&str, IsOfKind); 3] = [
        ("topic", |target| matches!(target, Target::Topic(_))),
        ("partition", |target| matches!(target, Target::Partition(_))),
        ("key", |target| matches!(target, Target::Key(_))),
    ];
    for (kind, is_of_kind) in kinds {
        let count = paused.iter().filter(|paused| is_of_kind(&paused.target)).count();
        let _ = writeln!(text, "{name}{{kind=\"{kind}\"}} {count}");
    }
}

/// Lag as a table for humans.
pub(crate) fn table(lags: &[PartitionLag]) -> String {
    let mut text = String::new();
    for lag in lags {
        let group = lag.group.as_ref().map_or(String::new(), |group| format!(", group {group}"));
        let _ = writeln!(text, "{}{group}", lag.partition);
        let number = |number: Option<u64>| number.map_or("unknown".to_owned(), |n| n.to_string());
        let _ = writeln!(
            text,
            "  committed {}, highest done {}, end {}, behind {}, incomplete {}",
            lag.committed,
            lag.highest_done,
            number(lag.end),
            number(lag.behind()),
            lag.incomplete
        );
        let Some(live) = &lag.live else { continue };
        if let Some(by) = &live.held_by {
            let by = if by == "operator" { "the operator's pause" } else { by };
            let _ = writeln!(text, "  takes nothing more on, because of {by}; {} wait", live.held);
        }
        if let Some(first) = live.paused.first() {
            let others = live.paused[1..].iter().map(|target| format!(", {target}"));
            let _ = write!(text, "  paused by the operator: {first}{}", others.collect::<String>());
            let more = live.paused_count.saturating_sub(live.paused.len() as u64);
            if more > 0 {
                let _ = write!(text, " and {more} more");
            }
            let _ = writeln!(text, "; {} of their records are under way", live.paused_records);
        }
        if lag.incomplete > 0 {
            let oldest = live.oldest.as_ref().map_or(String::new(), |oldest| {
                let key = oldest.key.as_deref().unwrap_or("none").escape_debug();
                format!(" at {}, key {key},", oldest.position)
            });
            let _ = writeln!(text, "  the oldest{oldest} is {:.1} s old", live.oldest_seconds);
        }
        if live.stalled {
            let _ = writeln!(text, "  stalled for {:.1} s", live.without_progress_seconds);
        }
        for record in &live.blocked {
            let key = record.key.as_deref().unwrap_or("none").escape_debug();
            let _ = writeln!(text, "  blocked at {}, key {key}: {}", record.position, record.why);
        }
        let more = live.blocked_count.saturating_sub(live.blocked.len() as u64);
        if more > 0 {
            let _ = writeln!(text, "  and {more} more");
        }
    }
    text
}
