//! Defines how a running pool is controlled and inspected: one set of facades for pools of closures
//! and of messages.
//!
//! [`Pool`](crate::Pool) and [`HandlerPool`](crate::HandlerPool) return them from `keys`,
//! `inspect`, `jobs` and `settings`. They borrow the pool and cost nothing to make.

mod engine;
mod inspect;
mod jobs;
mod keys;
mod settings;

pub use self::inspect::Inspector;
pub use self::jobs::Jobs;
pub(crate) use self::jobs::JobsEngine;
pub use self::keys::Keys;
pub(crate) use self::keys::TakeKey;
pub use self::settings::Settings;
