//! Parameters of a page: its length and its place.

use super::problem::ApiError;

/// Default and maximum length of a page.
const PAGE: usize = 50;
const MAX_PAGE: usize = 1000;

pub(super) fn limit_of(limit: Option<usize>) -> Result<usize, ApiError> {
    match limit.unwrap_or(PAGE) {
        limit @ 1..=MAX_PAGE => Ok(limit),
        _ => {
            let why = format!("must be from 1 to {MAX_PAGE}");
            Err(ApiError::new("invalid", format!("limit: {why}")).at("?limit", why))
        }
    }
}

pub(super) fn cursor_of(cursor: Option<&String>) -> Result<Option<u64>, ApiError> {
    let parse = |text: &String| {
        text.parse().map_err(|_| {
            let why = "must be the `next_cursor` of the previous page";
            ApiError::new("invalid", format!("cursor: {why}")).at("?cursor", why)
        })
    };
    cursor.map(parse).transpose()
}
