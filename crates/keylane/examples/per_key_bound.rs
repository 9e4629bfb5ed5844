//! A bound for each key: a key with too many tasks fills up by itself, and not the pool; submitters
//! that wait for it delay no others.

use std::error::Error;
use std::sync::mpsc;

use keylane::{Pool, SubmitErrorKind};

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::<&str>::builder().workers(2).capacity(1000).capacity_per_key(3).build()?;

    // One customer's handler hangs, and its messages pile up.
    let (end, ended) = mpsc::channel::<()>();
    pool.execute("slow", move || ended.recv().expect("main says when"))?;
    pool.execute("slow", || ())?;
    pool.execute("slow", || ())?;
    let refused = pool.task("slow").try_execute(|| ()).unwrap_err();
    assert_eq!(refused.kind(), SubmitErrorKind::KeyFull);
    println!("{refused}");

    std::thread::scope(|scope| {
        // This one waits for its customer,
        let waits = scope.spawn(|| pool.execute("slow", || println!("the fourth of the slow one")));
        while pool.inspect().snapshot(0).submitters_held == 0 {
            std::thread::yield_now();
        }
        // and no other submitter does.
        for _ in 0..100 {
            pool.submit("quick", || ())?.wait()?;
        }
        println!("100 of another customer went through meanwhile");
        end.send(())?;
        waits.join().expect("it does not panic")?;
        Ok::<_, Box<dyn Error>>(())
    })?;
    pool.shutdown()?;
    Ok(())
}
