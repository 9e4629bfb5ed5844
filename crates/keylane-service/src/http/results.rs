//! `/v1/jobs/{id}/results`: results as pages of JSON, pages of lines, or one stream of lines.

use std::sync::Arc;

use axum::Json;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::request::Parts;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use futures_util::stream::{self, Stream, StreamExt};
use serde::Deserialize;

use super::app_state::AppState;
use super::blocking::blocking;
use super::extract::{Reader, query};
use super::job_path::JobPath;
use super::page_query::{cursor_of, limit_of};
use super::problem::ApiError;
use crate::JobId;
use crate::engine::{Core, PinnedResults, ResultOrder};
use crate::wire::{OutcomeView, Page};

const NDJSON: &str = "application/x-ndjson";

/// Number of results that a stream of lines reads from the store at once.
const READ_AT_ONCE: usize = 500;

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct ResultsQuery {
    order: Option<ResultOrder>,
    cursor: Option<String>,
    limit: Option<usize>,
}

/// Results of one job, in one order.
struct ResultStream {
    core: Arc<Core>,
    id: JobId,
    order: ResultOrder,
    /// What all pages need, for a stream of them.
    pin: Option<Arc<PinnedResults>>,
}

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/v1/jobs/{id}/results", get(results))
}

async fn results(
    axum::extract::State(state): axum::extract::State<AppState>,
    _: Reader,
    JobPath(id): JobPath,
    parts: Parts,
) -> Result<Response, ApiError> {
    let asked: ResultsQuery = query(&parts)?;
    let cursor = cursor_of(asked.cursor.as_ref())?.unwrap_or(0);
    let order = asked.order.unwrap_or_default();
    let results = ResultStream { core: Arc::clone(&state.core), id, order, pin: None };
    let accept = parts.headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok());
    if !accept.is_some_and(|accept| accept.contains(NDJSON)) {
        return Ok(Json(results.page(cursor, limit_of(asked.limit)?).await?).into_response());
    }
    let Some(limit) = asked.limit else { return results.all(cursor).await };
    let page = results.page(cursor, limit_of(Some(limit))?).await?;
    let mut response = as_ndjson(lines(&page).into());
    if let Some(next) = &page.next_cursor {
        let order = order.as_str();
        let path = parts.uri.path();
        let link = format!("<{path}?order={order}&limit={limit}&cursor={next}>; rel=\"next\"");
        let link = HeaderValue::from_str(&link).expect("a path of a request is plain text");
        response.headers_mut().insert(header::LINK, link);
    }
    Ok(response)
}

impl ResultStream {
    async fn page(&self, cursor: u64, limit: usize) -> Result<Page<OutcomeView>, ApiError> {
        let (id, order, pin) = (self.id, self.order, self.pin.clone());
        let read = move |core: &Core| core.query.results(id, order, cursor, limit, pin.as_deref());
        blocking(&self.core, read).await
    }

    /// Returns all results from a cursor on, as a body without a length. An error on the way aborts
    /// the body, so that a client does not take a part for the whole.
    async fn all(mut self, cursor: u64) -> Result<Response, ApiError> {
        let (id, order) = (self.id, self.order);
        let pin = blocking(&self.core, move |core| core.query.pin_results(id, order)).await?;
        self.pin = Some(Arc::new(pin));
        // The first page is read before the status is sent, because it decides the status.
        let first = self.page(cursor, READ_AT_ONCE).await?;
        Ok(as_ndjson(Body::from_stream(self.lines_from(first))))
    }

    /// Returns the lines from the first page on.
    fn lines_from(self, first: Page<OutcomeView>) -> impl Stream<Item = std::io::Result<Bytes>> {
        let next = self.next(&first);
        let rest = stream::try_unfold((self, next), |(results, next)| async move {
            let Some(cursor) = next else { return Ok(None) };
            let page = results.page(cursor, READ_AT_ONCE).await;
            let page = page.map_err(|refusal| std::io::Error::other(refusal.detail))?;
            let next = results.next(&page);
            Ok(Some((Bytes::from(lines(&page)), (results, next))))
        });
        stream::once(std::future::ready(Ok(Bytes::from(lines(&first))))).chain(rest)
    }

    /// Returns the cursor of the next page, if there is one by now. In completion order, an
    /// unfinished job always has a next page, which may still be empty.
    fn next(&self, page: &Page<OutcomeView>) -> Option<u64> {
        let is_last = self.order == ResultOrder::Completion && page.items.len() < READ_AT_ONCE;
        let next = page.next_cursor.as_ref().filter(|_| !is_last)?;
        Some(next.parse().expect("a cursor of results is a number"))
    }
}

fn as_ndjson(body: Body) -> Response {
    ([(header::CONTENT_TYPE, HeaderValue::from_static(NDJSON))], body).into_response()
}

/// Encodes a page as lines.
fn lines(page: &Page<OutcomeView>) -> Vec<u8> {
    let mut text = Vec::new();
    for item in &page.items {
        let begin = text.len();
        serde_json::to_writer(&mut text, item).expect("a result can be written as JSON");
        // A handler's JSON may contain line ends between its tokens. JSON strings cannot, so the
        // replacement is safe.
        text[begin..].iter_mut().filter(|byte| **byte == b'\n').for_each(|byte| *byte = b' ');
        text.push(b'\n');
    }
    text
}
