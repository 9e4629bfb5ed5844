use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A part of a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// What is on it.
    pub items: Vec<T>,
    /// Where the next page begins; none on the last one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_cursor: Option<String>,
    /// Rows of the store that belong on this page and cannot be shown, because they are not what was written.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub damaged: Vec<DamagedRow>,
}

impl<T> Page<T> {
    pub(crate) fn new(items: Vec<T>, next_cursor: Option<String>) -> Self {
        Page { items, next_cursor, damaged: Vec::new() }
    }
}

/// A row of the store that is not what was written.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DamagedRow {
    /// Id of the job, as far as the row says it.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub id: Option<String>,
    /// Number of the job in the store.
    pub number: u64,
    /// What is damaged, and the remedy.
    pub problem: String,
}
