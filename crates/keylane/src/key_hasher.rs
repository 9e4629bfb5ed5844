//! Hasher of keys: the default of a pool.

use std::fmt;
use std::hash::{BuildHasher, Hasher};

/// Default hasher of a pool's keys: fast, and seeded anew in each process, so that keys cannot
/// easily be chosen to collide. It does not claim to withstand an attacker that can measure it;
/// against such, use `std::hash::RandomState`.
#[derive(Clone, Debug, Default)]
pub struct KeyBuildHasher(foldhash::quality::RandomState);

impl BuildHasher for KeyBuildHasher {
    type Hasher = KeyHasher;

    #[inline]
    fn build_hasher(&self) -> KeyHasher {
        KeyHasher(self.0.build_hasher())
    }
}

/// Hasher of one key, built by a [`KeyBuildHasher`].
#[derive(Clone)]
pub struct KeyHasher(foldhash::quality::FoldHasher<'static>);

/// Forwards every kind of write, since each has a fast path of its own.
macro_rules! forward {
    ($($write:ident($int:ty)),*) => {
        $(
            #[inline]
            fn $write(&mut self, value: $int) {
                self.0.$write(value);
            }
        )*
    };
}

impl Hasher for KeyHasher {
    #[inline]
    fn finish(&self) -> u64 {
        self.0.finish()
    }

    #[inline]
    fn write(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    forward!(write_u8(u8), write_u16(u16), write_u32(u32), write_u64(u64), write_u128(u128));
    forward!(write_usize(usize));
}

impl fmt::Debug for KeyHasher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyHasher").finish_non_exhaustive()
    }
}
