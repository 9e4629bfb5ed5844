//! Decodes the metadata beside a committed position, and applies the policy for metadata that is
//! damaged or foreign.

use super::completed_map::{self, OffsetMapTextError};
use super::map_error::OffsetMapError;
use super::{Progress, confluent_offset_map};
use crate::Position;

/// Policy for metadata that this crate did not write, or that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffsetMapPolicy {
    /// Maps of Confluent's parallel consumer. Default: taken over.
    pub parallel_consumer: ForeignMapPolicy,
    /// All other metadata that is foreign or damaged. Default: refused.
    pub unreadable: UnreadableMapPolicy,
}

/// Policy for readable maps of another product.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForeignMapPolicy {
    /// Reads the map, so that a group migrates without repeating completed records.
    ///
    /// These maps have no checksum. A map that differs from the exact format is unreadable.
    #[default]
    TakeOver,
    /// Treats the map as unreadable.
    Distrust,
}

/// Policy for metadata that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnreadableMapPolicy {
    /// Returns an error, so that an operator decides.
    #[default]
    Refuse,
    /// Repeats the stream from the committed position: no record is lost, and records that the map
    /// had as completed are handled again. The next commit overwrites the metadata.
    Repeat,
}

/// Decoded metadata of a committed position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodedMap {
    /// A map of this crate, or no metadata: no position beyond the committed one is complete.
    Progress(Progress),
    /// A map of the parallel consumer.
    TakenOver(Progress),
    /// Unreadable metadata that the policy ignores, and the cause.
    Repeated(Progress, OffsetMapError),
}

impl DecodedMap {
    /// Returns the progress to resume from.
    #[must_use]
    pub fn into_progress(self) -> Progress {
        match self {
            DecodedMap::Progress(progress) | DecodedMap::TakenOver(progress) => progress,
            DecodedMap::Repeated(progress, _) => progress,
        }
    }
}

/// Decodes the metadata beside a committed position; `stream` as for [`Progress::encode`].
///
/// Accepts any text without a panic. Time and memory are bounded by a small multiple of the largest
/// valid map.
///
/// # Errors
/// If the metadata cannot be used and the policy refuses that.
pub fn decode(
    committed: Position,
    metadata: &str,
    stream: &[u8],
    policy: OffsetMapPolicy,
) -> Result<DecodedMap, OffsetMapError> {
    let read = if metadata.is_empty() {
        Ok(DecodedMap::Progress(Progress::up_to(committed)))
    } else if completed_map::is_known(metadata) {
        let found = completed_map::decode(committed, metadata, stream);
        found.map(|(progress, _)| DecodedMap::Progress(progress)).map_err(|refused| match refused {
            OffsetMapTextError::Damaged => OffsetMapError::Damaged,
            OffsetMapTextError::OtherStream => OffsetMapError::OtherStream,
        })
    } else if is_later(metadata) {
        Err(OffsetMapError::Later)
    } else {
        decode_foreign(committed, metadata, policy.parallel_consumer)
    };
    match (read, policy.unreadable) {
        (Err(error), UnreadableMapPolicy::Repeat) => {
            Ok(DecodedMap::Repeated(Progress::up_to(committed), error))
        }
        (read, _) => read,
    }
}

/// Returns the highest leader epoch of a map: when the map was written, no record below its end had
/// a later one. For texts that [`decode`] has accepted.
#[must_use]
pub fn highest_epoch(metadata: &str) -> Option<u32> {
    completed_map::epoch(metadata)
}

/// Returns whether the text has the format's prefix with an unknown version.
fn is_later(metadata: &str) -> bool {
    let version = metadata.strip_prefix("KL").and_then(|rest| rest.split_once(':'));
    version.is_some_and(|(version, _)| {
        !version.is_empty() && version.bytes().all(|byte| byte.is_ascii_digit())
    })
}

fn decode_foreign(
    committed: Position,
    text: &str,
    policy: ForeignMapPolicy,
) -> Result<DecodedMap, OffsetMapError> {
    let found = confluent_offset_map::decode(committed, text)?;
    match policy {
        ForeignMapPolicy::TakeOver => Ok(DecodedMap::TakenOver(found)),
        ForeignMapPolicy::Distrust => Err(OffsetMapError::Foreign),
    }
}
