//! Of a burst of updates only the last is worth the work, and a connection's end comes last.
//!
//! A screen shows prices that change faster than it can be drawn: a newer price replaces the one
//! that waits to be drawn. When the viewer leaves, the waiting price is drawn, then the screen is
//! closed, once.

use std::error::Error;
use std::sync::mpsc;

use keylane::{OnClosedKey, Outcome, Pool, SubmitErrorKind};

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::<&str>::builder().workers(2).build()?;

    // The first drawing takes its time.
    let (drawn, draw) = mpsc::channel::<()>();
    let (begin, begun) = mpsc::channel();
    let first = pool.task("screen").latest().submit(move || {
        begin.send(()).expect("main waits for this");
        draw.recv().expect("main lets it go on");
        0
    })?;
    begun.recv()?;
    let mut drawings = Vec::new();
    for price in 1..=1000 {
        drawings.push(pool.task("screen").latest().submit(move || price)?);
    }
    let closed = pool.task("screen").last(OnClosedKey::Refuse).submit(|| "closed")?;
    let late = pool.task("screen").latest().submit(|| 1001).unwrap_err();
    assert_eq!(late.kind(), SubmitErrorKind::KeyClosed);
    drawn.send(())?;

    println!("drawn: {}", first.wait()?.unwrap());
    let mut replaced = 0;
    for drawing in drawings {
        match drawing.wait()? {
            Outcome::Completed(price) => println!("drawn: {price}"),
            Outcome::Superseded => replaced += 1,
            other => panic!("{other:?}"),
        }
    }
    println!("never drawn: {replaced}");
    assert_eq!(replaced, 999);
    println!("{}", closed.wait()?.unwrap());

    // The screen is given to another viewer.
    assert!(pool.keys().reopen(&"screen"));
    println!("drawn: {}", pool.task("screen").latest().submit(|| 5)?.wait()?.unwrap());
    Ok(())
}
