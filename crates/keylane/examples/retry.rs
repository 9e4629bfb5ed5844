//! Failed work is attempted again after a wait that grows. Its key waits meanwhile, so the order is
//! kept; its worker does not, so other keys go on.

use std::error::Error;
use std::time::Duration;

use keylane::{Backoff, Outcome, Pool, Retry, handler};

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::<&str>::builder().workers(1).build()?;
    let millis = Duration::from_millis;
    let retry = Retry::attempts(4).backoff(Backoff::exponential(millis(5), millis(50)));

    let mut attempt = 0;
    let paid = pool.task("alice").fallible().retry(retry).submit(move || {
        attempt += 1;
        if attempt < 3 { Err("the bank does not answer") } else { Ok(attempt) }
    })?;
    let receipt = pool.submit("alice", || println!("alice: receipt, after the payment"))?;
    pool.execute("bob", || println!("bob: meanwhile, on the same worker"))?;
    println!("alice: paid in attempt {}", paid.wait()?.unwrap());
    receipt.join()?;

    let hopeless =
        pool.task("bob").fallible().retry(retry).submit(|| Err::<(), _>("no such account"))?;
    let Outcome::Failed(error) = hopeless.wait()? else { unreachable!("it fails each time") };
    println!("bob: {error}, after all attempts");

    // A handler gets the message and the number of the attempt.
    let pay = handler::retrying(retry, |account: &u32, amount: &i64, attempt| {
        println!("account {account}: {amount:+}, attempt {attempt}");
        if attempt < 2 { Err("busy") } else { Ok(()) }
    });
    let pool = Pool::<u32>::builder().build_handler(pay)?;
    pool.send(7, 100)?;
    pool.send(7, -30)?; // after the last attempt of the first
    pool.shutdown()?;
    Ok(())
}
