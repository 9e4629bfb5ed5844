//! A handler with a state for each key: sessions of visitors, each with the pages that it has seen.
//!
//! No lock and no map is needed: the messages of a visitor use its session in order, one at a time.

use std::error::Error;
use std::sync::mpsc::channel;
use std::time::Duration;

use keylane::{Pool, handler};

struct Session {
    pages: Vec<u32>,
}

fn main() -> Result<(), Box<dyn Error>> {
    const VISITORS: u32 = 100;
    const PAGES: u32 = 20;

    let (report, reports) = channel();
    let sessions = handler::stateful(
        |_: &u32| Session { pages: Vec::new() },
        move |visitor: &u32, session: &mut Session, page: u32| {
            session.pages.push(page);
            if page == PAGES {
                let pages = std::mem::take(&mut session.pages);
                report.send((*visitor, pages)).expect("the main thread reads all reports");
            }
        },
    );
    // Otherwise a session would end when its visitor has no unfinished message.
    let sessions = sessions.keep_idle(Duration::from_secs(600));
    let pool = Pool::<u32>::builder().workers(4).build_handler(sessions)?;
    for page in 1..=PAGES {
        pool.send_many((0..VISITORS).map(|visitor| (visitor, page)))?;
    }
    pool.shutdown()?;
    drop(pool);

    let mut ended = 0;
    for (visitor, pages) in reports {
        assert!(pages.iter().copied().eq(1..=PAGES), "visitor {visitor} has seen {pages:?}");
        ended += 1;
    }
    assert_eq!(ended, VISITORS);
    println!("{ended} sessions of {PAGES} pages, each in order");
    Ok(())
}
