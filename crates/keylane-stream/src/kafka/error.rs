//! Classification of the Kafka client's errors.

use rdkafka::types::RDKafkaErrorCode as Code;

use crate::source::CommitError;

/// Returns whether an error persists until an operator acts: rights, credentials, versions.
///
/// Before the first success such an error stops the consumer, because it is a mistake in its
/// settings. Later it is a mistake on the broker's side, which is reported and waited for.
pub(super) fn is_lasting(code: Code) -> bool {
    matches!(
        code,
        Code::Authentication
            | Code::SaslAuthenticationFailed
            // Untrusted certificates. A broken connection has another code.
            | Code::SSL
            | Code::UnsupportedSASLMechanism
            | Code::IllegalSASLState
            | Code::TopicAuthorizationFailed
            | Code::GroupAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::TransactionalIdAuthorizationFailed
            | Code::InvalidGroupId
            | Code::InvalidTopic
            | Code::InconsistentGroupProtocol
            | Code::UnsupportedVersion
            | Code::UnsupportedFeature
            | Code::UnsupportedAssignor
    )
}

/// Returns whether the offset to read from does not exist.
pub(super) fn is_out_of_range(code: Code) -> bool {
    matches!(code, Code::AutoOffsetReset | Code::LogTruncation | Code::OffsetOutOfRange)
}

/// Converts the error of a commit.
pub(super) fn of_commit(code: Code) -> CommitError {
    match code {
        // The group has removed this member, which will be notified.
        Code::UnknownMemberId | Code::FencedInstanceId | Code::FencedMemberEpoch => {
            CommitError::NotOurs
        }
        Code::OffsetMetadataTooLarge => CommitError::TooLong,
        // Includes a generation that has just ended: the partition may stay assigned in the next
        // one.
        code => CommitError::Later(code.to_string()),
    }
}
