//! Records: what producers write and handlers receive.

use std::time::SystemTime;

use bytes::Bytes;

use crate::Position;

/// A record of a stream.
///
/// A clone shares the bytes of key and payload. Small keys and payloads of a source lie in blocks of 4 KiB, each of which is freed with
/// the last record in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Key, by which consumers order. `None` and an empty key differ.
    pub key: Option<Bytes>,
    /// Content. `None` is a tombstone: in a compacted topic it deletes the key's value. `None` and
    /// an empty payload differ.
    pub payload: Option<Bytes>,
    /// Names and values, in the producer's order. Names may repeat, and values may be null.
    pub headers: Vec<Header>,
}

/// Name and value of a header.
pub type Header = (String, Option<Vec<u8>>);

/// A record with its position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveredRecord {
    /// Position in the stream.
    pub position: Position,
    /// Time of the write, by the writing machine's clock, in milliseconds.
    pub written: SystemTime,
    /// The record.
    pub record: Record,
}

impl Record {
    /// Creates a record with a key, without headers.
    pub fn new(key: impl Into<Vec<u8>>, payload: impl Into<Vec<u8>>) -> Self {
        Record {
            key: Some(key.into().into()),
            payload: Some(payload.into().into()),
            headers: Vec::new(),
        }
    }

    /// Creates a record without a key or headers.
    pub fn without_key(payload: impl Into<Vec<u8>>) -> Self {
        Record { key: None, payload: Some(payload.into().into()), headers: Vec::new() }
    }

    /// Creates a tombstone, which deletes the value of a key.
    pub fn tombstone(key: impl Into<Vec<u8>>) -> Self {
        Record { key: Some(key.into().into()), payload: None, headers: Vec::new() }
    }

    /// Returns the payload; empty for a tombstone.
    #[must_use]
    pub fn payload(&self) -> &[u8] {
        self.payload.as_deref().unwrap_or_default()
    }

    /// Returns the size of key, payload and headers, in bytes.
    pub(crate) fn weight(&self) -> usize {
        let value = |value: Option<&[u8]>| value.map_or(0, <[u8]>::len);
        let headers = self.headers.iter();
        let headers = headers.map(|(name, header)| name.len() + value(header.as_deref()));
        value(self.key.as_deref()) + value(self.payload.as_deref()) + headers.sum::<usize>()
    }
}
