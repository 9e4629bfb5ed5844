use std::time::SystemTime;

use crate::Position;

/// What a producer hands to a stream, and a consumer gets from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// What order is kept for. None and an empty key are different.
    pub key: Option<Vec<u8>>,
    /// What it is about.
    pub payload: Vec<u8>,
    /// Names and values, in the producer's order; a name may come twice.
    pub headers: Vec<(String, Vec<u8>)>,
}

/// A record and its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivered {
    /// Its place in the stream.
    pub position: Position,
    /// When it was written, by the clock of the machine that wrote it; to the millisecond.
    pub written: SystemTime,
    /// What it is.
    pub record: Record,
}

impl Record {
    /// A record of a key, without headers.
    pub fn new(key: impl Into<Vec<u8>>, payload: impl Into<Vec<u8>>) -> Self {
        Record { key: Some(key.into()), payload: payload.into(), headers: Vec::new() }
    }

    /// A record without a key or headers.
    pub fn without_key(payload: impl Into<Vec<u8>>) -> Self {
        Record { key: None, payload: payload.into(), headers: Vec::new() }
    }
}
