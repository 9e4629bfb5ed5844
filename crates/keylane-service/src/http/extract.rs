//! Strict decoding of request bodies and queries. An error names the field and its rule.

use std::net::{IpAddr, SocketAddr};

use axum::body::{Body, Bytes};
use axum::extract::{ConnectInfo, FromRequestParts, Request};
use axum::http::request::Parts;
use axum::http::{Extensions, HeaderMap, header};
use serde::de::DeserializeOwned;
use serde_path_to_error::Segment;

use super::auth::{Caller, Role};
use super::body_timeout::BodyReadTimeout;
use super::permission::need;
use super::problem::ApiError;
use crate::job_definition::pointer;
use crate::wire::Object;

/// Decodes a JSON object. Its type refuses unknown fields.
pub(super) fn json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, ApiError> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let read = serde_path_to_error::deserialize(&mut reader);
    let read: Object<T> = read.map_err(|error| {
        let at = pointer_of(error.path());
        let inner = error.into_inner();
        let code = if inner.is_data() { "invalid" } else { "bad-syntax" };
        ApiError::new(code, format!("the body is invalid: {inner}")).at(at, inner.to_string())
    })?;
    reader
        .end()
        .map_err(|error| ApiError::new("bad-syntax", format!("after the body: {error}")))?;
    Ok(read.0)
}

/// Decodes a JSON object; an empty body gives the default.
pub(super) fn json_or_default<T: DeserializeOwned + Default>(bytes: &[u8]) -> Result<T, ApiError> {
    if bytes.iter().all(u8::is_ascii_whitespace) { Ok(T::default()) } else { json(bytes) }
}

fn pointer_of(path: &serde_path_to_error::Path) -> String {
    path.iter().fold(String::new(), |at, segment| match segment {
        Segment::Seq { index } => format!("{at}/{index}"),
        Segment::Map { key } => pointer(&at, key),
        Segment::Enum { variant } => pointer(&at, variant),
        Segment::Unknown => at,
    })
}

/// Format of a request's body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyFormat {
    Json,
    Lines,
}

/// Returns the format by `Content-Type`; JSON if the header is absent.
pub(super) fn format(headers: &HeaderMap) -> Result<BodyFormat, ApiError> {
    let Some(kind) = headers.get(header::CONTENT_TYPE) else { return Ok(BodyFormat::Json) };
    let kind = kind.to_str().unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    let is = |known: &str| kind.eq_ignore_ascii_case(known);
    if is("application/json") {
        Ok(BodyFormat::Json)
    } else if is("application/x-ndjson") || is("application/jsonl") {
        Ok(BodyFormat::Lines)
    } else {
        let detail =
            format!("`Content-Type` is `{kind}`; send application/json or application/x-ndjson");
        Err(ApiError::new("unsupported-media-type", detail))
    }
}

/// Reads a whole body of at most `most` bytes.
pub(super) async fn read_body(body: Body, most: usize) -> Result<Bytes, ApiError> {
    axum::body::to_bytes(body, most).await.map_err(|error| {
        if causes(&error).any(|cause| cause.to_string().contains("length limit")) {
            return ApiError::new("too-large", format!("the body exceeds {most} bytes"));
        }
        broken_off(&error)
    })
}

/// Error for a body that ended early.
pub(super) fn broken_off(error: &axum::Error) -> ApiError {
    if causes(error).any(|cause| cause.is::<BodyReadTimeout>()) {
        return ApiError::new("too-slow", "the body did not arrive in time; nothing was accepted");
    }
    ApiError::new("bad-syntax", "the body ended early; nothing was accepted")
}

fn causes<'a>(
    error: &'a (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'a (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}

/// Reads a small JSON body, or the default if it is empty.
pub(super) async fn read_optional_body<T: DeserializeOwned + Default>(
    request: Request,
) -> Result<T, ApiError> {
    read_optional_body_of(request, 64 * 1024).await
}

/// Reads an optional JSON body of at most `max_bytes`.
pub(super) async fn read_optional_body_of<T: DeserializeOwned + Default>(
    request: Request,
    max_bytes: usize,
) -> Result<T, ApiError> {
    let (parts, body) = request.into_parts();
    let bytes = read_body(body, max_bytes).await?;
    if !bytes.is_empty() && format(&parts.headers)? == BodyFormat::Lines {
        return Err(ApiError::new(
            "unsupported-media-type",
            "`Content-Type` must be application/json",
        ));
    }
    json_or_default(&bytes)
}

/// Decodes a query. Its type refuses unknown names.
pub(super) fn query<T: DeserializeOwned>(parts: &Parts) -> Result<T, ApiError> {
    query_of(&parts.uri)
}

/// Decodes the query of a URI.
pub(super) fn query_of<T: DeserializeOwned>(uri: &axum::http::Uri) -> Result<T, ApiError> {
    let asked = axum::extract::Query::<T>::try_from_uri(uri);
    let asked = asked.map_err(|error| {
        let why = std::error::Error::source(&error).map_or(error.to_string(), ToString::to_string);
        ApiError::new("invalid", format!("the query is invalid: {why}")).at("?", why)
    })?;
    Ok(asked.0)
}

/// Returns the client's address, if the server knows it.
pub(super) fn peer(extensions: &Extensions) -> Option<IpAddr> {
    let ConnectInfo(address) = extensions.get::<ConnectInfo<SocketAddr>>()?;
    Some(address.ip().to_canonical())
}

macro_rules! callers {
    ($($(#[$doc:meta])* $name:ident: $role:ident),* $(,)?) => {$(
        $(#[$doc])*
        #[derive(Debug)]
        pub(super) struct $name(#[allow(dead_code, reason = "some only need the check")] pub(super) Caller);

        impl<S: Send + Sync> FromRequestParts<S> for $name {
            type Rejection = ApiError;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
                let caller = parts.extensions.get::<Caller>().cloned();
                let caller = caller.ok_or_else(|| ApiError::new("unauthorized", "the request has no caller"))?;
                need(&caller, Role::$role)?;
                Ok($name(caller))
            }
        }
    )*};
}

// Extractors. A handler that takes one runs only for callers with its role.
callers! {
    /// Caller that may read.
    Reader: Read,
    /// Caller that may submit jobs.
    Submitter: Submit,
    /// Caller that may take leases.
    Leaser: Worker,
    /// Caller that may read the audit log.
    Overseer: Operate,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{CancelRequest, SubmitJob};

    #[test]
    fn an_unknown_field_is_refused_with_its_place() {
        let refusal =
            json::<SubmitJob>(br#"{"kind":"a","subtasks":[{},{"ky":"u7"}]}"#).unwrap_err();
        assert_eq!(refusal.code, "invalid");
        assert_eq!(refusal.errors[0].pointer, "/subtasks/1/ky");
        assert!(refusal.detail.contains("unknown field `ky`"), "{}", refusal.detail);
    }

    #[test]
    fn what_is_no_json_is_refused_as_such() {
        for bytes in [&b"{\"kind\":"[..], b"{\"kind\":\"a\"} x", b"\xff"] {
            assert_eq!(json::<SubmitJob>(bytes).unwrap_err().code, "bad-syntax");
        }
        assert_eq!(json::<SubmitJob>(b"[]").unwrap_err().code, "invalid");
    }

    #[test]
    fn nothing_is_the_default() {
        json_or_default::<CancelRequest>(b" \n").unwrap();
        json_or_default::<CancelRequest>(b"{}").unwrap();
        assert!(json_or_default::<CancelRequest>(b"{\"mood\":1}").is_err());
    }

    #[test]
    fn an_array_is_no_object() {
        assert_eq!(json::<CancelRequest>(b"[]").unwrap_err().code, "invalid");
        let nested = br#"{"kind":"a","subtasks":[{"key":"k","payload":1.50},["k"]]}"#;
        let refusal = json::<SubmitJob>(nested).unwrap_err();
        assert_eq!((refusal.code, &*refusal.errors[0].pointer), ("invalid", "/subtasks/1"));
        let job = json::<SubmitJob>(br#"{"kind":"a","subtasks":[{"payload":1.50}]}"#).unwrap();
        let subtasks = job.subtasks.unwrap();
        assert_eq!(subtasks[0].payload.as_ref().unwrap().get(), "1.50");
    }

    #[test]
    fn the_format_is_what_the_header_says() {
        let format_of = |kind: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::CONTENT_TYPE, kind.parse().unwrap());
            format(&headers).map_err(|refusal| refusal.code)
        };
        assert_eq!(format(&HeaderMap::new()).unwrap(), BodyFormat::Json);
        assert_eq!(format_of("application/json; charset=utf-8"), Ok(BodyFormat::Json));
        assert_eq!(format_of("Application/X-NDJSON"), Ok(BodyFormat::Lines));
        assert_eq!(format_of("text/plain"), Err("unsupported-media-type"));
    }
}
