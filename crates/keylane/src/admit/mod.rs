//! Decides who may submit: a fair bounded gate, first come, first served.

mod admission;
mod gate;
#[cfg(all(test, loom))]
mod models;

pub(crate) use admission::Admission;
pub(crate) use gate::{Gate, Refused, Standing};
