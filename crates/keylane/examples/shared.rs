//! Tasks that only read can share a key: they run beside each other, and in order with those that
//! use the key alone.

use std::error::Error;
use std::sync::{Arc, Barrier, RwLock};

use keylane::{Claims, Pool};

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::<&str>::builder().workers(2).build()?;
    // Never contended: the pool keeps readers and writers apart.
    let price = Arc::new(RwLock::new(100));

    let set = |value: i32| {
        let price = price.clone();
        move || *price.try_write().expect("no other task has the key") = value
    };
    // Two readers that wait for each other, so they can only run together.
    let together = Arc::new(Barrier::new(2));
    let get = || {
        let (price, together) = (price.clone(), together.clone());
        move || {
            together.wait();
            *price.try_read().expect("readers share the key")
        }
    };

    pool.execute("price", set(110))?;
    let before = [
        pool.submit(Claims::shared("price"), get())?,
        pool.submit(Claims::shared("price"), get())?,
    ];
    pool.execute("price", set(120))?;
    let after = [
        pool.submit(Claims::shared("price"), get())?,
        pool.submit(Claims::shared("price"), get())?,
    ];

    for (readers, expected) in [(before, 110), (after, 120)] {
        for reader in readers {
            assert_eq!(reader.wait()?.unwrap(), expected);
        }
        println!("two readers together saw {expected}");
    }
    Ok(())
}
