//! A bounded queue between threads, or futures, that serves them in the order in which they came.

use std::error::Error;

use keylane::admit::FairQueue;

fn main() -> Result<(), Box<dyn Error>> {
    let queue = FairQueue::new(16)?;

    // A fast producer does not starve the slow ones: all wait in one queue.
    let received = std::thread::scope(|scope| {
        let producers: Vec<_> = (0..4)
            .map(|producer| {
                let queue = &queue;
                scope.spawn(move || {
                    (0..1000).for_each(|n| queue.push((producer, n)).expect("it is open"));
                })
            })
            .collect();
        let consumer = scope.spawn(|| std::iter::from_fn(|| queue.pop().ok()).collect::<Vec<_>>());
        producers.into_iter().for_each(|producer| producer.join().expect("it does not panic"));
        // Its remaining items are still popped.
        queue.close();
        consumer.join().expect("it does not panic")
    });
    for producer in 0..4 {
        let own = received.iter().filter(|(from, _)| *from == producer).map(|(_, n)| *n);
        assert!(own.eq(0..1000), "the items of one producer come out in its order");
    }
    println!("{} items from 4 producers, those of each in order", received.len());

    // A queue can be inspected, drained and resized, and returns items that it refuses.
    let (queue, other) = (FairQueue::new(3)?, FairQueue::new(10)?);
    queue.push_many(["a", "b", "c"])?;
    let refused = queue.try_push("d").unwrap_err().into_inner();
    queue.resize(4)?;
    queue.push(refused)?;
    println!("{:?}, of which the first is {:?}", queue.snapshot(), queue.peek(|first| *first));
    let taken = queue.drain(1..3);
    queue.transfer_all(&other)?;
    println!("{taken:?} were taken out, {:?} are in the other queue", other.snapshot());
    Ok(())
}
