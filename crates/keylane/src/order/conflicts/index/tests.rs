//! Compares the conflict index with a slow obvious model: a task may run when no earlier unfinished
//! one conflicts with it, by the predicate.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::*;
use crate::order::Compatibility;

/// Number of kinds of descriptors. Those below `CLASSES` are classes.
const KINDS: usize = 7;
const CLASSES: usize = 4;

/// Random numbers that are the same for the same seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }
}

type Conflicts = [[bool; KINDS]; KINDS];

/// Descriptor of a task.
struct Kind {
    kind: usize,
    summary: u64,
    conflicts: Arc<Conflicts>,
}

impl Compatibility for Kind {
    fn is_compatible(&self, other: &Self) -> bool {
        assert!(
            self.summary & other.summary != 0,
            "summaries without a common bit are never compared"
        );
        !self.conflicts[self.kind][other.kind]
    }

    fn class(&self) -> Option<u64> {
        (self.kind < CLASSES).then_some(self.kind as u64)
    }

    fn summary(&self) -> u64 {
        self.summary
    }
}

/// Precision of the summaries of a world.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Summaries {
    /// All bits.
    Default,
    /// A bit for each conflict, folded into this number of bits.
    Bits(usize),
    /// A bit for each conflict, folded into this number of bits, and random bits without meaning.
    Loose(usize),
}

/// Task as the model knows it.
struct Task {
    kind: usize,
    descriptor: Descriptor,
    pos: IndexPos,
    /// Number of grants that it waits for, one of them while it scans.
    pending: usize,
}

struct World {
    index: ConflictIndex<u64>,
    /// Table of the kinds that conflict.
    conflicts: Arc<Conflicts>,
    summaries: Summaries,
    unfinished: BTreeMap<u64, Task>,
    /// Scanning tasks, each with its scan and the batch that is being compared outside of locks.
    scanning: Vec<(u64, ConflictScan, Option<ScanBatch<u64>>)>,
    last: u64,
    /// Descriptors of all tasks that ever were, by position.
    descriptors: Vec<Option<Descriptor>>,
    /// Number of pairs of tasks that were compared.
    compared: usize,
}

impl World {
    fn new(dice: &mut Dice) -> Self {
        let mut conflicts = [[false; KINDS]; KINDS];
        let pairs = (0..KINDS).flat_map(|one| (0..=one).map(move |two| (one, two)));
        for (one, two) in pairs {
            let conflict = dice.roll(3) == 0;
            conflicts[one][two] = conflict;
            conflicts[two][one] = conflict;
        }
        let summaries = match dice.roll(4) {
            0 => Summaries::Default,
            1 => Summaries::Bits(64),
            2 => Summaries::Bits(3),
            _ => Summaries::Loose(64),
        };
        let (unfinished, scanning) = (BTreeMap::new(), Vec::new());
        World {
            index: ConflictIndex::default(),
            conflicts: Arc::new(conflicts),
            summaries,
            unfinished,
            scanning,
            last: 0,
            descriptors: vec![None],
            compared: 0,
        }
    }

    /// Returns a summary in which each conflict has a bit that both of its kinds have.
    fn summary(&self, kind: usize, dice: &mut Dice) -> u64 {
        let (bits, loose) = match self.summaries {
            Summaries::Default => return u64::MAX,
            Summaries::Bits(bits) => (bits, 0),
            Summaries::Loose(bits) => (bits, 1 << dice.roll(64) | 1 << dice.roll(64)),
        };
        let others = (0..KINDS).filter(|other| self.conflicts[kind][*other]);
        let conflicts = others.map(|other| kind.min(other) * KINDS + kind.max(other));
        conflicts.fold(loose, |summary, conflict| summary | 1 << (conflict % bits))
    }

    fn submit(&mut self, kind: usize, dice: &mut Dice) {
        self.last += 1;
        let summary = self.summary(kind, dice);
        let conflicts = self.conflicts.clone();
        let descriptor = Descriptor::new(Kind { kind, summary, conflicts });
        self.descriptors.push(Some(descriptor.clone()));
        let mut given = None;
        let inserted = self.index.insert(self.last, &descriptor, |pos| {
            given = Some(pos);
            pos.place
        });
        let pos = given.expect("the task is made");
        let pending = inserted.waits + usize::from(inserted.scan.is_some());
        self.unfinished.insert(self.last, Task { kind, descriptor, pos, pending });
        self.scanning.extend(inserted.scan.map(|scan| (self.last, scan, None)));
    }

    /// Takes the next step of a scanning task: while it compares, more tasks may come and go.
    fn step(&mut self, which: usize) {
        let (place, mut scan, round) = self.scanning.swap_remove(which);
        let task = self.unfinished.get_mut(&place).expect("a scanning task is unfinished");
        match round {
            None => {
                let (waits, round) = self.index.next_round(&mut scan, &place);
                task.pending += waits;
                if matches!(round, ScanBatch::Over) {
                    task.pending -= 1;
                    return;
                }
                self.scanning.push((place, scan, Some(round)));
                return;
            }
            Some(ScanBatch::Groups(candidates)) => {
                for candidate in candidates {
                    self.compared += 1;
                    let other = self.descriptors[candidate.task as usize]
                        .as_ref()
                        .expect("the task was submitted");
                    scan.record(&candidate, task.descriptor.conflicts_with(other));
                }
            }
            Some(ScanBatch::Singles(pages)) => {
                for mut page in pages {
                    loop {
                        scan.skip_implied(&mut page);
                        let left = page.left().count_ones();
                        let conflict = page.next_conflict(&task.descriptor);
                        self.compared += (left - page.left().count_ones()) as usize;
                        let Some(at) = conflict else { break };
                        scan.found(&mut page, at);
                    }
                }
            }
            Some(ScanBatch::Over) => unreachable!("the last batch is not kept"),
        }
        self.scanning.push((place, scan, None));
    }

    fn remove(&mut self, place: u64) {
        self.check_behind(place);
        let task = self.unfinished.remove(&place).expect("the task is unfinished");
        let (released, ended) = self.index.remove(task.pos);
        assert_eq!(ended, Some(place));
        for place in released {
            self.unfinished.get_mut(&place).expect("a waiter is unfinished").pending -= 1;
        }
    }

    /// Checks that every task behind `place`, directly or not, is later; and that every later task
    /// that conflicts with it is among these, unless it still scans.
    fn check_behind(&self, place: u64) {
        let mut behind = BTreeSet::new();
        let mut fronts = vec![place];
        while let Some(front) = fronts.pop() {
            for next in self.index.behind(self.unfinished[&front].pos) {
                assert!(next > front && self.unfinished[&next].pending > 0);
                if behind.insert(next) {
                    fronts.push(next);
                }
            }
        }
        let kind = self.unfinished[&place].kind;
        for (later, task) in self.unfinished.range(place + 1..) {
            let scans = self.scanning.iter().any(|(scanning, ..)| scanning == later);
            assert!(scans || !self.conflicts[kind][task.kind] || behind.contains(later));
        }
    }

    /// Returns whether an earlier unfinished task conflicts with this one: the model's answer.
    fn blocked(&self, place: u64) -> bool {
        let kind = self.unfinished[&place].kind;
        let mut before = self.unfinished.range(..place);
        before.any(|(_, other)| self.conflicts[kind][other.kind])
    }

    fn ready(&self) -> Vec<u64> {
        let ready = self.unfinished.iter().filter(|(_, task)| task.pending == 0);
        ready.map(|(place, _)| *place).collect()
    }

    fn check(&self) {
        for (place, task) in &self.unfinished {
            let scans = self.scanning.iter().any(|(scanning, ..)| scanning == place);
            assert!(task.pending > 0 || !scans, "{place} is ready while it scans");
            if !scans {
                assert_eq!(task.pending > 0, self.blocked(*place), "task {place}");
            }
        }
    }
}

#[test]
fn a_task_waits_for_what_it_conflicts_with_and_for_nothing_else() {
    for seed in 1..600_u64 {
        let mut dice = Dice(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let mut world = World::new(&mut dice);
        // Few unfinished tasks in some worlds, so that classes come and go; many in others.
        let crowd = 1 + dice.roll(24);
        for _ in 0..400 {
            let ready = world.ready();
            match dice.roll(3) {
                0 if world.unfinished.len() < crowd => {
                    world.submit(dice.roll(KINDS), &mut dice);
                }
                1 if !world.scanning.is_empty() => world.step(dice.roll(world.scanning.len())),
                2 if !ready.is_empty() => world.remove(ready[dice.roll(ready.len())]),
                _ => {}
            }
            world.check();
        }
        while !world.unfinished.is_empty() {
            while !world.scanning.is_empty() {
                world.step(0);
            }
            let ready = world.ready();
            world.remove(ready[dice.roll(ready.len())]);
            world.check();
        }
        assert!(world.index.is_empty() && world.index.classes.is_empty(), "nothing is kept");
        assert!(world.index.singles.is_empty());
    }
}

/// Submits a task and makes all its comparisons.
fn submit_and_scan(world: &mut World, kind: usize) {
    world.submit(kind, &mut Dice(1));
    while !world.scanning.is_empty() {
        world.step(0);
    }
    world.check();
}

fn world_of(conflicts: &[(usize, usize)]) -> World {
    let mut world = World::new(&mut Dice(1));
    let mut table = [[false; KINDS]; KINDS];
    for &(one, two) in conflicts {
        table[one][two] = true;
        table[two][one] = true;
    }
    world.conflicts = Arc::new(table);
    world.summaries = Summaries::Default;
    world
}

#[test]
fn one_answer_serves_a_whole_class() {
    // Two classes, each in conflict with itself alone.
    let mut world = world_of(&[(0, 0), (1, 1)]);
    for turn in 0..1000 {
        submit_and_scan(&mut world, turn % 2);
    }
    assert_eq!(world.compared, 3, "one class with the other, and each with itself");
}

#[test]
fn a_task_without_a_class_is_not_compared_with_implied_predecessors() {
    // A chain: each conflicts with each.
    let mut world = world_of(&[(4, 4)]);
    for _ in 0..100 {
        submit_and_scan(&mut world, 4);
    }
    assert_eq!(world.compared, 99);
    let waits: usize = world.unfinished.values().map(|task| task.pending).sum();
    assert_eq!(waits, 99, "each waits only for the one before it");
}

#[test]
fn finished_wait_groups_leave_nothing_behind_one_that_lasts() {
    // Readers, compatible with all but writers; and tasks without a class that are compared with
    // readers.
    let mut world = world_of(&[(0, 1), (1, 1)]);
    submit_and_scan(&mut world, 0);
    for _ in 0..100 {
        submit_and_scan(&mut world, 5);
        submit_and_scan(&mut world, 0);
        let newest = world.ready().split_off(1);
        newest.into_iter().for_each(|place| world.remove(place));
    }
    let wait_groups: usize = world.index.groups.values().map(|group| group.wait_groups.len()).sum();
    assert_eq!(wait_groups, 1);
}

#[test]
fn summaries_save_comparisons_of_tasks_without_a_bit_in_common() {
    // Two kinds that conflict with themselves alone, and a class that conflicts with one of them.
    let mut world = world_of(&[(4, 4), (5, 5), (0, 4)]);
    world.summaries = Summaries::Bits(64);
    for _ in 0..100 {
        submit_and_scan(&mut world, 4);
    }
    world.compared = 0;
    for _ in 0..100 {
        submit_and_scan(&mut world, 5);
    }
    assert_eq!(world.compared, 99, "each is compared with the one of its kind before it");
    submit_and_scan(&mut world, 0);
    assert_eq!(world.compared, 199, "a class is compared with all that share a bit with it");
}

#[test]
fn a_few_that_last_among_many_that_end_keep_little() {
    let mut world = world_of(&[(4, 4)]);
    for turn in 0..1000 {
        submit_and_scan(&mut world, if turn % 100 == 0 { 5 } else { 6 });
        for place in world.ready() {
            if world.unfinished[&place].kind == 6 {
                world.remove(place);
            }
        }
    }
    let entries = world.index.singles.entries();
    assert!(entries <= 2 * 10 + 2 * 4, "10 are left, and {entries} kept");
    for place in world.ready() {
        world.remove(place);
    }
    assert!(world.index.is_empty() && world.index.singles.entries() == 0);
}
