//! Error responses, as RFC 9457 defines them.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Error response: `application/problem+json` (RFC 9457).
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Path of this server's page about the problem type: `/problems/` and `code`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Short description, fixed per type.
    pub title: String,
    /// HTTP status code.
    pub status: u16,
    /// Description of this occurrence, with the remedy.
    pub detail: String,
    /// Id of the request in the log.
    pub instance: String,
    /// Code of the type, for programs.
    pub code: String,
    /// Invalid fields of the request.
    #[serde(skip_serializing_if = "Vec::is_empty", default)]
    pub errors: Vec<FieldError>,
}

/// Invalid field of a request.
#[derive(Clone, Debug, Serialize, Deserialize, ToSchema)]
pub struct FieldError {
    /// JSON pointer (RFC 6901) of the field; for NDJSON, `line 7` and a pointer.
    pub pointer: String,
    /// Description of the error.
    pub detail: String,
}
