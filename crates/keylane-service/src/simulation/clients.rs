//! Clients: they submit jobs, read them, and act as operators. A client that gets no answer, or the
//! answer to try again, repeats its request.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::http::StatusCode;
use serde_json::{Value, json};
use tokio::time::{sleep, timeout};

use super::api::Api;
use super::cuts::Part;
use super::history::{Command, Event, Seen};
use super::work::{JobKind, JobSpec, KEYS};
use super::world::World;
use crate::wire::Timestamp;
use keylane_testkit::Random;

/// Client, which outlives the processes of the service.
#[derive(Debug)]
pub(super) struct Client {
    number: u64,
    random: Random,
    /// Number of actions so far, with those that are left out.
    count: u64,
    /// Number of actions left.
    left: u64,
    /// Action without an answer.
    pending: Option<Action>,
}

#[derive(Clone, Debug)]
enum Action {
    Submit {
        job: usize,
    },
    /// Jobs that are accepted together.
    Batch {
        jobs: Vec<usize>,
    },
    Read {
        job: usize,
        id: String,
    },
    Command {
        number: u64,
        command: Command,
        id: String,
    },
}

impl Client {
    pub(super) fn new(seed: u64, number: u64) -> Self {
        let mut random = Random::of(seed, &[3, number]);
        let left = random.within(10..40);
        Client { number, random, count: 0, left, pending: None }
    }

    /// Returns the actions so far.
    pub(super) fn actions(&self) -> impl Iterator<Item = Part> {
        let client = self.number;
        (0..self.count).map(move |number| Part::Action { client, number })
    }

    pub(super) fn has_finished(&self) -> bool {
        self.left == 0 && self.pending.is_none()
    }
}

/// Lets a client act until it has finished.
pub(super) async fn run(world: Arc<World>, api: Api, client: Arc<Mutex<Client>>) {
    loop {
        let (pending, mut random) = {
            let mut client = client.lock().unwrap();
            (client.pending.clone(), Random::new(client.random.number()))
        };
        let action = match pending {
            Some(action) => action,
            None if client.lock().unwrap().left == 0 => return,
            None => {
                sleep(pause(&mut random)).await;
                let mut client = client.lock().unwrap();
                let part = Part::Action { client: client.number, number: client.count };
                (client.left, client.count) = (client.left - 1, client.count + 1);
                if world.cuts.has(part) {
                    continue;
                }
                client.pending.insert(draw(&world, &mut random)).clone()
            }
        };
        // A client that waits for too long disconnects, and asks again.
        let patience = Duration::from_millis(random.within(50..10_000));
        let done = timeout(patience, perform(&world, &api, &mut random, &action)).await;
        match done {
            Ok(true) => client.lock().unwrap().pending = None,
            Ok(false) | Err(_) => sleep(Duration::from_millis(random.within(100..2_000))).await,
        }
    }
}

fn pause(random: &mut Random) -> Duration {
    Duration::from_millis(match random.chance(40) {
        true => random.within(0..20),
        false => random.within(20..6_000),
    })
}

fn draw(world: &World, random: &mut Random) -> Action {
    let known = random.pick(&world.accepted.lock().unwrap()).cloned();
    let roll = random.within(0..100);
    let (job, id) = match known {
        Some(known) if roll >= 50 => known,
        _ => {
            return match random.chance(15) {
                true => {
                    let batch = Some(world.next_batch());
                    let count = random.within(1..4);
                    Action::Batch { jobs: (0..count).map(|_| add(world, random, batch)).collect() }
                }
                false => Action::Submit { job: add(world, random, None) },
            };
        }
    };
    let key = random.within(0..KEYS) as u8;
    let command = match roll {
        50..66 => return Action::Read { job, id },
        66 => Command::SetWeight { job, weight: random.within(1..5) as u32 },
        67 => Command::LimitRated { at_once: random.within(1..5) as u32 },
        68..70 => Command::Remove { job },
        70..75 => Command::Cancel { job, kill: random.chance(50) },
        75..79 => Command::PauseJob { job },
        79..83 => Command::ResumeJob { job },
        83..85 => Command::RetryJob { job },
        85 => Command::RetrySubtask { job, number: u32::from(key) / 2, edits: random.chance(70) },
        86..89 => Command::PauseKey { key },
        89..92 => Command::ResumeKey { key },
        92..94 => Command::RetryHead { key },
        94 => Command::PauseKind { kind: key % JobKind::ALL.len() as u8 },
        95 => Command::ResumeKind { kind: key % JobKind::ALL.len() as u8 },
        _ => Command::SkipHead { key },
    };
    let number = world.next_command();
    world.record(Event::Commanding { number, command });
    Action::Command { number, command, id }
}

/// Adds a job that a client is about to submit, and returns its number.
fn add(world: &World, random: &mut Random, batch: Option<usize>) -> usize {
    let spec = JobSpec::draw(random).after_one_of(&world.accepted.lock().unwrap());
    let spec = JobSpec { batch, ..spec };
    let job = world.add_job(spec.clone());
    world.record(Event::Submitting { job, spec });
    job
}

/// Notes the answer that a job is accepted.
fn accepted(world: &World, job: usize, answer: &Value) {
    let id = answer["id"].as_str().unwrap().to_owned();
    let time = |field: &str| {
        let time = answer.get(field).map(|at| serde_json::from_value(at.clone()).unwrap());
        time.map(|Timestamp(at)| at)
    };
    let (run_at, expires_at) = (time("run_at"), time("expires_at"));
    world.accepted.lock().unwrap().push((job, id.clone()));
    world.record(Event::Accepted { job, id, run_at, expires_at });
}

/// Performs an action. Returns false if it must be repeated.
async fn perform(world: &World, api: &Api, random: &mut Random, action: &Action) -> bool {
    match action {
        Action::Submit { job } => {
            let (name, body) = (format!("job {job}"), world.job(*job).body(*job));
            let request = ("POST", "/v1/jobs");
            let (status, answer) = api.send(random, request, Some(&name), Some(body)).await;
            if !status.is_success() {
                return refused(world, &[*job], status, &answer);
            }
            accepted(world, *job, &answer);
            true
        }
        Action::Batch { jobs } => {
            let name = format!("batch of {jobs:?}");
            let bodies: Vec<Value> = jobs.iter().map(|job| world.job(*job).body(*job)).collect();
            let (request, body) = (("POST", "/v1/jobs/batch"), json!({"jobs": bodies}));
            let (status, answer) = api.send(random, request, Some(&name), Some(body)).await;
            if !status.is_success() {
                return refused(world, jobs, status, &answer);
            }
            for (place, job) in jobs.iter().enumerate() {
                accepted(world, *job, &answer["items"][place]["job"]);
            }
            true
        }
        Action::Read { job, id } => {
            read(world, api, random, (*job, id)).await;
            true
        }
        Action::Command { number, command, id } => {
            let (method, path, body) = request_of(*number, *command, id);
            let name = (method == "POST").then(|| format!("command {number}"));
            let (status, _) = api.send(random, (method, &path), name.as_deref(), body).await;
            if is_transient(status) {
                return false;
            }
            let (number, command, status) = (*number, *command, status.as_u16());
            world.record(Event::Commanded { number, command, status });
            true
        }
    }
}

/// Notes a refusal of jobs. Returns false if it asks for a repetition.
fn refused(world: &World, jobs: &[usize], status: StatusCode, answer: &Value) -> bool {
    if is_transient(status) {
        return false;
    }
    // The job that one of them waits for was removed, and is named; a batch is refused as a whole.
    assert_eq!(status, StatusCode::CONFLICT, "a submission is answered: {answer}");
    let names = |id: &str| answer["detail"].as_str().is_some_and(|detail| detail.contains(id));
    let is_named = |job: usize| world.job(job).after.is_some_and(|after| names(&after.id));
    let waiting = jobs.iter().find(|job| is_named(**job));
    let waiting = *waiting.unwrap_or_else(|| panic!("a submission is refused: {answer}"));
    for job in jobs {
        world.record(Event::Refused { job: *job, waiting });
    }
    true
}

/// Returns whether a refusal asks for a repetition.
fn is_transient(status: StatusCode) -> bool {
    [StatusCode::SERVICE_UNAVAILABLE, StatusCode::INSUFFICIENT_STORAGE].contains(&status)
        || status == StatusCode::TOO_MANY_REQUESTS
}

/// Returns the method, the path and the body of a command. A payload has the number of the command as its `edition`.
fn request_of(edition: u64, command: Command, id: &str) -> (&'static str, String, Option<Value>) {
    let of_key = |key: u8, what: &str| ("POST", format!("/v1/keys/k{key}/{what}"), None);
    let of_kind = |kind: u8, what: &str| {
        ("POST", format!("/v1/kinds/{}/{what}", JobKind::ALL[usize::from(kind)].name()), None)
    };
    let of_job = |what: &str| ("POST", format!("/v1/jobs/{id}/{what}"), None);
    match command {
        Command::Cancel { kill, .. } => {
            let mode = if kill { "kill" } else { "graceful" };
            ("POST", format!("/v1/jobs/{id}/cancel"), Some(json!({"mode": mode})))
        }
        Command::PauseJob { .. } => of_job("pause"),
        Command::ResumeJob { .. } => of_job("resume"),
        Command::RetryJob { .. } => of_job("retry"),
        Command::RetrySubtask { job, number, edits } => {
            let mut chosen = json!({"number": number});
            if edits {
                let payload = json!({"job": job, "number": number, "edition": edition});
                chosen["payload"] = payload;
            }
            let body = json!({"subtasks": [chosen]});
            ("POST", format!("/v1/jobs/{id}/retry"), Some(body))
        }
        Command::PauseKey { key } => of_key(key, "pause"),
        Command::ResumeKey { key } => of_key(key, "resume"),
        Command::PauseKind { kind } => of_kind(kind, "pause"),
        Command::ResumeKind { kind } => of_kind(kind, "resume"),
        Command::RetryHead { key } => of_key(key, "retry-head"),
        Command::SkipHead { key } => of_key(key, "skip-head"),
        Command::SetWeight { weight, .. } => {
            ("PATCH", format!("/v1/jobs/{id}"), Some(json!({"weight": weight})))
        }
        Command::LimitRated { at_once } => {
            let path = format!("/v1/kinds/{}", JobKind::Rated.name());
            ("PATCH", path, Some(json!({"concurrency": at_once})))
        }
        Command::Remove { .. } => ("DELETE", format!("/v1/jobs/{id}"), None),
    }
}

/// Reads a job. Returns true if it has ended, or is gone.
pub(super) async fn read(
    world: &World,
    api: &Api,
    random: &mut Random,
    (job, id): (usize, &str),
) -> bool {
    let asked = world.clock.steady();
    let (status, answer) = api.send(random, ("GET", &format!("/v1/jobs/{id}")), None, None).await;
    if !status.is_success() {
        world.record(Event::NotFound { job, status: status.as_u16() });
        return [StatusCode::NOT_FOUND, StatusCode::GONE].contains(&status);
    }
    let count = |name: &str| answer["counts"][name].as_u64().unwrap();
    let state = answer["state"].as_str().unwrap().to_owned();
    let has_ended = ["succeeded", "failed", "cancelled"].contains(&&*state);
    world.record(Event::Read(Seen {
        job,
        asked,
        state,
        version: answer["version"].as_u64().unwrap(),
        total: count("total"),
        succeeded: count("succeeded"),
        failed: count("failed"),
        cancelled: count("cancelled"),
        superseded: count("superseded"),
        result: answer.get("result").cloned(),
    }));
    if count("superseded") > 0 {
        read_superseded(world, api, random, (job, id)).await;
    }
    has_ended
}

/// Reads which subtasks of a job are superseded.
async fn read_superseded(world: &World, api: &Api, random: &mut Random, (job, id): (usize, &str)) {
    let path = format!("/v1/jobs/{id}/results");
    let (status, answer) = api.send(random, ("GET", &path), None, None).await;
    // The process may end, or the job may be removed.
    let Some(results) = answer["items"].as_array().filter(|_| status.is_success()) else { return };
    for result in results.iter().filter(|result| result["outcome"] == "superseded") {
        let by = &result["superseded_by"];
        world.record(Event::Superseded {
            job,
            number: result["number"].as_u64().unwrap() as u32,
            by: (by["job"].as_str().unwrap().to_owned(), by["number"].as_u64().unwrap() as u32),
        });
    }
}

/// Sends a command that ends a pause. Refusals have no effect.
async fn order(world: &World, api: &Api, random: &mut Random, (command, id): (Command, &str)) {
    let number = world.next_command();
    world.record(Event::Commanding { number, command });
    let (method, path, body) = request_of(number, command, id);
    let (status, _) = api.send(random, (method, &path), None, body).await;
    world.record(Event::Commanded { number, command, status: status.as_u16() });
}

/// Resumes everything and skips subtasks that have stopped their keys. Adds the jobs that have ended
/// to `ended`, and returns true when these are all.
pub(super) async fn clear(
    world: &World,
    api: &Api,
    random: &mut Random,
    ended: &mut BTreeSet<usize>,
) -> bool {
    let mut jobs = world.accepted.lock().unwrap().clone();
    jobs.retain(|(job, _)| !ended.contains(job));
    for (job, id) in &jobs {
        if read(world, api, random, (*job, id)).await {
            ended.insert(*job);
        } else {
            order(world, api, random, (Command::ResumeJob { job: *job }, id)).await;
        }
    }
    for (place, kind) in JobKind::ALL.into_iter().enumerate() {
        let path = format!("/v1/kinds/{}", kind.name());
        let (_, view) = api.send(random, ("GET", &path), None, None).await;
        if view["paused"] == true {
            order(world, api, random, (Command::ResumeKind { kind: place as u8 }, "")).await;
        }
    }
    for key in 0..KEYS as u8 {
        let path = format!("/v1/keys/k{key}");
        let (_, view) = api.send(random, ("GET", &path), None, None).await;
        match view["state"].as_str() {
            Some("paused") => order(world, api, random, (Command::ResumeKey { key }, "")).await,
            Some("stopped") => order(world, api, random, (Command::SkipHead { key }, "")).await,
            _ => {}
        }
    }
    jobs.is_empty()
}
