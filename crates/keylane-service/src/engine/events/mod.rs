//! Events of jobs, keys and schedules, and their followers.

mod feed;
mod hub;
mod queues;
mod ring_event;

pub(crate) use feed::{FeedReader, JobFeed};
pub(crate) use hub::{EventFollower, EventHub, FollowerText};
pub(crate) use ring_event::{FollowedItem, event, sse_text};
