use rdkafka::types::RDKafkaErrorCode as Code;

use crate::source::CommitError;

/// Whether an error will stay until a person does something about it: rights, passwords, versions.
///
/// Before anything has worked, such an error ends the consumer, for it is a mistake in its settings. Later
/// it is a mistake on the broker's side, which is put right sooner or later, and is told and waited for.
pub(super) fn is_lasting(code: Code) -> bool {
    matches!(
        code,
        Code::Authentication
            | Code::SaslAuthenticationFailed
            // Certificates that are not trusted; a connection that breaks meanwhile is another error.
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

/// Whether the place from which a partition was to be read does not exist.
pub(super) fn is_out_of_range(code: Code) -> bool {
    matches!(code, Code::AutoOffsetReset | Code::LogTruncation | Code::OffsetOutOfRange)
}

/// What a commit's error means to the consumer.
pub(super) fn of_commit(code: Code) -> CommitError {
    match code {
        // The group goes on without this member, which will be told so.
        Code::UnknownMemberId | Code::FencedInstanceId | Code::FencedMemberEpoch => {
            CommitError::NotOurs
        }
        Code::OffsetMetadataTooLarge => CommitError::TooLong,
        // Among them a generation that has just passed: the partition may well be ours in the next one.
        code => CommitError::Later(code.to_string()),
    }
}
