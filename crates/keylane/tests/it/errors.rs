//! Errors pass through `?` into `anyhow::Error` and `Box<dyn Error + Send + Sync>`, also with a task that is only `Send`.

use std::cell::Cell;
use std::error::Error;

use keylane::admit::{FairQueue, Gate};
use keylane::{Pool, TaskError};

/// Error that accepts the same errors as `anyhow::Error` does.
#[derive(Debug)]
struct Anyhow(String);

impl<E: Error + Send + Sync + 'static> From<E> for Anyhow {
    fn from(error: E) -> Self {
        Anyhow(error.to_string())
    }
}

fn closed_pool() -> Pool<u32> {
    let pool = Pool::<u32>::builder().build().unwrap();
    pool.close();
    pool
}

/// Rejected with a capture that is `Send` and not `Sync`.
fn submit<E>(pool: &Pool<u32>) -> Result<(), E>
where
    E: From<keylane::SubmitError<(keylane::Claims<u32>, Box<dyn FnOnce() -> u32 + Send>)>>,
{
    let capture = Cell::new(7);
    let work: Box<dyn FnOnce() -> u32 + Send> = Box::new(move || capture.get());
    drop(pool.submit(7, work)?);
    Ok(())
}

#[test]
fn a_rejected_task_passes() {
    let pool = closed_pool();
    let boxed = submit::<Box<dyn Error + Send + Sync>>(&pool).unwrap_err();
    assert_eq!(boxed.to_string(), "the pool is closed");
    assert_eq!(submit::<Anyhow>(&pool).unwrap_err().0, "the pool is closed");
}

#[test]
fn all_errors_of_a_run_pass() {
    fn run() -> Result<(), Anyhow> {
        let pool = Pool::<u32>::builder().workers(1).build()?;
        let handle = pool.task(7).fallible().submit(|| "7".parse::<u32>())?;
        let capture = Cell::new(7);
        pool.execute_many([(7, move || _ = capture.get())])?;
        assert_eq!(handle.join()?, 7);
        pool.submit(7, || ())?.wait()?;
        let job = pool.job("job").each([|| 7]).collect()?;
        job.wait()?;
        let queue = FairQueue::new(1)?;
        queue.push(Cell::new(7))?;
        queue.pop()?;
        drop(Gate::new(1)?.acquire()?);
        pool.shutdown()?;
        let handle = pool.submit(7, || ())?;
        Ok(handle.join()?)
    }
    assert_eq!(run().unwrap_err().0, "the pool is closed");
}

#[test]
fn the_error_of_the_work_is_the_source() {
    let pool = Pool::<u32>::builder().build().unwrap();
    let handle = pool.task(7).fallible().submit(|| "x".parse::<u32>()).unwrap();
    let error = handle.join().unwrap_err();
    assert!(matches!(error, TaskError::Failed(_)));
    assert!(error.source().unwrap().is::<std::num::ParseIntError>());
}
