use std::time::SystemTime;

use crate::Position;

/// What a producer hands to a stream, and a consumer gets from it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// What order is kept for. None and an empty key are different.
    pub key: Option<Vec<u8>>,
    /// What it is about. None is a tombstone: in a compacted topic it deletes what the key had. None and an empty
    /// payload are different.
    pub payload: Option<Vec<u8>>,
    /// Names and values, in the producer's order; a name may come twice, and its value may be null.
    pub headers: Vec<Header>,
}

/// A header's name and value.
pub type Header = (String, Option<Vec<u8>>);

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
        Record { key: Some(key.into()), payload: Some(payload.into()), headers: Vec::new() }
    }

    /// A record without a key or headers.
    pub fn without_key(payload: impl Into<Vec<u8>>) -> Self {
        Record { key: None, payload: Some(payload.into()), headers: Vec::new() }
    }

    /// A record that deletes what a key had.
    pub fn tombstone(key: impl Into<Vec<u8>>) -> Self {
        Record { key: Some(key.into()), payload: None, headers: Vec::new() }
    }

    /// The payload's bytes; none of a tombstone.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.payload.as_deref().unwrap_or_default()
    }

    /// How many bytes its parts have.
    pub(crate) fn weight(&self) -> usize {
        let value = |value: &Option<Vec<u8>>| value.as_ref().map_or(0, Vec::len);
        let headers = self.headers.iter().map(|(name, header)| name.len() + value(header));
        value(&self.key) + value(&self.payload) + headers.sum::<usize>()
    }
}
