//! The circle against a slow obvious model: a task may run when no earlier unfinished one conflicts
//! with it, by the predicate.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

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

/// A task as the model knows it.
struct Task {
    kind: usize,
    seat: Seat,
    /// Grants that it waits for, one of them while it asks.
    pending: usize,
    behind: Vec<u64>,
}

struct World {
    circle: Circle<u64>,
    /// Which kinds conflict.
    conflicts: [[bool; KINDS]; KINDS],
    unfinished: BTreeMap<u64, Task>,
    asking: Vec<(u64, Inquiry)>,
    last: u64,
    /// Of which kind each task was that there ever was.
    kinds: Vec<usize>,
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
        let (unfinished, asking) = (BTreeMap::new(), Vec::new());
        World {
            circle: Circle::default(),
            conflicts,
            unfinished,
            asking,
            last: 0,
            kinds: vec![0],
            asked: 0,
        }
    }

    fn submit(&mut self, kind: usize) {
        self.last += 1;
        self.kinds.push(kind);
        let class = (kind < CLASSES).then_some(kind as u64);
        let mut given = None;
        let seated = self.circle.seat(self.last, class, |seat| {
            given = Some(seat);
            seat.place
        });
        let seat = given.expect("the task is made");
        let pending = seated.waits + usize::from(seated.inquiry.is_some());
        self.unfinished.insert(self.last, Task { kind, seat, pending, behind: Vec::new() });
        self.asking.extend(seated.inquiry.map(|inquiry| (self.last, inquiry)));
    }

    /// One round of one of those that ask.
    fn ask(&mut self, which: usize) {
        let (place, mut inquiry) = self.asking.swap_remove(which);
        let (waits, asks) = self.circle.next_round(&mut inquiry, &place);
        let task = self.unfinished.get_mut(&place).expect("it waits for its answers");
        task.pending += waits;
        if asks.is_empty() {
            task.behind = inquiry.behind();
            task.pending -= 1;
            return;
        }
        let kind = task.kind;
        for ask in asks {
            let implied = inquiry.is_implied(&ask);
            self.asked += usize::from(!implied);
            let conflict = implied || self.conflicts[kind][self.kinds[ask.task as usize]];
            if conflict && let Some(other) = self.unfinished.get(&ask.task) {
                inquiry.imply(&other.behind);
            }
            if !implied {
                inquiry.answer(&ask, conflict);
            }
        }
        self.asking.push((place, inquiry));
    }

    fn end(&mut self, place: u64) {
        self.check_behind(place);
        let task = self.unfinished.remove(&place).expect("the caller has it from there");
        let (released, ended) = self.circle.end(task.seat);
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
            for next in self.circle.behind(self.unfinished[&front].seat) {
                assert!(next > front && self.unfinished[&next].pending > 0);
                if behind.insert(next) {
                    fronts.push(next);
                }
            }
        }
        let kind = self.unfinished[&place].kind;
        for (later, task) in self.unfinished.range(place + 1..) {
            let asks = self.asking.iter().any(|(asking, _)| asking == later);
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
            let asks = self.asking.iter().any(|(asking, _)| asking == place);
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
                0 if world.unfinished.len() < crowd => world.submit(dice.roll(KINDS)),
                1 if !world.asking.is_empty() => world.ask(dice.roll(world.asking.len())),
                2 if !ready.is_empty() => world.end(ready[dice.roll(ready.len())]),
                _ => {}
            }
            world.check();
        }
        while !world.unfinished.is_empty() {
            while !world.asking.is_empty() {
                world.ask(0);
            }
            let ready = world.ready();
            world.end(ready[dice.roll(ready.len())]);
            world.check();
        }
        assert!(world.circle.is_empty() && world.circle.classes.is_empty(), "nothing is kept");
    }
}

/// Everything that is asked has been asked when a task is ready.
fn submit_and_ask(world: &mut World, kind: usize) {
    world.submit(kind);
    while !world.asking.is_empty() {
        world.ask(0);
    }
    world.check();
}

fn world_of(conflicts: &[(usize, usize)]) -> World {
    let mut world = World::new(&mut Dice(1));
    world.conflicts = [[false; KINDS]; KINDS];
    for &(one, two) in conflicts {
        world.conflicts[one][two] = true;
        world.conflicts[two][one] = true;
    }
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
    // But for those that were looked up together with the newest.
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
        newest.into_iter().for_each(|place| world.end(place));
    }
    let cohorts: usize = world.circle.groups.values().map(|group| group.cohorts.len()).sum();
    assert_eq!(cohorts, 1);
}
