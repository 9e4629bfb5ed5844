//! The most demanding tests of `it`, as a small program of their own, which CI builds optimised: races
//! and deep recursion can hide in slow code.

#![allow(dead_code, unused_imports, unused_macros, reason = "these tests share a part of `common`")]

#[path = "it/common/mod.rs"]
mod common;
#[path = "it/deep.rs"]
mod deep;
#[path = "it/order.rs"]
mod order;
#[path = "it/queue_stress.rs"]
mod queue_stress;
#[path = "it/rollups.rs"]
mod rollups;
