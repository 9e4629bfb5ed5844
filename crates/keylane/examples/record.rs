//! Records which worker went to which job, and why, and prints it: for
//!
//! ```sh
//! cargo run --release --example record | keylane simulate -
//! ```
//!
//! which shows what happened, and what would have happened under other orders.

use std::thread::sleep;
use std::time::Duration;

use keylane::Pool;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::<u32>::builder().workers(4).build()?;
    pool.jobs().start_decision_log(10_000);

    let subtask = |millis| move || sleep(Duration::from_millis(millis));
    let report = pool.job("report").each((0..20).map(move |_| subtask(50))).run()?;
    sleep(Duration::from_millis(105));
    let preview = pool.job("preview").each((0..4).map(move |_| subtask(50))).run()?;
    preview.wait()?;
    report.wait()?;

    print!("{}", pool.jobs().decision_log().expect("there were jobs"));
    Ok(())
}
