//! Snapshot of a server, as far as the view shows it.

use std::cmp::Reverse;

use futures_util::try_join;
use keylane_service::wire::{Job, JobState, KeyView, Page, SchedulerView, Summary};

use crate::client::render::plain;
use crate::client::server_client::ServerClient;
use crate::progress::clock;

/// Limits of a request: no terminal shows more.
const MAX_JOBS: &str = "200";
const MAX_KEYS: &str = "50";

/// Jobs that are not over.
const UNFINISHED: &str = "scheduled,queued,running,paused,cancelling";

/// Snapshot of a server.
#[derive(Debug, Clone)]
pub(super) struct ServerSnapshot {
    pub(super) summary: Summary,
    /// Running jobs first, and of these the ones nearest to their end.
    pub(super) jobs: Vec<Job>,
    pub(super) scheduler: SchedulerView,
    /// Oldest head first.
    pub(super) keys: Vec<KeyView>,
}

impl ServerSnapshot {
    /// Requests all parts concurrently.
    pub(super) async fn take(server: &ServerClient) -> anyhow::Result<Self> {
        let (jobs, keys): (Page<Job>, Page<KeyView>);
        let (summary, scheduler);
        (summary, jobs, scheduler, keys) = try_join!(
            server.read(&["v1", "summary"], &[]),
            server.read(&["v1", "jobs"], &[("state", UNFINISHED), ("limit", MAX_JOBS)]),
            server.read(&["v1", "scheduler"], &[]),
            server.read(&["v1", "keys"], &[("sort", "head_age"), ("limit", MAX_KEYS)]),
        )?;
        Ok(ServerSnapshot { summary, scheduler, jobs: in_order(jobs.items), keys: keys.items })
    }

    /// State of the server in two lines, with its speed if an earlier snapshot is given.
    pub(super) fn headline(&self, earlier: Option<&ServerSnapshot>) -> [String; 2] {
        let Summary { slots, busy, waiting, ready, backing_off, keys, .. } = self.summary;
        let up = clock(self.summary.at.0.saturating_sub(self.summary.started_at.0) / 1000);
        let mut first = vec![
            format!("up {up}"),
            format!("store {}, {}", plain(&self.summary.store), bytes(self.summary.store_bytes)),
        ];
        if self.summary.draining {
            first.push("about to stop".into());
        }
        let failed = self.summary.failed_total;
        let mut second = vec![
            format!("{busy} of {slots} slots busy"),
            format!("{waiting} waiting, {ready} ready, {backing_off} backing off"),
            format!("{} done, {failed} failed", self.ended()),
            format!("{keys} keys, oldest head {}", clock(self.summary.oldest_head_ms / 1000)),
        ];
        if let Some(rate) = earlier.and_then(|earlier| self.rate(earlier)) {
            second.insert(2, format!("{rate:.0}/s"));
        }
        [first.join(" | "), second.join(" | ")]
    }

    fn ended(&self) -> u64 {
        let Summary { succeeded_total, failed_total, cancelled_total, superseded_total, .. } =
            self.summary;
        succeeded_total + failed_total + cancelled_total + superseded_total
    }

    /// Subtasks that ended in a second. None across a restart of the server.
    fn rate(&self, earlier: &ServerSnapshot) -> Option<f64> {
        let millis =
            self.summary.at.0.checked_sub(earlier.summary.at.0).filter(|millis| *millis > 0)?;
        let ended = self.ended().checked_sub(earlier.ended())?;
        Some(ended as f64 * 1000.0 / millis as f64)
    }
}

fn in_order(mut jobs: Vec<Job>) -> Vec<Job> {
    let rank = |job: &Job| match job.state {
        JobState::Running | JobState::Cancelling => 0,
        JobState::Queued => 1,
        JobState::Paused => 2,
        _ => 3,
    };
    let thousandths = |job: &Job| (job.progress.clamp(0.0, 1.0) * 1000.0) as u64;
    // Ids are by time: the older first among equals.
    jobs.sort_by_cached_key(|job| (rank(job), Reverse(thousandths(job)), job.id.clone()));
    jobs
}

fn bytes(count: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut value, mut unit) = (count as f64, 0);
    while value >= 1024.0 && unit + 1 < UNITS.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    if unit == 0 { format!("{count} B") } else { format!("{value:.1} {}", UNITS[unit]) }
}

#[cfg(test)]
pub(super) mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::client::render::tests::job;

    /// A server with these jobs.
    pub(in crate::client::top) fn picture(jobs: Vec<Job>) -> ServerSnapshot {
        let summary = json!({
            "at": "2026-01-31T13:02:00.000Z", "slots": 64, "busy": 2, "jobs": {"running": 1}, "waiting": 540,
            "ready": 20, "backing_off": 3, "succeeded_total": 12340, "failed_total": 3,
            "cancelled_total": 2, "retried_total": 9, "keys": 12, "oldest_head_ms": 61_000,
            "store_bytes": 12_900_000, "store": "ok", "websockets": 0,
            "started_at": "2026-01-31T12:00:00.000Z", "draining": false,
        });
        let id = "job_0199aaaaaaaa7000800000000000000a";
        let running = |slot: u32, worker: Option<&str>| -> Value {
            json!({"slot": slot, "job": id, "number": 7 + slot, "keys": [format!("u{}", 7 + slot)],
                   "shared_keys": ["s"], "attempt": 1,
                   "since": "2026-01-31T13:01:57.000Z", "worker": worker,
                   "progress": worker.map(|_| 0.42)})
        };
        let scheduler = json!({
            "slots": 64, "busy": 2, "jobs": 1, "active": 1, "draining": false,
            "running": [running(0, None), running(1, Some("w1"))],
            "decisions": [{"at": "2026-01-31T13:01:57.000Z", "job": id, "rule": "least"}],
        });
        let keys = json!([{"key": "u7", "state": "open", "length": 12, "head": {"job": id, "number": 7,
            "state": "running", "since": "2026-01-31T13:01:00.000Z", "age_ms": 60_000, "attempts": 1}}]);
        let read = "these are the API's own examples";
        ServerSnapshot {
            summary: serde_json::from_value(summary).expect(read),
            jobs: in_order(jobs),
            scheduler: serde_json::from_value(scheduler).expect(read),
            keys: serde_json::from_value(keys).expect(read),
        }
    }

    #[test]
    fn the_headline_says_how_the_server_is() {
        let earlier = picture(vec![]);
        let mut now = picture(vec![]);
        now.summary.at.0 += 2000;
        now.summary.succeeded_total += 500;
        let [first, second] = now.headline(Some(&earlier));
        assert_eq!(first, "up 1 h 2 min | store ok, 12.3 MiB");
        let expected = "2 of 64 slots busy | 540 waiting, 20 ready, 3 backing off | 250/s | \
                        12845 done, 3 failed | 12 keys, oldest head 1 min 1 s";
        assert_eq!(second, expected);
        // Counters start at zero after a restart.
        now.summary.succeeded_total = 0;
        assert!(!now.headline(Some(&earlier))[1].contains("/s"));
    }

    #[test]
    fn what_runs_and_is_nearly_done_comes_first() {
        let with = |state: &str, progress: f64| {
            job(&json!({"state": state, "progress": progress, "name": format!("{state} {progress}")}).to_string())
        };
        let jobs = in_order(vec![
            with("scheduled", 0.0),
            with("running", 0.2),
            with("paused", 0.9),
            with("queued", 0.0),
            with("running", 0.7),
        ]);
        let names: Vec<_> = jobs.iter().map(|job| job.name.clone().unwrap()).collect();
        assert_eq!(names, ["running 0.7", "running 0.2", "queued 0", "paused 0.9", "scheduled 0"]);
    }

    #[test]
    fn bytes_have_units() {
        assert_eq!(
            [0, 1023, 1024, 12_900_000].map(bytes),
            ["0 B", "1023 B", "1.0 KiB", "12.3 MiB"]
        );
    }
}
