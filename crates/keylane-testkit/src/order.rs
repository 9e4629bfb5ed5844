//! Conformance suite of order: random programs, against one reference model, on any executor that
//! promises the order of keys.
//!
//! The library's lanes and the service's scheduler keep the same promises by different means. Each has
//! a small adapter, an [`Executor`], and both pass the same programs: what runs must be allowed to run
//! by the [model](Model), and while a slot is free nothing that may run waits. What an executor does
//! not have is switched off in its [`Features`].
//!
//! A program that fails is shortened, step by step, as long as it fails, and then printed.

mod model;
mod program;
mod suite;

pub use model::Model;
pub use program::{Claims, Features, Program, Step, Use};
pub use suite::{Executor, check_order};
