//! Rules for followers of events: nothing is missing or out of order between two resets, and every
//! job has its events.

use super::state::{FollowerState, State};
use crate::simulation::history::Followed;

impl State {
    pub(super) fn following(&mut self, follower: u64, after: Option<(u64, u64)>) {
        let place = self.place;
        let state = self.followers.entry(follower).or_default();
        state.begins = after.is_none();
        if state.begins {
            *state = FollowerState { begins: true, since: place, ..FollowerState::default() };
        }
    }

    /// The events of one start of the service have consecutive numbers; a reset says that some are
    /// missing.
    pub(super) fn followed(&mut self, followed: &Followed) {
        let place = self.place;
        let mut wrong = Vec::new();
        let state = self.followers.entry(followed.follower).or_default();
        let last = state.last.replace(followed.id);
        if followed.kind == "reset" {
            *state = FollowerState { last: state.last, since: place, ..FollowerState::default() };
            return;
        }
        let follows = last.is_none_or(|(boot, number)| {
            followed.id.0 == boot && followed.id.1 == number.wrapping_add(1)
        });
        if !std::mem::take(&mut state.begins) && !follows {
            wrong.push(format!("an event follows {last:?}: {followed:?}"));
        }
        if let Some(job) = &followed.job {
            let is_new = match &*followed.kind {
                "job_accepted" => state.accepted.insert(job.clone()),
                "job_ended" => {
                    state.ended.insert(job.clone());
                    true
                }
                _ => true,
            };
            if !is_new {
                wrong.push(format!("a job is accepted again: {followed:?}"));
            }
        }
        wrong.into_iter().for_each(|why| self.fail(why));
    }

    /// Every job that a follower has seen being accepted has ended for it, too.
    pub(super) fn followers_end(&mut self) {
        let mut wrong = Vec::new();
        for (number, follower) in &self.followers {
            for job in &self.jobs {
                let Some(accepted) = job.accepted else { continue };
                if accepted.place < follower.since || job.is_retried || !job.is_over {
                    continue;
                }
                if follower.accepted.contains(&job.id) && !follower.ended.contains(&job.id) {
                    wrong.push(format!("follower {number} misses the end of {}", job.id));
                }
            }
        }
        self.broken.extend(wrong);
    }
}
