//! A handler that only begins its work keeps the turn, and ends it later, on any thread. Meanwhile
//! the key waits, and the worker does not.
//!
//! So one worker can have a hundred requests on their way, and still no client has two at a time.

use std::collections::HashSet;
use std::error::Error;
use std::sync::mpsc;

use keylane::{Pool, TaskContext, Turn, handler};

const CLIENTS: usize = 100;
const REQUESTS: usize = 3;

fn main() -> Result<(), Box<dyn Error>> {
    // A server far away, which answers when it likes: here another thread. What goes there takes
    // the turn with it.
    let (ask, asked) = mpsc::channel::<(usize, usize, Turn)>();

    let begin =
        handler::with_context(move |&client: &usize, request: usize, task: TaskContext<'_>| {
            let turn = task.keep();
            ask.send((client, request, turn)).expect("the server listens until the pool is gone");
        });
    let pool = Pool::<usize>::builder().workers(1).build_handler(begin)?;
    for request in 0..REQUESTS {
        pool.send_many((0..CLIENTS).map(|client| (client, request)))?;
    }

    for round in 0..REQUESTS {
        // The first requests of all clients are on their way at once, and no second one is.
        let open: Vec<_> = asked.iter().take(CLIENTS).collect();
        let clients: HashSet<usize> = open.iter().map(|(client, ..)| *client).collect();
        assert_eq!(clients.len(), CLIENTS);
        assert!(open.iter().all(|(_, request, _)| *request == round));
        assert!(asked.try_recv().is_err(), "no client has two requests on their way");
        println!("{} requests on their way with one worker", open.len());
        // Dropped, each turn ends, and the next of its client begins.
        drop(open);
    }
    pool.shutdown()?;
    println!("all answered");
    Ok(())
}
