//! The integration tests of this crate, a module for each promise. They are one program, which
//! links once.

mod fair;
mod mixes;
mod model;
mod orders;
mod priorities;
mod record;
mod rules;
mod tenants;
mod timeline;
mod worker_sizing;
