//! A delayed task takes its place in the order when its delay is over. The latest of a burst runs
//! once its key has been quiet for a while.

use std::error::Error;
use std::time::Duration;

use keylane::Pool;

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::<&str>::builder().workers(2).build()?;
    let moment = Duration::from_millis(30);

    let reminder = pool.task("alice").after(moment).submit(|| println!("alice: reminder"))?;
    pool.execute("alice", || println!("alice: order, which came before it"))?;

    let saves: Vec<_> = (1..=3)
        .map(|version| pool.task("document").latest().after(moment).submit(move || version))
        .collect::<Result<_, _>>()?;
    let saved: Vec<_> = saves.into_iter().filter_map(|save| save.wait().ok()?.ok()).collect();
    println!("document: saved version {saved:?} of three");
    assert_eq!(saved, [3]);

    let never = pool.task("bob").after(Duration::from_secs(3600)).submit(|| ())?;
    assert!(never.cancel(), "it leaves the pool at once");
    reminder.join()?;
    pool.shutdown()?;
    Ok(())
}
