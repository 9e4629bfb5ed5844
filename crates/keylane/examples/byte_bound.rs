//! A bound on bytes: the total cost of waiting and running tasks stays below it, however large or
//! small each task is.

use std::error::Error;
use std::sync::mpsc;

use keylane::{Claims, Pool, SubmitErrorKind};

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::<u32>::builder().workers(1).capacity_bytes(1_000_000).build()?;

    // Three pages are under way: the first runs until main says when, two wait behind it.
    let (end, ended) = mpsc::channel::<()>();
    let claims = || Claims::exclusive(7).with_cost(300_000);
    let page = || vec![0_u8; 300_000];
    let first = page();
    pool.execute(claims(), move || {
        ended.recv().expect("main says when");
        drop(first);
    })?;
    for page in [page(), page()] {
        pool.execute(claims(), move || drop(page))?;
    }
    println!("{} bytes are under way", pool.inspect().snapshot(0).bytes);

    // There is no capacity for a fourth, and never will be for one that is too large.
    let refused = pool.task(claims()).try_execute(|| ()).unwrap_err();
    assert_eq!(refused.kind(), SubmitErrorKind::Full);
    let refused = pool.execute(Claims::exclusive(8).with_cost(2_000_000), || ()).unwrap_err();
    assert_eq!(refused.kind(), SubmitErrorKind::TooLarge);
    println!("{refused}");

    // Something small still fits.
    pool.task(Claims::exclusive(8).with_cost(1000)).try_execute(|| ())?;
    end.send(())?;
    pool.shutdown()?;
    assert_eq!(pool.inspect().snapshot(0).bytes, 0);
    Ok(())
}
