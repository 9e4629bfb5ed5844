//! Rates against a slow obvious model: after each step of a random scenario exactly those tasks
//! have begun that may have.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::{AnyHasher, Rng, eventually, with_every_hasher};
use keylane::{Claims, MockClock, Pool, Rate};

with_every_hasher!(exactly_what_may_begin_has_begun);

const KEYS: u32 = 4;

/// A rate, as numbers.
#[derive(Clone, Copy)]
struct Numbers {
    interval: u64,
    burst: u32,
}

impl Numbers {
    fn random(rng: &mut Rng) -> Self {
        Numbers { interval: 1 + rng.below(20), burst: 1 + rng.below(4) as u32 }
    }

    fn rate(self) -> Rate {
        Rate::every(Duration::from_nanos(self.interval)).burst(self.burst)
    }

    fn full(self) -> u64 {
        self.interval * u64::from(self.burst)
    }
}

/// Missing tokens of a key's bucket, in nanoseconds.
#[derive(Clone, Copy, Default)]
struct Key {
    own: Option<Numbers>,
    missing: u64,
}

impl Key {
    fn has_token(&self, common: Option<Numbers>) -> bool {
        self.own.or(common).is_none_or(|rate| self.missing + rate.interval <= rate.full())
    }

    fn take(&mut self, common: Option<Numbers>) {
        if let Some(rate) = self.own.or(common) {
            self.missing += rate.interval;
        }
    }

    fn change(&mut self, before: Option<Numbers>, after: Option<Numbers>) {
        self.missing = match (before, after) {
            (Some(before), Some(after)) => {
                (self.missing * after.interval / before.interval).min(after.full())
            }
            _ => 0,
        };
    }
}

/// Tasks in the order of their submission. A body takes no time.
#[derive(Default)]
struct Model {
    common: Option<Numbers>,
    keys: [Key; KEYS as usize],
    waiting: Vec<(usize, Vec<u32>)>,
    begun: Vec<usize>,
}

impl Model {
    /// A task begins if no earlier one waits for any of its keys, and each has a token.
    fn settle(&mut self) {
        let mut blocked = [false; KEYS as usize];
        let (keys, common, begun) = (&mut self.keys, self.common, &mut self.begun);
        self.waiting.retain(|(task, its)| {
            let begins = its
                .iter()
                .all(|key| !blocked[*key as usize] && keys[*key as usize].has_token(common));
            for key in its {
                match begins {
                    true => keys[*key as usize].take(common),
                    false => blocked[*key as usize] = true,
                }
            }
            if begins {
                begun.push(*task);
            }
            !begins
        });
    }

    fn pass(&mut self, nanos: u64) {
        self.keys.iter_mut().for_each(|key| key.missing = key.missing.saturating_sub(nanos));
    }

    /// A rollup that has a key already is not called back when the key's rate is lowered.
    fn rollup_waits_for(&self, key: Option<u32>) -> bool {
        self.waiting
            .iter()
            .any(|(_, its)| its.len() > 1 && key.is_none_or(|key| its.contains(&key)))
    }
}

struct World<S: AnyHasher> {
    pool: Pool<u32, S>,
    clock: MockClock,
    model: Model,
    /// Whether each task has begun, and the key that it shares. Tasks that share one may overtake
    /// each other.
    tasks: Vec<(Arc<AtomicBool>, Option<u32>)>,
}

impl<S: AnyHasher> World<S> {
    fn submit(&mut self, rng: &mut Rng) {
        let one = rng.below(KEYS.into()) as u32;
        let other = rng.below(KEYS.into()) as u32;
        let (claims, keys, shared) = match rng.below(5) {
            0 if one != other => {
                (Claims::exclusive(one).and_exclusive(other), vec![one, other], None)
            }
            1 => (Claims::shared(one), vec![one], Some(one)),
            2 => (Claims::limited(one, 3), vec![one], None),
            _ => (Claims::exclusive(one), vec![one], None),
        };
        let flag = Arc::new(AtomicBool::new(false));
        let begun = flag.clone();
        self.pool.execute(claims, move || begun.store(true, Ordering::SeqCst)).unwrap();
        self.model.waiting.push((self.tasks.len(), keys));
        self.tasks.push((flag, shared));
    }

    fn change(&mut self, rng: &mut Rng) {
        let numbers = (rng.below(4) != 0).then(|| Numbers::random(rng));
        let rate = numbers.map(Numbers::rate);
        if rng.below(3) == 0 {
            if self.model.rollup_waits_for(None) {
                return;
            }
            self.pool.settings().set_rate_per_key(rate).unwrap();
            let Model { common, keys, .. } = &mut self.model;
            let before = std::mem::replace(common, numbers);
            keys.iter_mut()
                .filter(|key| key.own.is_none())
                .for_each(|key| key.change(before, numbers));
            return;
        }
        let key = rng.below(KEYS.into()) as u32;
        if self.model.rollup_waits_for(Some(key)) {
            return;
        }
        self.pool.keys().set_rate(&key, rate).unwrap();
        let it = &mut self.model.keys[key as usize];
        let before = std::mem::replace(&mut it.own, numbers);
        it.change(before.or(self.model.common), numbers.or(self.model.common));
    }

    fn pass(&mut self, nanos: u64) {
        self.clock.advance(Duration::from_nanos(nanos));
        self.model.pass(nanos);
    }

    /// Waits until exactly the allowed tasks have begun.
    fn check(&mut self) {
        self.model.settle();
        let mut expected = vec![false; self.tasks.len()];
        self.model.begun.iter().for_each(|task| expected[*task] = true);
        let begun = || self.tasks.iter().map(|(flag, _)| flag.load(Ordering::SeqCst));
        eventually(|| self.sum_up(begun()) == self.sum_up(expected.iter().copied()));
    }

    /// Which of the tasks that share nothing have begun, and how many of those that share each key.
    fn sum_up(&self, begun: impl Iterator<Item = bool>) -> (Vec<usize>, [usize; KEYS as usize]) {
        let (mut alone, mut sharing) = (Vec::new(), [0; KEYS as usize]);
        for (task, ((_, shares), begun)) in self.tasks.iter().zip(begun).enumerate() {
            match shares {
                Some(key) => sharing[*key as usize] += usize::from(begun),
                None => alone.extend(begun.then_some(task)),
            }
        }
        (alone, sharing)
    }
}

fn exactly_what_may_begin_has_begun<S: AnyHasher>() {
    for seed in 0..80 {
        let mut rng = Rng(seed);
        let clock = MockClock::new();
        let workers = 1 + seed as usize % 3;
        let builder = Pool::<u32>::builder().workers(workers).clock(&clock);
        let pool = builder.hasher(S::default()).build().unwrap();
        let mut world = World { pool, clock, model: Model::default(), tasks: Vec::new() };
        for _ in 0..60 {
            match rng.below(10) {
                0 => world.change(&mut rng),
                1..=3 => world.pass(rng.below(30)),
                _ => (0..1 + rng.below(4)).for_each(|_| world.submit(&mut rng)),
            }
            world.check();
        }
        while !world.model.waiting.is_empty() {
            world.pass(1 + rng.below(20));
            world.check();
        }
        world.pool.shutdown().unwrap();
        // Everything is full again, and forgotten, but for those that have their own.
        world.pass(10_000_000_000);
        let own = world.model.keys.iter().filter(|key| key.own.is_some()).count();
        eventually(|| world.pool.inspect().snapshot(0).metered_keys == own);
        eventually(|| world.pool.keys().list_paused().is_empty());
    }
}
