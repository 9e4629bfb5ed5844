//! A barrier conflicts with every other task: it runs alone, after all that was submitted before it
//! and before all that comes after. A checkpoint, a change of settings, a rotation of a log.

use std::error::Error;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use keylane::{Claims, Pool};

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::<u32>::builder().workers(4).build()?;
    let counts: Arc<Vec<AtomicU64>> = Arc::new((0..10).map(|_| AtomicU64::new(0)).collect());
    let count_all = |times: usize| {
        (0..10 * times).try_for_each(|n| {
            let counts = counts.clone();
            pool.execute(n as u32 % 10, move || {
                // In two steps, and yet nothing gets lost: each key is alone.
                let count = &counts[n % 10];
                count.store(count.load(Relaxed) + 1, Relaxed);
            })
        })
    };

    count_all(100)?;
    let counted = counts.clone();
    let checkpoint = pool.submit(Claims::barrier(), move || {
        counted.iter().map(|count| count.load(Relaxed)).sum::<u64>()
    })?;
    count_all(100)?;

    let sum = checkpoint.wait()?.unwrap();
    assert_eq!(sum, 1000, "all earlier tasks, and no later one");
    println!("at the checkpoint there were {sum}");
    pool.shutdown()?;
    println!(
        "in the end there were {}",
        counts.iter().map(|count| count.load(Relaxed)).sum::<u64>()
    );
    Ok(())
}
