//! Reasons why a map of completed positions cannot be used.

/// Reason why the metadata of a committed position cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OffsetMapError {
    /// The map was changed, or belongs to another position.
    #[error("the map of completed positions is damaged, or belongs to another committed position")]
    Damaged,
    /// The map belongs to another stream, for example to a topic that was deleted and recreated.
    #[error("the map of completed positions belongs to another stream")]
    OtherStream,
    /// The map was written by a later version of this software.
    #[error("the map of completed positions was written by a later version; upgrade this member")]
    Later,
    /// The metadata was written by Kafka Streams.
    #[error("the metadata was written by Kafka Streams")]
    KafkaStreams,
    /// The metadata was written by unknown software.
    #[error("the metadata was not written by Keylane")]
    Foreign,
}
