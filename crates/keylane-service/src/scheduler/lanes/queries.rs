//! Questions about lanes, which change nothing.

use std::hash::BuildHasher as _;

use super::{Lane, LanePlace, LanePosition, Lanes, table_of};
use crate::scheduler::list::ListLink;
use crate::scheduler::slab::NONE;
use crate::scheduler::task::TaskSlab;

impl Lanes {
    /// Whether a task has a key of a client.
    pub(in crate::scheduler) fn has_keys(&self, tasks: &TaskSlab, task: u32) -> bool {
        self.standings(tasks, task, 0).any(|position| !self.lanes[position.lane].is_of_job)
    }

    /// Whether a task is in front of all its lanes.
    pub(in crate::scheduler) fn is_in_front(&self, tasks: &TaskSlab, task: u32) -> bool {
        self.standings(tasks, task, 0).all(|position| position.is_front)
    }

    pub(in crate::scheduler) fn find(&self, key: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        self.tables[table_of(hash)].find(hash, |lane| self.lanes[*lane].key() == key).copied()
    }

    /// Head of the lane.
    pub(in crate::scheduler) fn head(&self, lane: u32) -> Option<u32> {
        let first = self.lanes[lane].line.first;
        (first != NONE).then(|| self.places[first].task)
    }

    /// Whether the head shares the key of the lane.
    pub(in crate::scheduler) fn is_head_shared(&self, lane: u32) -> bool {
        let first = self.lanes[lane].line.first;
        first != NONE && self.places[first].is_shared
    }

    pub(in crate::scheduler) fn lane(&self, lane: u32) -> &Lane {
        &self.lanes[lane]
    }

    /// Number of keys that have a lane.
    pub(in crate::scheduler) fn len(&self) -> usize {
        self.lanes.len() - self.of_jobs
    }

    /// Number of places in all lanes.
    #[cfg(test)]
    pub(in crate::scheduler) fn places(&self) -> usize {
        self.places.len()
    }

    /// Panics if a place is in front that must not be, or is not though it should, except behind
    /// places that are about to come there.
    #[cfg(test)]
    pub(in crate::scheduler) fn check_fronts(&self) {
        for (number, lane) in self.lanes.iter().filter(|(_, lane)| lane.len > 0) {
            let all = lane.line.iter(&self.places, |place| &place.link);
            let all: Vec<(u32, &LanePlace)> =
                all.map(|place| (place, &self.places[place])).collect();
            assert_eq!(all.len(), lane.len as usize);
            let uses = |at: usize| (all[at].1.is_shared, all[at].1.limit);
            let is_in_front = |at: &usize| match uses(0) {
                (true, _) => uses(*at).0,
                (false, 0) => *at == 0,
                (false, _) => {
                    let least = all[..=*at].iter().map(|(_, place)| place.limit).min();
                    *at < usize::from(least.unwrap_or_default())
                }
            };
            let wanted = (0..all.len()).take_while(is_in_front).count();
            let front = all.iter().take_while(|(_, place)| place.is_front).count();
            assert!(all[front..].iter().all(|(_, place)| !place.is_front), "one front");
            match self.advancing.get(&number) {
                Some(next) => assert!(front < wanted && all[front].0 == *next),
                None => assert_eq!(front, wanted),
            }
        }
        assert!(self.advancing.keys().all(|lane| self.lanes[*lane].len > 0));
        let has = |lane: u32, task: u32| {
            let mut all = self.lanes[lane].line.iter(&self.places, |place| &place.link);
            all.any(|place| self.places[place].task == task)
        };
        assert!(self.latest.iter().all(|(lane, task)| has(*lane, *task)));
    }

    /// Keys of clients that a task does not share.
    pub(in crate::scheduler) fn own_keys(
        &self,
        tasks: &TaskSlab,
        task: u32,
    ) -> impl Iterator<Item = &[u8]> {
        let mut place = tasks[task].places;
        std::iter::from_fn(move || {
            while place != NONE {
                let LanePlace { lane, is_shared, next_of_task, .. } = self.places[place];
                place = next_of_task;
                if !is_shared && !self.lanes[lane].is_of_job {
                    return Some(self.lanes[lane].key());
                }
            }
            None
        })
    }

    /// Lanes of a task, each with the number of its predecessors, counted up to `most`, and the one
    /// that it waits for.
    pub(in crate::scheduler) fn standings(
        &self,
        tasks: &TaskSlab,
        task: u32,
        most: u32,
    ) -> impl Iterator<Item = LanePosition> {
        let mut place = tasks[task].places;
        std::iter::from_fn(move || {
            (place != NONE).then(|| {
                let standing = self.standing(place, most);
                place = self.places[place].next_of_task;
                standing
            })
        })
    }

    fn standing(&self, place: u32, most: u32) -> LanePosition {
        let LanePlace { lane, is_shared, is_front, limit, link: ListLink { before, .. }, .. } =
            self.places[place];
        // A shared place waits for no shared one, and a limited one for limited ones only while they are
        // as many as it may be.
        let are_alike = |other: u32| match limit {
            0 => is_shared && self.places[other].is_shared,
            _ => self.places[other].limit != 0,
        };
        let (mut ahead, mut other, mut behind) = (0, before, None);
        while other != NONE && ahead < most {
            ahead += 1;
            if behind.is_none() && !are_alike(other) {
                behind = Some(other);
            }
            other = self.places[other].link.before;
        }
        let waits_for_room = limit != 0 && behind.is_none() && before != NONE && are_alike(before);
        let behind = behind.unwrap_or(before);
        let behind = (!is_front && behind != NONE).then(|| self.places[behind].task);
        let limit = waits_for_room.then_some(limit);
        LanePosition { lane, ahead, behind, is_shared, is_front, limit }
    }

    /// Tasks in a lane from the last to the first, each with whether it runs alone with the key.
    pub(in crate::scheduler) fn tasks_backward(
        &self,
        lane: u32,
    ) -> impl Iterator<Item = (u32, bool)> {
        let mut next = self.lanes[lane].line.last;
        std::iter::from_fn(move || {
            let place = (next != NONE).then(|| &self.places[next])?;
            next = place.link.before;
            Some((place.task, place.runs_alone()))
        })
    }

    /// Tasks in a lane from the first to the last, each with whether it runs alone with the key.
    pub(in crate::scheduler) fn tasks_forward(
        &self,
        lane: u32,
    ) -> impl Iterator<Item = (u32, bool)> {
        let all = self.lanes[lane].line.iter(&self.places, |place| &place.link);
        all.map(|place| (self.places[place].task, self.places[place].runs_alone()))
    }

    /// Lanes with a head, the oldest head first.
    pub(in crate::scheduler) fn by_age(&self) -> impl Iterator<Item = u32> {
        self.by_age.iter(&self.lanes, |lane| &lane.by_age)
    }

    /// Lanes with several tasks, longest first; lanes whose lengths have the same number of binary
    /// digits are in no order.
    pub(in crate::scheduler) fn by_digits(&self) -> impl Iterator<Item = u32> {
        let lists = self.by_length.iter().rev();
        lists.flat_map(|list| list.iter(&self.lanes, |lane| &lane.by_length))
    }
}
