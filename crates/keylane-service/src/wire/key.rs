//! Keys that are paused or have unfinished subtasks.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{SubtaskState, Timestamp};

/// State of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// Its subtasks run one after another; those that share it may run together.
    Open,
    /// An operator has paused it.
    Paused,
    /// One of its subtasks failed on its last attempt, with `stop-key`.
    Stopped,
}

/// Key that is paused or has unfinished subtasks.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct KeyView {
    /// The key.
    pub key: String,
    /// State of the key.
    pub state: KeyState,
    /// Number of its unfinished subtasks.
    pub length: u64,
    /// First unfinished subtask.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub head: Option<KeyHead>,
    /// Time at which it was paused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub paused_since: Option<Timestamp>,
}

/// First unfinished subtask of a key: the others wait for it.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct KeyHead {
    /// Id of its job.
    pub job: String,
    /// Its number in the job.
    pub number: u32,
    /// State of the subtask.
    pub state: SubtaskState,
    /// Time at which it became the head.
    pub since: Timestamp,
    /// Time for which it has been the head, in milliseconds.
    pub age_ms: u64,
    /// Number of started attempts.
    pub attempts: u32,
    /// Whether it shares the key: others that share it may run at the same time.
    #[serde(skip_serializing_if = "std::ops::Not::not", default)]
    pub shared: bool,
}

/// Unfinished subtasks that run one after another because they have a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct KeyChain {
    /// The key.
    pub key: String,
    /// Number of the subtasks, those of all jobs included.
    pub subtasks: u64,
}
