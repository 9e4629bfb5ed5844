//! Have the tasks of a key return to the worker that ran the last of them, which has its data in
//! the cache.
//!
//! It prints how often a key has changed its worker, with either placement. The only guarantee is
//! that no worker is idle for it. Whether it pays depends on the data that tasks use for their key,
//! and on the machine's caches: measure.

use std::error::Error;
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use keylane::{Placement, Pool};

const KEYS: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    for placement in [Placement::Any, Placement::Sticky] {
        let pool = Pool::<usize>::builder().workers(2).placement(placement).build()?;
        let last: Arc<[Mutex<Option<ThreadId>>]> = (0..KEYS).map(|_| Mutex::default()).collect();
        let moved = Arc::new(Mutex::new(0));
        for n in 0..20_000 {
            let (last, moved) = (last.clone(), moved.clone());
            pool.execute(n % KEYS, move || {
                let me = Some(thread::current().id());
                let before =
                    last[n % KEYS].lock().map(|mut last| std::mem::replace(&mut *last, me));
                if before.is_ok_and(|before| before.is_some() && before != me) {
                    *moved.lock().expect("no task panics") += 1;
                }
            })?;
        }
        pool.shutdown()?;
        println!("{placement:?}: {} of 20000 tasks came to another worker", moved.lock().unwrap());
    }
    Ok(())
}
