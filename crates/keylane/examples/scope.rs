//! Tasks of a scope borrow from outside of it. It returns when all of them have ended.

use std::error::Error;

use keylane::Pool;

fn main() -> Result<(), Box<dyn Error>> {
    let pool = Pool::<usize>::builder().workers(4).build()?;
    let text = "the quick brown fox jumps over the lazy dog".to_owned();
    let words: Vec<&str> = text.split(' ').collect();
    let mut lengths = vec![0; words.len()];

    pool.scope(|scope| {
        for (key, (word, length)) in words.iter().zip(&mut lengths).enumerate() {
            // One key for each word: all are parallel. With one key they would be in order.
            scope.execute(key, move || *length = word.len()).expect("the pool is open");
        }
    })?;
    println!("{text}: {lengths:?}");
    assert_eq!(lengths.iter().sum::<usize>(), text.len() - words.len() + 1);

    // A clone is the same pool.
    let clone = pool.clone();
    let thread = std::thread::spawn(move || {
        clone.submit(7, || "from another thread")?.join().map_err(Into::into)
    });
    let value: Result<_, Box<dyn Error + Send + Sync>> = thread.join().expect("it does not panic");
    println!("{}", value.map_err(|error| error.to_string())?);
    Ok(())
}
