//! Order of keys: lanes of tasks, and the tasks that head all of theirs.
//!
//! A lane is the queue of a key's unfinished tasks, in the order of acceptance. A task has a place
//! in the lane of each of its keys, exclusive, shared or limited. A place is *in front* if no earlier
//! place of its lane conflicts with it: the first place, or, if that is shared, the shared places up to
//! the first other one. If the first place is limited, those behind it are in front up to the first
//! other one, as long as they are not more than the smallest limit of all of them. A task is *blocked* once for each of its places that is not in front, and
//! once for each place in front of a paused lane; without blocks it may run. A finished task leaves
//! its places, and the next places of each lane come to the front.
//!
//! An exclusive place that leaves may be followed by very many shared or limited ones. They come to the front
//! in slices of [`ADVANCED_AT_ONCE`]; the lane then has an entry in `advancing`, and
//! [`advance_some`](Lanes::advance_some) does the next slice. The places in front are always the
//! first ones of the lane, so a shared task that enters meanwhile stays behind the others.
//!
//! The last task of a lane that may be replaced and has not started is its *latest* one: at most one
//! of a lane, in a map of its own, since few lanes have one.
//!
//! This module is independent of jobs, slots and time, except for the time at which a task became
//! the head of a lane.

mod queries;

use std::any::Any;
use std::collections::BTreeMap;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::list::{LinkedList, ListLink};
use super::slab::{NONE, Slab};
use super::task::TaskSlab;
use crate::KeyClaim;

/// Maximum number of key bytes stored inline; longer keys are allocated.
const SHORT: usize = 22;

/// Bytes of a key, stored once.
#[derive(Debug)]
enum KeyBytes {
    Short(u8, [u8; SHORT]),
    Long(Box<[u8]>),
}

impl KeyBytes {
    fn new(key: &[u8]) -> Self {
        if key.len() > SHORT {
            return KeyBytes::Long(key.into());
        }
        let mut bytes = [0; SHORT];
        bytes[..key.len()].copy_from_slice(key);
        KeyBytes::Short(key.len() as u8, bytes)
    }

    fn get(&self) -> &[u8] {
        match self {
            KeyBytes::Short(len, bytes) => &bytes[..*len as usize],
            KeyBytes::Long(bytes) => bytes,
        }
    }
}

/// Lane of a key. 64 bytes.
#[derive(Debug)]
pub(super) struct Lane {
    key: KeyBytes,
    /// Time at which its head became the head, in milliseconds.
    pub(super) since: u64,
    /// Places, in order.
    line: LinkedList,
    pub(super) len: u32,
    pub(super) paused: bool,
    /// Whether it has the subtasks of a job with barriers, and no key of a client. It is in neither
    /// of the two lists.
    is_of_job: bool,
    /// Link in the list of all lanes with a head, by `since`.
    by_age: ListLink,
    /// Link in the list of lanes whose length has the same number of binary digits, for lengths of
    /// at least two.
    by_length: ListLink,
}

impl Default for Lane {
    fn default() -> Self {
        Lane {
            key: KeyBytes::Short(0, [0; SHORT]),
            since: 0,
            line: LinkedList::default(),
            len: 0,
            paused: false,
            is_of_job: false,
            by_age: ListLink::default(),
            by_length: ListLink::default(),
        }
    }
}

impl Lane {
    pub(super) fn key(&self) -> &[u8] {
        self.key.get()
    }

    /// Whether it has the subtasks of a job with barriers, and no key of a client.
    pub(super) fn is_of_job(&self) -> bool {
        self.is_of_job
    }

    fn by_age(&mut self) -> &mut ListLink {
        &mut self.by_age
    }

    fn by_length(&mut self) -> &mut ListLink {
        &mut self.by_length
    }
}

/// Number of shared places that one call brings to the front of a lane.
pub(super) const ADVANCED_AT_ONCE: u32 = if cfg!(test) { 4 } else { 1024 };

/// Place of a task in a lane. 24 bytes.
#[derive(Debug, Default)]
struct LanePlace {
    lane: u32,
    task: u32,
    link: ListLink,
    /// Place of the task in the lane of its next key.
    next_of_task: u32,
    /// Whether the task shares the key.
    is_shared: bool,
    /// Whether no earlier place of the lane conflicts with it.
    is_front: bool,
    /// Maximum number of tasks in front beside it, itself included; 0 if it is not limited.
    limit: u16,
}

impl LanePlace {
    /// Whether no other task runs with the key beside its task.
    fn runs_alone(&self) -> bool {
        !self.is_shared && self.limit == 0
    }

    fn link(&mut self) -> &mut ListLink {
        &mut self.link
    }
}

/// All lanes.
#[derive(Debug)]
pub(super) struct Lanes {
    hasher: RandomState,
    /// Lanes by key, in [`TABLES`] tables, so that the growth of one moves a small part of the
    /// lanes. A lane exists while it has tasks or is paused.
    tables: Box<[HashTable<u32>]>,
    lanes: Slab<Lane>,
    places: Slab<LanePlace>,
    /// Lanes with a head, oldest head first: time does not go back, so new heads go to the end.
    by_age: LinkedList,
    /// Lanes with several tasks, by the binary digits of their length, so that a lane changes its
    /// list only when its length doubles or halves.
    by_length: [LinkedList; 33],
    /// Lanes with shared places that are about to come to the front, each with the first of them.
    advancing: BTreeMap<u32, u32>,
    /// Number of lanes of jobs with barriers.
    of_jobs: usize,
    /// Lanes with a latest task that has not started. A tree, because a large hash table would hold the
    /// lock while it grows.
    latest: BTreeMap<u32, u32>,
}

/// Capacity above which an empty table is released: all tables together keep at most some 60 KB.
const ROOM_KEPT: usize = 8;

/// Number of tables, a power of two. A table of a million lanes takes 40 ms to grow, one of a
/// thousand 40 µs.
const TABLES: usize = 1024;

/// Table for a hash: uses bits that a table uses neither for the position of an entry nor for its
/// tag.
fn table_of(hash: u64) -> usize {
    (hash >> 32) as usize % TABLES
}

impl Lanes {
    pub(super) fn new() -> Self {
        Lanes {
            hasher: RandomState::default(),
            tables: (0..TABLES).map(|_| HashTable::new()).collect(),
            lanes: Slab::new(),
            places: Slab::new(),
            by_age: LinkedList::default(),
            by_length: [LinkedList::default(); 33],
            advancing: BTreeMap::new(),
            of_jobs: 0,
            latest: BTreeMap::new(),
        }
    }

    /// Appends a task that has no places yet to the lanes of these keys. Its places keep the order
    /// of the keys. A duplicate key counts once, and is exclusive if one of its uses is. Exclusive uses
    /// of the keys of clients are limited to `limit` tasks at a time, unless that is 0. Returns whether one of them is [`KeyClaim::LATEST`], which has no lane.
    pub(super) fn enter<'k>(
        &mut self,
        tasks: &mut TaskSlab,
        task: u32,
        keys: impl Iterator<Item = KeyClaim<'k>>,
        limit: u16,
        now: u64,
    ) -> bool {
        let (mut last_of_task, mut is_latest) = (NONE, false);
        for claim in keys {
            if claim.is_latest() {
                is_latest = true;
                continue;
            }
            let KeyClaim { key, is_shared } = claim;
            let limit = if is_shared || claim.is_of_job() { 0 } else { limit };
            let lane = self.find_or_open(key);
            let last = self.lanes[lane].line.last;
            if last != NONE && self.places[last].task == task {
                if !is_shared {
                    self.make_exclusive(tasks, last, limit);
                }
                continue;
            }
            let is_front = last == NONE || self.is_front_behind(last, is_shared, limit);
            let place = self.places.insert(LanePlace {
                lane,
                task,
                link: ListLink::default(),
                next_of_task: NONE,
                is_shared,
                is_front,
                limit,
            });
            match last_of_task {
                NONE => tasks[task].places = place,
                last => self.places[last].next_of_task = place,
            }
            last_of_task = place;
            self.lanes[lane].line.push(&mut self.places, place, LanePlace::link);
            self.set_len(lane, self.lanes[lane].len + 1);
            if last == NONE {
                self.has_new_head(lane, now);
            }
            tasks[task].blocked += u32::from(!is_front || self.lanes[lane].paused);
        }
        is_latest
    }

    /// Makes a task the latest one of its first lane. Returns the one before it, if that has not
    /// started.
    pub(super) fn put_latest(&mut self, tasks: &TaskSlab, task: u32) -> Option<u32> {
        let first = tasks[task].places;
        if first == NONE {
            return None;
        }
        self.latest.insert(self.places[first].lane, task)
    }

    /// Notes that a task has started or leaves: it is not replaced any more.
    #[inline]
    pub(super) fn keep_from_replacement(&mut self, tasks: &TaskSlab, task: u32) {
        if self.latest.is_empty() || tasks[task].places == NONE {
            return;
        }
        let lane = self.places[tasks[task].places].lane;
        if self.latest.get(&lane) == Some(&task) {
            self.latest.remove(&lane);
        }
    }

    /// Makes the last place of a lane exclusive, or limited.
    fn make_exclusive(&mut self, tasks: &mut TaskSlab, place: u32, limit: u16) {
        let LanePlace { lane, task, is_front, link, .. } = self.places[place];
        let now_in_front = link.before == NONE || self.is_front_behind(link.before, false, limit);
        let changed = &mut self.places[place];
        (changed.is_shared, changed.limit, changed.is_front) = (false, limit, now_in_front);
        if !self.lanes[lane].paused {
            tasks[task].blocked += u32::from(is_front && !now_in_front);
            tasks[task].blocked -= u32::from(!is_front && now_in_front);
        }
    }

    /// Whether a place with this use of the key is in front, directly behind another place.
    #[inline]
    fn is_front_behind(&self, last: u32, is_shared: bool, limit: u16) -> bool {
        let last_place = &self.places[last];
        match (last_place.is_front, is_shared) {
            (false, _) => false,
            (true, true) => last_place.is_shared,
            (true, false) => {
                limit != 0 && last_place.limit != 0 && self.has_room_behind(last, limit)
            }
        }
    }

    /// Whether one more limited place may be in front. Costs a step for each place in front, and their
    /// number is at most the limit.
    fn has_room_behind(&self, last: u32, limit: u16) -> bool {
        let (mut place, mut count, mut least) = (last, 0, limit);
        while place != NONE {
            let before = &self.places[place];
            (count, least) = (count + 1, least.min(before.limit));
            if count >= least {
                return false;
            }
            place = before.link.before;
        }
        true
    }

    /// Removes a task from its lanes and returns their number. Tasks that are no longer blocked are
    /// added to `opened`.
    pub(super) fn leave(
        &mut self,
        tasks: &mut TaskSlab,
        task: u32,
        now: u64,
        opened: &mut Vec<u32>,
    ) -> u32 {
        self.keep_from_replacement(tasks, task);
        let mut place = std::mem::replace(&mut tasks[task].places, NONE);
        let mut left = 0;
        while place != NONE {
            left += 1;
            let LanePlace { lane, link, next_of_task, limit, .. } = self.places[place];
            let was_head = self.lanes[lane].line.first == place;
            self.lanes[lane].line.remove(&mut self.places, place, LanePlace::link);
            self.set_len(lane, self.lanes[lane].len - 1);
            self.places.remove(place);
            if was_head {
                self.has_no_head(lane);
                match link.behind {
                    NONE => self.close_if_unused(lane),
                    _ => self.has_new_head(lane, now),
                }
            }
            self.advance_behind(tasks, lane, (place, limit), link, opened);
            place = next_of_task;
        }
        left
    }

    /// Takes the memory released by a large order that has become empty.
    pub(super) fn take_gone(&mut self) -> Vec<Box<dyn Any + Send>> {
        let lanes = self.lanes.take_gone().map(|pages| Box::new(pages) as Box<dyn Any + Send>);
        let places = self.places.take_gone().map(|pages| Box::new(pages) as Box<dyn Any + Send>);
        lanes.into_iter().chain(places).collect()
    }

    /// Brings the first place that is not in front there, if nothing before it conflicts with it any
    /// more. `link` was the position of the removed place, whose limit is given.
    #[inline]
    fn advance_behind(
        &mut self,
        tasks: &mut TaskSlab,
        lane: u32,
        (removed, limit): (u32, u16),
        link: ListLink,
        opened: &mut Vec<u32>,
    ) {
        if !self.advancing.is_empty()
            && let Some(next) = self.advancing.get(&lane)
        {
            if *next != removed {
                // The slices that are left do it.
                return;
            }
            self.advancing.remove(&lane);
        }
        let ListLink { mut before, mut behind } = link;
        if limit != 0 {
            // The end of one of those in front makes room behind the last of them.
            while behind != NONE && self.places[behind].is_front {
                (before, behind) = (behind, self.places[behind].link.behind);
            }
        }
        if behind == NONE {
            return;
        }
        let next = &mut self.places[behind];
        if next.is_front {
            return;
        }
        if before == NONE && !next.is_shared && next.limit == 0 {
            // Most services neither share nor limit keys.
            next.is_front = true;
            if !self.lanes[lane].paused {
                unblock(tasks, next.task, opened);
            }
            return;
        }
        let LanePlace { is_shared, limit, .. } = *next;
        if before == NONE || self.is_front_behind(before, is_shared, limit) {
            self.advance(tasks, lane, behind, opened);
        }
    }

    /// Brings a place to the front, and those behind it that do not conflict. Tasks that are
    /// no longer blocked are added to `opened`.
    fn advance(&mut self, tasks: &mut TaskSlab, lane: u32, from: u32, opened: &mut Vec<u32>) {
        let is_paused = self.lanes[lane].paused;
        let mut place = from;
        for _ in 0..ADVANCED_AT_ONCE {
            let LanePlace { task, link, ref mut is_front, .. } = self.places[place];
            *is_front = true;
            // In a paused lane the block by a predecessor becomes the block by the pause.
            if !is_paused {
                unblock(tasks, task, opened);
            }
            if link.behind == NONE {
                return;
            }
            let LanePlace { is_shared, limit, .. } = self.places[link.behind];
            if !self.is_front_behind(place, is_shared, limit) {
                return;
            }
            place = link.behind;
        }
        self.advancing.insert(lane, place);
    }

    /// Brings a slice of shared places to the front of a lane. Tasks that are no longer blocked are
    /// added to `opened`. Returns the first task of the slice; `None` if no lane has such places.
    pub(super) fn advance_some(
        &mut self,
        tasks: &mut TaskSlab,
        opened: &mut Vec<u32>,
    ) -> Option<u32> {
        let (lane, place) = self.advancing.pop_first()?;
        self.advance(tasks, lane, place, opened);
        Some(self.places[place].task)
    }

    /// Whether [`advance_some`](Self::advance_some) has work.
    pub(super) fn is_advancing(&self) -> bool {
        !self.advancing.is_empty()
    }

    /// Pauses a key: no task of it starts. False if the key was already paused. Tasks in front, which
    /// this blocks, are added to `blocked`: their number is the cost of the call.
    pub(super) fn pause(
        &mut self,
        tasks: &mut TaskSlab,
        key: &[u8],
        blocked: &mut Vec<u32>,
    ) -> bool {
        let lane = self.find_or_open(key);
        if std::mem::replace(&mut self.lanes[lane].paused, true) {
            return false;
        }
        for task in self.front(lane) {
            tasks[task].blocked += 1;
            blocked.push(task);
        }
        true
    }

    /// Resumes a key; false if it was not paused. Costs O(places in front).
    pub(super) fn resume(
        &mut self,
        tasks: &mut TaskSlab,
        key: &[u8],
        opened: &mut Vec<u32>,
    ) -> bool {
        let Some(lane) = self.find(key).filter(|lane| self.lanes[*lane].paused) else {
            return false;
        };
        self.lanes[lane].paused = false;
        if self.lanes[lane].len == 0 {
            self.close_if_unused(lane);
            return true;
        }
        self.front(lane).for_each(|task| unblock(tasks, task, opened));
        true
    }

    /// Tasks in front of a lane.
    fn front(&self, lane: u32) -> impl Iterator<Item = u32> {
        let places = self.lanes[lane].line.iter(&self.places, |place| &place.link);
        let places = places.map(|place| &self.places[place]);
        places.take_while(|place| place.is_front).map(|place| place.task)
    }

    /// Makes a task that is in front of all its lanes the head of those that it does not have alone:
    /// tasks in front do not conflict, so their order among themselves is free.
    pub(super) fn put_first(&mut self, tasks: &TaskSlab, task: u32, now: u64) {
        let mut place = tasks[task].places;
        while place != NONE {
            let LanePlace { lane, next_of_task, .. } = self.places[place];
            if self.lanes[lane].line.first != place {
                let line = &mut self.lanes[lane].line;
                line.remove(&mut self.places, place, LanePlace::link);
                line.push_first(&mut self.places, place, LanePlace::link);
                self.has_no_head(lane);
                self.has_new_head(lane, now);
            }
            place = next_of_task;
        }
    }

    fn find_or_open(&mut self, key: &[u8]) -> u32 {
        let Lanes { hasher, tables, lanes, .. } = self;
        let hash = hasher.hash_one(key);
        let table = &mut tables[table_of(hash)];
        let hash_of = |lanes: &Slab<Lane>, lane: u32| hasher.hash_one(lanes[lane].key());
        if let Some(lane) = table.find(hash, |lane| lanes[*lane].key() == key) {
            return *lane;
        }
        let is_of_job = KeyClaim::exclusive(key).is_of_job();
        self.of_jobs += usize::from(is_of_job);
        let lane = lanes.insert(Lane { key: KeyBytes::new(key), is_of_job, ..Lane::default() });
        table.insert_unique(hash, lane, |lane| hash_of(lanes, *lane));
        lane
    }

    #[inline]
    fn has_new_head(&mut self, lane: u32, now: u64) {
        self.lanes[lane].since = now;
        if !self.lanes[lane].is_of_job {
            self.by_age.push(&mut self.lanes, lane, Lane::by_age);
        }
    }

    #[inline]
    fn has_no_head(&mut self, lane: u32) {
        if !self.lanes[lane].is_of_job {
            self.by_age.remove(&mut self.lanes, lane, Lane::by_age);
        }
    }

    fn set_len(&mut self, lane: u32, len: u32) {
        let (old, new) = (digits(self.lanes[lane].len), digits(len));
        self.lanes[lane].len = len;
        if old == new || self.lanes[lane].is_of_job {
            return;
        }
        if old >= 2 {
            self.by_length[old].remove(&mut self.lanes, lane, Lane::by_length);
        }
        if new >= 2 {
            self.by_length[new].push(&mut self.lanes, lane, Lane::by_length);
        }
    }

    /// Removes a lane that has no tasks and is not paused.
    fn close_if_unused(&mut self, lane: u32) {
        if self.lanes[lane].paused {
            return;
        }
        let hash = self.hasher.hash_one(self.lanes[lane].key());
        let table = &mut self.tables[table_of(hash)];
        let entry = table.find_entry(hash, |other| *other == lane);
        entry.expect("every lane is in its table").remove();
        self.of_jobs -= usize::from(self.lanes[lane].is_of_job);
        self.lanes.remove(lane);
        if table.is_empty() && table.capacity() > ROOM_KEPT {
            *table = HashTable::new();
        }
    }
}

/// Position of a task in one of its lanes.
pub(super) struct LanePosition {
    pub(super) lane: u32,
    /// Number of earlier tasks, shared ones included.
    pub(super) ahead: u32,
    /// Last earlier task that conflicts, as far as tasks were counted; else the direct predecessor.
    /// None in front.
    pub(super) behind: Option<u32>,
    pub(super) is_shared: bool,
    pub(super) is_front: bool,
    /// Limit of the task, if all earlier ones are limited, too: it waits for room.
    pub(super) limit: Option<u16>,
}

fn digits(len: u32) -> usize {
    (u32::BITS - len.leading_zeros()) as usize
}

fn unblock(tasks: &mut TaskSlab, task: u32, opened: &mut Vec<u32>) {
    tasks[task].blocked -= 1;
    if tasks[task].blocked == 0 {
        opened.push(task);
    }
}
