//! Checks that a scope waits for its tasks, in every order of events.
//!
//! Each model names the defects that it was seen to catch.

use super::*;
use crate::run::noop_context;
use crate::sync::model::{Plain, check, spawn};

/// A scope returns after a task that runs and one that is dropped, and sees the writes of both.
///
/// Caught: a body that leaves the count before its closure is gone; `end` that does not notify.
#[test]
fn a_scope_waits_for_each_of_its_tasks() {
    struct Capture(Arc<Plain<u32>>);
    impl Drop for Capture {
        fn drop(&mut self) {
            self.0.change(|value| *value += 10);
        }
    }
    check(|| {
        let state = Arc::<ScopeState>::default();
        let values = [(); 2].map(|()| Arc::new(Plain::<u32>::default()));
        let [runs, drops] = values.clone().map(|value| {
            let pending = state.begin();
            let capture = Capture(value);
            let work = move || capture.0.change(|value| *value += 1);
            ScopedTask { work, pending }.into_work()
        });
        let worker = spawn(move || runs.run(&mut noop_context()));
        let stops = spawn(move || drop(drops));
        assert!(matches!(state.wait(), Err(ScopeError::Cancelled)));
        assert_eq!(values.map(|value| value.get()), [11, 10]);
        worker.join().unwrap();
        stops.join().unwrap();
    });
}
