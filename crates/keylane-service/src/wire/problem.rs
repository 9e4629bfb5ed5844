use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Why a request was refused: `application/problem+json` (RFC 9457).
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// A page of this server that explains it: `/problems/` and `code`.
    #[serde(rename = "type")]
    pub kind: String,
    /// What it is, in few words, always the same for its type.
    pub title: String,
    /// The status code.
    pub status: u16,
    /// What it is this time, and what can be done.
    pub detail: String,
    /// The request's number in the log.
    pub instance: String,
    /// The type's last word, for programs.
    pub code: String,
    /// The places in the request that are wrong.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub errors: Vec<FieldError>,
}

/// A place in a request that is wrong.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// Where: a JSON pointer (RFC 6901), or in NDJSON `line 7` and a pointer.
    pub pointer: String,
    /// What is wrong there.
    pub detail: String,
}
