//! A type of your own can say which tasks may run at the same time, where keys cannot.
//!
//! Here tasks write to parts of one buffer. Two of them conflict if their parts overlap; then they
//! run in the order in which they were submitted, and otherwise beside each other. Each cell is
//! written without a lock and without any order of memory: a task sees what those before it wrote.
//!
//! With `summary` a part is only compared with those near it. Where the tasks fall into a few kinds
//! that are all alike, `class` makes it cheaper still: see the second part.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use keylane::{Claims, Compatibility, Pool};

/// A part of the buffer.
struct Span {
    from: usize,
    to: usize,
}

impl Compatibility for Span {
    fn is_compatible(&self, other: &Self) -> bool {
        self.to <= other.from || other.to <= self.from
    }

    /// A bit for each two cells. Parts that overlap have a cell in common, and its bit.
    fn summary(&self) -> u64 {
        (self.from..self.to).fold(0, |bits, cell| bits | 1 << (cell / 2))
    }
}

/// Access to the index.
#[derive(Clone, Copy, PartialEq)]
enum Access {
    Search,
    Rebuild,
}

impl Compatibility for Access {
    fn is_compatible(&self, other: &Self) -> bool {
        (*self, *other) == (Access::Search, Access::Search)
    }

    /// All searches are alike, and all rebuilds: whatever is true for one of them is for the
    /// others.
    fn class(&self) -> Option<u64> {
        Some(*self as u64)
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::<&str>::builder().workers(4).build()?;

    let cells: Arc<Vec<AtomicU64>> = Arc::new((0..100).map(|_| AtomicU64::new(0)).collect());
    for n in 0..1000 {
        let (from, to) = (n * 7 % 90, n * 7 % 90 + 10);
        let cells = cells.clone();
        pool.execute(Claims::described(Span { from, to }), move || {
            // In two steps: it only adds up if no other task writes there.
            cells[from..to].iter().for_each(|cell| cell.store(cell.load(Relaxed) + 1, Relaxed));
        })?;
    }

    // Descriptors and keys go together, and other types of descriptors don't meddle.
    let version = Arc::new(AtomicU64::new(0));
    for n in 0..1000_u64 {
        let version = version.clone();
        let access = if n % 100 == 0 { Access::Rebuild } else { Access::Search };
        let claims = match access {
            Access::Rebuild => Claims::exclusive("disk").with_descriptor(access),
            Access::Search => Claims::described(access),
        };
        pool.execute(claims, move || {
            let before = version.load(Relaxed);
            assert_eq!(
                before,
                n.div_ceil(100),
                "a search sees all rebuilds before it, and no other"
            );
            if access == Access::Rebuild {
                version.store(before + 1, Relaxed);
            }
        })?;
    }

    pool.shutdown()?;
    let written: u64 = cells.iter().map(|cell| cell.load(Relaxed)).sum();
    assert_eq!(written, 10_000);
    assert_eq!(pool.inspect().snapshot(0).panicked, 0);
    println!("1,000 tasks wrote {written} cells, and each cell alone");
    println!("{} rebuilds, and each search saw those before it", version.load(Relaxed));
    Ok(())
}
