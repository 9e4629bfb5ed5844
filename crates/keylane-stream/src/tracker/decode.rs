use super::completed_map::{self, MapRefused};
use super::{Progress, parallel_consumer};
use crate::Position;

/// What is done with a group's metadata that this crate did not write, or that cannot be trusted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MapPolicy {
    /// Maps of Confluent's parallel consumer. Default: taken over.
    pub parallel_consumer: ForeignMapPolicy,
    /// Everything else that is not ours or is damaged. Default: refused.
    pub unreadable: UnreadableMapPolicy,
}

/// What is done with the maps of another product that could be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ForeignMapPolicy {
    /// They are read, so that a group moves over without repeating what it has done.
    ///
    /// They have no checksum. What does not have the exact form of one is unreadable.
    #[default]
    TakeOver,
    /// They count as unreadable.
    Distrust,
}

/// What is done with metadata that cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnreadableMapPolicy {
    /// It is an error, and a person decides.
    #[default]
    Refuse,
    /// The stream is repeated from the committed position: nothing is lost, and what the map said was
    /// done is done again. The next commit overwrites the metadata.
    Repeat,
}

/// What was found beside a committed position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DecodedMap {
    /// A map of ours, or nothing, which says that nothing beyond the position is done.
    Progress(Progress),
    /// A map of the parallel consumer's.
    TakenOver(Progress),
    /// Something unreadable, which the policy says to do without, and why it is.
    Repeated(Progress, MapError),
}

impl DecodedMap {
    /// Where to go on from.
    #[must_use]
    pub fn into_progress(self) -> Progress {
        match self {
            DecodedMap::Progress(progress) | DecodedMap::TakenOver(progress) => progress,
            DecodedMap::Repeated(progress, _) => progress,
        }
    }
}

/// Why the metadata beside a committed position cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MapError {
    /// It is ours, and has been changed since, or belongs to another position.
    #[error("the map of what is done is damaged, or belongs to another committed position")]
    Damaged,
    /// It is ours, about another stream: a topic that was deleted and made again, say.
    #[error("the map of what is done belongs to another stream")]
    OtherStream,
    /// It is ours, of a later version of this software.
    #[error("the map of what is done was written by a later version")]
    Later,
    /// It is by Kafka Streams.
    #[error("the metadata was written by Kafka Streams")]
    KafkaStreams,
    /// It is by somebody else.
    #[error("the metadata was not written by this software")]
    Foreign,
}

/// Reads what stands beside a committed position; `stream` as for [`Progress::encode`].
///
/// Whatever the text is, this does not panic, and takes neither time nor memory beyond a small
/// multiple of what such a map can need.
///
/// # Errors
/// If it cannot be used, and the policy says to refuse that.
pub fn decode(
    committed: Position,
    metadata: &str,
    stream: &[u8],
    policy: MapPolicy,
) -> Result<DecodedMap, MapError> {
    let read = if metadata.is_empty() {
        Ok(DecodedMap::Progress(Progress::up_to(committed)))
    } else if completed_map::is_known(metadata) {
        let found = completed_map::decode(committed, metadata, stream);
        found.map(|(progress, _)| DecodedMap::Progress(progress)).map_err(|refused| match refused {
            MapRefused::Damaged => MapError::Damaged,
            MapRefused::OtherStream => MapError::OtherStream,
        })
    } else if is_later(metadata) {
        Err(MapError::Later)
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

/// The highest leader epoch that a map has, if it has one: no record below the map's end was appended under a later
/// one when the map was written. For a text that [`decode`] has accepted.
#[must_use]
pub fn highest_epoch(metadata: &str) -> Option<u32> {
    completed_map::epoch(metadata)
}

/// Whether it begins as ours do, with another version.
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
) -> Result<DecodedMap, MapError> {
    let found = parallel_consumer::decode(committed, text)?;
    match policy {
        ForeignMapPolicy::TakeOver => Ok(DecodedMap::TakenOver(found)),
        ForeignMapPolicy::Distrust => Err(MapError::Foreign),
    }
}
