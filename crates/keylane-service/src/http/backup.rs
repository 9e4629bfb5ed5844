//! `/v1/backup`: a copy of the store, streamed to an administrator.

use std::fs::File;
use std::io::{self, Read};

use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use axum::{Extension, Router};
use futures_util::stream::{self, Stream};

use super::app_state::AppState;
use super::auth::{Caller, Role};
use super::operator::OperatorCaller;
use super::permission::need;
use super::problem::ApiError;
use crate::engine::Executor;

/// Number of bytes that are read and sent at once.
const PIECE: usize = 256 * 1024;

const SQLITE: HeaderValue = HeaderValue::from_static("application/vnd.sqlite3");
const NAMED: HeaderValue = HeaderValue::from_static("attachment; filename=\"keylane.db\"");

pub(super) fn router() -> Router<AppState> {
    // Not GET: a page of another site must not make a browser start it.
    Router::new().route("/v1/backup", post(backup))
}

async fn backup(
    State(state): State<AppState>,
    OperatorCaller(act): OperatorCaller,
    Extension(caller): Extension<Caller>,
) -> Result<Response, ApiError> {
    need(&caller, Role::Admin)?;
    let file = state.core.backups.copy(&act).await?;
    let length = file.metadata().map_err(|error| {
        ApiError::new("internal", format!("the length of the copy is unknown: {error}"))
    })?;
    // A client that gets fewer bytes knows that the copy is not complete.
    let length = HeaderValue::from(length.len());
    let body = Body::from_stream(pieces(state.core.executor.clone(), file));
    let headers = [
        (header::CONTENT_TYPE, SQLITE),
        (header::CONTENT_DISPOSITION, NAMED),
        (header::CONTENT_LENGTH, length),
    ];
    Ok((headers, body).into_response())
}

/// Returns the content of a file, from its beginning.
fn pieces(executor: Executor, file: File) -> impl Stream<Item = io::Result<Bytes>> {
    stream::try_unfold((executor, file), |(executor, file)| async move {
        let read = executor.blocking(move || {
            let mut piece = Vec::with_capacity(PIECE);
            (&file).take(PIECE as u64).read_to_end(&mut piece).map(|_| (piece, file))
        });
        let (piece, file) = read.await.map_err(io::Error::other)??;
        Ok((!piece.is_empty()).then(|| (Bytes::from(piece), (executor, file))))
    })
}
