use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{SubtaskState, Timestamp};

/// How a key is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum KeyState {
    /// Its subtasks go on one after another.
    Open,
    /// Somebody has paused it.
    Paused,
    /// One of its subtasks failed for good, and it was to stop then.
    Stopped,
}

/// A key with unfinished subtasks, or one that is paused.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct KeyView {
    /// The key.
    pub key: String,
    /// How it is.
    pub state: KeyState,
    /// Its unfinished subtasks.
    pub length: u64,
    /// The first of them.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub head: Option<KeyHead>,
    /// When it was paused.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub paused_since: Option<Timestamp>,
}

/// The subtask that a key's others wait for.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct KeyHead {
    /// Its job,
    pub job: String,
    /// and its number there.
    pub number: u32,
    /// How it is.
    pub state: SubtaskState,
    /// Since when it is the head.
    pub since: Timestamp,
    /// For how long.
    pub age_ms: u64,
    /// Attempts that have begun.
    pub attempts: u32,
}
