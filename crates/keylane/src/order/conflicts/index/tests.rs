//! The circle against a slow obvious model: a task may run when no earlier unfinished one conflicts
//! with it, by the predicate.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::*;
use crate::order::Compatibility;

/// So many kinds of descriptors there are. Those below `CLASSES` are classes.
const KINDS: usize = 7;
const CLASSES: usize = 4;

/// Numbers that are the same for the same seed.
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

/// What a task says of itself.
struct Kind {
    kind: usize,
    summary: u64,
    conflicts: Arc<Conflicts>,
}

impl Compatibility for Kind {
    fn is_compatible(&self, other: &Self) -> bool {
        assert!(self.summary & other.summary != 0, "they are not to be asked");
        !self.conflicts[self.kind][other.kind]
    }

    fn class(&self) -> Option<u64> {
        (self.kind < CLASSES).then_some(self.kind as u64)
    }

    fn summary(&self) -> u64 {
        self.summary
    }
}

/// What the summaries of a world say.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Summaries {
    /// Nothing.
    Default,
    /// All that they can, but that so many bits stand for all conflicts.
    Bits(usize),
    /// That, and bits that mean nothing, others in each task.
    Loose(usize),
}

/// A task as the model knows it.
struct Task {
    kind: usize,
    descriptor: Descriptor,
    pos: IndexPos,
    /// Grants that it waits for, one of them while it asks.
    pending: usize,
}

struct World {
    index: ConflictIndex<u64>,
    /// Which kinds conflict.
    conflicts: Arc<Conflicts>,
    summaries: Summaries,
    unfinished: BTreeMap<u64, Task>,
    /// And about whom they have yet to ask, outside of locks.
    asking: Vec<(u64, ConflictScan, Option<ScanBatch<u64>>)>,
    last: u64,
    /// What each task said of itself that there ever was.
    descriptors: Vec<Option<Descriptor>>,
    /// Pairs of tasks that were asked about.
    asked: usize,
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
        let (unfinished, asking) = (BTreeMap::new(), Vec::new());
        World {
            index: ConflictIndex::default(),
            conflicts: Arc::new(conflicts),
            summaries,
            unfinished,
            asking,
            last: 0,
            descriptors: vec![None],
            asked: 0,
        }
    }

    /// Each conflict has a bit, which both of its kinds have.
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
        let seated = self.index.insert(self.last, &descriptor, |pos| {
            given = Some(pos);
            pos.place
        });
        let pos = given.expect("the task is made");
        let pending = seated.waits + usize::from(seated.scan.is_some());
        self.unfinished.insert(self.last, Task { kind, descriptor, pos, pending });
        self.asking.extend(seated.scan.map(|scan| (self.last, scan, None)));
    }

    /// The next of what one of those that ask has to do: while it asks about others, more may come and go.
    fn ask(&mut self, which: usize) {
        let (place, mut scan, round) = self.asking.swap_remove(which);
        let task = self.unfinished.get_mut(&place).expect("it waits for its answers");
        match round {
            None => {
                let (waits, round) = self.index.next_round(&mut scan, &place);
                task.pending += waits;
                if matches!(round, ScanBatch::Over) {
                    task.pending -= 1;
                    return;
                }
                self.asking.push((place, scan, Some(round)));
                return;
            }
            Some(ScanBatch::Groups(asks)) => {
                for ask in asks {
                    self.asked += 1;
                    let other = self.descriptors[ask.task as usize].as_ref().expect("it came");
                    scan.answer(&ask, task.descriptor.conflicts_with(other));
                }
            }
            Some(ScanBatch::Singles(looks)) => {
                for mut look in looks {
                    loop {
                        scan.pass_implied(&mut look);
                        let left = look.left().count_ones();
                        let conflict = look.ask(&task.descriptor);
                        self.asked += (left - look.left().count_ones()) as usize;
                        let Some(at) = conflict else { break };
                        scan.found(&mut look, at);
                    }
                }
            }
            Some(ScanBatch::Over) => unreachable!("it is not kept"),
        }
        self.asking.push((place, scan, None));
    }

    fn remove(&mut self, place: u64) {
        self.check_behind(place);
        let task = self.unfinished.remove(&place).expect("the caller has it from there");
        let (released, ended) = self.index.remove(task.pos);
        assert_eq!(ended, Some(place));
        for place in released {
            self.unfinished.get_mut(&place).expect("nobody ends who waits").pending -= 1;
        }
    }

    /// Who is behind a task, directly or not, is after it; and whoever conflicts with it, and came later,
    /// is among them, unless it still asks.
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
            let asks = self.asking.iter().any(|(asking, ..)| asking == later);
            assert!(asks || !self.conflicts[kind][task.kind] || behind.contains(later));
        }
    }

    /// Whether an earlier unfinished task conflicts with this one: what the model says.
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
            let asks = self.asking.iter().any(|(asking, ..)| asking == place);
            assert!(task.pending > 0 || !asks, "{place} is ready while it asks");
            if !asks {
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
        // Few unfinished ones in some worlds, so that classes come and go; many in others.
        let crowd = 1 + dice.roll(24);
        for _ in 0..400 {
            let ready = world.ready();
            match dice.roll(3) {
                0 if world.unfinished.len() < crowd => {
                    world.submit(dice.roll(KINDS), &mut dice);
                }
                1 if !world.asking.is_empty() => world.ask(dice.roll(world.asking.len())),
                2 if !ready.is_empty() => world.remove(ready[dice.roll(ready.len())]),
                _ => {}
            }
            world.check();
        }
        while !world.unfinished.is_empty() {
            while !world.asking.is_empty() {
                world.ask(0);
            }
            let ready = world.ready();
            world.remove(ready[dice.roll(ready.len())]);
            world.check();
        }
        assert!(world.index.is_empty() && world.index.classes.is_empty(), "nothing is kept");
        assert!(world.index.singles.is_empty());
    }
}

/// Everything that is asked has been asked when a task is ready.
fn submit_and_ask(world: &mut World, kind: usize) {
    world.submit(kind, &mut Dice(1));
    while !world.asking.is_empty() {
        world.ask(0);
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
    // Two classes, each alone, and nothing between them.
    let mut world = world_of(&[(0, 0), (1, 1)]);
    for turn in 0..1000 {
        submit_and_ask(&mut world, turn % 2);
    }
    assert_eq!(world.asked, 3, "one class with the other, and each with itself");
}

#[test]
fn a_task_without_a_class_asks_nobody_whom_it_comes_after_anyway() {
    // A line: each conflicts with each.
    let mut world = world_of(&[(4, 4)]);
    for _ in 0..100 {
        submit_and_ask(&mut world, 4);
    }
    assert_eq!(world.asked, 99);
    let waits: usize = world.unfinished.values().map(|task| task.pending).sum();
    assert_eq!(waits, 99, "each remembers but the one before it");
}

#[test]
fn cohorts_that_are_gone_leave_nothing_behind_one_that_lasts() {
    // Readers, compatible with all but writers; and loners that ask about readers.
    let mut world = world_of(&[(0, 1), (1, 1)]);
    submit_and_ask(&mut world, 0);
    for _ in 0..100 {
        submit_and_ask(&mut world, 5);
        submit_and_ask(&mut world, 0);
        let newest = world.ready().split_off(1);
        newest.into_iter().for_each(|place| world.remove(place));
    }
    let wait_groups: usize = world.index.groups.values().map(|group| group.wait_groups.len()).sum();
    assert_eq!(wait_groups, 1);
}

#[test]
fn summaries_save_the_questions_between_what_has_nothing_in_common() {
    // Two kinds that conflict with themselves alone, and a class that conflicts with one of them.
    let mut world = world_of(&[(4, 4), (5, 5), (0, 4)]);
    world.summaries = Summaries::Bits(64);
    for _ in 0..100 {
        submit_and_ask(&mut world, 4);
    }
    world.asked = 0;
    for _ in 0..100 {
        submit_and_ask(&mut world, 5);
    }
    assert_eq!(world.asked, 99, "each asks the one of its kind before it");
    submit_and_ask(&mut world, 0);
    assert_eq!(world.asked, 199, "a class asks about all that have something in common with it");
}

#[test]
fn a_few_that_last_among_many_that_end_keep_little() {
    let mut world = world_of(&[(4, 4)]);
    for turn in 0..1000 {
        submit_and_ask(&mut world, if turn % 100 == 0 { 5 } else { 6 });
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
