//! No child outlives `keylane` unnoticed, whatever ends it: none runs beside the next attempt of what it was started
//! for.

#[path = "../common/mod.rs"]
mod common;
mod consume;
mod family;
mod first_process;
mod run;
mod serve;
