//! Checks before every handler, and headers on every answer.
//!
//! From the outside in: the sender of a request of another node; the request number for the log; the host name, so that a page of another
//! site cannot reach a server on loopback through its own name (DNS rebinding); cross-site writes,
//! by `Sec-Fetch-Site` and `Origin`; the token and its role; and the headers that restrict the
//! dashboard in browsers to its own behaviour.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri, Version, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::auth::{Caller, Replaceable, Role, Tokens};
use super::connection_limits::SharedConnectionPermit;
use super::extract::peer;
use super::forwarded;
use super::permission::{self, need, read_only};
use super::problem::ApiError;
use super::token_guessing::{WrongTokenDecision, WrongTokens};
use crate::node::Node;
use crate::wire::Problem;

/// Rules for requests.
#[derive(Debug)]
pub(super) struct RequestRules {
    pub(super) tokens: Replaceable<Tokens>,
    /// Accepted host names, without ports; loopback names are always accepted.
    pub(super) hosts: Vec<String>,
    /// Whether all requests that change state are refused.
    pub(super) read_only: bool,
    /// This server as a node of a cluster, if it is one.
    node: Option<Node>,
    guesses: Arc<WrongTokens>,
    requests: AtomicU64,
    /// Random prefix of request numbers, so that requests of two servers, or before and after a
    /// restart, differ in a log.
    prefix: u32,
}

impl RequestRules {
    pub(super) fn new(tokens: Replaceable<Tokens>, hosts: Vec<String>, read_only: bool) -> Self {
        let mut prefix = [0; 4];
        // The prefix only separates logs, so zero is acceptable if the system has no randomness.
        let _ = getrandom::fill(&mut prefix);
        let prefix = u32::from_ne_bytes(prefix);
        let (guesses, requests) = (Arc::default(), AtomicU64::new(1));
        RequestRules { tokens, hosts, read_only, node: None, guesses, requests, prefix }
    }

    /// Accepts the requests that other nodes forward.
    pub(super) fn of_node(self, node: Option<Node>) -> Self {
        RequestRules { node, ..self }
    }

    fn number(&self) -> String {
        format!("{:08x}-{}", self.prefix, self.requests.fetch_add(1, Relaxed))
    }
}

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const SEC_FETCH_SITE: HeaderName = HeaderName::from_static("sec-fetch-site");

/// Content security policy: only the dashboard's own files and the API, and no embedding in frames.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'";

/// Numbers the request, and completes the answer's headers.
pub(super) async fn number(
    State(guard): State<Arc<RequestRules>>,
    mut request: Request,
    next: Next,
) -> Response {
    forwarded::accept(&mut request, guard.node.as_ref());
    let number = guard.number();
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let response = next.run(request).await;
    let mut response = finish_problem(response, &number);
    let headers = response.headers_mut();
    let mut put = |name: HeaderName, value: &'static str| {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    };
    put(header::X_CONTENT_TYPE_OPTIONS, "nosniff");
    put(header::REFERRER_POLICY, "no-referrer");
    put(header::CONTENT_SECURITY_POLICY, POLICY);
    put(header::X_FRAME_OPTIONS, "DENY");
    put(header::CACHE_CONTROL, "no-store");
    if let Ok(value) = HeaderValue::from_str(&number) {
        headers.insert(REQUEST_ID, value);
    }
    let status = response.status();
    if is_failure(status) {
        tracing::error!(request = number, %method, path, status = status.as_u16(), "failed");
    } else {
        tracing::debug!(request = number, %method, path, status = status.as_u16(), "answered");
    }
    response
}

/// Returns true if an operator must learn of an answer with this status.
fn is_failure(status: StatusCode) -> bool {
    // The engine logs a full store once; it is not logged again for each refused request.
    status.is_server_error() && status != StatusCode::INSUFFICIENT_STORAGE
}

/// Adds the request number to a problem document, and converts the framework's own plain-text
/// errors into one.
fn finish_problem(response: Response, number: &str) -> Response {
    if let Some(problem) = response.extensions().get::<Problem>() {
        let problem = Problem { instance: number.to_owned(), ..problem.clone() };
        let body = serde_json::to_vec(&problem).expect("a problem can be written as JSON");
        let (mut parts, _) = response.into_parts();
        parts.headers.remove(header::CONTENT_LENGTH);
        return Response::from_parts(parts, Body::from(body));
    }
    let status = response.status();
    let is_ours = |headers: &HeaderMap| {
        headers
            .get(header::CONTENT_TYPE)
            .is_some_and(|kind| kind.as_bytes().starts_with(b"application/"))
    };
    if !(status.is_client_error() || status.is_server_error()) || is_ours(response.headers()) {
        return response;
    }
    let refusal = match status.as_u16() {
        404 => ApiError::unknown("such path; `/openapi.json` lists the paths of the API"),
        405 => ApiError::new(
            "method-not-allowed",
            "the path does not support this method; the header `Allow` lists its methods",
        ),
        413 => ApiError::new("too-large", "the body exceeds the server's size limit"),
        415 => {
            ApiError::new("unsupported-media-type", "the path does not support this `Content-Type`")
        }
        status if status < 500 => ApiError::new("bad-syntax", "the request cannot be read"),
        _ => ApiError::new("internal", "something went wrong in the server"),
    };
    let allow = response.headers().get(header::ALLOW).cloned();
    let mut response = finish_problem(refusal.into_response(), number);
    if let Some(allow) = allow {
        response.headers_mut().insert(header::ALLOW, allow);
    }
    response
}

/// Admits a request with its caller, or refuses it.
pub(super) async fn admit(
    State(guard): State<Arc<RequestRules>>,
    mut request: Request,
    next: Next,
) -> Response {
    let examined = guard.examine(&request).and_then(|caller| {
        let place = request.extensions().get::<SharedConnectionPermit>();
        // The reserve is for probes, which do not pass here, and for operators.
        match place.is_some_and(|place| place.0.is_reserve) && need(&caller, Role::Operate).is_err()
        {
            true => Err(ApiError {
                retry_after: Some(1),
                ..ApiError::new(
                    "too-many-requests",
                    "all connections are taken; the last are for operators",
                )
            }),
            false => Ok(caller),
        }
    });
    match examined {
        Ok(caller) => {
            request.extensions_mut().insert(caller);
            next.run(request).await
        }
        // A request without a token is not a guess.
        Err(refusal) if refusal.code == "unauthorized" && token(request.headers()).is_some() => {
            let peer = peer(request.extensions());
            guard.refuse_guess(refusal, peer).await
        }
        Err(refusal) => refusal.into_response(),
    }
}

/// Returns the token of a request. A browser cannot set the header for a WebSocket, so its
/// handshake may have the token as a subprotocol: `bearer.` and the token.
fn token(headers: &HeaderMap) -> Option<&str> {
    let bearer = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let bearer = bearer.and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
    });
    let protocols = headers.get(header::SEC_WEBSOCKET_PROTOCOL);
    let protocols = protocols.and_then(|value| value.to_str().ok()).unwrap_or_default();
    let offered = protocols.split(',').find_map(|protocol| protocol.trim().strip_prefix("bearer."));
    bearer.or(offered)
}

impl RequestRules {
    fn examine(&self, request: &Request) -> Result<Caller, ApiError> {
        // Of a node, or of this server itself, and so of no page and no user.
        if let Some(caller) = request.extensions().get::<Caller>() {
            return Ok(caller.clone());
        }
        let (headers, uri) = (request.headers(), request.uri());
        let host = host_of(headers, uri, request.version())?;
        self.check_host(host)?;
        let writes = !matches!(*request.method(), Method::GET | Method::HEAD | Method::OPTIONS);
        let upgrades = headers.contains_key(header::UPGRADE);
        if writes || upgrades {
            check_site(headers, host.unwrap_or_default())?;
        }
        if writes && self.read_only {
            return Err(read_only());
        }
        self.caller(headers)
    }

    /// Answers a wrong token, with a delay after many from one address.
    async fn refuse_guess(&self, refusal: ApiError, peer: Option<IpAddr>) -> Response {
        let consequence = peer.map(|peer| self.guesses.wrong(peer, Instant::now()));
        let mut response = match consequence {
            None | Some(WrongTokenDecision::None) => return refusal.into_response(),
            Some(WrongTokenDecision::Delay(delay, waiting)) => {
                tokio::time::sleep(delay).await;
                drop(waiting);
                refusal.into_response()
            }
            Some(WrongTokenDecision::Refuse) => {
                let many = "too many requests with wrong tokens came from this address";
                let refusal = ApiError::new("too-many-requests", many);
                ApiError { retry_after: Some(5), ..refusal }.into_response()
            }
        };
        // Closing makes each further guess pay for a new connection.
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
        response
    }

    fn check_host(&self, host: Option<&str>) -> Result<(), ApiError> {
        // HTTP/1.0 has no `Host`, and no browser uses it.
        let Some(host) = host else { return Ok(()) };
        let name = without_port(host);
        let is_address = name.trim_matches(['[', ']']).parse::<std::net::IpAddr>().is_ok();
        let is_known = is_address
            || name.eq_ignore_ascii_case("localhost")
            || self.hosts.iter().any(|known| known.eq_ignore_ascii_case(name));
        if is_known {
            return Ok(());
        }
        let detail = format!(
            "host name `{name}` is not accepted; add it to the setting `hosts` if it belongs to this server"
        );
        Err(ApiError::new("forbidden", detail))
    }

    fn caller(&self, headers: &HeaderMap) -> Result<Caller, ApiError> {
        let tokens = self.tokens.get();
        if tokens.is_empty() {
            return Ok(Caller::anyone());
        }
        let Some(token) = token(headers) else {
            return Err(ApiError::new(
                "unauthorized",
                "this server requires a token; send `Authorization: Bearer TOKEN`",
            ));
        };
        let caller = tokens
            .caller(token)
            .ok_or_else(|| ApiError::new("unauthorized", "this server does not know the token"))?;
        permission::not_expired(&caller)?;
        Ok(caller)
    }
}

/// Returns the requested host name. An absolute URI takes precedence over `Host`, and HTTP/1.1
/// allows exactly one `Host` (RFC 9112, sections 3.2 and 3.2.2).
fn host_of<'a>(
    headers: &'a HeaderMap,
    uri: &'a Uri,
    version: Version,
) -> Result<Option<&'a str>, ApiError> {
    let mut hosts = headers.get_all(header::HOST).iter();
    let host = match (hosts.next(), hosts.next()) {
        (_, Some(_)) => {
            return Err(ApiError::new("bad-syntax", "there are several `Host` headers; send one"));
        }
        (None, None) if version == Version::HTTP_11 => {
            return Err(ApiError::new("bad-syntax", "there is no `Host` header; send one"));
        }
        (host, None) => host,
    };
    let host = host.map(|host| {
        host.to_str()
            .map_err(|_| ApiError::new("bad-syntax", "the `Host` header is not a valid name"))
    });
    let host = host.transpose()?;
    Ok(uri.authority().map(|authority| authority.as_str()).or(host))
}

/// Refuses cross-site requests. Browsers send the origin of the page. Other clients send none, and
/// have no ambient credentials that a page could misuse.
fn check_site(headers: &HeaderMap, host: &str) -> Result<(), ApiError> {
    let foreign = || ApiError::new("forbidden", "cross-site requests are refused");
    match headers.get(SEC_FETCH_SITE).map(HeaderValue::as_bytes) {
        Some(b"same-origin" | b"none") => return Ok(()),
        Some(_) => return Err(foreign()),
        None => {}
    }
    let origin = headers.get(header::ORIGIN).and_then(|origin| origin.to_str().ok());
    let Some(origin) = origin else { return Ok(()) };
    let of_origin = origin.split_once("://").map(|(_, rest)| rest);
    if of_origin == Some(host) { Ok(()) } else { Err(foreign()) }
}

fn without_port(host: &str) -> &str {
    if host.starts_with('[') {
        return host.split_inclusive(']').next().unwrap_or(host);
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(method: &str, headers: &[(&str, &str)]) -> Request {
        let mut request = Request::builder().method(method).uri("/v1/jobs");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if !headers.iter().any(|(name, _)| *name == "host") {
            request = request.header("host", "localhost");
        }
        request.body(Body::empty()).unwrap()
    }

    #[test]
    fn there_is_one_host_and_the_address_of_the_request_line_comes_before_it() {
        let guard = guard("");
        let examine = |uri: &str, hosts: &[&str], version| {
            let mut request = Request::builder().uri(uri).version(version);
            for host in hosts {
                request = request.header("host", *host);
            }
            let request = request.body(Body::empty()).unwrap();
            guard.examine(&request).err().map(|refusal| refusal.code)
        };
        assert_eq!(examine("/", &[], Version::HTTP_11), Some("bad-syntax"));
        assert_eq!(examine("/", &["localhost", "localhost"], Version::HTTP_11), Some("bad-syntax"));
        assert_eq!(examine("/", &["localhost"], Version::HTTP_11), None);
        assert_eq!(examine("/", &[], Version::HTTP_10), None);
        let other = "http://evil.example/v1/jobs";
        assert_eq!(examine(other, &["localhost"], Version::HTTP_11), Some("forbidden"));
        assert_eq!(examine("http://localhost/", &["evil.example"], Version::HTTP_11), None);
    }

    fn guard(tokens: &str) -> RequestRules {
        RequestRules::new(
            Replaceable::new(Tokens::parse(tokens).unwrap()),
            vec!["tasks.example".into()],
            false,
        )
    }

    fn code(guard: &RequestRules, method: &str, headers: &[(&str, &str)]) -> Option<&'static str> {
        guard.examine(&request(method, headers)).err().map(|refusal| refusal.code)
    }

    #[test]
    fn a_foreign_host_name_is_refused() {
        let guard = guard("");
        for host in ["localhost", "localhost:8080", "127.0.0.1:8080", "[::1]:8080", "Tasks.Example"]
        {
            assert_eq!(code(&guard, "GET", &[("host", host)]), None, "{host}");
        }
        for host in
            ["evil.example", "evil.example:80", "localhost.evil.example", "tasks.example.evil"]
        {
            assert_eq!(code(&guard, "GET", &[("host", host)]), Some("forbidden"), "{host}");
        }
    }

    #[test]
    fn pages_of_other_sites_write_nothing() {
        let guard = guard("");
        let write = |headers: &[(&str, &str)]| code(&guard, "POST", headers);
        assert_eq!(write(&[("host", "localhost")]), None);
        assert_eq!(write(&[("host", "localhost"), ("sec-fetch-site", "same-origin")]), None);
        for site in ["cross-site", "same-site", "nonsense"] {
            assert_eq!(
                write(&[("host", "localhost"), ("sec-fetch-site", site)]),
                Some("forbidden")
            );
        }
        let origin = |origin| write(&[("host", "localhost:1"), ("origin", origin)]);
        assert_eq!(origin("http://localhost:1"), None);
        assert_eq!(origin("http://localhost:2"), Some("forbidden"));
        assert_eq!(origin("null"), Some("forbidden"));
        // A refused cross-site handshake does not leave a connection open either.
        let upgrade = [("host", "localhost"), ("upgrade", "websocket"), ("origin", "http://evil")];
        assert_eq!(code(&guard, "GET", &upgrade), Some("forbidden"));
        assert_eq!(code(&guard, "GET", &[("host", "localhost"), ("origin", "http://evil")]), None);
    }

    /// A client repeats a refused submission, so that each of them would be an error in the log.
    #[test]
    fn refusals_of_a_full_store_are_no_errors_in_the_log() {
        for status in [StatusCode::INTERNAL_SERVER_ERROR, StatusCode::SERVICE_UNAVAILABLE] {
            assert!(is_failure(status), "{status}");
        }
        for status in [StatusCode::INSUFFICIENT_STORAGE, StatusCode::CONFLICT, StatusCode::OK] {
            assert!(!is_failure(status), "{status}");
        }
    }

    #[test]
    fn a_token_is_wanted_where_there_are_some() {
        let guard = guard("a read plain:0123456789abcdef");
        let get = |headers: &[(&str, &str)]| code(&guard, "GET", headers);
        assert_eq!(get(&[]), Some("unauthorized"));
        assert_eq!(get(&[("authorization", "Bearer 0123456789abcdeX")]), Some("unauthorized"));
        assert_eq!(get(&[("authorization", "Basic 0123456789abcdef")]), Some("unauthorized"));
        assert_eq!(get(&[("authorization", "bearer 0123456789abcdef")]), None);
        let offered = "keylane.v1, bearer.0123456789abcdef";
        assert_eq!(get(&[("sec-websocket-protocol", offered)]), None);
    }
}
