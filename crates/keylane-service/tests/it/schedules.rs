//! Schedules as their users meet them: jobs are made at their times, once each, over pauses, overlaps and restarts.
//! The clock stands until the test moves it, and the test waits for what the server tells.

use std::time::Duration;

use crate::common::{Client, Log, builder_with, serve};
use keylane_service::{ManualClock, ServiceBuilder, ServiceSettings, SubmissionLimits};
use serde_json::{Value, json};

const MINUTE: u64 = 60_000;
const HOUR: u64 = 60 * MINUTE;

/// 2026-05-04T10:00:00Z, a Monday.
const START: u64 = 1_777_888_800_000;

/// A service whose schedules go by this clock.
fn timed(folder: &std::path::Path, log: &Log, clock: &ManualClock) -> ServiceBuilder {
    let clock = Some(clock.clone());
    let settings =
        ServiceSettings { slots: 4, clock, ..ServiceSettings::new(folder.join("store")) };
    builder_with(settings, log)
}

macro_rules! scene {
    ($log:ident, $clock:ident, $service:ident, $client:ident, $told:ident) => {
        let folder = tempfile::tempdir().unwrap();
        let $log = Log::default();
        let $clock = ManualClock::at(START);
        let $service = timed(folder.path(), &$log, &$clock).start().await.unwrap();
        let (_server, $client) = serve(&$service).await;
        let mut $told = Told::new(&$client).await;
    };
}

/// What the server tells of schedules, in its order.
struct Told {
    stream: reqwest::Response,
    text: String,
}

impl Told {
    async fn new(client: &Client) -> Self {
        let url = format!("http://{}/v1/events", client.address);
        let mut told = Told { stream: reqwest::get(url).await.unwrap(), text: String::new() };
        // With its first words it follows.
        while !told.text.contains("keylane") {
            told.read().await;
        }
        told
    }

    async fn read(&mut self) {
        let chunk = self.stream.chunk().await.unwrap().expect("the server goes on telling");
        self.text.push_str(std::str::from_utf8(&chunk).unwrap());
    }

    /// The next event about a schedule.
    async fn next(&mut self) -> Value {
        loop {
            while let Some((block, rest)) = self.text.split_once("\n\n") {
                let data = block.lines().find_map(|line| line.strip_prefix("data: "));
                let event = data.map(|data| serde_json::from_str::<Value>(data).unwrap());
                self.text = rest.to_owned();
                if let Some(event) = event.filter(|event| event["schedule"].is_string()) {
                    return event;
                }
            }
            self.read().await;
        }
    }

    /// The next event is this one, about that schedule.
    async fn expect(&mut self, event: &str, schedule: &str) -> Value {
        let next = self.next().await;
        assert_eq!(
            (&next["event"], &next["schedule"]),
            (&json!(event), &json!(schedule)),
            "{next}"
        );
        next
    }
}

async fn put(client: &Client, name: &str, body: &Value) -> crate::common::Answered {
    let headers = [("content-type", "application/json")];
    client.send("PUT", &format!("/v1/schedules/{name}"), &headers, &body.to_string()).await
}

async fn show(client: &Client, name: &str) -> Value {
    client.get(&format!("/v1/schedules/{name}")).await.expect(200).json()
}

/// The times for which a schedule has jobs, the first one first.
async fn times_of(client: &Client, name: &str) -> Vec<String> {
    let path = format!("/v1/jobs?label=schedule:{name}&limit=1000");
    let page = client.get(&path).await.expect(200).json();
    let jobs = page["items"].as_array().unwrap().iter();
    let mut times: Vec<_> = jobs
        .map(|job| job["labels"]["scheduled_for"].as_str().unwrap_or("by hand").to_owned())
        .collect();
    times.sort();
    times
}

#[tokio::test(flavor = "multi_thread")]
async fn a_schedule_is_made_looked_at_and_removed() {
    scene!(log, clock, service, client, told);
    let body = json!({"cron": "0 9 * * MON-FRI", "time_zone": "Asia/Tokyo",
        "job": {"kind": "echo", "payload": {"n": 1.50}}});
    let made = put(&client, "report", &body).await.expect(201).json();
    assert_eq!(made["next"][0], "2026-05-05T00:00:00.000Z");
    assert_eq!(made["next"].as_array().unwrap().len(), 5);
    assert_eq!((&made["overlap"], &made["missed"]), (&json!("allow"), &json!("once")));
    told.expect("schedule_changed", "report").await;
    // The same body again changes nothing and makes no event.
    let same = put(&client, "report", &body).await.expect(200).json();
    assert_eq!(same, made);
    let other = json!({"cron": "@hourly", "job": {"kind": "echo", "key": "a"}, "overlap": "skip",
        "missed": "skip", "paused": true});
    let replaced = put(&client, "report", &other).await.expect(200).json();
    assert_eq!((&replaced["time_zone"], &replaced["next"]), (&json!("UTC"), &json!([])));
    told.expect("schedule_changed", "report").await;
    assert_eq!(show(&client, "report").await, replaced);
    assert!(replaced["version"].as_u64() > made["version"].as_u64());
    client.send("DELETE", "/v1/schedules/report", &[], "").await.expect(204);
    told.expect("schedule_changed", "report").await;
    client.get("/v1/schedules/report").await.expect(404);
    client.send("DELETE", "/v1/schedules/report", &[], "").await.expect(404);
    client.post("/v1/schedules/report/run", "").await.expect(404);
    drop((service, log, clock));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_wrong_is_refused_with_its_place() {
    scene!(log, clock, service, client, told);
    let places = |answer: crate::common::Answered| {
        let problem = answer.expect(422).json();
        let errors = problem["errors"].as_array().unwrap().iter();
        errors.map(|error| error["pointer"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let job = json!({"kind": "echo", "payload": 1});
    let wrong = json!({"cron": "61 * * * *", "time_zone": "Nowhere", "job": {"kind": "none"}});
    assert_eq!(places(put(&client, "a", &wrong).await), ["/cron", "/job/kind", "/job"]);
    let zone = json!({"cron": "@daily", "time_zone": "Europe/Nowhere", "job": job});
    assert_eq!(places(put(&client, "a", &zone).await), ["/time_zone"]);
    let never = json!({"cron": "0 0 31 2 *", "job": job});
    assert_eq!(places(put(&client, "a", &never).await), ["/cron"]);
    let run_at = json!({"cron": "@daily", "job":
        {"kind": "echo", "payload": 1, "run_at": "2026-01-01T00:00:00Z"}});
    assert_eq!(places(put(&client, "a", &run_at).await), ["/job/run_at"]);
    let name = json!({"cron": "@daily", "job": job});
    assert_eq!(places(put(&client, "a%20b", &name).await), ["name"]);
    let field = json!({"cron": "@daily", "job": job, "overlaps": "skip"});
    assert_eq!(places(put(&client, "a", &field).await), ["/overlaps"]);
    let headers = [("content-type", "application/x-ndjson")];
    client.send("PUT", "/v1/schedules/a", &headers, "{}").await.expect(415);
    client.send("PUT", "/v1/schedules/a", &[], &"x".repeat(300_000)).await.expect(413);
    client.get("/v1/schedules?limit=0").await.expect(422);
    assert_eq!(client.get("/v1/schedules").await.json(), json!({"items": []}));
    // None of it was told.
    put(&client, "b", &name).await.expect(201);
    told.expect("schedule_changed", "b").await;
    drop((service, log, clock));
}

#[tokio::test(flavor = "multi_thread")]
async fn each_time_makes_one_job() {
    scene!(log, clock, service, client, told);
    let body = json!({"cron": "*/10 * * * *", "job": {"kind": "echo", "payload": 7}});
    put(&client, "often", &body).await.expect(201);
    told.expect("schedule_changed", "often").await;
    clock.set(START + 10 * MINUTE);
    let fired = told.expect("schedule_fired", "often").await;
    let id = fired["job"]["id"].as_str().unwrap();
    assert_eq!(client.wait(id).await["state"], "succeeded");
    let now = show(&client, "often").await;
    assert_eq!((&now["last_job"], &now["fired"]), (&json!(id), &json!(1)));
    assert_eq!(now["last_fired"], "2026-05-04T10:10:00.000Z");
    // A clock that is put back brings no time again.
    clock.set(START + 5 * MINUTE);
    clock.set(START + 15 * MINUTE);
    put(&client, "often", &body).await.expect(200);
    clock.set(START + 20 * MINUTE + 59_999);
    told.expect("schedule_fired", "often").await;
    let times = ["2026-05-04T10:10:00.000Z", "2026-05-04T10:20:00.000Z"];
    assert_eq!(times_of(&client, "often").await, times);
    // It is counted behind what is told.
    let metrics = loop {
        let metrics = client.get("/metrics").await.text;
        if metrics.contains("keylane_schedule_fired_total 2\n") {
            break metrics;
        }
    };
    assert!(metrics.contains("keylane_schedules{state=\"active\"} 1\n"), "{metrics}");
    drop((service, log));
}

#[tokio::test(flavor = "multi_thread")]
async fn many_schedules_of_one_time_make_a_job_each() {
    scene!(log, clock, service, client, told);
    for number in 0..150 {
        let body = json!({"cron": "@hourly", "job": {"kind": "echo", "payload": number}});
        put(&client, &format!("s{number}"), &body).await.expect(201);
        told.next().await;
    }
    clock.set(START + HOUR);
    let mut fired = std::collections::BTreeSet::new();
    for _ in 0..150 {
        let event = told.next().await;
        assert_eq!(event["event"], "schedule_fired");
        fired.insert(event["schedule"].as_str().unwrap().to_owned());
    }
    assert_eq!(fired.len(), 150);
    let (mut names, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/v1/schedules?limit=40{cursor}")).await.expect(200).json();
        let items = page["items"].as_array().unwrap();
        assert!(items.iter().all(|item| item["fired"] == 1 && item["passed"] == 0));
        names.extend(items.iter().map(|item| item["name"].as_str().unwrap().to_owned()));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert!(names.is_sorted() && names.iter().eq(&fired));
    drop((service, log));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_is_passed_over_while_the_job_before_is_not_over() {
    scene!(log, clock, service, client, told);
    let body = json!({"cron": "@hourly", "overlap": "skip", "job": {"kind": "hang", "key": "a"}});
    put(&client, "long", &body).await.expect(201);
    told.expect("schedule_changed", "long").await;
    clock.set(START + HOUR);
    let fired = told.expect("schedule_fired", "long").await;
    let id = fired["job"]["id"].as_str().unwrap();
    clock.set(START + 2 * HOUR);
    let passed = told.expect("schedule_passed", "long").await;
    assert!(passed["error"].as_str().unwrap().contains(id), "{passed}");
    let now = show(&client, "long").await;
    assert_eq!(now["last_passed"]["reason"], "overlap");
    assert_eq!(now["last_passed"]["at"], "2026-05-04T12:00:00.000Z");
    client.post(&format!("/v1/jobs/{id}/cancel"), r#"{"mode":"kill"}"#).await;
    client.wait(id).await;
    clock.set(START + 3 * HOUR);
    told.expect("schedule_fired", "long").await;
    let times = ["2026-05-04T11:00:00.000Z", "2026-05-04T13:00:00.000Z"];
    assert_eq!(times_of(&client, "long").await, times);
    let metrics = client.get("/metrics").await.text;
    assert!(metrics.contains("keylane_schedule_passed_total{reason=\"overlap\"} 1\n"), "{metrics}");
    drop((service, log));
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_made_while_it_is_paused_but_by_hand() {
    scene!(log, clock, service, client, told);
    let body = json!({"cron": "@hourly", "job": {"kind": "echo", "payload": 1}});
    put(&client, "rests", &body).await.expect(201);
    told.expect("schedule_changed", "rests").await;
    let paused = client.post("/v1/schedules/rests/pause", "").await.expect(200).json();
    assert_eq!((&paused["paused"], &paused["next"]), (&json!(true), &json!([])));
    told.expect("schedule_changed", "rests").await;
    clock.set(START + 5 * HOUR);
    // The same definition again leaves it paused.
    put(&client, "rests", &body).await.expect(200);
    let headers = [("idempotency-key", "once"), ("prefer", "wait=30")];
    let run = || client.send("POST", "/v1/schedules/rests/run", &headers, "");
    let first = run().await.expect(200);
    told.expect("schedule_fired", "rests").await;
    let again = run().await.expect(200);
    assert_eq!(first.json()["id"], again.json()["id"]);
    assert_eq!(again.headers["idempotent-replayed"], "true");
    assert_eq!(show(&client, "rests").await["last_job"], first.json()["id"]);
    let resumed = client.post("/v1/schedules/rests/resume", "").await.expect(200).json();
    assert_eq!(resumed["next"][0], "2026-05-04T16:00:00.000Z");
    told.expect("schedule_changed", "rests").await;
    clock.set(START + 6 * HOUR);
    told.expect("schedule_fired", "rests").await;
    assert_eq!(times_of(&client, "rests").await, ["2026-05-04T16:00:00.000Z", "by hand"]);
    assert_eq!(show(&client, "rests").await["fired"], 1);
    drop((service, log));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_passed_while_the_server_was_down_is_as_the_schedule_says() {
    let folder = tempfile::tempdir().unwrap();
    let (log, clock) = (Log::default(), ManualClock::at(START));
    let service = timed(folder.path(), &log, &clock).start().await.unwrap();
    let (server, client) = serve(&service).await;
    let mut told = Told::new(&client).await;
    for (name, missed, cron) in [
        ("once", "once", "0 * * * *"),
        ("skip", "skip", "0 * * * *"),
        ("late", "skip", "29 13 * * *"),
        ("later", "once", "0 20 * * *"),
    ] {
        let body = json!({"cron": cron, "missed": missed, "job": {"kind": "echo", "payload": 1}});
        put(&client, name, &body).await.expect(201);
        told.expect("schedule_changed", name).await;
    }
    clock.set(START + HOUR);
    let fired = [told.next().await, told.next().await];
    assert!(fired.iter().all(|event| event["event"] == "schedule_fired"));
    let before = [show(&client, "once").await, show(&client, "skip").await];
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::from_secs(5)).await;

    // 11:00 was done; 12:00 and 13:00 are missed at 13:29:30, and 13:29 is not.
    clock.set(START + 3 * HOUR + 29 * MINUTE + 30_000);
    let service = timed(folder.path(), &log, &clock).start().await.unwrap();
    let (_server, client) = serve(&service).await;
    // Decided by then: a time that is due wakes the deciding task, and a request for the turn waits for it.
    for name in ["once", "skip", "late"] {
        wait_for(&client, name, |schedule| schedule["next"][0].as_str() > Some("2026-05-04T13:30"))
            .await;
    }
    let [eleven, one] = ["2026-05-04T11:00:00.000Z", "2026-05-04T13:00:00.000Z"];
    assert_eq!(times_of(&client, "once").await, [eleven, one]);
    assert_eq!(times_of(&client, "skip").await, [eleven]);
    assert_eq!(times_of(&client, "late").await, ["2026-05-04T13:29:00.000Z"]);
    assert_eq!(times_of(&client, "later").await, [""; 0]);
    let [once, skip] = [show(&client, "once").await, show(&client, "skip").await];
    assert_eq!((&once["fired"], &once["passed"]), (&json!(2), &json!(1)));
    assert_eq!((&skip["fired"], &skip["passed"]), (&json!(1), &json!(2)));
    for (schedule, last) in [(&once, "2026-05-04T12:00:00.000Z"), (&skip, one)] {
        assert_eq!(schedule["last_passed"]["reason"], "missed");
        assert_eq!(schedule["last_passed"]["at"], last);
    }
    for (before, after) in before.iter().zip([&once, &skip]) {
        assert_eq!(before["created_at"], after["created_at"]);
        assert_eq!(before["job"], after["job"]);
    }
}

/// Waits until a schedule is as wanted. Each look is a request, so the server goes on between them.
async fn wait_for(client: &Client, name: &str, wanted: impl Fn(&Value) -> bool) -> Value {
    for _ in 0..100_000 {
        let now = show(client, name).await;
        if wanted(&now) {
            return now;
        }
        tokio::task::yield_now().await;
    }
    panic!("{name} never was as wanted");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_missed_is_named_beside_the_job_that_stands_for_it() {
    scene!(log, clock, service, client, told);
    let body = json!({"cron": "@hourly", "overlap": "skip", "job": {"kind": "hang", "key": "a"}});
    put(&client, "once", &body).await.expect(201);
    told.expect("schedule_changed", "once").await;
    // 11:00 and 12:00 are missed, and 13:00 has the job.
    clock.set(START + 3 * HOUR + 5 * MINUTE);
    let passed = told.expect("schedule_passed", "once").await;
    assert!(passed["error"].as_str().unwrap().contains("within a minute"), "{passed}");
    told.expect("schedule_fired", "once").await;
    let now = show(&client, "once").await;
    assert_eq!((&now["fired"], &now["passed"]), (&json!(1), &json!(2)));
    assert_eq!(now["last_passed"]["reason"], "missed");
    assert_eq!(now["last_passed"]["at"], "2026-05-04T12:00:00.000Z");
    // That job is not over at 16:05: 14:00 and 15:00 are missed all the same, and 16:00 alone has an overlap.
    clock.set(START + 6 * HOUR + 5 * MINUTE);
    let passed = [told.next().await, told.next().await];
    let texts = passed.map(|passed| passed["error"].as_str().unwrap().to_owned());
    assert!(texts[0].contains("within a minute") && texts[1].contains("not over"), "{texts:?}");
    let now = show(&client, "once").await;
    assert_eq!((&now["fired"], &now["passed"]), (&json!(1), &json!(5)));
    assert_eq!(now["last_passed"]["reason"], "overlap");
    assert_eq!(now["last_passed"]["at"], "2026-05-04T16:00:00.000Z");
    let metrics = client.get("/metrics").await.text;
    for (reason, count) in [("missed", 4), ("overlap", 1), ("refused", 0)] {
        let line = format!("keylane_schedule_passed_total{{reason=\"{reason}\"}} {count}\n");
        assert!(metrics.contains(&line), "{metrics}");
    }
    drop((service, log));
}

/// A service with room for one subtask.
fn narrow(folder: &std::path::Path, log: &Log, clock: &ManualClock) -> ServiceBuilder {
    let bounds = SubmissionLimits { waiting_subtasks: 1, ..SubmissionLimits::default() };
    let clock = Some(clock.clone());
    let settings = ServiceSettings { bounds, clock, ..ServiceSettings::new(folder.join("store")) };
    builder_with(settings, log)
}

/// A change of times, or a pause, while a time is held up: that time is named, and not forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_due_when_its_schedule_is_changed_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let (log, clock) = (Log::default(), ManualClock::at(START));
    let service = narrow(folder.path(), &log, &clock).start().await.unwrap();
    let (_server, client) = serve(&service).await;
    let mut told = Told::new(&client).await;
    let hung = client.submit(r#"{"kind":"hang","key":"a"}"#).await;
    let body = |cron: &str| json!({"cron": cron, "job": {"kind": "echo", "payload": 1}});
    for name in ["changed", "job", "paused"] {
        put(&client, name, &body("@hourly")).await.expect(201);
        told.expect("schedule_changed", name).await;
    }
    clock.set(START + HOUR);
    for name in ["changed", "job", "paused"] {
        wait_for(&client, name, |schedule| schedule["held_up"].is_string()).await;
    }
    put(&client, "changed", &body("30 * * * *")).await.expect(200);
    client.post("/v1/schedules/paused/pause", "").await.expect(200);
    for name in ["changed", "paused"] {
        let passed = told.expect("schedule_passed", name).await;
        assert!(passed["error"].as_str().unwrap().contains("held up"), "{passed}");
        told.expect("schedule_changed", name).await;
        let now = show(&client, name).await;
        assert_eq!(now["last_passed"]["reason"], name);
        assert_eq!(now["last_passed"]["at"], "2026-05-04T11:00:00.000Z");
        assert_eq!((&now["fired"], &now["passed"]), (&json!(0), &json!(1)));
        let metrics = client.get("/metrics").await.text;
        let line = format!("keylane_schedule_passed_total{{reason=\"{name}\"}} 1\n");
        assert!(metrics.contains(&line), "{metrics}");
    }
    // With the same times and another job it stays due, and has that job.
    let other = json!({"cron": "@hourly", "job": {"kind": "echo", "payload": 2}});
    put(&client, "job", &other).await.expect(200);
    told.expect("schedule_changed", "job").await;
    client.post(&format!("/v1/jobs/{hung}/cancel"), r#"{"mode":"kill"}"#).await;
    told.expect("schedule_fired", "job").await;
    assert_eq!(show(&client, "job").await["passed"], 0);
    client.post("/v1/schedules/paused/resume", "").await.expect(200);
    for name in ["changed", "paused"] {
        assert_eq!(times_of(&client, name).await, [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_time_for_which_there_is_no_room_stays_due() {
    let folder = tempfile::tempdir().unwrap();
    let (log, clock) = (Log::default(), ManualClock::at(START));
    let service = narrow(folder.path(), &log, &clock).start().await.unwrap();
    let (_server, client) = serve(&service).await;
    let mut told = Told::new(&client).await;
    let hung = client.submit(r#"{"kind":"hang","key":"a"}"#).await;
    let body = json!({"cron": "@hourly", "missed": "skip", "job": {"kind": "echo", "payload": 1}});
    put(&client, "full", &body).await.expect(201);
    told.expect("schedule_changed", "full").await;
    clock.set(START + HOUR);
    let held = wait_for(&client, "full", |schedule| schedule["held_up"].is_string()).await;
    assert_eq!((&held["fired"], &held["passed"]), (&json!(0), &json!(0)));
    assert_eq!(held["next"][0], "2026-05-04T11:00:00.000Z");
    let metrics = client.get("/metrics").await.text;
    assert!(metrics.contains("keylane_schedules{state=\"held_up\"} 1\n"), "{metrics}");
    client.post(&format!("/v1/jobs/{hung}/cancel"), r#"{"mode":"kill"}"#).await;
    client.wait(&hung).await;
    told.expect("schedule_fired", "full").await;
    assert_eq!(times_of(&client, "full").await, ["2026-05-04T11:00:00.000Z"]);
    assert_eq!(show(&client, "full").await["held_up"], Value::Null);
}

/// When it is tried again doesn't hang on the calendar: that may be put back, for a little or to before the time.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_held_up_is_tried_again_when_the_clock_was_put_back() {
    let folder = tempfile::tempdir().unwrap();
    let (log, clock) = (Log::default(), ManualClock::at(START));
    let service = narrow(folder.path(), &log, &clock).start().await.unwrap();
    let (_server, client) = serve(&service).await;
    let mut told = Told::new(&client).await;
    let hung = client.submit(r#"{"kind":"hang","key":"a"}"#).await;
    let body = json!({"cron": "@hourly", "job": {"kind": "echo", "payload": 1}});
    put(&client, "back", &body).await.expect(201);
    told.expect("schedule_changed", "back").await;
    clock.set(START + HOUR + 50_000);
    wait_for(&client, "back", |schedule| schedule["held_up"].is_string()).await;
    clock.set(START + HOUR - 1);
    wait_for(&client, "back", |schedule| schedule["held_up"].is_null()).await;
    clock.set(START + HOUR + 50_000);
    wait_for(&client, "back", |schedule| schedule["held_up"].is_string()).await;
    clock.set(START + HOUR);
    client.post(&format!("/v1/jobs/{hung}/cancel"), r#"{"mode":"kill"}"#).await;
    told.expect("schedule_fired", "back").await;
    assert_eq!(times_of(&client, "back").await, ["2026-05-04T11:00:00.000Z"]);
}

/// A row that is not what was written: the server starts without it, says so, and it can be removed or set again.
#[tokio::test(flavor = "multi_thread")]
async fn a_damaged_schedule_keeps_nothing_else_from_going_on() {
    let folder = tempfile::tempdir().unwrap();
    let (log, clock) = (Log::default(), ManualClock::at(START));
    let service = timed(folder.path(), &log, &clock).start().await.unwrap();
    let (server, client) = serve(&service).await;
    let body = json!({"cron": "@hourly", "job": {"kind": "echo", "payload": 1}});
    for name in ["flipped", "garbled", "whole"] {
        put(&client, name, &body).await.expect(201);
    }
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::from_secs(5)).await;
    let path = folder.path().join("store");
    let connection = rusqlite::Connection::open(&path).unwrap();
    let damage = "UPDATE schedule SET version = version + 1 WHERE name = 'flipped';
        UPDATE schedule SET body = x'00ff' WHERE name = 'garbled'";
    connection.execute_batch(damage).unwrap();
    drop(connection);

    let service = timed(folder.path(), &log, &clock).start().await.unwrap();
    let (_server, client) = serve(&service).await;
    let mut told = Told::new(&client).await;
    for name in ["flipped", "garbled"] {
        let now = show(&client, name).await;
        assert!(now["held_up"].as_str().unwrap().contains("damaged"), "{now}");
        assert_eq!(now["next"], json!([]));
        // Its row stays as it is until an operator decides.
        for what in ["pause", "run"] {
            let refused = client.post(&format!("/v1/schedules/{name}/{what}"), "").await;
            assert!(refused.expect(409).text.contains("damaged"));
        }
    }
    let metrics = client.get("/metrics").await.text;
    assert!(metrics.contains("keylane_schedules{state=\"held_up\"} 2\n"), "{metrics}");
    clock.set(START + HOUR);
    told.expect("schedule_fired", "whole").await;
    client.send("DELETE", "/v1/schedules/flipped", &[], "").await.expect(204);
    client.get("/v1/schedules/flipped").await.expect(404);
    let mended = put(&client, "garbled", &body).await.expect(200).json();
    assert_eq!(mended["held_up"], Value::Null);
    for name in ["flipped", "garbled"] {
        told.expect("schedule_changed", name).await;
    }
    clock.set(START + 2 * HOUR);
    let mut fired = [told.next().await, told.next().await].map(|event| event["schedule"].clone());
    fired.sort_by_key(Value::to_string);
    assert_eq!(fired, ["garbled", "whole"]);
}

/// Schedules with large jobs come on several pages, whatever the limit.
#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_schedules_has_a_bound_in_bytes() {
    scene!(log, clock, service, client, told);
    let body = json!({"cron": "@hourly", "job": {"kind": "echo", "payload": "x".repeat(240_000)}});
    for number in 0..20 {
        put(&client, &format!("s{number:02}"), &body).await.expect(201);
        told.next().await;
    }
    let page = client.get("/v1/schedules?limit=1000").await.expect(200).json();
    assert_eq!(page["items"].as_array().unwrap().len(), 17);
    assert_eq!(page["next_cursor"], "s16");
    let rest = client.get("/v1/schedules?limit=1000&cursor=s16").await.expect(200).json();
    assert_eq!(rest["items"].as_array().unwrap().len(), 3);
    assert_eq!(rest["next_cursor"], Value::Null);
    drop((service, log, clock));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_that_makes_no_sense_any_more_is_passed_over() {
    let folder = tempfile::tempdir().unwrap();
    let (log, clock) = (Log::default(), ManualClock::at(START));
    let service = timed(folder.path(), &log, &clock).start().await.unwrap();
    let (server, client) = serve(&service).await;
    let body = json!({"cron": "@hourly", "job": {"kind": "echo", "payload": 1}});
    put(&client, "orphan", &body).await.expect(201);
    server.stop(Duration::from_secs(5)).await;
    service.stop(Duration::from_secs(5)).await;
    // The kind is gone from the configuration.
    let settings = ServiceSettings {
        clock: Some(clock.clone()),
        ..ServiceSettings::new(folder.path().join("store"))
    };
    let service = keylane_service::Service::builder(settings).start().await.unwrap();
    let (_server, client) = serve(&service).await;
    let mut told = Told::new(&client).await;
    clock.set(START + HOUR);
    let passed = told.expect("schedule_passed", "orphan").await;
    assert!(passed["error"].as_str().unwrap().contains("no kind `echo`"), "{passed}");
    let now = show(&client, "orphan").await;
    assert_eq!(now["last_passed"]["reason"], "refused");
    client.post("/v1/schedules/orphan/run", "").await.expect(422);
    clock.set(START + 2 * HOUR);
    told.expect("schedule_passed", "orphan").await;
}

/// Changes of a schedule take turns: changes at the same time are made one after another, and none is lost.
#[tokio::test(flavor = "multi_thread")]
async fn changes_at_the_same_time_are_made_one_after_another() {
    scene!(log, clock, service, client, told);
    let body = json!({"cron": "* * * * *", "job": {"kind": "echo", "payload": 1}});
    put(&client, "busy", &body).await.expect(201);
    told.expect("schedule_changed", "busy").await;
    let askers: Vec<_> = (0..8u64)
        .map(|asker| {
            let (client, clock) = (client.clone(), clock.clone());
            tokio::spawn(async move {
                for round in 0..20u64 {
                    if asker == 0 {
                        clock.set(START + (round + 1) * MINUTE);
                    }
                    let path = "/v1/schedules/busy";
                    match (asker + round) % 3 {
                        0 => client.post(&format!("{path}/run"), "").await.expect(202),
                        1 => client.post(&format!("{path}/resume"), "").await.expect(200),
                        _ => {
                            let body = json!({"cron": "* * * * *", "missed": "once",
                                "job": {"kind": "echo", "payload": round}});
                            put(&client, "busy", &body).await.expect(200)
                        }
                    };
                }
            })
        })
        .collect();
    for asker in askers {
        asker.await.unwrap();
    }
    clock.set(START + 30 * MINUTE);
    let last = json!("2026-05-04T10:30:00.000Z");
    let now = wait_for(&client, "busy", |schedule| schedule["last_fired"] == last).await;
    let times = times_of(&client, "busy").await;
    let by_hand = times.iter().filter(|time| *time == "by hand").count();
    let mut timed: Vec<_> = times.iter().filter(|time| *time != "by hand").collect();
    let fired = timed.len() as u64;
    timed.dedup();
    assert_eq!(timed.len() as u64, fired, "{timed:?}");
    assert_eq!(now["fired"], fired);
    assert_eq!(now["passed"].as_u64().unwrap() + fired, 30);
    assert_eq!(
        by_hand,
        (0..8).map(|asker| (0..20).filter(|round| (asker + round) % 3 == 0).count()).sum::<usize>()
    );
    drop((service, log));
}
