//! Jobs share the slots as in the article of the queen ant, over HTTP: four slots, a job of 20 subtasks of a
//! minute at 0:00, and one of 4 at 2:01. Which slot goes to whom, after which end and by which rule, is what
//! the article says, step by step.
//!
//! Subtasks end when the test says so, so a minute takes as long as it takes.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use crate::common::stage::{Actors, Stage, stage};
use crate::common::{Client, Log, builder, serve};
use keylane_service::{Kind, Service};
use serde_json::{Value, json};

/// The rules of the article by their names here: 3 is `keep`, 1 and 2 are `admit`, 4 is `least`.
///
/// Each line is the end of a subtask, the one that gets its slot, the rule by which it does, and what is on
/// the four slots then. The article ends its account at 3:00; the rest follows from its rules.
const ONE_JOB: &str = "
    1:00  A1 A5  least  A5 A2 A3 A4
    1:00  A2 A6  least  A5 A6 A3 A4
    1:00  A3 A7  least  A5 A6 A7 A4
    1:00  A4 A8  least  A5 A6 A7 A8
    2:00  A5 A9  least  A9 A6 A7 A8
    2:00  A6 A10 least  A9 A10 A7 A8
    2:00  A7 A11 least  A9 A10 A11 A8
    2:00  A8 A12 least  A9 A10 A11 A12";

/// The problem as it is set: the second job has 4 subtasks.
const SECOND_OF_FOUR: &str = "
    3:00  A9  B1  admit  B1 A10 A11 A12
    3:00  A10 B2  least  B1 B2 A11 A12
    3:00  A11 B3  least  B1 B2 B3 A12
    3:00  A12 A13 keep   B1 B2 B3 A13
    4:00  B1  B4  least  B4 B2 B3 A13
    4:00  B2  A14 least  B4 A14 B3 A13
    4:00  B3  A15 least  B4 A14 A15 A13
    4:00  A13 A16 least  B4 A14 A15 A16
    5:00  B4  A17 least  A17 A14 A15 A16
    5:00  A14 A18 least  A17 A18 A15 A16
    5:00  A15 A19 least  A17 A18 A19 A16
    5:00  A16 A20 least  A17 A18 A19 A20
    6:00  A17 -   -      - A18 A19 A20
    6:00  A18 -   -      - - A19 A20
    6:00  A19 -   -      - - - A20
    6:00  A20 -   -      - - - -";

/// As the article's own steps have it: the second job needs 2 threads.
const SECOND_OF_TWO: &str = "
    3:00  A9  B1  admit  B1 A10 A11 A12
    3:00  A10 B2  least  B1 B2 A11 A12
    3:00  A11 A13 least  B1 B2 A13 A12
    3:00  A12 A14 least  B1 B2 A13 A14
    4:00  B1  A15 least  A15 B2 A13 A14
    4:00  B2  A16 least  A15 A16 A13 A14
    4:00  A13 A17 least  A15 A16 A17 A14
    4:00  A14 A18 least  A15 A16 A17 A18
    5:00  A15 A19 least  A19 A16 A17 A18
    5:00  A16 A20 least  A19 A20 A17 A18
    5:00  A17 -   -      A19 A20 - A18
    5:00  A18 -   -      A19 A20 - -
    6:00  A19 -   -      - A20 - -
    6:00  A20 -   -      - - - -";

/// The second job is split in a slot of its own, when there is one for it.
const SECOND_IS_SPLIT: &str = "
    3:00  A9  split admit  split A10 A11 A12
    3:00  A10 A13   least  split A13 A11 A12
    3:00  split B1  keep   B1 A13 A11 A12
    3:00  A11 B2    least  B1 A13 B2 A12
    3:00  A12 B3    least  B1 A13 B2 B3
    4:00  B1  B4    least  B4 A13 B2 B3";

/// A server, and the stage on which its subtasks are.
struct Scene {
    client: Client,
    stage: Stage,
    /// Jobs by their letters.
    jobs: HashMap<String, &'static str>,
    /// How many slots were given out so far.
    decisions: usize,
}

async fn service(folder: &Path, actors: &Actors) -> Service {
    let work = Kind::new(actors.clone());
    let split = Kind { split: Some(Arc::new(actors.clone())), ..work.clone() };
    let builder = builder(folder, &Log::default());
    builder.kind("work", work).kind("split", split).start().await.unwrap()
}

impl Scene {
    fn new(client: Client, stage: Stage) -> Self {
        Scene { client, stage, jobs: HashMap::new(), decisions: 0 }
    }

    /// Submits a job whose subtasks are called by its letter and their numbers, from 1.
    async fn submit(&mut self, letter: &'static str, subtasks: usize) -> String {
        let subtasks: Vec<_> =
            (1..=subtasks).map(|number| json!({"payload": format!("{letter}{number}")})).collect();
        self.submit_this(letter, &json!({"kind": "work", "subtasks": subtasks})).await
    }

    async fn submit_this(&mut self, letter: &'static str, job: &Value) -> String {
        let id = self.client.submit(&job.to_string()).await;
        self.jobs.insert(id.clone(), letter);
        id
    }

    /// The first job finds all slots free: it keeps one, and gets what is left as the one with the least.
    async fn begin_the_first(&mut self) -> String {
        let id = self.submit("A", 20).await;
        let mut begun = Vec::new();
        for _ in 0..4 {
            begun.push(self.stage.next().await);
        }
        begun.sort();
        assert_eq!(begun, ["A1", "A2", "A3", "A4"]);
        let (on, rules) = self.look().await;
        assert_eq!(on, "A1 A2 A3 A4");
        assert_eq!(rules, ["A admit", "A least", "A least", "A least"]);
        self.decisions = 4;
        self.play(ONE_JOB).await;
        id
    }

    /// Plays a schedule: ends attempts, and checks which begins next, by which rule, and the claims of each job.
    async fn play(&mut self, schedule: &str) {
        for line in schedule.lines().filter(|line| !line.is_empty()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            let [_, ends, begins, rule, ..] = words[..] else { panic!("{line}") };
            let fallen = (ends == "split")
                .then(|| json!(["B1", "B2", "B3", "B4"].map(|name| json!({"payload": name}))));
            self.stage.answer(ends, &fallen.unwrap_or(Value::Null));
            if begins == "-" {
                self.wait_until_busy(words[4..].iter().filter(|word| **word != "-").count()).await;
            } else {
                assert_eq!(self.stage.next().await, begins, "{line}");
                self.decisions += 1;
            }
            let (on, rules) = self.look().await;
            assert_eq!(on, words[4..].join(" "), "{line}");
            assert_eq!(rules.len(), self.decisions, "{line}: {rules:?}");
            if begins != "-" {
                let job = if begins == "split" { "B" } else { &begins[..1] };
                assert_eq!(rules.last().unwrap(), &format!("{job} {rule}"), "{line}");
            }
        }
        self.stage.expect_nobody();
    }

    /// What is on the slots, and all decisions so far with their rules, as the server says.
    async fn look(&self) -> (String, Vec<String>) {
        let view = self.client.get("/v1/scheduler").await.expect(200).json();
        let mut slots = ["-"; 4].map(str::to_owned);
        for running in view["running"].as_array().unwrap() {
            let letter = self.jobs[running["job"].as_str().unwrap()];
            let number = running["number"].as_u64().unwrap();
            let is_split = number == u64::from(u32::MAX);
            let name = if is_split { "split".into() } else { format!("{letter}{}", number + 1) };
            slots[usize::try_from(running["slot"].as_u64().unwrap()).unwrap()] = name;
        }
        let rule = |decision: &Value| {
            // A job that is over has no name there any more.
            let letter = self.jobs.get(decision["job"].as_str().unwrap()).copied();
            format!("{} {}", letter.unwrap_or("?"), decision["rule"].as_str().unwrap())
        };
        (slots.join(" "), view["decisions"].as_array().unwrap().iter().map(rule).collect())
    }

    /// Waits until no more slots than this are taken, as events tell.
    async fn wait_until_busy(&self, busy: usize) {
        let (id, _) = self.jobs.iter().find(|(_, letter)| **letter == "A").unwrap();
        self.client
            .wait_until(id, |job| {
                let running = job["counts"]["running"].as_u64().unwrap();
                running == busy as u64 || job["ended_at"].is_string()
            })
            .await;
    }

    /// The second job comes while all slots are taken: nothing begins, and it says why it waits.
    async fn submit_the_second(&mut self, job: &Value) -> String {
        let id = self.submit_this("B", job).await;
        let view = self.client.get(&format!("/v1/jobs/{id}")).await.expect(200).json();
        assert_eq!(view["state"], "queued", "{view}");
        assert_eq!(view["waiting_because"][0]["reason"], "not_admitted", "{view}");
        let (on, rules) = self.look().await;
        assert_eq!((on.as_str(), rules.len()), ("A9 A10 A11 A12", self.decisions));
        self.stage.expect_nobody();
        id
    }
}

fn of_second(subtasks: usize) -> Value {
    let subtasks: Vec<_> =
        (1..=subtasks).map(|number| json!({"payload": format!("B{number}")})).collect();
    json!({"kind": "work", "subtasks": subtasks})
}

async fn plays_as_in_the_article(second: &Value, schedule: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (actors, stage) = stage();
    let service = service(folder.path(), &actors).await;
    let (_server, client) = serve(&service).await;
    let mut scene = Scene::new(client, stage);
    let first = scene.begin_the_first().await;
    let second = scene.submit_the_second(second).await;
    scene.play(schedule).await;
    let ended = |job: &Value| job["ended_at"].as_str().unwrap().to_owned();
    let (first, second) = (scene.client.wait(&first).await, scene.client.wait(&second).await);
    assert_eq!((&first["state"], &second["state"]), (&json!("succeeded"), &json!("succeeded")));
    assert!(ended(&second) <= ended(&first), "the second is over before the first");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_four_that_comes_later_ends_before_the_one_of_twenty() {
    plays_as_in_the_article(&of_second(4), SECOND_OF_FOUR).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_job_of_two_leaves_what_it_does_not_need() {
    plays_as_in_the_article(&of_second(2), SECOND_OF_TWO).await;
}

/// The article splits a task only when a thread is there for it: splitting it in the queue is what makes a
/// later one wait for all of an earlier one's parts.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_split_when_a_slot_is_free_for_it_and_not_before() {
    let folder = tempfile::tempdir().unwrap();
    let (actors, stage) = stage();
    let service = service(folder.path(), &actors).await;
    let (_server, client) = serve(&service).await;
    let mut scene = Scene::new(client, stage);
    scene.begin_the_first().await;
    scene.submit_the_second(&json!({"kind": "split", "payload": "split"})).await;
    scene.play(SECOND_IS_SPLIT).await;
}
