//! Followers of all events: they reconnect after a while, and ask for what they have missed.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Body;
use futures_util::StreamExt;
use serde_json::Value;
use tokio::time::{sleep, timeout};

use super::api::Api;
use super::history::{Event, Followed};
use super::world::World;
use keylane_testkit::Random;

/// Follower, which outlives the processes of the service.
#[derive(Debug)]
pub(super) struct Follower {
    number: u64,
    random: Random,
    last: Option<(u64, u64)>,
}

impl Follower {
    pub(super) fn new(seed: u64, number: u64) -> Self {
        Follower { number, random: Random::of(seed, &[5, number]), last: None }
    }
}

/// Lets a follower follow until the process ends.
pub(super) async fn run(world: Arc<World>, api: Api, follower: Arc<Mutex<Follower>>) {
    loop {
        let (number, after, mut random) = {
            let mut follower = follower.lock().unwrap();
            (follower.number, follower.last, Random::new(follower.random.number()))
        };
        sleep(Duration::from_millis(random.within(0..3_000))).await;
        let Some(body) = api.follow(after).await else { continue };
        world.record(Event::Following { follower: number, after });
        let lasts = match world.is_healed() {
            // Until the end, so that nothing may be missing.
            true => Duration::from_secs(100_000),
            false => Duration::from_millis(random.within(100..60_000)),
        };
        let _ = timeout(lasts, read(&world, &follower, number, body)).await;
    }
}

/// Records the events of a stream until it ends.
async fn read(world: &World, follower: &Mutex<Follower>, number: u64, body: Body) {
    let mut text = String::new();
    let mut stream = body.into_data_stream();
    while let Some(Ok(bytes)) = stream.next().await {
        text.push_str(std::str::from_utf8(&bytes).expect("events are text"));
        while let Some((event, rest)) = text.split_once("\n\n") {
            if let Some(followed) = parse(number, event) {
                follower.lock().unwrap().last = Some(followed.id);
                world.record(Event::Followed(followed));
            }
            text = rest.to_owned();
        }
    }
}

/// Parses an event; `None` for a comment.
fn parse(follower: u64, text: &str) -> Option<Followed> {
    let field = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let (boot, number) = field("id: ")?.split_once('-').expect("an id has two parts");
    let data: Value = serde_json::from_str(field("data: ")?).expect("an event has JSON");
    Some(Followed {
        follower,
        id: (boot.parse().unwrap(), number.parse().unwrap()),
        kind: field("event: ")?.to_owned(),
        job: data["job"]["id"].as_str().map(str::to_owned),
    })
}
