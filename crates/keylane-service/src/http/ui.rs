//! Files of the dashboard, embedded in the binary.
//!
//! They are small and change only with the binary: each has a hash as its `ETag`, and a browser
//! with the current version gets 304.

use axum::Router;
use axum::body::Body;
use axum::extract::Path;
use axum::http::{HeaderMap, HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use rust_embed::RustEmbed;

use super::app_state::AppState;
use super::problem::ApiError;

#[derive(RustEmbed)]
#[folder = "ui/"]
#[include = "index.html"]
#[include = "icon.svg"]
#[include = "css/*.css"]
#[include = "js/*.js"]
#[include = "js/**/*.js"]
struct UiFiles;

pub(super) fn router() -> Router<AppState> {
    Router::new().route("/", get(index)).route("/ui/{*path}", get(file))
}

async fn index(headers: HeaderMap) -> Result<Response, ApiError> {
    serve("index.html", &headers)
}

async fn file(Path(path): Path<String>, headers: HeaderMap) -> Result<Response, ApiError> {
    serve(&path, &headers)
}

fn serve(path: &str, headers: &HeaderMap) -> Result<Response, ApiError> {
    let file = UiFiles::get(path).ok_or_else(|| ApiError::unknown("such file"))?;
    let hash = file.metadata.sha256_hash();
    let hash: String = hash[..16].iter().map(|byte| format!("{byte:02x}")).collect();
    let tag = HeaderValue::from_str(&format!("\"{hash}\"")).expect("digits are plain text");
    let known = headers.get(header::IF_NONE_MATCH).and_then(|tags| tags.to_str().ok());
    let is_known = known.is_some_and(|known| known.contains(&hash));
    let mut response = if is_known {
        StatusCode::NOT_MODIFIED.into_response()
    } else {
        Response::new(Body::from(file.data.into_owned()))
    };
    let put = response.headers_mut();
    put.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind_of(path)));
    put.insert(header::ETAG, tag);
    // Revalidated for each use, usually with an empty 304.
    put.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Ok(response)
}

fn kind_of(path: &str) -> &'static str {
    match path.rsplit('.').next() {
        Some("html") => "text/html; charset=utf-8",
        Some("css") => "text/css; charset=utf-8",
        Some("js") => "text/javascript; charset=utf-8",
        Some("svg") => "image/svg+xml",
        _ => "application/octet-stream",
    }
}
