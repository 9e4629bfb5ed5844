//! A server that is killed again and again makes one job at most for each time of its schedules, and passes none over
//! that its books don't say.
//!
//! The server is this test's own binary in another process, killed by `SIGKILL`. Its clock runs through an hour in
//! seven seconds, also while it is down, so that there are times to be decided at every moment. `KEYLANE_KILLS`
//! says how many kills there are.

use std::path::PathBuf;
use std::time::Duration;

use crate::common::child::{self, Child};
use crate::common::{Log, builder_with};
use keylane_service::wire::Timestamp;
use keylane_service::{ManualClock, ServiceSettings};
use serde_json::{Value, json};

const BEGIN: &str = "KEYLANE_SCHEDULES_BEGIN";
const MINUTE: u64 = 60_000;

/// How many times as fast the clock of the server is.
const FASTER: u64 = 500;

/// The server, if this process was started to be one.
#[tokio::test(flavor = "multi_thread")]
async fn server() {
    let Some(folder) = child::folder() else { return };
    let begin: u64 = std::env::var(BEGIN).unwrap().parse().unwrap();
    let shown = move || begin + (Timestamp::now().0 - begin) * FASTER;
    let clock = ManualClock::at(shown());
    let moved = clock.clone();
    tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            moved.set(shown());
        }
    });
    let settings =
        ServiceSettings { clock: Some(clock), ..ServiceSettings::new(folder.join("store")) };
    let service = builder_with(settings, &Log::default()).start().await.unwrap();
    child::serve(&service, &folder).await;
}

struct Asking {
    folder: PathBuf,
    http: reqwest::Client,
}

impl Asking {
    /// Asks until the server that runs now has answered.
    async fn ask(&self, method: reqwest::Method, path: &str, body: &Value) -> Value {
        loop {
            tokio::time::sleep(Duration::from_millis(2)).await;
            let Some(address) = child::address_now(&self.folder) else { continue };
            let url = format!("http://{address}{path}");
            let request = self.http.request(method.clone(), url);
            let request = request.header("content-type", "application/json");
            let Ok(answer) = request.body(body.to_string()).send().await else { continue };
            let is_well = answer.status().is_success();
            let Ok(text) = answer.text().await else { continue };
            assert!(is_well, "{path}: {text}");
            return serde_json::from_str(&text).unwrap();
        }
    }

    async fn get(&self, path: &str) -> Value {
        self.ask(reqwest::Method::GET, path, &Value::Null).await
    }

    /// How many times have made a job so far, of both schedules.
    async fn fired(&self) -> u64 {
        let mut fired = 0;
        for name in NAMES {
            fired += self.get(&format!("/v1/schedules/{name}")).await["fired"].as_u64().unwrap();
        }
        fired
    }
}

const NAMES: [&str; 2] = ["once", "skip"];

#[tokio::test(flavor = "multi_thread")]
async fn each_time_has_one_job_at_most_over_kills() {
    if child::folder().is_some() {
        return;
    }
    let kills = child::kills();
    let folder = tempfile::tempdir().unwrap();
    let begin = Timestamp::now().0;
    let mut child =
        Child::start("schedules_crash::server", folder.path(), &[(BEGIN, begin.to_string())]);
    let asking = Asking { folder: folder.path().to_owned(), http: child::client() };
    for name in NAMES {
        let body =
            json!({"cron": "* * * * *", "missed": name, "job": {"kind": "echo", "payload": 1}});
        asking.ask(reqwest::Method::PUT, &format!("/v1/schedules/{name}"), &body).await;
    }
    for kill in 0..kills {
        let wanted = asking.fired().await + 3 + kill * 7 % 20;
        while asking.fired().await < wanted {}
        child.restart();
    }
    for name in NAMES {
        let path = format!("/v1/schedules/{name}/pause");
        asking.ask(reqwest::Method::POST, &path, &Value::Null).await;
    }
    for name in NAMES {
        let (fired, passed) = check(&asking, name).await;
        println!("{kills} kills, {name}: {fired} times had one job each, {passed} had none");
    }
}

/// The jobs that there are, the books of the schedule, and the times that there were: they say the same.
async fn check(asking: &Asking, name: &str) -> (u64, u64) {
    let schedule = asking.get(&format!("/v1/schedules/{name}")).await;
    // On a slow machine none may have been in time.
    let at = |value: &Value| -> u64 {
        let at: Option<Timestamp> = serde_json::from_value(value.clone()).unwrap();
        at.map_or(0, |at| at.0)
    };
    let mut times = Vec::new();
    let mut cursor = String::new();
    loop {
        let path = format!("/v1/jobs?label=schedule:{name}&limit=1000{cursor}");
        let page = asking.get(&path).await;
        let jobs = page["items"].as_array().unwrap().iter();
        times.extend(jobs.map(|job| at(&job["labels"]["scheduled_for"])));
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    times.sort_unstable();
    assert!(times.windows(2).all(|two| two[0] < two[1]), "a time has two jobs");
    assert!(times.iter().all(|time| time % MINUTE == 0));
    let (fired, passed) =
        (schedule["fired"].as_u64().unwrap(), schedule["passed"].as_u64().unwrap());
    assert_eq!(times.len() as u64, fired, "{schedule}");
    assert_eq!(times.last().copied().unwrap_or(0), at(&schedule["last_fired"]));
    let last_passed = match &schedule["last_passed"] {
        Value::Null => 0,
        last => at(&last["at"]),
    };
    let decided = at(&schedule["last_fired"]).max(last_passed);
    let before = at(&schedule["created_at"]) / MINUTE;
    assert_eq!(fired + passed, (decided / MINUTE).saturating_sub(before), "{schedule}");
    (fired, passed)
}
