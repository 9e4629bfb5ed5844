//! Records the tasks of each worker over time, for a viewer: Perfetto, Chrome's own, or speedscope.
//!
//! Transfers between accounts, with a report on all of them now and then. Written to the file that
//! is named as an argument, if any.

use std::thread::sleep;
use std::time::Duration;

use keylane::{Claims, Pool};

const ACCOUNTS: [&str; 5] = ["alice", "bob", "carol", "dave", "erin"];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pool = Pool::<&str>::builder().workers(3).build()?;
    pool.inspect().start_trace(10_000);
    for step in 0..60_usize {
        let account = ACCOUNTS[step * step % 5];
        let other = ACCOUNTS[(step * 3 + 1) % 5];
        let work = move || sleep(Duration::from_micros(200 + step as u64 % 7 * 100));
        match step {
            30 => pool.execute(Claims::barrier(), work)?,
            _ if step % 6 == 5 && account != other => pool.execute([account, other], work)?,
            _ => pool.execute(account, work)?,
        }
    }
    while pool.inspect().snapshot(0).unfinished != 0 {
        std::thread::yield_now();
    }
    let trace = pool.inspect().take_trace().expect("one was begun");
    println!("{} slices; {} were left out", trace.slices.len(), trace.dropped);
    let longest = trace.slices.iter().max_by_key(|slice| slice.wait).expect("there are some");
    println!("the longest wait was {:?}, before a task of {:?}", longest.wait, longest.keys);

    let mut text = Vec::new();
    trace.write_chrome(&mut text)?;
    assert!(text.starts_with(b"{"));
    if let Some(path) = std::env::args_os().nth(1) {
        std::fs::write(path, text)?;
    }
    Ok(())
}
