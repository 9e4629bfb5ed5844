//! Events of jobs, keys and schedules, and their followers.

mod feed;
mod hub;
mod queues;
mod ring_event;

pub(crate) use feed::{Feed, Reader};
pub(crate) use hub::{Events, Follower, FollowerText};
pub(crate) use ring_event::{Followed, event, sse_text};
