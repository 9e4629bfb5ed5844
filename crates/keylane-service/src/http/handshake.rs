//! WebSocket handshake checks of RFC 6455 that the framework omits.

use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};

use super::problem::ApiError;

/// Only version defined by RFC 6455.
const VERSION: &str = "13";

/// Refuses a handshake with another version, or with a key that is not 16 bytes in base64.
pub(super) fn check(headers: &HeaderMap) -> Result<(), Box<Response>> {
    let version = headers.get(header::SEC_WEBSOCKET_VERSION).map(HeaderValue::as_bytes);
    if version.is_some_and(|version| version != VERSION.as_bytes()) {
        let detail = format!("this server speaks version {VERSION} of the WebSocket protocol");
        let mut response = ApiError::new("upgrade-required", detail).into_response();
        let put = response.headers_mut();
        put.insert(header::SEC_WEBSOCKET_VERSION, HeaderValue::from_static(VERSION));
        put.insert(header::UPGRADE, HeaderValue::from_static("websocket"));
        return Err(Box::new(response));
    }
    let mut keys = headers.get_all(header::SEC_WEBSOCKET_KEY).iter();
    match (keys.next(), keys.next()) {
        (Some(key), None) if is_key(key.as_bytes()) => Ok(()),
        _ => {
            let detail = "`Sec-WebSocket-Key` is 16 bytes in base64, once";
            Err(Box::new(ApiError::new("bad-syntax", detail).into_response()))
        }
    }
}

/// Returns whether the text is 16 bytes in base64: 22 characters and two of padding.
fn is_key(key: &[u8]) -> bool {
    let is_letter = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'/');
    let Some((letters, b"==")) = key.split_last_chunk::<2>() else {
        return false;
    };
    letters.len() == 22 && letters.iter().all(is_letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_sixteen_bytes_in_base64() {
        assert!(is_key(b"dGhlIHNhbXBsZSBub25jZQ=="));
        for wrong in
            [&b""[..], b"==", b"short==", b"dGhlIHNhbXBsZSBub25jZQ", b"dGhlIHNhbXBsZSBub25jZ-=="]
        {
            assert!(!is_key(wrong), "{}", wrong.escape_ascii());
        }
    }
}
