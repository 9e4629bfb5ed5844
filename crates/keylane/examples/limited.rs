//! At most `n` tasks of a key at once, where their order does not matter: two requests to each
//! host, while the pool has eight workers.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::{Arc, Mutex};
use std::thread;

use keylane::{Claims, Pool};

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::<&str>::builder().workers(8).build()?;
    // For each host, how many requests there are now, and the most there ever were.
    let requests = Arc::new(Mutex::new(BTreeMap::<&str, (u32, u32)>::new()));

    for page in 0..300 {
        let host = ["example.org", "example.net", "example.com"][page % 3];
        let requests = requests.clone();
        pool.execute(Claims::limited(host, 2), move || {
            {
                let mut requests = requests.lock().unwrap();
                let (now, most) = requests.entry(host).or_default();
                *now += 1;
                *most = (*most).max(*now);
            }
            // Here is where it would be fetched.
            thread::yield_now();
            requests.lock().unwrap().entry(host).or_default().0 -= 1;
        })?;
    }
    pool.shutdown()?;

    for (host, (now, most)) in &*requests.lock().unwrap() {
        println!("{host}: never more than {most} at once");
        assert!(*now == 0 && *most <= 2);
    }
    Ok(())
}
