//! Decides which ready work a free worker takes.

mod board;

pub(crate) use board::{Board, MAX_SHARDS};
