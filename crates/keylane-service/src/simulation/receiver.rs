//! Receiver of webhooks: it answers late, or not at all the first time.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use serde_json::Value;
use tokio::time::sleep;

use super::cuts::Part;
use super::history::Event;
use super::work::RECEIVER;
use super::world::World;
use crate::engine::{SendFailure, WebhookRequest, WebhookSender};
use keylane_testkit::Random;

/// Receiver of all webhooks.
pub(super) struct Receiver(pub(super) Arc<World>);

impl fmt::Debug for Receiver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Receiver").finish_non_exhaustive()
    }
}

impl WebhookSender for Receiver {
    fn send(&self, request: WebhookRequest) -> BoxFuture<'static, Result<(), SendFailure>> {
        let world = Arc::clone(&self.0);
        let body: Value = serde_json::from_str(&request.body).unwrap();
        let job: usize = request.url.strip_prefix(RECEIVER).unwrap().parse().unwrap();
        let state = body["data"]["state"].as_str().unwrap().to_owned();
        let mut random = Random::of(world.seed, &[7, job as u64]);
        let is_calm = world.is_healed() || world.cuts.has(Part::Failures);
        let refuses = !is_calm
            && random.chance(40)
            && world.refused_webhooks.lock().unwrap().insert(request.id.clone());
        let lasts = Duration::from_millis(random.within(1..4_000));
        Box::pin(async move {
            sleep(lasts).await;
            let (id, accepted) = (request.id, !refuses);
            world.record(Event::Delivered { job, id, state, accepted });
            match refuses {
                false => Ok(()),
                true => {
                    let error = "the response was 503".to_owned();
                    Err(SendFailure { error, may_pass: true, after: None })
                }
            }
        })
    }
}
