//! Waits outside of the lanes are visible, too: submitters in their wait queues, and turns that are
//! idle for a while.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crate::common::{Log, Wakes, eventually, hold, poll, with_turns};
use keylane::observe::{KeyExplanation, KeyHolder, KeyQueuePosition, RunInfo, TaskState};
use keylane::{Claims, Pool, Turn};

const A: u32 = 1;

/// Position and name of each waiter.
fn line(pool: &Pool<u32>) -> Vec<(usize, Option<String>)> {
    pool.inspect().submitters().into_iter().map(|it| (it.position, it.name)).collect()
}

fn named(name: &str, run: impl FnOnce() + Send + 'static) -> thread::JoinHandle<()> {
    thread::Builder::new().name(name.to_owned()).spawn(run).unwrap()
}

#[test]
fn submitters_have_a_position_and_move_up() {
    let pool = Arc::new(Pool::<u32>::builder().workers(1).capacity(1).build().unwrap());
    assert!(pool.inspect().submitters().is_empty());
    let first = hold(&pool, A);
    let mut threads = Vec::new();
    for (place, name) in ["one", "two"].into_iter().enumerate() {
        let inside = pool.clone();
        threads.push(named(name, move || inside.execute(A, || {}).unwrap()));
        eventually(|| pool.inspect().submitters().len() == place + 1);
    }
    let wakes = Wakes::new();
    let mut third = Box::pin(pool.task(A).execute_async(|| {}));
    assert!(poll(third.as_mut(), &wakes).is_pending());
    let inside = pool.clone();
    threads.push(named("four", move || inside.execute(A, || {}).unwrap()));
    eventually(|| pool.inspect().submitters().len() == 4);

    let name = |name: &str| Some(name.to_owned());
    assert_eq!(line(&pool), [(1, name("one")), (2, name("two")), (3, None), (4, name("four"))]);
    let waits = pool.inspect().submitters();
    assert!(waits.iter().all(|it| it.bytes.is_none()));
    assert_eq!(waits[1].thread, Some(threads[1].thread().id()));
    assert_eq!(waits[2].thread, None);
    assert_eq!(waits[1].to_string(), "the thread two waits for capacity, at position 2");
    assert_eq!(waits[2].to_string(), "a future waits for capacity, at position 3");

    // A cancelled wait leaves no gap.
    drop(third);
    assert_eq!(line(&pool), [(1, name("one")), (2, name("two")), (3, name("four"))]);
    first.let_go();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert!(pool.inspect().submitters().is_empty());
}

#[test]
fn those_that_wait_for_bytes_say_for_how_many() {
    let pool = Arc::new(Pool::<u32>::builder().workers(1).capacity_bytes(10).build().unwrap());
    let first = hold(&pool, Claims::exclusive(A).with_cost(8));
    let inside = pool.clone();
    let claims = Claims::exclusive(A).with_cost(5);
    let waits = named("heavy", move || inside.execute(claims, || {}).unwrap());
    eventually(|| pool.inspect().submitters().len() == 1);
    let submitter = &pool.inspect().submitters()[0];
    assert_eq!((submitter.position, submitter.bytes), (1, Some(5)));
    let said = "the thread heavy waits for capacity for 5 bytes, at position 1";
    assert_eq!(submitter.to_string(), said);
    first.let_go();
    waits.join().unwrap();
}

fn running(key: KeyExplanation<u32>) -> RunInfo {
    match key.holder {
        KeyHolder::Running(running) => running,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_turn_that_backs_off_says_for_how_long() {
    let turns: Log<Turn> = Log::new();
    let kept = turns.clone();
    let pool = Pool::<u32>::builder()
        .workers(1)
        .build_handler(with_turns(move |_: &u32, (), turn| kept.push(turn)))
        .unwrap();
    pool.send(A, ()).unwrap();
    pool.send(A, ()).unwrap();
    eventually(|| turns.len() == 1);
    let turn = turns.take().pop().unwrap();
    assert_eq!(running(pool.inspect().explain_key(&A)).backs_off, None);
    let hour = Duration::from_secs(3600);
    turn.back_off(hour);
    // Until the handler has returned, its worker is reported.
    eventually(|| running(pool.inspect().explain_key(&A)).backs_off.is_some());
    let left = running(pool.inspect().explain_key(&A)).backs_off.expect("for an hour");
    assert!(left <= hour && left > hour / 2, "{left:?}");
    let said = pool.inspect().explain_key(&A).to_string();
    assert!(
        said.starts_with("1 has 2 unfinished tasks; the first backs off for another 3"),
        "{said}"
    );
    // The next attempt begins; it is long, and then there is another pause.
    turn.back_off(Duration::ZERO);
    assert_eq!(running(pool.inspect().explain_key(&A)).backs_off, None);
    turn.back_off(Duration::MAX);
    assert!(running(pool.inspect().explain_key(&A)).backs_off.is_some());
    // The next turn has not announced a pause.
    drop(turn);
    eventually(|| turns.len() == 1);
    assert_eq!(running(pool.inspect().explain_key(&A)).backs_off, None);
    drop(turns.take());
    pool.shutdown().unwrap();
}

/// The explanation of a task behind it includes the pause.
#[test]
fn a_task_behind_one_that_backs_off_is_told() {
    let pool = Pool::<u32>::builder().workers(1).build().unwrap();
    let task = hold(&pool, A);
    let behind = pool.submit(A, || {}).unwrap();
    let TaskState::Behind(ahead) = pool.inspect().explain(&behind).state else { panic!() };
    let [KeyQueuePosition { holder: KeyHolder::Running(running), .. }] = &ahead[..] else {
        panic!("{ahead:?}")
    };
    assert_eq!(running.backs_off, None, "it is on a worker");
    task.let_go();
    assert!(behind.wait().unwrap().is_completed());
}
