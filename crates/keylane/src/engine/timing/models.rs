//! Checks kept turns, in every order of body and owner.
//!
//! The engine is the real one with a minimal worker, as in `../models.rs`. Each model names the
//! defects that it was seen to catch.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::super::models::ModelEngine;
use crate::observe::StartRange;
use crate::order::Claims;
use crate::run::TurnResult;
use crate::sync::model::{Plain, check, spawn};

const BEGAN: StartRange = StartRange { earliest: 0, latest: 0 };

/// The body of a task continues after it has kept its turn, and another thread drops the turn:
/// whichever leaves last, the key's next task runs once and sees the writes of both, and a sleeping
/// worker is notified.
///
/// Caught: a turn that ends with the first of its parties; a body that is the last and releases
/// nothing.
#[test]
fn the_next_of_a_key_comes_after_both_parties_of_a_kept_turn() {
    check(|| next_comes_after_both(1, || Claims::exclusive(0)));
}

/// A task with two keys, each in a shard of its own, whose turn is kept by its body and dropped by
/// another thread.
///
/// Caught: a turn that ends with the first of its parties; a body that is the last and releases
/// nothing.
#[test]
fn the_next_of_each_key_comes_after_both_parties_of_a_kept_turn() {
    check(|| next_comes_after_both(2, || Claims::exclusive(0).and_exclusive(1)));
}

fn next_comes_after_both(shards: usize, claims: impl Fn() -> Claims<u64>) {
    let model = ModelEngine::new(shards, 2);
    let [by_body, by_owner] = [(); 2].map(|()| Arc::new(Plain::<u32>::default()));
    let ran = Arc::new(AtomicUsize::new(0));
    assert!(model.submit(claims(), || {}));
    assert!(model.submit(claims(), {
        let (by_body, by_owner, ran) = (by_body.clone(), by_owner.clone(), ran.clone());
        move || {
            assert_eq!((by_body.get(), by_owner.get()), (1, 1));
            ran.fetch_add(1, Ordering::Relaxed);
        }
    }));
    let (shard, on) = (0..shards)
        .find_map(|shard| Some((shard, model.step(shard, None, true)?)))
        .expect("the first may run");
    let turn = model.engine.keep_turn(shard, on.held, BEGAN);
    let owner = spawn({
        let model = model.clone();
        move || {
            by_owner.change(|value| *value += 1);
            model.engine.leave_turn(shard, turn, TurnResult::Done);
        }
    });
    by_body.change(|value| *value += 1);
    if let Some((held, _)) = model.engine.leave_body(shard, turn, TurnResult::Done) {
        model.engine.end(shard, held);
    }
    model.engine.idle.start_searching();
    model.work(0);
    owner.join().unwrap();
    assert_eq!(ran.load(Ordering::Relaxed), 1);
    model.assert_over();
}
