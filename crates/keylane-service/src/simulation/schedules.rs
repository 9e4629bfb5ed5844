//! Operator of schedules: sets, pauses, resumes and removes them, and reads what they have made.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::time::sleep;

use super::api::Api;
use super::history::{Event, ScheduleChange};
use super::world::World;
use crate::wire::Timestamp;
use keylane_testkit::Random;

/// Number of schedules. The first one is never removed or replaced.
pub(super) const SCHEDULES: u8 = 2;

/// Operator, which outlives the processes of the service.
#[derive(Debug)]
pub(super) struct Operator {
    random: Random,
    /// Number of changes left.
    left: u64,
    /// The first schedule is set.
    has_set: bool,
    pending: Option<(u8, ScheduleChange)>,
}

impl Operator {
    pub(super) fn new(seed: u64) -> Self {
        let mut random = Random::of(seed, &[6]);
        let left = [0, 1, 4, 8][random.within(0..4) as usize];
        Operator { random, left, has_set: false, pending: None }
    }

    /// Returns the change that has no answer yet, or draws the next one.
    fn next(&mut self, world: &World) -> Option<(u8, ScheduleChange)> {
        if self.pending.is_none() {
            self.left = self.left.checked_sub(1)?;
            let (schedule, change) = self.draw();
            world.record(Event::Scheduling { schedule, change });
            self.pending = Some((schedule, change));
        }
        self.pending
    }

    fn draw(&mut self) -> (u8, ScheduleChange) {
        let random = &mut self.random;
        let set = ScheduleChange::Set {
            cron: if random.chance(70) { "* * * * *" } else { "*/2 * * * *" },
            skips_overlap: random.chance(30),
            skips_missed: random.chance(50),
        };
        if !self.has_set {
            self.has_set = true;
            return (0, set);
        }
        let schedule = random.within(0..u64::from(SCHEDULES)) as u8;
        let change = match random.within(0..100) {
            0..35 => ScheduleChange::Pause,
            35..70 => ScheduleChange::Resume,
            70..85 if schedule > 0 => ScheduleChange::Remove,
            _ if schedule > 0 => set,
            _ => ScheduleChange::Resume,
        };
        (schedule, change)
    }
}

/// Lets the operator act until it has finished.
pub(super) async fn run(world: Arc<World>, api: Api, operator: Arc<Mutex<Operator>>) {
    loop {
        let (next, mut random) = {
            let mut operator = operator.lock().unwrap();
            let random = Random::new(operator.random.number());
            (operator.next(&world), random)
        };
        let Some((schedule, change)) = next else { return };
        let (method, path, body) = request_of(schedule, change);
        let (status, _) = api.send(&mut random, (method, &path), None, body).await;
        if status.is_server_error() {
            sleep(Duration::from_millis(random.within(100..2_000))).await;
            continue;
        }
        world.record(Event::Scheduled { schedule, change, status: status.as_u16() });
        operator.lock().unwrap().pending = None;
        sleep(Duration::from_millis(random.within(500..40_000))).await;
    }
}

fn request_of(schedule: u8, change: ScheduleChange) -> (&'static str, String, Option<Value>) {
    let path = format!("/v1/schedules/s{schedule}");
    match change {
        ScheduleChange::Set { cron, skips_overlap, skips_missed } => {
            let body = json!({
                "cron": cron,
                "overlap": if skips_overlap { "skip" } else { "allow" },
                "missed": if skips_missed { "skip" } else { "once" },
                "job": {"kind": "local", "payload": {"schedule": schedule}},
            });
            ("PUT", path, Some(body))
        }
        ScheduleChange::Pause => ("POST", format!("{path}/pause"), None),
        ScheduleChange::Resume => ("POST", format!("{path}/resume"), None),
        ScheduleChange::Remove => ("DELETE", path, None),
    }
}

/// Records the jobs of all schedules.
pub(super) async fn read(world: &World, api: &Api, random: &mut Random) {
    for schedule in 0..SCHEDULES {
        let mut before = fired(schedule, api, random).await;
        while let Some(count) = before {
            let jobs = jobs_of(schedule, api, random).await;
            // Otherwise it has fired between the two requests.
            let after = fired(schedule, api, random).await;
            if after == before {
                world.record(Event::Fired { schedule, jobs, fired: count });
                break;
            }
            before = after;
        }
    }
}

/// Returns how often a schedule has fired; `None` if there is none.
async fn fired(schedule: u8, api: &Api, random: &mut Random) -> Option<u64> {
    let path = format!("/v1/schedules/s{schedule}");
    let (status, view) = api.send(random, ("GET", &path), None, None).await;
    (status != StatusCode::NOT_FOUND).then(|| view["fired"].as_u64().unwrap())
}

/// Returns the jobs of a schedule, each with the moment that it is for.
async fn jobs_of(schedule: u8, api: &Api, random: &mut Random) -> Vec<(String, u64)> {
    let (mut jobs, mut cursor) = (Vec::new(), String::new());
    loop {
        let path = format!("/v1/jobs?label=schedule:s{schedule}&limit=100{cursor}");
        let (_, page) = api.send(random, ("GET", &path), None, None).await;
        for job in page["items"].as_array().expect("a page has items") {
            let moment: Timestamp =
                serde_json::from_value(job["labels"]["scheduled_for"].clone()).unwrap();
            jobs.push((job["id"].as_str().unwrap().to_owned(), moment.0));
        }
        match page["next_cursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return jobs,
        }
    }
}
