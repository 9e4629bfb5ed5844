//! Order of keys: lanes of tasks, and the tasks that head all of theirs.
//!
//! A lane is the queue of a key's unfinished tasks, in the order of acceptance. A task has a place
//! in the lane of each of its keys. It is *blocked* once for each lane that it does not head, and
//! once for each paused lane that it heads; without blocks it may run. A finished task leaves its
//! places, and the next task in each lane becomes its head.
//!
//! This module is independent of jobs, slots and time, except for the time at which a task became
//! the head of a lane.

use std::any::Any;
use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use super::list::{LinkedList, ListLink};
use super::slab::{NONE, Slab};
use super::task::TaskSlab;

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
            by_age: ListLink::default(),
            by_length: ListLink::default(),
        }
    }
}

impl Lane {
    pub(super) fn key(&self) -> &[u8] {
        self.key.get()
    }

    fn by_age(&mut self) -> &mut ListLink {
        &mut self.by_age
    }

    fn by_length(&mut self) -> &mut ListLink {
        &mut self.by_length
    }
}

/// Place of a task in a lane. 20 bytes.
#[derive(Debug, Default)]
struct LanePlace {
    lane: u32,
    task: u32,
    link: ListLink,
    /// Place of the task in the lane of its next key.
    next_of_task: u32,
}

impl LanePlace {
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
}

/// Capacity above which an empty table is released.
const ROOM_KEPT: usize = 1024;

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
        }
    }

    /// Appends a task that has no places yet to the lanes of these keys. Its places keep the order
    /// of the keys. A duplicate key counts once.
    pub(super) fn enter<'k>(
        &mut self,
        tasks: &mut TaskSlab,
        task: u32,
        keys: impl Iterator<Item = &'k [u8]>,
        now: u64,
    ) {
        let mut last_of_task = NONE;
        for key in keys {
            let lane = self.find_or_open(key);
            let last = self.lanes[lane].line.last;
            if last != NONE && self.places[last].task == task {
                continue;
            }
            let place = self.places.insert(LanePlace {
                lane,
                task,
                link: ListLink::default(),
                next_of_task: NONE,
            });
            match last_of_task {
                NONE => tasks[task].places = place,
                last => self.places[last].next_of_task = place,
            }
            last_of_task = place;
            self.lanes[lane].line.push(&mut self.places, place, LanePlace::link);
            self.set_len(lane, self.lanes[lane].len + 1);
            let is_head = self.lanes[lane].line.first == place;
            if is_head {
                self.has_new_head(lane, now);
            }
            tasks[task].blocked += u32::from(!is_head || self.lanes[lane].paused);
        }
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
        let mut place = std::mem::replace(&mut tasks[task].places, NONE);
        let mut left = 0;
        while place != NONE {
            left += 1;
            let lane = self.places[place].lane;
            let was_head = self.lanes[lane].line.first == place;
            self.lanes[lane].line.remove(&mut self.places, place, LanePlace::link);
            self.set_len(lane, self.lanes[lane].len - 1);
            place = self.places.remove(place).next_of_task;
            if !was_head {
                continue;
            }
            self.by_age.remove(&mut self.lanes, lane, Lane::by_age);
            match self.head(lane) {
                None => self.close_if_unused(lane),
                Some(head) => {
                    self.by_age.push(&mut self.lanes, lane, Lane::by_age);
                    self.lanes[lane].since = now;
                    // In a paused lane the new head stays blocked: the block by its predecessor
                    // becomes the block by the pause.
                    if !self.lanes[lane].paused {
                        unblock(tasks, head, opened);
                    }
                }
            }
        }
        left
    }

    /// Takes the memory released by a large order that has become empty.
    pub(super) fn take_gone(&mut self) -> Vec<Box<dyn Any + Send>> {
        let lanes = self.lanes.take_gone().map(|pages| Box::new(pages) as Box<dyn Any + Send>);
        let places = self.places.take_gone().map(|pages| Box::new(pages) as Box<dyn Any + Send>);
        lanes.into_iter().chain(places).collect()
    }

    /// Pauses a key: no task of it starts. Returns the head that this blocks, if there is one;
    /// `None` if the key was already paused.
    pub(super) fn pause(&mut self, tasks: &mut TaskSlab, key: &[u8]) -> Option<Option<u32>> {
        let lane = self.find_or_open(key);
        if std::mem::replace(&mut self.lanes[lane].paused, true) {
            return None;
        }
        let head = self.head(lane);
        if let Some(head) = head {
            tasks[head].blocked += 1;
        }
        Some(head)
    }

    /// Resumes a key; false if it was not paused.
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
        match self.head(lane) {
            None => self.close_if_unused(lane),
            Some(head) => unblock(tasks, head, opened),
        }
        true
    }

    pub(super) fn find(&self, key: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(key);
        self.tables[table_of(hash)].find(hash, |lane| self.lanes[*lane].key() == key).copied()
    }

    /// Head of the lane.
    pub(super) fn head(&self, lane: u32) -> Option<u32> {
        let first = self.lanes[lane].line.first;
        (first != NONE).then(|| self.places[first].task)
    }

    pub(super) fn lane(&self, lane: u32) -> &Lane {
        &self.lanes[lane]
    }

    /// Number of lanes.
    pub(super) fn len(&self) -> usize {
        self.lanes.len()
    }

    /// Number of places in all lanes.
    #[cfg(test)]
    pub(super) fn places(&self) -> usize {
        self.places.len()
    }

    /// Lanes of a task, each with the number of its predecessors, counted up to `most`, and its
    /// direct predecessor.
    pub(super) fn standings(
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
        let before = |place: u32| self.places[place].link.before;
        let behind = before(place);
        let mut ahead = 0;
        let mut other = behind;
        while other != NONE && ahead < most {
            ahead += 1;
            other = before(other);
        }
        let behind = (behind != NONE).then(|| self.places[behind].task);
        LanePosition { lane: self.places[place].lane, ahead, behind }
    }

    /// Lanes with a head, the oldest head first.
    pub(super) fn by_age(&self) -> impl Iterator<Item = u32> {
        self.by_age.iter(&self.lanes, |lane| &lane.by_age)
    }

    /// Lanes with several tasks, longest first; lanes whose lengths have the same number of binary
    /// digits are in no order.
    pub(super) fn by_digits(&self) -> impl Iterator<Item = u32> {
        let lists = self.by_length.iter().rev();
        lists.flat_map(|list| list.iter(&self.lanes, |lane| &lane.by_length))
    }

    fn find_or_open(&mut self, key: &[u8]) -> u32 {
        let Lanes { hasher, tables, lanes, .. } = self;
        let hash = hasher.hash_one(key);
        let table = &mut tables[table_of(hash)];
        let hash_of = |lanes: &Slab<Lane>, lane: u32| hasher.hash_one(lanes[lane].key());
        if let Some(lane) = table.find(hash, |lane| lanes[*lane].key() == key) {
            return *lane;
        }
        let lane = lanes.insert(Lane { key: KeyBytes::new(key), ..Lane::default() });
        table.insert_unique(hash, lane, |lane| hash_of(lanes, *lane));
        lane
    }

    fn has_new_head(&mut self, lane: u32, now: u64) {
        self.lanes[lane].since = now;
        self.by_age.push(&mut self.lanes, lane, Lane::by_age);
    }

    fn set_len(&mut self, lane: u32, len: u32) {
        let (old, new) = (digits(self.lanes[lane].len), digits(len));
        self.lanes[lane].len = len;
        if old == new {
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
        self.lanes.remove(lane);
        if table.is_empty() && table.capacity() > ROOM_KEPT {
            *table = HashTable::new();
        }
    }
}

/// Position of a task in one of its lanes.
pub(super) struct LanePosition {
    pub(super) lane: u32,
    pub(super) ahead: u32,
    pub(super) behind: Option<u32>,
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
