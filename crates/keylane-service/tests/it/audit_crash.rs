//! A server that is killed again and again has written down what its operators have done, and nothing else: an action
//! and its entry survive together, or neither does.
//!
//! The server is this test's own binary in another process, killed by `SIGKILL` in the middle of what operators ask.
//! Each thing that is changed holds a number, which goes up by one with each change, and so do the entries about it:
//! after a kill the last entry has to have the number that the thing has. `KEYLANE_KILLS` says how many kills there
//! are.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::child::{self, Child};
use crate::common::{Client, Log, builder};
use serde_json::{Value, json};

/// How many jobs, and how many schedules, are changed at the same time.
const EACH: usize = 3;

/// How many actions are answered before a kill, at least.
const BEFORE_A_KILL: u64 = 25;

/// The server, if this process was started to be one.
#[tokio::test(flavor = "multi_thread")]
async fn server() {
    let Some(folder) = child::folder() else { return };
    let service = builder(&folder, &Log::default()).start().await.unwrap();
    child::serve(&service, &folder).await;
}

async fn client_of(child: &mut Child) -> Client {
    let address = child.address().await.parse().unwrap();
    Client { address, http: child::client() }
}

/// Something that operators change: a job by its name, or a schedule by its minute.
#[derive(Clone, Debug)]
enum Thing {
    Job(String),
    Schedule(String),
}

impl Thing {
    /// Gives it this number. Whether that was answered.
    async fn change(&self, client: &Client, number: u64) -> bool {
        let (request, body) = match self {
            Thing::Job(id) => {
                let url = format!("http://{}/v1/jobs/{id}", client.address);
                let request = client.http.patch(url).header("if-match", "*");
                (request, json!({"name": number.to_string()}))
            }
            Thing::Schedule(name) => {
                let url = format!("http://{}/v1/schedules/{name}", client.address);
                (client.http.put(url), schedule(number))
            }
        };
        let request = request.header("content-type", "application/json").body(body.to_string());
        let Ok(answer) = request.send().await else { return false };
        assert!(answer.status().is_success(), "{:?}", answer.status());
        answer.bytes().await.is_ok()
    }

    /// The number that it has.
    async fn number(&self, client: &Client) -> u64 {
        let (path, field) = match self {
            Thing::Job(id) => (format!("/v1/jobs/{id}"), "/name"),
            Thing::Schedule(name) => (format!("/v1/schedules/{name}"), "/job/payload"),
        };
        let thing = client.get(&path).await.expect(200).json();
        let number = thing.pointer(field).unwrap();
        number.as_u64().unwrap_or_else(|| number.as_str().unwrap().parse().unwrap())
    }

    /// The number that an entry says it got, if the entry is about it. Of a schedule the minutes tell, for its payload
    /// is not in the log.
    fn entered(&self, entry: &Value) -> Option<u64> {
        match self {
            Thing::Job(id) if entry["job"] == **id => {
                Some(entry["parameters"]["name"].as_str()?.parse().unwrap())
            }
            Thing::Schedule(name) if entry["schedule"] == **name => {
                let cron = entry["parameters"]["cron"].as_str()?;
                let mut parts = cron.split(' ').map(|part| part.parse().unwrap_or(0));
                let (minute, hour): (u64, u64) = (parts.next()?, parts.next()?);
                Some(hour * 60 + minute)
            }
            _ => None,
        }
    }
}

/// Once a year, at a minute of a day, so that its numbers are known from its times.
fn schedule(number: u64) -> Value {
    let (hour, minute) = (number / 60, number % 60);
    let cron = format!("{minute} {hour} 29 2 *");
    json!({"cron": cron, "paused": true, "job": {"kind": "echo", "payload": number}})
}

async fn things(client: &Client) -> Vec<Thing> {
    let mut things = Vec::new();
    for index in 0..EACH {
        let job =
            json!({"kind": "echo", "name": "0", "payload": 1, "delay_ms": 36_000_000}).to_string();
        things.push(Thing::Job(client.submit(&job).await));
        let name = format!("s{index}");
        let thing = Thing::Schedule(name);
        assert!(thing.change(client, 0).await);
        things.push(thing);
    }
    things
}

/// Changes them all until the server is gone. What was answered last of each is in `answered`.
async fn operate(
    client: &Client,
    things: &[Thing],
    answered: &Arc<Mutex<Vec<u64>>>,
    count: &Arc<AtomicU64>,
) {
    // All of them before the first change: after that the server may be gone at any moment.
    let numbers = futures_util::future::join_all(things.iter().map(|thing| thing.number(client)));
    let all = things.iter().zip(numbers.await).enumerate();
    let all = all.map(|(index, (thing, mut number))| async move {
        // A day has no more minutes.
        while number < 1439 && thing.change(client, number + 1).await {
            number += 1;
            answered.lock().unwrap()[index] = number;
            count.fetch_add(1, Ordering::Relaxed);
        }
    });
    futures_util::future::join_all(all).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_action_and_its_entry_survive_together() {
    if child::folder().is_some() {
        return;
    }
    let kills = child::kills();
    let folder = tempfile::tempdir().unwrap();
    let mut child = Child::start("audit_crash::server", folder.path(), &[]);
    let mut client = client_of(&mut child).await;
    let things = things(&client).await;
    let answered = Arc::new(Mutex::new(vec![0; things.len()]));
    for kill in 0..kills {
        let count = Arc::new(AtomicU64::new(0));
        let wanted = BEFORE_A_KILL + kill * 7 % 20;
        let killed = async {
            while count.load(Ordering::Relaxed) < wanted {
                tokio::task::yield_now().await;
            }
            child.kill();
        };
        tokio::join!(operate(&client, &things, &answered, &count), killed);
        child.restart();
        client = client_of(&mut child).await;
        let last = answered.lock().unwrap().clone();
        check(&client, &things, &last).await;
    }
}

/// The log has each change of each thing once, in order, and the last one is as the thing is.
async fn check(client: &Client, things: &[Thing], answered: &[u64]) {
    let (mut log, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = client.get(&format!("/v1/audit?limit=1000{cursor}")).await.expect(200).json();
        log.extend(page["items"].as_array().unwrap().iter().cloned());
        let Some(next) = page["next_cursor"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    log.reverse();
    let numbers: Vec<u64> = log.iter().map(|entry| entry["number"].as_u64().unwrap()).collect();
    assert_eq!(numbers, (1..=log.len() as u64).collect::<Vec<_>>());
    assert!(log.iter().all(|entry| entry["outcome"] == "done"));
    for (thing, answered) in things.iter().zip(answered) {
        let entered: Vec<u64> = log.iter().filter_map(|entry| thing.entered(entry)).collect();
        let first = u64::from(matches!(thing, Thing::Job(_)));
        let number = thing.number(client).await;
        assert_eq!(entered, (first..=number).collect::<Vec<_>>(), "{thing:?} has {number}");
        assert!(number >= *answered, "{thing:?}: {answered} was answered, and it has {number}");
    }
}
