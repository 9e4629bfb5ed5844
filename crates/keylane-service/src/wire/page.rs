//! Pages of lists, which name damaged rows instead of leaving them out.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Page of a list.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Page<T> {
    /// Items of the page.
    pub items: Vec<T>,
    /// Cursor of the next page; none on the last one.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub next_cursor: Option<String>,
    /// Rows of this page that cannot be shown because they are damaged.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub damaged: Vec<DamagedRow>,
}

impl<T> Page<T> {
    pub(crate) fn new(items: Vec<T>, next_cursor: Option<String>) -> Self {
        Page { items, next_cursor, damaged: Vec::new() }
    }
}

/// Damaged row of the store: its content is not the content that was written.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct DamagedRow {
    /// Id of the job, as far as the row is readable.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub id: Option<String>,
    /// Number of the job in the store.
    pub number: u64,
    /// Description of the damage, and the remedy.
    pub problem: String,
}
